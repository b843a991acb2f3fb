package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"relay"
	"relay/api"
)

// everyRoute returns a request to each route that has a placeholder, filled with the given names.
func everyRoute(alias string, event relay.ID, key, token, share string) []string {
	e := "/api/v1/events/" + event.String()
	a := "/api/v1/aliases/" + alias
	return []string{
		"GET " + a, "PATCH " + a + ` {"paused":true}`, "POST " + a + `/transfer {"user":"bob"}`, "GET " + a + "/members",
		"GET " + a + "/secrets", "POST " + a + `/secrets {"provider":"github","secret":"x"}`, "DELETE " + a + "/secrets/sec_x",
		"PUT " + a + "/members/bob", "DELETE " + a + "/members/bob", "POST " + a + "/replay-queued",
		"GET /api/v1/events?alias=" + alias, "GET /api/v1/events?wait=1s&alias=" + alias, "GET /api/v1/stream?alias=" + alias,
		"GET " + e, "GET " + e + "/request.raw", "GET " + e + "/request.body",
		"GET " + e + "/attempts/1/request.raw", "GET " + e + "/attempts/1/response.raw", "GET " + e + "/attempts/1/response.body",
		"POST " + e + "/replay", "POST " + e + "/replay?wait=x", "POST " + e + "/cancel", "POST " + e + `/shares {"view":true}`, "POST " + e + `/shares {"view":3}`,
		"GET " + e + "/shares", "DELETE " + e + "/shares/" + share, "DELETE /api/v1/keys/" + key, "DELETE /api/v1/tokens/" + token,
		"DELETE " + e, "DELETE " + a,
	}
}

func (d *client) line(token, line string) *answer {
	d.t.Helper()
	method, rest, _ := strings.Cut(line, " ")
	target, body, _ := strings.Cut(rest, " ")
	return d.call(method, token, target, body)
}

// sameBody returns the body without the request id, in which otherwise equal answers differ.
func (a *answer) sameBody() string {
	return strings.ReplaceAll(a.body, a.header.Get("X-Request-Id"), "")
}

func TestForeignAndUnknownAreTheSameAnswer(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	id := h.event("shop", nil)
	key, err := h.store.AddKey(t.Context(), h.alice, "alice", "k", testKey)
	must(t, err)
	tokens, err := h.store.Tokens(t.Context(), h.alice, "alice")
	must(t, err)
	share, _, err := h.store.CreateShare(t.Context(), h.alice, id, relay.Share{View: true})
	must(t, err)
	foreign := everyRoute("shop", id, key.ID, tokens[0].ID, share.ID)
	unknown := everyRoute("nope", relay.ID{1}, "key_nope", "tok_nope", "shr_nope")
	for i := range foreign {
		a, b := h.line(h.asBob, foreign[i]).code(404, "not-found"), h.line(h.asBob, unknown[i]).code(404, "not-found")
		if a.sameBody() != b.sameBody() {
			t.Errorf("%s differs:\nforeign %s\nunknown %s", foreign[i], a.sameBody(), b.sameBody())
		}
	}
	for _, line := range []string{"GET /api/v1/events", "GET /api/v1/aliases", "GET /api/v1/keys", "GET /api/v1/tokens", "GET /api/v1/audit", "GET /api/v1/sessions"} {
		if a := h.line(h.asBob, line).want(200); strings.Contains(a.body, "shop") || strings.Contains(a.body, id.String()) || strings.Contains(a.body, key.ID) {
			t.Errorf("%s shows what is alice's: %s", line, a.body)
		}
	}
	h.get(h.asAlice, "/api/v1/events/"+id.String()).want(200)
	h.get(h.asAlice, "/api/v1/aliases/shop").want(200)
}

const testKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl alice@laptop"

// TestAdminsSeeOthersOnlyAsMembers: alice, an admin, gets 404 for an event of bob's alias until bob makes her
// a member.
func TestAdminsSeeOthersOnlyAsMembers(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	id := h.event("other", nil)
	h.get(h.asAlice, "/api/v1/events/"+id.String()).want(404)
	h.call("PUT", h.asBob, "/api/v1/aliases/other/members/alice", "").want(204)
	h.get(h.asAlice, "/api/v1/events/"+id.String()).want(200)
	h.get(h.asAlice, "/api/v1/events?alias=other").want(200)
}

