package api_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/api"
	"relay/budget"
	"relay/store"
)

// TestEveryAnswerIsInTheBudget tries the routes that read, and some that write, with large answers. While the
// account and the clients without a login have reserved their shares of the budget, a read whose answer is
// over 64 KiB gets 503 overloaded. A write gets its usual status, with an answer of at most 800 KiB. After
// each call, no memory stays reserved.
func TestEveryAnswerIsInTheBudget(t *testing.T) {
	t.Parallel()
	shared := budget.New(256 << 20)
	h := newFixture(t, func(o *api.Options) { o.Budget = shared })
	nasty := strings.Repeat("\x01", 200<<10)
	large := func(e *relay.Event) {
		e.Target = []byte("/hook?" + strings.Repeat(`"`, 12<<10))
		e.Request = message("POST /hook HTTP/1.1\r\nHost: shop.localhost\r\nContent-Length: 204800\r\nX-Large: "+strings.Repeat("h", 100<<10)+"\r\n\r\n", nasty)
		e.Attempts[0].Response = message("HTTP/1.1 200 OK\r\nContent-Length: 204800\r\nX-Large: "+strings.Repeat("h", 100<<10)+"\r\n\r\n", nasty)
	}
	id, other := h.event("shop", large), h.event("shop", func(e *relay.Event) {
		large(e)
		e.Attempts[0].Response = message("HTTP/1.1 200 OK\r\n\r\n", strings.Repeat("line\n", 40<<10))
	})
	for range 10 {
		h.event("shop", large)
	}
	h.setDeliveryState(relay.StateDelivered)
	h.deliver.cancel = func(relay.Actor, relay.ID) error { return nil }
	who, err := h.store.TokenOwner(t.Context(), h.asAlice)
	must(t, err)
	_, secret, err := h.store.CreateShare(t.Context(), who, id, relay.Share{View: true, ExpiresAt: time.Now().Add(time.Hour)})
	must(t, err)
	paths := map[string][]string{
		"/events": {"?limit=200", "?q=absent"},
		"/diff":   {"?left=" + id.String() + "/1&right=" + other.String() + "/1", "?left=" + id.String() + "&right=" + other.String()},
	}
	for _, format := range []string{"curl", "har", "json", "go", "js", "python"} {
		paths["/events/{id}/export"] = append(paths["/events/{id}/export"], "?format="+format)
	}
	place := strings.NewReplacer("{id}", id.String(), "{n}", "1", "{alias}", "shop", "{user}", "alice", "{token}", url.PathEscape(secret), "{shareId}", "none")
	tried, refused := 0, map[string]bool{}
	for _, route := range contractRoutes {
		method, path, _ := strings.Cut(route, ":")
		writes := method == "PATCH" && path == "/events/{id}" || method == "POST" && (strings.HasSuffix(path, "/cancel") || strings.HasSuffix(path, "/{id}/replay"))
		if method != http.MethodGet && !writes || path == "/stream" {
			continue
		}
		queries := paths[path]
		if queries == nil {
			queries = []string{""}
		}
		for _, query := range queries {
			tried++
			what := method + " " + path + query
			call := func() *answer {
				body := ""
				if method == "PATCH" {
					body = `{"label":"x"}`
				}
				return h.do(h.request(method, h.asAlice, "/api/v1"+place.Replace(path)+query, body))
			}
			whole := call()
			if used := shared.Stats().Used; used != 0 {
				t.Fatalf("%s: %d bytes stay reserved", what, used)
			}
			held := &budget.Hold{Budget: shared, Account: who.Account}
			strangers := &budget.Hold{Budget: shared}
			must(t, held.Set(shared.Share()))
			must(t, strangers.Set(shared.Share()))
			got := call()
			held.Release()
			strangers.Release()
			switch {
			case writes: // a change is never refused: its answer leaves out the bodies
				if got.status != whole.status || len(got.body) > 800<<10 {
					t.Errorf("%s: %d, %d bytes", what, got.status, len(got.body))
				}
			case len(whole.body) <= 64<<10:
				if got.status != whole.status && got.status != http.StatusServiceUnavailable {
					t.Errorf("%s: %d, want %d", what, got.status, whole.status)
				}
			case got.status != http.StatusServiceUnavailable || !strings.Contains(got.body, `"code":"overloaded"`) || got.header.Get("Retry-After") == "":
				t.Errorf("%s: %d bytes, and while the account holds all that it may: %d %.200s", what, len(whole.body), got.status, got.body)
			default:
				refused[path] = true
			}
			if used := shared.Stats().Used; used != 0 {
				t.Fatalf("%s: %d bytes stay reserved after a refusal", what, used)
			}
		}
	}
	for _, path := range []string{
		"/events", "/events/{id}", "/events/{id}/attempts", "/events/{id}/request.raw", "/events/{id}/request.body", "/events/{id}/attempts/{n}/response.raw",
		"/events/{id}/export", "/shared/{token}",
	} {
		if !refused[path] {
			t.Errorf("%s had no large answer: %s", path, fmt.Sprint(refused))
		}
	}
	t.Logf("%d answers were tried, of %d routes large ones", tried, len(refused))
}

// busyReads is a store that refuses to read whole events, as if too many reads waited.
type busyReads struct{ *store.Store }

func (busyReads) Event(context.Context, relay.Actor, relay.ID, int) (*relay.Event, error) {
	return nil, relay.Overloaded("too many reads run or wait")
}

// TestChangesAreToldWhileReadsWait: a change is confirmed even if the store is too busy to read the changed
// event. An error would suggest that nothing had changed.
func TestChangesAreToldWhileReadsWait(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	d := newClientWith(t, h.store, func(o *api.Options) { o.Events = busyReads{h.store} })
	d.deliver.cancel = func(relay.Actor, relay.ID) error { return nil }
	e := "/api/v1/events/" + h.event("shop", nil).String()
	for _, a := range []*answer{
		d.do(d.request("PATCH", h.asAlice, e, `{"label":"seen"}`)), d.do(d.request("POST", h.asAlice, e+"/cancel", "")),
	} {
		if a.want(200); !strings.Contains(a.body, `"label":"seen"`) || !strings.Contains(a.body, `"number":1`) {
			t.Errorf("%s", a.body)
		}
	}
	d.get(h.asAlice, e).code(503, "overloaded")
	d.do(d.request("POST", h.asAlice, e+"/verify", `{"provider":"github","secret":"x"}`)).want(200) // a verification reads no attempts, so busyReads does not refuse it
}
