package api

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"relay"
)

// Rhythm of the live stream.
const (
	streamCommentInterval = 15 * time.Second // longest silence, so that proxies keep the connection
	streamWriteTimeout    = 30 * time.Second // a viewer who takes nothing for this long is dropped
)

func (s *server) addStreamRoute() {
	text := &huma.Schema{Type: "string"}
	s.registerRaw(route{
		method: http.MethodGet, path: "/stream", id: "stream", tag: "events",
		summary: "Server-sent events: event (a summary), attempt, tunnel (an alias record), resync (read again)",
		scope:   relay.ScopeEventsRead, resolve: s.resolveQueryAlias,
		query: []*huma.Param{
			{Name: "alias", In: "query", Description: "one alias; if absent, all aliases that you can see", Schema: text},
			{Name: "Last-Event-ID", In: "header", Description: "the id after which to continue; answered by resync when it is no longer known", Schema: text},
		},
		answers: map[string]*huma.Response{"200": {
			Description: "A stream without end",
			Content:     map[string]*huma.MediaType{"text/event-stream": {Schema: text}},
		}},
	}, s.stream)
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
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil
	}
	c.err = s.writeStream(ctx, w, sub)
	return nil
}

// writeStream writes items until the viewer goes, access ends or the server stops; why is
// for the log.
func (s *server) writeStream(ctx context.Context, w http.ResponseWriter, sub relay.Subscription) error {
	out := http.NewResponseController(w)
	defer func() { _ = out.SetWriteDeadline(time.Time{}) }()
	var buf bytes.Buffer
	buf.WriteString(": connected\nretry: 1000\n")
	if id := sub.Start(); id != "" { // without data it is no event (HTML Living Standard, section 9.2.6)
		buf.WriteString("id: " + id + "\n")
	}
	buf.WriteString("\n")
	for {
		// Not every writer has deadlines (h2 has, recorders have not).
		_ = out.SetWriteDeadline(time.Now().Add(streamWriteTimeout))
		if _, err := w.Write(buf.Bytes()); err != nil {
			return err
		}
		if err := out.Flush(); err != nil {
			return err
		}
		buf.Reset()
		items, err := nextItems(ctx, sub)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, context.DeadlineExceeded):
			buf.WriteString(":\n\n")
		case err != nil:
			return err
		}
		for i := range items {
			writeItem(&buf, &items[i])
		}
	}
}

func nextItems(ctx context.Context, sub relay.Subscription) ([]relay.FeedItem, error) {
	ctx, cancel := context.WithTimeout(ctx, streamCommentInterval)
	defer cancel()
	return sub.Next(ctx)
}

func writeItem(buf *bytes.Buffer, item *relay.FeedItem) {
	if item.ID != "" {
		buf.WriteString("id: " + item.ID + "\n")
	}
	buf.WriteString("event: " + item.Name + "\ndata: ")
	buf.Write(item.Data)
	buf.WriteString("\n\n")
}
