package api_test

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"relay"
)

// The walk requests every route of the OpenAPI document with credentials that have no right to it. New routes
// are included without a change here. If a path has a new placeholder, the walk fails until resourceIDs has a
// value for it.

// step is a request to one route.
type step struct {
	method, path, scope string
	public              bool
}

func (s step) String() string { return s.method + " " + s.path }

func steps(t *testing.T) (list []step) {
	t.Helper()
	for path, operations := range openAPI(t).Paths {
		for method, op := range operations {
			s := step{method: strings.ToUpper(method), path: path, public: len(op.Security) == 0}
			if names, ok := strings.CutPrefix(op.Description, "Scope: "); ok {
				s.scope = strings.TrimSuffix(names, ".")
			}
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b step) int { return strings.Compare(a.String(), b.String()) })
	if len(list) < 40 {
		t.Fatalf("the document has only %d routes", len(list))
	}
	return list
}

// resourceIDs are the names that replace the placeholders of paths.
type resourceIDs struct{ alias, event, token, key, session, share, secret, user string }

// at replaces the placeholders of a path by names.
func (n resourceIDs) at(t *testing.T, path string) string {
	t.Helper()
	id := n.event
	switch {
	case strings.Contains(path, "/tokens/"):
		id = n.token
	case strings.Contains(path, "/keys/"):
		id = n.key
	case strings.Contains(path, "/sessions/"):
		id = n.session
	}
	path = strings.NewReplacer("{alias}", n.alias, "{name}", "mine", "{id}", id, "{n}", "1", "{shareId}", n.share, "{token}", n.secret, "{user}", n.user).Replace(path)
	if strings.Contains(path, "{") {
		t.Fatalf("say in the walk what stands in %s", path)
	}
	return path
}

// secrets returns texts that appear only in answers about these resources.
func (n resourceIDs) secrets() []string {
	return []string{`"` + n.alias + `"`, n.event, n.token, n.key, n.session, n.share}
}

// routeWalk is a fixture in which alice and bob each have one resource of each kind.
type routeWalk struct {
	*fixture
	steps        []step
	alices, bobs resourceIDs
}

var unknownIDs = resourceIDs{"nope", relay.ID{1}.String(), "tok_nope", "key_nope", "ses_nope", "shr_nope", "nope", "nobody"}

func newRouteWalk(t *testing.T) *routeWalk {
	t.Helper()
	w := &routeWalk{fixture: newFixture(t), steps: steps(t)}
	w.deliver.feed = newFeed()
	close(w.deliver.feed.items) // open streams end at once
	w.alices = w.oneOfEach(w.alice, "alice", "shop", testKey, "bob")
	w.bobs = w.oneOfEach(w.bob, "bob", "other", otherKey, "alice")
	return w
}

const otherKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAESIzRFVmd4iZqrvM3e/wARIjNEVWZ3iJmqu8zd7v8A bob@laptop"

func (w *routeWalk) oneOfEach(who relay.Actor, user, alias, key, other string) resourceIDs {
	w.t.Helper()
	ctx := w.t.Context()
	id := w.event(alias, nil)
	k, err := w.store.AddKey(ctx, who, user, "k", key)
	must(w.t, err)
	token, _, err := w.store.CreateToken(ctx, relay.System(), relay.Token{AccountName: user, Scopes: relay.AllScopes})
	must(w.t, err)
	share, secret, err := w.store.CreateShare(ctx, who, id, relay.Share{View: true})
	must(w.t, err)
	w.session(user)
	sessions, err := w.store.Sessions(ctx, who)
	must(w.t, err)
	return resourceIDs{alias, id.String(), token.ID, k.ID, sessions[0].ID, share.ID, secret, other}
}

// ask sends the request of a step. POST, PUT and PATCH carry an empty JSON object.
func (w *routeWalk) ask(s step, token string, n resourceIDs) *answer {
	w.t.Helper()
	body := ""
	if s.method == "POST" || s.method == "PUT" || s.method == "PATCH" {
		body = "{}"
	}
	return w.call(s.method, token, n.at(w.t, s.path), body)
}

