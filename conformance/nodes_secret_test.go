package conformance

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"relay/store/pgtest"
)

// TestNodeWithoutTheSecretKey: one of three nodes lacks the key that encrypts secrets of senders. This node
// serves, lists, replays and sends like the other nodes. If it needs a secret to sign, it returns an error;
// if it needs a secret to verify, the verdict is unchecked. It does not change verdicts of the other nodes.
func TestNodeWithoutTheSecretKey(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.URL(t)
	key := strings.TrimSpace(newRelay(t, "").relayd("secret-key", "new"))
	a := newRelay(t, databaseURL, "RELAY_NODE_NAME=a", "RELAY_SECRET_KEY="+key)
	a.start()
	a.token, _ = a.newToken(a.key)
	nodes := []*relayServer{a}
	for name, secret := range map[string]string{"b": "RELAY_SECRET_KEY=" + key, "c": "RELAY_SECRET_KEY="} {
		n := newRelay(t, databaseURL, "RELAY_NODE_NAME="+name, secret)
		n.key, n.token = a.key, a.token
		n.start()
		nodes = append(nodes, n)
	}
	if nodes[1].extra[0] != "RELAY_NODE_NAME=b" {
		nodes[1], nodes[2] = nodes[2], nodes[1]
	}
	b, c := nodes[1], nodes[2]
	var handled atomic.Int64
	a.alias("pay")
	a.must(201, "POST", "/aliases/pay/secrets", []byte(`{"provider":"stripe","sign":true,"secret":"`+plainSecret+`"}`))
	a.tunnel("pay", serveLocal(t, func(_ http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		handled.Add(1)
	}))
	for _, n := range nodes {
		n.waitFor(20*time.Second, "the tunnel to be known", func() bool { return n.online("pay") })
	}

	// Each node gets a request. Only node c cannot verify the signature.
	for i, n := range nodes {
		want := "valid ok"
		if n == c {
			want = "unchecked secret-sealed"
		}
		// The request is repeated, because the node may learn of the secret with a delay.
		n.waitFor(20*time.Second, fmt.Sprintf("node %d to judge %s", i, want), func() bool {
			at := strconv.FormatInt(time.Now().Unix(), 10)
			body := fmt.Sprintf(`{"id":"evt_%d"}`, i)
			n.sendStripe(t, "t="+at+",v1="+hex.EncodeToString(mac(plainSecret, at+"."+body)), body)
			return n.verdictOf(n.latest("pay").ID) == want
		})
	}
	id := c.latest("pay").ID
	sealed := string(c.must(200, "POST", "/events/"+id+"/verify", nil))
	if !strings.Contains(sealed, `"reason":"secret-sealed"`) || c.verdictOf(id) != "unchecked secret-sealed" {
		t.Errorf("verified: %s", sealed)
	}
	b.must(200, "POST", "/events/"+id+"/verify", nil)
	c.must(200, "POST", "/events/"+id+"/verify", nil)
	given := string(c.must(200, "POST", "/events/"+id+"/verify", []byte(`{"secret":"`+plainSecret+`"}`)))
	if got := c.verdictOf(id); got != "valid ok" || !strings.Contains(given, `"verdict":"valid"`) {
		t.Errorf("after another node has judged it: %s, by a given secret %s", got, given)
	}

	// At node c, calls that sign or store a secret get an error and change nothing. Other calls succeed.
	n, events := handled.Load(), len(c.events("pay", ""))
	for path, body := range map[string]string{
		"/aliases/pay/send":    `{"from":"` + id + `","sign":"auto"}`,
		"/aliases/pay/secrets": `{"provider":"github","secret":"value"}`,
	} {
		if out := string(c.must(503, "POST", path, []byte(body))); !strings.Contains(out, `"code":"secret-unavailable"`) {
			t.Errorf("%s: %s", path, out)
		}
	}
	if handled.Load() != n || len(c.events("pay", "")) != events {
		t.Errorf("the handler got %d, want %d", handled.Load(), n)
	}
	if again := c.replay(id); len(again.Attempts) != 2 || again.Attempts[1].State != "delivered" {
		t.Errorf("the replay: %+v", again)
	}
	c.must(200, "POST", "/aliases/pay/send", []byte(`{"from":"`+id+`"}`))
	for _, other := range nodes[:2] {
		var sent record
		if err := json.Unmarshal(other.must(200, "POST", "/aliases/pay/send", []byte(`{"from":"`+id+`","sign":"auto"}`)), &sent); err != nil || other.verdictOf(sent.ID) != "valid ok" {
			t.Errorf("signed anew: %+v, %v", sent, err)
		}
	}
	var lists []string
	for _, n := range nodes {
		var list struct {
			Data []struct{ ID, Provider string }
		}
		if err := json.Unmarshal(n.must(200, "GET", "/aliases/pay/secrets", nil), &list); err != nil {
			t.Fatal(err)
		}
		lists = append(lists, fmt.Sprint(list.Data))
	}
	if lists[0] != lists[1] || lists[0] != lists[2] || strings.Count(lists[0], "sec_") != 1 {
		t.Errorf("listed: %q", lists)
	}
}

// sendStripe sends a request to the alias pay, with line as its header Stripe-Signature.
func (r *relayServer) sendStripe(t *testing.T, line, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.http+"/hook", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "pay.localhost"
	req.Header.Set("Stripe-Signature", line)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Errorf("the caller got %d", res.StatusCode)
	}
}

// verdictOf returns the signature verdict in the record of an event.
func (r *relayServer) verdictOf(id string) string {
	r.t.Helper()
	var e struct {
		Signature struct{ Verdict, Reason string }
	}
	if err := json.Unmarshal(r.must(200, "GET", "/events/"+id, nil), &e); err != nil {
		r.t.Fatal(err)
	}
	return e.Signature.Verdict + " " + e.Signature.Reason
}
