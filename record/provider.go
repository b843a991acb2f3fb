package record

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"relay"
	"relay/wire"
)

// Provider is what is recognised about the sender.
type Provider struct {
	Name             string   `json:"name"`
	EventType        *string  `json:"eventType"`
	DeliveryID       *string  `json:"deliveryId"`
	SignedAt         *Time    `json:"signedAt" format:"date-time" doc:"the time that the signature covers"`
	ToleranceSeconds *float64 `json:"toleranceSeconds" doc:"age at which the libraries of the provider refuse the signature; null = never"`
}

func providerOf(p relay.Provider) *Provider {
	if p.Name == "" {
		return nil
	}
	out := &Provider{Name: p.Name, EventType: textOf(p.EventType), DeliveryID: textOf(p.DeliveryID), SignedAt: timeOf(p.SignedAt)}
	if !p.SignedAt.IsZero() && p.Tolerance > 0 {
		out.ToleranceSeconds = new(p.Tolerance.Seconds())
	}
	return out
}

// maxLabel bounds what is kept of an event type or delivery id, in bytes.
const maxLabel = 200

// Recognise tells who sent a request, by its header lines and, where the provider
// keeps type and id in a JSON body, by the first 64 KiB of that. It proves nothing:
// anyone can send such lines. The zero value means not recognised.
func Recognise(head, bodyStart []byte) relay.Provider {
	fields := wire.Fields(head)
	for i := range senders {
		s := &senders[i]
		mark := value(fields, s.mark)
		if mark == nil || s.also != "" && value(fields, s.also) == nil {
			continue
		}
		return s.read(fields, mark, bodyStart)
	}
	return relay.Provider{}
}

// sender is how one provider's requests look. Header names are in lower case.
type sender struct {
	name     string
	mark     string // header line that makes it this provider's
	also     string // a second one that must be there, "" = none
	event    string // header line with the event type
	delivery string // header line with the delivery id

	bodyEvent    string // key of the JSON body with the event type, where no header has it
	bodyDelivery string // the same for the delivery id
	nested       string // key of an object whose bodyEvent says more than the outer one

	signed    string             // header line with the signed timestamp; "" = the mark
	at        func([]byte) int64 // its reading in Unix milliseconds, 0 = none; nil = not signed
	tolerance time.Duration      // age at which the provider's own libraries refuse it
}

// senders are tried in this order: those that imitate others come first.
var senders = []sender{
	{name: "stripe", mark: "stripe-signature", bodyEvent: "type", bodyDelivery: "id", at: pair('t', ','), tolerance: 5 * time.Minute},
	{name: "forgejo", mark: "x-forgejo-event", event: "x-forgejo-event", delivery: "x-forgejo-delivery"},
	{name: "gitea", mark: "x-gitea-event", event: "x-gitea-event", delivery: "x-gitea-delivery"},
	{name: "gogs", mark: "x-gogs-event", event: "x-gogs-event", delivery: "x-gogs-delivery"},
	{name: "github", mark: "x-github-event", event: "x-github-event", delivery: "x-github-delivery"},
	{name: "gitlab", mark: "x-gitlab-event", event: "x-gitlab-event", delivery: "x-gitlab-event-uuid"},
	{name: "bitbucket", mark: "x-event-key", also: "x-request-uuid", event: "x-event-key", delivery: "x-request-uuid"},
	{name: "slack", mark: "x-slack-signature", bodyEvent: "type", bodyDelivery: "event_id", nested: "event", signed: "x-slack-request-timestamp", at: seconds, tolerance: 5 * time.Minute},
	{name: "shopify", mark: "x-shopify-topic", event: "x-shopify-topic", delivery: "x-shopify-webhook-id"},
	{name: "woocommerce", mark: "x-wc-webhook-topic", event: "x-wc-webhook-topic", delivery: "x-wc-webhook-delivery-id"},
	{name: "svix", mark: "svix-signature", also: "svix-id", delivery: "svix-id", bodyEvent: "type", signed: "svix-timestamp", at: seconds, tolerance: 5 * time.Minute},
	{name: "standard-webhooks", mark: "webhook-signature", also: "webhook-id", delivery: "webhook-id", bodyEvent: "type", signed: "webhook-timestamp", at: seconds, tolerance: 5 * time.Minute},
	{name: "sendgrid", mark: "x-twilio-email-event-webhook-signature", signed: "x-twilio-email-event-webhook-timestamp", at: seconds},
	{name: "twilio", mark: "x-twilio-signature", delivery: "i-twilio-idempotency-token"},
	{name: "paddle", mark: "paddle-signature", bodyEvent: "event_type", bodyDelivery: "event_id", at: pair('t', ';'), tolerance: 5 * time.Second},
	{name: "linear", mark: "linear-signature", event: "linear-event", delivery: "linear-delivery", signed: "linear-timestamp", at: seconds, tolerance: time.Minute},
	{name: "discord", mark: "x-signature-ed25519", also: "x-signature-timestamp", bodyDelivery: "id", signed: "x-signature-timestamp", at: seconds},
	{name: "aws-sns", mark: "x-amz-sns-message-type", event: "x-amz-sns-message-type", delivery: "x-amz-sns-message-id"},
	{name: "square", mark: "x-square-hmacsha256-signature", bodyEvent: "type", bodyDelivery: "event_id"},
	{name: "hubspot", mark: "x-hubspot-signature-v3", signed: "x-hubspot-request-timestamp", at: seconds, tolerance: 5 * time.Minute},
	{name: "hubspot", mark: "x-hubspot-signature"},
	{name: "zendesk", mark: "x-zendesk-webhook-signature", delivery: "x-zendesk-webhook-invocation-id", bodyEvent: "type", signed: "x-zendesk-webhook-signature-timestamp", at: instant},
	{name: "paypal", mark: "paypal-transmission-sig", delivery: "paypal-transmission-id", bodyEvent: "event_type", signed: "paypal-transmission-time", at: instant},
	{name: "zoom", mark: "x-zm-signature", bodyEvent: "event", signed: "x-zm-request-timestamp", at: seconds},
	{name: "sentry", mark: "sentry-hook-resource", event: "sentry-hook-resource", delivery: "request-id"},
	{name: "circleci", mark: "circleci-signature", event: "circleci-event-type", bodyDelivery: "id"},
	{name: "vercel", mark: "x-vercel-signature", bodyEvent: "type", bodyDelivery: "id"},
	{name: "lemonsqueezy", mark: "x-event-name", also: "x-signature", event: "x-event-name"},
	{name: "razorpay", mark: "x-razorpay-signature", delivery: "x-razorpay-event-id", bodyEvent: "event"},
	{name: "typeform", mark: "typeform-signature", bodyEvent: "event_type", bodyDelivery: "event_id"},
	{name: "calendly", mark: "calendly-webhook-signature", bodyEvent: "event", at: pair('t', ',')},
	{name: "trello", mark: "x-trello-webhook"},
	{name: "cloudevents", mark: "ce-specversion", event: "ce-type", delivery: "ce-id"},
}

