package server

import (
	"bufio"
	"context"
	"io"
	"math"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"relay"
	"relay/admission"
)

func TestDefaultBounds(t *testing.T) {
	t.Parallel()
	// The keys of the map are limits of open files. An eighth of the possible connections is reserved for SSH.
	for files, want := range map[int]int{
		0: 20000, 256: 112, 1000: 438, 1024: 448, 4096: 3136, 20000: 17052, 1 << 20: 20000,
	} {
		if got := httpLimits(0, 0, admission.NewLimiter(files).MostOfOne()).Total; got != want {
			t.Errorf("%d files: got %d connections, want %d", files, got, want)
		}
	}
	for _, tt := range []struct{ most, mostFrom, want, wantFrom int }{
		{-1, -1, 0, 0},
		{-1, 0, 0, 5000},
		{10, 0, 10, 10},
		{3584, 0, 3584, 2000},
		{10000, 0, 10000, 2500},
		{100, 3, 100, 3},
		{100, -1, 100, 0},
	} {
		if c := httpLimits(tt.most, tt.mostFrom, math.MaxInt); c.Total != tt.want || c.PerSource != tt.wantFrom {
			t.Errorf("%d, %d: got %d, %d, want %d, %d", tt.most, tt.mostFrom, c.Total, c.PerSource, tt.want, tt.wantFrom)
		}
	}
}

// TestLoopbackIsNoSource: the limit per source does not apply to connections from loopback.
func TestLoopbackIsNoSource(t *testing.T) {
	t.Parallel()
	for from, want := range map[string]string{
		"127.0.0.1": "", "127.9.9.9": "", "::1": "", "::ffff:127.0.0.1": "", "203.0.113.9": admission.ReasonSource, "::ffff:203.0.113.9": admission.ReasonSource,
	} {
		o := testOptions(t, &upstream{})
		o.MaxConnsPerSource = 1
		s := New(o)
		var bound string
		for range 2 {
			nc, _ := net.Pipe()
			bound, _ = (&stallConn{Conn: nc}).acquire(s, netip.MustParseAddr(from))
		}
		if bound != want {
			t.Errorf("%s: bound %q, want %q", from, bound, want)
		}
	}
}

// waiting returns the number of idle connections, which may be evicted.
func waiting(s *Server) int { return s.front.Counts()[admission.Idle] }

// kept connects and makes one request; the returned connection is idle.
func kept(t *testing.T, s *Server, addr string) (net.Conn, *bufio.Reader) {
	t.Helper()
	before := waiting(s)
	c := dial(t, addr)
	r := bufio.NewReader(c)
	send(t, c, hello)
	readAnswer(t, r, "POST")
	until(t, func() bool { return waiting(s) == before+1 })
	return c, r
}

func TestLongestIdleIsEvicted(t *testing.T) {
	t.Parallel()
	o := testOptions(t, &upstream{})
	o.MaxConns = 3
	s, addr := start(t, o)
	first, r1 := kept(t, s, addr)
	second, r2 := kept(t, s, addr)
	_, r3 := kept(t, s, addr)
	// After this request on the first connection, the second connection has been idle longest.
	send(t, first, hello)
	readAnswer(t, r1, "POST")
	until(t, func() bool { return waiting(s) == 3 })
	if _, body := parse(t, say(t, addr, "GET / HTTP/1.0\r\nHost: shop.hooks.test\r\n\r\n"), "GET"); body == "" {
		t.Error("no answer to the newest")
	}
	if got := rest(t, r2); got != "" {
		t.Errorf("the longest idle one got %q", got)
	}
	_ = second.Close()
	send(t, first, hello)
	readAnswer(t, r1, "POST")
	if r3.Buffered() != 0 {
		t.Error("the third one got something")
	}
	if n := count(t, s.met.evicted[admission.ReasonTotal]); n != 1 {
		t.Errorf("%v shed", n)
	}
}

// TestSilentConnectionsAreEvicted: with a limit of 10 connections, 20 requests are answered one after
// another, although 50 connections that send nothing were opened before.
func TestSilentConnectionsAreEvicted(t *testing.T) {
	t.Parallel()
	o := testOptions(t, &upstream{})
	o.MaxConns = 10
	_, addr := start(t, o)
	for range 50 {
		dial(t, addr)
	}
	for range 20 {
		c := dial(t, addr)
		send(t, c, hello)
		readAnswer(t, bufio.NewReader(c), "POST")
	}
}

