package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/record"
)

func TestBackoff(t *testing.T) {
	b := Backoff{jitter: func() float64 { return 1 }}
	var all []time.Duration
	for range 10 {
		all = append(all, b.Next(0))
	}
	ms := time.Millisecond
	want := []time.Duration{
		0, 250 * ms, 500 * ms, 1000 * ms, 2000 * ms, 4000 * ms, 8000 * ms, 15000 * ms, 15000 * ms, 15000 * ms,
	}
	if !slices.Equal(all, want) {
		t.Errorf("bounds %v", all)
	}
	b.Reset()
	if d := b.Next(0); d != 0 {
		t.Errorf("%v after a reset", d)
	}
	for b := (Backoff{Tries: 100}); b.Tries < 1100; {
		if d := b.Next(0); d < 0 || d > maxDelay {
			t.Fatalf("try %d waits %v", b.Tries, d)
		}
	}
}

// TestLineWithoutEnd: a line of a stream that is longer than maxLine is a final error, because a retry would
// not help.
func TestLineWithoutEnd(t *testing.T) {
	endless := io.MultiReader(strings.NewReader("data: "), bytes.NewReader(make([]byte, maxLine+1)))
	err := readStream(endless, nil)
	if exitOfError(err) != ExitFailure {
		t.Errorf("stream: %v", err)
	}
	f := &follower{connectedOnce: true}
	if f.retryable(err) {
		t.Error("it is asked again")
	}
}

// TestIDBeforeTheFirstItem: readStream also passes on an id that comes without an item, because a later stream
// may begin after that id.
func TestIDBeforeTheFirstItem(t *testing.T) {
	var got []string
	err := readStream(strings.NewReader(": connected\nid: 40\n\n:\n\nid: 41\nevent: event\ndata: {}\n\n"), func(id, name string, data []byte) error {
		got = append(got, id+" "+name+" "+string(data))
		return nil
	})
	if want := []string{"40  ", "41 event {}"}; exitOfError(err) != ExitUnreachable || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

func TestFollowerRemembersABoundedNumber(t *testing.T) {
	f := &follower{emit: func(json.RawMessage) error { return nil }, known: map[string]seen{}}
	for i := range 3 * maxKnownEvents {
		e := &record.Summary{ID: fmt.Sprintf("evt_%06d", i)}
		if err := f.take([]byte("{}"), e, false); err != nil {
			t.Fatal(err)
		}
	}
	if len(f.known) != maxKnownEvents || len(f.order) != maxKnownEvents {
		t.Errorf("%d and %d", len(f.known), len(f.order))
	}
}

// TestFollowingHoldsNoOldAnswers: a follower releases each list that it has read, because a follower that
// runs for days must not use up the memory of its account.
func TestFollowingHoldsNoOldAnswers(t *testing.T) {
	event := `{"id":"evt_1","alias":"` + strings.Repeat("a", 8<<10) + `"}`
	const resyncs = 20
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/stream" {
			_, _ = io.WriteString(w, `{"data":[`+event+`],"nextCursor":null}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range resyncs {
			_, _ = fmt.Fprintf(w, "id: %d\nevent: resync\ndata: {}\n\n", i)
		}
		_, _ = io.WriteString(w, "event: event\ndata: {\"id\":\"evt_2\"}\n\n")
	}))
	t.Cleanup(server.Close)
	api := NewAPI(Connection{Base: server.URL, Transport: &http.Transport{}})
	var now, most int64
	api.Hold = func(n int64) error {
		now, most = n, max(most, n)
		return nil
	}
	errSeen := errors.New("seen")
	err := api.Follow(t.Context(), url.Values{}, 5, func(string) {}, func(line json.RawMessage) error {
		if strings.Contains(string(line), "evt_2") {
			return errSeen
		}
		return nil
	})
	if !errors.Is(err, errSeen) || now != 0 || most == 0 || most > answerCopies*(256<<10) {
		t.Errorf("%v: %d bytes are reserved, and were at most %d", err, now, most)
	}
	api.Close()
}

// TestAnswersThatDoNotEnd: an answer larger than maxAnswer is an error, and an answer of that size is not.
func TestAnswersThatDoNotEnd(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, map[string]string{"/api/v1/me": "abcdef", "/api/v1/ssh": "abcde"}[r.URL.Path])
	}))
	t.Cleanup(server.Close)
	api := NewAPI(Connection{Base: server.URL, Transport: &http.Transport{}})
	t.Cleanup(api.Close)
	api.maxAnswer = 5
	if _, err := api.Call(t.Context(), http.MethodGet, "/me", nil); exitOfError(err) != ExitFailure {
		t.Error(err)
	}
	if out, err := api.Call(t.Context(), http.MethodGet, "/ssh", nil); string(out) != "abcde" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
}

// TestAnswerLostAfterItWasDone: if the relay acted but its answer was lost, the error must not invite a
// retry, because a retry would repeat the action.
func TestAnswerLostAfterItWasDone(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, 100<<10))
	}))
	t.Cleanup(server.Close)
	full := relay.Errorf(relay.CodeOverloaded, "full")
	for name, set := range map[string]func(*API){
		"reserve": func(a *API) { a.Hold = func(int64) error { return full } },
		"bound":   func(a *API) { a.maxAnswer = 5 },
	} {
		for method, done := range map[string]bool{http.MethodGet: false, http.MethodPost: true} {
			api := NewAPI(Connection{Base: server.URL, Transport: &http.Transport{}})
			set(api)
			_, err := api.Call(t.Context(), method, "/events/evt_1/replay", nil)
			e, _ := errors.AsType[*Error](err)
			if e == nil || strings.Contains(e.Error(), "did what was asked") != done || done && (e.Transient || e.Code != relay.CodeInternal) {
				t.Errorf("%s, %s: %v", name, method, err)
			}
			api.http.CloseIdleConnections()
		}
	}
}

// TestErrorsOfAnAnswerOnce: the text of a refused call has each error of the answer once.
func TestErrorsOfAnAnswerOnce(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = io.WriteString(w, `{"code":"validation-failed","detail":"name: too long","errors":[{"location":"body.name","message":"too long"},{"location":"body.key","message":"missing"}]}`)
	}))
	t.Cleanup(server.Close)
	api := NewAPI(Connection{Base: server.URL, Transport: &http.Transport{}})
	t.Cleanup(api.Close)
	if _, err := api.Call(t.Context(), http.MethodPost, "/aliases", nil); err == nil || err.Error() != "name: too long; body.key: missing" {
		t.Error(err)
	}
}

// exitOfError returns the exit code of an error, 0 for nil.
func exitOfError(err error) int {
	var e *Error
	if errors.As(err, &e) {
		return e.Exit
	}
	return 0
}
