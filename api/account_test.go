package api_test

import (
	"context"
	"database/sql"
	"net/http"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/api"
	"relay/record"
)

func TestAliases(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	h.deliver.state = relay.TunnelOnline
	made := decoded[record.Alias](h.post(h.asAlice, "/api/v1/aliases", `{"name":"new-one"}`).want(201))
	if made.Name != "new-one" || made.Owner != "alice" || made.URL != "http://new-one.localhost:8080" || !made.Online || made.Settings.OfflineStatus != 202 {
		t.Errorf("made %+v", made)
	}
	list := decoded[record.List[record.Alias]](h.get(h.asAlice, "/api/v1/aliases").want(200))
	if len(list.Data) != 2 || list.Data[0].Name != "new-one" || list.Data[1].Name != "shop" {
		t.Errorf("listed %+v", list)
	}
	got := decoded[record.Alias](h.get(h.asAlice, "/api/v1/aliases/new-one").want(200))
	if got.State != "online" || got.Tunnel != nil {
		t.Errorf("got %+v", got)
	}
	h.call("DELETE", h.asAlice, "/api/v1/aliases/new-one", "").want(204)
	h.call("DELETE", h.asAlice, "/api/v1/aliases/new-one", "").code(404, "not-found")
}

func TestTheLabelOfTheBaseHostIsReserved(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(o *api.Options) { o.Site.AliasDomain, o.Site.Base.Host = "example.com", "hooks.example.com" })
	h.post(h.asAlice, "/api/v1/aliases", `{"name":"hooks"}`).code(422, "validation-failed")
}

func TestSettings(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	patch := func(body string) record.Settings {
		t.Helper()
		return decoded[record.Alias](h.call("PATCH", h.asAlice, "/api/v1/aliases/shop", body).want(200)).Settings
	}
	got := patch(`{"offlineStatus":503,"autoDeliver":true,"hostHeader":"rewrite","forwarded":true,"freshConnections":true,"responseTimeout":"90s","retention":"30d","paused":true}`)
	if got.OfflineStatus != 503 || !got.AutoDeliver || got.HostHeader != "rewrite" || !got.Forwarded || !got.FreshConnections ||
		*got.ResponseTimeout != "1m30s" || *got.Retention != "30d" || !got.Paused {
		t.Errorf("got %+v", got)
	}
	if got := patch(`{"retention":null,"paused":false}`); got.Retention != nil || got.Paused || !got.Forwarded || got.ResponseTimeout == nil {
		t.Errorf("only two should have changed: %+v", got)
	}
	got = patch(`{"handshakes":["slack","graph"],"answers":[{"method":"POST","status":204},{"headers":[["X-A","b"]],"body":{"encoding":"base64","data":"AA=="}}]}`)
	post := "POST"
	want := []relay.OfflineAnswer{
		{Method: &post, PathPrefix: "/", Status: 204, Headers: [][2]string{}, Body: relay.AnswerBody{Encoding: "utf8"}},
		{PathPrefix: "/", Status: 200, Headers: [][2]string{{"X-A", "b"}}, Body: relay.AnswerBody{Encoding: "base64", Data: "AA=="}},
	}
	if !reflect.DeepEqual(got.Answers, want) || !reflect.DeepEqual(got.Handshakes, []string{"slack", "graph"}) || !got.Forwarded {
		t.Errorf("got %+v", got)
	}
	for _, wrong := range []string{
		`{"handshakes":["slak"]}`, `{"handshakes":"slack"}`, `{"answers":{}}`, `{"answers":[{"status":99}]}`, `{"answers":[{"headers":[["Content-Length","1"]]}]}`,
		`{"answers":[{"headers":[["Set-Cookie","a=b"]]}]}`, `{"answers":[{"headers":[["Relay-Event","x"]]}]}`, `{"answers":[{"headers":[["X-A"]]}]}`, `{"answers":[{"script":"x"}]}`,
	} {
		h.call("PATCH", h.asAlice, "/api/v1/aliases/shop", wrong).code(422, "validation-failed")
	}
	if got := patch(`{}`); !reflect.DeepEqual(got.Answers, want) {
		t.Errorf("a refused change was made: %+v", got.Answers)
	}
	if got := patch(`{"handshakes":[],"answers":[]}`); len(got.Handshakes)+len(got.Answers) > 0 {
		t.Errorf("not emptied: %+v", got)
	}
	if got := patch(`{"answers":[{"method":null,"pathPrefix":"/","status":204,"headers":[],"body":null}]}`); len(got.Answers) != 1 || got.Answers[0].Body.Data != "" {
		t.Errorf("an answer with a null body: %+v", got)
	}
	h.call("PATCH", h.asAlice, "/api/v1/aliases/shop", `{"paused":true,"responseTimeout":"2h"}`).code(422, "validation-failed")
	if got := patch(`{}`); got.Paused {
		t.Error("a refused change was made in part")
	}
}

