package dashboard

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/a-h/templ"

	"relay"
	"relay/record"
	"relay/wire"
)

// Bounds of the inspector.
const (
	shownBody     = 256 << 10 // bytes of one body
	shownBodies   = 4 << 20   // bytes of all bodies of a page together
	shownAttempts = 8         // columns: the original and the newest
	shownLines    = 300       // header lines, query and form fields of one table
	shownValue    = 4 << 10   // runes of a value in a table
)

// eventView is the inspector of one event.
type eventView struct {
	ID, Alias, State, AliasState string
	Method, Path, URL            string
	Outcome, Class               string
	Facts                        []fact
	Error                        string
	HostRefused                  string // the warning that the local server refused the Host header, or ""
	Blocker                      string // why there is no replay, "" = there is
	Queued                       string // place in the queue, "" = nothing waits
	SSHCommand                   string // how to bring the tunnel back, "" = it is there
	Provider                     *providerView
	Request                      messageView
	Attempts                     []attemptView
	Hidden                       string // address that shows all attempts, "" = all are shown
	HiddenCount                  int
	Choices                      []diffChoice
	Diff                         *diffView
	Shares                       sharesView
	Live                         string

	auto bool // autoDeliver of the alias
}

// pair is a name and a value, both safe to show.
type pair struct{ Name, Value string }

// fact is a pair, or a name and a time.
type fact struct {
	pair
	At stamp
}

// messageView is a request or a response.
type messageView struct {
	Start    string // request or status line
	Headers  []pair
	Query    []pair
	Trailers []pair
	Interim  []messageView
	State    string // of a response, "" = complete
	Body     bodyView
}

// event is the inspector of one event.
func (p *pages) event(_ http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
	v, err := p.readEventView(r, who)
	if err != nil {
		return nil, err
	}
	if partial(r) {
		return eventFragment(v), nil
	}
	return eventPage(v), nil
}

