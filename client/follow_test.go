package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// lines collects whole lines; it ends a follower once enough have come.
type lines struct {
	mu     sync.Mutex
	text   strings.Builder
	want   int
	cancel context.CancelFunc
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(p)
	if l.cancel != nil && strings.Count(l.text.String(), "\n") == l.want {
		l.cancel()
	}
	return len(p), nil
}

func following(t *testing.T, from Remote, want int) (out string, talk *sayRecorder, err error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	l, talk := &lines{want: want, cancel: cancel}, &sayRecorder{}
	err = from.Run(ctx, Command{Name: "events", Arg: "a", N: 3, Follow: true, Say: talk.say}, l)
	return strings.ReplaceAll(l.text.String(), `"id":`, ""), talk, err
}

func streamed(id, event string) string {
	return "id: " + id + "\nevent: event\ndata: " + event + "\n\n"
}

// TestFollowOverTheAPIGoesOnAfterALoss: the stream goes on behind its last item; where
// the relay cannot, what changed meanwhile is read and written, and nothing twice.
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
			w.WriteHeader(http.StatusBadGateway) // a proxy while the relay is away
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

// TestFollowWritesNothingTwice: two changes close together are told with what the second
// one made of the event, and its line came twice.
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

func TestFollowOverSSHGoesOnAfterALoss(t *testing.T) {
	d := newFakeRelay(t)
	asked := 0
	d.exec = func(command string) (string, string, int) {
		asked++
		switch asked {
		case 1:
			return "{\"id\":\"evt_3\"}\n{\"id\":\"evt_4\",\"state\":\"delivering\"}\n{\"id\":\"evt_", "", 69
		case 2:
			if !strings.Contains(command, "-n 200 -f") {
				t.Errorf("asked %s", command)
			}
			return "{\"id\":\"evt_2\"}\n{\"id\":\"evt_3\"}\n{\"id\":\"evt_4\",\"state\":\"delivered\"}\n{\"id\":\"evt_5\"}\n{\"id\":\"evt_3\"}\n{\"dropped\":2}\n", "", 69
		}
		return "", `{"code":"not-found","detail":"the alias is gone"}`, ExitNotFound
	}
	dialer, _ := newDialer(t, d.listen())
	out, talk, err := following(t, SSH{dialer}, 0)
	want := "{\"evt_3\"}\n{\"evt_4\",\"state\":\"delivering\"}\n{\"evt_4\",\"state\":\"delivered\"}\n{\"evt_5\"}\n{\"evt_3\"}\n{\"dropped\":2}\n"
	if out != want || exitOf(err) != ExitNotFound {
		t.Errorf("%s%v", out, err)
	}
	if asked != 4 || strings.Count(talk.String(), "connecting again") != 3 { // not found is believed the second time
		t.Errorf("said %q", talk)
	}
}

// TestSlowRefusalEndsAFollow: a relay that takes its time to say that an alias is gone
// was asked for ever.
func TestSlowRefusalEndsAFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, dialer, _, _ := inMemory(t)
		asked := 0
		d.exec = func(string) (string, string, int) {
			if asked++; asked == 1 {
				return "{\"id\":\"evt_1\"}\n", "", 69
			}
			time.Sleep(2 * healthyAfter)
			return "", `{"code":"not-found","detail":"the alias is gone"}`, ExitNotFound
		}
		err := SSH{dialer}.Run(t.Context(), Command{Name: "events", Arg: "a", Follow: true}, io.Discard)
		if exitOf(err) != ExitNotFound || asked != 3 {
			t.Errorf("asked %d times, %v", asked, err)
		}
	})
}

func TestFollowEnds(t *testing.T) {
	status := http.StatusNotFound
	b := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if status != http.StatusOK && strings.HasSuffix(r.URL.Path, "/stream") {
			w.WriteHeader(status)
			_, _ = fmt.Fprintf(w, `{"code":"x","detail":"y"}`)
			return
		}
		if strings.HasSuffix(r.URL.Path, "/events") {
			_, _ = io.WriteString(w, `{"data":[{"id":"evt_1"}]}`)
			return
		}
		status = http.StatusUnauthorized
	}))
	api, err := NewAPI(b.URL, "rly_x", "test")
	if err != nil {
		t.Fatal(err)
	}
	c := Command{Name: "events", Arg: "a", Follow: true}
	if err := api.Run(context.Background(), c, io.Discard); exitOf(err) != ExitNotFound {
		t.Errorf("unknown alias: %v", err)
	}
	status = http.StatusOK
	if err := api.Run(context.Background(), c, io.Discard); exitOf(err) != ExitRefused {
		t.Errorf("a token that is revoked meanwhile: %v", err)
	}
	full := errors.New("disk full")
	status = http.StatusOK
	if err := api.Run(context.Background(), c, failingWriter{full}); !errors.Is(err, full) {
		t.Errorf("stdout that takes nothing: %v", err)
	}
	b.Close()
	if err := api.Run(context.Background(), c, io.Discard); exitOf(err) != ExitUnreachable {
		t.Errorf("no relay from the start: %v", err)
	}
}

type failingWriter struct{ err error }

func (b failingWriter) Write([]byte) (int, error) { return 0, b.err }

// TestLineWithoutEnd: what is kept of one line has a bound, and asking again would not
// help.
func TestLineWithoutEnd(t *testing.T) {
	f := &followState{out: io.Discard, known: map[string]seen{}}
	piece := bytes.Repeat([]byte("x"), 1<<20)
	var err error
	n := 0
	for ; err == nil && n < 100; n++ {
		_, err = f.Write(piece)
	}
	if exitOf(err) != ExitFailure || n != maxLine>>20+1 {
		t.Errorf("%d MiB, %v", n, err)
	}
	if f.connectedOnce = true; f.retryable(err, new(bool)) {
		t.Error("it is asked again")
	}
	endless := io.MultiReader(strings.NewReader("data: "), bytes.NewReader(make([]byte, maxLine+1)))
	if err := readStream(endless, nil); exitOf(err) != ExitFailure {
		t.Errorf("stream: %v", err)
	}
}

func TestFollowerRemembersABoundedNumber(t *testing.T) {
	f := &followState{out: io.Discard, known: map[string]seen{}}
	for i := range 3 * maxKnownEvents {
		_, _ = fmt.Fprintf(f, "{\"id\":\"evt_%06d\"}\n", i)
	}
	if len(f.known) != maxKnownEvents || len(f.order) != maxKnownEvents {
		t.Errorf("%d and %d", len(f.known), len(f.order))
	}
}
