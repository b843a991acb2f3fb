package dashboard

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/a-h/templ"

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
	liveRow    = "row"    // a row to put in, or in place of the one of its event
	liveUpdate = "update" // a row only for where its event is shown already
	liveAlias  = "alias"  // how the alias stands
	liveEvent  = "event"  // the event of the page changed: read it again
	liveResync = "resync" // something was missed: read the list again
)

// live is one connection of server-sent events.
type live struct {
	out *http.ResponseController
	w   http.ResponseWriter
	buf bytes.Buffer
}

// openLive starts the answer; a HEAD request gets no more than its headers.
func openLive(w http.ResponseWriter) *live {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	l := &live{out: http.NewResponseController(w), w: w}
	l.buf.WriteString(": connected\nretry: 1000\n\n")
	return l
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

// stream sends what show makes of each item until the viewer goes, access ends or the
// server stops.
func (l *live) stream(ctx context.Context, sub relay.Subscription, show func(*relay.FeedItem) error) error {
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
		items, err := nextItems(ctx, sub)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, context.DeadlineExceeded):
			l.buf.WriteString(":\n\n")
		case err != nil:
			return err
		}
		for i := range items {
			if err := show(&items[i]); err != nil {
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

// streamLive is the live part of an alias' page.
func (p *pages) streamLive(w http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
	a, err := p.Accounts.Alias(r.Context(), who, r.PathValue("alias"))
	if err != nil {
		return nil, err
	}
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
	fresh, err := p.isStreamCurrent(r, who, a)
	if err != nil {
		return nil, err
	}
	l := openLive(w)
	if r.Method == http.MethodHead {
		return nil, nil
	}
	if !fresh {
		l.write("", liveResync, "{}")
	}
	f := filterOf(r.URL.Query())
	p.logLiveEnd(r, l.stream(r.Context(), sub, func(item *relay.FeedItem) error { return p.streamItem(r, who, l, &f, item) }))
	return nil, nil
}

// logLiveEnd notes why live updates stopped; that people leave is nothing to note.
func (p *pages) logLiveEnd(r *http.Request, err error) {
	if err != nil && !errors.Is(err, relay.ErrNotFound) && relay.AsError(err).Code != relay.CodeStopping {
		p.Log.Warn("live updates ended", "path", r.Pattern, "error", err)
	}
}

// isStreamCurrent tells whether the page still shows what there is: between its making
// and the beginning of its live updates something may have happened.
func (p *pages) isStreamCurrent(r *http.Request, who relay.Actor, a *relay.Alias) (bool, error) {
	version := r.URL.Query().Get("v")
	if version == "" || lastID(r) != "" {
		return true, nil
	}
	v := streamView{Filter: filterOf(r.URL.Query())}
	var err error
	if v.Alias, err = p.aliasHead(r, a); err != nil {
		return false, err
	}
	page, err := p.list(r, who, a, &v)
	if err != nil {
		return false, err
	}
	for i := range page.Events {
		v.Rows = append(v.Rows, rowOf(record.Summarise(&page.Events[i], p.Site, time.Now())))
	}
	return v.version() == version, nil
}

// streamItem shows one item of the feed as what the page has for it.
func (p *pages) streamItem(r *http.Request, who relay.Actor, l *live, f *streamFilter, item *relay.FeedItem) error {
	ctx := r.Context()
	switch item.Name {
	case "event":
		var s record.Summary
		if err := json.Unmarshal(item.Data, &s); err != nil {
			return err
		}
		name := liveUpdate
		if f.matches(&s) {
			name = liveRow
		}
		return l.writeComponent(ctx, item.ID, name, eventRow(rowOf(&s)))
	case "tunnel":
		var a record.Alias
		if err := json.Unmarshal(item.Data, &a); err != nil {
			return err
		}
		head := p.aliasHeadOf(ctx, &a)
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
