package dashboard_test

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/dashboard"
)

// TestTossedCookiesLogNobodyOut: a second session cookie whose value is not that of a session does not log the
// user out. It is removed from each domain and path where it may have been set. On a site where no other host
// can set such a cookie, nothing is removed.
func TestTossedCookiesLogNobodyOut(t *testing.T) {
	t.Parallel()
	fake := newFakeStore()
	fake.sessions["mine"] = "alice"
	h := serve(t, fake, "http://relay.example.com")
	for _, order := range []string{
		"relay_session=mine; relay_session=tossed", "relay_session=tossed; relay_session=mine", "relay_session=mine; relay_session=mine",
		"relay_session=; relay_session=a; relay_session=b; relay_session=mine",
	} {
		res, body := sendRequest(h, "GET", "/", func(r *http.Request) { r.Header.Set("Cookie", order) })
		if res.StatusCode != 200 || !strings.Contains(body, "alice") {
			t.Errorf("%s = %d: %s", order, res.StatusCode, body)
		}
	}
	res, _ := sendRequest(h, "GET", "/aliases/x", func(r *http.Request) { r.Header.Set("Cookie", "relay_session=mine; relay_session=tossed") })
	var swept []string
	for _, c := range res.Cookies() {
		if c.Name != "relay_session" || c.Value != "" || c.MaxAge >= 0 || c.Domain == "" {
			t.Errorf("cookie %+v", c)
		}
		swept = append(swept, c.Domain+c.Path)
	}
	for _, want := range []string{"relay.example.com/", "relay.example.com/aliases", "relay.example.com/aliases/x", "example.com/"} {
		if !slices.Contains(swept, want) {
			t.Errorf("%s is not removed: %v", want, swept)
		}
	}
	for _, base := range []string{"http://localhost:8080", "http://127.0.0.1:8080", "http://[::1]:8080", "https://relay.example.com"} {
		res, _ := sendRequest(serve(t, fake, base), "GET", "/aliases/x", func(r *http.Request) { r.Header.Set("Cookie", "relay_session=mine; relay_session=tossed") })
		if slices.ContainsFunc(res.Cookies(), func(c *http.Cookie) bool { return strings.HasSuffix(c.Name, "_session") }) {
			t.Errorf("%s: cookies %v, which may be our own", base, res.Cookies())
		}
	}
}

// TestSessionsOfTwoAccountsAreNone: a request with sessions of two accounts gets 401; one with two sessions of
// the same account does not. Logging out ends all sessions of the request.
func TestSessionsOfTwoAccountsAreNone(t *testing.T) {
	t.Parallel()
	fake := newFakeStore()
	fake.sessions["mine"], fake.sessions["tossed"], fake.sessions["other"] = "alice", "mallory", "alice"
	h := serve(t, fake, "http://relay.example.com")
	for _, order := range []string{"relay_session=mine; relay_session=tossed", "relay_session=tossed; relay_session=mine", "relay_session=x; relay_session=tossed; relay_session=mine"} {
		res, body := sendRequest(h, "GET", "/", func(r *http.Request) { r.Header.Set("Cookie", order) })
		if res.StatusCode != 401 || !strings.Contains(body, "try again") || strings.Contains(body, "mallory") || len(res.Cookies()) == 0 {
			t.Errorf("%s = %d: %s", order, res.StatusCode, body)
		}
	}
	if res, _ := sendRequest(h, "GET", "/", func(r *http.Request) { r.Header.Set("Cookie", "relay_session=mine; relay_session=other") }); res.StatusCode != 200 {
		t.Errorf("two of one account = %d", res.StatusCode)
	}
	sendRequest(h, "POST", "/logout", func(r *http.Request) {
		r.Header.Set("Cookie", "relay_session=mine; relay_session=tossed; relay_session=other")
	})
	if len(fake.sessions) != 0 {
		t.Errorf("logging out left %v", fake.sessions)
	}
}

// guessCounter looks up every secret while on is false, and only the secrets in right while on is true. right
// has the secrets that an earlier look-up has found; tried lists the secrets that were looked up.
type guessCounter struct {
	dashboard.Limits
	on    bool
	right map[string]bool
	tried []string
}

func (g *guessCounter) Create(relay.Actor) error { return nil }

func (g *guessCounter) LookUpSecret(remote, secret string, look func() error) error {
	if remote == "" {
		panic("no source")
	}
	if g.on && !g.right[secret] {
		e := relay.Errorf(relay.CodeRateLimited, "too many")
		e.RetryAfter = time.Second
		return e
	}
	err := look()
	g.tried = append(g.tried, secret)
	if err == nil {
		g.right[secret] = true
	}
	return err
}

func TestGuessesAreCounted(t *testing.T) {
	t.Parallel()
	g := &guessCounter{right: map[string]bool{}}
	o := newAccountFixture(t, func(opt *dashboard.Options) { opt.Limits = g })
	invite, err := o.CreateInvite(t.Context(), relay.System(), "bob", 0)
	o.must(err)
	login, err := o.CreateLoginLink(t.Context(), relay.System(), "bob", 0)
	o.must(err)
	o.get("alice", "/").want(200)
	for _, path := range []string{"/login/", "/invite/", "/s/"} {
		o.get("", path+"guess").want(404)
	}
	o.get("", "/invite/"+invite).want(200)
	o.get("", "/login/"+login).want(200)
	if want := []string{o.cookies["alice"].Value, "guess", "guess", "guess", invite, login}; !slices.Equal(g.tried, want) {
		t.Errorf("tried %v, want %v", g.tried, want)
	}
	g.on = true
	for _, path := range []string{"/login/other", "/invite/other", "/s/other"} {
		if a := o.get("", path).want(429, "too many"); a.head.Get("Retry-After") != "1" {
			t.Errorf("%s: Retry-After %q", path, a.head.Get("Retry-After"))
		}
	}
	o.send("", "/s/other/replay", url.Values{}).want(429)
	o.send("", "/login/other", url.Values{}).want(429)
	o.get("", "/login/"+login).want(200)
	// A session that is already valid still works.
	o.get("alice", "/account").want(200)
	o.cookies["bob"].Value = "guessed"
	o.get("bob", "/account").want(429)
}

// TestWhereToIsBoundToTheHost: over https, the cookie that remembers the page to show after the login has the
// prefix __Host-, is secure and has no domain.
func TestWhereToIsBoundToTheHost(t *testing.T) {
	t.Parallel()
	res, _ := sendRequest(serve(t, newFakeStore(), "https://example.com"), "GET", "/account", nil)
	cookies := res.Cookies()
	if res.StatusCode != 401 || len(cookies) != 1 || cookies[0].Name != "__Host-relay_next" || !cookies[0].Secure || cookies[0].Domain != "" {
		t.Errorf("%d, cookies %v", res.StatusCode, cookies)
	}
}
