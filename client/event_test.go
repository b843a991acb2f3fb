package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"relay"
	"relay/record"
)

// apiFixture is an API whose answers are functions of the request, with what was asked.
type apiFixture struct {
	*API
	mu    sync.Mutex
	asked []string
}

func newAPIFixture(t *testing.T, answer func(r *http.Request, n int) string) *apiFixture {
	b := &apiFixture{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		b.mu.Lock()
		b.asked = append(b.asked, strings.TrimSpace(r.Method+" "+r.URL.RequestURI()+" "+string(body)))
		n := len(b.asked)
		b.mu.Unlock()
		_, _ = io.WriteString(w, answer(r, n))
	}))
	t.Cleanup(server.Close)
	api, err := NewAPI(server.URL, "rly_x", "test")
	if err != nil {
		t.Fatal(err)
	}
	b.API = api
	return b
}

func (b *apiFixture) runs(t *testing.T, c Command) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := b.Run(context.Background(), c, &out)
	return out.String(), err
}

func TestShareOverTheAPI(t *testing.T) {
	b := newAPIFixture(t, func(*http.Request, int) string { return `{}` })
	for i, c := range []struct {
		Command
		body string
	}{
		{Command{}, `{"expiresIn":"7d","view":false}`},
		{Command{Expires: "12h", View: true}, `{"expiresIn":"12h","view":true}`},
		{Command{Expires: "never"}, `{"expiresIn":null,"view":false}`},
	} {
		c.Name, c.Arg = "share", "evt_1"
		if _, err := b.runs(t, c.Command); err != nil || b.asked[i] != "POST /api/v1/events/evt_1/shares "+c.body {
			t.Errorf("%s, %v", b.asked[i], err)
		}
	}
}

func TestExportIsNotTouched(t *testing.T) {
	b := newAPIFixture(t, func(*http.Request, int) string { return "package x\n\n\tend without a line end" })
	out, err := b.runs(t, Command{Name: "export", Arg: "evt_1", Format: "go"})
	if err != nil || out != "package x\n\n\tend without a line end" || b.asked[0] != "GET /api/v1/events/evt_1/export?format=go" {
		t.Errorf("%q, %v, %s", out, err, b.asked)
	}
}

// TestWaitGivesTheEndOfTheEvent: an event that came is shown when it has ended.
func TestWaitGivesTheEndOfTheEvent(t *testing.T) {
	b := newAPIFixture(t, func(r *http.Request, n int) string {
		switch n {
		case 1:
			return `{"data":[{"id":"evt_3"},{"id":"evt_2"}]}`
		case 2:
			return `{"id":"evt_2","state":"delivering"}`
		}
		return `{"id":"evt_2","state":"delivered"}`
	})
	out, err := b.runs(t, Command{Name: "wait", Arg: "a b", Path: "/hook", Method: "POST", Timeout: 30 * time.Second})
	if err != nil || out != `{"id":"evt_2","state":"delivered"}`+"\n" {
		t.Errorf("%q, %v", out, err)
	}
	if !strings.HasPrefix(b.asked[0], "GET /api/v1/events?alias=a+b&limit=200&method=POST&path=%2Fhook&wait=") || b.asked[2] != "GET /api/v1/events/evt_2" {
		t.Errorf("asked %q", b.asked)
	}
}

func TestWaitRunsOut(t *testing.T) {
	b := newAPIFixture(t, func(r *http.Request, n int) string {
		if _, err := time.ParseDuration(r.FormValue("wait")); err != nil {
			t.Error(err)
		}
		return `{"data":[]}`
	})
	out, err := b.runs(t, Command{Name: "wait", Arg: "a", Timeout: 30 * time.Millisecond})
	if out != "" || exitOf(err) != ExitFailure || !strings.Contains(err.Error(), "within 30ms") {
		t.Errorf("%q, %v", out, err)
	}
}

