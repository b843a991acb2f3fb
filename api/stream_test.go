package api_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"relay"
	"relay/record"
)

// open starts a stream over a TCP connection.
func (h *fixture) open(ctx context.Context, query, lastID string) (*http.Response, *bufio.Reader) {
	h.t.Helper()
	front := httptest.NewServer(h.handler)
	h.t.Cleanup(front.Close)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, front.URL+"/api/v1/stream"+query, nil)
	must(h.t, err)
	r.Header.Set("Authorization", "Bearer "+h.asAlice)
	if lastID != "" {
		r.Header.Set("Last-Event-ID", lastID)
	}
	res, err := http.DefaultClient.Do(r)
	must(h.t, err)
	h.t.Cleanup(func() { _ = res.Body.Close() })
	return res, bufio.NewReader(res.Body)
}

func readUntil(t *testing.T, r *bufio.Reader, end string) string {
	t.Helper()
	var b strings.Builder
	for !strings.HasSuffix(b.String(), end) {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("after %q: %v", b.String(), err)
		}
		b.WriteString(line)
	}
	return b.String()
}

func TestStream(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	h.deliver.feed = newFeed()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	res, body := h.open(ctx, "?alias=shop", "41")
	if res.StatusCode != 200 || res.Header.Get("Content-Type") != "text/event-stream" || res.Header.Get("X-Accel-Buffering") != "no" || res.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%d %v", res.StatusCode, res.Header)
	}
	readUntil(t, body, "\n\n") // the head and the first comment come before any item
	if h.deliver.feed.lastID != "41" || h.deliver.feed.alias == 0 || h.deliver.feed.who.Account != h.alice.Account {
		t.Errorf("subscribed as %+v to %d after %s", h.deliver.feed.who, h.deliver.feed.alias, h.deliver.feed.lastID)
	}
	items := []relay.FeedItem{{Name: "event", Data: []byte(`{"id":"evt_1"}`)}, {Name: "resync", Data: []byte(`{}`)}}
	record.CompleteItem(&items[0], "42")
	record.CompleteItem(&items[1], "43")
	h.deliver.feed.items <- items
	want := "id: 42\nevent: event\ndata: {\"id\":\"evt_1\"}\n\nid: 43\nevent: resync\ndata: {}\n\n"
	if got := readUntil(t, body, "data: {}\n\n"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	cancel()
	<-h.deliver.feed.closed
}

