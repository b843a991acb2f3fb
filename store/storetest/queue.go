package storetest

import (
	"testing"

	"relay"
	"relay/store"
)

func testQueue(t *testing.T, fresh func(testing.TB) store.Options) {
	for name, test := range map[string]func(*fixture){
		"release": (*fixture).release, "order": (*fixture).queueOrder, "auto": (*fixture).auto, "supersede": (*fixture).supersede,
		"cancel": (*fixture).cancel, "give back": (*fixture).giveBack, "requeue limit": (*fixture).requeueLimit, "replay": (*fixture).replay,
		"stats": (*fixture).stats, "supersede late": (*fixture).supersedeLate, "one at a time": (*fixture).oneAtATime,
	} {
		t.Run(name, func(t *testing.T) { test(setup(t, fresh)) })
	}
}

func (b *fixture) next(auto bool) *relay.Claim {
	b.Helper()
	return b.nextOf(b.hooks, auto)
}

// nextOf claims the next attempt from the queue of an alias; nil = there is none.
func (b *fixture) nextOf(a *relay.Alias, auto bool) *relay.Claim {
	b.Helper()
	b.eventually("the node may claim", func() bool { return b.MayClaim() == nil }) // a node that was not running for three seconds, or had no database, may not claim for a moment
	c, err := b.Next(relay.NextClaim{Alias: a.ID, Auto: auto})
	b.must(err)
	return c
}

// release checks that inbound events stay queued until they are released, and that a second release
// finds none.
func (b *fixture) release() {
	ids := []relay.ID{b.capture(b.hooks, "/1", "one", 0), b.capture(b.hooks, "/2", "two", 0)}
	if c := b.next(false); c != nil {
		b.Errorf("claimed %v before it was released", c.Event.ID)
	}
	for _, want := range []int{2, 0} {
		n, err := b.Release(b.Context(), b.alice, "hooks")
		b.must(err)
		if n != want {
			b.Errorf("released %d, want %d", n, want)
		}
	}
	for i, id := range ids {
		c := b.next(false)
		if c == nil || c.Event.ID != id || c.N != 1 || string(c.Event.Request.Body.Data) != []string{"one", "two"}[i] {
			b.Fatalf("claim %d is %+v", i, c)
		}
		if a := c.Event.Attempts[0]; a.State != relay.StateDelivering || !a.Released || a.StartedAt.IsZero() {
			b.Errorf("claimed attempt: %+v", a)
		}
		b.wantEvent(id, relay.StateDelivering, relay.StateDelivering)
		b.ok(b.Finish(id, ended(1, relay.StateDelivered, 200, ""), ""))
		if got := b.wantEvent(id, relay.StateDelivered, relay.StateDelivered); !got.Attempts[0].Released {
			b.Error("released was lost")
		}
	}
	if b.next(true) != nil {
		b.Error("something still waits")
	}
}

// queueOrder checks that the queue is ordered by the time at which an attempt was requested, and not
// by the age of its event.
func (b *fixture) queueOrder() {
	old := b.capture(b.hooks, "/old", "", 200)
	first := b.capture(b.hooks, "/first", "", 0)
	_, err := b.BeginReplay(b.Context(), b.alice, old, false)
	b.must(err)
	last := b.capture(b.hooks, "/last", "", 0)
	for i, id := range []relay.ID{first, old, last} {
		e := b.read(id)
		a := e.Attempts[len(e.Attempts)-1]
		ref := relay.AttemptRef{Event: id, N: a.N}
		heads, err := b.AttemptHeads(b.Context(), e.AliasID, []relay.AttemptRef{ref, {Event: id, N: a.N + 1}})
		b.must(err)
		if len(heads) != 1 || a.Position != i+1 || heads[ref].Position != i+1 {
			b.Errorf("%s has position %d, in the feed %v, want %d", e.Target, a.Position, heads, i+1)
		}
	}
	_, err = b.Release(b.Context(), b.alice, "hooks")
	b.must(err)
	for _, want := range []relay.ID{first, old, last} {
		c := b.next(false)
		if c == nil || c.Event.ID != want {
			b.Fatalf("wrong order: %+v", c)
		}
		b.ok(b.Finish(want, ended(c.N, relay.StateDelivered, 200, ""), ""))
	}
}

