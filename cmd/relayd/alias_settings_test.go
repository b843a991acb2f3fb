package main

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/record"
	"relay/relaytest"
)

// ask is a request with Connection: close, so that relayd closes the connection after the response.
const ask = "POST /hook?x=1 HTTP/1.1\r\nhost:  demo.localhost\r\nX-Last: yes\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi"

const okAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"

// set changes settings of the alias demo by the API. The change takes effect at once.
func (h *testServer) set(body string) {
	h.t.Helper()
	var text []byte
	if status := h.api(http.MethodPatch, "/aliases/demo", body, &text); status != http.StatusOK {
		h.t.Fatalf("PATCH %s: %d %s", body, status, text)
	}
}

func (h *testServer) event(id string) record.Event {
	h.t.Helper()
	var e record.Event
	h.api(http.MethodGet, "/events/"+id, "", &e)
	return e
}

// withAlias returns a server with the alias demo, without a tunnel.
func withAlias(t *testing.T) *testServer {
	t.Helper()
	h := newTestServer(t, nil)
	if status := h.api(http.MethodPost, "/aliases", `{"name":"demo"}`, nil); status != http.StatusCreated {
		t.Fatalf("alias: %d", status)
	}
	return h
}

// TestHostHeaderSetting: hostHeader changes only the value of the Host line, for the original and its replay.
// The stored request has the received bytes.
func TestHostHeaderSetting(t *testing.T) {
	t.Parallel()
	h := withAlias(t)
	l := newLocal(t, okAnswer)
	h.tunnel("demo", l.addr)
	n := 0
	for _, tt := range []struct{ setting, host string }{
		{"", "demo.localhost"}, // preserve is the default
		{"rewrite", "localhost"},
		{"app.internal:8000", "app.internal:8000"},
		{"preserve", "demo.localhost"},
	} {
		want := strings.Replace(ask, "demo.localhost", tt.host, 1)
		if tt.setting != "" {
			if _, code := h.operate("alias", "set", "demo", "hostHeader="+tt.setting); code != 0 {
				t.Fatalf("alias set exits %d", code)
			}
			if !relaytest.Poll(2*time.Second, func() bool {
				h.send(ask)
				n++
				return l.seen(t, n)[n-1] == want
			}) {
				t.Fatalf("hostHeader=%s is not in effect after 2 s; got %q", tt.setting, l.seen(t, n)[n-1])
			}
		}
		if got := h.send(ask); got != okAnswer {
			t.Fatalf("%s: answered %q", tt.setting, got)
		}
		e := h.newest("demo")
		if status := h.api(http.MethodPost, "/events/"+e.ID+"/replay", "", nil); status != http.StatusOK {
			t.Fatalf("%s: replay answered %d", tt.setting, status)
		}
		n += 2
		for i, got := range l.seen(t, n)[n-2:] {
			if got != want {
				t.Errorf("hostHeader=%s, delivery %d: got %q, want %q", tt.setting, i+1, got, want)
			}
		}
		var raw []byte
		if h.api(http.MethodGet, "/events/"+e.ID+"/request.raw", "", &raw); string(raw) != ask {
			t.Errorf("hostHeader=%s: stored %q", tt.setting, raw)
		}
		for _, a := range h.event(e.ID).Attempts {
			if same := want == ask; a.Identical == nil || *a.Identical != same {
				t.Errorf("hostHeader=%s, attempt %d: identical %v, want %t", tt.setting, a.Number, a.Identical, same)
			}
		}
	}
}

// TestRefusedHostWarning: the record of an event and its row in the list of events have the same warning about
// a refused Host header.
func TestRefusedHostWarning(t *testing.T) {
	t.Parallel()
	h := withAlias(t)
	h.tunnel("demo", newLocal(t, "HTTP/1.1 403 Forbidden\r\nContent-Length: 19\r\n\r\nInvalid Host header").addr)
	h.send(ask)
	listed := h.newest("demo")
	w := listed.AddressRefused()
	if w == nil || !strings.Contains(w.Message, "alias set demo hostHeader=") {
		t.Fatalf("warnings of the list: %+v", listed.Warnings)
	}
	e := h.event(listed.ID)
	if whole := e.AddressRefused(); whole == nil || *whole != *w {
		t.Errorf("the record says %+v, the list %+v", whole, *w)
	}
}