func TestScopes(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	h.setDeliveryState(relay.StateDelivered)
	h.deliver.release = func(relay.Actor, string) (int, error) { return 0, nil }
	h.deliver.cancel = func(relay.Actor, relay.ID) error { return relay.Errorf(relay.CodeConflict, "nothing waits") }
	id := h.event("shop", nil)
	e := "/api/v1/events/" + id.String()
	needs := map[string]relay.Scope{
		"GET /api/v1/events": relay.ScopeEventsRead, "GET " + e: relay.ScopeEventsRead, "GET " + e + "/attempts": relay.ScopeEventsRead, "GET " + e + "/request.raw": relay.ScopeEventsRead,
		"GET " + e + "/request.body": relay.ScopeEventsRead, "GET " + e + "/attempts/1/request.raw": relay.ScopeEventsRead,
		"GET " + e + "/attempts/1/response.raw": relay.ScopeEventsRead, "GET " + e + "/attempts/1/response.body": relay.ScopeEventsRead,
		"HEAD /api/v1/stream":   relay.ScopeEventsRead,
		"POST " + e + "/replay": relay.ScopeEventsReplay, "POST " + e + "/cancel": relay.ScopeEventsReplay,
		"POST /api/v1/aliases/shop/replay-queued": relay.ScopeEventsReplay,
		"POST " + e + "/shares":                   relay.ScopeEventsShare, "GET " + e + "/shares": relay.ScopeEventsShare, "DELETE " + e + "/shares/x": relay.ScopeEventsShare,
		"GET /api/v1/aliases": relay.ScopeAliasesRead, "GET /api/v1/aliases/shop": relay.ScopeAliasesRead, "GET /api/v1/aliases/shop/members": relay.ScopeAliasesRead,
		`POST /api/v1/aliases {"name":"-"}`: relay.ScopeAliasesWrite, `PATCH /api/v1/aliases/shop {}`: relay.ScopeAliasesWrite,
		"GET /api/v1/aliases/shop/searches": relay.ScopeEventsRead, `PUT /api/v1/aliases/shop/searches/x {"words":"stat:5xx"}`: relay.ScopeEventsRead,
		"DELETE /api/v1/aliases/shop/searches/nope": relay.ScopeEventsRead,
		"GET /api/v1/aliases/shop/secrets":          relay.ScopeAliasesRead, "DELETE /api/v1/aliases/shop/secrets/sec_x": relay.ScopeAliasesWrite,
		`POST /api/v1/aliases/shop/transfer {"user":"nobody"}`: relay.ScopeAliasesWrite, "DELETE /api/v1/aliases/shop/members/bob": relay.ScopeAliasesWrite,
		"PUT /api/v1/aliases/shop/members/nobody": relay.ScopeAliasesWrite,
		"GET /api/v1/tokens":                      relay.ScopeAccount, `POST /api/v1/tokens {"name":3}`: relay.ScopeAccount, "DELETE /api/v1/tokens/x": relay.ScopeAccount, "POST /api/v1/tokens/renew": relay.ScopeAccount,
		"GET /api/v1/keys": relay.ScopeAccount, `POST /api/v1/keys {}`: relay.ScopeAccount, "DELETE /api/v1/keys/x": relay.ScopeAccount,
		"GET /api/v1/sessions": relay.ScopeAccount, "DELETE /api/v1/sessions/x": relay.ScopeAccount, "GET /api/v1/audit": relay.ScopeAccount,
		"GET /api/v1/users": relay.ScopeAccount, `POST /api/v1/users {}`: relay.ScopeAccount, "DELETE /api/v1/users/nobody": relay.ScopeAccount,
		`PATCH /api/v1/users/nobody {"maxAccountStorage":1}`: relay.ScopeAccount,
		"POST /api/v1/users/nobody/invite":                   relay.ScopeAccount,
		"DELETE /api/v1/events/" + relay.ID{1}.String():      relay.ScopeEventsWrite, "DELETE /api/v1/aliases/nope": relay.ScopeAliasesWrite,
		"GET /api/v1/me": 0,
	}
	h.deliver.feed = newFeed()
	for i := range 7 {
		scope := relay.Scope(1 << i)
		with := h.token("alice", relay.Token{Scopes: scope})
		without := h.token("alice", relay.Token{Scopes: relay.AllScopes &^ scope})
		for line, need := range needs {
			if need == scope {
				if a := h.line(with, line); a.status == 403 || a.status == 401 {
					t.Errorf("%v alone: %s: %d %s", scope.Names(), line, a.status, a.body)
				}
				if !strings.HasPrefix(line, "HEAD") {
					h.line(without, line).code(403, "forbidden")
				}
			} else if a := h.line(with, line); need != 0 && a.status != 403 {
				t.Errorf("%v: %s needs %v and gives %d", scope.Names(), line, need.Names(), a.status)
			}
		}
	}
}