// auto checks that an inbound event that was not released is claimed only by a NextClaim with Auto.
func (b *fixture) auto() {
	id := b.capture(b.hooks, "/auto", "", 0)
	if b.next(false) != nil {
		b.Error("an inbound event went out by itself")
	}
	if c := b.next(true); c == nil || c.Event.ID != id {
		b.Errorf("claim %+v", c)
	}
}

// supersede checks that a delivered replay cancels a first attempt that is still queued.
func (b *fixture) supersede() {
	id := b.capture(b.hooks, "/s", "", 0)
	_, err := b.BeginReplay(b.Context(), b.alice, id, false)
	b.must(err)
	b.wantEvent(id, relay.StateQueued, relay.StateQueued, relay.StateQueued)
	c := b.next(false)
	if c == nil || c.N != 2 {
		b.Fatalf("claim %+v", c)
	}
	b.ok(b.Finish(id, ended(2, relay.StateDelivered, 204, ""), ""))
	got := b.wantEvent(id, relay.StateDelivered, relay.StateCanceled, relay.StateDelivered)
	if e := got.Attempts[0].Error; e == nil || e.Code != relay.CodeSuperseded {
		b.Errorf("superseded attempt has error %+v", e)
	}
	if got.Status != 204 || got.Attempts[1].Actor != "user:alice" || got.Error != nil {
		b.Errorf("event: %+v", got)
	}
	n, err := b.Release(b.Context(), b.alice, "hooks")
	b.must(err)
	if n != 0 {
		b.Errorf("released %d superseded attempts", n)
	}
}

// supersedeLate checks a first attempt that is in progress when a replay is delivered. If the first attempt
// returns to the queue afterwards, it is canceled.
func (b *fixture) supersedeLate() {
	id := b.capture(b.hooks, "/s", "", 0)
	if c := b.next(true); c == nil || c.Event.ID != id {
		b.Fatalf("claim %+v", c)
	}
	c, err := b.BeginReplay(b.Context(), b.alice, id, true)
	b.must(err)
	b.ok(b.Finish(id, ended(c.N, relay.StateDelivered, 200, ""), ""))
	b.ok(b.Requeue(id, 1))
	got := b.wantEvent(id, relay.StateDelivered, relay.StateCanceled, relay.StateDelivered)
	if e := got.Attempts[0].Error; e == nil || e.Code != relay.CodeSuperseded {
		b.Errorf("superseded attempt has error %+v", e)
	}
	if c := b.next(true); c != nil {
		b.Errorf("claim %+v", c)
	}
}

// oneAtATime checks that no attempt is claimed from the queue while an earlier one from the queue is being
// delivered, because that delivery may return to the queue. Live replays are not affected.
func (b *fixture) oneAtATime() {
	first, second := b.capture(b.hooks, "/1", "", 0), b.capture(b.hooks, "/2", "", 0)
	b.next(true)
	live := b.capture(b.hooks, "/live", "", 200)
	c, err := b.BeginReplay(b.Context(), b.alice, live, true)
	b.must(err)
	_, err = b.Next(relay.NextClaim{Alias: b.hooks.ID, Auto: true})
	b.want(relay.CodeStoreUnavailable, err)
	b.ok(b.Finish(first, ended(1, relay.StateInterrupted, 0, ""), ""))
	for n, id := range []relay.ID{first, second} {
		c := b.next(true)
		if c == nil || c.Event.ID != id || c.N != 2-n {
			b.Fatalf("claim %d is %+v", n, c)
		}
		b.ok(b.Finish(id, ended(c.N, relay.StateDelivered, 200, ""), ""))
	}
	b.ok(b.Finish(live, ended(c.N, relay.StateDelivered, 200, ""), ""))
}

