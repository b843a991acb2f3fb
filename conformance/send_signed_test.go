package conformance

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stripe/stripe-go/v82"
	"github.com/stripe/stripe-go/v82/webhook"

	"relay/relaytest"
)

// stripeHandler is a local server that is written as Stripe's documentation says: Stripe's own library
// decides whether it accepts an event.
type stripeHandler struct {
	mu   sync.Mutex
	seen []error // result for each request; nil = accepted
	raw  []string
}

func (h *stripeHandler) serve(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err == nil {
		_, err = webhook.ConstructEvent(body, req.Header.Get("Stripe-Signature"), plainSecret)
	}
	h.mu.Lock()
	h.seen, h.raw = append(h.seen, err), append(h.raw, req.Header.Get("Stripe-Signature")+"\n"+string(body))
	h.mu.Unlock()
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

// last returns the number of requests so far. For the newest request, raw is its signature and body, and
// refused is why it was refused; nil = it was accepted.
func (h *stripeHandler) last() (n int, raw string, refused error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.seen), h.raw[len(h.raw)-1], h.seen[len(h.seen)-1]
}

// TestSendAgainFreshlySigned: Stripe's library refuses the exact replay of an event that was signed an hour
// ago. The library accepts a new event that is made from the old one and signed now, by relayd or by the
// client. The old event is unchanged.
func TestSendAgainFreshlySigned(t *testing.T) {
	t.Parallel()
	r := startRelay(t, "")
	r.alias("pay")
	add, err := json.Marshal(map[string]any{"provider": "stripe", "secret": plainSecret, "sign": true})
	if err != nil {
		t.Fatal(err)
	}
	var secret struct{ ID string }
	if err := json.Unmarshal(r.must(201, "POST", "/aliases/pay/secrets", add), &secret); err != nil {
		t.Fatal(err)
	}

	body := `{"id":"evt_1","object":"event","type":"invoice.paid","api_version":"` + stripe.APIVersion + `", "data":{"object":{"a":1.10,"b":"caf\u00e9"}}}`
	signedAt := strconv.FormatInt(time.Now().Add(-time.Hour).Unix(), 10)
	line := "t=" + signedAt + ",v1=" + hex.EncodeToString(mac(plainSecret, signedAt+"."+body))
	original := fmt.Sprintf("POST /hook HTTP/1.1\r\nHost: pay.localhost\r\nstripe-signature:  %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", line, len(body), body)
	conn := r.dial()
	defer conn.Close()
	if _, err := io.WriteString(conn, original); err != nil {
		t.Fatal(err)
	}
	if answer, err := readAnswer(conn, 15, false); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 202 ") {
		t.Fatalf("answer: %.200q, %v", answer, err)
	}
	id := r.events("pay", "")[0].ID
	checkSigned(t, r, id, "expired", "")

	var handler stripeHandler
	r.up("--alias", "pay", "--target", "http://"+serveLocal(t, handler.serve))
	replayed := r.replay(id)
	n, raw, refused := handler.last()
	if !errors.Is(refused, webhook.ErrTooOld) || raw != line+"\n"+body || n != 1 {
		t.Errorf("the handler says of replay %d of %q: %v", n, raw, refused)
	}
	if replayed.Status == nil || *replayed.Status != 400 {
		t.Errorf("the replay: %+v", replayed)
	}

	var sent record
	if err := json.Unmarshal(r.must(200, "POST", "/aliases/pay/send", []byte(`{"from":"`+id+`","sign":"auto"}`)), &sent); err != nil {
		t.Fatal(err)
	}
	n, raw, refused = handler.last()
	if refused != nil || n != 2 || !strings.HasSuffix(raw, "\n"+body) || strings.HasPrefix(raw, line) {
		t.Errorf("the handler says of the new event %d, %q: %v", n, raw, refused)
	}
	checkSigned(t, r, sent.ID, "valid", secret.ID)
	if list := r.events("pay", ""); len(list) != 2 || list[0].ID != sent.ID || list[1].ID != id || *list[0].Status != 200 {
		t.Errorf("listed: %+v", list)
	}
	if kept := string(r.must(200, "GET", "/events/"+id+"/request.raw", nil)); kept != original {
		t.Errorf("the original became %q", kept)
	}
	checkSigned(t, r, id, "expired", "")

	// The client can also sign the new event itself, with a secret that it does not send to relayd.
	cmd := exec.CommandContext(t.Context(), relaytest.Program(t, "relay"), "send", "pay", "--from", id, "--sign", "--secret-env", "SECRET", "--json",
		"--server", r.ssh, "--identity", r.key, "--host-key", r.hostKey())
	cmd.Env = append(r.env(), "SECRET="+plainSecret)
	out, err := cmd.Output()
	if n, _, refused = handler.last(); err != nil || refused != nil || n != 3 || !strings.Contains(string(out), `"signedBy":"client"`) {
		t.Errorf("signed by the client, %d: %v, %v\n%s", n, refused, err, out)
	}
}

// checkSigned checks the signature verdict in the record of an event. The parameter by is the expected id of
// the secret with which relayd signed the event; "" = relayd did not sign it.
func checkSigned(t *testing.T, r *relayServer, id, verdict, by string) {
	t.Helper()
	var e struct {
		Signature struct{ Verdict, Reason string }
		MadeFrom  *string
		SignedBy  *string
		Changes   []string
	}
	if err := json.Unmarshal(r.must(200, "GET", "/events/"+id, nil), &e); err != nil {
		t.Fatal(err)
	}
	sent := by == "" && e.SignedBy == nil && e.MadeFrom == nil || e.SignedBy != nil && *e.SignedBy == by && e.MadeFrom != nil && strings.Join(e.Changes, " ") == "header:stripe-signature"
	if e.Signature.Verdict != verdict || !sent {
		t.Errorf("%s: %+v, want %s by %q", id, e, verdict, by)
	}
}
