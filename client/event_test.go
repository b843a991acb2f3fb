package client

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"relay/cli"
)

// TestEventsOfSeveralPages: the requested number of events is read, with the filters on every page.
func TestEventsOfSeveralPages(t *testing.T) {
	eachTransport(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("cursor") == "" {
			_, _ = io.WriteString(w, `{"data":[{"id":"evt_5"},{"id":"evt_4"}],"nextCursor":"c"}`)
		} else {
			_, _ = io.WriteString(w, `{"data":[{"id":"evt_3"}],"nextCursor":null}`)
		}
	}), func(t *testing.T, api *cli.API, s *apiServer) {
		out, err := api.Events(t.Context(), url.Values{"alias": {"a b"}, "json": {"a=1", "b=2"}}, 3)
		if err != nil || string(out) != `{"data":[{"id":"evt_5"},{"id":"evt_4"},{"id":"evt_3"}],"nextCursor":null}` {
			t.Errorf("%s, %v", out, err)
		}
		if got := s.requests()[1]; got != "GET /api/v1/events?alias=a+b&cursor=c&json=a%3D1&json=b%3D2&limit=1" {
			t.Error(got)
		}
	})
}

// TestExportIsNotTouched: Export returns the text and the file name as the relay sent them.
func TestExportIsNotTouched(t *testing.T) {
	const text = "package x\n\n\tend without a line end"
	eachTransport(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Disposition", `attachment; filename="evt_1_test.go"`)
		_, _ = io.WriteString(w, text)
	}), func(t *testing.T, api *cli.API, s *apiServer) {
		out, name, err := api.Export(t.Context(), "evt_1", "go")
		if err != nil || string(out) != text || name != "evt_1_test.go" || s.requests()[0] != "GET /api/v1/events/evt_1/export?format=go" {
			t.Errorf("%q, %s, %v, %s", out, name, err, s.requests())
		}
	})
}

// TestWait: only an event that arrives after the call of Wait counts. Wait returns the event when its delivery
// has ended.
func TestWait(t *testing.T) {
	for name, x := range map[string]struct {
		filter  string   // path filter, or ""
		lists   []string // answers of GET /events; the last one is repeated
		streams []string // answers of GET /stream; the last one is repeated
		open    bool     // the last stream does not end
	}{
		"by the stream": {
			lists:   []string{`{"id":"evt_1"}`},
			streams: []string{streamed("s1", `{"id":"evt_1","state":"delivered"}`) + streamed("s2", `{"id":"evt_2","state":"delivering"}`)},
		},
		"with a filter": {
			filter:  "/hook",
			lists:   []string{`{"id":"evt_1"}`},
			streams: []string{streamed("s1", `{"id":"evt_2"}`)},
			open:    true,
		},
		"not an older event that matches later": {
			filter:  "/hook",
			lists:   []string{""},
			streams: []string{streamed("s1", `{"id":"evt_1","state":"delivered"}`) + streamed("s2", `{"id":"evt_2"}`)},
		},
		"before the stream began": {
			lists:   []string{`{"id":"evt_1"}`, `{"id":"evt_3"},{"id":"evt_2"},{"id":"evt_1"}`},
			streams: []string{""},
		},
		"after the stream was lost": {
			lists:   []string{"", ""},
			streams: []string{"id: s0\n\n", streamed("s1", `{"id":"evt_2","state":"delivered"}`)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			asked := map[string]int{}
			next := func(what string, list []string) string {
				mu.Lock()
				defer mu.Unlock()
				asked[what]++
				return list[min(asked[what], len(list))-1]
			}
			mux := http.NewServeMux()
			mux.HandleFunc("GET /api/v1/events", func(w http.ResponseWriter, r *http.Request) {
				if x.filter != "" && r.URL.RawQuery == "alias=a+b&limit=1" { // this request lists the events before the call
					_, _ = io.WriteString(w, `{"data":[{"id":"evt_1"}]}`)
					return
				}
				if r.FormValue("alias") != "a b" || r.FormValue("path") != x.filter {
					t.Errorf("asked %s", r.URL)
				}
				_, _ = io.WriteString(w, `{"data":[`+next("list", x.lists)+`]}`)
			})
			mux.HandleFunc("GET /api/v1/stream", func(w http.ResponseWriter, r *http.Request) {
				if r.FormValue("alias") != "a b" || r.FormValue("path") != x.filter {
					t.Errorf("asked %s", r.URL)
				}
				_, _ = io.WriteString(w, next("stream", x.streams))
				_ = http.NewResponseController(w).Flush()
				if x.open {
					<-r.Context().Done()
				}
			})
			mux.HandleFunc("GET /api/v1/events/evt_2", func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, next("event", []string{`{"id":"evt_2","state":"delivering"}`, `{"id":"evt_2","state":"delivered"}`}))
			})
			server := httptest.NewServer(mux)
			defer server.Close()
			api, err := NewAPI(server.URL, "rly_x", "test")
			if err != nil {
				t.Fatal(err)
			}
			defer api.Close()
			query := url.Values{"alias": {"a b"}}
			if x.filter != "" {
				query.Set("path", x.filter)
			}
			if out, err := api.Wait(t.Context(), query, testTimeout); err != nil || string(out) != `{"id":"evt_2","state":"delivered"}` {
				t.Errorf("%q, %v", out, err)
			}
		})
	}
}

