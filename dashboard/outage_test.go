package dashboard_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"relay"
	"relay/dashboard"
	"relay/store"
	"relay/store/pgtest"
)

// storeDown is a store whose database does not answer while down is set.
type storeDown struct {
	accounts
	down *atomic.Bool
}

func (a storeDown) SessionOwner(ctx context.Context, secret string) (relay.Actor, error) {
	if a.down.Load() {
		e := relay.Errorf(relay.CodeStoreUnavailable, "the database does not answer")
		e.RetryAfter = 2 * time.Second
		return relay.Actor{}, e
	}
	return a.accounts.SessionOwner(ctx, secret)
}

func TestOutageSaysWhatStillWorks(t *testing.T) {
	t.Parallel()
	var down atomic.Bool
	r := newFixture(t, func(o *dashboard.Options) { o.Accounts = storeDown{o.Accounts, &down} })
	id := r.send(post("/hook", "{}")).String()
	r.get("/", 200)
	down.Store(true)
	for _, path := range []string{"/", "/aliases/hook?q=a", "/events/" + id, "/account"} {
		page := r.get(path, 503)
		contains(t, path, page, "The database does not answer", "still forwarded; the relay stores them", `href="`+path+`"`, "Try again")
	}
	r.submit("/events/"+id+"/replay", nil, 503)
	part := r.do("GET", "/events/"+id, nil, http.Header{"X-Regions": {"detail"}}, 503)
	contains(t, "the script's part", part, `data-status="503"`, "does not answer")
	req, _ := http.NewRequest("GET", r.base+"/", nil)
	req.Header.Set("Cookie", "relay_session=guessed")
	res, err := http.DefaultClient.Do(req)
	must(t, err)
	_ = res.Body.Close()
	if res.StatusCode != 503 || res.Header.Get("Retry-After") != "2" {
		t.Errorf("%d, Retry-After %q", res.StatusCode, res.Header.Get("Retry-After"))
	}
	down.Store(false)
	contains(t, "afterwards", r.get("/events/"+id, 200), `data-event-id="`+id+`"`)
}

// failingAliases is a store that fails to list aliases while down is set.
type failingAliases struct {
	accounts
	down *atomic.Bool
}

func (s failingAliases) Aliases(ctx context.Context, who relay.Actor) ([]relay.Alias, error) {
	if s.down.Load() {
		return nil, errStoreDown
	}
	return s.accounts.Aliases(ctx, who)
}

// failingEvents is a store that fails to read events while down is set.
type failingEvents struct {
	events
	down *atomic.Bool
}

type events = dashboard.Events

func (u failingEvents) Events(ctx context.Context, who relay.Actor, f relay.Filter) (relay.Page, error) {
	if u.down.Load() {
		return relay.Page{}, errStoreDown
	}
	return u.events.Events(ctx, who, f)
}

func (u failingEvents) Event(ctx context.Context, who relay.Actor, id relay.ID, most int) (*relay.Event, error) {
	if u.down.Load() {
		return nil, errStoreDown
	}
	return u.events.Event(ctx, who, id, most)
}

// busyAliases is a store that is too busy to list aliases.
type busyAliases struct{ accounts }

func (busyAliases) Aliases(context.Context, relay.Actor) ([]relay.Alias, error) {
	return nil, relay.Overloaded("this took too long, because the relay is busy")
}

// TestBusyPageIsTriedAgain: a page whose aliases could not be read in time gets 503, and has a link to try
// again.
func TestBusyPageIsTriedAgain(t *testing.T) {
	t.Parallel()
	r := newFixture(t, func(o *dashboard.Options) { o.Accounts = busyAliases{o.Accounts} })
	for _, path := range []string{"/", "/account"} {
		contains(t, path, r.get(path, 503), "this took too long", `href="`+path+`">Try again`)
	}
}

var errStoreDown = relay.Errorf(relay.CodeStoreUnavailable, "the database does not answer")

// TestOutageInTheMiddleOfAPage: if the store fails after it has found the session, pages get 503 and report
// the outage.
func TestOutageInTheMiddleOfAPage(t *testing.T) {
	t.Parallel()
	var down atomic.Bool
	r := newFixture(t, func(o *dashboard.Options) {
		o.Accounts, o.Events = failingAliases{o.Accounts, &down}, failingEvents{o.Events, &down}
	})
	id := r.send(post("/hook", "{}")).String()
	r.get("/", 200)
	down.Store(true)
	for _, path := range []string{"/", "/aliases/hook", "/events/" + id, "/account"} {
		contains(t, path, r.get(path, 503), "The database does not answer", "Log out")
	}
}