// TestVerifyToken: only the owner of an alias can set and remove its verify token. No answer and no audit
// entry shows the token.
func TestVerifyToken(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	const path, token = "/api/v1/aliases/shop", "meatyhamhock-7"
	settings := func(body string) string {
		t.Helper()
		return h.call("PATCH", h.asAlice, path, body).want(200).body
	}
	has := func(where, body, want string) {
		t.Helper()
		if !strings.Contains(body, `"verifyToken":`+want) || strings.Contains(body, token) {
			t.Errorf("%s: %s", where, body)
		}
	}
	has("before", h.get(h.asAlice, path).want(200).body, "null")
	has("set", settings(`{"verifyToken":"`+token+`"}`), "true")
	has("read", h.get(h.asAlice, path).want(200).body, "true")
	has("another setting", settings(`{"paused":true}`), "true")
	for name, wrong := range map[string]string{"a space": `"` + token + ` "`, "too long": `"` + strings.Repeat(token, 40) + `"`, "a line end": `"` + token + `\n"`, "no text": "true", "not ASCII": `"` + token + `ä"`} {
		refused := h.call("PATCH", h.asAlice, path, `{"verifyToken":`+wrong+`}`)
		refused.code(422, "validation-failed")
		if strings.Contains(refused.body, token) {
			t.Errorf("%s: the error repeats it: %s", name, refused.body)
		}
	}
	if list := h.get(h.asAlice, path+"/secrets").want(200).body; strings.TrimSpace(list) != `{"data":[]}` {
		t.Errorf("it is listed as a secret of a sender: %s", list)
	}
	audit := h.get(h.asAlice, "/api/v1/audit").want(200).body
	if !strings.Contains(audit, "verifyToken none -\u003e a new one") && !strings.Contains(audit, "verifyToken none -> a new one") || strings.Contains(audit, token) {
		t.Errorf("audit %s", audit)
	}
	h.call("PUT", h.asAlice, path+"/members/bob", "").want(204)
	h.call("PATCH", h.asBob, path, `{"verifyToken":"x"}`).code(403, "forbidden")
	has("a member", h.get(h.asBob, path).want(200).body, "true")
	has("removed", settings(`{"verifyToken":null}`), "null")
	has("empty", settings(`{"verifyToken":""}`), "null")
}

func TestMembersAndTransfer(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	members := func() string { return h.get(h.asAlice, "/api/v1/aliases/shop/members").want(200).body }
	if got := strings.TrimSpace(members()); got != `{"data":[]}` {
		t.Errorf("members: %s", got)
	}
	h.call("PUT", h.asAlice, "/api/v1/aliases/shop/members/bob", "").want(204)
	h.call("PUT", h.asAlice, "/api/v1/aliases/shop/members/bob", "").want(204)
	if got := strings.TrimSpace(members()); got != `{"data":[{"user":"bob"}]}` {
		t.Errorf("members: %s", got)
	}
	h.get(h.asBob, "/api/v1/aliases/shop").want(200)
	if a := h.call("DELETE", h.asBob, "/api/v1/aliases/shop", ""); a.status != 403 && a.status != 404 {
		t.Errorf("a member removes the alias: %d %s", a.status, a.body)
	}
	h.call("DELETE", h.asAlice, "/api/v1/aliases/shop/members/bob", "").want(204)
	h.call("DELETE", h.asAlice, "/api/v1/aliases/shop/members/bob", "").code(404, "not-found")
	h.get(h.asBob, "/api/v1/aliases/shop").want(404)
	moved := decoded[record.Alias](h.post(h.asAlice, "/api/v1/aliases/shop/transfer", `{"user":"bob"}`).want(200))
	if moved.Owner != "bob" {
		t.Errorf("owner %s", moved.Owner)
	}
	h.get(h.asAlice, "/api/v1/aliases/shop").want(404)
}

