package api_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/api"
	"relay/record"
)

func TestIdempotency(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	h.setDeliveryState(relay.StateDelivered)
	target := "/api/v1/events/" + h.event("shop", nil).String() + "/replay"
	once := func(key, target string) *answer {
		r := h.request("POST", h.asAlice, target, "")
		r.Header.Set("Idempotency-Key", key)
		return h.do(r)
	}
	first, second := once("k", target).want(200), once("k", target).want(200)
	if first.body != second.body || h.deliver.calls() != 1 || second.header.Get("Content-Type") != "application/json" {
		t.Errorf("%d replays; %s, %s", h.deliver.calls(), first.body, second.body)
	}
	elsewhere := "/api/v1/events/" + h.event("shop", nil).String() + "/replay"
	once("k", elsewhere).code(422, "validation-failed")
	once(strings.Repeat("k", 256), target).code(422, "validation-failed")
	once("\xff", target).code(422, "validation-failed") // a key that is not UTF-8 is refused, because the store could confuse it with another key
	h.deliver.replay = func(relay.Actor, relay.ID, time.Duration) (*relay.Event, int, error) {
		return nil, 0, relay.Errorf(relay.CodeQueueFull, "full")
	}
	once("again", target).code(503, "queue-full")
	h.setDeliveryState(relay.StateDelivered)
	once("again", target).want(200)
	running := make(chan struct{})
	finish := make(chan struct{})
	h.deliver.replay = func(who relay.Actor, id relay.ID, _ time.Duration) (*relay.Event, int, error) {
		close(running)
		<-finish
		e, err := h.store.Event(t.Context(), who, id, 0)
		return e, 1, err
	}
	done := make(chan *answer, 1)
	go func() { done <- once("slow", target) }()
	<-running
	once("slow", target).code(409, "conflict")
	close(finish)
	(<-done).want(200)
}

// TestIdempotencyOfACallerWhoLeaves: a replay continues after its client disconnects, and a later call with
// the same key gets the answer.
func TestIdempotencyOfACallerWhoLeaves(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	target := "/api/v1/events/" + h.event("shop", nil).String() + "/replay"
	running, finish := make(chan struct{}), make(chan struct{})
	h.deliver.replay = func(who relay.Actor, id relay.ID, _ time.Duration) (*relay.Event, int, error) {
		close(running)
		<-finish
		e, err := h.store.Event(t.Context(), who, id, 0)
		return e, 1, err
	}
	ask := func(ctx context.Context) *http.Request {
		r := h.request("POST", h.asAlice, target, "").WithContext(ctx)
		r.Header.Set("Idempotency-Key", "left")
		return r
	}
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.do(ask(ctx))
	}()
	<-running
	leave()
	close(finish)
	<-done
	h.do(ask(t.Context())).want(200)
	if n := h.deliver.calls(); n != 1 {
		t.Errorf("%d replays", n)
	}
}

// TestIdempotencyOfLargeAnswers: a large answer is not stored under its Idempotency-Key, because answers are
// kept for a day, and large ones could fill the disk. A repeated call reads the record again and makes no
// second replay.
func TestIdempotencyOfLargeAnswers(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	h.setDeliveryState(relay.StateDelivered)
	id := h.event("shop", func(e *relay.Event) {
		body := strings.Repeat("x", 100_000)
		e.Request = message(fmt.Sprintf("POST / HTTP/1.1\r\nHost: shop.localhost\r\nContent-Length: %d\r\n\r\n", len(body)), body)
	})
	for range 2 {
		r := h.request("POST", h.asAlice, "/api/v1/events/"+id.String()+"/replay", "")
		r.Header.Set("Idempotency-Key", "k")
		if e := decoded[record.Event](h.do(r).want(200)); e.ID != id.String() || e.Request.Body.Size != 100_000 {
			t.Errorf("answered %s with %d bytes", e.ID, e.Request.Body.Size)
		}
	}
	if h.deliver.calls() != 1 {
		t.Errorf("%d replays", h.deliver.calls())
	}
	_, stored, err := h.store.BeginIdempotent(t.Context(), h.alice, "k", "POST /api/v1/events/"+id.String()+"/replay")
	if err != nil || len(stored) != 0 {
		t.Errorf("%d bytes are kept: %v", len(stored), err)
	}
}

// TestIdempotencyOfAFault: if a fault ends a send that has begun, its Idempotency-Key stays used. The same
// call again sends nothing and gets an error that says so.
func TestIdempotencyOfAFault(t *testing.T) {
	t.Parallel()
	h := newSender(t)
	sends := 0
	h.deliver.send = func(relay.Actor, relay.Outgoing) (*relay.Event, error) {
		sends++
		panic("bug")
	}
	for range 2 {
		r := h.request("POST", h.asAlice, sendTarget, `{"method":"POST"}`)
		r.Header.Set("Idempotency-Key", "k")
		h.do(r).code(500, "internal")
	}
	if sends != 1 {
		t.Errorf("sent %d times", sends)
	}
}

// TestIdempotencyOfALostCommit: if it is unknown whether a replay was committed, the same call again gets an error
// and does not replay. After a refused replay, the same call replays.
func TestIdempotencyOfALostCommit(t *testing.T) {
	t.Parallel()
	for name, unknown := range map[string]bool{"lost": true, "refused": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newFixture(t)
			h.deliver.replay = func(relay.Actor, relay.ID, time.Duration) (*relay.Event, int, error) {
				return nil, 0, &relay.Error{Code: relay.CodeStoreUnavailable, Detail: "away", Unknown: unknown}
			}
			target := "/api/v1/events/" + h.event("shop", nil).String() + "/replay"
			again, calls := relay.CodeStoreUnavailable, 2
			if unknown {
				again, calls = relay.CodeInternal, 1
			}
			for _, want := range []string{relay.CodeStoreUnavailable, again} {
				r := h.request("POST", h.asAlice, target, "")
				r.Header.Set("Idempotency-Key", "k")
				h.do(r).code(relay.Status(want), want)
			}
			if n := h.deliver.calls(); n != calls {
				t.Errorf("%d replays", n)
			}
		})
	}
}

// endlessAccounts is a store that fails to store the answers of calls.
type endlessAccounts struct{ accountsPort }

func (endlessAccounts) EndIdempotent(context.Context, relay.Actor, string, int, []byte) error {
	return relay.Errorf(relay.CodeStoreUnavailable, "away")
}

// accountsPort is api.Accounts under another name. A field named Accounts would hide the method Accounts.
type accountsPort = api.Accounts

// TestIdempotencyWithoutAStoredAnswer: a replay that ran gets its answer even if the store cannot store that
// answer yet. An error would make the client replay again.
func TestIdempotencyWithoutAStoredAnswer(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(o *api.Options) { o.Accounts = endlessAccounts{o.Accounts} })
	h.setDeliveryState(relay.StateDelivered)
	target := "/api/v1/events/" + h.event("shop", nil).String() + "/replay"
	r := h.request("POST", h.asAlice, target, "")
	r.Header.Set("Idempotency-Key", "k")
	h.do(r).want(200)
	r = h.request("POST", h.asAlice, target, "")
	r.Header.Set("Idempotency-Key", "k")
	h.do(r).code(409, "conflict") // a conflict, until the answer of the first call is stored
	if n := h.deliver.calls(); n != 1 {
		t.Errorf("%d replays", n)
	}
}
