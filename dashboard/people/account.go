package people

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/a-h/templ"

	"relay"
	"relay/dashboard/page"
	"relay/grant"
	"relay/record"
)

// accountView is the page with the credentials and sessions of an account.
type accountView struct {
	User     string
	Admin    bool
	Session  string // the session of the viewer
	Keys     []relay.Key
	Tokens   []relay.Token
	Sessions []relay.Session
	Aliases  []relay.Alias // aliases to which a token may be limited
	Failed   page.Form     // the form with an error; the zero form = none
	Token    page.Form     // the form of a new token
	Done     string
	Command  string // command that opens a first tunnel, after a key was approved
}

func (p pages) account(r *http.Request, who relay.Actor, failed page.Form) (templ.Component, error) {
	ctx, v := r.Context(), accountView{User: who.AccountName, Admin: who.Admin, Session: who.Credential, Failed: failed, Done: page.SuccessText(r)}
	var errs [4]error
	v.Keys, errs[0] = p.Accounts.Keys(ctx, who, who.AccountName)
	v.Tokens, errs[1] = p.Accounts.Tokens(ctx, who, who.AccountName)
	v.Sessions, errs[2] = p.Accounts.Sessions(ctx, who)
	v.Aliases, errs[3] = page.Aliases(ctx)
	if err := cmp.Or(errs[:]...); err != nil {
		return nil, err
	}
	if v.Token = failed.Named("token"); v.Token.Values == nil {
		v.Token.Values = url.Values{"scopes": {"events:read", "events:replay", "aliases:read"}, "expiresIn": {lifetimes[0].Value}}
	}
	if r.URL.Query().Get("done") == "key-approved" {
		v.Command = p.Connect(who, v.Aliases).SSH
	}
	return accountPage(v), nil
}

func (p pages) addKey(w http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
	_, err := p.Grants().AddKey(r.Context(), who, page.Field(r, "name"), r.PostForm.Get("key"))
	return page.FormPage(p.account).Finish(w, r, who, page.Posted("key", r), err, "key", "/account?done=key-added")
}

// removal returns the handler that removes a key, token or session of the logged-in account. An id of another
// account is not found, even for admins, who remove credentials of other accounts with the commands of
// relayd.
func removal(remove func(ctx context.Context, who relay.Actor, id string) error, done string) page.SignedInHandler {
	return func(w http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
		who.Admin = false
		err := remove(r.Context(), who, r.PathValue("id"))
		return page.SeeOther(w, r, err, "/account?done="+done)
	}
}

// scopeView is a permission that a token may have.
type scopeView struct{ Name, What string }

var scopeViews = []scopeView{
	{"events:read", "list and read events, follow the stream"},
	{"events:replay", "replay, release queued events, cancel"},
	{"events:send", "make new events and send them"},
	{"events:write", "delete events"},
	{"events:share", "create and revoke share links"},
	{"aliases:read", "list aliases and their settings"},
	{"aliases:write", "create, change, transfer and delete aliases"},
	{"account", "keys, tokens, sessions and accounts"},
}

// lifetimes are the expiry choices for a new token; the first one is preselected.
var lifetimes = []struct{ Value, Text string }{
	{"30d", "in 30 days"},
	{"1d", "in 1 day"},
	{"7d", "in 7 days"},
	{"90d", "in 90 days"},
	{"365d", "in 1 year"},
	{"never", "never"},
}

// scopesText describes the rights of a token.
func scopesText(scopes relay.Scope) string {
	if scopes == relay.AllScopes {
		return "everything"
	}
	return strings.Join(scopes.Names(), ", ")
}

// createToken answers with the secret itself instead of a redirect: the secret is not stored, so no
// other page could show it.
func (p pages) createToken(w http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
	f := page.Posted("token", r)
	want := tokenOf(f)
	if f.Failed() {
		return page.FormPage(p.account).Finish(w, r, who, f, nil, "", "")
	}
	secret := page.MadeByForm(r)
	if *secret == "" {
		var err error
		_, *secret, err = p.Grants().CreateToken(r.Context(), who, want)
		if errors.Is(err, relay.ErrNotFound) {
			err = relay.Errorf(relay.CodeConflict, "you have no alias with this name")
		}
		if err != nil {
			return page.FormPage(p.account).Finish(w, r, who, f, err, "alias", "")
		}
	}
	scopes, _ := relay.ParseScopes(want.Scopes)
	what := strings.TrimSpace("The token "+record.SafeTextMax(want.Name, grant.MaxTokenName)) + " may do: " + scopesText(scopes) + "."
	if want.Alias != "" {
		what += " It is limited to the alias " + want.Alias + "."
	}
	return page.SecretPage(page.Secret{
		Title: "Token created", What: what, Secret: *secret, Back: "/account",
		Then:    "Store it as a secret, for example in the variable RELAY_TOKEN. If it is lost, revoke it and create a new one.",
		Example: `curl -H "Authorization: Bearer $RELAY_TOKEN" ` + p.Site.URL("/api/v1/me"),
	}), nil
}

// tokenOf reads the form of a new token. It stores errors of the scopes and the lifetime in f: CreateToken
// would accept empty ones, as all scopes and as no expiry.
func tokenOf(f page.Form) grant.TokenRequest {
	want := grant.TokenRequest{Name: strings.TrimSpace(f.Values.Get("name")), Scopes: f.Values["scopes"], Alias: f.Values.Get("alias")}
	if len(want.Scopes) == 0 {
		// A form without a ticked scope must not become a token with all scopes.
		f.Errors["scopes"] = "choose at least one"
	}
	if life := f.Values.Get("expiresIn"); life != "never" {
		var ok bool
		if want.ExpiresAt, ok = grant.Expiry(life); !ok {
			f.Errors["expiresIn"] = "choose when the token expires"
		}
	}
	return want
}

const tokenAliasHint = "a token limited to one alias cannot see anything else and cannot create keys or tokens"

// lastKeyText returns the text of the question that the page asks before it removes a key. The text has a
// warning if the key is the last one of the account.
func lastKeyText(keys int) string {
	const text = "Its connections are closed at once."
	if keys == 1 {
		return text + " It is your last key: without a key you cannot log in again unless an admin invites you."
	}
	return text
}
