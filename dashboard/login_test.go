package dashboard_test

import (
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"relay"
	"relay/api"
	"relay/dashboard"
	"relay/store"
)

// TestNewLoginEndsTheOldSession: a login ends the earlier session of the same browser.
func TestNewLoginEndsTheOldSession(t *testing.T) {
	t.Parallel()
	o := newAccountFixture(t)
	old := *o.cookies["alice"]
	link, err := o.CreateLoginLink(t.Context(), relay.System(), "alice", 0)
	o.must(err)
	answer := o.send("alice", "/login/"+link, url.Values{})
	answer.redirectsTo("/")
	o.cookies["alice"] = &old
	o.get("alice", "/account").want(401)
	for _, c := range (&http.Response{Header: answer.head}).Cookies() {
		if c.Name == old.Name {
			o.cookies["alice"] = c
		}
	}
	o.get("alice", "/account").want(200)
}

// TestLastingChangesNeedAFreshLogin: a session older than 15 minutes cannot add keys or tokens with all
// rights, and cannot transfer or remove an alias. A newer session can add a key and remove an alias.
func TestLastingChangesNeedAFreshLogin(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64
	o := newAccountFixtureOn(t, store.Options{
		DataDir: t.TempDir(), AliasClaim: true, MaxAliases: 3,
		Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
	})
	o.alias("alice", "shop")
	ahead.Store(int64(16 * time.Minute))
	for _, form := range [][]string{
		{"/account/keys", "key", o.publicKey()},
		{"/account/tokens", "scopes", "account", "expiresIn", "never"},
		{"/aliases/shop/settings/transfer", "user", "bob"},
		{"/aliases/shop/settings/remove", "confirm", "shop"},
	} {
		o.post("alice", form[0], form[1:]...).want(403, "Log in again", "ssh -p 2222 localhost login")
	}
	o.post("alice", "/account/tokens", "scopes", "events:read", "expiresIn", "never").want(200, "rly_")
	o.cookies["alice"] = o.login("alice")
	o.post("alice", "/account/keys", "key", o.publicKey()).redirectsTo("/account?done=key-added")
	o.post("alice", "/aliases/shop/settings/remove", "confirm", "shop").redirectsTo("/?done=alias-removed")
}

// TestDataIsForOwnPagesOnly: routes that return data refuse requests that pages of other sites make. A page
// may be requested from another site.
func TestDataIsForOwnPagesOnly(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.online()
	id := r.send(post("/hook", "{}")).String()
	for _, path := range []string{"/aliases/hook/live", "/live", "/events/" + id + "/image/0", "/api/v1/events/" + id + "/request.raw", "/api/v1/events/" + id + "/export?format=json", "/api/v1/stream"} {
		for _, site := range []string{"same-site", "cross-site"} {
			r.do("GET", path, nil, http.Header{"Sec-Fetch-Site": {site}}, 403)
		}
	}
	for _, site := range []string{"same-origin", "none"} {
		r.do("GET", "/api/v1/events/"+id+"/request.raw", nil, http.Header{"Sec-Fetch-Site": {site}}, 200)
	}
	// A link on another site may lead to a page.
	r.do("GET", "/events/"+id, nil, http.Header{"Sec-Fetch-Site": {"cross-site"}}, 200)
}

// TestLiveStreamsTakeASlot: while all slots of an account for live streams are in use, the streams of pages
// get 429. A stream that ends gives its slot back.
func TestLiveStreamsTakeASlot(t *testing.T) {
	t.Parallel()
	limits := api.NewLimits(api.Rate{}, api.Rate{})
	r := newFixture(t, func(o *dashboard.Options) { o.Limits = limits })
	who := relay.Actor{Account: r.alias.Owner}
	var releases []func()
	for {
		release, err := limits.Stream(who)
		if err != nil {
			break
		}
		releases = append(releases, release)
	}
	for _, path := range []string{"/aliases/hook/live", "/live"} {
		if page := r.get(path, 429); !strings.Contains(page, "at once are allowed") {
			t.Errorf("%s: %s", path, page)
		}
	}
	releases[0]()
	r.do("HEAD", "/aliases/hook/live", nil, nil, 200)
	// The slot of the previous stream was given back.
	r.do("HEAD", "/live", nil, nil, 200)
}

// TestLoginLinkNamesAnAlias: a login link that names an alias of the user leads to that alias; others lead to
// the home page.
func TestLoginLinkNamesAnAlias(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	_, err := r.s.CreateAccount(t.Context(), relay.System(), "bob", false)
	must(t, err)
	_, err = r.s.CreateAlias(t.Context(), relay.System(), "bobs", "bob")
	must(t, err)
	for query, want := range map[string]string{"?alias=hook": "/aliases/hook", "?alias=bobs": "/", "?alias=none": "/", "?alias=//evil": "/", "": "/"} {
		link, err := r.s.CreateLoginLink(t.Context(), relay.System(), "alice", time.Minute)
		must(t, err)
		res, err := r.client.Post(r.base+"/login/"+link+query, "application/x-www-form-urlencoded", nil)
		must(t, err)
		_ = res.Body.Close()
		if got := res.Request.URL.Path; got != want || res.StatusCode != 200 {
			t.Errorf("%q leads to %s (%d)", query, got, res.StatusCode)
		}
	}
}
