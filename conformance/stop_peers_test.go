package conformance

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// pagesUnread opens live pages of an alias in browsers that read nothing, and sends requests that would appear on
// the pages.
func pagesUnread(t *testing.T, r *relayServer) {
	client, _ := deafClient(t, r)
	forwardTo(t, r, client, answerOK, "busy")
	browser, _ := r.browser("admin")
	cookie := r.cookie(browser)
	for range 20 {
		c := rawConn(t, r.http)
		fmt.Fprintf(c, "GET /aliases/busy/live HTTP/1.1\r\nHost: localhost\r\nCookie: %s=%s\r\n\r\n", cookie.Name, cookie.Value)
	}
	for range 100 {
		r.call("busy", "/", strings.Repeat("x", 10<<10))
	}
}

// waitsOpen opens calls that wait for an event: by MCP, by the API and by SSH commands. It also sends a
// request that gets no answer.
func waitsOpen(t *testing.T, r *relayServer) {
	client, _ := deafClient(t, r)
	forwardTo(t, r, client, takeNothing, "waited")
	go r.call("waited", "/", "x")
	r.waitFor(20*time.Second, "a request", func() bool { return r.stats().Channels >= 1 })
	const tool = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait_for_event","arguments":{"alias":"waited","path":"/never","timeout":60}}}`
	for i := range 5 {
		c := rawConn(t, r.http)
		fmt.Fprintf(c, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"+
			"Accept: application/json, text/event-stream\r\nContent-Length: %d\r\n\r\n%s", r.token, len(tool), tool)
		c = rawConn(t, r.http)
		fmt.Fprintf(c, "GET /api/v1/events?alias=waited&path=/never&wait=60s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", r.token)
		if i >= 4 { // the number of sessions on a connection is limited
			continue
		}
		s, err := client.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Start("wait waited --path /never"); err != nil {
			t.Fatal(err)
		}
	}
	r.waitFor(20*time.Second, "the waits", func() bool { return r.metric("relay_api_waits") >= 10 })
}

// callsHalfSent opens API channels on which a call is begun and never completed.
func callsHalfSent(t *testing.T, r *relayServer) {
	var client *ssh.Client
	for i := range 20 {
		if i%4 == 0 { // the number of sessions on a connection is limited
			client, _ = deafClient(t, r)
		}
		ch, reqs, err := client.OpenChannel("session", nil)
		if err != nil {
			t.Fatal(err)
		}
		go ssh.DiscardRequests(reqs)
		if ok, err := ch.SendRequest("subsystem", true, ssh.Marshal(struct{ Name string }{"relay-api"})); !ok || err != nil {
			t.Fatalf("%t, %v", ok, err)
		}
		_, _ = io.WriteString(ch, "POST /api/v1/aliases HTTP/1.1\r\nHost: relay\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{\"name\":")
	}
}

// upgradedUnread opens upgraded connections on which neither side reads.
func upgradedUnread(t *testing.T, r *relayServer) {
	client, _ := deafClient(t, r)
	forwardTo(t, r, client, func(n ssh.NewChannel) {
		ch, reqs, err := n.Accept()
		if err != nil {
			return
		}
		go ssh.DiscardRequests(reqs)
		go func() {
			_, _ = ch.Read(make([]byte, 64<<10))
			_, _ = io.WriteString(ch, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
			for {
				if _, err := ch.Write(make([]byte, 32<<10)); err != nil {
					return
				}
			}
		}()
	}, "upgraded")
	for range 10 {
		c := rawConn(t, r.http)
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: upgraded.localhost\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		go func() {
			for {
				if _, err := c.Write(make([]byte, 32<<10)); err != nil {
					return
				}
			}
		}()
	}
	r.waitFor(20*time.Second, "upgraded connections", func() bool { return r.stats().Channels >= 10 })
}

// sessionsOnFrozen opens sessions of a client that reads nothing, while the database is frozen.
func sessionsOnFrozen(t *testing.T, r *relayServer, freeze func()) {
	client, c := deafClient(t, r)
	forwardTo(t, r, client, takeNothing, "deaf")
	go r.call("deaf", "/", strings.Repeat("x", 4<<20))
	r.waitFor(20*time.Second, "a request", func() bool { return r.stats().Channels >= 1 })
	freeze()
	for i := range 60 {
		go func() { // NewSession blocks if relayd does not answer
			if s, err := client.NewSession(); err == nil {
				_ = s.Start([]string{"events deaf -f --json", "wait deaf", "aliases", "send deaf --path /x"}[i%4])
			}
		}()
		go r.call("deaf", "/", "x")
	}
	r.waitFor(20*time.Second, "the spool to be used", r.degraded)
	c.stopReading(t)
	for range 20 {
		go client.SendRequest("tcpip-forward", true, ssh.Marshal(struct {
			Bind string
			Port uint32
		}{"another", 80}))
		go client.OpenChannel("session", nil)
	}
}