// TestRefusedHostIsShownLive: a live view shows the warning about a refused Host header, even if it showed
// the event before the response arrived.
func TestRefusedHostIsShownLive(t *testing.T) {
	t.Parallel()
	h := withAlias(t)
	l := newLocal(t, "HTTP/1.1 403 Forbidden\r\nContent-Length: 19\r\n\r\nInvalid Host header")
	l.gate = make(chan struct{})
	h.tunnel("demo", l.addr)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.app.site.URL("/api/v1/stream?alias=demo"), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+h.token)
	stream, err := h.client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	go h.trySend(ask)
	name, shown := "", map[string][]record.Warning{}
	for lines := bufio.NewScanner(stream.Body); len(shown) < 2 && lines.Scan(); {
		if is, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			name = is
		}
		data, _ := strings.CutPrefix(lines.Text(), "data: ")
		var item record.Summary
		if name != "event" || json.Unmarshal([]byte(data), &item) != nil {
			continue
		}
		_, again := shown[item.State]
		if shown[item.State] = item.Warnings; !again && item.State == relay.StateDelivering {
			close(l.gate)
		}
	}
	if w := shown[relay.StateDelivered]; len(w) != 1 || w[0].Code != record.WarningHostRefused {
		t.Errorf("the stream showed %+v", shown)
	}
}

// TestForwardedSetting: the setting forwarded makes relayd append three header lines. The lines are computed
// at capture, so a replay has the same lines, even after the setting was switched off.
func TestForwardedSetting(t *testing.T) {
	t.Parallel()
	h := withAlias(t)
	l := newLocal(t, okAnswer)
	h.tunnel("demo", l.addr)
	h.set(`{"forwarded":true}`)
	h.send(ask)
	e := h.newest("demo")
	h.set(`{"forwarded":false}`)
	h.api(http.MethodPost, "/events/"+e.ID+"/replay", "", nil)
	h.send(ask)
	want := strings.Replace(ask, "\r\n\r\nhi",
		"\r\nX-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: demo.localhost\r\n\r\nhi", 1)
	got := l.seen(t, 3)
	if got[0] != want || got[1] != want || got[2] != ask {
		t.Errorf("got %q\nwant %q twice, then %q", got, want, ask)
	}
}

// TestOfflineStatusSetting: offlineStatus is the status of the answer while there is no tunnel; the event is
// queued in any case.
func TestOfflineStatusSetting(t *testing.T) {
	t.Parallel()
	h := withAlias(t)
	for _, tt := range []struct{ set, line, retry, body string }{
		{`{}`, "HTTP/1.1 202 Accepted\r\n", "", `"state":"queued"}`},
		{`{"offlineStatus":503}`, "HTTP/1.1 503 Service Unavailable\r\n", "\r\nRetry-After: ", `"state":"queued"}`},
		{`{"offlineStatus":204}`, "HTTP/1.1 204 No Content\r\n", "", "\r\n\r\n"},
		{`{"offlineStatus":200}`, "HTTP/1.1 200 OK\r\n", "", `"state":"queued"}`},
	} {
		h.set(tt.set)
		got := h.send(ask)
		if !strings.HasPrefix(got, tt.line) || !strings.HasSuffix(got, tt.body) ||
			strings.Contains(got, "Retry-After") != (tt.retry != "") || strings.Contains(got, "Relay-Error") {
			t.Errorf("%s: answered %q", tt.set, got)
		}
		if e := h.newest("demo"); e.State != "queued" || !strings.Contains(got, "\r\nRelay-Event: "+e.ID+"\r\n") {
			t.Errorf("%s: event %s is %s, answer %q", tt.set, e.ID, e.State, got)
		}
	}
}

