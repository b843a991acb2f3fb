package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"relay"
	"relay/record"
)

func (s *server) addStreamRoute() {
	s.registerRaw(route{
		tag: "events", scope: relay.ScopeEventsRead, resolve: s.resolveQueryAlias,
		query: []*huma.Param{
			{Name: "alias", In: "query", Description: "one alias; if absent, all aliases that you can see", Schema: textSchema},
			{Name: "Last-Event-ID", In: "header", Description: "the id after which to continue; answered by resync when it is no longer known", Schema: textSchema},
		},
		answers: map[string]*huma.Response{"200": answer("A stream without end", "text/event-stream", textSchema)},
	}.on("GET /stream", "stream", "Server-sent events: event (a summary), attempt, tunnel (an alias record), resync (read again)"), s.stream)
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
	c.err = record.ServeStream(w, r.WithContext(ctx), func(*record.EventStream) error { return nil }, func(out *record.EventStream, _ int, items []relay.FeedItem) error {
		for i := range items {
			out.Item(&items[i])
		}
		return nil
	}, sub)
	return nil
}
