package dashboard_test

import (
	"context"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/dashboard"
)

func TestHomeLeadsToTheFirstEvent(t *testing.T) {
	t.Parallel()
	o := newAccountFixture(t, func(opt *dashboard.Options) {
		opt.SSHFlags = func(user string) string {
			if user == "alice" {
				return "-i /keys/alice -o IdentitiesOnly=yes"
			}
			return ""
		}
	})
	o.get("alice", "/").want(200,
		"ssh -N -R stripe-dev:80:localhost:3000 -p 2222 -i /keys/alice -o IdentitiesOnly=yes localhost",
		"http://stripe-dev.localhost:8080/hook", "SHA256:hostkey", `action="/aliases"`)
	o.get("bob", "/").want(200, "-p 2222 localhost").lacks("-i /keys")
	o.alias("alice", "shop")
	o.get("alice", "/").want(200, `href="/aliases/shop"`, `data-state="never"`, "none yet", `id="url-shop"`, `data-copy="#url-shop"`, "-R shop:80:")
	o.get("bob", "/").lacks("shop")
	o.must(o.AddMember(t.Context(), o.actor("alice"), "shop", "bob"))
	o.get("bob", "/").want(200, "shop", "owned by alice")
	o.get("", "/").want(200, "ssh -p 2222 localhost login").lacks("shop")
}

// accountsPort lets a struct with a method Accounts embed dashboard.Accounts.
type accountsPort = dashboard.Accounts

// refusedAccounts is a store in which some forwards of one account were refused.
type refusedAccounts struct {
	accountsPort
	account int64
}

func (r *refusedAccounts) RefusedForwards(_ context.Context, account int64) ([]relay.RefusedForward, error) {
	if account != r.account {
		return nil, nil
	}
	remote := netip.MustParseAddrPort("192.0.2.7:4022")
	return []relay.RefusedForward{
		{At: time.Now(), Times: 12, Bind: "shop", Code: relay.CodeNotFound, Message: "no alias of yours is called <shop>", Remote: remote},
		{At: time.Now(), Times: 1, Bind: "admin", Code: relay.CodeValidationFailed, Message: `"admin" is a reserved name`, Remote: remote},
		{At: time.Now().Add(-time.Minute), Times: 1, Bind: "", Code: relay.CodeValidationFailed, Message: "say which alias", Remote: remote},
	}, nil
}

// TestRefusedTunnelsAreSaid: the home page shows an account its refused forwards, with source, number and
// reason, and other accounts nothing.
func TestRefusedTunnelsAreSaid(t *testing.T) {
	t.Parallel()
	accounts := &refusedAccounts{}
	o := newAccountFixture(t, func(opt *dashboard.Options) {
		accounts.accountsPort = opt.Accounts
		opt.Accounts = accounts
	})
	accounts.account = o.actor("alice").Account
	o.get("alice", "/").want(200, `id="refused"`, "<code>shop</code>", "no alias of yours is called &lt;shop&gt;", "from 192.0.2.7", "12 times", "say which alias", "is a reserved name").
		// The text of the refusal already contains the name admin, so the page does not repeat it.
		lacks("<code>admin</code>")
	o.get("bob", "/").want(200).lacks(`id="refused"`)
}

func TestCreateAlias(t *testing.T) {
	t.Parallel()
	o := newAccountFixture(t)
	o.alias("bob", "taken")
	for name, text := range map[string]string{
		"":                      "an alias is 1 to 63",
		"-no":                   "an alias is 1 to 63",
		"admin":                 "reserved",
		"taken":                 "not free",
		"<script>1</script>":    "&lt;script&gt;",
		strings.Repeat("a", 64): "an alias is 1 to 63",
	} {
		a := o.post("alice", "/aliases", "name", name).want(422, text, `aria-invalid="true"`, `id="alias-name-wrong"`)
		if name == "taken" {
			a.want(422, `value="taken"`)
		}
	}
	o.post("alice", "/aliases", "name", " Shop ").redirectsTo("/aliases/shop")
	if _, err := o.Alias(t.Context(), o.actor("alice"), "shop"); err != nil {
		t.Error(err)
	}
	o.post("alice", "/aliases", "name", "two").redirectsTo("/aliases/two")
	o.post("alice", "/aliases", "name", "three").redirectsTo("/aliases/three")
	o.post("alice", "/aliases", "name", "four").want(422, "has 3 aliases already")
	o.post("", "/aliases", "name", "stranger").want(401, "login")
	o.post("alice", "/aliases", "name", strings.Repeat("x", 2<<20)).want(413)
}

func TestCrossSiteFormsAreRefused(t *testing.T) {
	t.Parallel()
	o := newAccountFixture(t)
	for _, path := range []string{
		"/aliases", "/account/keys", "/account/tokens", "/admin/users", "/admin/users/bob/remove", "/invite/x",
		"/aliases/a/settings", "/aliases/a/settings/members", "/aliases/a/settings/transfer", "/aliases/a/settings/remove",
	} {
		for _, origin := range []string{"https://evil.example", "http://shop.localhost:8080", "null"} {
			res, _ := sendRequest(o.pages, "POST", path, func(r *http.Request) {
				r.AddCookie(o.cookies["root"])
				r.Header.Set("Origin", origin)
			})
			if res.StatusCode != 403 {
				t.Errorf("%s from %s = %d, want 403", path, origin, res.StatusCode)
			}
		}
	}
	if _, err := o.AccountByName(t.Context(), "bob"); err != nil {
		t.Error(err)
	}
}

// TestRevokedSessionsSeeNothing: requests with a revoked session, or the session of a removed account, get
// 401 and change nothing.
func TestRevokedSessionsSeeNothing(t *testing.T) {
	t.Parallel()
	o := newAccountFixture(t)
	o.alias("alice", "shop")
	other := o.login("alice")
	o.must(o.EndSession(t.Context(), o.cookies["alice"].Value))
	o.must(o.RemoveAccount(t.Context(), relay.System(), "bob"))
	for _, user := range []string{"alice", "bob"} {
		for _, path := range []string{"/account", "/aliases/shop/settings", "/admin", "/admin/audit"} {
			o.get(user, path).want(401, "login").lacks("SHA256", "shop.localhost")
		}
		for _, path := range []string{"/aliases", "/account/keys", "/account/tokens", "/aliases/shop/settings", "/aliases/shop/settings/remove"} {
			o.post(user, path, "name", "new", "confirm", "shop", "key", o.publicKey(), "scopes", "account").want(401)
		}
	}
	o.cookies["alice"] = other
	o.get("alice", "/aliases/shop/settings").want(200, "shop")
}
