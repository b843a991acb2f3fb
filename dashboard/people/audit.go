package people

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/a-h/templ"

	"relay"
	"relay/dashboard/page"
)

// auditView is the page of the audit log.
type auditView struct {
	Title, Path string
	Everything  bool // entries of all accounts, for admins
	Filter      auditFilter
	Actions     []string // kinds of actions (see matches) that occur in the entries, for the menu of the filter
	Rows        []*relay.AuditEntry
	Searched    int    // number of entries that were searched
	Bound       bool   // there may be older entries that no page shows
	More        string // address of a page with a longer list, "" = there is none
}

// auditFilter selects entries by actor, action and target.
type auditFilter struct{ Who, What, On string }

// Largest numbers of entries that are read: for the first page, and for the whole list or a filtered one.
const (
	auditShort = 100
	auditLong  = 1000
)

// audit returns the handler of the page of the audit log. If everything is true, the page has all entries and
// is for admins; otherwise it has the actions by and on the viewer's account.
func (p pages) audit(everything bool) page.SignedInHandler {
	return func(_ http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
		v := auditView{Title: "Audit log", Path: "/admin/audit", Everything: everything}
		if !everything {
			v.Title, v.Path = "Your audit log", "/account/audit"
			who.Admin = false
		}
		q := r.URL.Query()
		get := func(name string) string {
			s := strings.TrimSpace(q.Get(name))
			return s[:min(len(s), 200)]
		}
		v.Filter = auditFilter{get("who"), get("what"), get("on")}
		limit := auditShort
		if q.Has("all") || v.Filter != (auditFilter{}) {
			limit = auditLong
		}
		entries, err := p.Accounts.Audit(r.Context(), who, limit)
		if err != nil {
			return nil, err
		}
		v.Searched, v.Bound = len(entries), len(entries) == auditLong
		if limit == auditShort && len(entries) == limit {
			v.More = page.WithQuery(v.Path, url.Values{"all": {""}})
		}
		for i := range entries {
			e := &entries[i]
			if kind, _, _ := strings.Cut(e.Action, "."); !slices.Contains(v.Actions, kind) {
				v.Actions = append(v.Actions, kind)
			}
			if v.Filter.matches(e) {
				v.Rows = append(v.Rows, e)
			}
		}
		if f := v.Filter.What; f != "" && !slices.Contains(v.Actions, f) {
			// The filter may name a whole action, or a kind of action that no searched entry has.
			v.Actions = append(v.Actions, f)
		}
		slices.Sort(v.Actions)
		return auditPage(v), nil
	}
}

// matches reports whether an entry passes the filter. What names an action, or a kind of action: the part of
// an action before the dot. Who and On match a part of a text in any letter case.
func (f *auditFilter) matches(e *relay.AuditEntry) bool {
	part := func(text, of string) bool {
		return of == "" || strings.Contains(strings.ToLower(text), strings.ToLower(of))
	}
	return part(e.Actor, f.Who) && part(e.Target+" "+e.Detail, f.On) &&
		(f.What == "" || e.Action == f.What || strings.HasPrefix(e.Action, f.What+"."))
}
