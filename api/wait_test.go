package api_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"relay"
	"relay/record"
)

// silentFeed is a Deliverer that gives each waiting call a feed of its own, without items, and sends that
// feed to open.
type silentFeed struct {
	*fakeDeliverer
	open chan *fakeFeed
}

func (q silentFeed) Subscribe(context.Context, relay.Actor, int64, string) (relay.Subscription, error) {
	feed := newFeed()
	q.open <- feed
	return feed, nil
}

// waits starts a call that waits, in the background.
func (d *client) waits(ctx context.Context, token, query string) <-chan *answer {
	done := make(chan *answer, 1)
	go func() {
		done <- d.do(d.request(http.MethodGet, token, "/api/v1/events?wait=60s"+query, "").WithContext(ctx))
	}()
	return done
}

// waitUntilAfter returns when a new wait would no longer select the event id. Waits compare the milliseconds
// of ids, so this is the case one millisecond after the id was made.
func waitUntilAfter(id relay.ID) {
	for !time.Now().Truncate(time.Millisecond).After(id.Time()) {
		<-time.After(time.Millisecond)
	}
}

func newSilentFeedFixture(t *testing.T) (*fixture, silentFeed) {
	t.Helper()
	q := silentFeed{open: make(chan *fakeFeed)}
	return newFixture(t, func(o *optionsOf) { o.Deliver = q }), q
}

// tokenIsName is a store in which a token is the name of its account: alice or bob.
type tokenIsName struct{ accounts }

func (tokenIsName) TokenOwner(_ context.Context, secret string) (relay.Actor, error) {
	account := int64(1)
	if secret == "bob" {
		account = 2
	}
	return relay.Actor{Kind: relay.ActorToken, Account: account, AccountName: secret, Scopes: relay.AllScopes, Credential: secret}, nil
}

// TestWaitsAreBoundedPerAccount: an account with too many waits gets an error, and another account does not.
// The test runs in a synctest bubble, so that no wait ends before all have begun.
func TestWaitsAreBoundedPerAccount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := silentFeed{open: make(chan *fakeFeed)}
		d := newClientWith(t, tokenIsName{}, func(o *optionsOf) { o.Deliver, o.Events = q, emptyEvents{} })
		ctx, cancel := context.WithCancel(t.Context())
		var calls []<-chan *answer
		for range 256 {
			calls = append(calls, d.waits(ctx, "alice", ""))
			<-q.open
		}
		refused := d.get("alice", "/api/v1/events?wait=30s").code(429, "rate-limited")
		if refused.header.Get("Retry-After") == "" || refused.header.Get("RateLimit-Policy") == "" {
			t.Errorf("header %v", refused.header)
		}
		d.get("alice", "/api/v1/events").want(200) // a list without a wait is not limited
		other := d.waits(ctx, "bob", "")
		<-q.open
		cancel() // the waiting clients disconnect
		for _, call := range append(calls, other) {
			<-call
		}
		again := d.waits(t.Context(), "alice", "")
		close((<-q.open).items)
		(<-again).code(401, "unauthorized")
	})
}

// TestWaitEndsWithTheAccess: if the feed of a wait ends because the credential was revoked or the alias
// removed, the call returns that reason as its error.
func TestWaitEndsWithTheAccess(t *testing.T) {
	t.Parallel()
	h, q := newSilentFeedFixture(t)
	call := h.waits(t.Context(), h.asAlice, "&alias=shop")
	feed := <-q.open
	close(feed.items) // package delivery ends the feed in this way when the credential is revoked
	(<-call).code(401, "unauthorized")
	<-feed.closed
	call = h.waits(t.Context(), h.asAlice, "&alias=shop")
	feed = <-q.open
	must(t, h.store.RemoveAlias(t.Context(), relay.System(), "shop"))
	close(feed.items)
	(<-call).code(404, "not-found")
}

