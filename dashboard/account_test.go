package dashboard_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/dashboard"
)

func TestKeys(t *testing.T) {
	t.Parallel()
	o := newAccountFixture(t)
	line := o.publicKey()
	for _, bad := range []string{"", "ssh-ed25519", "-----BEGIN OPENSSH PRIVATE KEY-----", line + "\n" + o.publicKey(), `command="id" ` + line, "</textarea><script>"} {
		o.post("alice", "/account/keys", "key", bad).want(422, `id="key-key-wrong"`)
	}
	o.post("alice", "/account/keys", "key", line+" me@laptop\r\n").redirectsTo("/account?done=key-added")
	o.post("bob", "/account/keys", "key", line).want(422, "is registered already", line[:40])
	keys, err := o.Keys(t.Context(), o.actor("alice"), "")
	o.must(err)
	if len(keys) != 1 || keys[0].Name != "me@laptop" {
		t.Fatalf("keys %+v", keys)
	}
	o.get("alice", "/account").want(200, keys[0].Fingerprint, "me@laptop", "never", "It is your last key", "/account/keys/"+keys[0].ID+"/remove")
	o.get("bob", "/account").lacks(keys[0].Fingerprint)
	for _, user := range []string{"bob", "root"} {
		o.post(user, "/account/keys/"+keys[0].ID+"/remove").want(404)
	}
	o.post("alice", "/account/keys/"+keys[0].ID+"/remove").redirectsTo("/account?done=key-removed")
	o.post("alice", "/account/keys/"+keys[0].ID+"/remove").want(404)
}

var tokenText = regexp.MustCompile(`rly_[A-Za-z0-9_-]{43}`)

func TestTokensAreShownOnce(t *testing.T) {
	t.Parallel()
	o := newAccountFixture(t)
	o.alias("alice", "shop")
	made := o.post("alice", "/account/tokens", "name", "ci <i>", "scopes", "events:read", "scopes", "events:replay", "alias", "shop", "expiresIn", "7d").
		want(200, "It is shown only once.", "events:read, events:replay", "limited to the alias shop", "ci &lt;i&gt;")
	secret := tokenText.FindString(made.body)
	if made.head.Get("Cache-Control") != "no-store" {
		t.Error("a secret may be cached")
	}
	who, err := o.TokenOwner(t.Context(), secret)
	if err != nil || who.AliasName != "shop" || who.Scopes != relay.ScopeEventsRead|relay.ScopeEventsReplay || who.AccountName != "alice" {
		t.Fatalf("token of %+v, %v", who, err)
	}
	if d := time.Until(who.ExpiresAt); d < 6*24*time.Hour || d > 7*24*time.Hour {
		t.Errorf("expires in %v", d)
	}
	o.get("alice", "/account").want(200, "ci &lt;i&gt;", "shop", "events:read, events:replay", "never").lacks(secret)
	o.get("bob", "/account").lacks("ci &lt;i&gt;")
	for _, user := range []string{"bob", "root"} {
		o.post(user, "/account/tokens/"+who.Credential+"/remove").want(404)
	}
	o.post("alice", "/account/tokens/"+who.Credential+"/remove").redirectsTo("/account?done=token-removed")
	if _, err := o.TokenOwner(t.Context(), secret); err == nil {
		t.Error("a revoked token still works")
	}
}

func TestTokenFormSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	o := newAccountFixture(t)
	o.alias("bob", "foreign")
	for wrong, fields := range map[string][]string{
		"token-scopes-wrong":            {"name", "kept", "expiresIn", "7d"},
		"unknown scope":                 {"name", "kept", "expiresIn", "7d", "scopes", "everything"},
		"no alias with this name":       {"name", "kept", "expiresIn", "7d", "scopes", "account", "alias", "foreign"},
		"choose when the token expires": {"name", "kept", "expiresIn", "-7d", "scopes", "account"},
		"token-expiresIn-wrong":         {"name", "kept", "scopes", "account"},
	} {
		a := o.post("alice", "/account/tokens", fields...).want(422, wrong, `value="kept"`)
		if tokenText.MatchString(a.body) {
			t.Errorf("%s made a token", wrong)
		}
	}
	o.post("alice", "/account/tokens", "name", strings.Repeat("x", 101), "expiresIn", "7d", "scopes", "account").want(422, "at most 100")
	o.post("alice", "/account/tokens", "name", strings.Repeat("ü", 100), "expiresIn", "7d", "scopes", "account").want(200, "It is shown only once.")
	o.post("alice", "/account/tokens", "name", "kept", "expiresIn", "90d", "scopes", "nonsense", "scopes", "account").
		want(422, `value="account" checked`, `value="90d" selected`).lacks(`value="events:read" checked`)
	for name, fields := range map[string][]string{
		"all": {"expiresIn", "never", "scopes", "account"}, "odd": {"expiresIn", "36h", "scopes", "account"},
	} {
		a := o.post("alice", "/account/tokens", append(fields, "name", name)...).want(200)
		if !tokenText.MatchString(a.body) {
			t.Errorf("%s made no token", name)
		}
	}
}

