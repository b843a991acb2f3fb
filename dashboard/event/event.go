package event

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/a-h/templ"

	"relay"
	"relay/dashboard/alias"
	"relay/dashboard/body"
	"relay/dashboard/page"
	"relay/record"
	reading "relay/record/body"
	"relay/wire"
)

// shownBodies is the largest number of body bytes on a page that shows all its attempts side by side.
const shownBodies = 4 << 20

// eventView is the content of the inspector, the part of a page that shows one event.
type eventView struct {
	*record.Summary // with the texts made safe to show
	AliasState      string
	page.Pill
	Note         string
	Latency      string
	At           time.Time
	Replayed     time.Time
	Happened     string        // one sentence about the last attempt, if it failed; else ""
	HostRefused  string        // warning that the local server refused the Host header; "" = none
	Blocker      string        // reason why the event cannot be replayed; "" = it can be
	Queued       string        // what the queued attempt waits for, and its position in the queue; "" = no attempt is queued
	SSHCommand   string        // command that opens the tunnel; "" = the alias is online
	Missed       *alias.Missed // the challenge that was not answered; nil = the event is no such challenge
	SecretSender string        // the sender, if this request contains a secret of the sender that the viewer can store; "" = none
	Confirm      string        // link of Amazon SNS that a user has to open; "" = none
	Provider     *providerView
	Request      messageView
	Attempts     []attemptView
	Longest      float64 // longest total time of an attempt, in ms: all bars have this scale
	Strip        bool    // only some attempts are columns, so the page has a timeline to choose others from
	Opened       int     // number of the attempt that the user has chosen, else of the newest
	AllAttempts  string  // address that shows each attempt as a column
	OlderReplays string  // address of the page with older replays, "" = there are none
	NewerReplays string  // address of the page with the newest replays, "" = this is that page
	Diff         *body.Diff
	Signed       *signatureView // nil = no signature scheme is known for the event
	Resend       *resendView    // nil = no new event can be made from this one
	Shares       sharesView
	Exports      []exportItem
	Mark         relay.Mark
	Typed        page.Form // typed values of the mark, if another user has changed it in the meantime
	Back         string    // address of the list
	Delete       string    // address of the page that deletes the event, with the filter of the list
	Newer, Older string    // addresses of the events above and below this one in the list, "" = not known

	auto bool // the setting autoDeliver of the alias
}

// Title returns the event type, or method and path.
func (v *eventView) Title() string {
	if v.Provider != nil && v.Provider.EventType != "" {
		return v.Provider.EventType
	}
	return v.Method + " " + v.Path
}

// sentChanges returns the changes with which this event was made from another one.
func (v *eventView) sentChanges() string {
	return record.SafeTextMax(strings.Join(v.Sent.Changes, ", "), 300)
}

// Failed reports whether the event has no response, or the last response has an error status.
func (v *eventView) Failed() bool { return v.Status == nil || *v.Status >= 400 }

// messageView is a request or a response, as a page shows it.
type messageView struct {
	Start    string // request line or status line
	Headers  []body.Pair
	Query    []body.Pair
	Trailers []body.Pair
	Interim  []messageView
	State    string // state of an incomplete response, "" = complete
	Body     body.View
}

// event returns the page of one event: the list of its alias, and next to it the inspector.
func (p pages) event(_ http.ResponseWriter, r *http.Request, who relay.Actor, id relay.ID) (templ.Component, error) {
	v, head, err := p.readEventView(r, who, id)
	if err != nil {
		return nil, err
	}
	return p.renderEvent(r, who, v, head)
}

// renderEvent renders the inspector, and also the list unless the page already shows it.
func (p pages) renderEvent(r *http.Request, who relay.Actor, v eventView, head alias.Head) (templ.Component, error) {
	list := alias.ListOf(r, &head)
	list.Selected = v.ID
	return &page.Regions{Title: v.Title(), Class: "work", Alias: v.Alias, All: []page.Region{
		{ID: "list", Has: list.Shows, Show: func() (templ.Component, error) {
			err := p.readListOf(r, who, &list, &v)
			return alias.ListPanel(list), err
		}},
		{ID: "detail", Show: func() (templ.Component, error) { return eventFragment(v), nil }},
	}}, nil
}

func (p pages) readListOf(r *http.Request, who relay.Actor, list *alias.List, v *eventView) error {
	if err := p.ReadList(r, who, list); err != nil {
		return err
	}
	newer, older, found := list.Neighbours(v.ID)
	if !found && !list.Filter.Active() && list.Filter.Cursor == "" {
		id, _ := relay.ParseID(v.ID)
		// The event is older than the part of the list that was read, so the list is read again, beginning
		// with the event.
		list.Filter.Cursor = id.Next().String()
		if err := p.ReadRows(r, who, list); err != nil {
			return err
		}
		newer, older, _ = list.Neighbours(v.ID)
	}
	v.Newer, v.Older = newer, older
	return nil
}