// TestWaitFindsWhatTheFeedLeftOut: after a resync, a wait searches again from the time at which it
// began.
func TestWaitFindsWhatTheFeedLeftOut(t *testing.T) {
	t.Parallel()
	h, q := newSilentFeedFixture(t)
	old := h.event("shop", nil)
	waitUntilAfter(old)
	call := h.waits(t.Context(), h.asAlice, "&method=PUT")
	feed := <-q.open
	id := h.event("shop", func(e *relay.Event) { e.Method = "PUT" })
	h.event("shop", nil)
	var got *answer
	select {
	case feed.items <- []relay.FeedItem{{Name: "resync", Data: []byte("{}")}}:
		got = <-call
	case got = <-call: // the event was stored before the first search of the wait, which found it
	}
	page := decoded[record.Page](got.want(200))
	if len(page.Data) != 1 || page.Data[0].ID != id.String() {
		t.Errorf("got %s, want %s", got.body, id)
	}
}

// TestWaitOfNothing: without an event a wait lasts as long as requested.
func TestWaitOfNothing(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	synctest.Test(t, func(t *testing.T) {
		h.deliver.feed = newFeed()
		d := newClientWith(t, expiring{h.store, time.Time{}}, func(o *optionsOf) { o.Deliver, o.Events = h.deliver, emptyEvents{} })
		began := time.Now()
		a := d.get("any", "/api/v1/events?wait=60s").want(200)
		if took := time.Since(began); took != time.Minute || !strings.Contains(a.body, `"data":[]`) {
			t.Errorf("after %s: %s", took, a.body)
		}
	})
}

// TestWaitFindsWhatComesAtItsEnd: a wait finds an event that was stored before the end of the wait, even if the
// feed has not delivered it yet.
func TestWaitFindsWhatComesAtItsEnd(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	synctest.Test(t, func(t *testing.T) {
		h.deliver.feed = newFeed()
		d := newClientWith(t, expiring{h.store, time.Time{}}, func(o *optionsOf) {
			o.Deliver, o.Events = h.deliver, eventsFrom{since: time.Now().Add(59 * time.Second)}
		})
		page := decoded[record.Page](d.get("any", "/api/v1/events?wait=60s").want(200))
		if len(page.Data) != 1 {
			t.Errorf("%d events", len(page.Data))
		}
	})
}

// eventsFrom is a store without events until the time in the field since, and with one event afterwards.
type eventsFrom struct {
	emptyEvents
	since time.Time
}

func (e eventsFrom) Events(context.Context, relay.Actor, relay.Filter) (page relay.Page, _ error) {
	if time.Now().After(e.since) {
		page.Events = []relay.Event{{ID: relay.ID{1}, Method: "GET", State: relay.StateDelivered}}
	}
	return page, nil
}

// emptyEvents is a store without events.
type emptyEvents struct{ events }

type events = interface {
	Event(ctx context.Context, who relay.Actor, id relay.ID, maxBody int) (*relay.Event, error)
	Request(ctx context.Context, who relay.Actor, id relay.ID, maxBody int) (*relay.Event, error)
	Attempts(ctx context.Context, who relay.Actor, id relay.ID, page relay.AttemptPage) ([]relay.Attempt, error)
	Matches(ctx context.Context, who relay.Actor, id relay.ID, f relay.Filter) (bool, error)
	BodyPart(ctx context.Context, id relay.ID, n, i int) ([]byte, error)
	MarkEvent(ctx context.Context, who relay.Actor, id relay.ID, change func(*relay.Mark)) error
	DeleteEvent(ctx context.Context, who relay.Actor, id relay.ID) error
	Figures(ctx context.Context, who relay.Actor, alias string, since, until time.Time, parts int) (relay.Figures, error)
	SavedSearches(ctx context.Context, who relay.Actor, alias string) ([]relay.SavedSearch, error)
	SaveSearch(ctx context.Context, who relay.Actor, alias string, search relay.SavedSearch) error
}

func (emptyEvents) Events(context.Context, relay.Actor, relay.Filter) (relay.Page, error) {
	return relay.Page{}, nil
}

func TestWaitTellsAWrongCursor(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	h.get(h.asAlice, "/api/v1/events?wait=60s&cursor=none").code(422, "validation-failed")
}