// TestStreamWithFilters: items that a filter does not select are left out. If the summary of an event is not
// enough to decide, the event is read. If the event cannot be read, the viewer is told to read the list
// again.
func TestStreamWithFilters(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	withBody := func(body string) []byte {
		id := h.event("shop", func(e *relay.Event) {
			e.Request.Body.Data, e.Request.Body.Stored, e.Request.Body.Size = []byte(body), int64(len(body)), int64(len(body))
		})
		return []byte(`{"id":"` + id.String() + `","alias":"shop","state":"delivered"}`)
	}
	paid, other := withBody(`{"type":"paid"}`), withBody(`{"type":"other"}`)
	h.deliver.feed = newFeed()
	_, body := h.open(t.Context(), "?alias=shop&state=delivered&q=paid&json=type%3Dpaid", "")
	readUntil(t, body, "\n\n")
	send := func(items ...relay.FeedItem) {
		for i := range items {
			record.CompleteItem(&items[i], items[i].ID)
		}
		h.deliver.feed.items <- items
	}
	send([]relay.FeedItem{
		{ID: "1", Name: "event", Data: other},
		{ID: "2", Name: "event", Data: []byte(`{"id":"evt_1","alias":"shop","state":"queued"}`)},
		{ID: "3", Name: "event", Data: paid},
		{ID: "4", Name: "attempt", Data: []byte(`{"event":` + string(other) + `}`)},
		{ID: "4", Name: "tunnel", Data: []byte(`{}`)},
	}...)
	want := "id: 3\nevent: event\ndata: " + string(paid) + "\n\nid: 4\nevent: tunnel\ndata: {}\n\n"
	if got := readUntil(t, body, "data: {}\n\n"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	send([]relay.FeedItem{
		{ID: "5", Name: "event", Data: []byte(`{"id":"one that cannot be read","alias":"shop","state":"delivered"}`)},
		{ID: "6", Name: "event", Data: paid},
	}...)
	if got, want := readUntil(t, body, "\n\n"), "id: 6\nevent: resync\ndata: {}\n\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	close(h.deliver.feed.items)
	h.get(h.asAlice, "/api/v1/stream?status=x").code(422, relay.CodeValidationFailed)
	h.get(h.asAlice, "/api/v1/stream?limit=1").code(422, relay.CodeValidationFailed)
}

// TestStreamBeginsWithAnID: a stream begins with an id, so that a viewer whose stream ends before the first
// item can continue from there.
func TestStreamBeginsWithAnID(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	h.deliver.feed = newFeed()
	h.deliver.feed.start = "40"
	_, body := h.open(t.Context(), "", "")
	if got, want := readUntil(t, body, "\n\n"), ": connected\nretry: 1000\nid: 40\n\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	close(h.deliver.feed.items)
}

func TestStreamEndsWithTheAccess(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	h.deliver.feed = newFeed()
	_, body := h.open(t.Context(), "", "")
	readUntil(t, body, "\n\n")
	close(h.deliver.feed.items)
	if rest, err := io.ReadAll(body); err != nil || len(rest) != 0 {
		t.Errorf("%q, %v", rest, err)
	}
	<-h.deliver.feed.closed
}

// flushRecorder is a writer that at every flush sends the text since the last flush to the channel out.
type flushRecorder struct {
	http.ResponseWriter
	out chan string
	b   strings.Builder
}

func (f *flushRecorder) Write(p []byte) (int, error) { return f.b.Write(p) }

func (f *flushRecorder) FlushError() error {
	f.out <- f.b.String()
	f.b.Reset()
	return nil
}

// TestStreamIsNeverSilentForLong: comments keep a quiet stream alive until its credential expires. The test
// runs in a synctest bubble, whose fake time does not work with sockets.
func TestStreamIsNeverSilentForLong(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	synctest.Test(t, func(t *testing.T) {
		feed := newFeed()
		h.deliver.feed = feed
		d := newClientWith(t, expiring{h.store, time.Now().Add(40 * time.Second)}, func(o *optionsOf) { o.Deliver, o.Events = h.deliver, h.store })
		w := &flushRecorder{ResponseWriter: httptest.NewRecorder(), out: make(chan string)}
		r := d.request("GET", "any", "/api/v1/stream", "").WithContext(t.Context())
		began := time.Now()
		ended := make(chan struct{})
		go func() {
			d.handler.ServeHTTP(w, r)
			close(ended)
		}()
		<-w.out
		for i, want := range []time.Duration{15 * time.Second, 30 * time.Second} {
			if got := <-w.out; got != ":\n\n" || time.Since(began) != want {
				t.Errorf("comment %d: %q after %s", i, got, time.Since(began))
			}
		}
		<-ended
		if got := time.Since(began); got != 40*time.Second {
			t.Errorf("the stream outlived its token: %s", got)
		}
	})
}

// TestStreamCommentsAmongChangesLeftOut: a stream whose filter leaves out all items sends comments, because
// proxies close silent connections.
func TestStreamCommentsAmongChangesLeftOut(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	synctest.Test(t, func(t *testing.T) {
		feed := newFeed()
		h.deliver.feed = feed
		d := newClientWith(t, expiring{h.store, time.Now().Add(26 * time.Second)}, func(o *optionsOf) { o.Deliver, o.Events = h.deliver, h.store })
		w := &flushRecorder{ResponseWriter: httptest.NewRecorder(), out: make(chan string)}
		began := time.Now()
		ended := make(chan struct{})
		go func() {
			d.handler.ServeHTTP(w, d.request("GET", "any", "/api/v1/stream?status=404", "").WithContext(t.Context()))
			close(ended)
		}()
		<-w.out
		go func() {
			time.Sleep(10 * time.Second)
			feed.items <- []relay.FeedItem{{Name: "event", Data: []byte(`{"state":"delivered","status":200}`)}}
		}()
		if got := <-w.out + <-w.out; got != ":\n\n" || time.Since(began) != 15*time.Second {
			t.Errorf("%q after %s", got, time.Since(began))
		}
		<-ended
	})
}

// singleConnListener is a listener that returns one connection.
type singleConnListener struct {
	net.Listener
	conns chan net.Conn
}

func (l singleConnListener) Accept() (net.Conn, error) {
	c, ok := <-l.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (l singleConnListener) Close() error {
	close(l.conns)
	return nil
}

func (l singleConnListener) Addr() net.Addr { return &net.TCPAddr{} }

// TestViewersWhoTakeNothingAreDropped: if a viewer does not read, its subscription to the feed is closed
// after half a minute. The test uses a pipe, because a pipe has no buffers, so that the first write already
// waits.
func TestViewersWhoTakeNothingAreDropped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		feed := newFeed()
		d := newClientWith(t, tokenIsName{}, func(o *optionsOf) { o.Deliver, o.Events = &fakeDeliverer{feed: feed}, emptyEvents{} })
		l := singleConnListener{conns: make(chan net.Conn, 1)}
		server := &http.Server{Handler: d.handler}
		served := make(chan error, 1)
		go func() { served <- server.Serve(l) }()
		viewer, theirs := net.Pipe()
		l.conns <- theirs
		_, err := io.WriteString(viewer, "GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer alice\r\n\r\n")
		must(t, err)
		res, err := http.ReadResponse(bufio.NewReader(viewer), nil)
		must(t, err)
		readUntil(t, bufio.NewReader(res.Body), "\n\n")
		began := time.Now()
		feed.items <- []relay.FeedItem{{SSE: []byte("event: event\ndata: {}\n\n")}}
		<-feed.closed
		if took := time.Since(began); took != 30*time.Second {
			t.Errorf("dropped after %s", took)
		}
		must(t, viewer.Close())
		must(t, server.Close())
		<-served
	})
}