func (b *fixture) cancel() {
	id := b.capture(b.hooks, "/c", "", 500)
	b.want(relay.CodeConflict, b.Cancel(b.Context(), b.alice, id))
	_, err := b.BeginReplay(b.Context(), b.alice, id, false)
	b.must(err)
	if got := b.wantEvent(id, relay.StateQueued, relay.StateDelivered, relay.StateQueued); got.Status != 500 {
		b.Errorf("a queued event shows status %d, want the earlier 500", got.Status)
	}
	b.must(b.Cancel(b.Context(), b.alice, id))
	got := b.wantEvent(id, relay.StateCanceled, relay.StateDelivered, relay.StateCanceled)
	if got.Error == nil || got.Error.Code != relay.CodeCanceled {
		b.Errorf("canceled event: error %+v", got.Error)
	}
	b.want(relay.CodeConflict, b.Cancel(b.Context(), b.alice, id))

	id = b.capture(b.hooks, "/released", "", 0)
	_, err = b.Release(b.Context(), b.alice, "hooks")
	b.must(err)
	if !b.read(id).Attempts[0].Released {
		b.Error("a waiting attempt does not show that it was released")
	}
	b.must(b.Cancel(b.Context(), b.alice, id))
	if !b.read(id).Attempts[0].Released {
		b.Error("released was lost when the attempt was canceled")
	}
}

// giveBack checks that an attempt of which no byte was sent returns to its place in the queue.
func (b *fixture) giveBack() {
	id, later := b.capture(b.hooks, "/1", "", 0), b.capture(b.hooks, "/2", "", 0)
	before := b.read(id).Attempts[0].ReceivedAt
	c := b.next(true)
	b.ok(b.Requeue(id, c.N))
	got := b.wantEvent(id, relay.StateQueued, relay.StateQueued)
	if a := got.Attempts[0]; !a.ReceivedAt.Equal(before) || !a.StartedAt.IsZero() {
		b.Errorf("requeued attempt: %+v", a)
	}
	b.ok(b.Requeue(id, c.N))
	b.want(relay.ErrFenced.Code, b.done(b.Finish(id, ended(1, relay.StateDelivered, 200, ""), "")))
	if c := b.next(true); c.Event.ID != id {
		b.Errorf("next is %s, want %s before %s", c.Event.ID, id, later)
	}
}

// requeueLimit checks that an interrupted delivery from the queue is queued again, at most three
// times.
func (b *fixture) requeueLimit() {
	id := b.capture(b.hooks, "/q", "", 0)
	_, err := b.Release(b.Context(), b.alice, "hooks")
	b.must(err)
	asked := b.read(id).LastReceivedAt
	for n := 1; n <= 4; n++ {
		c := b.next(false)
		if c == nil || c.N != n {
			b.Fatalf("claim %d is %+v", n, c)
		}
		b.ok(b.Finish(id, ended(n, relay.StateInterrupted, 0, ""), ""))
	}
	if b.next(true) != nil {
		b.Error("queued a fourth time")
	}
	got := b.wantEvent(id, relay.StateInterrupted, relay.StateInterrupted, relay.StateInterrupted, relay.StateInterrupted, relay.StateInterrupted)
	for _, a := range got.Attempts[1:] {
		if a.Kind != relay.KindReplay || a.Actor != "queue" {
			b.Errorf("requeued attempt: %+v", a)
		}
	}
	if !got.LastReceivedAt.Equal(asked) {
		b.Error("a requeue changed when the event was asked for")
	}

	live := b.newEvent(b.hooks, relay.StateDelivering, "/live", "")
	b.ok(b.Accept(live))
	b.ok(b.Finish(live.ID, ended(1, relay.StateInterrupted, 0, ""), ""))
	b.wantEvent(live.ID, relay.StateInterrupted, relay.StateInterrupted)
}

