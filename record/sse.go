package record

import (
	"bytes"
	"context"
	"net/http"
	"sync"
	"time"

	"relay"
)

// Intervals of live streams.
const (
	streamCommentInterval = 15 * time.Second // keeps proxies from closing the connection
	streamWriteTimeout    = 30 * time.Second // a viewer that reads nothing for this long is dropped
)

// EventStream collects server-sent events for one viewer.
type EventStream struct{ buf bytes.Buffer }

// Write adds an event; data may have several lines.
func (s *EventStream) Write(id, name string, data []byte) {
	if id != "" {
		s.buf.WriteString("id: " + id + "\n")
	}
	s.buf.WriteString("event: " + name + "\n")
	for line := range bytes.SplitSeq(data, []byte("\n")) {
		s.buf.WriteString("data: ")
		s.buf.Write(bytes.TrimSuffix(line, []byte("\r")))
		s.buf.WriteByte('\n')
	}
	s.buf.WriteByte('\n')
}

// CompleteItem gives a feed item its id and its encoding as a server-sent event. All viewers share the encoded
// bytes, and Data becomes a slice of them.
func CompleteItem(item *relay.FeedItem, id string) {
	var s EventStream
	s.buf.Grow(len(item.Data) + len(id) + len(item.Name) + len("id: \nevent: \ndata: \n\n"))
	s.Write(id, item.Name, item.Data)
	item.ID, item.SSE = id, s.buf.Bytes()
	end := len(item.SSE) - len("\n\n")
	item.Data = item.SSE[end-len(item.Data) : end : end]
}

// Item adds a feed item that CompleteItem has encoded.
func (s *EventStream) Item(item *relay.FeedItem) { s.buf.Write(item.SSE) }

// feedBatch is the result of one call of a subscription's method Next.
type feedBatch struct {
	from  int // index of the subscription
	items []relay.FeedItem
	err   error
}

// ServeStream answers with server-sent events until the viewer leaves, its access ends or the server
// stops. begin writes the first events; show writes items of the subscription subs[from]. The returned error
// is for the log only, because the status was already sent. A HEAD request gets only the headers.
func ServeStream(w http.ResponseWriter, r *http.Request, begin func(*EventStream) error, show func(s *EventStream, from int, items []relay.FeedItem) error, subs ...relay.Subscription) error {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil
	}
	s := &EventStream{}
	s.buf.WriteString(": connected\nretry: 1000\n")
	if id := subs[0].Start(); id != "" { // a block without data is no event for a browser, but the browser remembers its id (HTML Living Standard, section 9.2.6)
		s.buf.WriteString("id: " + id + "\n")
	}
	s.buf.WriteByte('\n')
	if err := begin(s); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(r.Context())
	var readers sync.WaitGroup
	defer readers.Wait()
	defer cancel()
	batches := make(chan feedBatch)
	for i, sub := range subs {
		readers.Go(func() { readBatches(ctx, i, sub, batches) })
	}
	// Comment lines of the stream are sent at intervals even if changes arrive, because the viewer gets no
	// bytes for changes that show leaves out.
	comment := time.NewTicker(streamCommentInterval)
	defer comment.Stop()
	out := http.NewResponseController(w)
	defer func() { _ = out.SetWriteDeadline(time.Time{}) }()
	for {
		// The error is ignored: the response recorders of tests have no deadlines, and on a broken connection
		// the write below fails.
		_ = out.SetWriteDeadline(time.Now().Add(streamWriteTimeout))
		if _, err := w.Write(s.buf.Bytes()); err != nil || out.Flush() != nil {
			return nil // the viewer has disconnected
		}
		s.buf.Reset()
		select {
		case <-ctx.Done():
			return nil
		case <-comment.C:
			s.buf.WriteString(":\n\n")
		case b := <-batches:
			if ctx.Err() != nil {
				return nil
			}
			if b.err != nil {
				return b.err
			}
			if err := show(s, b.from, b.items); err != nil {
				return err
			}
		}
	}
}

// readBatches sends what it reads from a subscription to the channel batches, until the subscription or ctx
// ends.
func readBatches(ctx context.Context, from int, sub relay.Subscription, batches chan<- feedBatch) {
	for b := (feedBatch{from: from}); b.err == nil; {
		b.items, b.err = sub.Next(ctx)
		select {
		case batches <- b:
		case <-ctx.Done():
			return
		}
	}
}