// readEventView reads an event with the part of its bodies that the page shows.
func (p pages) readEventView(r *http.Request, who relay.Actor, id relay.ID) (v eventView, head alias.Head, err error) {
	most := body.Shown
	if allAttempts(r.URL.Query()) {
		most = min(most, shownBodies/(2+relay.ShownAttempts))
	}
	e, err := p.Events.Event(r.Context(), who, id, most)
	if err != nil {
		return v, head, err
	}
	a, err := p.Accounts.Alias(r.Context(), who, e.Alias)
	if err != nil {
		return v, head, err
	}
	if head, err = p.Head(r, a); err != nil {
		return v, head, err
	}
	now := time.Now()
	whole := record.Of(e, p.Site, now)
	s, filter := &whole.Summary, alias.FilterOf(r.URL, e.Alias)
	s.Method, s.Path = record.SafeTextMax(s.Method, 60), record.SafeTextMax(s.Path, 2000)
	s.URL, s.Host = record.SafeTextMax(s.URL, 2000), record.SafeTextMax(s.Host, 300)
	v = eventView{
		Summary: s, AliasState: head.State, At: e.ReceivedAt,
		Pill: page.PillOf(s.State, s.Status), Note: alias.StateNote(s), Latency: page.OptionalMillis(s.LatencyMs),
		Blocker: blockerText(e.Blocker), Provider: providerOf(e, now),
		Back: page.WithQuery(page.AliasPath(e.Alias), filter.Query()), Delete: deletePath(e, filter.Query()), Exports: exportsOf(e),
	}
	if e.LastReceivedAt.After(e.ReceivedAt) {
		v.Replayed = e.LastReceivedAt
	}
	switch {
	case s.Error != nil:
		v.Happened = s.Error.Code + ": " + record.SafeText(s.Error.Message)
	case s.Cause != nil:
		v.Happened = record.Sentence(s)
	}
	if w := whole.AddressRefused(); w != nil {
		v.HostRefused = record.SafeText(w.Message)
	}
	v.Missed = alias.MissedOf(e, a, who)
	v.Confirm = record.ConfirmationLink(e)
	v.SecretSender = p.secretSenderOf(r, who, e, a)
	if !head.Online && !head.Settings.Paused {
		v.SSHCommand = head.SSHCommand
	}
	v.auto = a.Settings.AutoDeliver
	v.Request = *messageViewOf(r, e, 0, &e.Request, body.Source{
		ID: "request", What: "Request body", Param: "body", Download: page.APIEventPath(e.ID.String(), "request.body"),
	})
	v.Request.Query = body.QueryPairs(e.Target)
	if core := cores[e.Provider.Name]; core != (coreOf{}) {
		v.Request.Body.Core, v.Request.Body.Folded = core.member, core.folded
	}
	v.Signed, v.Resend = signatureOf(e, s, a.Owner == who.Account), resendOf(e)
	if err := p.addAttempts(r, who, &v, e, most); err != nil {
		return v, head, err
	}
	v.Shares, v.Mark = p.readShares(r, who, e, a), e.Mark
	return v, head, nil
}

// blockerText returns the reason why an event cannot be replayed, as a sentence; "" = it can be
// replayed.
func blockerText(blocker string) string {
	if blocker == "" {
		return ""
	}
	return "This event cannot be replayed: " + record.BlockerText(blocker) + "."
}

// messageViewOf returns the view of message m of an event. n is the number of the message in addresses:
// 0 is the request, k the response of attempt k. source describes its body.
func messageViewOf(r *http.Request, e *relay.Event, n int, m *relay.Message, source body.Source) *messageView {
	id, number := e.ID.String(), strconv.Itoa(n)
	source.Body, source.Head, source.Query = &m.Body, m.Head, r.URL.Query()
	source.Page, source.Image, source.Whole = page.EventPath(id), page.EventPath(id, "image", number), page.EventPath(id, "json", number)
	return &messageView{
		Start: startLine(m.Head), Headers: pairsOf(wire.Fields(m.Head)), Trailers: pairsOf(wire.Trailers(m.Lines)),
		Body: body.Show(source),
	}
}

// startLine returns the first line of a head.
func startLine(head []byte) string {
	line, _, _ := bytes.Cut(head, []byte("\n"))
	return record.SafeTextMax(string(bytes.TrimSuffix(line, []byte("\r"))), 2000)
}