// providerNames lists the names of the senders that Recognise knows.
var providerNames = func() []string {
	var names []string
	for i := range senders {
		if !slices.Contains(names, senders[i].name) {
			names = append(names, senders[i].name)
		}
	}
	slices.Sort(names)
	return names
}()

func (s *sender) read(fields []wire.Field, mark, body []byte) relay.Provider {
	p := relay.Provider{
		Name:       s.name,
		EventType:  label(value(fields, s.event)),
		DeliveryID: label(value(fields, s.delivery)),
	}
	if s.bodyEvent != "" || s.bodyDelivery != "" {
		found := scanTop(body, s.bodyEvent, s.bodyDelivery, s.nested)
		p.EventType = cmp.Or(jsonLabel(found.inner), p.EventType, jsonLabel(found.event))
		p.DeliveryID = cmp.Or(p.DeliveryID, jsonLabel(found.delivery))
	}
	if s.at == nil {
		return p
	}
	stamp := mark
	if s.signed != "" {
		stamp = value(fields, s.signed)
	}
	if ms := s.at(stamp); ms > 0 {
		p.SignedAt, p.Tolerance = time.UnixMilli(ms).UTC(), s.tolerance
	}
	return p
}

// value gives the first value of a header line by its lower-case name; nil when
// there is none.
func value(fields []wire.Field, name string) []byte {
	if name == "" {
		return nil
	}
	for i := range fields {
		// What EqualFold takes for a letter of ASCII has more bytes than it: the length tells.
		if field := fields[i].Name; len(field) == len(name) && strings.EqualFold(string(field), name) {
			if fields[i].Value == nil {
				return []byte{}
			}
			return fields[i].Value
		}
	}
	return nil
}

// label keeps a value only if it can be shown as it is: text columns and terminals
// get it later.
func label(b []byte) string {
	if s := string(b); len(s) <= maxLabel && IsSafeText(s) {
		return s
	}
	return ""
}

// seconds reads Unix seconds, or milliseconds where the number is too large for
// seconds of this age.
func seconds(b []byte) int64 {
	n, err := strconv.ParseInt(string(b), 10, 64)
	switch {
	case err != nil || n <= 0 || n > maxMillis:
		return 0
	case n < maxSeconds:
		return n * 1000
	default:
		return n
	}
}

// Bounds of believable timestamps: seconds up to the year 5138, milliseconds up to
// the year 9999.
const (
	maxSeconds = 100_000_000_000
	maxMillis  = 253_402_300_799_999
)

// instant reads RFC 3339.
func instant(b []byte) int64 {
	if len(b) > 40 {
		return 0
	}
	t, err := time.Parse(time.RFC3339, string(b))
	if err != nil || t.UnixMilli() <= 0 || t.UnixMilli() > maxMillis {
		return 0
	}
	return t.UnixMilli()
}

// pair reads the seconds of a part such as t=1492774577 (or ts=…) among parts with
// a separator between them.
func pair(key, separator byte) func([]byte) int64 {
	return func(b []byte) int64 {
		for len(b) > 0 {
			var part []byte
			part, b, _ = bytes.Cut(b, []byte{separator})
			name, stamp, ok := bytes.Cut(bytes.TrimSpace(part), []byte{'='})
			if ok && len(name) > 0 && name[0] == key && (len(name) == 1 || string(name) == "ts") {
				return seconds(stamp)
			}
		}
		return 0
	}
}
