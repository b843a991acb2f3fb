package server

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"relay"
)

// TestTLSInFront: with TLSInFront, a plain request counts as one over TLS in the record and in the access
// log.
func TestTLSInFront(t *testing.T) {
	t.Parallel()
	for _, front := range []bool{true, false} {
		seen := make(chan bool, 1)
		log := make(told, 1)
		o := testOptions(t, &upstream{answer: func(_ context.Context, in *relay.Inbound) (relay.Outcome, bool) {
			seen <- in.TLS
			return relay.Outcome{}, false
		}})
		o.TLSInFront, o.Access = front, func(a Access) { log <- a }
		_, addr := start(t, o)
		say(t, addr, "GET / HTTP/1.1\r\nHost: shop.hooks.test\r\nConnection: close\r\n\r\n")
		if got := <-seen; got != front {
			t.Errorf("in front %v: the engine is told %v", front, got)
		}
		if a := log.next(t); a.TLS != front {
			t.Errorf("in front %v: the access log is told %v", front, a.TLS)
		}
	}
}

// TestAdminHealth: the handler of the admin listener answers /healthz and /readyz.
func TestAdminHealth(t *testing.T) {
	t.Parallel()
	o := testOptions(t, &upstream{})
	why := []string(nil)
	o.Ready = func(context.Context) (degraded, reasons []string) { return nil, why }
	for want, reasons := range map[int][]string{http.StatusOK: nil, http.StatusServiceUnavailable: {"disk: full"}} {
		why = reasons
		admin := Admin(AdminOptions{Health: New(o).Health()})
		for path, status := range map[string]int{"/healthz": http.StatusOK, "/readyz": want} {
			w := httptest.NewRecorder()
			admin.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://10.0.0.7:9091"+path, nil))
			if w.Code != status {
				t.Errorf("%s: %d %s, want %d", path, w.Code, w.Body, status)
			}
		}
	}
}
