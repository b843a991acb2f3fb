package delivery

import (
	"context"
	"errors"
	"runtime/debug"
	"slices"
	"time"

	"relay"
	"relay/delivery/exchange"
	"relay/delivery/registry"
	"relay/wire"
)

// Replay begins a new attempt of an event and waits for its end, at most for the duration wait or until ctx ends;
// the attempt continues after that. Replay returns the event as it is when the wait ends, with the new attempt
// alone and without bodies, and the number of that attempt. After an error no attempt is known to have begun:
// ErrNotFound, event-not-replayable, queue-full, stopping, store-unavailable. If relay.MayBeDone is true for the
// error, an attempt may exist nevertheless.
func (d *Delivery) Replay(ctx context.Context, who relay.Actor, id relay.ID, wait time.Duration) (*relay.Event, int, error) {
	if !d.begin() {
		return nil, 0, errStopping()
	}
	running := false
	defer func() {
		if !running {
			d.end()
		}
	}()
	e, err := d.store.Request(ctx, who, id, 0)
	if err != nil {
		return nil, 0, err
	}
	st := d.registry.ByID(e.AliasID)
	if st == nil {
		return nil, 0, relay.ErrNotFound
	}
	if h, _ := st.Online(); h == nil {
		return d.queueReplay(ctx, who, st, e)
	}
	c, err := d.store.BeginReplay(ctx, who, id, true)
	if err != nil {
		return nil, 0, err
	}
	begun, done := begunAs(c.Event), make(chan struct{})
	running = true
	go func() {
		defer d.end()
		defer close(done)
		if back, _ := d.deliver(st, c, false); back {
			st.StartDispatch()
		}
	}()
	return d.awaitAttempt(ctx, who, begun, c.N, done, wait), c.N, nil
}

// begunAs returns a copy of an event whose attempt is about to begin, without the body of the request. The attempt
// does not change this copy.
func begunAs(e *relay.Event) *relay.Event {
	begun := *e
	begun.Request.Body.Data, begun.Attempts = nil, slices.Clone(e.Attempts)
	return &begun
}