func TestTokens(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	made := decoded[record.Token](h.post(h.asAlice, "/api/v1/tokens", `{"name":"ci","scopes":["events:read"],"alias":"shop","expiresIn":"30d"}`).want(201))
	if !strings.HasPrefix(made.Token, "rly_") || made.Name != "ci" || len(made.Scopes) != 1 || *made.Alias != "shop" || made.ExpiresAt == nil {
		t.Errorf("made %+v", made)
	}
	h.get(made.Token, "/api/v1/events").want(200)
	h.get(made.Token, "/api/v1/aliases").code(403, "forbidden")
	list := h.get(h.asAlice, "/api/v1/tokens").want(200)
	if strings.Contains(list.body, made.Token) || !strings.Contains(list.body, made.ID) {
		t.Errorf("listed %s", list.body)
	}
	full := decoded[record.Token](h.post(h.asAlice, "/api/v1/tokens", `{}`).want(201))
	if len(full.Scopes) != 8 || full.ExpiresAt != nil {
		t.Errorf("without scopes: %+v", full)
	}
	narrow := h.token("alice", relay.Token{Scopes: relay.ScopeAccount | relay.ScopeEventsRead, ExpiresAt: time.Now().Add(time.Hour)})
	h.post(narrow, "/api/v1/tokens", `{"scopes":["events:write"],"expiresIn":"1m"}`).code(403, "forbidden")
	h.post(narrow, "/api/v1/tokens", `{"scopes":["events:read"],"expiresIn":"2h"}`).code(403, "forbidden")
	h.post(narrow, "/api/v1/tokens", `{"scopes":["events:read"],"expiresIn":"1m"}`).want(201)
	short := decoded[record.Token](h.post(h.asAlice, "/api/v1/tokens", `{"name":"short","expiresIn":"1h"}`).want(201))
	for time.Since(short.CreatedAt.Time) < time.Millisecond { // the API gives times in milliseconds, so an earlier renewal might not move the expiry
		runtime.Gosched()
	}
	renewed := decoded[record.Token](h.post(short.Token, "/api/v1/tokens/renew", "").want(200))
	if renewed.ID != short.ID || renewed.Token != "" || !renewed.ExpiresAt.After(short.ExpiresAt.Time) {
		t.Errorf("renewed from %v to %+v", short.ExpiresAt, renewed)
	}
	h.post(made.Token, "/api/v1/tokens/renew", "").code(403, "forbidden")
	h.call("DELETE", h.asAlice, "/api/v1/tokens/"+made.ID, "").want(204)
	h.call("DELETE", h.asAlice, "/api/v1/tokens/"+made.ID, "").code(404, "not-found")
	h.get(made.Token, "/api/v1/events").code(401, "unauthorized")
}

// TestNamesThatCannotBeShown: names with control characters are refused. A token that an earlier version
// stored with such a name can still be removed.
func TestNamesThatCannotBeShown(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	for _, name := range []string{`a\u001b[2Jb`, `a\nb`, `\u202egnp`, `\u0000`, `a\u200bb`, `\u009b31m`, `\u0301`} {
		for path, more := range map[string]string{"/api/v1/tokens": "", "/api/v1/keys": `,"key":"` + testKey + `"`} {
			p := h.post(h.asAlice, path, `{"name":"`+name+`"`+more+`}`).code(422, "validation-failed").problem()
			if len(p.Errors) != 1 || p.Errors[0].Location != "body.name" {
				t.Errorf("%s of %s: %+v", name, path, p)
			}
		}
		h.post(h.asAlice, "/api/v1/users", `{"name":"eve`+name+`"}`).code(422, "validation-failed")
	}
	p := h.post(h.asAlice, "/api/v1/keys", `{"key":"`+testKey+` me\u001b[2J"}`).code(422, "validation-failed").problem()
	if len(p.Errors) != 1 || p.Errors[0].Location != "body.key" {
		t.Errorf("the comment of a key: %+v", p)
	}
	h.post(h.asAlice, "/api/v1/keys", `{"name":"Zoë's 日本 laptop","key":"`+testKey+` me\u001b[2J"}`).want(201)
	old := h.token("alice", relay.Token{Name: "old", Scopes: relay.AllScopes})
	who, err := h.store.TokenOwner(t.Context(), old)
	must(t, err)
	db, err := sql.Open("sqlite", "file:"+filepath.Join(h.dir, "relay.db")+"?_pragma=busy_timeout(10000)")
	must(t, err)
	_, err = db.Exec(`UPDATE tokens SET name = ? WHERE name = 'old'`, "old\x1b[2J") // earlier versions stored such names
	must(t, err)
	must(t, db.Close())
	if list := h.get(h.asAlice, "/api/v1/tokens").want(200); !strings.Contains(list.body, `"old\u001b[2J"`) {
		t.Errorf("listed %s", list.body)
	}
	h.call("DELETE", h.asAlice, "/api/v1/tokens/"+who.Credential, "").want(204)
	h.get(old, "/api/v1/events").code(401, "unauthorized")
}