// assertUnchanged checks that the walk changed nothing.
func (w *routeWalk) assertUnchanged() {
	w.t.Helper()
	for token, n := range map[string]resourceIDs{w.asAlice: w.alices, w.asBob: w.bobs} {
		for _, path := range []string{"/api/v1/events/" + n.event, "/api/v1/aliases/" + n.alias} {
			w.get(token, path).want(200)
		}
		for path, id := range map[string]string{"keys": n.key, "tokens": n.token, "sessions": n.session, "events/" + n.event + "/shares": n.share} {
			if a := w.get(token, "/api/v1/"+path).want(200); !strings.Contains(a.body, id) {
				w.t.Errorf("%s is gone from %s", id, path)
			}
		}
	}
	if n := w.deliver.calls(); n != 0 {
		w.t.Errorf("%d replays", n)
	}
}

func TestWalkWithoutCredential(t *testing.T) {
	t.Parallel()
	w := newRouteWalk(t)
	public := 0
	for _, s := range w.steps {
		if s.public {
			public++
			continue
		}
		for _, n := range []resourceIDs{w.alices, unknownIDs} {
			w.ask(s, "", n).code(401, "unauthorized")
		}
	}
	if public != 5 { // openapi.json, docs, ssh, and the two routes of a share
		t.Errorf("%d routes are for everybody", public)
	}
	for _, s := range w.steps { // an unknown share token gets 404
		if strings.Contains(s.path, "{token}") {
			w.ask(s, "", unknownIDs).code(404, "not-found")
		}
	}
	w.assertUnchanged()
}

func TestWalkWithDeadTokens(t *testing.T) {
	t.Parallel()
	w := newRouteWalk(t)
	expired := w.shortLived("alice")
	revoked := w.token("alice", relay.Token{Scopes: relay.AllScopes})
	w.get(revoked, "/api/v1/me").want(200)
	who, err := w.store.TokenOwner(t.Context(), revoked)
	must(t, err)
	must(t, w.store.RemoveToken(t.Context(), relay.System(), who.Credential))
	for deadline := time.Now().Add(2 * time.Minute); w.get(expired, "/api/v1/me").status != 401; {
		if time.Now().After(deadline) {
			t.Fatal("the token does not expire")
		}
	}
	for _, s := range w.steps {
		if !s.public {
			w.ask(s, expired, w.alices).code(401, "unauthorized")
			w.ask(s, revoked, w.alices).code(401, "unauthorized")
			w.ask(s, w.alices.secret, w.alices).code(401, "unauthorized") // a share token is not valid for these routes
		}
	}
	w.assertUnchanged()
}

// shortLived returns a token that ends soon. A token that would end before it is made is refused, so
// each further try on a slow machine gives it more time.
func (w *routeWalk) shortLived(user string) string {
	w.t.Helper()
	for life := 300 * time.Millisecond; ; life *= 2 {
		_, secret, err := w.store.CreateToken(w.t.Context(), relay.System(), relay.Token{
			AccountName: user, Scopes: relay.AllScopes, ExpiresAt: time.Now().Add(life),
		})
		if err == nil {
			return secret
		}
		if relay.AsError(err).Code != relay.CodeValidationFailed || life > 30*time.Second {
			w.t.Fatal(err)
		}
	}
}

// TestWalkWithAStrangersToken: bob, who is no admin, gets the same answer for alice's resources as for unknown
// ones, and no list shows one of them.
func TestWalkWithAStrangersToken(t *testing.T) {
	t.Parallel()
	w := newRouteWalk(t)
	for _, s := range w.steps {
		switch {
		case s.public:
		case strings.Contains(s.path, "/users"):
			w.ask(s, w.asBob, w.alices).code(403, "forbidden")
		case strings.Contains(s.path, "{"):
			foreign, unknown := w.ask(s, w.asBob, w.alices).code(404, "not-found"), w.ask(s, w.asBob, unknownIDs).code(404, "not-found")
			if foreign.sameBody() != unknown.sameBody() {
				t.Errorf("%s differs:\nforeign %s\nunknown %s", s, foreign.sameBody(), unknown.sameBody())
			}
		default:
			w.shows(w.ask(s, w.asBob, w.alices), w.alices)
		}
	}
	w.assertUnchanged()
}

