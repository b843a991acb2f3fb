package dashboard_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/api"
	"relay/dashboard"
)

// accounts is dashboard.Accounts under another name, because an embedded field called Accounts would hide
// the method Accounts.
type accounts interface{ dashboard.Accounts }

// fakeStore is a store of one account with one login link.
type fakeStore struct {
	accounts
	dashboard.Deliverer
	links, sessions map[string]string
	aliases         []relay.Alias
	down            error
}

func (h *fakeStore) FeedID() string { return "" }

func (h *fakeStore) LoginLink(_ context.Context, secret string) (relay.Account, error) {
	if name, ok := h.links[secret]; ok {
		return relay.Account{Name: name}, nil
	}
	return relay.Account{}, relay.ErrNotFound
}

func (h *fakeStore) UseLoginLink(_ context.Context, secret, _, _ string) (string, relay.Account, error) {
	name, ok := h.links[secret]
	if !ok {
		return "", relay.Account{}, relay.ErrNotFound
	}
	delete(h.links, secret)
	h.sessions["session-of-"+name] = name
	return "session-of-" + name, relay.Account{Name: name}, nil
}

func (h *fakeStore) SessionOwner(_ context.Context, secret string) (relay.Actor, error) {
	if h.down != nil {
		return relay.Actor{}, h.down
	}
	if name, ok := h.sessions[secret]; ok {
		return relay.Actor{Account: int64(len(name)), AccountName: name, Kind: relay.ActorUser}, nil
	}
	return relay.Actor{}, relay.ErrNotFound
}

func (h *fakeStore) EndSession(_ context.Context, secret string) error {
	delete(h.sessions, secret)
	return nil
}

func (h *fakeStore) Alias(context.Context, relay.Actor, string) (*relay.Alias, error) {
	return nil, relay.ErrNotFound
}

func (h *fakeStore) Aliases(context.Context, relay.Actor) ([]relay.Alias, error) {
	return h.aliases, nil
}

func (h *fakeStore) RefusedForwards(context.Context, int64) ([]relay.RefusedForward, error) {
	return nil, nil
}

func (h *fakeStore) Status(_ context.Context, aliases []relay.Alias) ([]relay.AliasStatus, error) {
	st := make([]relay.AliasStatus, len(aliases))
	for i := range st {
		st[i] = relay.AliasStatus{State: relay.TunnelOnline, QueueStats: relay.QueueStats{Queued: 3}, LastEventAt: time.Unix(0, 0)}
	}
	return st, nil
}

func newFakeStore() *fakeStore {
	return &fakeStore{links: map[string]string{"once": "alice"}, sessions: map[string]string{}}
}

func serve(t *testing.T, h *fakeStore, base string) http.Handler {
	t.Helper()
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	return dashboard.New(dashboard.Options{
		Accounts: h, Deliver: h, Limits: api.NewLimits(api.Rate{}, api.Rate{}), Log: slog.New(slog.DiscardHandler),
		Site: relay.Site{Base: *u, AliasDomain: "example.com", SSHAddr: "example.com:2222"},
	})
}