// awaitAttempt waits until attempt n has ended, at most for the duration wait, and returns the event as it is then,
// with this attempt alone and without bodies. It never returns an error, because the attempt was begun: a user
// who gets an error would ask for another attempt, so that the request would be sent twice. If the event cannot
// be read, awaitAttempt returns begun, the event as it was when the attempt began.
func (d *Delivery) awaitAttempt(ctx context.Context, who relay.Actor, begun *relay.Event, n int, done <-chan struct{}, wait time.Duration) *relay.Event {
	if wait > 0 {
		select {
		case <-done:
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
	e, err := d.store.Request(ctx, who, begun.ID, 0)
	if err != nil {
		return begun
	}
	// An event may have thousands of attempts, so only one is read.
	e.Attempts, err = d.store.Attempts(ctx, who, begun.ID, relay.AttemptPage{Before: n + 1, Limit: 1})
	if err != nil {
		return begun
	}
	return e
}

// queueReplay queues a replay until the tunnel is back.
func (d *Delivery) queueReplay(ctx context.Context, who relay.Actor, st *registry.Alias, e *relay.Event) (*relay.Event, int, error) {
	cost := costOf(e)
	if got := st.Queue.Reserve(1, cost, d.queueLimits()); got != registry.Reserved {
		// The error for the holder of a share token says nothing about the account of the owner.
		ofAccount := got == registry.AccountQueueFull && who.Kind != relay.ActorShare
		return nil, 0, exchange.ErrQueueFull(ofAccount, "the replay was not taken")
	}
	st.Queue.Move()
	c, err := d.store.BeginReplay(ctx, who, e.ID, false)
	d.queueMoved(st, err, 1, cost)
	// The space is given back only after the replay is counted, so that no other replay takes its place.
	st.Queue.GiveBack(1, cost)
	// The tunnel may have returned in the meantime. The dispatcher is started even after an error, because
	// the replay may be queued nevertheless.
	st.StartDispatch()
	if err != nil {
		return nil, 0, err
	}
	return d.awaitAttempt(ctx, who, begunAs(c.Event), c.N, nil, 0), c.N, nil
}

// costOf returns the bytes of an event that count against the limit of the queue.
func costOf(e *relay.Event) int64 {
	m := &e.Request
	return int64(len(m.Head)+len(m.Lines)) + m.Body.Size
}

// deliver sends a stored request through the current tunnel of the alias, which may be another one than
// before the claim. back means that the attempt is queued again, because no byte reached the local
// server, or because a queued delivery panicked. next is the attempt that was claimed together with the
// end of a queued one; nil = none.
func (d *Delivery) deliver(st *registry.Alias, c *relay.Claim, queued bool) (back bool, next *relay.Claim) {
	defer func() {
		if v := recover(); v != nil {
			d.log.Error("panic while delivering a stored request", "event", c.Event.ID, "attempt", c.N, "panic", v, "stack", string(debug.Stack()))
			// The store queues the attempt again, and the dispatcher must pause before the next try.
			back = queued
		}
	}()
	a := relay.Attempt{N: c.N, Kind: relay.KindReplay, ReceivedAt: time.Now()}
	if stored := c.Event.Attempt(c.N); stored != nil {
		a = *stored
	}
	alias := st.Current()
	head, _, err := wire.Request(c.Event.Request.Head, wire.Limits{})
	q := d.exchanges.Stored(c.Event, a, head, alias.Owner)
	q.Queued = queued
	j := d.newJob(st, alias, q, nil)
	defer j.release()
	if err != nil {
		r := exchange.Fail(q, relay.AsError(err), j.journal, nil)
		j.noteResult(&r)
		return false, nil
	}
	if queued {
		claims := &claimingJournal{Store: d.store, d: d, st: st}
		defer func() { next = claims.claimed() }()
		j.journal = claims
	}
	j.att, j.lost = st.Online()
	if queued && j.att != nil && j.att.Remote() {
		// The other node delivers the queue now, including the attempt that was claimed here.
		j.att = nil
	}
	q.SetHead(j.sentHead())
	q.Gather()
	r := exchange.Result{Untaken: true}
	if j.att != nil {
		r = j.send()
	}
	j.releaseSlot()
	switch {
	case r.Panicked:
		return queued, nil
	case !r.Untaken:
		// back stays false: if a queued delivery was interrupted, the store itself queues the attempt again.
		if j.noteResult(&r); r.StoreErr == nil {
			return false, nil
		}
		err = r.StoreErr
	default:
		back = true
		_, err = j.requeue()
	}
	if err != nil && !errors.Is(err, relay.ErrNotFound) {
		// ErrNotFound is left out: it means that the event was deleted in the meantime.
		d.log.Error("cannot store the result of an attempt", "event", c.Event.ID, "attempt", c.N, "requeued", back, "err", err)
	}
	return back, nil
}

// claimingJournal claims the next attempt of a queue together with the end of the previous one.
type claimingJournal struct {
	Store
	d    *Delivery
	st   *registry.Alias
	end  *relay.Ticket
	next func() *relay.Claim // valid once end has resolved; nil = no claim was asked for
}

// Finish implements exchange.Journal.
func (c *claimingJournal) Finish(id relay.ID, a *relay.Attempt, event string) *relay.Ticket {
	next, ok := c.d.nextClaim(c.st)
	if !ok || c.next != nil || a.State == relay.StateInterrupted {
		return c.Store.Finish(id, a, event)
	}
	c.st.Queue.Move()
	c.end, c.next = c.FinishAndClaim(id, a, event, next)
	return c.end
}

// claimed returns the attempt that was claimed; nil = none.
func (c *claimingJournal) claimed() (next *relay.Claim) {
	if c.next == nil {
		return nil
	}
	if c.d.exchanges.AwaitEnd(c.end) == nil {
		next = c.next()
	}
	if next == nil {
		c.st.Queue.Moved(0, 0)
	}
	return next
}