func TestKeys(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	made := decoded[record.Key](h.post(h.asAlice, "/api/v1/keys", `{"name":"laptop","key":"`+testKey+`"}`).want(201))
	if made.Type != "ssh-ed25519" || !strings.HasPrefix(made.Fingerprint, "SHA256:") || made.Name != "laptop" || made.User != "alice" {
		t.Errorf("made %+v", made)
	}
	h.post(h.asAlice, "/api/v1/keys", `{"key":"`+testKey+`"}`).code(409, "conflict")
	if a := h.post(h.asBob, "/api/v1/keys", `{"key":"`+testKey+`"}`).code(409, "conflict"); strings.Contains(a.body, "alice") {
		t.Errorf("tells whose it is: %s", a.body)
	}
	if list := decoded[record.List[record.Key]](h.get(h.asAlice, "/api/v1/keys").want(200)); len(list.Data) != 1 {
		t.Errorf("listed %+v", list)
	}
	h.call("DELETE", h.asAlice, "/api/v1/keys/"+made.ID, "").want(204)
	h.call("DELETE", h.asAlice, "/api/v1/keys/"+made.ID, "").code(404, "not-found")
}

func TestUsers(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	made := decoded[record.User](h.post(h.asAlice, "/api/v1/users", `{"name":"eve","admin":true}`).want(201))
	if made.Name != "eve" || !made.Admin || made.CreatedAt.IsZero() {
		t.Errorf("made %+v", made)
	}
	if list := decoded[record.List[record.User]](h.get(h.asAlice, "/api/v1/users").want(200)); len(list.Data) != 3 {
		t.Errorf("listed %+v", list)
	}
	limit := func(body string) *int64 {
		t.Helper()
		return decoded[record.User](h.call("PATCH", h.asAlice, "/api/v1/users/bob", body).want(200)).MaxAccountStorage
	}
	if own := limit(`{"maxAccountStorage":1048576}`); own == nil || *own != 1<<20 {
		t.Errorf("the limit is %v", own)
	}
	for _, body := range []string{`{"maxAccountStorage":-1}`, `{"maxAccountStorage":"1GiB"}`} {
		h.call("PATCH", h.asAlice, "/api/v1/users/bob", body).code(422, "validation-failed")
	}
	for _, u := range decoded[record.List[record.User]](h.get(h.asAlice, "/api/v1/users").want(200)).Data {
		if u.Name == "bob" && (u.MaxAccountStorage == nil || *u.MaxAccountStorage != 1<<20) || u.Events != nil || u.StoredBytes == nil || u.Queued == nil || u.QueueLimit != nil && u.Name != "bob" {
			t.Errorf("listed %+v", u)
		}
	}
	queue := func(body string) *int64 {
		t.Helper()
		return decoded[record.User](h.call("PATCH", h.asAlice, "/api/v1/users/bob", body).want(200)).MaxAccountQueue
	}
	if own := queue(`{"maxAccountQueue":7}`); own == nil || *own != 7 {
		t.Errorf("the limit of the queue is %v", own)
	}
	h.call("PATCH", h.asAlice, "/api/v1/users/bob", `{"maxAccountQueue":-1}`).code(422, "validation-failed")
	h.call("PATCH", h.asAlice, "/api/v1/users/bob", `{"maxAccountStorage":5,"maxAccountQueue":-1}`).code(422, "validation-failed")
	if own := limit(`{}`); own == nil || *own != 1<<20 {
		t.Error("a refused change of two limits has changed one of them")
	}
	if own := limit(`{"maxAccountStorage":1048576,"maxAccountQueue":8}`); own == nil || *own != 1<<20 || *queue(`{}`) != 8 {
		t.Error("a change of two limits has not changed both")
	}
	h.call("PATCH", h.asAlice, "/api/v1/users/nobody", `{"maxAccountQueue":1}`).code(404, "not-found")
	if own := queue(`{"maxAccountQueue":null}`); own != nil {
		t.Errorf("the limit of the queue is %v after it was taken back", *own)
	}
	if own := limit(`{}`); own == nil {
		t.Error("the limit is gone after a change of nothing")
	}
	if own := limit(`{"maxAccountStorage":null}`); own != nil {
		t.Errorf("the limit is %v after it was taken back", *own)
	}
	invite := decoded[record.Invite](h.post(h.asAlice, "/api/v1/users/eve/invite", "").want(201))
	if !strings.HasPrefix(invite.URL, "http://localhost:8080/invite/") || time.Until(invite.ExpiresAt.Time) > 3*24*time.Hour {
		t.Errorf("invited %+v", invite)
	}
	h.call("DELETE", h.asAlice, "/api/v1/users/eve", "").want(204)
	h.call("DELETE", h.asAlice, "/api/v1/users/eve", "").code(404, "not-found")
	h.call("DELETE", h.asAlice, "/api/v1/users/bob", "").want(204)
	h.get(h.asBob, "/api/v1/me").code(401, "unauthorized")
	if log := h.get(h.asAlice, "/api/v1/audit?limit=3").want(200); !strings.Contains(log.body, "user.rm") && !strings.Contains(log.body, "user.remove") {
		t.Errorf("audit: %s", log.body)
	}
}

