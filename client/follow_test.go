package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"relay/cli"
)

// lines collects events, one on each line, and ends a follower after want lines.
type lines struct {
	mu     sync.Mutex
	text   strings.Builder
	want   int
	cancel context.CancelFunc
}

func (l *lines) emit(event json.RawMessage) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var line bytes.Buffer
	if err := json.Compact(&line, event); err != nil {
		return err
	}
	l.text.WriteString(line.String() + "\n")
	if l.cancel != nil && strings.Count(l.text.String(), "\n") == l.want {
		l.cancel()
	}
	return nil
}

// ignore is a function for the parameter emit of API.Follow. It accepts every event.
func ignore(json.RawMessage) error { return nil }

func following(t *testing.T, api *cli.API, want int) (out string, talk *sayRecorder, err error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	l, talk := &lines{want: want, cancel: cancel}, &sayRecorder{}
	err = api.Follow(ctx, url.Values{"alias": {"a"}}, 3, talk.say, l.emit)
	return strings.ReplaceAll(l.text.String(), `"id":`, ""), talk, err
}

func streamed(id, event string) string {
	return "id: " + id + "\nevent: event\ndata: " + event + "\n\n"
}

// TestFollowOverTheAPIGoesOnAfterALoss: the event stream continues after the last item that was read.
// If the relay cannot continue there, the client reads and writes the changes since that item, and writes no
// change twice.
func TestFollowOverTheAPIGoesOnAfterALoss(t *testing.T) {
	var mu sync.Mutex
	var after []string
	list := `{"id":"evt_5","state":"delivering"},{"id":"evt_4"},{"id":"evt_3"}`
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/events", func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = io.WriteString(w, `{"data":[`+list+`],"nextCursor":null}`)
	})
	mux.HandleFunc("GET /api/v1/stream", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		after = append(after, r.Header.Get("Last-Event-ID"))
		switch len(after) {
		case 1:
			_, _ = io.WriteString(w, ": hello\n\nid: s1\nevent: event\ndata: {\"id\":\"evt_6\",\ndata:  \"state\":\"queued\"}\r\n\r\nid: s2\nevent: tunnel\ndata: {}\n\n")
		case 2:
			w.WriteHeader(http.StatusBadGateway) // the answer of a proxy while the relay is down
		case 3:
			list = `{"id":"evt_7"},{"id":"evt_6","state":"queued"},{"id":"evt_5","state":"delivered"},{"id":"evt_4"},{"id":"evt_3"},{"id":"evt_2"}`
			_, _ = io.WriteString(w, "id: s3\nevent: resync\ndata: {}\n\n"+streamed("s4", `{"id":"evt_3","state":"replayed"}`))
		default:
			_, _ = io.WriteString(w, streamed("s5", `{"id":"evt_8"}`))
		}
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	api, err := NewAPI(server.URL, "rly_x", "test")
	if err != nil {
		t.Fatal(err)
	}
	out, talk, err := following(t, api, 8)
	want := "{\"evt_3\"}\n{\"evt_4\"}\n{\"evt_5\",\"state\":\"delivering\"}\n{\"evt_6\",\"state\":\"queued\"}\n" +
		"{\"evt_5\",\"state\":\"delivered\"}\n{\"evt_7\"}\n{\"evt_3\",\"state\":\"replayed\"}\n{\"evt_8\"}\n"
	if out != want || !errors.Is(err, context.Canceled) {
		t.Errorf("%s%v", out, err)
	}
	if got := strings.Join(after[:4], " "); got != " s2 s2 s4" {
		t.Errorf("asked behind %q", after)
	}
	if !strings.Contains(talk.String(), "connecting again") || !strings.Contains(talk.String(), "connected to the relay again") {
		t.Errorf("said %q", talk)
	}
}

// TestFollowWritesNothingTwice: two quick changes of an event may produce two items with the same latest
// state; the line is written once.
func TestFollowWritesNothingTwice(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/events", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"data":[]}`) })
	mux.HandleFunc("GET /api/v1/stream", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, streamed("s1", `{"id":"evt_1","state":"queued","attemptCount":1}`)+
			strings.Repeat(streamed("s2", `{"id":"evt_1","state":"delivered","attemptCount":1}`), 2)+
			streamed("s3", `{"id":"evt_1","state":"delivered","attemptCount":2}`))
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	api, err := NewAPI(server.URL, "rly_x", "test")
	if err != nil {
		t.Fatal(err)
	}
	out, _, err := following(t, api, 3)
	want := "{\"evt_1\",\"state\":\"queued\",\"attemptCount\":1}\n{\"evt_1\",\"state\":\"delivered\",\"attemptCount\":1}\n{\"evt_1\",\"state\":\"delivered\",\"attemptCount\":2}\n"
	if out != want || !errors.Is(err, context.Canceled) {
		t.Errorf("%s%v", out, err)
	}
}

