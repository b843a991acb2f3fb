package alias

import (
	"crypto/sha256"
	"encoding/hex"
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

// Bounds of the list of events.
const (
	streamRows  = 100 // rows of one page
	shownPath   = 200 // runes of a path in a row
	countedMost = 500 // largest number of events that are counted for a filter
	shownCause  = 80  // runes of the error message of a response
)

// List is the list of events on the left of an alias' page and of an event's page.
type List struct {
	Alias, State   string
	Filter         Filter
	Rows           []Row
	Selected       string    // id of the event shown beside the list, "" = none
	Older          string    // address of the next page, "" = none
	All            int       // number of events that the filter selects, as far as counted; 0 = not counted
	AllMore        bool      // there may be more events than All
	Newest         string    // address of the first page, "" = the list is the first page
	SearchedBackTo time.Time // arrival of the oldest event that the search has examined; zero = the search did not stop early
	Live           string    // address of the live updates
	CurlCommand    string    // command that sends a first request
	Online         bool
	Ticks          bool // events have checkboxes, to replay several
	Choices        relay.Choices
	Searches       []searchView
}

type searchView struct {
	relay.SavedSearch
	Link string
	On   bool
}

// overviewView is the state of an alias, shown next to the list of its events.
type overviewView struct {
	Alias  Head
	Notice string
	Missed *Missed   // nil = no challenge was missed
	Plot   *plotView // nil = the alias never had an event
}

// Row is one event in a list. The texts of its summary are safe to show.
type Row struct {
	*record.Summary
	Arrived time.Time // time of arrival, which decides the place of the row, also after a replay
	Link    string
	Tick    bool // the row has a checkbox
	page.Pill
	Note      string // note beside the status, "" = none; see StateNote
	EventType string
}

// Name returns the title of a row: the event type, or method and path.
func (v *Row) Name() string {
	if v.EventType != "" {
		return v.EventType
	}
	return v.Method + " " + v.Path
}

// SentBy returns the actor who sent the event from Relay, or "" for an event that a caller sent.
func SentBy(s *record.Summary) string {
	if s.Sent == nil {
		return ""
	}
	_, name, named := strings.Cut(s.Actor, ":")
	if !named {
		name = s.Actor
	}
	return record.SafeTextMax(name, 60)
}

// hover returns the tooltip of a row: details for which the row has no space.
func (v *Row) hover() string {
	lines := []string{v.Method + " " + v.Path}
	if text := record.Sentence(v.Summary); text != "" {
		lines = append(lines, text)
	}
	if v.Sent != nil {
		lines = append(lines, record.SafeTextMax(record.SentText(v.Sent), 300))
	}
	return strings.Join(lines, "\n")
}

// marks returns how many of these the row has: an error message, a note, labels. A row with one of them has a second
// line in a narrow list, and a row with two of them also in a list of medium width.
func (v *Row) marks() (n int) {
	for _, has := range []bool{v.says(), v.Note != "", v.Label != nil, SentBy(v.Summary) != "", v.BadSignature() != ""} {
		if has {
			n++
		}
	}
	return n
}

// says reports whether the row shows the error message of the response. It does not if the row has a note.
func (v *Row) says() bool { return v.Cause != nil && v.Note == "" }

// failureText returns the reason why an event failed, from the response or from the relay.
func (v *Row) failureText() string {
	switch {
	case v.Cause != nil:
		return *v.Cause
	case v.Error != nil:
		return record.SafeTextMax(v.Error.Message, 200)
	}
	return record.Sentence(v.Summary)
}

// stream returns the page of an alias: its events, newest first, and the state of the alias beside the
// list.
func (p Pages) stream(_ http.ResponseWriter, r *http.Request, who relay.Actor, a *relay.Alias) (templ.Component, error) {
	head, err := p.Head(r, a)
	if err != nil {
		return nil, err
	}
	list := ListOf(r, &head)
	shown := &page.Regions{Title: a.Name, Class: "work overview", Alias: a.Name}
	shown.All = []page.Region{
		{ID: "list", Has: func(address string) bool { return address == list.Self() }, Show: func() (templ.Component, error) {
			err := p.ReadList(r, who, &list)
			if list.Filter.err != nil {
				shown.Status = http.StatusUnprocessableEntity
			}
			return ListPanel(list), err
		}},
		{ID: "detail", Show: func() (templ.Component, error) {
			p.addQueueProgress(r.Context(), who, &head, released(r))
			return overview(overviewView{Alias: head, Notice: releasedNotice(r, head), Missed: p.missedOf(r, who, a, head.Queued), Plot: p.plot(r, who, &head)}), nil
		}},
		{ID: "plot", Inner: true, Show: func() (templ.Component, error) { return aliasPlot(p.plot(r, who, &head)), nil }},
	}
	return shown, nil
}

// ListOf returns the list for the address of a page, before its events are read.
func ListOf(r *http.Request, head *Head) List {
	return List{
		Alias: head.Name, State: head.State, Online: head.Online, CurlCommand: head.CurlCommand,
		Filter: FilterOf(r.URL, head.Name), Ticks: r.URL.Query().Has("tick"),
	}
}

// ReadList reads the events that the filter of a list selects, and the choices for filters. A filter
// that cannot be read is reported in the list, not as an error.
func (p Pages) ReadList(r *http.Request, who relay.Actor, v *List) error {
	err := p.ReadRows(r, who, v)
	if err != nil {
		return err
	}
	if v.Older != "" && v.Filter.Active() {
		if v.All, v.AllMore, err = p.Events.CountEvents(r.Context(), who, v.Filter.Filter, countedMost); err != nil {
			return err
		}
	}
	if v.Choices, err = p.Events.Choices(r.Context(), who, v.Alias); err != nil {
		return err
	}
	saved, err := p.Events.SavedSearches(r.Context(), who, v.Alias)
	for _, s := range saved {
		f := Filter{Typed: s.Words, find: true}
		v.Searches = append(v.Searches, searchView{SavedSearch: s, Link: page.WithQuery(page.AliasPath(v.Alias), f.Query()), On: s.Words == v.Filter.Typed})
	}
	return err
}

// ReadRows reads the rows of a list, and the addresses of its older and newer parts.
func (p Pages) ReadRows(r *http.Request, who relay.Actor, v *List) (err error) {
	var found relay.Page
	if v.Filter.err == nil {
		found, err = p.Events.Events(r.Context(), who, v.Filter.Filter)
	}
	if e := relay.AsError(err); e != nil && e.Code == relay.CodeValidationFailed {
		v.Filter.err, err = e, nil
	}
	path, query := page.AliasPath(v.Alias), v.Query()
	v.Rows, v.Newest, v.Older, v.SearchedBackTo = nil, "", "", time.Time{}
	for i := range found.Events {
		row := rowOf(record.Summarise(&found.Events[i], p.Site, time.Now()), query)
		row.Tick = v.Ticks
		v.Rows = append(v.Rows, row)
	}
	if v.Filter.Cursor != "" {
		query.Del("cursor")
		v.Newest = page.WithQuery(path, query)
	}
	if found.Next != "" {
		query.Set("cursor", found.Next)
		v.Older = page.WithQuery(path, query)
		if len(found.Events) < streamRows {
			v.SearchedBackTo = found.SearchedBackTo
		}
	}
	live := v.Query()
	live.Set("after", page.ViewerOf(r.Context()).FeedID)
	if n := released(r); n > 0 {
		live.Set("released", strconv.Itoa(n))
	}
	v.Live = page.WithQuery(path+"/live", live)
	return err
}

// Shows reports whether the list at the address of a page is this list. If this list begins with the newest
// event, an address with a cursor matches, too, because it has a later part of the same list.
func (v *List) Shows(address string) bool {
	u, err := url.Parse(address)
	if err != nil || v.Filter.Cursor != "" {
		return address == v.Self()
	}
	q := u.Query()
	q.Del("cursor")
	return page.WithQuery(u.Path, q) == v.Self()
}

// Query returns the query that the addresses of the list and of its events share.
func (v *List) Query() url.Values {
	q := v.Filter.Query()
	if v.Ticks {
		q.Set("tick", "1")
	}
	return q
}

// Self returns the address of the page that shows the list and no event.
func (v *List) Self() string { return page.WithQuery(page.AliasPath(v.Alias), v.Query()) }

// TickLink returns the address that turns the checkboxes of the list on or off.
func (v *List) TickLink() string {
	q := v.Query()
	if q.Del("tick"); !v.Ticks {
		q.Set("tick", "1")
	}
	return page.WithQuery(page.AliasPath(v.Alias), q)
}

// Neighbours returns the addresses of the event above and the event below an event in the list, "" =
// none. found is false if the list does not contain the event.
func (v *List) Neighbours(id string) (newer, older string, found bool) {
	at := slices.IndexFunc(v.Rows, func(row Row) bool { return row.ID == id })
	if at > 0 {
		newer = v.Rows[at-1].Link
	}
	if at >= 0 && at+1 < len(v.Rows) {
		older = v.Rows[at+1].Link
	}
	return newer, older, at >= 0
}

// rowOf returns the row for a summary, for lists and live updates. query is the filter of the list;
// the address of the event keeps it.
func rowOf(s *record.Summary, query url.Values) Row {
	id, _ := relay.ParseID(s.ID)
	v := Row{Summary: s, Arrived: id.Time(), Link: page.WithQuery(page.EventPath(s.ID), query), Pill: page.PillOf(s.State, s.Status), Note: StateNote(s)}
	s.Method, s.Path = record.SafeTextMax(s.Method, 20), record.SafeTextMax(s.Path, shownPath)
	if s.Provider != nil && s.Provider.EventType != nil {
		v.EventType = record.SafeTextMax(*s.Provider.EventType, 60)
	}
	return v
}

// Row returns the row of an event. The link of the row contains no filter.
func (p Pages) Row(e *relay.Event) Row {
	return rowOf(record.Summarise(e, p.Site, time.Now()), nil)
}

// StateNote returns a note beside the status of an event: its state, or that the local server has refused
// the host name of the request.
func StateNote(s *record.Summary) string {
	switch {
	case s.Missed():
		return "challenge not answered"
	case s.State == relay.StateQueued && s.AttemptCount > 1 && s.Status == nil:
		return "replay"
	case s.State == relay.StateQueued && s.AttemptCount > 1: // the status is of an earlier attempt
		return "replay queued"
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

// delivery returns a key that the row shares with retries of the same delivery: sender, event type, method,
// path and id. It returns "" for an event sent from Relay, and for CloudEvents, whose id is unique only
// within its source, which a row does not contain.
func (v *Row) delivery() string {
	if v.Provider == nil || v.Provider.DeliveryID == nil || v.Sent != nil || v.Provider.Name == "cloudevents" {
		return ""
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{v.Provider.Name, v.EventType, v.Method, v.Path, *v.Provider.DeliveryID}, "\x00")))
	return hex.EncodeToString(sum[:12])
}
