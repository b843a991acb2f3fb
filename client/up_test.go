package client

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/cli"
	"relay/record"
	"relay/relaytest"
)

func TestUpAnnouncesForwardsAndHears(t *testing.T) {
	d := newFakeRelay(t)
	dialer, _ := newDialer(t, d.listen())
	target, err := ParseTarget("http://127.0.0.1:4000")
	if err != nil {
		t.Fatal(err)
	}
	if target, err = target.WithHostHeader("rewrite"); err != nil {
		t.Fatal(err)
	}
	run := startUp(t, dialer, Forward{Alias: "stripe-dev", Target: target}, Forward{Alias: "github-dev", Target: target})
	if got(t, "ready", run.ready) {
		t.Error("the first connection counts as another one")
	}
	conn := got(t, "connection", d.conns)
	conn.mu.Lock()
	if want := (relay.Hello{Protocol: 1, Flags: relay.HelloLazyDial | relay.HelloMoves, Version: "test"}); conn.hello != want {
		t.Errorf("hello %+v", conn.hello)
	}
	if want := (relay.Target{Bind: "github-dev", URL: "http://127.0.0.1:4000", HostHeader: "rewrite"}); conn.targets["github-dev"] != want {
		t.Errorf("target %+v", conn.targets["github-dev"])
	}
	conn.mu.Unlock()
	if string(conn.ClientVersion()) != "SSH-2.0-relay_test" || conn.User() != "relay" {
		t.Errorf("version %s, user %s", conn.ClientVersion(), conn.User())
	}
	if c := conn.Conn.(ssh.AlgorithmsConnMetadata).Algorithms(); c.Read.Cipher != "aes128-gcm@openssh.com" {
		t.Errorf("cipher %s", c.Read.Cipher)
	}
	hello, online := got(t, "hello", run.messages), got(t, "online", run.messages)
	if hello.Type != TypeHello || hello.Host != "relay.test" {
		t.Errorf("first %+v", hello)
	}
	if online.Alias != "stripe-dev" || online.URL != "https://stripe-dev.relay.test" || *online.QueuedEvents != 3 || !online.Paused {
		t.Errorf("second %+v", online)
	}
	if r, err := run.Release(t.Context(), "stripe-dev.relay.test"); err != nil || *r != (record.Released{Alias: "stripe-dev", Released: 3}) {
		t.Error(r, err)
	}
	if err := run.stop(t); err != nil {
		t.Error("a clean disconnect gave", err)
	}
	if name := got(t, "cancel", conn.canceled); name != "stripe-dev" {
		t.Errorf("canceled %s", name)
	}
	if _, err := run.Release(t.Context(), "stripe-dev"); exitOfError(err) != cli.ExitUnreachable {
		t.Error("Release works without a connection")
	}
}

