package alias

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/a-h/templ"

	"relay"
	"relay/dashboard/page"
	"relay/record"
)

// homeView is a page of the list of aliases, with instructions for the first event.
type homeView struct {
	User       string
	Aliases    []homeAlias // aliases on this page
	All        int         // aliases of the viewer
	Find       string      // the text that the user searches in names
	Found      int         // number of aliases whose name contains Find
	Prev, Next string      // addresses of the previous and next page, "" = none
	Src        string      // address of this page
	Create     page.Form
	Connect    page.Connect
	Done       string
	Refused    []relay.RefusedForward // recently refused forwards; the page shows the reasons because ssh -N does not
}

// homeAlias is an alias in the list, with the results of its events in the last day.
type homeAlias struct {
	record.Alias
	relay.AliasHealth
}

// Bounds of the list of aliases.
const (
	homeRows    = 50  // aliases on one page
	healthMost  = 100 // number of aliases whose newest events are read, beginning with the alias that got an event last
	healthSpan  = 24 * time.Hour
	healthParts = 24
)

func (p Pages) home(r *http.Request, who relay.Actor, create page.Form) (templ.Component, error) {
	aliases, err := page.Aliases(r.Context())
	if err != nil {
		return nil, err
	}
	v := homeView{User: who.AccountName, All: len(aliases), Create: create.Named("alias"), Connect: p.Connect(who, aliases), Done: page.SuccessText(r), Src: "/"}
	if r.Method == http.MethodGet {
		v.Src, v.Find = r.URL.RequestURI(), strings.ToLower(strings.TrimSpace(r.URL.Query().Get("name")))
	}
	if err := p.readHome(r, who, aliases, &v); err != nil {
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

// readHome reads one page of aliases: sorted so that aliases whose newest event failed come first, then
// those with a queue.
func (p Pages) readHome(r *http.Request, who relay.Actor, aliases []relay.Alias, v *homeView) error {
	ids := map[string]int64{}
	for i := range aliases {
		ids[aliases[i].Name] = aliases[i].ID
	}
	aliases = slices.DeleteFunc(aliases, func(a relay.Alias) bool { return !strings.Contains(a.Name, v.Find) })
	all, err := record.ReadAliases(r.Context(), p.Deliver, aliases, p.Site)
	if err != nil {
		return err
	}
	health := p.health(r, who, all, ids)
	rank := func(a *record.Alias) int {
		h := health[ids[a.Name]]
		switch {
		case h.Failing():
			return 0
		case a.Queued > 0:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(all, func(a, b record.Alias) int { return rank(&a) - rank(&b) })
	v.Found = len(all)
	at, _ := strconv.Atoi(r.URL.Query().Get("page"))
	at = min(max(at, 1), max((len(all)-1)/homeRows+1, 1))
	for _, a := range all[(at-1)*homeRows : min(at*homeRows, len(all))] {
		v.Aliases = append(v.Aliases, homeAlias{a, health[ids[a.Name]]})
	}
	if at > 1 {
		v.Prev = v.pageLink(at - 1)
	}
	if at*homeRows < len(all) {
		v.Next = v.pageLink(at + 1)
	}
	return nil
}

// health counts the events and errors of the aliases that got events last. If the store cannot count, the
// page is shown without these counts, and the list does not begin with the aliases that fail.
func (p Pages) health(r *http.Request, who relay.Actor, all []record.Alias, ids map[string]int64) map[int64]relay.AliasHealth {
	since := time.Now().Add(-healthSpan)
	var active []*record.Alias
	for i := range all {
		if page.TimeOf(all[i].LastEventAt).After(since) {
			active = append(active, &all[i])
		}
	}
	if len(active) == 0 {
		return nil
	}
	slices.SortFunc(active, func(a, b *record.Alias) int { return b.LastEventAt.Compare(a.LastEventAt.Time) })
	var asked []int64
	for _, a := range active[:min(len(active), healthMost)] {
		asked = append(asked, ids[a.Name])
	}
	health, err := p.Events.AliasHealth(r.Context(), who, asked, since, healthParts)
	if err != nil {
		p.Log.Warn("cannot read the health of aliases", "err", err)
	}
	return health
}

// pageLink returns the address of a page of the list.
func (v *homeView) pageLink(n int) string {
	q := url.Values{"page": {strconv.Itoa(n)}}
	if v.Find != "" {
		q.Set("name", v.Find)
	}
	return page.WithQuery("/", q)
}

// Size of a sparkline.
const sparkWidth, sparkHeight = 120.0, 20.0

// spark returns the bars of the sparkline as the path of an SVG image: the events of each part of the day, or
// only the errors.
func (a *homeAlias) spark(errors bool) string {
	most := 1
	for _, part := range a.Parts {
		most = max(most, part.Events)
	}
	var d strings.Builder
	width := sparkWidth / healthParts
	for i, part := range a.Parts {
		n := part.Events
		if errors {
			n = part.Errors
		}
		if n > 0 {
			fmt.Fprintf(&d, "M%.0f %.0fh%.0fv-%.1fh-%.0fz", float64(i)*width, sparkHeight, width-1, max(sparkHeight*float64(n)/float64(most), 2), width-1)
		}
	}
	return d.String()
}

// dayText describes the sparkline in words.
func (a *homeAlias) dayText() string {
	events := record.Count(a.Events, "event", "events")
	if a.Partial {
		events = "newest " + events
	}
	if a.Errors == 0 {
		return events
	}
	return events + ", " + strconv.Itoa(percent(a.Errors, a.Events)) + " % errors"
}

// percent returns n as a percentage of all, at least 1, so that one of a thousand is not shown as 0.
func percent(n, all int) int { return max(1, (200*n+all)/(2*all)) }

// shareText returns a number and its percentage of all, or a dash for 0.
func shareText(n, all int) string {
	if n == 0 {
		return "–"
	}
	return strconv.Itoa(n) + " (" + strconv.Itoa(percent(n, all)) + " %)"
}

// lastPill returns the label for the result of the newest event.
func (a *homeAlias) lastPill() page.Pill {
	if a.LastStatus == 0 {
		return page.PillOf(a.LastState, nil)
	}
	return page.PillOf(a.LastState, &a.LastStatus)
}

// refusalSource returns the address whose forwards were refused, and how often, as a text.
func refusalSource(x relay.RefusedForward) string {
	from := " from " + x.Remote.Addr().String()
	if x.Times > 1 {
		from += ", " + record.Count(x.Times, "time", "times")
	}
	return from
}

// createAlias makes an alias and redirects to its page, which explains how to connect.
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