func TestAliasLimitedTokens(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	h.alias(h.alice, "second")
	shop, second := h.event("shop", nil), h.event("second", nil)
	limited := h.token("alice", relay.Token{Scopes: relay.AllScopes, Alias: "shop"})
	h.get(limited, "/api/v1/events/"+shop.String()).want(200)
	h.get(limited, "/api/v1/events/"+second.String()).want(404)
	h.get(limited, "/api/v1/events?alias=second").want(404)
	h.get(limited, "/api/v1/aliases/second").want(404)
	if a := h.get(limited, "/api/v1/events").want(200); strings.Contains(a.body, second.String()) {
		t.Errorf("the list shows another alias: %s", a.body)
	}
	for _, line := range []string{
		`POST /api/v1/tokens {"name":"x"}`, `POST /api/v1/keys {"key":"x"}`, `POST /api/v1/aliases {"name":"third"}`, "GET /api/v1/tokens", "GET /api/v1/users",
	} {
		h.line(limited, line).code(403, "forbidden")
	}
	me := decoded[map[string]any](h.get(limited, "/api/v1/me").want(200))
	if me["alias"] != "shop" || me["user"] != "alice" {
		t.Errorf("me: %v", me)
	}
}

func TestUsersAreForAdmins(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	for _, line := range []string{"GET /api/v1/users", `POST /api/v1/users {"name":"eve"}`, "DELETE /api/v1/users/alice", `PATCH /api/v1/users/bob {"maxAccountStorage":null}`, "POST /api/v1/users/alice/invite"} {
		h.line(h.asBob, line).code(403, "forbidden")
	}
}

func TestSessionsAndOrigins(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	cookie := h.session("alice")
	try := func(method, target string, lines ...string) int {
		r := h.request(method, "", target, "")
		r.AddCookie(&http.Cookie{Name: "relay_session", Value: cookie})
		for _, line := range lines {
			name, value, _ := strings.Cut(line, ": ")
			r.Header.Set(name, value)
		}
		return h.do(r).status
	}
	const safe, unsafe = "/api/v1/me", "/api/v1/users/bob/invite"
	for _, tt := range []struct {
		method, target, line string
		want                 int
	}{
		{"GET", safe, "Sec-Fetch-Site: same-origin", 200},
		{"GET", safe, "Sec-Fetch-Site: none", 200},
		{"GET", safe, "X-Plain: no browser", 200},
		{"GET", safe, "Sec-Fetch-Site: same-site", 403},
		{"GET", safe, "Sec-Fetch-Site: cross-site", 403},
		{"POST", unsafe, "Sec-Fetch-Site: same-origin", 201},
		{"POST", unsafe, "Sec-Fetch-Site: same-site", 403},
		{"POST", unsafe, "Sec-Fetch-Site: cross-site", 403},
		{"POST", unsafe, "Origin: http://shop.localhost:8080", 403},
		{"POST", unsafe, "Origin: null", 403},
		{"POST", unsafe, "X-Plain: no browser", 201},
	} {
		if got := try(tt.method, tt.target, tt.line); got != tt.want {
			t.Errorf("%s %s with %s: %d, want %d", tt.method, tt.target, tt.line, got, tt.want)
		}
	}
	// A request with a token is accepted from any origin, because a browser does not add tokens by itself.
	r := h.request("POST", h.asAlice, unsafe, "")
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	h.do(r).want(201)
	sessions := decoded[struct {
		Data []struct {
			ID      string
			Current bool
		}
	}](h.get(h.asAlice, "/api/v1/sessions").want(200))
	if len(sessions.Data) != 1 || sessions.Data[0].Current {
		t.Fatalf("sessions: %+v", sessions)
	}
	h.call("DELETE", h.asAlice, "/api/v1/sessions/"+sessions.Data[0].ID, "").want(204)
	h.call("DELETE", h.asAlice, "/api/v1/sessions/"+sessions.Data[0].ID, "").want(404)
	if got := try("GET", safe); got != 401 {
		t.Errorf("after logout: %d", got)
	}
}

// TestSessionsOfTwoAccountsAreNone: a request with the session cookies of two accounts is refused. So a page
// at a neighbouring host, which can add cookies if there is no https, cannot choose the account for which a
// request acts.
func TestSessionsOfTwoAccountsAreNone(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	r := h.request("GET", "", "/api/v1/me", "")
	r.AddCookie(&http.Cookie{Name: "relay_session", Value: h.session("bob")})
	r.AddCookie(&http.Cookie{Name: "relay_session", Value: h.session("alice")})
	h.do(r).code(401, "unauthorized")
}