// TestIdleBaseConnectionsAreEvicted: with a limit of two connections, further requests to the base site are
// answered beside an open stream, because idle connections are evicted.
func TestIdleBaseConnectionsAreEvicted(t *testing.T) {
	t.Parallel()
	for _, proto := range []string{"h2", "http/1.1"} {
		t.Run(proto, func(t *testing.T) {
			t.Parallel()
			o := testOptions(t, &upstream{})
			o.MaxConns = 2
			o.Base = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, "data")
				_ = http.NewResponseController(w).Flush()
				if r.URL.Path == "/stream" {
					<-r.Context().Done()
				}
			})
			s, addr, cfg := serverTLS(t, o)
			get := func(path string) *http.Response {
				c := cfg.Clone()
				c.ServerName = "relay.test"
				tr := &http.Transport{TLSClientConfig: c, ForceAttemptHTTP2: proto == "h2"}
				t.Cleanup(tr.CloseIdleConnections)
				tr.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
					return new(net.Dialer).DialContext(ctx, "tcp", addr)
				}
				req, err := http.NewRequestWithContext(t.Context(), "GET", "https://relay.test"+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := tr.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				return resp
			}
			stream := get("/stream")
			defer func() { _ = stream.Body.Close() }()
			// Each request has its own connection, which stays open.
			for range 5 {
				resp := get("/")
				if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "data" {
					t.Fatalf("got %q, %v", b, err)
				}
				_ = resp.Body.Close()
				until(t, func() bool { return waiting(s) == 1 })
			}
			if _, err := io.ReadFull(stream.Body, make([]byte, 4)); err != nil {
				t.Errorf("stream: %v", err)
			}
		})
	}
}

// fromAddr is a connection that reports addr as its remote address.
type fromAddr struct {
	net.Conn
	addr string
}

func (f fromAddr) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(f.addr))
}

func TestBoundOfASource(t *testing.T) {
	t.Parallel()
	u, begun, release := blocking()
	o := testOptions(t, u)
	o.MaxConnsPerSource = 2
	s, ln, done := New(o), newHandoff(), make(chan error, 1)
	go func() { done <- s.Serve(ln) }()
	defer stop(t, s, done)
	var all []net.Conn
	from := func(addr string) net.Conn {
		mine, theirs := net.Pipe()
		all = append(all, mine)
		_ = mine.SetDeadline(time.Now().Add(patience))
		ln.deliver(fromAddr{theirs, addr}, nil)
		return mine
	}
	for _, addr := range []string{"[2001:db8::1]:1", "[2001:db8::2:0:0:2]:1"} {
		send(t, from(addr), slow)
		<-begun
	}
	refused := from("[2001:db8::3]:1")
	// A write to a pipe waits until the server reads, so it runs in a goroutine.
	go func() { _, _ = io.WriteString(refused, slow) }()
	checkProblem(t, rest(t, refused), 503, "overloaded", "Retry-After: 5")
	for _, addr := range []string{"[2001:db8:0:1::3]:1", "192.0.2.1:1", "192.0.2.2:1", "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"} {
		send(t, from(addr), slow)
		<-begun
	}
	// The second connection from 192.0.2.1 sends nothing.
	mine := from("192.0.2.1:2")
	until(t, func() bool { return waiting(s) == 1 })
	// This evicts the silent connection and takes its slot.
	third := from("192.0.2.1:3")
	if got := rest(t, mine); got != "" {
		t.Errorf("silent one: got %q", got)
	}
	send(t, third, slow)
	<-begun
	if n := count(t, s.met.refused[admission.ReasonSource]); n != 1 {
		t.Errorf("%v refused", n)
	}
	for _, c := range all {
		_ = c.Close()
	}
	close(release)
}

// TestSlotsAreReleased: when 60 connections have ended, no slot and no source is in use. The connections send
// nothing, half a head, or one of four requests.
func TestSlotsAreReleased(t *testing.T) {
	t.Parallel()
	u := &upstream{answer: func(_ context.Context, in *relay.Inbound) (relay.Outcome, bool) {
		if strings.HasPrefix(string(in.Head), "GET /abort") {
			in.Caller.Abort()
			return relay.Outcome{}, true
		}
		return relay.Outcome{}, false
	}}
	o := testOptions(t, u)
	o.Log = nil
	s, addr := start(t, o)
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			c := dial(t, addr)
			_, _ = io.WriteString(c, []string{
				"", "GET", hello, "GET /abort HTTP/1.1\r\nHost: shop.hooks.test\r\n\r\n", baseGet, "nonsense\r\n\r\n",
			}[i%6])
			if i%6 > 1 {
				_, _ = c.Read(make([]byte, 1))
			}
			_ = c.Close()
		})
	}
	wg.Wait()
	until(t, func() bool {
		now := s.Stats()
		return now.Connections == 0 && now.Base == 0
	})
	if n := s.front.Sources(); waiting(s) != 0 || n != 0 {
		t.Errorf("%d in line, %d sources", waiting(s), n)
	}
}

// TestHandshakesThatNeverBeginAreEvicted: with a limit of four connections, a TLS request is answered beside 20
// connections that send nothing.
func TestHandshakesThatNeverBeginAreEvicted(t *testing.T) {
	t.Parallel()
	o := testOptions(t, &upstream{})
	o.MaxConns = 4
	addr, cfg := startTLS(t, o)
	for range 20 {
		dial(t, addr)
	}
	c, err := dialTLS(t, addr, cfg, "shop.hooks.test")
	if err != nil {
		t.Fatal(err)
	}
	send(t, c, hello)
	readAnswer(t, bufio.NewReader(c), "POST")
}
