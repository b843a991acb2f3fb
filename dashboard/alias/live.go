package alias

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/a-h/templ"

	"relay"
	"relay/dashboard/page"
	"relay/record"
)

// Names of live updates, as the page's script expects them.
const (
	liveRow    = "row"    // a row to insert, or to put in place of its event's current row
	liveUpdate = "update" // a row that only replaces its event's current row
	liveRegion = "region" // an element that replaces the element with the same id
	liveReread = "reread" // the id of an element whose region the script reads again
	liveResync = "resync" // updates were missed, so the script reads the list again
)

// noData is the data of updates that need none, because browsers ignore an update without data.
var noData = []byte("{}")

// lastID returns the id of the last item that the viewer has received. On the first connection, it returns
// the id of the last item before the data of the page was read.
func lastID(r *http.Request) string {
	return cmp.Or(r.Header.Get("Last-Event-ID"), r.URL.Query().Get("after"))
}

// sidebarLive sends the live updates of pages that show no alias.
func (p Pages) sidebarLive(w http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
	return p.live(w, r, who, nil)
}

// live sends the live updates of a page. Every page gets the sidebar; a page of alias a or of one of its
// events also gets rows and the state of a.
func (p Pages) live(w http.ResponseWriter, r *http.Request, who relay.Actor, a *relay.Alias) (templ.Component, error) {
	release, err := p.Limits.Stream(who)
	if err != nil {
		return nil, err
	}
	defer release()
	aliases, filter := []int64{0}, Filter{}
	if a != nil {
		aliases, filter = append(aliases, a.ID), FilterOf(r.URL, a.Name)
	}
	var subs []relay.Subscription
	for _, alias := range aliases {
		sub, err := p.Deliver.Subscribe(r.Context(), who, alias, lastID(r))
		if err != nil {
			return nil, err
		}
		defer sub.Close()
		subs = append(subs, sub)
	}

	match := &record.LiveMatcher{Filter: filter.Filter, Look: func(ctx context.Context, id relay.ID) (bool, error) {
		return p.Events.Matches(ctx, who, id, filter.Filter)
	}}
	err = record.ServeStream(w, r, func(l *record.EventStream) error { return p.liveStart(r, a, l) }, func(l *record.EventStream, from int, items []relay.FeedItem) error {
		for _, item := range items {
			var err error
			switch {
			case from > 0:
				err = p.streamItem(r, who, l, filter, match, &item)
			case a != nil:
				// Items of the sidebar have no id, because a page that reconnects must continue after the
				// last item of its alias.
				item.ID = ""
				fallthrough
			default:
				err = p.sidebarItem(r, l, &item)
			}
			if err != nil {
				return err
			}
		}
		switch n := len(items); {
		case n == 0:
		case from > 0:
			l.Write(items[n-1].ID, liveReread, []byte("plot"))
		case a == nil:
			l.Write(items[n-1].ID, liveReread, []byte("aliases"))
		}
		return nil
	}, subs...)
	if err != nil && r.Context().Err() == nil && !errors.Is(err, relay.ErrNotFound) && relay.AsError(err).Code != relay.CodeStopping {
		p.Log.Warn("live updates ended", "path", r.Pattern, "err", err)
	}
	return nil, nil
}

// liveStart begins the live updates of a page that does not name the last item of the feed before the page
// was made: changes may be missing in that page, so it is told to read its data again, and gets the sidebar.
// Other pages get nothing here.
func (p Pages) liveStart(r *http.Request, a *relay.Alias, l *record.EventStream) error {
	switch {
	case lastID(r) != "":
		return nil
	case a == nil:
		l.Write("", liveReread, []byte("aliases"))
	default:
		l.Write("", liveResync, noData)
	}
	return writeComponent(r.Context(), l, "", liveRegion, page.Sidebar(page.ViewerOf(r.Context()), r.PathValue("alias")))
}

// sidebarItem updates the sidebar for an item of the feed of all aliases.
func (p Pages) sidebarItem(r *http.Request, l *record.EventStream, item *relay.FeedItem) error {
	switch item.Name {
	case "tunnel":
		var a record.Alias
		if err := json.Unmarshal(item.Data, &a); err != nil {
			return err
		}
		return writeComponent(r.Context(), l, item.ID, liveRegion, page.SidebarAlias(a, a.Name == r.PathValue("alias")))
	case "resync":
		return writeComponent(r.Context(), l, item.ID, liveRegion, page.Sidebar(page.ViewerOf(r.Context()), r.PathValue("alias")))
	}
	return nil
}

// streamItem sends the update of the page for one item of the feed.
func (p Pages) streamItem(r *http.Request, who relay.Actor, l *record.EventStream, filter Filter, match *record.LiveMatcher, item *relay.FeedItem) error {
	ctx := r.Context()
	switch item.Name {
	case "event":
		var s record.Summary
		if err := json.Unmarshal(item.Data, &s); err != nil {
			return err
		}
		name := liveUpdate
		if filter.err == nil && filter.Cursor == "" {
			switch match.Match(ctx, &s) {
			case record.Hit:
				name = liveRow
			case record.Unknown:
				l.Write(item.ID, liveResync, noData)
				return nil
			}
		}
		query := filter.Query()
		row := rowOf(&s, query)
		if row.Tick = r.URL.Query().Has("tick"); row.Tick {
			query.Set("tick", "1")
			row.Link = page.WithQuery(page.EventPath(s.ID), query)
		}
		return writeComponent(ctx, l, item.ID, name, eventRow(row, false))
	case "tunnel":
		var a record.Alias
		if err := json.Unmarshal(item.Data, &a); err != nil {
			return err
		}
		head := p.aliasHeadOf(ctx, a)
		p.addQueueProgress(ctx, who, &head, released(r))
		return writeComponent(ctx, l, item.ID, liveRegion, aliasPanel(head))
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