// TestFollowEnds: following ends for an unknown alias, for a revoked token, and when the output fails.
func TestFollowEnds(t *testing.T) {
	var problem atomic.Pointer[string] // answer of the stream; nil = the stream ends at once, and the next one is refused
	unauthorized := `401 {"code":"unauthorized","detail":"y"}`
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		list := map[string]string{"GET /events": `{"data":[{"id":"evt_1"}]}`, "GET /stream": ""}
		if strings.HasSuffix(r.URL.Path, "/stream") {
			if p := problem.Swap(&unauthorized); p != nil {
				list["GET /stream"] = *p
			}
		}
		answers(list).ServeHTTP(w, r)
	})
	eachTransport(t, handler, func(t *testing.T, api *cli.API, _ *apiServer) {
		follow := func(emit func(json.RawMessage) error) error {
			return api.Follow(t.Context(), url.Values{"alias": {"a"}}, 3, func(string) {}, emit)
		}
		notFound := `404 {"code":"not-found","detail":"y"}`
		problem.Store(&notFound)
		if err := follow(ignore); exitOfError(err) != cli.ExitNotFound {
			t.Errorf("unknown alias: %v", err)
		}
		problem.Store(nil)
		if err := follow(ignore); exitOfError(err) != cli.ExitRefused {
			t.Errorf("a token that is revoked meanwhile: %v", err)
		}
		full := errors.New("disk full")
		problem.Store(nil)
		if err := follow(func(json.RawMessage) error { return full }); !errors.Is(err, full) {
			t.Errorf("stdout that takes nothing: %v", err)
		}
	})
}

// TestFollowWithFilters: list and stream are requested with the filters. The events of the list are written
// first, then those of the stream.
func TestFollowWithFilters(t *testing.T) {
	query := url.Values{"alias": {"a"}, "status": {"5xx"}, "json": {"a=1", "b=2"}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/events", func(w http.ResponseWriter, r *http.Request) {
		if got := r.URL.Query(); got.Get("limit") != "3" || got.Get("status") != "5xx" || len(got["json"]) != 2 {
			t.Errorf("asked %s", r.URL)
		}
		_, _ = io.WriteString(w, `{"data":[{"id":"evt_2"}]}`)
	})
	mux.HandleFunc("GET /api/v1/stream", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery != query.Encode() {
			t.Errorf("asked %s", r.URL)
		}
		_, _ = io.WriteString(w, streamed("s1", `{"id":"evt_4","state":"failed"}`)+streamed("s2", `{"id":"evt_2","state":"failed"}`))
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	api, err := NewAPI(server.URL, "rly_x", "test")
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l := &lines{want: 3, cancel: cancel}
	err = api.Follow(ctx, query, 3, func(string) {}, l.emit)
	want := "{\"id\":\"evt_2\"}\n{\"id\":\"evt_4\",\"state\":\"failed\"}\n{\"id\":\"evt_2\",\"state\":\"failed\"}\n"
	if out := l.text.String(); out != want || !errors.Is(err, context.Canceled) {
		t.Errorf("%s%v", out, err)
	}
}

// TestFollowTellsThatItLeavesEventsOut: if a follower missed more events than one list holds, it says so.
func TestFollowTellsThatItLeavesEventsOut(t *testing.T) {
	var newest atomic.Int64
	newest.Store(1003)
	listed := make(chan bool, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/events", func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Query().Get("limit"))
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf(`{"id":"evt_%d"}`, newest.Load()-int64(i)))
		}
		_, _ = io.WriteString(w, `{"data":[`+strings.Join(list, ",")+`],"nextCursor":"more"}`)
		if n == 3 {
			listed <- true
		}
	})
	mux.HandleFunc("GET /api/v1/stream", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, ": hello\n\n")
		_ = http.NewResponseController(w).Flush()
		<-listed // the first stream goes on after the first list; later streams wait for the end of the test
		newest.Store(1003 + 200 + 1)
		_, _ = io.WriteString(w, "id: s1\nevent: resync\ndata: {}\n\n")
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	defer close(listed)
	api, err := NewAPI(server.URL, "rly_x", "test")
	if err != nil {
		t.Fatal(err)
	}
	out, talk, err := following(t, api, 3+200)
	if !errors.Is(err, context.Canceled) || strings.Contains(out, "evt_1004") || !strings.Contains(out, "evt_1005") {
		t.Errorf("%s%v", out, err)
	}
	if got := talk.String(); strings.Count(got, "more events came meanwhile than are shown here") != 1 {
		t.Errorf("said %q", got)
	}
}
