package record

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"relay"
	reading "relay/record/body"
	"relay/signature"
	"relay/wire"
)

// Provider is the recognised sender with its event type and delivery id.
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

// maxLabel bounds the stored event type and delivery id, in bytes.
const maxLabel = 200

// Recognise returns the sender of a request. It looks at the header lines and, for providers that put event
// type and delivery id into a JSON body or a form, at the first 64 KiB of the body. The result proves
// nothing, because every client can send such lines. The zero value means not recognised. Recognise runs for
// each request, so it decodes no content coding and no charset.
func Recognise(head, bodyStart []byte) relay.Provider {
	fields := wire.Fields(head)
	if s := senderOf(fields, bodyStart); s != nil {
		return readProvider(s, fields, bodyStart)
	}
	return relay.Provider{}
}

// senderOf returns the row of signature.Senders for a request; nil if its sender is unknown.
func senderOf(fields []wire.Field, bodyStart []byte) *signature.Sender {
	var names nameSet
	for i := range fields {
		names |= nameOf(fields[i].Name)
	}
	for i, mark := range senderMarks {
		if mark != 0 && names&mark == 0 {
			continue
		}
		if s := &signature.Senders[i]; sentBy(s, fields, bodyStart) {
			return s
		}
	}
	return nil
}

// senderMarks has, for each row of signature.Senders, the header field by which the sender is recognised
// (Mark); 0 = the row has no such field.
var senderMarks = func() (marks []nameSet) {
	for i := range signature.Senders {
		marks = append(marks, nameOf(signature.Senders[i].Mark))
	}
	return marks
}()

// nameSet is a set of names of fields, in any letter case. Each name sets one bit, which depends on its length
// and its middle letter. Several names share a bit, so a set can only show that a name is not in it.
type nameSet uint64

// nameOf returns the set of one name.
func nameOf[T string | []byte](name T) nameSet {
	if len(name) == 0 {
		return 0
	}
	return 1 << ((len(name) + 7*int(name[len(name)/2]|0x20)) % 64)
}

// markLimit is the number of bytes at the start of a body that are searched for the keys by which a sender is
// recognised if no header line identifies it.
const markLimit = 1 << 10

func sentBy(s *signature.Sender, fields []wire.Field, body []byte) bool {
	if s.Mark != "" {
		return value(fields, s.Mark) != nil && (s.Also == "" || value(fields, s.Also) != nil)
	}
	if s.Kind != "" {
		kind := value(fields, "content-type")
		return len(kind) >= len(s.Kind) && strings.EqualFold(string(kind[:len(s.Kind)]), s.Kind)
	}
	start := reading.Start(body)
	if start = start[:min(len(start), markLimit)]; len(start) == 0 || start[0] != '{' {
		return false
	}
	for _, key := range s.Body {
		if !bytes.Contains(start, []byte(key)) {
			return false
		}
	}
	return true
}

// ProviderNames lists the names of the known senders.
func ProviderNames() []string { return slices.Clone(providerNames) }

// providerNames lists the names of the senders that Recognise knows.
var providerNames = func() []string {
	var names []string
	for i := range signature.Senders {
		if !slices.Contains(names, signature.Senders[i].Name) {
			names = append(names, signature.Senders[i].Name)
		}
	}
	slices.Sort(names)
	return names
}()

func readProvider(s *signature.Sender, fields []wire.Field, body []byte) relay.Provider {
	p := relay.Provider{
		Name:       s.Name,
		EventType:  label(value(fields, s.Event)),
		DeliveryID: label(value(fields, s.Delivery)),
	}
	start := reading.Start(body[:min(len(body), scanLimit)])
	if isForm := len(start) > 0 && start[0] != '{' && start[0] != '['; isForm && (s.FormJSON != "" || s.FormEvent != nil) {
		for _, name := range s.FormEvent {
			p.EventType = cmp.Or(p.EventType, label(reading.FormValue(start, name)))
		}
		form := start
		if start = nil; s.FormJSON != "" {
			start = reading.FormValue(form, s.FormJSON)
		}
	}
	if s.BodyEvent != "" || s.BodyDelivery != "" {
		found := scanTop(start, s.BodyEvent, s.BodyDelivery, s.Nested, s.Batch)
		p.EventType = cmp.Or(jsonLabel(found.innerEvent), p.EventType, jsonLabel(found.event))
		p.DeliveryID = cmp.Or(p.DeliveryID, jsonLabel(found.delivery), jsonLabel(found.innerDelivery))
	}
	if len(s.Schemes) > 0 {
		p.SignedAt, p.Tolerance = s.SignedAt(&signature.Request{Line: lineOf(fields), Body: body})
	}
	return p
}

// lineOf returns a function that finds header lines, for the check of a signature.
func lineOf(fields []wire.Field) func(name string) (string, bool) {
	return func(name string) (string, bool) {
		found := value(fields, name)
		return string(found), found != nil
	}
}

// value returns the value of the first header line with a name, in any letter case; nil = none.
func value(fields []wire.Field, name string) []byte {
	if name == "" {
		return nil
	}
	for i := range fields {
		// EqualFold also accepts some characters outside of ASCII for ASCII letters. These characters
		// have more bytes, so a name of the same length has none of them.
		if field := fields[i].Name; len(field) == len(name) && strings.EqualFold(string(field), name) {
			if fields[i].Value == nil {
				return []byte{}
			}
			return fields[i].Value
		}
	}
	return nil
}

// label returns b as a string if it has at most maxLabel bytes and is safe to print, because text columns of
// the database and terminals get it unchanged; otherwise "".
func label(b []byte) string {
	if s := string(b); len(s) <= maxLabel && IsSafeText(s) {
		return s
	}
	return ""
}
