package record_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"relay"
	"relay/record"
)

func recognise(body string, lines ...string) relay.Provider {
	head := "POST /hook HTTP/1.1\r\nHost: a.example.com\r\n" + strings.Join(lines, "\r\n") + "\r\n\r\n"
	return record.Recognise([]byte(head), []byte(body))
}

// TestRecogniseWithoutHeaderLines: a request of HTTP/1.0 may have no header line. Its body is looked at
// all the same.
func TestRecogniseWithoutHeaderLines(t *testing.T) {
	got := record.Recognise([]byte("POST /hook HTTP/1.0\r\n\r\n"), []byte(`{"value":[{"subscriptionId":"7f1","changeType":"created"}]}`))
	if want := (relay.Provider{Name: "graph", EventType: "created"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

var recognised = map[string]struct {
	body  string
	lines []string
	want  relay.Provider
}{
	"stripe": {
		`{"id":"evt_1N","object":"event","data":{"object":{"id":"in_1","type":"card"}},"type":"invoice.paid"}`,
		[]string{"Stripe-Signature: t=1700000000,v1=aa,v0=bb"},
		relay.Provider{Name: "stripe", EventType: "invoice.paid", DeliveryID: "evt_1N", SignedAt: signedAt, Tolerance: 5 * time.Minute},
	},
	"stripe, odd spelling": {
		"not json",
		[]string{"STRIPE-SIGNATURE: v1=aa, t=1700000000"},
		relay.Provider{Name: "stripe", SignedAt: signedAt, Tolerance: 5 * time.Minute},
	},
	"github": {
		`{}`,
		[]string{"X-GitHub-Event: push", "X-GitHub-Delivery: 72d3162e", "X-Hub-Signature-256: sha256=aa"},
		relay.Provider{Name: "github", EventType: "push", DeliveryID: "72d3162e"},
	},
	"gitea says it is github too": {
		`{}`,
		[]string{"X-GitHub-Event: push", "X-GitHub-Delivery: g", "X-Gitea-Event: push", "X-Gitea-Delivery: g"},
		relay.Provider{Name: "gitea", EventType: "push", DeliveryID: "g"},
	},
	"gitlab": {
		`{}`,
		[]string{"X-Gitlab-Event: Push Hook", "X-Gitlab-Event-UUID: u", "X-Gitlab-Token: s"},
		relay.Provider{Name: "gitlab", EventType: "Push Hook", DeliveryID: "u"},
	},
	"graph": {
		`{"value":[{"subscriptionId":"7f1","changeType":"created","clientState":"s","resource":"me/messages"}]}`,
		nil,
		relay.Provider{Name: "graph", EventType: "created"},
	},
	"monday": {
		`{"event":{"userId":1,"boardId":2,"type":"create_pulse","triggerUuid":"b5"}}`,
		[]string{"Authorization: a.b.c"},
		relay.Provider{Name: "monday", EventType: "create_pulse", DeliveryID: "b5"},
	},
	"slack": {
		`{"token":"x","event":{"type":"app_mention","user":"U1"},"type":"event_callback","event_id":"Ev08"}`,
		[]string{"X-Slack-Signature: v0=aa", "X-Slack-Request-Timestamp: 1700000000"},
		relay.Provider{Name: "slack", EventType: "app_mention", DeliveryID: "Ev08", SignedAt: signedAt, Tolerance: 5 * time.Minute},
	},
	"slack, url verification": {
		`{"type":"url_verification","challenge":"c"}`,
		[]string{"X-Slack-Signature: v0=aa", "X-Slack-Request-Timestamp: 1700000000"},
		relay.Provider{Name: "slack", EventType: "url_verification", SignedAt: signedAt, Tolerance: 5 * time.Minute},
	},
	"shopify": {
		`{}`,
		[]string{"X-Shopify-Topic: orders/create", "X-Shopify-Webhook-Id: b54557e4", "X-Shopify-Hmac-Sha256: aa"},
		relay.Provider{Name: "shopify", EventType: "orders/create", DeliveryID: "b54557e4"},
	},
	"svix": {
		`{"type":"user.created"}`,
		[]string{"svix-id: msg_1", "svix-timestamp: 1700000000", "svix-signature: v1,aa"},
		relay.Provider{Name: "svix", EventType: "user.created", DeliveryID: "msg_1", SignedAt: signedAt, Tolerance: 5 * time.Minute},
	},
	"standard webhooks": {
		`{"type":"a.b"}`,
		[]string{"webhook-id: msg_1", "webhook-timestamp: 1700000000", "webhook-signature: v1,aa"},
		relay.Provider{Name: "standard-webhooks", EventType: "a.b", DeliveryID: "msg_1", SignedAt: signedAt, Tolerance: 5 * time.Minute},
	},
	"twilio": {
		"a=b",
		[]string{"X-Twilio-Signature: aa", "I-Twilio-Idempotency-Token: tok"},
		relay.Provider{Name: "twilio", DeliveryID: "tok"},
	},
	"sendgrid": {
		`[]`,
		[]string{"X-Twilio-Email-Event-Webhook-Signature: aa", "X-Twilio-Email-Event-Webhook-Timestamp: 1700000000"},
		relay.Provider{Name: "sendgrid", SignedAt: signedAt},
	},
	"paddle": {
		`{"event_id":"evt_p","event_type":"transaction.paid"}`,
		[]string{"Paddle-Signature: ts=1700000000;h1=aa"},
		relay.Provider{Name: "paddle", EventType: "transaction.paid", DeliveryID: "evt_p", SignedAt: signedAt, Tolerance: 5 * time.Second},
	},
	"linear": {
		`{"webhookTimestamp":1700000000000}`,
		[]string{"Linear-Signature: aa", "Linear-Event: Issue", "Linear-Delivery: d", "Linear-Timestamp: 1600000000000"},
		relay.Provider{Name: "linear", EventType: "Issue", DeliveryID: "d", SignedAt: signedAt, Tolerance: time.Minute},
	},
	"discord": {
		`{"id":"1","type":1}`,
		[]string{"X-Signature-Ed25519: aa", "X-Signature-Timestamp: 1700000000"},
		relay.Provider{Name: "discord", DeliveryID: "1", SignedAt: signedAt},
	},
	"aws sns": {
		`{}`,
		[]string{"x-amz-sns-message-type: Notification", "x-amz-sns-message-id: m"},
		relay.Provider{Name: "aws-sns", EventType: "Notification", DeliveryID: "m"},
	},
	"square": {
		`{"type":"payment.updated","event_id":"e"}`,
		[]string{"X-Square-HmacSha256-Signature: aa"},
		relay.Provider{Name: "square", EventType: "payment.updated", DeliveryID: "e"},
	},
	"hubspot v3, milliseconds": {
		`[]`,
		[]string{"X-HubSpot-Signature-v3: aa", "X-HubSpot-Request-Timestamp: 1700000000000"},
		relay.Provider{Name: "hubspot", SignedAt: signedAt, Tolerance: 5 * time.Minute},
	},
	"zendesk": {
		`{"type":"zen:event-type:user.created"}`,
		[]string{"X-Zendesk-Webhook-Signature: aa", "X-Zendesk-Webhook-Signature-Timestamp: 2023-11-14T22:13:20Z", "X-Zendesk-Webhook-Invocation-Id: i"},
		relay.Provider{Name: "zendesk", EventType: "zen:event-type:user.created", DeliveryID: "i", SignedAt: signedAt},
	},
	"stripe, with a byte order mark": {
		"\xef\xbb\xbf{\"id\":\"evt_1\",\"type\":\"invoice.paid\"}",
		[]string{"Stripe-Signature: v1=aa"},
		relay.Provider{Name: "stripe", EventType: "invoice.paid", DeliveryID: "evt_1"},
	},
	"slack, interaction": {
		"payload=%7B%22type%22%3A%22block_actions%22%2C%22team%22%3A%7B%22id%22%3A%22T%22%7D%2C%22actions%22%3A%5B%5D%7D",
		[]string{"X-Slack-Signature: v0=aa", "Content-Type: application/x-www-form-urlencoded"},
		relay.Provider{Name: "slack", EventType: "block_actions"},
	},
	"slack, command": {
		"token=x&team_id=T&command=%2Fweather&text=94070&trigger_id=1.2",
		[]string{"X-Slack-Signature: v0=aa", "Content-Type: application/x-www-form-urlencoded"},
		relay.Provider{Name: "slack", EventType: "/weather"},
	},
	"github, form": {
		"payload=%7B%22ref%22%3A%22refs%2Fheads%2Fmain%22%7D",
		[]string{"X-GitHub-Event: push", "X-GitHub-Delivery: 72d3162e", "Content-Type: application/x-www-form-urlencoded"},
		relay.Provider{Name: "github", EventType: "push", DeliveryID: "72d3162e"},
	},
	"twilio, status of a message": {
		"SmsSid=SM1&SmsStatus=delivered&MessageStatus=delivered&To=%2B1555",
		[]string{"X-Twilio-Signature: aa"},
		relay.Provider{Name: "twilio", EventType: "delivered"},
	},
	"mandrill": {
		"mandrill_events=%5B%7B%22event%22%3A%22send%22%2C%22_id%22%3A%22m1%22%7D%5D",
		[]string{"X-Mandrill-Signature: aa"},
		relay.Provider{Name: "mandrill", EventType: "send", DeliveryID: "m1"},
	},
	"sendgrid, several events": {
		`[{"email":"a@example.org","event":"delivered","sg_event_id":"e1"},{"event":"open","sg_event_id":"e2"}]`,
		[]string{"X-Twilio-Email-Event-Webhook-Signature: aa"},
		relay.Provider{Name: "sendgrid", EventType: "delivered", DeliveryID: "e1"},
	},
	"hubspot, several events": {
		`[{"eventId":1,"subscriptionType":"contact.creation"}]`,
		[]string{"X-HubSpot-Signature: aa"},
		relay.Provider{Name: "hubspot", EventType: "contact.creation"},
	},
	"event grid": {
		`[{"id":"g1","eventType":"Microsoft.Storage.BlobCreated","subject":"s"}]`,
		[]string{"aeg-event-type: Notification", "aeg-delivery-count: 0"},
		relay.Provider{Name: "event-grid", EventType: "Microsoft.Storage.BlobCreated", DeliveryID: "g1"},
	},
	"cloudevents, structured": {
		`{"specversion":"1.0","id":"1","source":"/shop","type":"order.made"}`,
		[]string{"Content-Type: application/cloudevents+json; charset=utf-8"},
		relay.Provider{Name: "cloudevents", EventType: "order.made", DeliveryID: "1"},
	},
	"cloudevents, several": {
		`[{"specversion":"1.0","id":"1","source":"/shop","type":"order.made"}]`,
		[]string{"Content-Type: application/cloudevents-batch+json"},
		relay.Provider{Name: "cloudevents", EventType: "order.made", DeliveryID: "1"},
	},
	"adyen, by its body, behind a byte order mark": {
		"\xef\xbb\xbf {\"live\":\"false\",\"notificationItems\":[]}", []string{"Content-Type: application/json"}, relay.Provider{Name: "adyen"},
	},
	"adyen, by its body": {
		`{"live":"false","notificationItems":[]}`, []string{"Content-Type: application/json"}, relay.Provider{Name: "adyen"},
	},
	"mailgun, by its body": {
		`{"signature":{"timestamp":"1700000000","token":"t","signature":"aa"},"event-data":{"event":"opened","id":"m"}}`,
		[]string{"Content-Type: application/json"},
		relay.Provider{Name: "mailgun", EventType: "opened", DeliveryID: "m", SignedAt: signedAt},
	},
	"half of mailgun": {`{"signature":{}}`, []string{"Content-Type: application/json"}, relay.Provider{}},
	"adyen in a text": {`"live" "notificationItems"`, []string{"Content-Type: text/plain"}, relay.Provider{}},
	"nobody":          {`{"type":"x"}`, []string{"Content-Type: application/json"}, relay.Provider{}},
	"half of svix":    {`{}`, []string{"svix-signature: v1,aa"}, relay.Provider{}},
	"a timestamp that is none": {
		``, []string{"Stripe-Signature: t=99999999999999999999,v1=aa"}, relay.Provider{Name: "stripe", Tolerance: 0},
	},
	"labels that cannot be shown": {
		`{"type":"a\u0000b","id":"\u202e"}`, []string{"Stripe-Signature: v1=aa"}, relay.Provider{Name: "stripe"},
	},
	"bytes in a header": {``, []string{"X-GitHub-Event: caf\xe9"}, relay.Provider{Name: "github"}},
	"a label without end": {
		``, []string{"X-GitHub-Event: " + strings.Repeat("x", 201)}, relay.Provider{Name: "github"},
	},
}

func TestRecognise(t *testing.T) {
	t.Parallel()
	for name, tt := range recognised {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, recognise(tt.body, tt.lines...)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestRecogniseOfBrokenHeads(t *testing.T) {
	t.Parallel()
	for _, head := range []string{"", "\r\n", "POST", "POST / HTTP/1.1\r\nStripe-Signature", "\x00\xff\r\n:\r\n\r\n"} {
		record.Recognise([]byte(head), []byte("{"))
	}
}

func stripe(body string) relay.Provider { return recognise(body, "Stripe-Signature: v1=aa") }

func TestBodyScan(t *testing.T) {
	t.Parallel()
	far := `{"pad":"` + strings.Repeat("x", 70_000) + `","id":"late","type":"late"}`
	for body, want := range map[string][2]string{
		`{"id":"a","type":"b"}`:                      {"a", "b"},
		" \n{ \"type\" :\t\"b\" , \"id\" : \"a\" } ": {"a", "b"},
		`{"id":1,"type":null}`:                       {"", ""},
		`{"x":["id","a",{"type":"no"}],"id":"a"}`:    {"a", ""},
		`{"x":{"id":"no","type":"no"},"type":"b"}`:   {"", "b"},
		`{"a\"}{":"\\","id":"\"q\""}`:                {`"q"`, ""},
		`{"id":"first","id":"second"}`:               {"first", ""},
		`{"id":"cut`:                                 {"", ""},
		`{"id"`:                                      {"", ""},
		`{"id":{"id":"x"},"type":["type","x"]}`:      {"", ""},
		`[{"id":"a"}]`:                               {"", ""},
		`"id"`:                                       {"", ""},
		``:                                           {"", ""},
		`}}}}{"id":"a"}`:                             {"", ""},
		`{"type":"é"}`:                               {"", "é"},
		far:                                          {"", ""},
		`{"id":"` + strings.Repeat("x", 201) + `"}`:    {"", ""},
		`{"id":"a"` + strings.Repeat(`,"k":[[[[`, 500): {"a", ""},
	} {
		p := stripe(body)
		if got := [2]string{p.DeliveryID, p.EventType}; got != want {
			t.Errorf("%.60q: got %q, want %q", body, got, want)
		}
	}
}

func TestBodyScanAllocatesNothingThatGrows(t *testing.T) {
	head := []byte("POST / HTTP/1.1\r\nStripe-Signature: v1=a\r\n\r\n")
	small := []byte(`{"a":1}`)
	large := []byte(`{"a":[` + strings.Repeat(`{"id":"x","type":"y"},`, 100_000))
	base := testing.AllocsPerRun(20, func() { record.Recognise(head, small) })
	if got := testing.AllocsPerRun(20, func() { record.Recognise(head, large) }); got > base {
		t.Errorf("%v allocations for 2 MB, %v for 7 bytes", got, base)
	}
}

// FuzzBodyScan: if encoding/json can read a body, Recognise finds the same event type and delivery id in it,
// unless they are not safe to print or too long.
func FuzzBodyScan(f *testing.F) {
	for _, s := range []string{
		`{"id":"a","type":"b"}`, `{"x":{"id":"no"},"id":"yes"}`, `{"x":["id"],"type":"t"}`, `{"id":"\u00e9\"","type":""}`, `{`, `{"a":{"b":{"c":[]}}}`, `null`,
	} {
		f.Add([]byte(s))
	}
	head := []byte("POST / HTTP/1.1\r\nStripe-Signature: v1=a\r\n\r\n")
	f.Fuzz(func(t *testing.T, body []byte) {
		got := record.Recognise(head, body)
		if len(body) > 64<<10 || !json.Valid(body) || strings.Contains(string(body), `\u`) { // escaped keys are not looked for
			return
		}
		id, kind := firstStrings(body)
		for _, pair := range [][2]string{{got.DeliveryID, id}, {got.EventType, kind}} {
			if pair[0] != "" && pair[0] != pair[1] || pair[0] == "" && plain(pair[1]) {
				t.Fatalf("%q: got %q, encoding/json says %q", body, pair[0], pair[1])
			}
		}
	})
}

func plain(s string) bool {
	return s != "" && len(s) <= 200 && record.SafeText(s) == s && !strings.ContainsRune(s, '\ufffd')
}

// firstStrings reads the first string values of id and type at the top of an object.
func firstStrings(body []byte) (id, kind string) {
	dec := json.NewDecoder(strings.NewReader(string(body)))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return "", ""
	}
	var haveID, haveKind bool
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return id, kind
		}
		var value any
		if dec.Decode(&value) != nil {
			return id, kind
		}
		text, isText := value.(string)
		switch {
		case !isText:
		case key == "id" && !haveID:
			id, haveID = text, true
		case key == "type" && !haveKind:
			kind, haveKind = text, true
		}
	}
	return id, kind
}

func BenchmarkRecognise(b *testing.B) {
	head := []byte("POST /hook HTTP/1.1\r\nHost: a.example.com\r\nUser-Agent: Stripe/1.0\r\nContent-Type: application/json\r\nContent-Length: 99\r\nStripe-Signature: t=1700000000,v1=aa\r\n\r\n")
	body := []byte(`{"id":"evt_1N","object":"event","data":{"object":{"id":"in_1"}},"type":"invoice.paid"}`)
	b.ReportAllocs()
	for b.Loop() {
		record.Recognise(head, body)
	}
}
