package dashboard

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/a-h/templ"
	"golang.org/x/time/rate"

	"relay"
	"relay/record"
)

// Rhythm of live updates.
const (
	liveCommentInterval = 15 * time.Second // longest silence, so that proxies keep the connection
	liveWriteTimeout    = 30 * time.Second // a viewer who takes nothing for this long is dropped
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

// live is one connection of server-sent events.
type live struct {
	out *http.ResponseController
	w   http.ResponseWriter
	buf bytes.Buffer
}

// serveLive answers with the live updates of the subscriptions until the viewer goes,
// access ends or the server stops. begin writes what the page has to hear first, show
// what a batch means for it. A HEAD request gets no more than the headers. From here on
// the status has gone out, so errors only go to the log.
func (p *pages) serveLive(w http.ResponseWriter, r *http.Request, begin func(*live) error, show func(*live, feedBatch) error, subs ...relay.Subscription) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return
	}
	l := &live{out: http.NewResponseController(w), w: w}
	l.buf.WriteString(": connected\nretry: 1000\n")
	if id := subs[0].Start(); id != "" { // a viewer cut off before its first item goes on from here
		l.buf.WriteString("id: " + id + "\n")
	}
	l.buf.WriteString("\n")
	err := begin(l)
	if err == nil {
		err = l.stream(r.Context(), show, subs)
	}
	if err != nil && r.Context().Err() == nil && !errors.Is(err, relay.ErrNotFound) && relay.AsError(err).Code != relay.CodeStopping {
		p.Log.Warn("live updates ended", "path", r.Pattern, "error", err)
	}
}

// write adds one message; data may have several lines.
func (l *live) write(id, name, data string) {
	if id != "" {
		l.buf.WriteString("id: " + id + "\n")
	}
	l.buf.WriteString("event: " + name + "\n")
	for line := range strings.SplitSeq(data, "\n") {
		l.buf.WriteString("data: " + strings.TrimSuffix(line, "\r") + "\n")
	}
	l.buf.WriteString("\n")
}

// feedBatch is one result of a subscription.
type feedBatch struct {
	from  int // index of the subscription
	items []relay.FeedItem
	err   error
}

// stream sends what show makes of each batch.
func (l *live) stream(ctx context.Context, show func(*live, feedBatch) error, subs []relay.Subscription) error {
	ctx, cancel := context.WithCancel(ctx)
	var readers sync.WaitGroup
	defer readers.Wait()
	defer cancel()
	batches := make(chan feedBatch)
	for i, sub := range subs {
		readers.Go(func() {
			for b := (feedBatch{from: i}); b.err == nil || errors.Is(b.err, context.DeadlineExceeded); {
				b.items, b.err = nextItems(ctx, sub)
				select {
				case batches <- b:
				case <-ctx.Done():
					return
				}
			}
		})
	}
	defer func() { _ = l.out.SetWriteDeadline(time.Time{}) }()
	for {
		// Not every writer has deadlines (h2 has, recorders have not).
		_ = l.out.SetWriteDeadline(time.Now().Add(liveWriteTimeout))
		if _, err := l.w.Write(l.buf.Bytes()); err != nil {
			return nil
		}
		if err := l.out.Flush(); err != nil {
			return nil
		}
		l.buf.Reset()
		select {
		case <-ctx.Done():
			return nil
		case b := <-batches:
			switch {
			case ctx.Err() != nil:
				return nil
			case errors.Is(b.err, context.DeadlineExceeded):
				l.buf.WriteString(":\n\n")
			case b.err != nil:
				return b.err
			}
			if err := show(l, b); err != nil {
				return err
			}
		}
	}
}