// TestTossedCookiesLogNobodyOut: cookies that are not a valid session do not disturb a valid one.
func TestTossedCookiesLogNobodyOut(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	mine, again := h.session("alice"), h.session("alice")
	for _, values := range [][]string{{"tossed", mine}, {mine, "tossed"}, {mine, mine}, {mine, again}, {"", "a", "b", mine}} {
		r := h.request("GET", "", "/api/v1/me", "")
		for _, v := range values {
			r.AddCookie(&http.Cookie{Name: "relay_session", Value: v})
		}
		if a := h.do(r).want(200); !strings.Contains(a.body, `"alice"`) {
			t.Errorf("%d cookies: %s", len(values), a.body)
		}
	}
	r := h.request("GET", "", "/api/v1/me", "")
	r.AddCookie(&http.Cookie{Name: "relay_session", Value: "a"})
	r.AddCookie(&http.Cookie{Name: "relay_session", Value: "b"})
	h.do(r).code(401, "unauthorized")
}

func TestCookieNameUnderHTTPS(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(o *api.Options) { o.Site.Base.Scheme = "https" })
	cookie := h.session("alice")
	for name, want := range map[string]int{"relay_session": 401, "__Host-relay_session": 200} {
		r := h.request("GET", "", "/api/v1/me", "")
		r.AddCookie(&http.Cookie{Name: name, Value: cookie})
		if got := h.do(r).status; got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
}

func TestChecksComeInTheirOrder(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	id := h.event("shop", rejected)
	reader := h.token("alice", relay.Token{Scopes: relay.ScopeEventsRead})
	e, none := "/api/v1/events/"+id.String(), "/api/v1/events/"+relay.ID{1}.String()
	for _, tt := range []struct {
		token, line string
		want        int
	}{
		{"", "PUT " + e + "/replay", 401},
		{reader, "PUT " + none + "/replay?wait=x", 405},
		{reader, "POST " + none + "/replay?wait=x", 403},
		{h.asAlice, "POST " + none + "/replay?wait=x", 404},
		{h.asAlice, "POST " + e + "/replay?wait=x", 422},
		{h.asAlice, "POST " + e + "/replay?waiting=1s", 422},
		{h.asAlice, "POST " + e + "/replay", 409},
		{h.asAlice, "POST /api/v1/aliases/nope/transfer {", 404},
		{h.asAlice, "DELETE /api/v1/tokens/nope?x=1", 404},
		{h.asAlice, "DELETE /api/v1/keys/nope?x=1", 404},
		{h.asAlice, "DELETE /api/v1/sessions/nope?x=1", 404},
		{h.asAlice, "DELETE /api/v1/tunnels/nope?x=1", 404},
		{h.asAlice, "DELETE /api/v1/aliases/shop/members/nope?x=1", 404},
		{h.asAlice, "DELETE /api/v1/aliases/shop/searches/nope?x=1", 404},
		{h.asAlice, "DELETE " + e + "/shares/nope?x=1", 404},
		{h.asAlice, "GET " + e + "/attempts/9/request.raw?x=1", 404},
		{h.asAlice, "DELETE /api/v1/tokens/" + h.alice.Credential + "?x=1", 422},
		{h.asAlice, "POST /api/v1/aliases/shop/transfer {", 400},
	} {
		h.line(tt.token, tt.line).want(tt.want)
	}
	if a := h.line(h.asAlice, "PUT "+e+"/replay"); a.header.Get("Allow") != "POST" {
		t.Errorf("Allow: %q", a.header.Get("Allow"))
	}
	for range 61 { // the state of the event (409) is checked before the rate limit (429)
		h.line(h.asAlice, "POST "+e+"/replay").want(409)
	}
}