func TestNobodyRemovesTheirOwnAccount(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	if p := h.call("DELETE", h.asAlice, "/api/v1/users/alice", "").code(409, "conflict").problem(); !strings.Contains(p.Detail, "another admin") {
		t.Errorf("said %q", p.Detail)
	}
	h.get(h.asAlice, "/api/v1/me").want(200)
}

func TestWhatIsWrongIsSaidInTheDetail(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	for body, want := range map[string]string{
		`{"name":5}`:          "body.name: ",
		`{"name":5,"more":1}`: "(and 1 more; see errors)",
	} {
		if p := h.post(h.asAlice, "/api/v1/aliases", body).code(422, "validation-failed").problem(); !strings.Contains(p.Detail, want) {
			t.Errorf("%s: said %q", body, p.Detail)
		}
	}
}

func TestMediaTypesHaveNoCase(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	r := h.request("POST", h.asAlice, "/api/v1/aliases", `{"name":"loud"}`)
	r.Header.Set("Content-Type", "Application/JSON; Charset=UTF-8")
	h.do(r).want(201)
}

// TestMakingIsLimitedPerAccount: an account that has created 120 objects within a minute gets 429, and
// another account does not. The allowance refills while the test runs, so the test uses it up until a
// call is refused.
func TestMakingIsLimitedPerAccount(t *testing.T) {
	t.Parallel()
	limits := api.NewLimits(api.Rate{}, api.Rate{})
	h := newFixture(t, func(o *api.Options) { o.Limits = limits })
	h.share(h.event("shop", nil), "")
	h.post(h.asAlice, "/api/v1/keys", `{"key":"`+testKey+`"}`).want(201)
	made := 2
	var refused *answer
	for deadline := time.Now().Add(time.Minute); refused == nil; {
		for limits.Create(h.alice) == nil {
			made++
		}
		if a := h.post(h.asAlice, "/api/v1/tokens", `{}`); a.status == http.StatusTooManyRequests {
			refused = a
		} else if time.Now().After(deadline) {
			t.Fatalf("still %d after %d", a.status, made)
		}
	}
	refused.code(429, "rate-limited")
	if made < 120 {
		t.Errorf("refused after %d", made)
	}
	if refused.header.Get("RateLimit-Policy") != `"account";q=120;w=60` {
		t.Errorf("header %v", refused.header)
	}
	h.post(h.asAlice, "/api/v1/tokens", `{"scopes":["x"]}`).code(422, "validation-failed")
	for _, refused := range []struct {
		path, body string
		status     int
	}{ // other errors take precedence over that of the limit
		{"/api/v1/tokens", `{"alias":"nope"}`, 404},
		{"/api/v1/users/nobody/invite", "", 404},
		{"/api/v1/keys", `{"key":"no key"}`, 422},
		{"/api/v1/keys", `{"key":"` + testKey + `"}`, 409},
		{"/api/v1/users/bob/invite", "", 429},
	} {
		h.post(h.asAlice, refused.path, refused.body).want(refused.status)
	}
	h.post(h.asBob, "/api/v1/tokens", `{}`).want(201)
	h.get(h.asAlice, "/api/v1/tokens").want(http.StatusOK)
}

