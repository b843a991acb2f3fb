package dashboard

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/a-h/templ"

	"relay"
)

// adminView is who has an account here, and the nodes that serve.
type adminView struct {
	Users   []userView
	Nodes   []nodeView
	Unowned []unownedAlias
	Add     form
	Done    string
}

type userView struct {
	Name  string
	Admin bool
	You   bool
	Added stamp
}

// nodeView is one relayd that serves the store.
type nodeView struct {
	Name, State, Version string
	Tunnels              int
	Self                 bool // it made the page
	Note                 string
	Since, LastSeen      stamp
}

// unownedAlias is an alias whose owner was removed.
type unownedAlias struct {
	Name, FormerOwner string
	Transfer          form
}

func (p *pages) adminRoutes(mux *http.ServeMux) {
	admin := func(handle signedInHandler) http.Handler { return p.signedIn(onlyAdmin(handle)) }
	mux.Handle("GET /admin", admin(p.admin))
	mux.Handle("GET /admin/audit", admin(p.auditAll))
	mux.Handle("POST /admin/users", admin(p.addUser))
	mux.Handle("POST /admin/users/{user}/invite", admin(p.inviteUser))
	mux.Handle("POST /admin/users/{user}/remove", admin(p.removeUser))
	mux.Handle("POST /admin/aliases/{alias}/transfer", admin(p.transferUnowned))
}

func onlyAdmin(handle signedInHandler) signedInHandler {
	return func(w http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
		if !who.Admin {
			return nil, relay.Errorf(relay.CodeForbidden, "only an admin may see this page")
		}
		return handle(w, r, who)
	}
}

func (p *pages) admin(_ http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
	return p.renderAdmin(r, who, form{name: "user"}, "", form{})
}

// renderAdmin shows the forms given in place of empty ones; transfer is that of the
// alias transferred.
func (p *pages) renderAdmin(r *http.Request, who relay.Actor, add form, transferred string, transfer form) (templ.Component, error) {
	users, err := p.Accounts.Accounts(r.Context(), who)
	if err != nil {
		return nil, err
	}
	unowned, err := p.Accounts.UnownedAliases(r.Context(), who)
	if err != nil {
		return nil, err
	}
	nodes, err := p.Accounts.Nodes(r.Context())
	if err != nil {
		return nil, err
	}
	v := adminView{Add: add, Done: successText(r)}
	for _, n := range nodes {
		view := nodeView{
			Name: n.Name, State: n.State, Version: n.Version, Tunnels: n.Tunnels, Self: n.Self,
			Since: stampOf(n.Since, time.Now()), LastSeen: stampOf(n.LastSeenAt, time.Now()),
		}
		if len(n.UnreachableFrom) > 0 {
			view.Note = "from " + strings.Join(n.UnreachableFrom, ", ")
		}
		v.Nodes = append(v.Nodes, view)
	}
	for _, u := range users {
		v.Users = append(v.Users, userView{u.Name, u.Admin, u.ID == who.Account, stampOf(u.CreatedAt, time.Now())})
	}
	for _, a := range unowned {
		o := unownedAlias{a.Name, a.OwnerName, form{name: "of-" + a.Name}}
		if a.Name == transferred {
			transfer.name = o.Transfer.name
			o.Transfer = transfer
		}
		v.Unowned = append(v.Unowned, o)
	}
	return adminPage(v), nil
}

func (p *pages) addUser(w http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
	if err := readForm(w, r); err != nil {
		return nil, err
	}
	f := posted("user", r)
	_, err := p.Accounts.CreateAccount(r.Context(), who, field(r, "name"), f.Has("admin", "on"))
	if err = f.addError(err, "name"); err != nil {
		return nil, err
	}
	if !f.Failed() {
		return seeOther(w, r, "/admin?done=user-added")
	}
	page, err := p.renderAdmin(r, who, f, "", form{})
	if err != nil {
		return nil, err
	}
	return formWithErrors(page), nil
}

// inviteLifetime is how long an invitation is good for.
const inviteLifetime = 3 * 24 * time.Hour

// inviteUser answers with the link itself: nothing keeps it.
func (p *pages) inviteUser(_ http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
	if err := p.Limits.Create(who); err != nil {
		return nil, err
	}
	user := r.PathValue("user")
	secret, err := p.Accounts.CreateInvite(r.Context(), who, user, inviteLifetime)
	if err != nil {
		return nil, err
	}
	return secretPage(secretView{
		Title:  "Invitation for " + user,
		What:   "This link lets one person add an SSH key to the account " + user + " and logs them in. It works once, within 3 days.",
		Secret: p.Site.URL("/invite/" + secret),
		Then:   "Send it only to that person.",
		Back:   "/admin",
	}), nil
}

// removeUser removes another account: that of the last admin would leave nobody who
// could bring it back.
func (p *pages) removeUser(w http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
	user := r.PathValue("user")
	if user == who.AccountName {
		return nil, relay.Errorf(relay.CodeConflict, "your own account cannot be removed here; another admin can do it")
	}
	if err := p.Accounts.RemoveAccount(r.Context(), who, user); err != nil {
		return nil, err
	}
	return seeOther(w, r, "/admin?done=user-removed")
}

// transferUnowned transfers an alias whose owner was removed.
func (p *pages) transferUnowned(w http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
	if err := readForm(w, r); err != nil {
		return nil, err
	}
	alias, f := r.PathValue("alias"), posted("", r)
	if err := p.checkUnowned(r, who, alias); err != nil {
		return nil, err
	}
	_, err := p.Accounts.TransferAlias(r.Context(), who, alias, field(r, "user"))
	if err = f.addError(err, "user"); err != nil {
		return nil, err
	}
	if !f.Failed() {
		return seeOther(w, r, "/admin?done=transferred")
	}
	page, err := p.renderAdmin(r, who, form{name: "user"}, alias, f)
	if err != nil {
		return nil, err
	}
	return formWithErrors(page), nil
}

// checkUnowned returns nil for aliases whose owner was removed. Only its owner can transfer any other alias.
func (p *pages) checkUnowned(r *http.Request, who relay.Actor, alias string) error {
	unowned, err := p.Accounts.UnownedAliases(r.Context(), who)
	for _, a := range unowned {
		if a.Name == alias {
			return nil
		}
	}
	return errors.Join(err, relay.ErrNotFound)
}
