package compose

import (
	"strings"
	"testing"

	"relay"
)

// TestRenewInTheBody: the delivery id of the first object in an array of the body is renewed. Without such an
// object there is an error.
func TestRenewInTheBody(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"events":[{"type":"message","webhookEventId":"01FZ"},{"webhookEventId":"01FA"}]}`: `{"events":[{"type":"message","webhookEventId":"`,
		`{"events":[]}`: "",
	} {
		r := From(&relay.Message{Head: []byte("POST / HTTP/1.1\r\nHost: a\r\nX-Line-Signature: aa=\r\nContent-Type: application/json\r\n\r\n")}, []byte(body))
		err := r.Renew(r.Sender())
		got := string(r.Body)
		if (err == nil) != (want != "") || !strings.HasPrefix(got, want) || err == nil && (strings.Contains(got, "01FZ") || !strings.Contains(got, "01FA")) {
			t.Errorf("%s: %s, %v", body, got, err)
		}
	}
}

// TestQueryIsNoSignature: Event Grid sends its secret in the query. If a client writes such a request itself, the
// query nevertheless does not count as a signature.
func TestQueryIsNoSignature(t *testing.T) {
	t.Parallel()
	r, err := Parse([]byte("POST /hook?k=secret HTTP/1.1\r\nHost: a\r\naeg-event-type: Notification\r\nContent-Length: 2\r\n\r\n[]"))
	if err != nil || r.Sender() == nil || r.HasSignature() {
		t.Errorf("%v, %v", err, r)
	}
}
