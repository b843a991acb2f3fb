package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"relay"
	"relay/relaytest"
)

// startTLS starts a server over TLS on loopback. client is a configuration that trusts its certificate.
func startTLS(t *testing.T, o Options) (addr string, client *tls.Config) {
	t.Helper()
	_, addr, client = serverTLS(t, o)
	return addr, client
}

// serverTLS does the same as startTLS, and also returns the server.
func serverTLS(t *testing.T, o Options) (s *Server, addr string, client *tls.Config) {
	t.Helper()
	cert, key := relaytest.WriteCertificate(t, t.TempDir(), "relay.test", "*.hooks.test", "example.com")
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	ln := listen(t)
	s = New(o)
	done := make(chan error, 1)
	go func() {
		done <- s.ServeTLS(ln, &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{acmeProto}})
	}()
	t.Cleanup(func() { stop(t, s, done) })
	return s, ln.Addr().String(), &tls.Config{RootCAs: relaytest.CertPool(t, cert)}
}

// dialTLS connects with a server name ("" = none) and offers protocols.
func dialTLS(t *testing.T, addr string, cfg *tls.Config, name string, protocols ...string) (*tls.Conn, error) {
	t.Helper()
	cfg = cfg.Clone()
	cfg.NextProtos, cfg.ServerName = protocols, name
	if name == "" {
		cfg.InsecureSkipVerify = true
	}
	c := tls.Client(dial(t, addr), cfg)
	return c, c.HandshakeContext(t.Context())
}

func TestProtocolsByServerName(t *testing.T) {
	t.Parallel()
	addr, cfg := startTLS(t, testOptions(t, &upstream{}))
	for _, tt := range []struct {
		name    string
		offer   []string
		want    string
		refused bool
	}{
		{"relay.test", []string{"h2", "http/1.1"}, "h2", false},
		{"RELAY.test", []string{"h2", "http/1.1"}, "h2", false},
		{"relay.test", []string{"http/1.1"}, "http/1.1", false},
		{"relay.test", nil, "", false},
		{"shop.hooks.test", []string{"h2", "http/1.1"}, "http/1.1", false},
		{"nobody.hooks.test", []string{"h2", "http/1.1"}, "http/1.1", false},
		{"shop.hooks.test", nil, "", false},
		{"shop.hooks.test", []string{"h2"}, "", true},
		{"example.com", []string{"h2", "http/1.1"}, "http/1.1", false},
		{"", []string{"h2", "http/1.1"}, "http/1.1", false},
		{"shop.hooks.test", []string{acmeProto}, acmeProto, false},
		{"relay.test", []string{acmeProto}, acmeProto, false},
	} {
		c, err := dialTLS(t, addr, cfg, tt.name, tt.offer...)
		if (err != nil) != tt.refused {
			t.Errorf("%q %v: %v", tt.name, tt.offer, err)
			continue
		}
		if got := c.ConnectionState().NegotiatedProtocol; got != tt.want {
			t.Errorf("%q %v: got %q, want %q", tt.name, tt.offer, got, tt.want)
		}
	}
}

func TestServerNameAndHost(t *testing.T) {
	t.Parallel()
	in := make(chan bool, 20)
	u := &upstream{answer: func(_ context.Context, i *relay.Inbound) (relay.Outcome, bool) {
		in <- i.TLS
		return relay.Outcome{}, false
	}}
	addr, cfg := startTLS(t, testOptions(t, u))
	for _, tt := range []struct {
		name, host string
		status     int
	}{
		{"relay.test", "relay.test", 200},
		{"shop.hooks.test", "shop.hooks.test", 200},
		{"Shop.hooks.test", "sHop.hooks.test.:443", 200},
		{"shop.hooks.test", "relay.test", 421},
		{"relay.test", "shop.hooks.test", 421},
		{"shop.hooks.test", "other.hooks.test", 421},
		{"nobody.hooks.test", "nobody.hooks.test", 404},
		{"shop.hooks.test", "example.com", 421},
		{"relay.test", "example.com", 421},
		{"", "relay.test", 200},
		{"", "shop.hooks.test", 200},
		{"example.com", "relay.test", 200},
		{"example.com", "shop.hooks.test", 200},
	} {
		c, err := dialTLS(t, addr, cfg, tt.name, "http/1.1")
		if err != nil {
			t.Errorf("%q: %v", tt.name, err)
			continue
		}
		send(t, c, "GET / HTTP/1.1\r\nHost: "+tt.host+"\r\nConnection: close\r\n\r\n")
		resp, body := parse(t, rest(t, c), "GET")
		if resp.StatusCode != tt.status {
			t.Errorf("%q and %q: got %d %s", tt.name, tt.host, resp.StatusCode, body)
		}
		if tt.status == 421 && resp.Header.Get("Relay-Error") != "host-unknown" {
			t.Errorf("%q and %q: got %v", tt.name, tt.host, resp.Header)
		}
		if tt.status == 200 && tt.host == "relay.test" && body != "base GET / tls=true" {
			t.Errorf("%q: got %s", tt.name, body)
		}
	}
	for range len(in) {
		if !<-in {
			t.Error("a request over TLS was not marked as such")
		}
	}
}