// TestWaitForARareEvent: with a filter that matches no event yet, Wait reads the stream without searching the
// whole history first.
func TestWaitForARareEvent(t *testing.T) {
	eachTransport(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/stream"):
			_, _ = io.WriteString(w, streamed("s1", `{"id":"evt_2","state":"delivered"}`))
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		case strings.HasSuffix(r.URL.Path, "/evt_2"):
			_, _ = io.WriteString(w, `{"id":"evt_2","state":"delivered"}`)
		case r.FormValue("path") == "": // this request lists the events before the call
			_, _ = io.WriteString(w, `{"data":[{"id":"evt_1","receivedAt":"2026-11-28T10:00:00.000Z"}]}`)
		case r.FormValue("since") == "2026-11-28T09:59:00Z":
			_, _ = io.WriteString(w, `{"data":[]}`)
		default: // a page of an endless history
			_, _ = io.WriteString(w, `{"data":[],"nextCursor":"c"}`)
		}
	}), func(t *testing.T, api *cli.API, _ *apiServer) {
		out, err := api.Wait(t.Context(), url.Values{"alias": {"a"}, "path": {"/rare"}}, testTimeout)
		if err != nil || string(out) != `{"id":"evt_2","state":"delivered"}` {
			t.Errorf("%q, %v", out, err)
		}
	})
}

// TestWaitOverALostConnection: the relay cannot be reached for two requests while the delivery of the event
// is in progress. Wait tries again and returns the delivered event.
func TestWaitOverALostConnection(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/stream"):
			_, _ = io.WriteString(w, streamed("s1", `{"id":"evt_2","state":"delivering"}`))
		case strings.HasSuffix(r.URL.Path, "/evt_2") && asked.Add(1) == 1:
			panic(http.ErrAbortHandler)
		case strings.HasSuffix(r.URL.Path, "/evt_2") && asked.Load() == 2:
			w.WriteHeader(http.StatusBadGateway)
		case strings.HasSuffix(r.URL.Path, "/evt_2"):
			_, _ = io.WriteString(w, `{"id":"evt_2","state":"delivered"}`)
		default:
			_, _ = io.WriteString(w, `{"data":[]}`)
		}
	}))
	defer server.Close()
	api, err := NewAPI(server.URL, "rly_x", "test")
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	out, err := api.Wait(t.Context(), url.Values{"alias": {"a"}}, testTimeout)
	if err != nil || string(out) != `{"id":"evt_2","state":"delivered"}` {
		t.Errorf("%q, %v", out, err)
	}
}

func TestWaitRunsOut(t *testing.T) {
	eachTransport(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/stream") {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		}
		_, _ = io.WriteString(w, `{"data":[]}`)
	}), func(t *testing.T, api *cli.API, _ *apiServer) {
		out, err := api.Wait(t.Context(), url.Values{"alias": {"a"}}, 30*time.Millisecond)
		if len(out) > 0 || exitOfError(err) != cli.ExitFailure || !strings.Contains(err.Error(), "within 30ms") {
			t.Errorf("%q, %v", out, err)
		}
	})
}
