package dashboard

import (
	"cmp"
	"context"
	"net/http"

	"github.com/a-h/templ"

	"relay"
)

// accountView is what proves an account, and where it is logged in.
type accountView struct {
	User     string
	Admin    bool
	Session  string // the viewer's own
	Keys     []relay.Key
	Tokens   []relay.Token
	Sessions []relay.Session
	Aliases  []relay.Alias // that a token may be limited to
	Failed   form          // the form that was wrong; the zero form = none
	Done     string
	Command  string // to open a first tunnel by, after a key was let in
}

const keyHint = "the one line of a .pub file, such as ~/.ssh/id_ed25519.pub; ssh-keygen -t ed25519 makes one"

func (p *pages) account(r *http.Request, who relay.Actor, failed form) (templ.Component, error) {
	ctx, v := r.Context(), accountView{User: who.AccountName, Admin: who.Admin, Session: who.Credential, Failed: failed, Done: successText(r)}
	var errs [4]error
	v.Keys, errs[0] = p.Accounts.Keys(ctx, who, who.AccountName)
	v.Tokens, errs[1] = p.Accounts.Tokens(ctx, who, who.AccountName)
	v.Sessions, errs[2] = p.Accounts.Sessions(ctx, who)
	v.Aliases, errs[3] = p.Accounts.Aliases(ctx, who)
	if err := cmp.Or(errs[:]...); err != nil {
		return nil, err
	}
	if r.URL.Query().Get("done") == "key-approved" {
		v.Command = p.connect(who, v.Aliases).SSH
	}
	return accountPage(v), nil
}

func (p *pages) addKey(w http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
	if err := p.Limits.Create(who); err != nil {
		return nil, err
	}
	_, err := p.Accounts.AddKey(r.Context(), who, "", field(r, "name"), r.PostForm.Get("key"))
	return formPage(p.account).finish(w, r, who, posted("key", r), err, "key", "/account?done=key-added")
}

// removal removes a key, token or session of the signed-in account. Admins remove those of
// other accounts with relayd, so an id that is not on the page is not found.
func removal(remove func(ctx context.Context, who relay.Actor, id string) error, done string) signedInHandler {
	return func(w http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
		if err := remove(r.Context(), withoutAdmin(who), r.PathValue("id")); err != nil {
			return nil, err
		}
		return seeOther(w, r, "/account?done="+done)
	}
}

// withoutAdmin is the actor without the rights of an admin over others.
func withoutAdmin(who relay.Actor) relay.Actor {
	who.Admin = false
	return who
}