func TestSessions(t *testing.T) {
	t.Parallel()
	o := newAccountFixture(t)
	other := o.login("alice")
	o.get("alice", "/account").want(200, "this browser", "Test/1 &lt;b&gt;", "192.0.2.7", "Revoke session", `action="/logout"`).
		lacks(other.Value, o.cookies["alice"].Value)
	owner, err := o.SessionOwner(t.Context(), other.Value)
	o.must(err)
	for _, user := range []string{"bob", "root"} {
		o.post(user, "/account/sessions/"+owner.Credential+"/remove").want(404)
	}
	o.post("alice", "/account/sessions/"+owner.Credential+"/remove").redirectsTo("/account?done=logged-out")
	o.post("alice", "/account/sessions/"+owner.Credential+"/remove").want(404)
	if _, err := o.SessionOwner(t.Context(), other.Value); err == nil {
		t.Error("a revoked session still works")
	}
	o.get("alice", "/account").want(200).lacks("Revoke session")
	o.post("alice", "/logout").redirectsTo("/")
	o.get("alice", "/account").want(401)
}

func TestInvitation(t *testing.T) {
	t.Parallel()
	o := newAccountFixture(t)
	page := o.post("root", "/admin/users/bob/invite").want(200, "It is shown only once.", "http://localhost:8080/invite/")
	path := regexp.MustCompile(`/invite/[A-Za-z0-9_-]{43}`).FindString(page.body)
	o.get("root", "/admin").lacks(path)
	for range 2 {
		o.get("", path).want(200, "as bob", "Add key and log in")
	}
	_, err := o.AddKey(t.Context(), o.actor("alice"), "", "", o.publicKey())
	o.must(err)
	o.post("", path, "key", "nonsense").want(422, "not an SSH public key", ">nonsense</textarea>")
	o.post("", path).want(422)
	line := o.publicKey()
	used := o.post("", path, "key", line+" bob@desk")
	used.redirectsTo("/")
	res := http.Response{Header: used.head}
	if len(res.Cookies()) != 1 || !res.Cookies()[0].HttpOnly {
		t.Fatalf("cookies %v", res.Cookies())
	}
	o.cookies["invited"] = res.Cookies()[0]
	o.get("invited", "/account").want(200, "Account bob", "bob@desk")
	o.post("", path, "key", o.publicKey()).want(404, "was used")
	o.get("", path).want(404, "was used")

	link, err := o.CreateLoginLink(t.Context(), relay.System(), "alice", 0)
	o.must(err)
	expired, err := o.CreateInvite(t.Context(), relay.System(), "bob", time.Nanosecond)
	o.must(err)
	for _, dead := range []string{link, expired, "none"} {
		o.get("", "/invite/"+dead).want(404, "ask an admin")
		o.post("", "/invite/"+dead, "key", o.publicKey()).want(404)
	}
}

// refuseCreations are limits that refuse every creation with the error rate-limited.
type refuseCreations struct{ dashboard.Limits }

func (refuseCreations) Create(relay.Actor) error {
	e := relay.Errorf(relay.CodeRateLimited, "too many of these calls")
	e.RetryAfter = 1500 * time.Millisecond
	return e
}

func (refuseCreations) LookUpSecret(_, _ string, look func() error) error { return look() }

func TestMakingIsLimited(t *testing.T) {
	t.Parallel()
	keys := &fakeEnrolments{}
	o := newAccountFixture(t, func(opt *dashboard.Options) { opt.Limits, opt.Enrolments = refuseCreations{}, keys })
	invite, err := o.CreateInvite(t.Context(), relay.System(), "bob", 0)
	o.must(err)
	login, err := o.CreateLoginLink(t.Context(), relay.System(), "bob", 0)
	o.must(err)
	o.event(o.alias("alice", "shop"), http.StatusOK, time.Millisecond)
	list, err := o.Events(t.Context(), o.actor("alice"), relay.Filter{Alias: "shop"})
	o.must(err)
	event := &list.Events[0]
	for path, user := range map[string]string{
		"/login/" + login: "", "/account/keys": "alice", "/account/tokens": "alice", "/admin/users/bob/invite": "root", "/invite/" + invite: "",
		"/link/k3yl1nk": "alice", "/events/" + event.ID.String() + "/shares": "alice",
	} {
		a := o.post(user, path, "key", o.publicKey(), "scopes", "account", "expiresIn", "7d", "code", waitingCode).want(429, "too many")
		if a.head.Get("Retry-After") != "2" {
			t.Errorf("%s: Retry-After %q", path, a.head.Get("Retry-After"))
		}
	}
	o.get("", "/invite/"+invite).want(200)
	// The refused login has not used up the link.
	o.get("", "/login/"+login).want(200)
	if keys.gone || keys.wrong > 0 {
		t.Error("a code was tried although the limit was reached")
	}
}