func nextItems(ctx context.Context, sub relay.Subscription) ([]relay.FeedItem, error) {
	ctx, cancel := context.WithTimeout(ctx, liveCommentInterval)
	defer cancel()
	return sub.Next(ctx)
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
	release, err := p.Limits.Stream(who)
	if err != nil {
		return nil, err
	}
	defer release()
	sub, err := p.Deliver.Subscribe(r.Context(), who, a.ID, lastID(r))
	if err != nil {
		return nil, err
	}
	defer sub.Close()
	all, err := p.Deliver.Subscribe(r.Context(), who, 0, lastID(r))
	if err != nil {
		return nil, err
	}
	defer all.Close()
	isCurrent, err := p.isStreamCurrent(r, who, a)
	if err != nil {
		return nil, err
	}
	isEventCurrent := p.isEventCurrent(r, who)
	match := &liveMatch{p: p, who: who, filter: filterOf(r.URL.Query(), a.Name), lookups: rate.NewLimiter(liveLookups, liveLookups)}
	begin := func(l *live) error {
		if !isCurrent {
			l.write("", liveResync, "{}")
		}
		if !isEventCurrent {
			l.write("", liveEvent, "{}")
		}
		return p.sidebarStart(r, l)
	}
	p.serveLive(w, r, begin, func(l *live, b feedBatch) error {
		for i := range b.items {
			show := func() error { return p.streamItem(r, who, l, match, &b.items[i]) }
			if b.from == 1 {
				show = func() error { return p.sidebarItem(r, l, &b.items[i]) }
			}
			if err := show(); err != nil {
				return err
			}
		}
		return nil
	}, sub, all)
	return nil, nil
}

// sidebarLive is the live part of all other pages.
func (p *pages) sidebarLive(w http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
	release, err := p.Limits.Stream(who)
	if err != nil {
		return nil, err
	}
	defer release()
	sub, err := p.Deliver.Subscribe(r.Context(), who, 0, lastID(r))
	if err != nil {
		return nil, err
	}
	defer sub.Close()
	begin := func(l *live) error {
		if lastID(r) == "" {
			l.write("", liveTouch, "{}")
		}
		return p.sidebarStart(r, l)
	}
	p.serveLive(w, r, begin, func(l *live, b feedBatch) error {
		for i := range b.items {
			if err := p.sidebarItem(r, l, &b.items[i]); err != nil {
				return err
			}
		}
		if n := len(b.items); n > 0 {
			l.write(b.items[n-1].ID, liveTouch, "{}")
		}
		return nil
	}, sub)
	return nil, nil
}

// sidebarStart shows the sidebar as it is when live updates begin: something may have
// happened since the page was made.
func (p *pages) sidebarStart(r *http.Request, l *live) error {
	if lastID(r) != "" {
		return nil
	}
	return l.writeComponent(r.Context(), "", liveSidebar, sidebar(viewerOf(r.Context()), r.PathValue("alias")))
}

// sidebarItem shows an item of the feed of all aliases in the sidebar.
func (p *pages) sidebarItem(r *http.Request, l *live, item *relay.FeedItem) error {
	switch item.Name {
	case "tunnel":
		var a record.Alias
		if err := json.Unmarshal(item.Data, &a); err != nil {
			return err
		}
		return l.writeComponent(r.Context(), item.ID, liveSide, sidebarAlias(a, a.Name == r.PathValue("alias")))
	case "resync":
		return l.writeComponent(r.Context(), item.ID, liveSidebar, sidebar(viewerOf(r.Context()), r.PathValue("alias")))
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
func (p *pages) streamItem(r *http.Request, who relay.Actor, l *live, match *liveMatch, item *relay.FeedItem) error {
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
			l.write(item.ID, liveResync, "{}")
			return nil
		}
		query := match.filter.query()
		row := rowOf(&s, query)
		if row.Tick = r.URL.Query().Has("tick"); row.Tick {
			query.Set("tick", "1")
			row.Link = withQuery(eventPath(s.ID), query)
		}
		return l.writeComponent(ctx, item.ID, name, eventRow(row, false))
	case "tunnel":
		var a record.Alias
		if err := json.Unmarshal(item.Data, &a); err != nil {
			return err
		}
		head := p.aliasHeadOf(ctx, a)
		p.addQueueProgress(ctx, who, &head, released(r))
		return l.writeComponent(ctx, item.ID, liveAlias, aliasPanel(head))
	case "resync":
		l.write(item.ID, liveResync, "{}")
	}
	return nil
}

func (l *live) writeComponent(ctx context.Context, id, name string, c templ.Component) error {
	var html bytes.Buffer
	if err := c.Render(ctx, &html); err != nil {
		return err
	}
	l.write(id, name, html.String())
	return nil
}
