package conformance

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"relay/relaytest"
)

const overTLS = "shop.relay.test"

// newFilesRig starts a relayd with certificate files, aliases below relay.test on its TLS port and its base
// site on the plain port. The target is behind the alias shop.
func newFilesRig(t *testing.T, extra ...string) (*tlsRelay, *target) {
	t.Helper()
	r := newTLSRig(t, "RELAY_TLS=files")
	cert, key := relaytest.WriteCertificate(t, r.dir, "relay.test", "*.relay.test")
	r.extra = append(r.extra, "RELAY_TLS_CERT="+cert, "RELAY_TLS_KEY="+key, "RELAY_BASE_URL=http://"+strings.Replace(r.http, "127.0.0.1", "localhost", 1))
	r.extra = append(r.extra, extra...)
	r.roots = relaytest.CertPool(t, cert)
	r.start()
	r.token, _ = r.newToken(r.key)
	tg := newTarget(t)
	r.tunnel("shop", tg.addr)
	return r, tg
}

// shop connects to the alias and records the received bytes as they are on the wire of TLS 1.2, which shows
// the type of each record, such as an alert.
func (r *tlsRelay) shop() (*tls.Conn, *tapped) {
	r.t.Helper()
	c, err := net.Dial("tcp", r.https)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(60 * time.Second))
	tap := &tapped{Conn: c}
	return tls.Client(tap, &tls.Config{ServerName: overTLS, RootCAs: r.roots, MaxVersion: tls.VersionTLS12}), tap
}

// tapped records the bytes that were read.
type tapped struct {
	net.Conn
	mu  sync.Mutex
	got []byte
}

func (c *tapped) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got = append(c.got, p[:n]...)
	return n, err
}

// notified reports whether the last record is an alert, such as close_notify.
func (c *tapped) notified() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := byte(0)
	for p := c.got; len(p) >= 5; {
		size := 5 + int(p[3])<<8 + int(p[4])
		if size > len(p) {
			return false
		}
		last, p = p[0], p[size:]
	}
	return last == 21
}

// TestWireOverTLS: every byte is the same in both directions. Each side can tell an orderly end of the
// connection (close_notify) from a connection that broke off.
func TestWireOverTLS(t *testing.T) {
	t.Parallel()
	r, tg := newFilesRig(t)
	t.Run("bytes", func(t *testing.T) { r.checkBytes(t, tg) })
	t.Run("ends", func(t *testing.T) { r.checkEnds(t, tg) })
	t.Run("callers", func(t *testing.T) { r.checkCallers(t, tg) })
	t.Run("hello", r.checkHello)
}

func (r *tlsRelay) checkBytes(t *testing.T, tg *target) {
	const host = "Host: " + overTLS + "\r\n"
	requests := []string{
		"POST /a HTTP/1.1\r\n" + host + "X-b:  two  \r\nx-B:\tone\r\nContent-Length: 002\r\n\r\nhi",
		"GET /a%2Fb//c/../d?b=2&a=1;x=%zz HTTP/1.1\r\nhOST: Shop.Relay.TEST.:443\r\nAccept: \r\n\r\n",
		"PATCH / HTTP/1.1\r\n" + host + "Transfer-Encoding: Chunked\r\n\r\n005;a=\"b\"\r\nhello\r\nA\r\n0123456789\r\n0;q\r\nX-T: 1\r\nx-t:2\r\n\r\n",
		"GET https://" + overTLS + "/abs?x HTTP/1.1\r\n" + host + "X-Bin: caf\xe9\x80\xff\r\n\r\n",
		"PUT /big HTTP/1.1\r\n" + host + "Content-Length: 1000000\r\n\r\n" + strings.Repeat("0123456789", 100000),
	}
	for _, response := range []string{
		"HTTP/1.1 200 Fine by  me\r\nx-A: 1\r\nX-a:2\r\nX-A:  3 \r\nContent-Length: 4\r\n\r\nbody",
		"HTTP/1.1 103 Early\r\nLink: a\r\n\r\nHTTP/1.1 299 \r\nTransfer-Encoding: chunked\r\n\r\n003;x\r\nabc\r\n0\r\nT: 1\r\n\r\n",
	} {
		tg.say(response, false)
		c, _ := r.shop()
		for _, request := range requests {
			go func() { _, _ = io.WriteString(c, request) }()
			got := make([]byte, len(response))
			if n, err := io.ReadFull(c, got); err != nil || string(got) != response {
				t.Fatalf("answer to %.40q: %q, %v, want %q", request, got[:n], err, response)
			}
			if sent := tg.next(); string(sent) != request {
				t.Errorf("the local server got %.200q, want %.200q", sent, request)
			}
			e := r.latest("shop")
			if raw := r.must(200, "GET", "/events/"+e.ID+"/request.raw", nil); string(raw) != request {
				t.Errorf("request.raw is %.200q, want %.200q", raw, request)
			}
		}
	}
}

