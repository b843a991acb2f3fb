package api_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"relay"
	"relay/api"
)

// patient is a Deliverer whose replays end with those who wait for them only.
type patient struct {
	*fakeDeliverer
	begun chan struct{}
}

func (p patient) Replay(ctx context.Context, _ relay.Actor, _ relay.ID, _ time.Duration) (*relay.Event, int, error) {
	p.begun <- struct{}{}
	<-ctx.Done()
	return nil, 2, ctx.Err()
}

// TestWaitingReplayEndsWithItsCredential: a call that waits for the end of a replay
// ends when its token does, and not with a record.
func TestWaitingReplayEndsWithItsCredential(t *testing.T) {
	t.Parallel()
	p := patient{begun: make(chan struct{})}
	h := newHouse(t, func(o *api.Options) {
		p.fakeDeliverer = o.Deliver.(*fakeDeliverer)
		o.Deliver = p
	})
	id := h.event("shop", nil)
	answers := map[string]chan *answer{}
	for name, r := range map[string]*http.Request{
		"once":   h.request("POST", h.asAlice, "/api/v1/events/"+id.String()+"/replay?wait=60s", ""),
		"by key": h.request("POST", h.asAlice, "/api/v1/events/"+id.String()+"/replay?wait=60s", ""),
	} {
		if name == "by key" {
			r.Header.Set("Idempotency-Key", "one")
		}
		got := make(chan *answer, 1)
		answers[name] = got
		go func() { got <- h.do(r) }()
		<-p.begun
	}
	began := time.Now()
	must(t, h.store.RemoveToken(t.Context(), h.alice, h.alice.Credential))
	for name, got := range answers {
		select {
		case a := <-got:
			if a.status != http.StatusUnauthorized {
				t.Errorf("%s: %d %s", name, a.status, a.body)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%s: still waiting", name)
		}
	}
	t.Logf("ended after %v", time.Since(began))
}