// pairsOf returns header or trailer lines in their order, with their names unchanged.
func pairsOf(fields []wire.Field) []body.Pair {
	list := make([]body.Pair, 0, min(len(fields), body.ShownLines))
	for i, f := range fields {
		if i == body.ShownLines {
			return append(list, body.Pair{Name: "…", Value: fmt.Sprintf("%d more lines; the raw download has them", len(fields)-i)})
		}
		list = append(list, body.Pair{Name: record.SafeTextMax(string(f.Name), 300), Value: record.SafeText(string(f.Value))})
	}
	return list
}

// readMessage reads the message of an event with the number in the address: 0 is the request, k the response
// of attempt k. most is the largest number of bytes that it reads of the body.
func (p pages) readMessage(r *http.Request, who relay.Actor, id relay.ID, most int) (n int, m *relay.Message, err error) {
	if r.PathValue("n") == "0" {
		e, err := p.Events.Request(r.Context(), who, id, most)
		if err != nil {
			return 0, nil, err
		}
		return 0, &e.Request, nil
	}
	if n, err = strconv.Atoi(r.PathValue("n")); err != nil || n < 1 {
		return 0, nil, relay.ErrNotFound
	}
	list, err := p.Events.Attempts(r.Context(), who, id, relay.AttemptPage{Before: n + 1, Limit: 1, MaxBody: most})
	if err == nil && (len(list) == 0 || list[0].N != n) {
		err = relay.ErrNotFound
	}
	if err != nil {
		return 0, nil, err
	}
	return n, &list[0].Response, nil
}

// wholeText sends a JSON body with indentation, for the view that draws only its visible part.
func (p pages) wholeText(w http.ResponseWriter, r *http.Request, who relay.Actor, id relay.ID) (templ.Component, error) {
	n, m, err := p.readMessage(r, who, id, 0)
	if err != nil {
		return nil, err
	}
	stored, err := record.OpenBody(r.Context(), p.Events, id, n, &m.Body)
	if err != nil {
		return nil, err
	}
	done, err := reading.Turn(r.Context(), int(min(m.Body.Stored, body.WholeJSON)))
	if err != nil {
		return nil, err
	}
	defer done()
	data, err := io.ReadAll(io.LimitReader(stored, body.WholeJSON+1))
	if err != nil {
		return nil, err
	}
	said := reading.Read(reading.LabelOf(m.Head), data, int64(len(data)) < m.Body.Size, body.WholeJSON)
	if said.Form != reading.JSON || said.Cut || len(said.Faults) > 0 {
		return nil, relay.Errorf(relay.CodeConflict, "this body is too long to be shown, or not JSON to its end; the download has it")
	}
	out, _ := said.Plain()
	out = reading.Readable(out)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, body.Visible(out))
	return nil, nil
}

// image sends a body as an image, if its media type cannot contain scripts.
func (p pages) image(w http.ResponseWriter, r *http.Request, who relay.Actor, id relay.ID) (templ.Component, error) {
	// The type of a body is recognised by its first bytes.
	const magic = 64
	n, m, err := p.readMessage(r, who, id, magic)
	if err != nil {
		return nil, err
	}
	kind := body.ImageKind(m.Body.Data)
	if kind == "" {
		return nil, relay.ErrNotFound
	}
	stored, err := record.OpenBody(r.Context(), p.Events, id, n, &m.Body)
	if err != nil {
		return nil, err
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Security-Policy", "sandbox; default-src 'none'")
	if _, err := io.Copy(w, stored); err != nil {
		// The head was already sent, so the response must look incomplete.
		panic(http.ErrAbortHandler)
	}
	return nil, nil
}

// exportItem is a format in which an event can be exported.
type exportItem struct {
	Format, Name, What string
	Refused            string // reason why this event cannot be exported in the format; "" = it can be
}

// exportMenu lists all of record.ExportFormats, in the order of the menu.
var exportMenu = []exportItem{
	{Format: "curl", Name: "cURL", What: "a shell command that sends the same bytes"},
	{Format: "go", Name: "Go test", What: "sends the exact bytes to your handler and checks the status"},
	{Format: "js", Name: "JavaScript test", What: "the same, for node --test"},
	{Format: "python", Name: "Python test", What: "the same, for pytest or python"},
	{Format: "har", Name: "HAR", What: "request and responses, for browser tools and Postman"},
	{Format: "json", Name: "JSON", What: "the whole record, as the API returns it"},
}

// exportsOf returns the menu for an event.
func exportsOf(e *relay.Event) []exportItem {
	list := slices.Clone(exportMenu)
	for i := range list {
		if refused := record.ExportRefusal(e, list[i].Format); refused != nil {
			list[i].Refused = refused.Detail + "."
		}
	}
	return list
}
