package dashboard_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/dashboard"
)

func TestStreamShowsAndFilters(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	contains(t, "empty alias", r.get("/aliases/hook", 200), "ssh -N -R hook:80:localhost:3000", "No events yet", "never")
	r.online()
	r.answers(func(head, _ []byte) string {
		if strings.Contains(string(head), "/bad") {
			return "HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n"
		}
		return ok
	})
	good := r.send(post("/good?x=1", `{"type":"invoice.paid","id":"evt_1"}`, "Stripe-Signature: t=1,v1=x"))
	bad := r.send(post("/bad", `{"needle":1}`))
	page := r.get("/aliases/hook", 200)
	contains(t, "stream", page, `data-event-id="`+good.String()+`"`, `data-state="delivered"`, "/good?x=1", ">500<", "Stripe", "invoice.paid", "online", "online since <time", "</time> · OpenSSH", "type:invoice.*", ">Errors</a>", "?status=error", "?type=invoice.paid", "?provider=stripe")
	if strings.Index(page, bad.String()) > strings.Index(page, good.String()) {
		t.Error("the newest is not on top")
	}
	for query, want := range map[string]relay.ID{
		"status=5xx": bad, "status=200": good, "path=/go": good, "q=needle": bad, "state=delivered&path=/bad": bad, "method=post&path=/good": good,
		"since=2020-01-01T00:00&path=/bad": bad, "status=error": bad, "type=invoice.*": good, "provider=stripe": good, "json=type%3Dinvoice.paid": good, "find=status:5xx+NEEDLE": bad,
	} {
		page := r.get("/aliases/hook?"+query, 200)
		if n := strings.Count(page, "data-event-id="); n != 1 || !strings.Contains(page, want.String()) {
			t.Errorf("%s: %d rows", query, n)
		}
	}
	contains(t, "no match", r.get("/aliases/hook?path=/none", 200), "No event matches")
	wrong := r.get("/aliases/hook?status=abc&q=x", 422)
	contains(t, "wrong filter", wrong, "expected a status", `value="q:x status:abc"`, `id="filter-wrong"`, `aria-describedby="filter-wrong"`)
	if strings.Contains(wrong, "No event matches") {
		t.Error("a filter that cannot be read is told as one that finds nothing")
	}
	contains(t, "misspelled word", r.get("/aliases/hook?find=statsu:500", 422), "did you mean status?")
	r.get("/aliases/hook?pth=/x", 422)
	// The API gives the same answer.
	for _, undecodable := range []string{"path=%zz", "status=5xx;path=/x"} {
		contains(t, "a query that cannot be decoded", r.get("/aliases/hook?"+undecodable, 422), "the query of the address cannot be read")
	}
	r.get("/aliases/hook?alias=other", 422)
	contains(t, "completion", r.get("/aliases/hook/complete?text=path:/x+type:inv", 200), `<option value="path:/x type:invoice.paid">`)
	r.get("/aliases/hook?since=yesterday", 422)
	r.get("/aliases/hook?cursor=nonsense", 422)
	r.get("/aliases/other", 404)
}

func TestStreamPages(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	oldest := r.send(post("/n/000", ""))
	for i := range 102 {
		r.send(post(fmt.Sprintf("/n/%03d", i+1), ""))
	}
	page := r.get("/aliases/hook", 200)
	if n := strings.Count(page, "data-event-id="); n != 100 {
		t.Fatalf("%d rows on the first page", n)
	}
	_, link, _ := strings.Cut(page, `id="older" href="`)
	link, _, _ = strings.Cut(link, `"`)
	page = r.get(strings.ReplaceAll(link, "&amp;", "&"), 200)
	contains(t, "second page", page, "/n/000", "/n/002", "Newest events")
	if n := strings.Count(page, "data-event-id="); n != 3 {
		t.Errorf("%d rows on the second page", n)
	}
	contains(t, "page of the oldest event", r.get("/events/"+oldest.String(), 200), `<p hidden><a id="older"`)
}

func TestReplayQueuedAsksOnceMore(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.online()
	delivered := r.send(post("/c", "{}")).String()
	r.offline()
	r.send(post("/a", "{}"))
	id := r.send(post("/b", "{}"))
	// This replay is queued, too, but it needs no release, so the button "Replay all queued" does not count
	// it.
	r.submit("/events/"+delivered+"/replay", nil, 200)
	stream := r.get("/aliases/hook", 200)
	contains(t, "stream", stream, "Replay all queued (2)", `data-state="queued"`, "2 events were queued while offline", "1 queued delivery: sent when the tunnel is back online", `title="3 queued"`)
	if n := strings.Count(stream, `<span class="state queued">replay queued</span>`); n != 1 { // the other two events are delivered by the button
		t.Errorf("%d rows with a queued replay, want 1", n)
	}
	if text := strings.Join(strings.Fields(regexp.MustCompile(`(?s)id="state"[^>]*>(.*?)</span>`).FindStringSubmatch(r.get("/events/"+delivered, 200))[1]), " "); text != "replay queued" { // the status 200 of the previous attempt stands beside it
		t.Errorf("the state is %q", text)
	}
	contains(t, "question", r.get("/aliases/hook/replay-queued", 200), "Replay all queued (2)", "Oldest", "Newest", "runs your code", "not online")
	page := r.submit("/aliases/hook/replay-queued", nil, 200)
	contains(t, "afterwards", page, "2 events were released", "when the tunnel is back")
	if strings.Contains(page, "Replay all queued") {
		t.Error("the button is still there")
	}
	r.online()
	r.await("queue drained", func() bool {
		e, err := r.s.Event(context.Background(), relay.System(), id, 0)
		return err == nil && e.State == relay.StateDelivered
	})
}