func TestHTTP2OnTheBaseHost(t *testing.T) {
	t.Parallel()
	addr, cfg := startTLS(t, testOptions(t, &upstream{}))
	cfg.ServerName = "relay.test"
	tr := &http.Transport{TLSClientConfig: cfg, ForceAttemptHTTP2: true}
	defer tr.CloseIdleConnections()
	for host, want := range map[string]int{"relay.test": 200, "shop.hooks.test": 421, "example.com": 421} {
		req, err := http.NewRequestWithContext(t.Context(), "POST", "https://"+addr+"/", strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != want || resp.ProtoMajor != 2 {
			t.Errorf("%s: got %d %s", host, resp.StatusCode, b)
		}
	}
}

// TestAliasOverTLS: requests pass through TLS unchanged. An aborted response ends without close_notify, and a
// complete one with it.
func TestAliasOverTLS(t *testing.T) {
	t.Parallel()
	u := &upstream{answer: func(_ context.Context, in *relay.Inbound) (relay.Outcome, bool) {
		if !bytes.Contains(in.Head, []byte("/abort")) {
			return relay.Outcome{}, false
		}
		_, _ = io.WriteString(in.Caller, "HTTP/1.1 200 OK\r\n\r\nuntil close")
		in.Caller.Abort()
		return relay.Outcome{}, true
	}}
	addr, cfg := startTLS(t, testOptions(t, u))
	c, err := dialTLS(t, addr, cfg, "shop.hooks.test", "http/1.1")
	if err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(c)
	send(t, c, hello+hello)
	for range 2 {
		if _, body := readAnswer(t, r, "POST"); body != hello {
			t.Errorf("got %q", body)
		}
	}
	send(t, c, "GET /abort HTTP/1.1\r\nHost: shop.hooks.test\r\n\r\n")
	if got, err := io.ReadAll(r); err == nil {
		t.Errorf("a broken transfer ended in order: %q", got)
	}
	c, err = dialTLS(t, addr, cfg, "shop.hooks.test", "http/1.1")
	if err != nil {
		t.Fatal(err)
	}
	send(t, c, "GET / HTTP/1.0\r\nHost: shop.hooks.test\r\n\r\n")
	// rest fails the test if the connection ends without close_notify.
	if got := rest(t, c); !strings.HasPrefix(got, "HTTP/1.1 200 OK\r\n") {
		t.Errorf("got %q", got)
	}
}

// TestRejectByServerName: a malformed head over TLS is stored for the alias in the server name of the
// connection.
func TestRejectByServerName(t *testing.T) {
	t.Parallel()
	u := &upstream{}
	addr, cfg := startTLS(t, testOptions(t, u))
	c, err := dialTLS(t, addr, cfg, "shop.hooks.test", "http/1.1")
	if err != nil {
		t.Fatal(err)
	}
	send(t, c, "nonsense\r\n\r\n")
	checkProblem(t, rest(t, c), 400, "request-malformed")
	until(t, func() bool { return len(u.rejections()) > 0 }) // the request is stored after the answer
	if kept := u.rejections(); len(kept) != 1 || kept[0].alias != "shop" {
		t.Errorf("got %v", kept)
	}
}

func TestPlainHTTPOnTheTLSPort(t *testing.T) {
	t.Parallel()
	addr, _ := startTLS(t, testOptions(t, &upstream{}))
	checkProblem(t, say(t, addr, "GET / HTTP/1.1\r\nHost: relay.test\r\n\r\n"), 400, "request-malformed")
	if got := say(t, addr, "HEAD / HTTP/1.1\r\nHost: relay.test\r\n\r\n"); !strings.HasSuffix(got, "\r\n\r\n") {
		t.Errorf("a HEAD request got a body: %q", got)
	}
}

func TestSilentHandshake(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, ln := New(testOptions(t, &upstream{})), newHandoff()
		done := make(chan error, 1)
		go func() { done <- s.ServeTLS(ln, &tls.Config{}) }()
		mine, theirs := net.Pipe()
		ln.deliver(theirs, nil)
		begun := time.Now()
		if got, took := rest(t, mine), time.Since(begun); got != "" || took != 10*time.Second {
			t.Errorf("got %q after %v", got, took)
		}
		stop(t, s, done)
	})
}
