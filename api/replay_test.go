package api_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"relay"
	"relay/api"
)

// blockingDeliverer is a Deliverer whose replays end with those who wait for them only.
type blockingDeliverer struct {
	*fakeDeliverer
	begun chan struct{}
}

func (p blockingDeliverer) Replay(ctx context.Context, _ relay.Actor, _ relay.ID, _ time.Duration) (*relay.Event, int, error) {
	p.begun <- struct{}{}
	<-ctx.Done()
	return nil, 2, ctx.Err()
}

// TestWaitingReplayEndsWithItsCredential: a call that waits for the end of a replay
// ends when its token or share does, and not with a record.
func TestWaitingReplayEndsWithItsCredential(t *testing.T) {
	t.Parallel()
	p := blockingDeliverer{begun: make(chan struct{})}
	h := newFixture(t, func(o *api.Options) {
		p.fakeDeliverer = o.Deliver.(*fakeDeliverer)
		o.Deliver = p
	})
	id := h.event("shop", nil)
	share := h.share(id, "")
	target := "/api/v1/events/" + id.String() + "/replay?wait=60s"
	byKey := h.request("POST", h.asAlice, target, "")
	byKey.Header.Set("Idempotency-Key", "one")
	calls := []struct {
		r    *http.Request
		want int
		got  chan *answer
	}{
		{r: h.request("POST", h.asAlice, target, ""), want: 401},
		{r: byKey, want: 401},
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
}