// TestTokensKnowTheirID: GET /me returns the id of the token with which it is called, so that a client that
// has only the secret can revoke the token. With a session it returns no such id.
func TestTokensKnowTheirID(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	me := decoded[record.Me](h.get(h.asAlice, "/api/v1/me").want(200))
	if me.TokenID == nil || *me.TokenID != h.alice.Credential {
		t.Fatalf("token %v, want %q", me.TokenID, h.alice.Credential)
	}
	r := h.request("GET", "", "/api/v1/me", "")
	r.AddCookie(&http.Cookie{Name: "relay_session", Value: h.session("alice")})
	if a := h.do(r).want(200); !strings.Contains(a.body, `"tokenId":null`) {
		t.Errorf("a session: %s", a.body)
	}
	h.call("DELETE", h.asAlice, "/api/v1/tokens/"+*me.TokenID, "").want(204)
	h.get(h.asAlice, "/api/v1/me").code(401, "unauthorized")
}

// TestAnEndingTokenIsToldWhatItMayMake: if an expiring token creates a token that lasts longer or has more
// scopes, the error says which expiry is allowed or which scopes to leave out.
func TestAnEndingTokenIsToldWhatItMayMake(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	maker := h.token("alice", relay.Token{Scopes: relay.ScopeAccount | relay.ScopeEventsRead, ExpiresAt: time.Now().Add(48 * time.Hour)})
	p := h.post(maker, "/api/v1/tokens", `{}`).code(403, "forbidden").problem()
	if !strings.Contains(p.Detail, "give an expiresIn below 47h") {
		t.Errorf("said %q", p.Detail)
	}
	h.post(maker, "/api/v1/tokens", `{"expiresIn":"47h"}`).want(201)
	p = h.post(maker, "/api/v1/tokens", `{"expiresIn":"1h","scopes":["events:read","events:write","aliases:read"]}`).code(403, "forbidden").problem()
	if !strings.HasSuffix(p.Detail, "leave out events:write aliases:read") {
		t.Errorf("said %q", p.Detail)
	}
}

// TestOldSessionsMayNotMakeThemselvesPermanent: with a session older than 15 minutes, users must log in again
// before they add keys, make tokens that can manage the account, or transfer or delete an alias. API tokens
// have no such limit.
func TestOldSessionsMayNotMakeThemselvesPermanent(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(o *api.Options) { o.Accounts = agedSessions{o.Accounts} })
	session := h.session("alice")
	for _, line := range []string{
		`POST /api/v1/keys {"key":"` + testKey + `"}`, `POST /api/v1/tokens {"scopes":["account"]}`, `POST /api/v1/tokens {}`,
		`POST /api/v1/aliases/shop/transfer {"user":"bob"}`, `DELETE /api/v1/aliases/shop`,
	} {
		method, rest, _ := strings.Cut(line, " ")
		target, body, _ := strings.Cut(rest, " ")
		r := h.request(method, "", target, body)
		r.AddCookie(&http.Cookie{Name: "relay_session", Value: session})
		h.do(r).code(403, "login-too-old")
	}
	r := h.request("POST", "", "/api/v1/tokens", `{"scopes":["events:read"]}`)
	r.AddCookie(&http.Cookie{Name: "relay_session", Value: session})
	h.do(r).want(201)
	h.post(h.asAlice, "/api/v1/keys", `{"key":"`+testKey+`"}`).want(201)
}

// agedSessions makes every session 16 minutes old.
type agedSessions struct{ accounts }

func (a agedSessions) SessionOwner(ctx context.Context, secret string) (relay.Actor, error) {
	who, err := a.accounts.SessionOwner(ctx, secret)
	who.LoggedInAt = who.LoggedInAt.Add(-16 * time.Minute)
	return who, err
}