// shows fails the test if the answer contains one of the given resources, which the token may not see.
func (w *routeWalk) shows(a *answer, n resourceIDs) {
	w.t.Helper()
	for _, mark := range n.secrets() {
		if strings.Contains(a.body, mark) {
			w.t.Errorf("%s shows %s: %.300s", a.what, mark, a.body)
		}
	}
}

// TestWalkWithOneScope: a token with one scope is refused on routes that need another.
func TestWalkWithOneScope(t *testing.T) {
	t.Parallel()
	w := newRouteWalk(t)
	for _, name := range relay.AllScopes.Names() {
		scope, err := relay.ParseScopes([]string{name})
		must(t, err)
		token := w.token("alice", relay.Token{Scopes: scope})
		for _, s := range w.steps {
			if s.public || s.scope == "" {
				continue
			}
			if s.scope != name {
				w.ask(s, token, w.alices).code(403, "forbidden")
			} else if a := w.ask(s, token, unknownIDs); a.status == 401 || a.status == 403 {
				t.Errorf("%s alone: %s: %d %s", name, s, a.status, a.body)
			}
		}
	}
	for _, s := range w.steps {
		if !s.public && s.scope == "" && s.path != "/api/v1/me" && s.path != "/api/v1/providers" && s.path != "/api/v1/samples" {
			t.Errorf("%s needs no scope", s)
		}
	}
	w.assertUnchanged()
}

// TestWalkWithATokenOfAnotherAlias: a token limited to one alias sees only that alias, and no accounts.
func TestWalkWithATokenOfAnotherAlias(t *testing.T) {
	t.Parallel()
	w := newRouteWalk(t)
	w.alias(w.alice, "second")
	token := w.token("alice", relay.Token{Scopes: relay.AllScopes, Alias: "second"})
	for _, s := range w.steps {
		account := false
		for _, part := range []string{"/users", "/tokens", "/keys", "/sessions", "/audit"} {
			account = account || strings.HasPrefix(s.path, "/api/v1"+part)
		}
		switch {
		case s.public:
		case account || s.String() == "POST /api/v1/aliases":
			w.ask(s, token, w.alices).code(403, "forbidden")
		case strings.Contains(s.path, "{"):
			foreign, unknown := w.ask(s, token, w.alices).code(404, "not-found"), w.ask(s, token, unknownIDs).code(404, "not-found")
			if foreign.sameBody() != unknown.sameBody() {
				t.Errorf("%s differs:\nforeign %s\nunknown %s", s, foreign.sameBody(), unknown.sameBody())
			}
		default:
			w.shows(w.ask(s, token, w.alices), w.alices)
		}
	}
	w.assertUnchanged()
}

// TestWalkAsAnAdminWhoIsNoMember: an admin manages the accounts, but sees no events of others.
func TestWalkAsAnAdminWhoIsNoMember(t *testing.T) {
	t.Parallel()
	w := newRouteWalk(t)
	for _, s := range w.steps {
		named := strings.Contains(s.path, "{alias}") || strings.Contains(s.path, "/events/{id}") || strings.Contains(s.path, "/sessions/{id}")
		switch {
		case s.public:
		case named:
			foreign, unknown := w.ask(s, w.asAlice, w.bobs).code(404, "not-found"), w.ask(s, w.asAlice, unknownIDs).code(404, "not-found")
			if foreign.sameBody() != unknown.sameBody() {
				t.Errorf("%s differs:\nforeign %s\nunknown %s", s, foreign.sameBody(), unknown.sameBody())
			}
		case s.method == "GET" && s.path != "/api/v1/audit" && !strings.Contains(s.path, "{"):
			w.shows(w.ask(s, w.asAlice, w.bobs), w.bobs)
		}
	}
	w.assertUnchanged()
}

