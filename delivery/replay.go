package delivery

import (
	"context"
	"errors"
	"time"

	"relay"
	"relay/delivery/registry"
	"relay/wire"
)

// Replay begins a new attempt of an event and waits for its end, for wait at most. The
// attempt goes on when wait or ctx ends. Replay returns the event as it is then, with the new
// attempt alone and without bodies, and the number of that attempt. Errors: ErrNotFound, event-not-replayable, queue-full,
// stopping.
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
	running = true
	done := make(chan struct{})
	go func() {
		defer d.end()
		defer close(done)
		if back, _ := d.deliver(st, c, false); back {
			st.StartDispatch()
		}
	}()
	if wait > 0 {
		select {
		case <-done:
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, c.N, ctx.Err()
		}
	}
	e, err = d.eventWithAttempt(ctx, who, id, c.N)
	return e, c.N, err
}

// eventWithAttempt reads an event with one of its attempts alone, without bodies: it may have
// thousands.
func (d *Delivery) eventWithAttempt(ctx context.Context, who relay.Actor, id relay.ID, n int) (*relay.Event, error) {
	e, err := d.store.Request(ctx, who, id, 0)
	if err != nil {
		return nil, err
	}
	e.Attempts, err = d.store.Attempts(ctx, who, id, relay.AttemptPage{Before: n + 1, Limit: 1})
	if err != nil {
		return nil, err
	}
	return e, nil
}

// queueReplay queues a replay until the tunnel is back.
func (d *Delivery) queueReplay(ctx context.Context, who relay.Actor, st *registry.Alias, e *relay.Event) (*relay.Event, int, error) {
	cost := costOf(e)
	if !st.Queue.Reserve(1, cost, d.opt.QueueLimit, d.opt.QueueBytes) {
		full := errQueueFull()
		full.Detail = "the tunnel is offline and its queue is full; the replay was not taken"
		return nil, 0, full
	}
	st.Queue.Move()
	c, err := d.store.BeginReplay(ctx, who, e.ID, false)
	st.Queue.GiveBack(1, cost)
	d.queueMoved(st, err, 1, cost)
	st.StartDispatch() // the tunnel may have come meanwhile; the store may have queued it before it failed
	if err != nil {
		return nil, 0, err
	}
	e, err = d.eventWithAttempt(ctx, who, e.ID, c.N)
	return e, c.N, err
}

// costOf returns the bytes of the queue limit that an event uses.
func costOf(e *relay.Event) int64 {
	m := &e.Request
	return int64(len(m.Head)+len(m.Lines)) + m.Body.Size
}

// deliver sends a stored request through the tunnel that the alias has now, which may be
// another one than before the store was asked. back means that the attempt is queued
// (again), because no byte reached the local server, or because a queued delivery
// panicked. next is the attempt that was claimed together with the end of a queued one.
// deliver logs a panic and returns.
func (d *Delivery) deliver(st *registry.Alias, c *relay.Claim, queued bool) (back bool, next *relay.Claim) {
	x := d.exchange(st, st.Current())
	defer func() {
		p := asPanic(recover())
		next = x.nextClaimed()
		if p == nil {
			x.release()
			return
		}
		x.panicked()
		d.log.Error("panic while delivering a stored request", "event", c.Event.ID, "attempt", c.N, "panic", p.value, "stack", string(p.stack))
		back = queued // the store queues it again; the dispatcher must not try at once
	}()
	x.att, x.lost = st.Online()
	if queued && x.att != nil && x.att.Remote() { // its node delivers the queue now, with what was claimed here
		x.att = nil
	}
	x.queued = queued
	x.event, x.origin = c.Event, c.Event.Remote
	x.attempt = relay.Attempt{N: c.N, Kind: relay.KindReplay, ReceivedAt: time.Now()}
	if a := c.Event.Attempt(c.N); a != nil {
		x.attempt = *a
	}
	d.underWay.add(x.ref())
	x.accepted = acceptedWhole
	head, _, err := wire.Request(c.Event.Request.Head, wire.Limits{})
	if err != nil {
		x.fault = relay.AsError(err)
		x.sendFinish(relay.StateFailed, x.fault, "")
		x.awaitStored()
		return false, next
	}
	x.stored, x.head, x.rec.whole = true, head, true
	x.raw.Write(c.Event.Request.Head)
	x.wire = x.sentHead()
	x.gather()
	v := notSent
	if x.att != nil {
		v = x.run()
	}
	return x.finishStored(v), next
}

// nextClaimed returns the attempt that was claimed together with the end of this one, nil for
// none.
func (x *exchange) nextClaimed() (next *relay.Claim) {
	if x.claim == nil {
		return nil
	}
	if x.d.await(x.finish, nil) == nil {
		next = x.claim()
	}
	if next == nil {
		x.st.Queue.Moved(0, 0)
	}
	return next
}

// finishStored ends an exchange that has no caller.
func (x *exchange) finishStored(v verdict) (back bool) {
	x.releaseChannel()
	if x.uploading {
		x.signalContinue(false)
		x.endUpload()
	}
	var err error
	switch {
	case v == complete:
	case v == notSent, v == failed && x.queued && !x.reached:
		back = true
		_, err = x.requeue()
	default: // the store queues an interrupted queued delivery anew
		if e := x.finishFailed(); e != nil {
			err = e
		}
	}
	if err != nil && !errors.Is(err, relay.ErrNotFound) { // else the event was removed meanwhile
		x.d.log.Error("end of an attempt not stored", "event", x.event.ID, "attempt", x.attempt.N, "queued again", back, "error", err)
	}
	return back
}

// requeue puts the attempt back into the queue. After errStoreTimeout it may be there later.
func (x *exchange) requeue() (t *relay.Ticket, err error) {
	x.st.Queue.Move()
	t = x.d.store.Requeue(x.event.ID, x.attempt.N)
	err = x.d.await(t, time.After(storeWait))
	if x.d.queueMoved(x.st, err, 1, costOf(x.event)); err == nil {
		x.d.counters.requeued.Inc()
	}
	return t, err
}
