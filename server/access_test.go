package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/admission"
	"relay/sockets"
)

// told is an access log: a channel from which the test reads the entries.
type told chan Access

// next returns the next request of the access log.
func (l told) next(t *testing.T) Access {
	t.Helper()
	select {
	case a := <-l:
		return a
	case <-time.After(patience):
		t.Fatal("nobody was told of the request")
	}
	return Access{}
}

// TestAccess: each request to an alias host or an unknown host is logged once, with the status that its
// caller got. Requests to the base site and health checks are not logged.
func TestAccess(t *testing.T) {
	t.Parallel()
	event := testID
	answer := func(_ context.Context, in *relay.Inbound) (relay.Outcome, bool) {
		_, path := methodAndPath(in.Head)
		switch path {
		case "/queued":
			return relay.Outcome{Answer: &relay.Answer{Event: event, Status: 207}}, true
		case "/full":
			return relay.Outcome{Answer: &relay.Answer{Error: relay.Errorf(relay.CodeStorageFull, "full")}}, true
		case "/panic":
			panic("a fault of the engine")
		case "/delivered":
			_, _ = io.WriteString(in.Caller, "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")
			return relay.Outcome{Status: 201, Event: event}, true
		case "/gone":
			// This waits until the caller has left, so that the answer reaches nobody.
			for in.Caller.Presence() != relay.CallerReset {
				time.Sleep(time.Millisecond)
			}
			return relay.Outcome{Answer: &relay.Answer{Error: relay.Errorf(relay.CodeLocalTimeout, "slow")}}, true
		}
		return relay.Outcome{}, false
	}
	long := strings.Repeat("a", 20<<10)
	for name, tc := range map[string]struct {
		request string
		reset   bool // the caller resets the connection after the request
		setUp   func(s *Server)
		want    string // alias, method, path, status, code; "" = no line is logged
		event   bool
	}{
		"delivered":           {"GET /delivered?secret HTTP/1.1\r\nHost: Shop.Hooks.Test\r\n\r\n", false, nil, "shop GET /delivered 201 ", true},
		"queued":              {"POST /queued HTTP/1.1\r\nHost: shop.hooks.test\r\nContent-Length: 0\r\n\r\n", false, nil, "shop POST /queued 207 ", true},
		"relay-made error":    {"GET /full HTTP/1.1\r\nHost: shop.hooks.test\r\n\r\n", false, nil, "shop GET /full 503 storage-full", false},
		"caller gone":         {"GET /gone HTTP/1.1\r\nHost: shop.hooks.test\r\n\r\n", true, nil, "shop GET /gone 0 local-timeout", false},
		"gone in the head":    {"GET /head HTTP/1.1\r\nHost: shop.hooks.test\r\nX", true, nil, "shop GET /head 0 ", false},
		"panic":               {"GET /panic HTTP/1.1\r\nHost: shop.hooks.test\r\n\r\n", false, nil, "shop GET /panic 0 ", false},
		"no such alias":       {"GET /scan HTTP/1.1\r\nHost: nobody.hooks.test\r\n\r\n", false, nil, "nobody GET /scan 404 alias-not-found", false},
		"malformed":           {"GET /a b HTTP/1.1\r\nHost: shop.hooks.test\r\n\r\n", false, nil, "shop GET /a 400 request-malformed", false},
		"malformed, no Host":  {"what\r\n\r\n", false, nil, " what  400 request-malformed", false},
		"bad Host":            {"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", false, nil, " GET / 400 request-malformed", false},
		"target too long":     {"GET /" + long + " HTTP/1.1\r\nHost: shop.hooks.test\r\n\r\n", false, nil, "shop GET /" + long[:maxAccessPath-1] + " 414 target-too-long", false},
		"head too large":      {"GET /h HTTP/1.1\r\nHost: shop.hooks.test\r\nX: " + strings.Repeat(long, 7) + "\r\n\r\n", false, nil, "shop GET /h 431 head-too-large", false},
		"other host":          {"GET / HTTP/1.1\r\nHost: example.com\r\n\r\n", false, nil, " GET / 421 host-unknown", false},
		"deeper":              {"GET / HTTP/1.1\r\nHost: a.shop.hooks.test\r\n\r\n", false, nil, " GET / 421 host-unknown", false},
		"head too slow":       {"GET /slow HTTP/1.1\r\nHost: shop.hooks.test\r\n", false, func(s *Server) { s.opt.HeadTimeout = time.Millisecond }, "shop GET /slow 408 request-timeout", false},
		"starting":            {"GET / HTTP/1.1\r\nHost: shop.hooks.test\r\n\r\n", false, func(s *Server) { s.Starting(true) }, "shop GET / 503 store-unavailable", false},
		"stopping":            {"GET / HTTP/1.1\r\nHost: shop.hooks.test\r\n\r\n", false, func(s *Server) { s.stopping.Store(true); close(s.drained) }, "shop GET / 503 stopping", false},
		"overloaded":          {"GET /o HTTP/1.1\r\nHost: shop.hooks.test\r\n\r\n", false, func(s *Server) { occupy(s); s.rejectReadTimeout = patience }, "shop GET /o 503 overloaded", false},
		"overloaded, at once": {"", false, func(s *Server) { occupy(s); s.rejectSlots = make(chan struct{}) }, "   503 overloaded", false},
		"challenge":           {"GET /.well-known/acme-challenge/x HTTP/1.1\r\nHost: shop.hooks.test\r\n\r\n", false, nil, "shop GET /.well-known/acme-challenge/x 200 ", false},
		"base":                {"GET / HTTP/1.1\r\nHost: relay.test\r\nConnection: close\r\n\r\n", false, nil, "", false},
		"base, malformed":     {"GET /%zz HTTP/1.1\r\nHost: relay.test\r\n\r\n", false, nil, "", false},
		"health":              {"GET /healthz HTTP/1.1\r\nHost: 10.0.0.7\r\nConnection: close\r\n\r\n", false, nil, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := make(told, 8)
			o := testOptions(t, &upstream{answer: answer})
			o.Access = func(a Access) { log <- a }
			o.Challenge = func(string, string) (string, bool) { return "yes", true }
			s := New(o)
			if tc.setUp != nil {
				tc.setUp(s)
			}
			ln, done := listen(t), make(chan error, 1)
			go func() { done <- s.Serve(ln) }()
			c := dial(t, ln.Addr().String())
			send(t, c, tc.request)
			if tc.reset {
				sockets.SetLinger(c, 0)
				_ = c.Close()
			} else {
				_, _ = io.ReadAll(c)
			}
			if tc.want != "" {
				got := log.next(t)
				line := fmt.Sprintf("%s %s %s %d %s", got.Alias, got.Method, got.Path, got.Status, got.Code)
				if line != tc.want || (got.Event == event) != tc.event || !got.From.IsLoopback() || got.TLS || got.Arrived.IsZero() {
					t.Errorf("told %+v: %q, want %q", got, line, tc.want)
				}
			}
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			_ = s.Shutdown(ctx)
			<-done
			if len(log) > 0 {
				t.Errorf("also told of %+v", <-log)
			}
		})
	}
}

