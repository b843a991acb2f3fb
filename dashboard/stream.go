package dashboard

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/a-h/templ"

	"relay"
	"relay/record"
)

// Bounds of the stream.
const (
	streamRows = 100 // rows of one page
	shownPath  = 200 // runes of a path in a row
)

// listView is the list of events at the left of an alias' page and of an event's page.
type listView struct {
	Alias, State   string
	Filter         streamFilter
	Rows           []rowView
	Selected       string    // id of the event shown beside the list, "" = none
	Older          string    // address of the next page, "" = none
	Newest         string    // address of the first page, "" = this is it
	SearchedBackTo time.Time // how far a search went, zero = to the end
	Live           string    // address of the live updates
	CurlCommand    string    // sends a first request
	Online         bool
	Ticks          bool // events can be ticked, to replay several
	Choices        relay.Choices
	Searches       []searchView
}

// searchView is a search that the viewer keeps by a name.
type searchView struct {
	relay.SavedSearch
	Link string
	On   bool
}

// streamView is the page of one alias: the list of its events, and beside it how the
// alias stands.
type streamView struct {
	List   listView
	Alias  aliasHead
	Notice string
	Plot   *plotView // nil = nothing to draw
}

// rowView is one event in a list. The texts of its summary are safe to show.
type rowView struct {
	*record.Summary
	Link string
	Tick bool // with a box
	pill
	Note      string // beside the status, "" = nothing; see stateNote
	EventType string
}

// pill is how something ended: the status, or the state while there is none.
type pill struct{ Outcome, Class string }

func pillOf(state string, status *int) pill {
	if status == nil {
		return pill{state, "state " + state}
	}
	return pill{strconv.Itoa(*status), "s" + strconv.Itoa(*status/100%10)}
}

// attemptPill is the pill of an attempt.
func attemptPill(a *relay.Attempt) pill {
	if a.HasResponse {
		return pillOf(a.State, &a.Status)
	}
	return pillOf(a.State, nil)
}

// Name is what a row is called: the event type, or method and path.
func (v *rowView) Name() string {
	if v.EventType != "" {
		return v.EventType
	}
	return v.Method + " " + v.Path
}

// stream is the page of an alias: its events, newest first.
func (p *pages) stream(_ http.ResponseWriter, r *http.Request, who relay.Actor, a *relay.Alias) (templ.Component, error) {
	head, err := p.aliasHead(r, a)
	if err != nil {
		return nil, err
	}
	p.addQueueProgress(r.Context(), who, &head, released(r))
	v := streamView{Alias: head, Notice: releasedNotice(r, head)}
	if v.List, err = p.list(r, who, &head); err != nil {
		return nil, err
	}
	if v.List.Filter.Active() || len(v.List.Rows) > 0 { // else nothing ever came
		v.Plot = p.plot(r, who, &v.List)
	}
	page := streamPage(v)
	if partial(r) {
		page = streamFragments(v)
	}
	if v.List.Filter.err != nil {
		return withStatus{page, http.StatusUnprocessableEntity}, nil
	}
	return page, nil
}

// list reads the events that the filter in the address of a page selects. A filter that
// cannot be read is reported in the list, not as an error.
func (p *pages) list(r *http.Request, who relay.Actor, head *aliasHead) (listView, error) {
	v := listView{
		Alias: head.Name, State: head.State, Online: head.Online, CurlCommand: head.CurlCommand,
		Filter: filterOf(r.URL, head.Name), Ticks: r.URL.Query().Has("tick"),
	}
	err := p.readList(r, who, &v)
	if err != nil {
		return v, err
	}
	if v.Choices, err = p.Events.Choices(r.Context(), who, v.Alias); err != nil {
		return v, err
	}
	saved, err := p.Events.SavedSearches(r.Context(), who, v.Alias)
	for _, s := range saved {
		f := streamFilter{Typed: s.Words, find: true}
		v.Searches = append(v.Searches, searchView{SavedSearch: s, Link: withQuery(aliasPath(v.Alias), f.query()), On: s.Words == v.Filter.Typed})
	}
	return v, err
}