// TestLongWaitMissesNothing: what arrived between two questions is found by its id.
func TestLongWaitMissesNothing(t *testing.T) {
	b := newAPIFixture(t, func(r *http.Request, n int) string {
		switch {
		case n == 1: // before the wait
			return `{"data":[{"id":"evt_1"}]}`
		case strings.Contains(r.URL.RawQuery, "wait="):
			return `{"data":[]}`
		case strings.HasSuffix(r.URL.Path, "/events"):
			return fmt.Sprintf(`{"data":[%s{"id":"evt_1"}]}`, map[bool]string{true: `{"id":"evt_3"},{"id":"evt_2"},`}[n > 3])
		}
		return `{"id":"evt_2","state":"queued"}`
	})
	out, err := b.runs(t, Command{Name: "wait", Arg: "a", Timeout: 5 * time.Minute})
	var e struct{ ID string }
	if err != nil || json.Unmarshal([]byte(out), &e) != nil || e.ID != "evt_2" {
		t.Errorf("%q, %v", out, err)
	}
}

// TestLongWaitSeesAnEventAtOnce: one question waits at any time, also while the one
// before ends. Time is synthetic; the relay answers from memory.
func TestLongWaitSeesAnEventAtOnce(t *testing.T) {
	for _, at := range []time.Duration{time.Second, 54 * time.Second, 55 * time.Second, 56 * time.Second, 100 * time.Second, 105 * time.Second, 170 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			came := start.Add(at)
			api, err := NewAPI("https://relay.test", "rly_x", "test")
			if err != nil {
				t.Fatal(err)
			}
			api.http.Transport = answering(func(r *http.Request) string {
				limit, err := time.ParseDuration(r.FormValue("wait"))
				if err != nil {
					return `{"data":[]}`
				}
				asked := time.Now()
				switch {
				case asked.After(came):
					wait(r.Context(), limit)
				case came.Before(asked.Add(limit)):
					wait(r.Context(), came.Sub(asked))
					return `{"data":[{"id":"evt_1"}]}`
				default:
					wait(r.Context(), limit)
				}
				return `{"data":[]}`
			})
			w := &waitLoop{api: api, query: nil, end: start.Add(3 * time.Minute), answers: make(chan waitAnswer)}
			e, err := w.run(t.Context(), true)
			if err != nil || idOf(e) != "evt_1" || time.Since(came) > time.Second {
				t.Errorf("an event after %v: %s, %v, seen %v late", at, e, err, time.Since(came))
			}
		})
	}
}

// answering is a RoundTripper that answers from memory.
type answering func(r *http.Request) string

func (f answering) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(f(r))), Request: r}, nil
}

func TestWaitAndShareLines(t *testing.T) {
	for want, c := range map[string]Command{
		"wait a --path /hook --method POST --timeout 5m --json": {Name: "wait", Arg: "a", Path: "/hook", Method: "POST", Timeout: 5 * time.Minute},
		"share evt_1 --view --expires 12h --json":               {Name: "share", Arg: "evt_1", View: true, Expires: "12h"},
		"export evt_1 --format har":                             {Name: "export", Arg: "evt_1", Format: "har"},
		"token --name 'a b' --json":                             {Name: "token", Title: "a b"},
	} {
		if got := c.line(); got != strings.Replace(want, "/hook", "'/hook'", 1) {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}

// TestAnswersThatDoNotEnd: what is kept of an answer has a bound.
func TestAnswersThatDoNotEnd(t *testing.T) {
	var out bytes.Buffer
	b := &limitedWriter{out: &out, left: 5}
	if _, err := b.Write([]byte("abc")); err != nil {
		t.Error(err)
	}
	if _, err := b.Write([]byte("def")); exitOf(err) != ExitFailure || out.String() != "abc" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

// TestExportName: both programs name an export alike.
func TestExportName(t *testing.T) {
	e := &relay.Event{Method: "GET"}
	e.Request.Body.State = relay.BodyComplete
	for _, format := range Formats() {
		out, err := record.Export(e, format, relay.Site{AliasDomain: "localhost"}, "1", time.Now())
		if err != nil {
			t.Fatalf("%s: %v", format, err)
		}
		if name := ExportName(e.ID.String(), format); name != out.Name {
			t.Errorf("%s is %s here and %s there", format, name, out.Name)
		}
	}
}
