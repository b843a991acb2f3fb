package dashboard

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net/http"
	"strconv"
	"time"

	"github.com/a-h/templ"

	"relay"
	"relay/record"
)

// Bounds of the stream.
const (
	streamRows   = 100                    // rows of one page
	streamBudget = 350 * time.Millisecond // after which a page shows what was found
	shownPath    = 200                    // runes of a path in a row
)

// streamView is the page of one alias.
type streamView struct {
	Alias          aliasHead
	Filter         streamFilter
	Rows           []rowView
	FilterErrors   form   // what is wrong with the filter, by field
	Older          string // address of the next page, "" = none
	Newest         string // address of the first page, "" = this is it
	SearchedBackTo stamp  // how far a search went, zero = to the end
	Live           string // address of the live updates
	Notice         string
	Plot           *plotView // nil = not on this page
}

// aliasHead is how an alias stands, above its stream.
type aliasHead struct {
	Name, URL, State                        string
	Since, Oldest                           stamp
	Online, Paused                          bool
	TunnelText                              string // of the tunnel
	Queued, QueuedEvents                    int
	Released                                int       // let go by the page before, 0 = none
	Sending                                 []rowView // on their way while others wait
	SSHCommand, RelayUpCommand, CurlCommand string    // what to type: ssh, relay up, a first request
}

// rowView is one event in a list.
type rowView struct {
	ID, Time, TimeShort   string
	Method, Path          string
	State, Outcome, Class string // Outcome: status, or the state while there is none
	Note                  string // state beside a status, "" when delivered
	Latency, Size         string
	Provider, EventType   string
	Replays               int
}

// stream is the page of an alias: its events, newest first.
func (p *pages) stream(_ http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
	a, err := p.Accounts.Alias(r.Context(), who, r.PathValue("alias"))
	if err != nil {
		return nil, err
	}
	head, err := p.aliasHead(r, a)
	if err != nil {
		return nil, err
	}
	p.addQueueProgress(r.Context(), who, &head, released(r))
	v := streamView{Alias: head, Filter: filterOf(r.URL.Query()), Notice: releasedNotice(r, head)}
	page, err := p.list(r, who, a, &v)
	if err != nil {
		return nil, err
	}
	for i := range page.Events {
		v.Rows = append(v.Rows, rowOf(record.Summarise(&page.Events[i], p.Site, time.Now())))
	}
	v.links(a.Name, page)
	if partial(r) {
		return streamFragments(v), nil
	}
	if v.Filter == (streamFilter{}) && len(page.Events) > 0 {
		plot := p.plot(r, who, a.Name, aliasPath(a.Name), page.Events[0].ReceivedAt)
		v.Plot = &plot
	}
	if v.FilterErrors.Failed() {
		return withStatus{streamPage(v), http.StatusUnprocessableEntity}, nil
	}
	return streamPage(v), nil
}

// list reads the rows; a filter that cannot be read is told in v.
func (p *pages) list(r *http.Request, who relay.Actor, a *relay.Alias, v *streamView) (relay.Page, error) {
	f, err := v.Filter.storeFilter(a.Name)
	var page relay.Page
	if err == nil {
		page, err = p.Events.Events(r.Context(), who, f)
	}
	if e := relay.AsError(err); e != nil && e.Code == relay.CodeValidationFailed {
		v.FilterErrors = filterErrors(e)
		return page, nil
	}
	return page, err
}

// links are where the page leads on.
func (v *streamView) links(alias string, page relay.Page) {
	path := aliasPath(alias)
	q := v.Filter.query()
	v.Live = path + "/live"
	live := v.Filter.query()
	if v.Alias.Released > 0 {
		live.Set("released", strconv.Itoa(v.Alias.Released))
	}
	if v.Filter.Cursor == "" {
		live.Set("v", v.version())
	} else {
		first := v.Filter.query()
		first.Del("cursor")
		v.Newest = withQuery(path, first)
	}
	v.Live = withQuery(v.Live, live)
	if page.Next == "" {
		return
	}
	q.Set("cursor", page.Next)
	v.Older = withQuery(path, q)
	if len(page.Events) < streamRows && !page.SearchedBackTo.IsZero() {
		v.SearchedBackTo = exactStamp(page.SearchedBackTo)
	}
}

// OlderLink is where the link to older events leads; without any it is hidden, and
// the script may need it once the list has grown.
func (v *streamView) OlderLink() string {
	if v.Older != "" {
		return v.Older
	}
	return withQuery(aliasPath(v.Alias.Name), v.Filter.query())
}