// readList reads the rows of a list, and the addresses that the list leads on to.
func (p *pages) readList(r *http.Request, who relay.Actor, v *listView) (err error) {
	var page relay.Page
	if v.Filter.err == nil {
		page, err = p.Events.Events(r.Context(), who, v.Filter.Filter)
	}
	if e := relay.AsError(err); e != nil && e.Code == relay.CodeValidationFailed {
		v.Filter.err, err = e, nil
	}
	path, query := aliasPath(v.Alias), v.query()
	v.Rows, v.Newest, v.Older, v.SearchedBackTo = nil, "", "", time.Time{}
	for i := range page.Events {
		row := rowOf(record.Summarise(&page.Events[i], p.Site, time.Now()), query)
		row.Tick = v.Ticks
		v.Rows = append(v.Rows, row)
	}
	if v.Filter.Cursor != "" {
		query.Del("cursor")
		v.Newest = withQuery(path, query)
	}
	if page.Next != "" {
		query.Set("cursor", page.Next)
		v.Older = withQuery(path, query)
		if len(page.Events) < streamRows {
			v.SearchedBackTo = page.SearchedBackTo
		}
	}
	live := v.query()
	live.Set("after", viewerOf(r.Context()).FeedID)
	if n := released(r); n > 0 {
		live.Set("released", strconv.Itoa(n))
	}
	v.Live = withQuery(path+"/live", live)
	return err
}

// query is what the addresses of the list and of its events keep.
func (v *listView) query() url.Values {
	q := v.Filter.query()
	if v.Ticks {
		q.Set("tick", "1")
	}
	return q
}

// Self is the address of the list without an event beside it.
func (v *listView) Self() string { return withQuery(aliasPath(v.Alias), v.query()) }

// TickLink turns the boxes of the list on, or off.
func (v *listView) TickLink() string {
	q := v.query()
	if q.Del("tick"); !v.Ticks {
		q.Set("tick", "1")
	}
	return withQuery(aliasPath(v.Alias), q)
}

// neighbours are the addresses of the events above and below one in the list, "" = none.
func (v *listView) neighbours(id string) (newer, older string, found bool) {
	at := slices.IndexFunc(v.Rows, func(row rowView) bool { return row.ID == id })
	if at > 0 {
		newer = v.Rows[at-1].Link
	}
	if at >= 0 && at+1 < len(v.Rows) {
		older = v.Rows[at+1].Link
	}
	return newer, older, at >= 0
}

// rowOf is the one row of a summary, in lists and in live updates; query is the filter of
// the list, which the address of the event keeps.
func rowOf(s *record.Summary, query url.Values) rowView {
	v := rowView{Summary: s, Link: withQuery(eventPath(s.ID), query), pill: pillOf(s.State, s.Status), Note: stateNote(s)}
	s.Method, s.Path = record.SafeTextMax(s.Method, 20), record.SafeTextMax(s.Path, shownPath)
	if s.Provider != nil && s.Provider.EventType != nil {
		v.EventType = record.SafeTextMax(*s.Provider.EventType, 60)
	}
	return v
}

// row is a row for an event, whose address keeps no filter.
func (p *pages) row(e *relay.Event) rowView {
	return rowOf(record.Summarise(e, p.Site, time.Now()), nil)
}

// stateNote says what the status of an event does not say: its state, or that the local
// server refused the address of the request.
func stateNote(s *record.Summary) string {
	switch {
	case s.Status == nil:
		return ""
	case s.State != relay.StateDelivered:
		return s.State
	case s.AddressRefused() != nil && s.AddressRefused().Code == record.WarningForwardedNeeded:
		return "https not known"
	case s.AddressRefused() != nil:
		return "Host refused"
	}
	return ""
}

// delivery is what retries of the sender have in common, "" = unknown.
func (v *rowView) delivery() string {
	if v.Provider == nil || v.Provider.DeliveryID == nil {
		return ""
	}
	return record.SafeTextMax(v.Provider.Name+" "+*v.Provider.DeliveryID, 200)
}

// optionalMillis is "" where no time was measured.
func optionalMillis(ms *float64) string {
	if ms == nil {
		return ""
	}
	return record.MillisText(*ms)
}

// sentence ends the text of an error for people, which in the API has no full stop.
func sentence(text string) string {
	if text == "" || strings.HasSuffix(text, ".") {
		return text
	}
	return text + "."
}