// await polls until ok returns true.
func (r *fixture) await(what string, ok func() bool) {
	r.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	r.t.Fatalf("never happened: %s", what)
}

// listen opens live updates, and returns a channel with their messages.
func (r *fixture) listen(path string) <-chan string {
	ctx, cancel := context.WithCancel(context.Background())
	r.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, "GET", r.base+path, nil)
	must(r.t, err)
	res, err := r.client.Do(req)
	must(r.t, err)
	if res.StatusCode != 200 || res.Header.Get("Content-Type") != "text/event-stream" {
		r.t.Fatalf("%s: %d %s", path, res.StatusCode, res.Header.Get("Content-Type"))
	}
	messages := make(chan string, 100)
	go func() {
		defer res.Body.Close()
		defer close(messages)
		var m strings.Builder
		for lines := bufio.NewScanner(res.Body); lines.Scan(); {
			if lines.Text() != "" {
				m.WriteString(lines.Text() + "\n")
				continue
			}
			messages <- m.String()
			m.Reset()
		}
	}()
	return messages
}

func (r *fixture) hear(messages <-chan string, want ...string) string {
	r.t.Helper()
	late := time.After(patience)
	for {
		select {
		case m, open := <-messages:
			if !open {
				r.t.Fatalf("live updates ended before %q", want)
			}
			all := true
			for _, w := range want {
				all = all && strings.Contains(m, w)
			}
			if all {
				return m
			}
		case <-late:
			r.t.Fatalf("never heard %q", want)
		}
	}
}

// liveOf returns the address of a page's live updates.
func liveOf(t *testing.T, page string) string {
	t.Helper()
	_, link, found := strings.Cut(page, `data-live="`)
	link, _, _ = strings.Cut(link, `"`)
	if !found {
		t.Fatal("the page has no live updates")
	}
	return strings.ReplaceAll(link, "&amp;", "&")
}

func TestLiveRowsArrive(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.online()
	first := r.send(post("/first", "{}"))
	live := liveOf(t, r.get("/aliases/hook", 200))
	messages := r.listen(live)
	r.hear(messages, ": connected")
	r.send(post("/live", `{}`))
	m := r.hear(messages, "event: row", `data-state="delivered"`, "/live")
	if strings.Count(m, "\ndata: ") != 1 || !strings.HasPrefix(m, "id: ") {
		t.Errorf("message %q", m)
	}
	r.replay(first.String())
	r.hear(messages, "event: row", first.String(), "↻1")
	r.offline()
	r.hear(messages, "event: region", `data-state="offline"`, "ssh -N -R hook")

	// Changes between the reading of a page and the start of its live updates lead to a resync.
	r.hear(r.listen(live), "event: resync")
	id, _, _ := strings.Cut(strings.TrimPrefix(m, "id: "), "\n")
	r.hear(r.listen("/aliases/hook/live?after="+url.QueryEscape(id)), "event: resync")
	// Without an id the server does not know which changes the page lacks.
	r.hear(r.listen("/aliases/hook/live"), "event: resync")

	filtered := r.listen("/aliases/hook/live?path=%2Fother")
	r.hear(filtered, ": connected")
	r.send(post("/live", `{}`))
	r.hear(filtered, "event: update", "/live")
}

func TestLoginLeadsWhereOneWanted(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	link, err := r.s.CreateLoginLink(context.Background(), relay.System(), "alice", time.Minute)
	must(t, err)
	jar, err := cookiejar.New(nil)
	must(t, err)
	r.client = &http.Client{Jar: jar}
	contains(t, "stranger", r.get("/aliases/hook?path=%2Fa", 401), "login")
	contains(t, "after login", r.submit("/login/"+link, nil, 200), `data-live="/aliases/hook/live?after=`, "&amp;path=%2Fa")

	// After a login, the browser is redirected only to paths of this site.
	link, err = r.s.CreateLoginLink(context.Background(), relay.System(), "alice", time.Minute)
	must(t, err)
	r.client = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for _, bad := range []string{"//evil.example", "https://evil.example", "/\\evil.example", ""} {
		req, _ := http.NewRequest("POST", r.base+"/login/"+link, nil)
		req.Header.Set("Cookie", "relay_next="+url.QueryEscape(bad))
		res, err := r.client.Do(req)
		must(t, err)
		_ = res.Body.Close()
		if to := res.Header.Get("Location"); res.StatusCode == 303 && to != "/" {
			t.Errorf("%q leads to %q", bad, to)
		}
		link, err = r.s.CreateLoginLink(context.Background(), relay.System(), "alice", time.Minute)
		must(t, err)
	}
}