// TestAutoDeliverSetting: with autoDeliver, events queued while offline are delivered when a tunnel opens.
// Without autoDeliver they stay queued.
func TestAutoDeliverSetting(t *testing.T) {
	t.Parallel()
	h := withAlias(t)
	l := newLocal(t, okAnswer)
	h.send(strings.Replace(ask, "/hook", "/first", 1))
	h.tunnel("demo", l.addr).close()
	if !relaytest.Poll(10*time.Second, func() bool { return !h.alias("demo").Online }) {
		t.Fatal("the tunnel never ended")
	}
	if e := h.newest("demo"); e.State != "queued" {
		t.Errorf("off: the event is %s", e.State)
	}
	h.set(`{"autoDeliver":true}`)
	h.send(strings.Replace(ask, "/hook", "/second", 1))
	h.tunnel("demo", l.addr)
	got := l.seen(t, 2)
	if !strings.HasPrefix(got[0], "POST /first?") || !strings.HasPrefix(got[1], "POST /second?") {
		t.Errorf("on: delivered %q", got)
	}
}

// TestFreshConnectionsSetting: with freshConnections, every request gets a new connection to the local
// server. Without it, plain ssh reuses a connection.
func TestFreshConnectionsSetting(t *testing.T) {
	t.Parallel()
	h := withAlias(t)
	const kept = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	l := newLocal(t, kept)
	h.tunnel("demo", l.addr)
	// second makes two requests, one after another, and returns whether the second one had a new or a reused
	// connection.
	second := func() string {
		for range 2 {
			if status := h.getStatus("demo.localhost"); status != http.StatusOK {
				t.Fatalf("answered %d", status)
			}
		}
		var last record.Event
		if !relaytest.Poll(5*time.Second, func() bool {
			last = h.event(h.newest("demo").ID)
			return last.State == "delivered" && last.Attempts[0].Connection != nil
		}) {
			t.Fatalf("event %+v", last)
		}
		return *last.Attempts[0].Connection
	}
	h.set(`{"freshConnections":true}`)
	for range 3 {
		if got := second(); got != "new" {
			t.Errorf("on: the second request had a %q connection", got)
		}
	}
	h.set(`{"freshConnections":false}`)
	if !relaytest.Poll(10*time.Second, func() bool { return second() == "reused" }) { // on a busy machine, the second request may come after the 1 s for which relayd keeps a connection
		t.Error("off: the second request never had a reused connection")
	}
}

// getStatus makes a GET request without a body to a host and returns the status.
func (h *testServer) getStatus(host string) int {
	h.t.Helper()
	req, err := http.NewRequest(http.MethodGet, "http://"+host+"/", nil)
	if err != nil {
		h.t.Fatal(err)
	}
	c := h.client()
	c.Transport.(*http.Transport).DisableKeepAlives = false // with DisableKeepAlives, the request would say Connection: close
	defer c.CloseIdleConnections()
	res, err := c.Do(req)
	if err != nil {
		h.t.Fatal(err)
	}
	_ = res.Body.Close()
	return res.StatusCode
}

// TestResponseTimeoutSetting: responseTimeout bounds the wait for the head of the local server's response.
func TestResponseTimeoutSetting(t *testing.T) {
	t.Parallel()
	h := withAlias(t)
	l := newLocal(t, okAnswer)
	l.gate = make(chan struct{})
	defer close(l.gate)
	h.tunnel("demo", l.addr)
	h.set(`{"responseTimeout":"1s"}`)
	begun := time.Now()
	got := h.send(ask)
	if took := time.Since(begun); !strings.HasPrefix(got, "HTTP/1.1 504 ") || !strings.Contains(got, "\r\nRelay-Error: local-timeout\r\n") ||
		took < time.Second || took > 30*time.Second { // the setting of the server is 60 s
		t.Errorf("after %v: %q", took, got)
	}
}