// checkEnds: a client that reads to the end of the TLS connection knows whether the answer is complete.
func (r *tlsRelay) checkEnds(t *testing.T, tg *target) {
	const head = "HTTP/1.1 200 OK\r\n"
	for say, whole := range map[string]bool{
		head + "\r\nhello": true,
		head + "Connection: close\r\nContent-Length: 5\r\n\r\nhello":        true,
		"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello":                 true,
		head + "Content-Length: 50\r\n\r\nhello":                            false,
		head + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n":           false,
		head + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX: 1":  false,
		head + "Content-Length: 3000000\r\n\r\n" + strings.Repeat("z", 2e6): false,
	} {
		tg.say(say, true)
		c, tap := r.shop()
		fmt.Fprintf(c, "GET /end HTTP/1.1\r\nHost: %s\r\n\r\n", overTLS)
		got, err := io.ReadAll(c)
		tg.next()
		if (err == nil) != whole || tap.notified() != whole || whole && string(got) != say {
			t.Errorf("%.80q: got %d bytes, %v, close_notify %v", say, len(got), err, tap.notified())
		}
		state := "truncated"
		if whole {
			state = "complete"
		}
		if e := r.latest("shop"); e.Response == nil || e.Response.State != state {
			t.Errorf("%.80q: the response is recorded as %+v, want %s", say, e.Response, state)
		}
	}
}

// checkCallers: if a caller ends the connection inside a body, with or without close_notify, its request is
// recorded as incomplete. If a caller ends only its sending side after the body, it gets the answer.
func (r *tlsRelay) checkCallers(t *testing.T, tg *target) {
	for name, leave := range map[string]func(c *tls.Conn, tap *tapped){
		"notify": func(c *tls.Conn, _ *tapped) { _ = c.CloseWrite() },
		"fin":    func(_ *tls.Conn, tap *tapped) { _ = tap.Conn.(*net.TCPConn).CloseWrite() },
		"junk":   func(_ *tls.Conn, tap *tapped) { _, _ = tap.Write([]byte{23, 3, 3, 0, 1, 0}) },
	} {
		begun, ended := make(chan struct{}), make(chan struct{})
		tg.run(func(_ net.Conn, br *bufio.Reader) {
			_, _ = readHead(br)
			close(begun)
			_, _ = io.Copy(io.Discard, br)
			close(ended)
		})
		c, tap := r.shop()
		fmt.Fprintf(c, "POST /%s HTTP/1.1\r\nHost: %s\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n", name, overTLS)
		<-begun
		leave(c, tap)
		<-ended
		r.waitFor(10*time.Second, "the event", func() bool { return r.latest("shop").Path == "/"+name })
		if e := r.latest("shop"); e.State != "incomplete" || e.Replayable || e.Request.Body.State != "aborted" {
			t.Errorf("%s: %+v", name, e)
		}
		if name == "junk" {
			continue
		}
		got := make(chan struct{})
		tg.run(func(c net.Conn, br *bufio.Reader) {
			_, _ = readRaw(br)
			<-got
			_, _ = io.WriteString(c, ok)
		})
		c, tap = r.shop()
		fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: %s\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi", overTLS)
		leave(c, tap)
		close(got)
		if answer, err := io.ReadAll(c); string(answer) != ok || err != nil {
			t.Errorf("%s behind the request: %q, %v", name, answer, err)
		}
	}
}

// checkHello checks the TLS versions and protocols that may be negotiated, and the names that may
// share a connection.
func (r *tlsRelay) checkHello(t *testing.T) {
	for version, fine := range map[uint16]bool{tls.VersionTLS10: false, tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		c, err := tls.Dial("tcp", r.https, &tls.Config{ServerName: overTLS, RootCAs: r.roots, MinVersion: version, MaxVersion: version})
		if (err == nil) != fine {
			t.Errorf("version %x: %v", version, err)
		}
		if err == nil {
			c.Close()
		}
	}
	if c, err := r.hand(overTLS, "h2"); err == nil {
		c.Close()
		t.Error("an alias speaks h2")
	}
	const nobody = "nobody.relay.test"
	for _, tt := range []struct{ name, host, status string }{
		{"NOBODY.Relay.Test", "noBody.relay.test.:443", "404"},
		{"", nobody, "404"},
		{overTLS, nobody, "421"},
		{nobody, overTLS, "421"},
		{overTLS, "localhost", "421"},
		{"localhost", overTLS, "421"},
		{overTLS, "a." + overTLS, "421"},
		{"a." + overTLS, "a." + overTLS, "421"},
		{overTLS, "elsewhere.test", "421"},
		{strings.Repeat("a", 280) + ".relay.test", overTLS, "421"},
		{overTLS, "", "400"},
		{overTLS, "a@" + overTLS, "400"},
	} {
		c, err := tls.Dial("tcp", r.https, &tls.Config{ServerName: tt.name, InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
		if err != nil {
			t.Errorf("%.40q: %v", tt.name, err)
			continue
		}
		_ = c.SetDeadline(time.Now().Add(30 * time.Second))
		if got := ask(t, c, "GET", tt.host, "/"); !strings.HasPrefix(got, "HTTP/1.1 "+tt.status+" ") {
			t.Errorf("server name %.40q, Host %q: %.60q, want %s", tt.name, tt.host, got, tt.status)
		}
	}
}
