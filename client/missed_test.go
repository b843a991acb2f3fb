package client

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"relay"
)

// TestRequestsOfALossAreLogged: after a loss, the client requests the items of the event stream that follow s2,
// the last item it has read. The relay answers resync, because it cannot continue there. The client then lists
// the events, and shows each attempt that ended in the meantime once.
func TestRequestsOfALossAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, dialer, _, _ := inMemory(t)
		attempt := `{"number":1,"kind":"original","state":"delivered","receivedAt":"2026-11-28T15:00:00.000Z","response":{"status":200}}`
		item := func(id string) string {
			return `{"eventId":"` + id + `","alias":"a","event":{"id":"` + id + `","alias":"a"},"attempt":` + attempt + `}`
		}
		streams, since := 0, ""
		d.api.HandleFunc("GET /api/v1/stream", func(w http.ResponseWriter, r *http.Request) {
			streams++
			switch streams {
			case 1:
				_, _ = io.WriteString(w, "id: s1\n\nid: s2\nevent: attempt\ndata: "+item("evt_1")+"\n\n")
			default:
				if got := r.Header.Get("Last-Event-ID"); got != "s2" {
					t.Errorf("asked behind %q", got)
				}
				_, _ = io.WriteString(w, "id: s5\nevent: resync\ndata: {}\n\nid: s6\nevent: attempt\ndata: "+item("evt_4")+"\n\n")
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			}
		})
		d.api.HandleFunc("GET /api/v1/events", func(w http.ResponseWriter, r *http.Request) {
			since = r.FormValue("since") + r.FormValue("alias")
			_, _ = io.WriteString(w, `{"data":[{"id":"evt_3","attemptCount":1},{"id":"evt_2","attemptCount":1},{"id":"evt_1","attemptCount":1}],"nextCursor":null}`)
		})
		d.api.HandleFunc("GET /api/v1/events/{id}", func(w http.ResponseWriter, r *http.Request) {
			if r.PathValue("id") == "evt_1" {
				t.Error("what was logged is read again")
			}
			_, _ = fmt.Fprintf(w, `{"id":%q,"alias":"a","attempts":[`+attempt+`]}`, r.PathValue("id"))
		})
		began := time.Now()
		run := startUp(t, dialer, Forward{Alias: "a"})
		<-run.ready
		var logged []string
		for len(logged) < 4 {
			m := got(t, "request", run.messages)
			if m.Type == TypeMissed {
				t.Error("requests are said to be missing")
			}
			if m.Type == TypeRequest {
				logged = append(logged, m.Event.ID)
			}
		}
		if text := strings.Join(logged, " "); text != "evt_1 evt_2 evt_3 evt_4" {
			t.Errorf("logged %s", text)
		}
		if at, err := time.Parse(time.RFC3339Nano, strings.TrimSuffix(since, "a")); err != nil || at.Before(began) || !strings.HasSuffix(since, "Za") {
			t.Errorf("listed since %q", since)
		}
		_ = run.stop(t)
		synctest.Wait()
	})
}

// TestLossIsListedByTheClockOfTheRelay: the relay lists events by its own clock, so the client must allow for
// a difference between the two clocks. If an event cannot be read, the log says that requests are missing. A
// removed event does not count as missing.
func TestLossIsListedByTheClockOfTheRelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, dialer, _, _ := inMemory(t)
		const behind = time.Hour
		streams, since := 0, time.Time{}
		d.api.HandleFunc("GET /api/v1/stream", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Date", time.Now().Add(-behind).UTC().Format(http.TimeFormat))
			if streams++; streams == 1 {
				_, _ = io.WriteString(w, "id: s1\n\n")
				return
			}
			_, _ = io.WriteString(w, "id: s5\nevent: resync\ndata: {}\n\n")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})
		d.api.HandleFunc("GET /api/v1/events", func(w http.ResponseWriter, r *http.Request) {
			since, _ = time.Parse(time.RFC3339Nano, r.FormValue("since"))
			_, _ = io.WriteString(w, `{"data":[{"id":"evt_2","attemptCount":1},{"id":"evt_1","attemptCount":1}],"nextCursor":null}`)
		})
		d.api.HandleFunc("GET /api/v1/events/{id}", func(w http.ResponseWriter, r *http.Request) {
			status, code := http.StatusNotFound, "not-found"
			if r.PathValue("id") == "evt_2" {
				status, code = http.StatusServiceUnavailable, "store-unavailable"
			}
			w.WriteHeader(status)
			_, _ = fmt.Fprintf(w, `{"status":%d,"code":%q}`, status, code)
		})
		run := startUp(t, dialer, Forward{Alias: "a"})
		<-run.ready
		for got(t, "what is missing", run.messages).Type != TypeMissed {
		}
		if off := since.Sub(time.Now().Add(-behind)); off.Abs() > 2*missedBefore {
			t.Errorf("listed %v beside the clock of the relay", off)
		}
		_ = run.stop(t)
		synctest.Wait()
	})
}