// readEvent reads an event with as much of its bodies as the page shows. The first read
// gives the number of attempts, among which the budget for bodies is divided.
func (p *pages) readEvent(r *http.Request, who relay.Actor) (*relay.Event, error) {
	id, err := relay.ParseID(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	e, err := p.Events.Event(r.Context(), who, id, 0)
	if err != nil {
		return nil, err
	}
	return p.Events.Event(r.Context(), who, id, min(shownBody, shownBodies/(1+len(e.Attempts))))
}

func (p *pages) readEventView(r *http.Request, who relay.Actor) (eventView, error) {
	e, err := p.readEvent(r, who)
	if err != nil {
		return eventView{}, err
	}
	a, err := p.Accounts.Alias(r.Context(), who, e.Alias)
	if err != nil {
		return eventView{}, err
	}
	head, err := p.aliasHead(r, a)
	if err != nil {
		return eventView{}, err
	}
	now, s := time.Now(), record.Summarise(e, p.Site, time.Now())
	row := rowOf(s)
	v := eventView{
		ID: s.ID, Alias: e.Alias, State: e.State, AliasState: head.State,
		Method: record.SafeTextMax(s.Method, 60), Path: record.SafeTextMax(s.Path, 2000), URL: record.SafeTextMax(s.URL, 2000),
		Outcome: row.Outcome, Class: row.Class, Facts: factsOf(e, s),
		Blocker: blockerText(e.Blocker), Provider: providerOf(e, now),
		Live: withQuery(eventPath(s.ID, "live"), url.Values{"v": {eventVersion(e)}}),
	}
	if s.Error != nil {
		v.Error = s.Error.Code + ": " + record.SafeText(s.Error.Message)
	}
	for _, w := range record.Of(e, p.Site, now).Warnings {
		if w.Code == record.WarningHostRefused {
			v.HostRefused = record.SafeText(w.Message)
		}
	}
	if !head.Online && !head.Paused {
		v.SSHCommand = head.SSHCommand
	}
	v.auto = a.Settings.AutoDeliver
	v.Request = p.requestView(r, e)
	v.addAttempts(r, e)
	v.Shares = p.readShares(r, who, e, a)
	return v, nil
}

// eventVersion names what the page of an event shows.
func eventVersion(e *relay.Event) string {
	h := fnv.New64a()
	fmt.Fprint(h, e.State, e.LastReceivedAt.UnixMilli(), e.Request.Body.State)
	for i := range e.Attempts {
		a := &e.Attempts[i]
		fmt.Fprint(h, a.N, a.State, a.Position, a.Status, a.ResponseState)
	}
	return strconv.FormatUint(h.Sum64(), 36)
}

// factsOf are the lines below the title.
func factsOf(e *relay.Event, s *record.Summary) []fact {
	at := func(name string, t time.Time) fact {
		return fact{pair{Name: name}, stamp{ISO: t.UTC().Format(stampISO), Text: t.UTC().Format("2006-01-02 15:04:05.000 UTC")}}
	}
	facts := []fact{at("Received", e.ReceivedAt)}
	for _, f := range []pair{
		{"From", s.RemoteAddr},
		{"Protocol", s.HTTPVersion + map[bool]string{true: " over TLS", false: ""}[s.TLS]},
		{"Host", record.SafeTextMax(s.Host, 300)},
		{"Event", s.ID},
	} {
		facts = append(facts, fact{pair: f})
	}
	if e.LastReceivedAt.After(e.ReceivedAt) {
		facts = append(facts, at("Last replayed", e.LastReceivedAt))
	}
	return facts
}

// blockerText says why an event cannot be replayed, as a sentence; "" where it can.
func blockerText(blocker string) string {
	if blocker == "" {
		return ""
	}
	return "This event cannot be replayed: " + record.BlockerText(blocker) + "."
}

func (p *pages) requestView(r *http.Request, e *relay.Event) messageView {
	var m messageView
	if len(e.Request.Head) > 0 {
		m.Start = startLine(e.Request.Head)
	}
	m.Headers, m.Trailers = pairsOf(wire.Fields, e.Request.Head), pairsOf(wire.Trailers, e.Request.Lines)
	m.Query = queryPairs(e.Target)
	m.Body = showBody(bodySource{
		id: "request", what: "Request body", body: &e.Request.Body, head: e.Request.Head, download: apiEventPath(e.ID.String(), "request.body"),
		image: eventPath(e.ID.String(), "image", "0"), param: "body", query: r.URL.Query(), path: r.URL.Path,
	})
	return m
}

// startLine is the first line of a head.
func startLine(head []byte) string {
	for i, c := range head {
		if c == '\r' || c == '\n' {
			head = head[:i]
			break
		}
	}
	return record.SafeTextMax(string(head), 2000)
}

// pairsOf are header or trailer lines in their order, names as they were written.
func pairsOf(read func([]byte) []wire.Field, p []byte) []pair {
	if len(p) == 0 {
		return nil
	}
	fields := read(p)
	list := make([]pair, 0, min(len(fields), shownLines))
	for i, f := range fields {
		if i == shownLines {
			return append(list, pair{"…", fmt.Sprintf("%d more lines; the raw download has them", len(fields)-i)})
		}
		list = append(list, pair{record.SafeTextMax(string(f.Name), 300), record.SafeTextMax(string(f.Value), shownValue)})
	}
	return list
}

// image sends a body as the picture that it is, if it is one of a few kinds that
// carry no script.
func (p *pages) image(w http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
	id, err := relay.ParseID(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	const magic = 64 // bytes that tell what a body is
	e, err := p.Events.Event(r.Context(), who, id, magic)
	if err != nil {
		return nil, err
	}
	n, err := strconv.Atoi(r.PathValue("n"))
	body := &e.Request.Body
	for i := range e.Attempts {
		if a := &e.Attempts[i]; a.N == n {
			body = &a.Response.Body
		}
	}
	kind := imageKind(body.Data)
	if err != nil || n < 0 || n > len(e.Attempts) || kind == "" {
		return nil, relay.ErrNotFound
	}
	part, err := p.Events.BodyPart(r.Context(), id, n, 0)
	if err != nil {
		return nil, err
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Security-Policy", "sandbox; default-src 'none'")
	_, err = w.Write(part)
	for i := 1; i < body.Parts && err == nil; i++ {
		if part, err = p.Events.BodyPart(r.Context(), id, n, i); err == nil {
			_, err = w.Write(part)
		}
	}
	if err != nil {
		panic(http.ErrAbortHandler) // the head is out: nobody may take it for whole
	}
	return nil, nil
}

// eventLive streams change notices for the page of an event.
func (p *pages) eventLive(w http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
	id, err := relay.ParseID(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	e, err := p.Events.Event(r.Context(), who, id, 0)
	if err != nil {
		return nil, err
	}
	release, err := p.Limits.Stream(who)
	if err != nil {
		return nil, err
	}
	defer release()
	sub, err := p.Deliver.Subscribe(r.Context(), who, e.AliasID, lastID(r))
	if err != nil {
		return nil, err
	}
	defer sub.Close()
	if e, err = p.Events.Event(r.Context(), who, id, 0); err != nil { // as it is now that nothing is missed
		return nil, err
	}
	l := openLive(w)
	if r.Method == http.MethodHead {
		return nil, nil
	}
	if v := r.URL.Query().Get("v"); v != "" && v != eventVersion(e) && lastID(r) == "" {
		l.write("", liveEvent, "{}")
	}
	n := eventChanges{id: id.String(), queued: e.State == relay.StateQueued}
	p.logLiveEnd(r, l.stream(r.Context(), sub, func(item *relay.FeedItem) error {
		if n.affects(item) {
			l.write(item.ID, liveEvent, "{}")
		}
		return nil
	}))
	return nil, nil
}

// eventChanges tells which items of the feed change what the page of an event shows.
type eventChanges struct {
	id     string
	queued bool   // then its place in the queue is shown
	tunnel string // state of the tunnel as last heard
}

func (n *eventChanges) affects(item *relay.FeedItem) bool {
	var about struct{ ID, EventID, State string }
	if json.Unmarshal(item.Data, &about) != nil {
		return false
	}
	switch item.Name {
	case "resync":
		return true
	case "tunnel": // also for every change of the queue
		changed := about.State != n.tunnel
		n.tunnel = about.State
		return changed || n.queued
	case "event":
		if about.ID == n.id {
			n.queued = about.State == relay.StateQueued
		}
	}
	return about.ID == n.id || about.EventID == n.id
}
