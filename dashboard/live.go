package dashboard

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/a-h/templ"
	"golang.org/x/time/rate"

	"relay"
	"relay/record"
)

// Names of live updates, as the script knows them.
const (
	liveRow     = "row"     // a row to insert, or to replace the one of its event
	liveUpdate  = "update"  // a row that only replaces the one of its event
	liveAlias   = "alias"   // the panel of the alias
	liveSide    = "side"    // one alias of the sidebar
	liveSidebar = "sidebar" // all aliases of the sidebar
	liveEvent   = "event"   // the event of the page has changed: read it again
	liveTouch   = "touch"   // some alias has changed: read the list of aliases again
	liveResync  = "resync"  // updates were missed: read the list again
)

// noData is the data of updates that have none; without any they would be no events.
var noData = []byte("{}")

// serveLive answers with the live updates of some aliases (0 = all that the actor sees):
// what begin writes, and what show writes of the items of one of them, named by its index.
func (p *pages) serveLive(w http.ResponseWriter, r *http.Request, who relay.Actor, aliases []int64, begin func(*record.EventStream) error, show func(l *record.EventStream, from int, items []relay.FeedItem) error) (templ.Component, error) {
	release, err := p.Limits.Stream(who)
	if err != nil {
		return nil, err
	}
	defer release()
	var subs []relay.Subscription
	for _, alias := range aliases {
		sub, err := p.Deliver.Subscribe(r.Context(), who, alias, lastID(r))
		if err != nil {
			return nil, err
		}
		defer sub.Close()
		subs = append(subs, sub)
	}
	err = record.ServeStream(w, r, begin, show, subs...)
	if err != nil && r.Context().Err() == nil && !errors.Is(err, relay.ErrNotFound) && relay.AsError(err).Code != relay.CodeStopping {
		p.Log.Warn("live updates ended", "path", r.Pattern, "error", err)
	}
	return nil, nil
}

// lastID is where a viewer goes on: what its browser says after a broken
// connection, or the script after a pause.
func lastID(r *http.Request) string {
	if id := r.Header.Get("Last-Event-ID"); id != "" {
		return id
	}
	return r.URL.Query().Get("after")
}

// streamLive is the live part of the pages of an alias and of its events: rows, the state
// of the alias, and the sidebar.
func (p *pages) streamLive(w http.ResponseWriter, r *http.Request, who relay.Actor, a *relay.Alias) (templ.Component, error) {
	match := &liveMatch{p: p, who: who, filter: filterOf(r.URL.Query(), a.Name), lookups: rate.NewLimiter(liveLookups, liveLookups)}
	begin := func(l *record.EventStream) error {
		isCurrent, err := p.isStreamCurrent(r, who, a)
		if err != nil {
			return err
		}
		if !isCurrent {
			l.Write("", liveResync, noData)
		}
		if !p.isEventCurrent(r, who) {
			l.Write("", liveEvent, noData)
		}
		return p.sidebarStart(r, l)
	}
	return p.serveLive(w, r, who, []int64{a.ID, 0}, begin, func(l *record.EventStream, from int, items []relay.FeedItem) error {
		for i := range items {
			show := func() error { return p.streamItem(r, who, l, match, &items[i]) }
			if from == 1 {
				show = func() error { return p.sidebarItem(r, l, &items[i]) }
			}
			if err := show(); err != nil {
				return err
			}
		}
		return nil
	})
}

// sidebarLive is the live part of all other pages.
func (p *pages) sidebarLive(w http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
	begin := func(l *record.EventStream) error {
		if lastID(r) == "" {
			l.Write("", liveTouch, noData)
		}
		return p.sidebarStart(r, l)
	}
	return p.serveLive(w, r, who, []int64{0}, begin, func(l *record.EventStream, _ int, items []relay.FeedItem) error {
		for i := range items {
			if err := p.sidebarItem(r, l, &items[i]); err != nil {
				return err
			}
		}
		if n := len(items); n > 0 {
			l.Write(items[n-1].ID, liveTouch, noData)
		}
		return nil
	})
}

// sidebarStart shows the sidebar as it is when live updates begin: something may have
// happened since the page was made.
func (p *pages) sidebarStart(r *http.Request, l *record.EventStream) error {
	if lastID(r) != "" {
		return nil
	}
	return writeComponent(r.Context(), l, "", liveSidebar, sidebar(viewerOf(r.Context()), r.PathValue("alias")))
}