// replay checks that replays are numbered without gaps and update the time at which a delivery of the event
// was last requested.
func (b *fixture) replay() {
	id := b.capture(b.hooks, "/r", "body", 500)
	before := b.read(id)
	c, err := b.BeginReplay(b.Context(), b.alice, id, true)
	b.must(err)
	if c.N != 2 || string(c.Event.Request.Body.Data) != "body" || len(c.Event.Attempts) != 1 || c.Event.Attempts[0].N != 2 {
		b.Errorf("claim %+v", c)
	}
	got := b.wantEvent(id, relay.StateDelivering, relay.StateDelivered, relay.StateDelivering)
	if !got.LastReceivedAt.After(before.LastReceivedAt) || !got.ReceivedAt.Equal(before.ReceivedAt) || got.Status != 500 {
		b.Errorf("replayed event: %+v", got)
	}
	second, err := b.BeginReplay(b.Context(), b.alice, id, true)
	b.must(err)
	b.ok(b.Finish(id, ended(second.N, relay.StateDelivered, 200, "second"), ""))
	b.ok(b.Finish(id, ended(2, relay.StateFailed, 0, ""), ""))
	got = b.wantEvent(id, relay.StateDelivered, relay.StateDelivered, relay.StateFailed, relay.StateDelivered)
	if got.Status != 200 || got.Error != nil {
		b.Errorf("the last attempt does not decide: %+v", got)
	}
	_, err = b.BeginReplay(b.Context(), b.alice, b.NewID(), true)
	b.want(relay.CodeNotFound, err)

	running, err := b.BeginReplay(b.Context(), b.alice, id, true)
	b.must(err)
	b.want(relay.CodeConflict, b.DeleteEvent(b.Context(), b.alice, id))
	b.ok(b.Finish(id, ended(running.N, relay.StateInterrupted, 0, ""), "")) // the attempt did not come from the queue, so it is not queued again
	b.wantEvent(id, relay.StateInterrupted, relay.StateDelivered, relay.StateFailed, relay.StateDelivered, relay.StateInterrupted)
	_, err = b.BeginReplay(b.Context(), b.alice, id, false)
	b.must(err)
	b.must(b.DeleteEvent(b.Context(), b.alice, id))
	b.want(relay.CodeNotFound, b.DeleteEvent(b.Context(), b.alice, id))
	if b.next(true) != nil {
		b.Error("a deleted event still waits")
	}
}

func (b *fixture) stats() {
	first := b.capture(b.hooks, "/1", "12345", 0)
	b.capture(b.hooks, "/2", "", 0)
	done := b.capture(b.hooks, "/3", "", 200)
	_, err := b.BeginReplay(b.Context(), b.alice, done, false)
	b.must(err)
	all, err := b.QueueStats(b.Context(), []int64{b.hooks.ID, b.other.ID})
	b.must(err)
	q, e := all[b.hooks.ID], b.read(first)
	if q.Queued != 3 || q.QueuedEvents != 2 || !q.OldestQueuedAt.Equal(e.ReceivedAt) {
		b.Errorf("stats %+v", q)
	}
	last, err := b.LastEvents(b.Context(), []int64{b.hooks.ID, b.other.ID})
	b.must(err)
	if at, some := last[b.hooks.ID], len(last); some != 1 || !at.Equal(b.read(done).ReceivedAt) {
		b.Errorf("last events %v", last)
	}
	if every, err := b.AllQueueStats(b.Context()); err != nil || every[b.hooks.ID] != q {
		b.Errorf("stats of all aliases: %+v, %v", every, err)
	}
	bytes := int64(0)
	for _, id := range []relay.ID{first, done} {
		bytes += int64(len(b.read(id).Request.Head))
	}
	if q.QueuedBytes < bytes+5 {
		b.Errorf("queued bytes %d, want at least %d", q.QueuedBytes, bytes+5)
	}
	if other, ok := all[b.other.ID]; !ok || other != (relay.QueueStats{}) {
		b.Errorf("stats of an empty alias: %+v, %t", other, ok)
	}
}
