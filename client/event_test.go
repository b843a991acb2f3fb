package client

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// numbered answers with what answer gives for the number of a request, from 1.
func numbered(answer func(r *http.Request, n int) string) http.Handler {
	var n atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, answer(r, int(n.Add(1))))
	})
}

// TestEventsOfSeveralPages: as many as wanted, with the filters on every page.
func TestEventsOfSeveralPages(t *testing.T) {
	eachTransport(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("cursor") == "" {
			_, _ = io.WriteString(w, `{"data":[{"id":"evt_5"},{"id":"evt_4"}],"nextCursor":"c"}`)
		} else {
			_, _ = io.WriteString(w, `{"data":[{"id":"evt_3"}],"nextCursor":null}`)
		}
	}), func(t *testing.T, api *API, s *apiServer) {
		var out bytes.Buffer
		err := api.Events(t.Context(), url.Values{"alias": {"a b"}, "json": {"a=1", "b=2"}}, 3, &out)
		if err != nil || out.String() != `{"data":[{"id":"evt_5"},{"id":"evt_4"},{"id":"evt_3"}],"nextCursor":null}`+"\n" {
			t.Errorf("%s, %v", out.String(), err)
		}
		if got := s.requests()[1]; got != "GET /api/v1/events?alias=a+b&cursor=c&json=a%3D1&json=b%3D2&limit=1" {
			t.Error(got)
		}
	})
}

// TestExportIsNotTouched: the text and its name are those of the relay.
func TestExportIsNotTouched(t *testing.T) {
	const text = "package x\n\n\tend without a line end"
	eachTransport(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Disposition", `attachment; filename="evt_1_test.go"`)
		_, _ = io.WriteString(w, text)
	}), func(t *testing.T, api *API, s *apiServer) {
		out, name, err := api.Export(t.Context(), "evt_1", "go")
		if err != nil || string(out) != text || name != "evt_1_test.go" || s.requests()[0] != "GET /api/v1/events/evt_1/export?format=go" {
			t.Errorf("%q, %s, %v, %s", out, name, err, s.requests())
		}
	})
}

// TestWaitGivesTheEndOfTheEvent: an event that came is shown when it has ended.
func TestWaitGivesTheEndOfTheEvent(t *testing.T) {
	eachTransport(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}), func(t *testing.T, api *API, s *apiServer) {
		api.http.Transport = answering(func(r *http.Request) string {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.asked = append(s.asked, r.URL.RequestURI())
			return []string{`{"data":[{"id":"evt_3"},{"id":"evt_2"}]}`, `{"id":"evt_2","state":"delivering"}`, `{"id":"evt_2","state":"delivered"}`}[len(s.asked)-1]
		})
		var out bytes.Buffer
		err := api.Wait(t.Context(), url.Values{"alias": {"a b"}, "path": {"/hook"}}, 30*time.Second, &out)
		if err != nil || out.String() != `{"id":"evt_2","state":"delivered"}`+"\n" {
			t.Errorf("%q, %v", out.String(), err)
		}
		if asked := s.requests(); !strings.HasPrefix(asked[0], "/api/v1/events?alias=a+b&limit=200&path=%2Fhook&wait=") || asked[2] != "/api/v1/events/evt_2" {
			t.Errorf("asked %q", asked)
		}
	})
}

func TestWaitRunsOut(t *testing.T) {
	eachTransport(t, numbered(func(r *http.Request, n int) string {
		if _, err := time.ParseDuration(r.FormValue("wait")); err != nil {
			t.Error(err)
		}
		return `{"data":[]}`
	}), func(t *testing.T, api *API, _ *apiServer) {
		var out bytes.Buffer
		err := api.Wait(t.Context(), url.Values{"alias": {"a"}}, 30*time.Millisecond, &out)
		if out.Len() > 0 || exitOfError(err) != ExitFailure || !strings.Contains(err.Error(), "within 30ms") {
			t.Errorf("%q, %v", out.String(), err)
		}
	})
}

// TestLongWaitMissesNothing: what arrived between two questions is found by its id.
func TestLongWaitMissesNothing(t *testing.T) {
	server := httptest.NewServer(numbered(func(r *http.Request, n int) string {
		switch {
		case n == 1: // before the wait
			return `{"data":[{"id":"evt_1"}]}`
		case strings.Contains(r.URL.RawQuery, "wait="):
			return `{"data":[]}`
		case strings.HasSuffix(r.URL.Path, "/events"):
			return fmt.Sprintf(`{"data":[%s{"id":"evt_1"}]}`, map[bool]string{true: `{"id":"evt_3"},{"id":"evt_2"},`}[n > 3])
		}
		return `{"id":"evt_2","state":"queued"}`
	}))
	defer server.Close()
	api, err := NewAPI(server.URL, "rly_x", "test")
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	var out bytes.Buffer
	err = api.Wait(t.Context(), url.Values{"alias": {"a"}}, 5*time.Minute, &out)
	var e struct{ ID string }
	if err != nil || json.Unmarshal(out.Bytes(), &e) != nil || e.ID != "evt_2" {
		t.Errorf("%q, %v", out.String(), err)
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
			w := &waitLoop{api: api, query: url.Values{}, end: start.Add(3 * time.Minute), answers: make(chan waitAnswer)}
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

// TestAnswersThatDoNotEnd: what is kept of an answer has a bound.
func TestAnswersThatDoNotEnd(t *testing.T) {
	var out bytes.Buffer
	b := &limitedWriter{out: &out, left: 5}
	if _, err := b.Write([]byte("abc")); err != nil {
		t.Error(err)
	}
	if _, err := b.Write([]byte("def")); exitOfError(err) != ExitFailure || out.String() != "abc" {
		t.Errorf("%q, %v", out.String(), err)
	}
}
