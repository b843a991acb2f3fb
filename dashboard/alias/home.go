package alias

import (
	"net/http"
	"strings"

	"github.com/a-h/templ"

	"relay"
	"relay/dashboard/page"
	"relay/record"
)

// homeView is the list of aliases, with the way to the first event.
type homeView struct {
	User    string
	Aliases []record.Alias
	Create  page.Form
	Connect page.Connect
	Done    string
	Refused []relay.RefusedForward // lately: ssh -N shows its user no reason
}

func (p Pages) home(r *http.Request, who relay.Actor, create page.Form) (templ.Component, error) {
	aliases, err := p.Accounts.Aliases(r.Context(), who)
	if err != nil {
		return nil, err
	}
	v := homeView{User: who.AccountName, Create: create.Named("alias"), Connect: p.Connect(who, aliases), Done: page.SuccessText(r)}
	if v.Aliases, err = record.ReadAliases(r.Context(), p.Deliver, aliases, p.Site); err != nil {
		return nil, err
	}
	if v.Refused, err = p.Accounts.RefusedForwards(r.Context(), who.Account); err != nil {
		return nil, err
	}
	if page.Wants(r, "aliases") {
		return homeAliases(v), nil
	}
	return homePage(v), nil
}

// refusalSource says where refused tunnels were asked for from, and how often.
func refusalSource(x relay.RefusedForward) string {
	from := " from " + x.Remote.Addr().String()
	if x.Times > 1 {
		from += ", " + record.Count(x.Times, "time", "times")
	}
	return from
}

// createAlias makes an alias and goes on to its page, which says how to connect.
func (p Pages) createAlias(w http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
	f := page.Posted("alias", r)
	name := strings.ToLower(page.Field(r, "name"))
	var err error
	if relay.ValidLabel(name) && p.Site.Reserved(name) {
		f.Errors["name"] = "this name is reserved; choose another one"
	} else {
		_, err = p.Accounts.CreateAlias(r.Context(), who, name, "")
	}
	return page.FormPage(p.home).Finish(w, r, who, f, err, "name", page.AliasPath(name))
}