// sidebarItem shows an item of the feed of all aliases in the sidebar.
func (p *pages) sidebarItem(r *http.Request, l *record.EventStream, item *relay.FeedItem) error {
	switch item.Name {
	case "tunnel":
		var a record.Alias
		if err := json.Unmarshal(item.Data, &a); err != nil {
			return err
		}
		return writeComponent(r.Context(), l, item.ID, liveSide, sidebarAlias(a, a.Name == r.PathValue("alias")))
	case "resync":
		return writeComponent(r.Context(), l, item.ID, liveSidebar, sidebar(viewerOf(r.Context()), r.PathValue("alias")))
	}
	return nil
}

// liveLookups is how many events a second are read to compare their headers and bodies with
// the filter of one live list; of more the list is read again.
const liveLookups = 20

// liveMatch tells which new and changed events belong into a filtered list.
type liveMatch struct {
	p       *pages
	who     relay.Actor
	filter  streamFilter
	lookups *rate.Limiter
	last    string // id of the event looked up last, which changes a moment later
	hit     bool
}

// of returns Unknown if the list has to be read again to tell.
func (m *liveMatch) of(ctx context.Context, s *record.Summary) record.Verdict {
	if m.filter.err != nil || m.filter.Cursor != "" {
		return record.Miss
	}
	verdict := record.MatchSummary(&m.filter.Filter, s)
	if verdict != record.Unknown {
		return verdict
	}
	if s.ID != m.last {
		id, err := relay.ParseID(s.ID)
		if err != nil || !m.lookups.Allow() {
			return record.Unknown
		}
		hit, err := m.p.Events.Matches(ctx, m.who, id, m.filter.Filter)
		if err != nil {
			return record.Unknown
		}
		m.last, m.hit = s.ID, hit
	}
	if m.hit {
		return record.Hit
	}
	return record.Miss
}

// isEventCurrent tells whether the event beside the list is still as the page showed it,
// whose version is in the address.
func (p *pages) isEventCurrent(r *http.Request, who relay.Actor) bool {
	id, err := relay.ParseID(r.URL.Query().Get("event"))
	if err != nil || lastID(r) != "" {
		return true
	}
	e, err := p.Events.Event(r.Context(), who, id, 0)
	return err == nil && eventVersion(e) == r.URL.Query().Get("ev")
}

// isStreamCurrent tells whether the page still shows what there is: between its making
// and the beginning of its live updates something may have happened.
func (p *pages) isStreamCurrent(r *http.Request, who relay.Actor, a *relay.Alias) (bool, error) {
	version := r.URL.Query().Get("v")
	if version == "" || lastID(r) != "" {
		return true, nil
	}
	head, err := p.aliasHead(r, a)
	if err != nil {
		return false, err
	}
	v := listView{Alias: a.Name, Filter: filterOf(r.URL.Query(), a.Name)}
	if _, err := p.readList(r.Context(), who, &v); err != nil {
		return false, err
	}
	return v.version(&head) == version, nil
}

// streamItem shows one item of the feed as what the page has for it.
func (p *pages) streamItem(r *http.Request, who relay.Actor, l *record.EventStream, match *liveMatch, item *relay.FeedItem) error {
	ctx := r.Context()
	switch item.Name {
	case "event":
		var s record.Summary
		if err := json.Unmarshal(item.Data, &s); err != nil {
			return err
		}
		name := liveUpdate
		switch match.of(ctx, &s) {
		case record.Hit:
			name = liveRow
		case record.Unknown:
			l.Write(item.ID, liveResync, noData)
			return nil
		}
		query := match.filter.query()
		row := rowOf(&s, query)
		if row.Tick = r.URL.Query().Has("tick"); row.Tick {
			query.Set("tick", "1")
			row.Link = withQuery(eventPath(s.ID), query)
		}
		return writeComponent(ctx, l, item.ID, name, eventRow(row, false))
	case "tunnel":
		var a record.Alias
		if err := json.Unmarshal(item.Data, &a); err != nil {
			return err
		}
		head := p.aliasHeadOf(ctx, a)
		p.addQueueProgress(ctx, who, &head, released(r))
		return writeComponent(ctx, l, item.ID, liveAlias, aliasPanel(head))
	case "resync":
		l.Write(item.ID, liveResync, noData)
	}
	return nil
}

func writeComponent(ctx context.Context, l *record.EventStream, id, name string, c templ.Component) error {
	var html bytes.Buffer
	if err := c.Render(ctx, &html); err != nil {
		return err
	}
	l.Write(id, name, html.Bytes())
	return nil
}
