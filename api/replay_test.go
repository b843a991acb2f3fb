package api_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"relay"
	"relay/api"
	"relay/compose"
)

// blockingDeliverer is a Deliverer whose replays and sends return only when their context ends.
type blockingDeliverer struct {
	*fakeDeliverer
	begun chan struct{}
}

func (p blockingDeliverer) Replay(ctx context.Context, _ relay.Actor, id relay.ID, _ time.Duration) (*relay.Event, int, error) {
	p.begun <- struct{}{}
	<-ctx.Done()
	return &relay.Event{ID: id}, 2, nil
}

func (p blockingDeliverer) Send(ctx context.Context, who relay.Actor, out relay.Outgoing, _ time.Duration) (*relay.Event, error) {
	p.begun <- struct{}{}
	<-ctx.Done()
	return &relay.Event{ID: relay.ID{1}}, nil
}

// TestWaitingReplayEndsWithItsCredential: a call that waits for a replay ends with an error, and not a
// record, when its token or share ends.
func TestWaitingReplayEndsWithItsCredential(t *testing.T) {
	t.Parallel()
	p := blockingDeliverer{begun: make(chan struct{})}
	h := newFixture(t, func(o *api.Options) {
		p.fakeDeliverer = o.Deliver.(*fakeDeliverer)
		p.state = relay.TunnelOnline
		o.Deliver, o.Sending = p, compose.Limits{Head: 4000, Target: 1000, Body: 500_000}
	})
	id := h.event("shop", nil)
	share := h.share(id, "")
	target := "/api/v1/events/" + id.String() + "/replay?wait=60s"
	byKey := h.request("POST", h.asAlice, target, "")
	byKey.Header.Set("Idempotency-Key", "one")
	send := h.request("POST", h.asAlice, "/api/v1/aliases/shop/send?wait=60s", `{"method":"GET"}`)
	send.Header.Set("Idempotency-Key", "two")
	calls := []struct {
		r    *http.Request
		want int
		got  chan *answer
	}{
		{r: h.request("POST", h.asAlice, target, ""), want: 401},
		{r: byKey, want: 401},
		{r: send, want: 401},
		{r: h.request("POST", "", "/api/v1/events/shared/"+share.Token+"/replay?wait=60s", ""), want: 404},
	}
	for i := range calls {
		c := &calls[i]
		c.got = make(chan *answer, 1)
		go func() { c.got <- h.do(c.r) }()
		<-p.begun
	}
	must(t, h.store.RemoveShare(t.Context(), h.alice, id, share.ID))
	must(t, h.store.RemoveToken(t.Context(), h.alice, h.alice.Credential))
	for _, c := range calls {
		select {
		case a := <-c.got:
			a.want(c.want)
		case <-time.After(time.Minute):
			t.Fatalf("%s: still waiting", c.r.URL.Path)
		}
	}
	for key, r := range map[string]*http.Request{"one": byKey, "two": send} { // both keys stay used, so the calls are not repeated
		if status, _, err := h.store.BeginIdempotent(t.Context(), h.alice, key, r.Method+" "+r.URL.Path); status == 0 && err == nil {
			t.Errorf("the key of %s is free again", r.URL.Path)
		}
	}
}

type readable = api.Events

// unreadable is a store in which every read of an event fails once away is set.
type unreadable struct {
	readable
	away *atomic.Bool
}

func (u unreadable) Event(ctx context.Context, who relay.Actor, id relay.ID, most int) (*relay.Event, error) {
	if u.away.Load() {
		return nil, relay.Errorf(relay.CodeStoreUnavailable, "away")
	}
	return u.readable.Event(ctx, who, id, most)
}

// TestOnceWhileTheStoreCannotBeRead: if a replay has begun and its event cannot be read, the response names
// the attempt that was begun. A repeated call with the same key does not begin another attempt.
func TestOnceWhileTheStoreCannotBeRead(t *testing.T) {
	t.Parallel()
	var away atomic.Bool
	h := newSender(t, func(o *api.Options) { o.Events = unreadable{o.Events, &away} })
	id := h.event("shop", nil)
	h.deliver.replay = func(who relay.Actor, id relay.ID, _ time.Duration) (*relay.Event, int, error) {
		away.Store(true)
		e, err := h.store.Request(t.Context(), who, id, 0)
		if err == nil {
			e.Attempts = []relay.Attempt{{N: 2, Kind: relay.KindReplay, State: relay.StateDelivering}}
		}
		return e, 2, err
	}
	send := h.deliver.send
	h.deliver.send = func(who relay.Actor, out relay.Outgoing) (*relay.Event, error) {
		e, err := send(who, out)
		away.Store(true)
		return e, err
	}
	for path, status := range map[string]int{"/api/v1/events/" + id.String() + "/replay": 202, sendTarget: 200} {
		before := h.deliver.calls()
		for range 2 {
			away.Store(false)
			r := h.request("POST", h.asAlice, path, `{"method":"GET"}`)
			r.Header.Set("Idempotency-Key", path)
			h.do(r).want(status)
		}
		if n := h.deliver.calls() - before; n != 1 {
			t.Errorf("%s: ran %d times", path, n)
		}
	}
}