// TestAccessOverTLS: requests over TLS are logged with the alias of their Host line or, without a Host line,
// of the server name.
func TestAccessOverTLS(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ server, request, want string }{
		"delivered":   {"shop.hooks.test", "GET /x HTTP/1.1\r\nHost: shop.hooks.test\r\nConnection: close\r\n\r\n", "shop /x 0"},
		"no Host":     {"shop.hooks.test", "GET /x HTTP/1.1\r\n\r\n", "shop /x 400"},
		"misdirected": {"shop.hooks.test", "GET /x HTTP/1.1\r\nHost: other.hooks.test\r\n\r\n", "other /x 421"},
		"by the base": {"relay.test", "GET /x HTTP/1.1\r\nHost: shop.hooks.test\r\nConnection: close\r\n\r\n", "shop /x 421"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := make(told, 8)
			o := testOptions(t, &upstream{})
			o.Access = func(a Access) { log <- a }
			addr, cfg := startTLS(t, o)
			c, err := dialTLS(t, addr, cfg, tc.server)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(c, tc.request)
			_, _ = bufio.NewReader(c).ReadString(0)
			got := log.next(t)
			if line := fmt.Sprintf("%s %s %d", got.Alias, got.Path, got.Status); line != tc.want || !got.TLS {
				t.Errorf("told %+v, want %q over TLS", got, tc.want)
			}
		})
	}
}

func TestAccessPath(t *testing.T) {
	t.Parallel()
	for head, want := range map[string]string{
		"GET /a/b?c=d HTTP/1.1\r\n":               "/a/b",
		"GET http://u:p@h.test/a?q HTTP/1.1\r\n":  "/a",
		"GET http://h.test HTTP/1.1\r\n":          "/",
		"GET /?to=https://x.test/y HTTP/1.1\r\n":  "/",
		"GET /" + strings.Repeat("a", 999) + "\n": "/" + strings.Repeat("a", maxAccessPath-1),
	} {
		if method, path := methodAndPath([]byte(head)); method != "GET" || path != want {
			t.Errorf("%q: %q %q, want %q", head, method, path, want)
		}
	}
}

// occupy gives s a limit of one connection, and takes its only slot.
func occupy(s *Server) {
	s.front = admission.NewLimiter(0).Front(admission.Limits{Total: 1})
	s.front.Acquire(&admission.Slot{}, admission.Busy)
}