// lostPart is a store in which the second part of a body cannot be read.
type lostPart struct{ events }

func (l lostPart) BodyPart(ctx context.Context, id relay.ID, n, i int) ([]byte, error) {
	if i == 1 {
		return nil, errStoreDown
	}
	return l.events.BodyPart(ctx, id, n, i)
}

// TestOutageInTheMiddleOfABody: if a part of a JSON body cannot be read, the request for the whole body gets
// 503, and the body is not reported as invalid JSON.
func TestOutageInTheMiddleOfABody(t *testing.T) {
	t.Parallel()
	r := newFixture(t, func(o *dashboard.Options) { o.Events = lostPart{o.Events} })
	id := r.send(post("/hook", `["`+strings.Repeat("x", relay.BodyPart)+`"]`)).String()
	contains(t, "body", r.get("/events/"+id+"/json/0", 503), "The database does not answer")
}

// fetch sends a request, and returns the status and the page. It may be called in any goroutine.
func (r *fixture) fetch(method, path string) (status int, page string, err error) {
	req, err := http.NewRequest(method, r.base+path, nil)
	if err != nil {
		return 0, "", err
	}
	res, err := r.client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return res.StatusCode, string(body), err
}

// TestOutageOfPostgres kills, and then freezes, the database of the pages. Each page gets 503 and reports the
// outage, within 5 s in one of three tries, and works again afterwards.
func TestOutageOfPostgres(t *testing.T) {
	t.Parallel()
	pg := pgtest.Start(t, pgtest.Options{})
	r := newFixtureOn(t, store.Options{URL: pg.URL(t), DataDir: t.TempDir(), AliasClaim: true, MaxAliases: 50, SpoolLimit: 64 << 20})
	r.online()
	id := r.send(post("/hook", "{}")).String()
	outage := func(how string) (longest time.Duration) {
		t.Helper()
		posts := []string{"/events/" + id + "/replay", "/aliases/hook/replay-queued", "/logout"}
		paths := append(posts, "/", "/aliases/hook", "/aliases/hook/settings", "/events/"+id, "/account", "/aliases/hook/live")
		type answer struct {
			path, page string
			status     int
			took       time.Duration
			err        error
		}
		answers := make(chan answer, len(paths))
		for i, path := range paths {
			method := "GET"
			if i < len(posts) {
				method = "POST"
			}
			go func() {
				a := answer{path: path}
				began := time.Now()
				a.status, a.page, a.err = r.fetch(method, path)
				a.took = time.Since(began)
				answers <- a
			}()
		}
		for range paths {
			a := <-answers
			must(t, a.err)
			longest = max(longest, a.took)
			if a.status != 503 {
				t.Errorf("%s: %s = %d", how, a.path, a.status)
			}
			contains(t, how+" "+a.path, a.page, "The database does not answer", "Try again")
		}
		t.Logf("%s: the longest wait was %v", how, longest)
		return longest
	}
	const most = 5 * time.Second
	back := func(method, path string) {
		t.Helper()
		for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
			status, _, err := r.fetch(method, path)
			must(t, err)
			if status == 200 {
				return
			}
			if status != 503 || time.Now().After(end) {
				t.Fatalf("%s %s = %d after the database is back", method, path, status)
			}
		}
	}
	r.get("/", 200)
	for _, kind := range []struct {
		how        string
		begin, end func() error
	}{{"dead", pg.Kill, pg.Restart}, {"silent", pg.Freeze, pg.Thaw}} {
		least := time.Hour
		// The machine may have stood still, so there are up to three tries.
		for range 3 {
			must(t, kind.begin())
			took := outage(kind.how)
			must(t, kind.end())
			back("GET", "/events/"+id)
			// This page is read over another connection to the database, which must work again, too.
			back("GET", "/")
			if least = min(least, took); least <= most {
				break
			}
		}
		if least > most {
			t.Errorf("%s: somebody waited %v", kind.how, least)
		}
	}
	back("POST", "/events/"+id+"/replay")
}
