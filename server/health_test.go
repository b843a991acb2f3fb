package server

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestHealth(t *testing.T) {
	t.Parallel()
	o := testOptions(t, &upstream{})
	o.Ready = func(context.Context) (degraded, reasons []string) { return []string{"store"}, nil }
	o.HostKey = "SHA256:abc"
	_, addr := start(t, o)
	bad := testOptions(t, &upstream{})
	bad.Ready = func(context.Context) (degraded, reasons []string) { return nil, []string{"disk full"} }
	_, badAddr := start(t, bad)
	for _, tt := range []struct {
		addr, path, host string
		status           int
		body             string
	}{
		{addr, "/healthz", "relay.test", 200, `{"status":"ok"}`},
		{addr, "/healthz?x", "10.0.0.7:8080", 200, `{"status":"ok"}`},
		{addr, "/healthz", "hooks.test", 200, `{"status":"ok"}`},
		{addr, "/healthz?nonce=n1", "relay.test", 200, `{"hostKey":"SHA256:abc","nonce":"n1","status":"ok"}`},
		{addr, "/healthz?nonce=" + strings.Repeat("x", maxNonce+1), "relay.test", 200, `{"status":"ok"}`},
		{addr, "/readyz", "anything.example", 200, `{"status":"ok","degraded":["store"]}`},
		{badAddr, "/healthz", "relay.test", 200, `{"status":"ok"}`},
		{badAddr, "/readyz", "relay.test", 503, `{"status":"unavailable","degraded":[],"reasons":["disk full"]}`},
	} {
		got := say(t, tt.addr, "GET "+tt.path+" HTTP/1.1\r\nHost: "+tt.host+"\r\nConnection: close\r\n\r\n")
		resp, body := parse(t, got, "GET")
		if resp.StatusCode != tt.status || strings.TrimSpace(body) != tt.body || resp.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s at %s: got %d %s", tt.path, tt.host, resp.StatusCode, body)
		}
	}
	// On an alias host, the local server gets /healthz.
	got := say(t, addr, "GET /healthz HTTP/1.1\r\nHost: shop.hooks.test\r\nConnection: close\r\n\r\n")
	if _, body := parse(t, got, "GET"); !strings.HasPrefix(body, "GET /healthz") {
		t.Errorf("alias: got %q", body)
	}
	got = say(t, addr, "GET /healthz HTTP/1.0\r\n\r\n")
	if resp, _ := parse(t, got, "GET"); resp.StatusCode != 200 {
		t.Errorf("HTTP/1.0 without Host: got %d", resp.StatusCode)
	}
}

func TestReadinessFollowsTheTruth(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked, down, hangs atomic.Int32
		r := &readiness{ask: func(ctx context.Context) (degraded, reasons []string) {
			asked.Add(1)
			if hangs.Load() == 1 {
				<-ctx.Done()
				return nil, []string{errors.Unwrap(context.Cause(ctx)).Error()}
			}
			if down.Load() == 1 {
				return nil, []string{"down"}
			}
			return nil, nil
		}}
		for range 100 {
			if v := r.verdict(t.Context()); v.Status != "ok" {
				t.Fatalf("got %v", v)
			}
		}
		if n := asked.Load(); n != 1 {
			t.Errorf("asked %d times", n)
		}
		down.Store(1)
		time.Sleep(time.Second)
		want := verdict{Status: "unavailable", Degraded: []string{}, Reasons: []string{"down"}}
		if diff := cmp.Diff(want, r.verdict(t.Context())); diff != "" {
			t.Error(diff)
		}
	})
}

// TestReadinessDoesNotWaitForever: if the store does not answer, three calls of verdict at the same time return
// unavailable after readyTimeout, and only one of them asks the store.
func TestReadinessDoesNotWaitForever(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var asked atomic.Int32
		r := &readiness{ask: func(context.Context) (degraded, reasons []string) {
			asked.Add(1)
			// This function ignores the end of its context, as a store that hangs would.
			<-release
			return nil, nil
		}}
		begun := time.Now()
		for range 3 {
			go func() {
				if v := r.verdict(t.Context()); v.Status != "unavailable" || time.Since(begun) != readyTimeout {
					t.Errorf("got %v after %v", v, time.Since(begun))
				}
			}()
		}
		time.Sleep(readyTimeout + time.Millisecond)
		if n := asked.Load(); n != 1 {
			t.Errorf("asked %d times", n)
		}
		close(release)
		synctest.Wait()
		if v := r.verdict(t.Context()); v.Status != "ok" {
			t.Errorf("got %v", v)
		}
	})
}

// TestStartingAnswersHealthChecksOnly: during the start, requests get 503, also for an alias that does not
// exist; /healthz gets 200.
func TestStartingAnswersHealthChecksOnly(t *testing.T) {
	t.Parallel()
	s, addr := start(t, testOptions(t, &upstream{}))
	s.Starting(true)
	last := "\r\nConnection: close\r\n\r\n"
	checkProblem(t, say(t, addr, "GET / HTTP/1.1\r\nHost: nobody.hooks.test"+last), 503, "store-unavailable", "Retry-After: 2")
	for path, want := range map[string]int{"/healthz": 200, "/x": 503} {
		resp, _ := parse(t, say(t, addr, "GET "+path+" HTTP/1.1\r\nHost: relay.test"+last), "GET")
		if resp.StatusCode != want {
			t.Errorf("%s: got %d, want %d", path, resp.StatusCode, want)
		}
	}
	s.Starting(false)
	if resp, _ := parse(t, say(t, addr, "GET / HTTP/1.1\r\nHost: shop.hooks.test"+last), "GET"); resp.StatusCode != 200 {
		t.Errorf("afterwards: got %d", resp.StatusCode)
	}
}
