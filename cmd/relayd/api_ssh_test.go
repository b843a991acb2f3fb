package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/record"
	"relay/relaytest"
)

// channelConn is a session channel as a net.Conn, without deadlines.
type channelConn struct {
	ssh.Channel
	net.Conn
}

func (c channelConn) Read(p []byte) (int, error)  { return c.Channel.Read(p) }
func (c channelConn) Write(p []byte) (int, error) { return c.Channel.Write(p) }
func (c channelConn) Close() error                { return c.Channel.Close() }

// overSSH returns an HTTP client whose connections are channels with the subsystem relay-api.
func (h *testServer) overSSH() *http.Client {
	h.t.Helper()
	text, err := os.ReadFile(h.key)
	if err != nil {
		h.t.Fatal(err)
	}
	signer, err := ssh.ParsePrivateKey(text)
	if err != nil {
		h.t.Fatal(err)
	}
	c, err := ssh.Dial("tcp", h.app.cfg.SSHAddr, &ssh.ClientConfig{
		User: "relay", Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)},
		HostKeyCallback: ssh.FixedHostKey(h.app.hostKeys[0].PublicKey()),
	})
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = c.Close() })
	return &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		ch, reqs, err := c.OpenChannel("session", nil)
		if err != nil {
			return nil, err
		}
		go ssh.DiscardRequests(reqs)
		if ok, err := ch.SendRequest("subsystem", true, ssh.Marshal(struct{ Name string }{"relay-api"})); !ok || err != nil {
			h.t.Errorf("subsystem: %v, %v", ok, err)
		}
		return channelConn{Channel: ch}, nil
	}}}
}

// TestAPIOverSSH: the subsystem relay-api serves the API to the account of the SSH key. Other credentials in
// a request are ignored.
func TestAPIOverSSH(t *testing.T) {
	t.Parallel()
	h := newTestServer(t, nil)
	l := newLocal(t, oddAnswer)
	h.tunnel("demo", l.addr)
	h.send(odd)
	e := h.newest("demo")

	other, err := h.app.store.CreateAccount(t.Context(), relay.System(), "other", false)
	if err != nil {
		t.Fatal(err)
	}
	_, token, err := h.app.store.CreateToken(t.Context(), relay.System(), relay.Token{
		Account: other.ID, AccountName: other.Name, Name: "test", Scopes: relay.AllScopes,
	})
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := h.app.store.TokenOwner(t.Context(), token)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.app.store.ClaimAlias(t.Context(), foreign, "foreign"); err != nil {
		t.Fatal(err)
	}

	client := h.overSSH()
	do := func(method, path string, header ...string) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://relay/api/v1"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = res.Body.Close() })
		return res
	}
	read := func(res *http.Response, into any) int {
		t.Helper()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		if into != nil && json.Unmarshal(text, into) != nil {
			t.Errorf("%s: %s", res.Request.URL, text)
		}
		return res.StatusCode
	}

	scopes := len(relay.AllScopes.Names())
	for name, header := range map[string][]string{
		"no credential":   nil,
		"another's token": {"Authorization", "Bearer " + token},
		"a wrong token":   {"Authorization", "Bearer rly_wrong"},
		"a cookie":        {"Cookie", "relay_session=wrong", "Sec-Fetch-Site", "cross-site"},
	} {
		var me record.Me
		if status := read(do(http.MethodGet, "/me", header...), &me); status != http.StatusOK || me.User != h.start.Admin || len(me.Scopes) != scopes || me.Alias != nil {
			t.Errorf("%s: %d as %+v, want %q with all scopes", name, status, me, h.start.Admin)
		}
	}
	var page struct{ Data []record.Summary }
	if status := read(do(http.MethodGet, "/events?alias=demo"), &page); status != http.StatusOK || len(page.Data) != 1 || page.Data[0].ID != e.ID {
		t.Errorf("events: %d, %+v", status, page)
	}
	for path, want := range map[string]int{"/nothing": http.StatusNotFound, "/aliases/foreign": http.StatusNotFound, "/aliases/demo": http.StatusOK} {
		if status := read(do(http.MethodGet, path, "Authorization", "Bearer "+token), nil); status != want {
			t.Errorf("%s: %d, want %d", path, status, want)
		}
	}

	stream := do(http.MethodGet, "/stream?alias=demo")
	lines := bufio.NewScanner(stream.Body)
	if !lines.Scan() || lines.Text() != ": connected" {
		t.Fatalf("stream began with %q", lines.Text())
	}
	var replayed record.Event
	if status := read(do(http.MethodPost, "/events/"+e.ID+"/replay"), &replayed); status != http.StatusOK || len(replayed.Attempts) != 2 {
		t.Errorf("replay: %d, %d attempts", status, len(replayed.Attempts))
	}
	if got := l.seen(t, 2)[1]; got != odd {
		t.Errorf("replay sent %q", got)
	}
	for lines.Scan() && !strings.Contains(lines.Text(), e.ID) {
	}
	if !strings.Contains(lines.Text(), e.ID) {
		t.Errorf("the stream ended with %v", lines.Err())
	}

	waited := make(chan record.Summary, 1)
	go func() {
		defer close(waited)
		res, err := client.Get("http://relay/api/v1/events?alias=demo&wait=60s")
		if err != nil {
			t.Error(err)
			return
		}
		defer res.Body.Close()
		var page struct{ Data []record.Summary }
		if err := json.NewDecoder(res.Body).Decode(&page); err != nil || len(page.Data) != 1 {
			t.Errorf("wait: %v, %d events", err, len(page.Data))
			return
		}
		waited <- page.Data[0]
	}()
	if !relaytest.Poll(10*time.Second, func() bool { return h.app.limits.Stats().Waits == 1 }) {
		t.Fatal("no call waits")
	}
	h.send(odd)
	if got := <-waited; got.ID == "" || got.ID == e.ID {
		t.Errorf("waited for %q, a new event is due", got.ID)
	}
}
