package server

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"relay"
	"relay/relaytest"
	"relay/sockets"
)

// proxied starts a server behind Proxies that trust 127.0.0.2 and 127.0.0.3, with at most one connection per
// source.
func proxied(t *testing.T, u *upstream, timeout time.Duration) (p *Proxies, s *Server, addr string, reg *prometheus.Registry) {
	t.Helper()
	reg = prometheus.NewRegistry()
	p = NewProxies(ProxyOptions{Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.2/31")}, Timeout: timeout, Registry: reg})
	ln := listen(t)
	o := testOptions(t, u)
	o.MaxConnsPerSource = 1
	s = New(o)
	done := make(chan error, 1)
	go func() { done <- s.Serve(p.Listener(ln, false)) }()
	t.Cleanup(func() { stop(t, s, done) })
	return p, s, ln.Addr().String(), reg
}

func dialAs(t *testing.T, source, addr string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}
	c, err := d.Dial("tcp", addr)
	if err != nil {
		if runtime.GOOS != "linux" && errors.Is(err, syscall.EADDRNOTAVAIL) {
			// Only on Linux is each address of 127.0.0.0/8 local by default.
			t.Skipf("this system has no address %s: %v", source, err)
		}
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(patience))
	t.Cleanup(func() { _ = c.Close() })
	return c
}

const proxyLine = "PROXY TCP4 203.0.113.9 192.0.2.1 52011 80\r\n"

// TestSilentProxyDoesNotBlockAccept: while 40 connections from trusted sources send nothing, other
// connections are served. A request has the source in its PROXY header, and a health check by a proxy has the
// address of the proxy.
func TestSilentProxyDoesNotBlockAccept(t *testing.T) {
	t.Parallel()
	from := make(chan netip.AddrPort, 4)
	u := &upstream{}
	u.answer = echoSource(from)
	_, s, addr, reg := proxied(t, u, time.Minute)
	for range 40 {
		dialAs(t, "127.0.0.2", addr)
	}
	c := dialAs(t, "127.0.0.2", addr)
	send(t, c, proxyLine+"GET / HTTP/1.1\r\nHost: shop.hooks.test\r\nConnection: close\r\n\r\n")
	if resp, _ := parse(t, rest(t, c), "GET"); resp.StatusCode != http.StatusOK {
		t.Errorf("status %d", resp.StatusCode)
	}
	if got := <-from; got.String() != "203.0.113.9:52011" {
		t.Errorf("the request came from %v", got)
	}
	if st := s.Stats(); st.Connections > 1 {
		t.Errorf("%+v: headers that have not come take places", st)
	}
	send(t, dialAs(t, "127.0.0.3", addr), "PROXY UNKNOWN\r\nGET / HTTP/1.1\r\nHost: shop.hooks.test\r\nConnection: close\r\n\r\n")
	if got := <-from; got.Addr().String() != "127.0.0.3" {
		t.Errorf("a health check of the proxy came from %v", got)
	}
	if n := countOf(t, reg, "relay_proxy_headers_total", headerAccepted) + countOf(t, reg, "relay_proxy_headers_total", headerLocal); n != 2 {
		t.Errorf("%v headers were counted", n)
	}
}

func echoSource(to chan netip.AddrPort) func(ctx context.Context, in *relay.Inbound) (relay.Outcome, bool) {
	return func(_ context.Context, in *relay.Inbound) (relay.Outcome, bool) {
		to <- in.From
		return relay.Outcome{}, false
	}
}

// TestProxyHeaderTimeout: a trusted peer that sends only a part of a header is disconnected, and counted.
func TestProxyHeaderTimeout(t *testing.T) {
	t.Parallel()
	_, _, addr, reg := proxied(t, &upstream{}, 50*time.Millisecond)
	c := dialAs(t, "127.0.0.2", addr)
	send(t, c, proxyLine[:20])
	if b, err := io.ReadAll(c); len(b) > 0 || err != nil && !isReset(err) {
		t.Errorf("got %q, %v", b, err)
	}
	until(t, func() bool { return countOf(t, reg, "relay_proxy_headers_total", headerLate) == 1 })
}

func TestBareConnectionFromProxy(t *testing.T) {
	t.Parallel()
	u := &upstream{}
	_, _, addr, reg := proxied(t, u, time.Minute)
	c := dialAs(t, "127.0.0.2", addr)
	send(t, c, "GET / HTTP/1.1\r\nHost: shop.hooks.test\r\n\r\n")
	if b, err := io.ReadAll(c); len(b) > 0 || err != nil && !isReset(err) {
		t.Errorf("got %q, %v", b, err)
	}
	if n := countOf(t, reg, "relay_proxy_headers_total", headerMissing); n != 1 || u.captures() > 0 {
		t.Errorf("%v missing headers were counted, %d requests came", n, u.captures())
	}
}

// TestProxyHeaderFromUntrustedSource: a PROXY header from an untrusted source is answered with 400, and
// nothing is captured.
func TestProxyHeaderFromUntrustedSource(t *testing.T) {
	t.Parallel()
	u := &upstream{}
	_, _, addr, _ := proxied(t, u, time.Minute)
	for _, header := range []string{proxyLine, headerV2(0x21, 0x11, inet4...)} {
		got := say(t, addr, header+"GET / HTTP/1.1\r\nHost: shop.hooks.test\r\n\r\n")
		if resp, _ := parse(t, got, "GET"); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%q: status %d, want 400", header, resp.StatusCode)
		}
	}
	if u.captures() > 0 {
		t.Error("a request got through behind a forged header")
	}
}