// TestNoTokenMakesAWiderOne: a token cannot create a token that has more scopes than itself, or expires later.
func TestNoTokenMakesAWiderOne(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	names := relay.AllScopes.Names()
	for i, name := range names {
		this, _ := relay.ParseScopes(names[i : i+1])
		own := relay.ScopeAccount | this
		maker := h.token("alice", relay.Token{Scopes: own, ExpiresAt: time.Now().Add(time.Hour)})
		for j, other := range names {
			a := h.post(maker, "/api/v1/tokens", `{"scopes":["`+other+`"],"expiresIn":"30m"}`)
			if that, _ := relay.ParseScopes(names[j : j+1]); own.Has(that) {
				a.want(201)
			} else {
				a.code(403, "forbidden")
			}
		}
		for _, body := range []string{
			`{"scopes":["` + name + `"],"expiresIn":"61m"}`, `{"scopes":["` + name + `"],"expiresIn":null}`, `{"scopes":["` + name + `"]}`, `{}`,
		} {
			h.post(maker, "/api/v1/tokens", body).code(403, "forbidden")
		}
		made := decoded[struct{ Scopes []string }](h.post(maker, "/api/v1/tokens", `{"expiresIn":"1m"}`).want(201))
		if want := own.Names(); !slices.Equal(made.Scopes, want) {
			t.Errorf("without scopes: %v, want %v", made.Scopes, want)
		}
	}
	h.post(h.asBob, "/api/v1/tokens", `{"alias":"shop"}`).code(404, "not-found")
}

// TestWalkWithHostileNames: any text in paths and queries gets a proper answer, never an internal error.
func TestWalkWithHostileNames(t *testing.T) {
	t.Parallel()
	w := newRouteWalk(t)
	for _, name := range []string{"%00", "%ff%fe", "a%2Fb", "%E2%80%AE%0D%0A", "'%22%3B--", strings.Repeat("x", 5000)} {
		for _, s := range w.steps {
			path := strings.NewReplacer("{alias}", name, "{id}", name, "{n}", name, "{shareId}", name, "{token}", name, "{user}", name).Replace(s.path)
			if path == s.path {
				continue
			}
			body := ""
			if s.method == "POST" || s.method == "PATCH" {
				body = "{}"
			}
			if a := w.call(s.method, w.asAlice, path, body).problem(); a.Status != 404 {
				t.Errorf("%s %.60s: %+v", s.method, path, a)
			}
		}
		for _, query := range []string{"alias=", "method=", "path=", "q=", "state=", "status=", "cursor=", "since=", "limit=", "wait=", "nope="} {
			if a := w.get(w.asAlice, "/api/v1/events?"+query+name); a.status >= 500 {
				t.Errorf("%s: %d %s", a.what, a.status, a.body)
			}
		}
		for path, body := range map[string]string{
			"/aliases": `{"name":"NAME"}`, "/users": `{"name":"NAME"}`, "/tokens": `{"name":"NAME","alias":"NAME"}`,
			"/keys": `{"name":"NAME","key":"NAME"}`, "/aliases/shop/transfer": `{"user":"NAME"}`,
		} {
			name, err := url.PathUnescape(name)
			must(t, err)
			text, err := json.Marshal(name)
			must(t, err)
			if a := w.post(w.asAlice, "/api/v1"+path, strings.ReplaceAll(body, `"NAME"`, string(text))); a.status < 400 || a.status >= 500 {
				t.Errorf("%s with %.20q: %d %.200s", path, name, a.status, a.body)
			}
		}
	}
	w.assertUnchanged()
}

// TestWalkWithOtherMethods: for each path, the Allow line lists the methods that the OpenAPI document has.
func TestWalkWithOtherMethods(t *testing.T) {
	t.Parallel()
	w := newRouteWalk(t)
	takes := map[string][]string{}
	for _, s := range w.steps {
		takes[s.path] = append(takes[s.path], s.method)
		if s.method == "GET" {
			takes[s.path] = append(takes[s.path], "HEAD")
		}
	}
	takes["/api/v1/tokens/renew"] = append(takes["/api/v1/tokens/renew"], takes["/api/v1/tokens/{id}"]...) // "renew" also matches {id}
	for path, methods := range takes {
		slices.Sort(methods)
		for _, method := range []string{"OPTIONS", "TRACE", "PROPFIND", "get"} {
			a := w.call(method, w.asAlice, w.alices.at(t, path), "").code(405, "method-not-allowed")
			if got := a.header.Get("Allow"); got != strings.Join(methods, ", ") {
				t.Errorf("%s %s: Allow %q, want %v", method, path, got, methods)
			}
		}
	}
	w.assertUnchanged()
}