func TestInput(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	for line, want := range map[string]string{
		`POST /api/v1/aliases {"name":`:                     "400 bad-request",
		`POST /api/v1/aliases {"name":"x"}{}`:               "400 bad-request",
		`POST /api/v1/aliases`:                              "400 bad-request",
		`POST /api/v1/aliases []`:                           "422 validation-failed",
		`POST /api/v1/aliases null`:                         "422 validation-failed",
		`POST /api/v1/aliases {}`:                           "422 validation-failed",
		`POST /api/v1/aliases {"name":7}`:                   "422 validation-failed",
		`POST /api/v1/aliases {"name":"x","owner":"bob"}`:   "422 validation-failed",
		`POST /api/v1/aliases {"name":"Shop"}`:              "422 validation-failed",
		`POST /api/v1/aliases {"name":"a.b"}`:               "422 validation-failed",
		`POST /api/v1/aliases {"name":"www"}`:               "422 validation-failed",
		`POST /api/v1/aliases {"name":"xn--a"}`:             "422 validation-failed",
		`POST /api/v1/aliases {"name":"shop"}`:              "409 conflict",
		`POST /api/v1/aliases?x=1 {"name":"new"}`:           "422 validation-failed",
		`GET /api/v1/me?x=1`:                                "422 validation-failed",
		`GET /api/v1/me?%zz`:                                "422 validation-failed",
		`GET /api/v1/events?limit=0`:                        "422 validation-failed",
		`GET /api/v1/events?limit=201`:                      "422 validation-failed",
		`GET /api/v1/events?limit=ten`:                      "422 validation-failed",
		`GET /api/v1/events?status=20`:                      "422 validation-failed",
		`GET /api/v1/events?status=2XX`:                     "422 validation-failed",
		`GET /api/v1/events?state=done`:                     "422 validation-failed",
		`GET /api/v1/events?since=yesterday`:                "422 validation-failed",
		`GET /api/v1/events?wait=61s`:                       "422 validation-failed",
		`GET /api/v1/events?wait=-1s`:                       "422 validation-failed",
		`GET /api/v1/events?cursor=!`:                       "422 validation-failed",
		`GET /api/v1/events?page=2`:                         "422 validation-failed",
		`GET /api/v1/events?limit=1&limit=2`:                "422 validation-failed",
		`GET /api/v1/events?status=4xx&st%61tus=5xx`:        "422 validation-failed",
		`GET /api/v1/events?wait=`:                          "422 validation-failed",
		`GET /api/v1/events?wait`:                           "422 validation-failed",
		`GET /api/v1/audit?limit=0`:                         "422 validation-failed",
		`PATCH /api/v1/aliases/shop {"paused":"on"}`:        "422 validation-failed",
		`PATCH /api/v1/aliases/shop {"PAUSED":true}`:        "422 validation-failed",
		`PATCH /api/v1/aliases/shop {"offlineStatus":199}`:  "422 validation-failed",
		`PATCH /api/v1/aliases/shop {"retention":"soon"}`:   "422 validation-failed",
		`PATCH /api/v1/aliases/shop {"hostHeader":"a b"}`:   "422 validation-failed",
		`PATCH /api/v1/aliases/shop {"hostHeader":null}`:    "422 validation-failed",
		`PATCH /api/v1/aliases/shop {"name":"x"}`:           "422 validation-failed",
		`PATCH /api/v1/aliases/shop 3`:                      "422 validation-failed",
		`POST /api/v1/tokens {"scopes":["all"]}`:            "422 validation-failed",
		`POST /api/v1/tokens {"expiresIn":"0s"}`:            "422 validation-failed",
		`POST /api/v1/tokens {"alias":""}`:                  "422 validation-failed",
		`POST /api/v1/tokens {"alias":"nope"}`:              "404 not-found",
		`POST /api/v1/keys {"key":"not a key"}`:             "422 validation-failed",
		`POST /api/v1/users {"name":"No Good"}`:             "422 validation-failed",
		`POST /api/v1/users {"name":"bob"}`:                 "409 conflict",
		`POST /api/v1/aliases/shop/transfer {"user":"eve"}`: "422 validation-failed",
	} {
		a := h.line(h.asAlice, line)
		if got := fmt.Sprintf("%d %s", a.status, a.problem().Code); got != want {
			t.Errorf("%s: %s, want %s: %s", line, got, want, a.body)
		}
	}
}

func TestBodiesThatAreNotTaken(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	send := func(media, body string) *answer {
		r := h.request("POST", h.asAlice, "/api/v1/aliases", body)
		r.Header.Set("Content-Type", media)
		return h.do(r)
	}
	send("text/plain", `{"name":"new"}`).code(415, "unsupported-media-type")
	send("application/x-www-form-urlencoded", `name=new`).code(415, "unsupported-media-type")
	send("application/json", `{"name":"`+strings.Repeat("x", 1<<20)+`"}`).code(413, "body-too-large")
	exact := `{"name":"just"` + strings.Repeat(" ", 1<<20-len(`{"name":"just"}`)) + `}`
	send("application/json", exact).want(201)
	send("application/json; charset=utf-8", `{"name":"new"}`).want(201)
	if a := send("application/json", `{"name":"`+strings.Repeat("s3cret", 100)); strings.Contains(a.body, "s3crets3cret") {
		t.Errorf("a problem gives the body back: %s", a.body)
	}
}