// TestTrustedAddressWithZone: an address with an IPv6 zone is trusted like the address without it.
func TestTrustedAddressWithZone(t *testing.T) {
	t.Parallel()
	trusted := []netip.Prefix{netip.MustParsePrefix("fe80::/10")}
	for from, want := range map[string]bool{"[fe80::1%eth0]:1": true, "[fe80::1]:1": true, "[2001:db8::1]:1": false} {
		if got := sockets.ContainsAddr(trusted, sockets.AddrOf(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(from))).Addr()); got != want {
			t.Errorf("%s: trusted %v", from, got)
		}
	}
}

// TestGuardedListener: a guarded listener ends connections that begin with a PROXY header, and passes on all
// other bytes.
func TestGuardedListener(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	p := NewProxies(ProxyOptions{Registry: reg})
	ln := p.Listener(listen(t), true)
	defer func() { _ = ln.Close() }()
	for text, want := range map[string]bool{
		proxyLine + "SSH-2.0-x\r\n": false, headerV2(0x21, 0x11, inet4...) + "SSH-2.0-x\r\n": false,
		"SSH-2.0-OpenSSH_9.2\r\n": true, "\r\nSSH-2.0-x\r\n": true, "P": true,
	} {
		c := dial(t, ln.Addr().String())
		send(t, c, text)
		_ = c.(*net.TCPConn).CloseWrite()
		in, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(iotest.OneByteReader(in))
		if want && (string(got) != text || err != nil) || !want && !errors.Is(err, errUntrustedHeader) {
			t.Errorf("%q: read %q, %v", text, got, err)
		}
		_ = in.Close()
	}
	if n := countOf(t, reg, "relay_proxy_headers_total", headerUntrusted); n != 2 {
		t.Errorf("%v forged headers were counted", n)
	}
}

// TestProxyListenerCloses: Close ends a waiting Accept and all connections without a complete header;
// TestMain checks that no goroutine is left.
func TestProxyListenerCloses(t *testing.T) {
	t.Parallel()
	p := NewProxies(ProxyOptions{Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	raw := listen(t)
	ln := p.Listener(raw, false)
	waiting := make(chan error, 1)
	go func() {
		_, err := ln.Accept()
		waiting <- err
	}()
	// This connection sends nothing.
	dial(t, raw.Addr().String())
	send(t, dial(t, raw.Addr().String()), proxyLine[:9])
	_ = ln.Close()
	_ = ln.Close()
	if err := <-waiting; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept: %v", err)
	}
}

// countOf returns the value of the counter called name whose label has the value label.
func countOf(t *testing.T, reg *prometheus.Registry, name, label string) float64 {
	t.Helper()
	all, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && m.GetLabel()[0].GetValue() == label {
				return m.GetCounter().GetValue()
			}
		}
	}
	t.Errorf("there is no %s of %s", name, label)
	return 0
}

// TestBoundsCountTheTrueSource: the limit per source counts the source in the PROXY header: a second
// connection of a source gets 503, and one of another source is served.
func TestBoundsCountTheTrueSource(t *testing.T) {
	t.Parallel()
	hold, from := make(chan struct{}), make(chan netip.AddrPort, 4)
	u := &upstream{}
	u.answer = func(_ context.Context, in *relay.Inbound) (relay.Outcome, bool) {
		from <- in.From
		<-hold
		return relay.Outcome{}, false
	}
	_, _, addr, _ := proxied(t, u, time.Minute)
	const request = "GET / HTTP/1.1\r\nHost: shop.hooks.test\r\nConnection: close\r\n\r\n"
	first := dialAs(t, "127.0.0.2", addr)
	send(t, first, proxyLine+request)
	// The first connection is now busy and cannot be evicted.
	<-from
	second := dialAs(t, "127.0.0.2", addr)
	send(t, second, proxyLine+request)
	if resp, _ := parse(t, rest(t, second), "GET"); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a second connection of one source: status %d, want 503", resp.StatusCode)
	}
	other := dialAs(t, "127.0.0.2", addr)
	send(t, other, strings.Replace(proxyLine, "203.0.113.9", "203.0.113.10", 1)+request)
	if got := <-from; got.Addr().String() != "203.0.113.10" {
		t.Errorf("another source came from %v", got)
	}
	close(hold)
	for _, c := range []net.Conn{first, other} {
		if resp, _ := parse(t, rest(t, c), "GET"); resp.StatusCode != http.StatusOK {
			t.Errorf("status %d", resp.StatusCode)
		}
	}
}

func TestProxyHeaderBeforeTLS(t *testing.T) {
	t.Parallel()
	cert, key := relaytest.WriteCertificate(t, t.TempDir(), "*.hooks.test")
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	from := make(chan netip.AddrPort, 1)
	u := &upstream{answer: echoSource(from)}
	p := NewProxies(ProxyOptions{Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}})
	ln, s := listen(t), New(testOptions(t, u))
	done := make(chan error, 1)
	go func() { done <- s.ServeTLS(p.Listener(ln, false), &tls.Config{Certificates: []tls.Certificate{pair}}) }()
	t.Cleanup(func() { stop(t, s, done) })
	raw := dialAs(t, "127.0.0.2", ln.Addr().String())
	send(t, raw, headerV2(0x21, 0x21, inet6...))
	c := tls.Client(raw, &tls.Config{ServerName: "shop.hooks.test", InsecureSkipVerify: true})
	send(t, c, "GET / HTTP/1.1\r\nHost: shop.hooks.test\r\nConnection: close\r\n\r\n")
	if resp, _ := parse(t, rest(t, c), "GET"); resp.StatusCode != http.StatusOK {
		t.Errorf("status %d", resp.StatusCode)
	}
	if got := <-from; got.String() != "[2001:db8::7]:52011" {
		t.Errorf("the request came from %v", got)
	}
}