// TestRetentionSetting: with a retention of 2 s, an event is removed when it is 2 s old, at most 5 s late.
func TestRetentionSetting(t *testing.T) {
	t.Parallel()
	h := withAlias(t)
	l := newLocal(t, okAnswer)
	h.tunnel("demo", l.addr)
	begun := time.Now()
	h.send(ask)
	id := h.newest("demo").ID
	h.set(`{"retention":"2s"}`)
	if !relaytest.Poll(7*time.Second, func() bool { return h.api(http.MethodGet, "/events/"+id, "", nil) == http.StatusNotFound }) {
		t.Error("the event is still there")
	}
	if took := time.Since(begun); took < 2*time.Second {
		t.Errorf("the event went after %v", took)
	}
	h.set(`{"retention":null}`)
	h.send(ask)
	if e := h.newest("demo"); e.State != "delivered" {
		t.Errorf("event %+v", e)
	}
}

// TestPausedSetting: a paused alias counts as offline, also for replays. When the pause ends, autoDeliver
// delivers the queued events, as after a reconnect.
func TestPausedSetting(t *testing.T) {
	t.Parallel()
	h := withAlias(t)
	l := newLocal(t, okAnswer)
	h.tunnel("demo", l.addr)
	h.set(`{"autoDeliver":true}`)
	h.send(ask)
	first := h.newest("demo")
	h.set(`{"paused":true}`)
	if got := h.send(strings.Replace(ask, "/hook", "/paused", 1)); !strings.HasPrefix(got, "HTTP/1.1 202 ") {
		t.Errorf("while paused: %q", got)
	}
	if status := h.api(http.MethodPost, "/events/"+first.ID+"/replay", "", nil); status != http.StatusAccepted {
		t.Errorf("a replay while paused: %d", status)
	}
	l.seen(t, 1)
	h.set(`{"paused":false}`)
	got := l.seen(t, 3)
	if paths := got[1][:14] + got[2][:14]; !strings.Contains(paths, "POST /paused?x") || !strings.Contains(paths, "POST /hook?x=1") {
		t.Errorf("after the pause: %q", got)
	}
}

// TestVerifyTokenSetting: with verifyToken, relayd answers Meta's challenge if the token is right. The token
// is never shown.
func TestVerifyTokenSetting(t *testing.T) {
	t.Parallel()
	h := withAlias(t)
	challenge := func(token string) string {
		return h.send("GET /hook?hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token=" + token + " HTTP/1.1\r\nHost: demo.localhost\r\nConnection: close\r\n\r\n")
	}
	h.set(`{"handshakes":["meta"]}`)
	if got := challenge("meatyhamhock"); !strings.HasPrefix(got, "HTTP/1.1 202 ") {
		t.Errorf("without a token: %q", got)
	}
	if out, code := h.operate("alias", "set", "demo", "verifyToken=meatyhamhock"); code != 0 || strings.Contains(out, "meatyhamhock") {
		t.Fatalf("alias set exits %d: %s", code, out)
	}
	if !relaytest.Poll(10*time.Second, func() bool { return strings.HasSuffix(challenge("meatyhamhock"), "\r\n\r\n1158201444") }) {
		t.Error("the challenge is not answered")
	}
	if e := h.newest("demo"); e.State != "answered" {
		t.Errorf("state %s", e.State)
	}
	for _, wrong := range []string{"meatyhamhocK", "", "meatyhamhock&hub.verify_token=x"} {
		if got := challenge(wrong); !strings.HasPrefix(got, "HTTP/1.1 202 ") {
			t.Errorf("with %q: %q", wrong, got)
		}
	}
	if out, code := h.operate("alias", "list", "--json"); code != 0 || !strings.Contains(out, `"verifyToken": true`) && !strings.Contains(out, `"verifyToken":true`) || strings.Contains(out, "meaty") {
		t.Errorf("alias list: %d %s", code, out)
	}
	h.set(`{"verifyToken":null}`)
	if got := challenge("meatyhamhock"); !strings.HasPrefix(got, "HTTP/1.1 202 ") {
		t.Errorf("after it was removed: %q", got)
	}
}
