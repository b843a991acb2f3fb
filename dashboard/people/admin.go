package people

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"

	"github.com/a-h/templ"

	"relay"
	"relay/dashboard/page"
)

// adminView holds the accounts and the serving nodes.
type adminView struct {
	You     string
	Users   []relay.Account
	Usage   map[int64]relay.AccountUsage
	Nodes   []relay.Node
	Unowned []relay.Alias // aliases whose owner was removed
	Failed  page.Form     // the form with an error; the zero form = none
	Done    string
}

// stored returns the stored bytes of an account and its limit, as text.
func (v *adminView) stored(account int64) string {
	if v.Usage == nil {
		return "not known"
	}
	u := v.Usage[account]
	text := relay.FormatBytes(u.Bytes)
	if u.Limit > 0 {
		text += " of " + relay.FormatBytes(u.Limit)
	}
	return text
}

// queued returns the queued events of an account and its limit, as text.
func (v *adminView) queued(account int64) string {
	if v.Usage == nil {
		return "not known"
	}
	u := v.Usage[account]
	text := strconv.Itoa(u.Queued)
	if u.QueueLimit > 0 {
		text += " of " + strconv.Itoa(u.QueueLimit)
	}
	return text
}

// onlyAdmin returns a handler that only admins may use.
func (p pages) onlyAdmin(handle page.SignedInHandler) http.Handler {
	return p.SignedIn(func(w http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
		if !who.Admin {
			return nil, relay.Errorf(relay.CodeForbidden, "only an admin may see this page")
		}
		return handle(w, r, who)
	})
}

func (p pages) admin(r *http.Request, who relay.Actor, failed page.Form) (templ.Component, error) {
	v := adminView{You: who.AccountName, Failed: failed, Done: page.SuccessText(r)}
	var errs [3]error
	v.Users, errs[0] = p.Accounts.Accounts(r.Context(), who)
	v.Unowned, errs[1] = p.Accounts.UnownedAliases(r.Context(), who)
	v.Nodes, errs[2] = p.Accounts.Nodes(r.Context())
	// After an error the accounts are shown without their usage.
	v.Usage, _ = p.Accounts.AccountUsage(r.Context(), who)
	return adminPage(v), cmp.Or(errs[:]...)
}

func (p pages) addUser(w http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
	f := page.Posted("user", r)
	_, err := p.Accounts.CreateAccount(r.Context(), who, page.Field(r, "name"), f.Has("admin", "on"))
	return page.FormPage(p.admin).Finish(w, r, who, f, err, "name", "/admin?done=user-added")
}

// inviteUser answers with the invitation link itself, because the link is not stored.
func (p pages) inviteUser(_ http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
	user, secret := r.PathValue("user"), page.MadeByForm(r)
	if *secret == "" {
		var err error
		if *secret, _, err = p.Grants().CreateInvite(r.Context(), who, user); err != nil {
			return nil, err
		}
	}
	return page.SecretPage(page.Secret{
		Title:  "Invitation for " + user,
		What:   "This link lets one person add an SSH key to the account " + user + " and logs them in. It works once, within 3 days.",
		Secret: p.Site.URL("/invite/" + *secret),
		Then:   "Send it only to that person.",
		Back:   "/admin",
	}), nil
}

// removeUser removes another account. Admins cannot remove their own account here, so that at least one admin
// is left.
func (p pages) removeUser(w http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
	user := r.PathValue("user")
	if user == who.AccountName {
		return nil, relay.Errorf(relay.CodeConflict, "your own account cannot be removed here; another admin can do it")
	}
	err := p.Accounts.RemoveAccount(r.Context(), who, user)
	return page.SeeOther(w, r, err, "/admin?done=user-removed")
}

// transferUnowned transfers an alias whose owner was removed. Any other alias can only be transferred
// by its owner.
func (p pages) transferUnowned(w http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
	alias := r.PathValue("alias")
	unowned, err := p.Accounts.UnownedAliases(r.Context(), who)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(unowned, func(a relay.Alias) bool { return a.Name == alias }) {
		return nil, relay.ErrNotFound
	}
	_, err = p.Accounts.TransferAlias(r.Context(), who, alias, page.Field(r, "user"))
	return page.FormPage(p.admin).Finish(w, r, who, page.Posted("of-"+alias, r), err, "user", "/admin?done=transferred")
}
