package compose

import (
	"slices"
	"strconv"
	"strings"
)

// Sample is a built-in request in the form that a sender uses, without a signature.
type Sample struct {
	Provider, Type string
	lines          []Header
	media          string
	body           string
}

// Name names the sample, such as stripe/invoice.paid.
func (s *Sample) Name() string { return s.Provider + "/" + s.Type }

// Request returns the sample as a request to the host of an alias.
func (s *Sample) Request(host string) *Request {
	head := "POST / HTTP/1.1\r\nHost: " + host + "\r\nContent-Type: " + s.media + "\r\nContent-Length: " + strconv.Itoa(len(s.body)) + "\r\n"
	for _, l := range s.lines {
		head += l.Name + ": " + l.Value + "\r\n"
	}
	r, err := Parse([]byte(head + "\r\n" + s.body))
	if err != nil {
		panic("compose: the sample " + s.Name() + " is no request: " + err.Error()) // cannot happen, because a test makes the request of each sample
	}
	return r
}

// FindSample returns the sample with the given name, or nil.
func FindSample(name string) *Sample {
	if i := slices.IndexFunc(samples, func(s Sample) bool { return strings.EqualFold(s.Name(), name) }); i >= 0 {
		return &samples[i]
	}
	return nil
}

// Samples lists the samples of a sender, or of all senders if provider is "".
func Samples(provider string) (list []*Sample) {
	for i := range samples {
		if s := &samples[i]; provider == "" || s.Provider == provider {
			list = append(list, s)
		}
	}
	return list
}

const (
	mediaJSON = "application/json"
	mediaForm = "application/x-www-form-urlencoded"
)

// samples are in the order of their names. Names and numbers in them are invented.
var samples = []Sample{
	{
		"bitbucket", "repo:push",
		[]Header{{"X-Event-Key", "repo:push"}, {"X-Request-UUID", "5a1f2c3d-0000-4000-8000-000000000001"}},
		mediaJSON,
		`{"push":{"changes":[{"new":{"type":"branch","name":"main"}}]},"repository":{"full_name":"example/shop"},"actor":{"nickname":"sam"}}`,
	},
	{
		"github", "ping",
		[]Header{{"X-GitHub-Event", "ping"}, {"X-GitHub-Delivery", "5a1f2c3d-0000-11ee-8000-000000000001"}},
		mediaJSON,
		`{"zen":"Keep it logically awesome.","hook_id":1,"repository":{"full_name":"example/shop"}}`,
	},
	{
		"github", "push",
		[]Header{{"X-GitHub-Event", "push"}, {"X-GitHub-Delivery", "5a1f2c3d-0000-11ee-8000-000000000002"}},
		mediaJSON,
		`{"ref":"refs/heads/main","before":"0000000000000000000000000000000000000001","after":"0000000000000000000000000000000000000002","repository":{"id":1,"full_name":"example/shop","default_branch":"main"},"pusher":{"name":"sam"},"commits":[{"id":"0000000000000000000000000000000000000002","message":"Add a cart"}]}`,
	},
	{
		"gitlab", "Push Hook",
		[]Header{{"X-Gitlab-Event", "Push Hook"}, {"X-Gitlab-Event-UUID", "5a1f2c3d-0000-4000-8000-000000000003"}},
		mediaJSON,
		`{"object_kind":"push","ref":"refs/heads/main","project":{"id":1,"path_with_namespace":"example/shop"},"total_commits_count":1}`,
	},
	{
		"hubspot", "contact.creation", nil, mediaJSON,
		`[{"eventId":1,"subscriptionId":2,"portalId":3,"occurredAt":1800000000000,"subscriptionType":"contact.creation","attemptNumber":0,"objectId":4}]`,
	},
	{
		"linear", "Issue",
		[]Header{{"Linear-Event", "Issue"}, {"Linear-Delivery", "5a1f2c3d-0000-4000-8000-000000000004"}},
		mediaJSON,
		`{"action":"create","type":"Issue","data":{"id":"5a1f2c3d-0000-4000-8000-000000000005","title":"Cart is empty"},"webhookTimestamp":1800000000000}`,
	},
	{
		"paddle", "transaction.completed", nil, mediaJSON,
		`{"event_id":"evt_00000000000000000000000001","event_type":"transaction.completed","data":{"id":"txn_00000000000000000000000001","status":"completed","currency_code":"EUR"}}`,
	},
	{
		"shopify", "orders/create",
		[]Header{{"X-Shopify-Topic", "orders/create"}, {"X-Shopify-Webhook-Id", "5a1f2c3d-0000-4000-8000-000000000006"}, {"X-Shopify-Shop-Domain", "example.myshopify.com"}},
		mediaJSON,
		`{"id":1,"name":"#1001","currency":"EUR","total_price":"19.90","line_items":[{"id":2,"title":"Tea","quantity":1}]}`,
	},
	{
		"slack", "app_mention", nil, mediaJSON,
		`{"type":"event_callback","event_id":"Ev00000001","team_id":"T00000001","event":{"type":"app_mention","user":"U00000001","text":"hello","channel":"C00000001"}}`,
	},
	{
		"square", "payment.updated", nil, mediaJSON,
		`{"merchant_id":"M1","type":"payment.updated","event_id":"5a1f2c3d-0000-4000-8000-000000000007","data":{"type":"payment","id":"p1","object":{"payment":{"status":"COMPLETED"}}}}`,
	},
	{"standard-webhooks", "user.created", nil, mediaJSON, `{"type":"user.created","timestamp":"2026-11-28T12:00:00Z","data":{"id":"user_1","email":"sam@example.com"}}`},
	{
		"stripe", "checkout.session.completed", nil, mediaJSON,
		`{"id":"evt_0000000000000000000001","object":"event","type":"checkout.session.completed","livemode":false,"data":{"object":{"id":"cs_test_1","object":"checkout.session","payment_status":"paid","amount_total":1990,"currency":"eur"}}}`,
	},
	{
		"stripe", "invoice.paid", nil, mediaJSON,
		`{"id":"evt_0000000000000000000002","object":"event","type":"invoice.paid","livemode":false,"data":{"object":{"id":"in_1","object":"invoice","status":"paid","amount_paid":1990,"currency":"eur"}}}`,
	},
	{
		"twilio", "delivered",
		[]Header{{"I-Twilio-Idempotency-Token", "5a1f2c3d-0000-4000-8000-000000000008"}},
		mediaForm,
		`MessageSid=SM00000000000000000000000000000001&MessageStatus=delivered&To=%2B15005550006&From=%2B15005550001`,
	},
	{"zoom", "meeting.started", nil, mediaJSON, `{"event":"meeting.started","event_ts":1800000000000,"payload":{"account_id":"a1","object":{"id":"1","topic":"Weekly"}}}`},
}