// TestLiveBeginsWithWhatIs: live updates begin with the current sidebar. If the page may be older than the
// last change, a message makes it read its data again.
func TestLiveBeginsWithWhatIs(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	const home = "/live"
	events := liveOf(t, r.get("/aliases/hook", 200))
	r.online()
	messages := r.listen(home)
	r.hear(messages, "event: reread")
	r.hear(messages, "event: region", `id="side-hook"`, `data-state="online"`)
	r.hear(r.listen(events), "event: region", `id="side-hook"`, `data-state="online"`)
	r.hear(r.listen(events), "event: resync")
}

// TestLiveGoesOnFromItsStart: live updates begin with an id. A browser that reconnects with this id gets a
// resync if it has missed an event.
func TestLiveGoesOnFromItsStart(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.online()
	messages := r.listen("/aliases/hook/live")
	start := r.hear(messages, ": connected", "\nid: ")
	r.send(post("/missed", "{}"))
	r.hear(messages, "/missed") // the feed has the event, so the reconnected browser has missed it
	_, id, _ := strings.Cut(start, "\nid: ")
	r.hear(r.listen("/aliases/hook/live?after="+url.QueryEscape(strings.TrimSpace(id))), "event: resync")
}

// TestLiveGoesOnFromItsAlias: in the live updates of an alias, items of the alias have an id, and items of
// the sidebar have none.
func TestLiveGoesOnFromItsAlias(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	messages := r.listen("/aliases/hook/live")
	r.hear(messages, ": connected")
	r.online()
	for seen := 0; seen < 2; {
		m := r.hear(messages, "event: ")
		switch hasID := strings.Contains("\n"+m, "\nid: "); {
		case !strings.Contains(m, "event: region\n"), strings.Contains(m, `id="sidebar"`): // skips the whole sidebar, which is sent at the start, and updates that are no region
		case strings.Contains(m, `id="side-hook"`):
			seen++
			if hasID {
				t.Errorf("an item of the sidebar has an id: %s", m)
			}
		case strings.Contains(m, `id="alias"`):
			seen++
			if !hasID {
				t.Errorf("an item of the alias has no id: %s", m)
			}
		}
	}
}

// TestLiveSendsOneStatus: if a viewer leaves while the first updates are being made, the server sends one
// status, 200.
func TestLiveSendsOneStatus(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/live", "/aliases/hook/live"} {
		leave := make(chan context.CancelFunc, 1)
		var pages http.Handler
		r := newFixture(t, func(o *dashboard.Options) {
			o.Deliver = leavingViewer{o.Deliver, leave}
			pages = dashboard.New(*o)
		})
		ctx, cancel := context.WithCancel(t.Context())
		leave <- cancel
		req := httptest.NewRequestWithContext(ctx, "GET", path, nil)
		req.AddCookie(&http.Cookie{Name: "relay_session", Value: r.session})
		w := &statusCounter{ResponseRecorder: httptest.NewRecorder()}
		pages.ServeHTTP(w, req)
		if w.sent != 1 || w.Code != 200 {
			t.Errorf("%s: %d statuses, the first %d", path, w.sent, w.Code)
		}
	}
}

// leavingViewer is a Deliverer whose viewer leaves as soon as the status was sent.
type leavingViewer struct {
	dashboard.Deliverer
	leave chan context.CancelFunc
}

func (d leavingViewer) Subscribe(ctx context.Context, who relay.Actor, alias int64, lastID string) (relay.Subscription, error) {
	sub, err := d.Deliverer.Subscribe(ctx, who, alias, lastID)
	return leavingSubscription{sub, d.leave}, err
}

type leavingSubscription struct {
	relay.Subscription
	leave chan context.CancelFunc
}

func (s leavingSubscription) Start() string {
	select {
	case cancel := <-s.leave:
		cancel()
	default:
	}
	return s.Subscription.Start()
}

// statusCounter counts the statuses of one answer.
type statusCounter struct {
	*httptest.ResponseRecorder
	sent int
}

func (w *statusCounter) WriteHeader(status int) {
	w.sent++
	w.ResponseRecorder.WriteHeader(status)
}

// TestFilteredListsAreCounted: a filtered list shows the number of events that the filter selects; for a
// search in bodies, it says only that it has the newest ones.
func TestFilteredListsAreCounted(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	for i := range 103 {
		r.send(post(fmt.Sprintf("/a/%d", i), `{}`))
	}
	for query, want := range map[string]string{"?path=/a/": "100 of 103", "?path=/a/7": "11 events", "?q=hook.localhost": "the newest 100", "": ""} {
		_, count, found := strings.Cut(r.get("/aliases/hook"+query, 200), `<span id="count" class="dim" role="status">`)
		if count, _, _ = strings.Cut(count, "<"); count != want || found != (want != "") {
			t.Errorf("%s: %q, want %q", query, count, want)
		}
	}
}