// TestMoreRequestsOfALossThanAreRead: if more requests ended while the connection was lost than the client reads
// afterwards, the log shows those that it has read and says that some are missing.
func TestMoreRequestsOfALossThanAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, dialer, _, _ := inMemory(t)
		streams := 0
		d.api.HandleFunc("GET /api/v1/stream", func(w http.ResponseWriter, r *http.Request) {
			if streams++; streams == 1 {
				_, _ = io.WriteString(w, "id: s1\n\n")
				return
			}
			_, _ = io.WriteString(w, "id: s5\nevent: resync\ndata: {}\n\n")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})
		d.api.HandleFunc("GET /api/v1/events", func(w http.ResponseWriter, r *http.Request) {
			if r.FormValue("limit") != "50" {
				t.Errorf("%s are asked for", r.FormValue("limit"))
			}
			_, _ = io.WriteString(w, `{"data":[{"id":"evt_1","attemptCount":1}],"nextCursor":"more"}`)
		})
		d.api.HandleFunc("GET /api/v1/events/{id}", func(w http.ResponseWriter, r *http.Request) {
			_, _ = fmt.Fprintf(w, `{"id":%q,"alias":"a","attempts":[{"number":1,"kind":"original","state":"delivered","receivedAt":"2026-11-28T15:00:00.000Z","response":{"status":200}}]}`, r.PathValue("id"))
		})
		run := startUp(t, dialer, Forward{Alias: "a"})
		<-run.ready
		var seen []string
		for len(seen) == 0 || seen[len(seen)-1] != TypeMissed {
			if m := got(t, "message", run.messages); m.Type == TypeRequest || m.Type == TypeMissed {
				seen = append(seen, m.Type)
			}
		}
		if text := strings.Join(seen, " "); text != TypeRequest+" "+TypeMissed {
			t.Errorf("seen: %s", text)
		}
		_ = run.stop(t)
		synctest.Wait()
	})
}

// TestRequestsOfOtherAliasesAreNotLogged: the stream of several aliases has the requests of all aliases of
// the account; the log leaves out requests of aliases that this program does not forward.
func TestRequestsOfOtherAliasesAreNotLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, dialer, _, _ := inMemory(t)
		online := make(chan struct{})
		d.notices = func(c *fakeConn) {
			for _, alias := range []string{"a", "b"} {
				c.notify(relay.Notice{Kind: relay.NoticeOnline, Alias: alias})
			}
		}
		d.api.HandleFunc("GET /api/v1/stream", func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "id: s1\n\n")
			_ = http.NewResponseController(w).Flush()
			<-online
			for i, alias := range []string{"other", "b", "other", "a"} {
				_, _ = fmt.Fprintf(w, "id: s%d\nevent: attempt\ndata: {\"eventId\":\"evt_%d\",\"alias\":%q,\"event\":{\"id\":\"evt_%d\",\"alias\":%q},"+
					"\"attempt\":{\"number\":1,\"kind\":\"original\",\"state\":\"delivered\",\"receivedAt\":\"2026-11-28T15:00:00.000Z\",\"response\":{\"status\":200}}}\n\n", i+2, i, alias, i, alias)
			}
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})
		run := startUp(t, dialer, Forward{Alias: "a"}, Forward{Alias: "b"})
		<-run.ready
		close(online)
		var logged []string
		for len(logged) < 2 {
			if m := got(t, "request", run.messages); m.Type == TypeRequest {
				logged = append(logged, m.Event.Alias)
			}
		}
		if text := strings.Join(logged, " "); text != "b a" {
			t.Errorf("logged: %s", text)
		}
		_ = run.stop(t)
		synctest.Wait()
	})
}