// version names what the page shows, so that the live updates can tell whether
// something happened between the page and their own beginning.
func (v *streamView) version() string {
	h := fnv.New64a()
	fmt.Fprint(h, v.Alias.State, v.Alias.Paused, v.Alias.Queued, v.Alias.QueuedEvents)
	for i := range v.Rows {
		row := &v.Rows[i]
		fmt.Fprint(h, row.ID, row.Time, row.State, row.Outcome, row.Replays)
	}
	return strconv.FormatUint(h.Sum64(), 36)
}

func (p *pages) aliasHead(r *http.Request, a *relay.Alias) (aliasHead, error) {
	st, err := p.Deliver.Status(r.Context(), []relay.Alias{*a})
	if err != nil {
		return aliasHead{}, err
	}
	if len(st) != 1 {
		return aliasHead{}, relay.ErrNotFound
	}
	return p.aliasHeadOf(r.Context(), record.OfAlias(a, st[0], p.Site)), nil
}

// aliasHeadOf is also what the live updates make of an alias record.
func (p *pages) aliasHeadOf(ctx context.Context, a *record.Alias) aliasHead {
	h := aliasHead{
		Name: a.Name, URL: a.URL, State: a.State, Online: a.Online, Paused: a.Settings.Paused,
		Queued: a.Queued, QueuedEvents: a.QueuedEvents,
		RelayUpCommand: "relay up --port 3000 --alias " + a.Name,
		CurlCommand:    p.curlCommand(a.Name),
	}
	if !a.Online {
		h.SSHCommand = p.tunnelCommand(viewerOf(ctx).User, a.Name)
	}
	if a.Since != nil {
		h.Since = exactStamp(a.Since.Time)
	}
	if a.OldestQueuedAt != nil {
		h.Oldest = exactStamp(a.OldestQueuedAt.Time)
	}
	if a.Tunnel != nil {
		h.TunnelText = record.SafeTextMax(a.Tunnel.Client+" of "+a.Tunnel.User+" from "+a.Tunnel.RemoteAddr, 200)
		if a.Tunnel.Target != nil {
			h.TunnelText += " to " + record.SafeTextMax(*a.Tunnel.Target, 200)
		}
	}
	return h
}

// rowOf is the one row of a summary, in lists and in live updates.
func rowOf(s *record.Summary) rowView {
	v := rowView{
		ID: s.ID, Time: s.ReceivedAt.String(), TimeShort: shortTime(s.ReceivedAt.Time, time.Now()),
		Method: record.SafeTextMax(s.Method, 20), Path: record.SafeTextMax(s.Path, shownPath),
		State: s.State, Outcome: s.State, Class: "state " + s.State, Size: sizeText(s.PayloadSize),
		Replays: max(0, s.AttemptCount-1),
	}
	if s.Status != nil {
		v.Outcome, v.Class = strconv.Itoa(*s.Status), statusClass(*s.Status)
		if s.State != relay.StateDelivered {
			v.Note = s.State
		}
	}
	if s.LatencyMs != nil {
		v.Latency = millisText(*s.LatencyMs)
	}
	if s.Provider != nil {
		v.Provider = providerName(s.Provider.Name)
		if s.Provider.EventType != nil {
			v.EventType = record.SafeTextMax(*s.Provider.EventType, 60)
		}
	}
	return v
}

// statusClass is the first digit's class: s2 … s5.
func statusClass(status int) string { return "s" + strconv.Itoa(status/100%10) }

func shortTime(t, now time.Time) string {
	t = t.UTC()
	if now.UTC().Format(time.DateOnly) == t.Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format("Jan 2 15:04:05")
}

// sizeText is a size for people, in units of 1024.
func sizeText(n int64) string {
	switch {
	case n < 1<<10:
		return strconv.FormatInt(n, 10) + " B"
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	default:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
}

// millisText is a duration for people.
func millisText(ms float64) string {
	switch {
	case ms > 0 && ms < .05:
		return "<0.1 ms"
	case ms < 10:
		return fmt.Sprintf("%.1f ms", ms)
	case ms < 10_000:
		return fmt.Sprintf("%.0f ms", ms)
	default:
		return fmt.Sprintf("%.1f s", ms/1000)
	}
}

// countText is a number and its noun.
func countText(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// errText is the sentence of an error for people; "" for nil.
func errText(err error) string {
	if err == nil || errors.Is(err, relay.ErrNotFound) {
		return ""
	}
	return relay.AsError(err).Detail
}