func sendRequest(h http.Handler, method, path string, edit func(*http.Request)) (*http.Response, string) {
	r := httptest.NewRequest(method, path, nil)
	if edit != nil {
		edit(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	body, _ := io.ReadAll(w.Result().Body)
	return w.Result(), string(body)
}

func TestLoginLinkIsUsedByItsButtonOnly(t *testing.T) {
	t.Parallel()
	h := serve(t, newFakeStore(), "https://example.com")
	// Opening the page, as a link preview does, does not use up the link.
	for range 2 {
		if res, body := sendRequest(h, "GET", "/login/once", nil); res.StatusCode != 200 || !strings.Contains(body, ">Log in</button>") {
			t.Fatalf("GET = %d: %s", res.StatusCode, body)
		}
	}
	res, _ := sendRequest(h, "POST", "/login/once", nil)
	cookies := res.Cookies()
	if res.StatusCode != 303 || len(cookies) != 1 {
		t.Fatalf("POST = %d with %d cookies", res.StatusCode, len(cookies))
	}
	c := cookies[0]
	if c.Name != "__Host-relay_session" || !c.Secure || !c.HttpOnly || c.Path != "/" || c.Domain != "" {
		t.Errorf("cookie: %+v", c)
	}
	if res, _ := sendRequest(h, "POST", "/login/once", nil); res.StatusCode != 404 {
		t.Errorf("a second use = %d, want 404", res.StatusCode)
	}
	if res, body := sendRequest(h, "GET", "/", func(r *http.Request) { r.AddCookie(c) }); res.StatusCode != 200 || !strings.Contains(body, "alice") {
		t.Errorf("home = %d: %s", res.StatusCode, body)
	}
	if res, _ := sendRequest(h, "POST", "/logout", func(r *http.Request) { r.AddCookie(c) }); res.StatusCode != 303 {
		t.Errorf("logout = %d", res.StatusCode)
	}
	if _, body := sendRequest(h, "GET", "/", func(r *http.Request) { r.AddCookie(c) }); strings.Contains(body, "alice") {
		t.Error("still signed in after logging out")
	}
}

func TestCrossSitePostsAreRefused(t *testing.T) {
	t.Parallel()
	fake := newFakeStore()
	h := serve(t, fake, "https://example.com")
	for _, site := range []string{"cross-site", "same-site"} {
		res, _ := sendRequest(h, "POST", "/login/once", func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", site) })
		if res.StatusCode != 403 {
			t.Errorf("%s POST = %d, want 403", site, res.StatusCode)
		}
	}
	if len(fake.links) != 1 {
		t.Error("a refused post used the link up")
	}
}

func TestHomeShowsAliasesAsText(t *testing.T) {
	t.Parallel()
	fake := newFakeStore()
	fake.sessions["s"] = `<script>alert(1)</script>`
	fake.aliases = []relay.Alias{{Name: "stripe-dev"}}
	h := serve(t, fake, "http://localhost:8080")
	res, body := sendRequest(h, "GET", "/", func(r *http.Request) { r.AddCookie(&http.Cookie{Name: "relay_session", Value: "s"}) })
	for _, want := range []string{"stripe-dev", "http://stripe-dev.example.com:8080", "online", "3 queued", "ssh -N -R stripe-dev:80:localhost:3000 -p 2222 example.com", "&lt;script&gt;"} {
		if !strings.Contains(body, want) {
			t.Errorf("home lacks %q", want)
		}
	}
	if strings.Contains(body, "<script>") {
		t.Error("markup of a name got through")
	}
	if csp := res.Header.Get("Content-Security-Policy"); strings.Contains(csp, "unsafe") || !strings.Contains(csp, "frame-ancestors 'none'") || !strings.Contains(csp, "base-uri 'none'") {
		t.Errorf("csp %q", csp)
	}
}

func TestUnknownVisitorsAndAddresses(t *testing.T) {
	t.Parallel()
	fake := newFakeStore()
	h := serve(t, fake, "http://localhost:8080")
	if res, body := sendRequest(h, "GET", "/", nil); res.StatusCode != 200 || !strings.Contains(body, "ssh -p 2222 example.com login") {
		t.Errorf("home of a stranger = %d: %s", res.StatusCode, body)
	}
	for _, path := range []string{"/login/none", "/nothing", "/assets/", "/assets/none.css"} {
		if res, _ := sendRequest(h, "GET", path, nil); res.StatusCode != 404 {
			t.Errorf("%s = %d, want 404", path, res.StatusCode)
		}
	}
	gzip := func(r *http.Request) { r.Header.Set("Accept-Encoding", "br, gzip;q=0.5") }
	if res, _ := sendRequest(h, "GET", "/assets/style.css", gzip); res.Header.Get("Content-Encoding") != "gzip" || res.Header.Get("Vary") != "Accept-Encoding" {
		t.Errorf("packed style sheet = %v", res.Header)
	}
	if res, _ := sendRequest(h, "GET", "/assets/style.css", nil); res.StatusCode != 200 || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/css") {
		t.Errorf("style sheet = %d %s", res.StatusCode, res.Header.Get("Content-Type"))
	}
	fake.down = relay.Errorf(relay.CodeStoreUnavailable, "the database does not answer; try again in a moment")
	res, body := sendRequest(h, "GET", "/", func(r *http.Request) { r.AddCookie(&http.Cookie{Name: "relay_session", Value: "s"}) })
	if res.StatusCode != 503 || !strings.Contains(body, "does not answer") {
		t.Errorf("home without a store = %d: %s", res.StatusCode, body)
	}
}
