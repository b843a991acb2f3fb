package dashboard

import (
	"net/http"
	"time"

	"github.com/a-h/templ"

	"relay"
	"relay/record"
)

// accountView is what proves an account, and where it is logged in.
type accountView struct {
	User     string
	Admin    bool
	Keys     []keyView
	Tokens   []tokenView
	Sessions []sessionView
	Aliases  []string // that a token may be limited to
	Key      form
	Token    form
	Done     string
	Command  string // to open a first tunnel by, after a key was let in
}

type keyView struct {
	ID, Name, Fingerprint, Type string
	Added, LastUsed             stamp
}

type tokenView struct {
	ID, Name, Scopes, Alias  string
	Added, Expires, LastUsed stamp
	Expired                  bool
}

type sessionView struct {
	ID, Browser, Remote      string
	Began, LastUsed, Expires stamp
	Current                  bool
}

const keyHint = "the one line of a .pub file, such as ~/.ssh/id_ed25519.pub; ssh-keygen -t ed25519 makes one"

func (p *pages) accountRoutes(mux *http.ServeMux) {
	mux.Handle("GET /account", p.signedIn(p.account))
	mux.Handle("GET /account/audit", p.signedIn(p.auditOwn))
	mux.Handle("POST /account/keys", p.signedIn(p.addKey))
	mux.Handle("POST /account/keys/{id}/remove", p.signedIn(p.removeKey))
	mux.Handle("POST /account/tokens", p.signedIn(p.createToken))
	mux.Handle("POST /account/tokens/{id}/remove", p.signedIn(p.removeToken))
	mux.Handle("POST /account/sessions/{id}/remove", p.signedIn(p.removeSession))
}

func (p *pages) account(_ http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
	return p.renderAccount(r, who, form{name: "key"}, form{name: "token"})
}

func (p *pages) renderAccount(r *http.Request, who relay.Actor, key, token form) (templ.Component, error) {
	ctx, now := r.Context(), time.Now()
	keys, err := p.Accounts.Keys(ctx, who, who.AccountName)
	if err != nil {
		return nil, err
	}
	tokens, err := p.Accounts.Tokens(ctx, who, who.AccountName)
	if err != nil {
		return nil, err
	}
	sessions, err := p.Accounts.Sessions(ctx, who)
	if err != nil {
		return nil, err
	}
	aliases, err := p.Accounts.Aliases(ctx, who)
	if err != nil {
		return nil, err
	}
	v := accountView{User: who.AccountName, Admin: who.Admin, Key: key, Token: token, Done: successText(r)}
	if r.URL.Query().Get("done") == "key-approved" {
		v.Command = p.connect(who, aliases).SSH
	}
	for i := range keys {
		v.Keys = append(v.Keys, keyViewOf(&keys[i], now))
	}
	for i := range tokens {
		v.Tokens = append(v.Tokens, tokenViewOf(&tokens[i], now))
	}
	for i := range sessions {
		v.Sessions = append(v.Sessions, sessionViewOf(&sessions[i], who, now))
	}
	for i := range aliases {
		v.Aliases = append(v.Aliases, aliases[i].Name)
	}
	return accountPage(v), nil
}

func keyViewOf(k *relay.Key, now time.Time) keyView {
	return keyView{
		ID: k.ID, Name: record.SafeTextMax(k.Name, 100), Fingerprint: k.Fingerprint, Type: k.Type,
		Added: stampOf(k.CreatedAt, now), LastUsed: stampOf(k.LastUsedAt, now),
	}
}

func sessionViewOf(s *relay.Session, who relay.Actor, now time.Time) sessionView {
	v := sessionView{
		ID: s.ID, Browser: record.SafeTextMax(s.UserAgent, 120), Remote: record.SafeTextMax(s.Remote, 60),
		Began: stampOf(s.CreatedAt, now), LastUsed: stampOf(s.LastUsedAt, now), Expires: stampOf(s.ExpiresAt, now),
		Current: s.ID == who.Credential,
	}
	if v.Browser == "" {
		v.Browser = "unknown browser"
	}
	return v
}

func (p *pages) addKey(w http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
	if err := readForm(w, r); err != nil {
		return nil, err
	}
	if err := p.Limits.Create(who); err != nil {
		return nil, err
	}
	f := posted("key", r)
	_, err := p.Accounts.AddKey(r.Context(), who, "", field(r, "name"), r.PostForm.Get("key"))
	if err = f.addError(err, "key"); err != nil {
		return nil, err
	}
	if !f.Failed() {
		return seeOther(w, r, "/account?done=key-added")
	}
	page, err := p.renderAccount(r, who, f, form{name: "token"})
	if err != nil {
		return nil, err
	}
	return formWithErrors(page), nil
}

// removeKey removes a key of the signed-in account. Admins remove keys of other accounts
// with relayd key rm, so an id that is not on this page is not found.
func (p *pages) removeKey(w http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
	if err := p.Accounts.RemoveKey(r.Context(), withoutAdmin(who), r.PathValue("id")); err != nil {
		return nil, err
	}
	return seeOther(w, r, "/account?done=key-removed")
}

func (p *pages) removeToken(w http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
	if err := p.Accounts.RemoveToken(r.Context(), withoutAdmin(who), r.PathValue("id")); err != nil {
		return nil, err
	}
	return seeOther(w, r, "/account?done=token-removed")
}

func (p *pages) removeSession(w http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
	if err := p.Accounts.RemoveSession(r.Context(), who, r.PathValue("id")); err != nil {
		return nil, err
	}
	return seeOther(w, r, "/account?done=logged-out")
}

// withoutAdmin is the actor without the rights of an admin over others.
func withoutAdmin(who relay.Actor) relay.Actor {
	who.Admin = false
	return who
}