// TestRequestsBeforeTheNoticeOfTheirAlias: the log of several aliases begins when the first one is online.
// Requests of another alias may arrive before its notice, and are shown after the notice. Requests of an
// alias that this connection does not forward are never shown.
func TestRequestsBeforeTheNoticeOfTheirAlias(t *testing.T) {
	t.Parallel()
	shown := []string{}
	up := &Up{Ready: func(bool) { shown = append(shown, "ready") }, Dialer: &Dialer{}, Show: func(m *Message) {
		if m.Type == TypeRequest {
			shown = append(shown, "request "+m.Event.Alias)
			return
		}
		shown = append(shown, m.Type+" "+m.Alias)
	}}
	up.active.Store(&[]Forward{{Alias: "a"}, {Alias: "b"}, {Alias: "c"}})
	c := &tunnel{up: up, online: map[string]bool{}}
	request := func(alias string) *Message {
		return &Message{Type: TypeRequest, Event: &record.Summary{Alias: alias}}
	}
	for _, m := range []*Message{
		{Type: relay.NoticeOnline, Alias: "a"},
		request("b"), request("a"), request("c"), request("other"),
		{Type: relay.NoticeRefused, Alias: "c", Code: relay.CodeNotFound},
		request("b"),
		{Type: relay.NoticeOnline, Alias: "b"},
		request("b"),
		{Type: relay.NoticeOnline, Alias: "b"},
	} {
		if err := c.handle(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	want := "online a, request a, refused c, online b, ready, request b, request b, request b, online b"
	if got := strings.Join(shown, ", "); got != want {
		t.Errorf("shown: %s\nwant:  %s", got, want)
	}
	clear(c.online)
	for range 2 * maxEarly {
		_ = c.handle(t.Context(), request("b"))
	}
	_ = c.handle(t.Context(), request("a")) // the requests of b do not use up the space of a
	if len(c.early["a"]) != 1 || len(c.early["b"]) != maxEarly {
		t.Errorf("%d and %d requests are kept", len(c.early["a"]), len(c.early["b"]))
	}
}

func TestUpStopsWhenRefusedForGood(t *testing.T) {
	for code, exit := range map[string]int{
		relay.CodeNotFound: cli.ExitTaken, relay.CodeValidationFailed: cli.ExitUsage, relay.CodeConflict: cli.ExitFailure,
	} {
		d := newFakeRelay(t)
		d.refuse["stripe-dev"] = [2]string{code, "no"}
		dialer, _ := newDialer(t, d.listen())
		run := startUp(t, dialer, Forward{Alias: "stripe-dev"})
		if err := run.end(t); exitOfError(err) != exit {
			t.Errorf("%s: %v, exit %d, want %d", code, err, exitOfError(err), exit)
		}
	}
}

func TestUpGoesOnWithTheOthers(t *testing.T) {
	d := newFakeRelay(t)
	d.refuse["foreign"] = [2]string{relay.CodeNotFound, "not yours"}
	dialer, _ := newDialer(t, d.listen())
	run := startUp(t, dialer, Forward{Alias: "foreign"}, Forward{Alias: "mine"})
	got(t, "ready", run.ready)
	if err := run.stop(t); err != nil {
		t.Error(err)
	}
}

// TestUpStopsWhenTakenOver: relay up ends when its tunnel is taken over or closed by a user, with a message
// that names the reason.
func TestUpStopsWhenTakenOver(t *testing.T) {
	for reason, want := range map[string]string{
		relay.TakenOver:                  "alias stripe-dev was taken over by a newer connection",
		"this tunnel was closed by hand": "alias stripe-dev is offline: this tunnel was closed by hand",
	} {
		d := newFakeRelay(t)
		d.notices = func(c *fakeConn) {
			c.notify(onlineNotice, relay.Notice{Kind: "newer-than-us"},
				relay.Notice{Kind: relay.NoticeSuperseded, Alias: "stripe-dev", Message: reason})
			c.Close() // the client has not read the notices yet
		}
		dialer, _ := newDialer(t, d.listen())
		run := startUp(t, dialer, Forward{Alias: "stripe-dev"})
		if err := run.end(t); exitOfError(err) != cli.ExitTaken || err.Error() != want {
			t.Error(err)
		}
	}
}

func TestUpComesBack(t *testing.T) {
	d := newFakeRelay(t)
	dialer, _ := newDialer(t, d.listen())
	run := startUp(t, dialer, Forward{Alias: "stripe-dev"})
	got(t, "ready", run.ready)
	got(t, "connection", d.conns).Close()
	if next := got(t, "loss", run.lost); next != 0 {
		t.Errorf("the first try waits %v", next)
	}
	if !got(t, "ready again", run.ready) {
		t.Error("the second connection counts as the first")
	}
	got(t, "second connection", d.conns)
	if err := run.stop(t); err != nil {
		t.Error(err)
	}
}

func TestUnreachableAtFirstGivesUp(t *testing.T) {
	addr, _ := refusingAddr(t)
	dialer, _ := newDialer(t, addr)
	run := startUp(t, dialer, Forward{Alias: "stripe-dev"})
	if err := run.end(t); exitOfError(err) != cli.ExitUnreachable {
		t.Error(err)
	}
	if n := len(run.lost); n != firstTries-1 {
		t.Errorf("%d tries were announced", n)
	}
}

// TestNotARelay: another SSH server is reported as such, and not tried again.
func TestNotARelay(t *testing.T) {
	d := newFakeRelay(t)
	d.config.ServerVersion = "SSH-2.0-other"
	d.notices = func(*fakeConn) {}
	d.noAPI = true
	dialer, _ := newDialer(t, d.listen())
	run := startUp(t, dialer, Forward{Alias: "stripe-dev"})
	if err := run.end(t); exitOfError(err) != cli.ExitFailure || !strings.Contains(err.Error(), "is an SSH server but no relay") {
		t.Error(err)
	}
}

// TestSilentRelayIsTriedAgain: a relay that is silent for some time is tried again, and not reported
// as another server.
func TestSilentRelayIsTriedAgain(t *testing.T) {
	t.Parallel() // parallel, because it takes two times replyTimeout: Lost is called only after the second try
	d := newFakeRelay(t)
	d.notices = func(*fakeConn) {}
	silent := make(chan struct{})
	d.api = http.NewServeMux()
	d.api.HandleFunc("/", func(http.ResponseWriter, *http.Request) { <-silent })
	t.Cleanup(func() { close(silent) })
	dialer, _ := newDialer(t, d.listen())
	run := startUp(t, dialer, Forward{Alias: "stripe-dev"})
	select {
	case <-run.lost:
	case <-time.After(relaytest.Patience(2 * replyTimeout)):
		t.Error("the connection was not given up")
	}
	if err := run.stop(t); err != nil {
		t.Error(err)
	}
}

func readResponse(t *testing.T, text []byte) *http.Response {
	resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(text)), nil)
	if err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	return resp
}

func TestEchoAnswersBodyAndType(t *testing.T) {
	target, stop, err := StartEcho(func(Echoed) {})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	conn, _ := online(t, target)
	ch, requests, err := conn.channel("stripe-dev")
	if err != nil {
		t.Fatal(err)
	}
	go ssh.DiscardRequests(requests)
	_, _ = io.WriteString(ch, "POST /x HTTP/1.1\r\nHost: a\r\nContent-Type: text/x\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc")
	text, err := io.ReadAll(ch)
	if err != nil {
		t.Fatal(err)
	}
	ch.Close()
	resp := readResponse(t, text)
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/x" || string(body) != "abc" {
		t.Errorf("%s", text)
	}
}

// TestEchoAsksForTheBody: a client that waits for 100 Continue before it sends its body gets that from relay up
// --echo.
func TestEchoAsksForTheBody(t *testing.T) {
	t.Parallel()
	target, stop, err := StartEcho(func(Echoed) {})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	u, err := url.Parse(target.URL)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	_, _ = io.WriteString(conn, "POST /x HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
	in := bufio.NewReader(conn)
	if line, err := in.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 100 ") {
		t.Fatalf("%q, %v", line, err)
	}
	_, _ = in.ReadString('\n')
	_, _ = io.WriteString(conn, "abc")
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK || string(body) != "abc" {
		t.Errorf("%d, %q, %v", resp.StatusCode, body, err)
	}
}
