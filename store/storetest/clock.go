package storetest

import (
	"bytes"
	"sync/atomic"
	"testing"
	"time"

	"relay"
	"relay/store"
)

// testClock sets the wall clock forward and back under a serving store. Ids and queued attempts keep their
// order, and a clock that has just jumped deletes nothing.
func testClock(t *testing.T, fresh func(testing.TB) store.Options) {
	var offset atomic.Int64
	wall := func() time.Time { return time.Now().Round(0).Add(time.Duration(offset.Load())) }
	b := setup(t, fresh, func(o *store.Options) { o.Now, o.Retention = wall, 30*time.Minute })
	ctx := t.Context()
	var ids []relay.ID
	// The attempts whose order is checked are queued replays, because the store itself sets the time of such an
	// attempt.
	target := b.capture(b.hooks, "/", "x", 200)
	jump := func(d time.Duration) {
		offset.Store(int64(d))
		for range 3 {
			ids = append(ids, b.capture(b.other, "/", "", 200))
			_, err := b.BeginReplay(ctx, b.alice, target, false)
			b.must(err)
		}
	}
	jump(0)
	jump(-time.Hour)
	b.reopen()
	jump(-2 * time.Hour)
	jump(time.Hour)
	jump(0)
	for i := range ids[1:] {
		if bytes.Compare(ids[i][:], ids[i+1][:]) >= 0 {
			t.Errorf("id %d is not below the next one", i)
		}
	}
	last := time.Time{}
	for n := 2; n <= 16; n++ {
		c := b.next(false)
		if c == nil || c.N != n {
			t.Fatalf("attempt %d comes out as %+v", n, c)
		}
		for _, a := range c.Event.Attempts {
			if a.N == n {
				if !a.ReceivedAt.After(last) {
					t.Errorf("attempt %d was asked for at %v, not after %v", n, a.ReceivedAt, last)
				}
				last = a.ReceivedAt
			}
		}
		b.ok(b.Finish(target, ended(n, relay.StateDelivered, 200, ""), ""))
	}

	// With the clock an hour ahead, every event seems too old. Retention does not trust that clock at
	// once.
	b.wantEvent(target, relay.StateDelivered, b.states(16)...)
	offset.Store(int64(2 * time.Hour))
	link, err := b.CreateLoginLink(ctx, b.alice, "", 0)
	b.must(err)
	offset.Store(0)
	_, err = b.LoginLink(ctx, link)
	b.must(err)
	b.wantEvent(target, relay.StateDelivered, b.states(16)...)
	b.keptName(&offset)
}

func (b *fixture) states(n int) (out []string) {
	for range n {
		out = append(out, relay.StateDelivered)
	}
	return out
}

// keptName checks that the name of a removed alias is reserved for its former owner for thirty days.
// A new alias of that name must show no data of the old one.
func (b *fixture) keptName(offset *atomic.Int64) {
	b.Helper()
	ctx := b.Context()
	old, err := b.CreateAlias(ctx, b.alice, "left", "")
	b.must(err)
	past := b.capture(old, "/past", "secret-of-old", 200)
	b.must(b.RemoveAlias(ctx, b.alice, "left"))
	offset.Store(int64(29 * 24 * time.Hour))
	_, err = b.ClaimAlias(ctx, b.bob, "left")
	b.want(relay.CodeNotFound, err)
	offset.Store(int64(32 * 24 * time.Hour)) // a clock that has just jumped is not trusted
	_, err = b.ClaimAlias(ctx, b.bob, "left")
	b.want(relay.CodeNotFound, err)
	offset.Store(int64(31 * 24 * time.Hour)) // a clock that was corrected is trusted
	left, err := b.ClaimAlias(ctx, b.bob, "left")
	if err != nil || left.Owner != b.bob.Account || left.ID == old.ID {
		b.Errorf("after thirty days: %+v, %v", left, err)
	}
	_, err = b.Event(ctx, b.bob, past, 0)
	b.want(relay.CodeNotFound, err)
	if page := b.list(b.bob, relay.Filter{Alias: "left"}); len(page.Events) > 0 {
		b.Errorf("the new owner sees %d events of the old one", len(page.Events))
	}
}
