package api

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"relay"
	"relay/record"
)

func (s *server) addStreamRoute() {
	query := []*huma.Param{{Name: "Last-Event-ID", In: "header", Description: "the id after which to continue; answered by resync when it is no longer known", Schema: textSchema}}
	for _, f := range record.FilterNames() {
		query = append(query, &huma.Param{Name: f.Name, In: "query", Description: f.Doc, Schema: textSchema})
	}
	s.registerRaw(route{
		tag: "events", scope: relay.ScopeEventsRead, resolve: s.resolveList, query: query,
		answers: map[string]*huma.Response{"200": answer("A stream without end", "text/event-stream", textSchema)},
	}.on("GET /stream", "stream", "Server-sent events: event (a summary), attempt, tunnel (an alias record), resync (read again). Filters select events and attempts, as in the list"), s.stream)
}

func (s *server) stream(w http.ResponseWriter, r *http.Request, c *requestInfo) error {
	ctx := r.Context()
	if !c.who.ExpiresAt.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, c.who.ExpiresAt)
		defer cancel()
	}
	leave, err := s.Limits.Stream(c.who)
	if err != nil {
		return err
	}
	defer leave()
	sub, err := s.Deliver.Subscribe(ctx, c.who, aliasID(c.alias), r.Header.Get("Last-Event-ID"))
	if err != nil {
		return err
	}
	defer sub.Close()
	match := &record.LiveMatcher{Filter: c.filter, Look: func(ctx context.Context, id relay.ID) (bool, error) {
		return s.Events.Matches(ctx, c.who, id, c.filter)
	}}
	other := c.filter
	other.Alias = "" // the subscription is limited to the alias already
	all := len(record.FilterValues(other)) == 0
	c.err = record.ServeStream(w, r.WithContext(ctx), func(*record.EventStream) error { return nil }, func(out *record.EventStream, _ int, items []relay.FeedItem) error {
		for i := range items {
			verdict := record.Hit
			if !all {
				verdict = matchItem(ctx, match, &items[i])
			}
			switch verdict {
			case record.Hit:
				out.Item(&items[i])
			case record.Unknown:
				out.Write(items[len(items)-1].ID, "resync", []byte("{}"))
				return nil
			}
		}
		return nil
	}, sub)
	return nil
}

// matchItem returns the verdict of a filter on an item. Items that are not about events are always selected.
func matchItem(ctx context.Context, match *record.LiveMatcher, item *relay.FeedItem) record.Verdict {
	var err error
	var m record.AttemptMessage
	switch item.Name {
	case "event":
		m.Event = &record.Summary{}
		err = json.Unmarshal(item.Data, m.Event)
	case "attempt":
		err = json.Unmarshal(item.Data, &m)
	default:
		return record.Hit
	}
	if err != nil || m.Event == nil {
		return record.Miss
	}
	return match.Match(ctx, m.Event)
}
