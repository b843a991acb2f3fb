package delivery

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"relay"
	"relay/record"
)

// Bounds of the pause after a queued delivery of which no byte was sent.
const (
	minRequeueBackoff = time.Second
	maxRequeueBackoff = 30 * time.Second
)

// enqueue queues the request of a caller and returns the answer once it is durable.
func (x *exchange) enqueue() relay.Outcome {
	if x.reqEnd.how != open && x.reqEnd.how != whole {
		return x.refuse()
	}
	if x.accepted != notAccepted { // stored before it was to go out
		if err := x.requeue(); err != nil {
			return x.refusal(storeError(err), relay.ID{})
		}
		x.st.dispatchQueued(x.attempt.Released)
		return x.queuedAnswer()
	}
	q, opt := &x.st.queue, &x.d.opt
	size := int64(len(x.event.Request.Head)) + max(0, x.head.Length)
	if !q.reserve(1, size, opt.QueueLimit, opt.QueueBytes) {
		return x.refusal(errQueueFull(), relay.ID{})
	}
	x.queueBytes = size
	handedOver := false
	defer func() {
		if !handedOver { // refused, or the upload panicked
			q.giveBack(1, x.queueBytes)
		}
	}()
	x.readToEnd()
	if x.reqEnd.how == whole && !x.growReservation() {
		x.reqEnd = uploadResult{how: queueFull, err: errQueueFull()}
	}
	if x.reqEnd.how != whole {
		return x.refuse()
	}
	handedOver = true
	if err := x.acceptQueued(); err != nil {
		return x.refusal(err, relay.ID{})
	}
	return x.queuedAnswer()
}

// growReservation reserves more room in the queue for a body that has grown. It returns
// false when there is none.
func (x *exchange) growReservation() bool {
	more := int64(len(x.event.Request.Head)) + x.rec.cost() - x.queueBytes
	if x.queueBytes == 0 || more <= 0 {
		return true
	}
	if !x.st.queue.reserve(0, more, 0, x.d.opt.QueueBytes) {
		return false
	}
	x.queueBytes += more
	return true
}

// queuedAnswer returns the answer to a caller whose request was queued.
func (x *exchange) queuedAnswer() relay.Outcome {
	return x.ifCallerPresent(relay.Outcome{
		Answer:    &relay.Answer{Event: x.event.ID, Status: x.alias.Settings.OfflineStatus},
		KeepAlive: !x.head.Close,
	})
}

// acceptQueued stores the event as queued and counts it in place of the reservation.
func (x *exchange) acceptQueued() *relay.Error {
	x.accepted = acceptedWhole
	x.fillRequest(relay.BodyComplete)
	st, cost, reserved := x.st, costOf(x.event), x.queueBytes
	a := relay.Attempt{N: 1, Kind: relay.KindOriginal, ReceivedAt: x.event.ReceivedAt}
	_, a.Released = st.remoteOwner() // its node delivers it at once, if it lives
	x.addAttempt(a, relay.StateQueued)
	st.queue.move()
	t := x.d.store.Accept(x.event)
	settle := func() {
		st.queue.giveBack(1, reserved)
		if st.queueMoved(t.Err(), 1, cost); t.Err() == nil {
			st.dispatchQueued(a.Released)
		}
	}
	x.accept = t
	err := x.awaitStored()
	if err == nil || closed(t.Done()) {
		settle()
	} else if !x.d.background(func() { <-t.Done(); settle() }) {
		st.queue.moved(0, 0)
	}
	return err
}

// queueMoved ends a change of the queue that queue.move has announced. After an error it is
// not known whether the store has made the change.
func (st *aliasState) queueMoved(err error, n int, cost int64) {
	if err != nil {
		st.queue.moved(0, 0)
		st.d.registry.recount(st.id)
		return
	}
	st.queue.moved(n, cost)
	st.d.feed.Tunnel(st.id)
}

// remoteOwner returns the tunnel of the alias if another node has it; the queue is
// delivered there. awaits tells that the tunnel is online there, as far as its node has
// stored, although it may not be reachable from here.
func (st *aliasState) remoteOwner() (t relay.RemoteTunnel, awaits bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	h := st.attached
	if h == nil || h.remote == nil {
		return nil, false
	}
	return h.remote, h.stale&(silentPeer|silentOpen) == 0 && !st.alias.Load().Settings.Paused
}

// startDispatch starts the dispatcher of the alias, or wakes it, at the node that has the
// tunnel.
func (st *aliasState) startDispatch() {
	if t, _ := st.remoteOwner(); t != nil {
		if !t.Wake() {
			st.d.tunnels.announceQueue(st.id)
		}
		return
	}
	nudge(st.wake)
	st.runDispatcher()
}

// rescanQueue makes the dispatcher read the queue once more after the store has changed
// it, as the store does after an outage. It does not end a backoff: what the dispatcher
// puts back changes the queue as well.
func (st *aliasState) rescanQueue() {
	if _, ok := st.nextClaim(); ok {
		st.runDispatcher()
	}
}

// runDispatcher starts the dispatcher, or makes it read the queue once more before it ends.
func (st *aliasState) runDispatcher() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.rescan = true
	if !st.dispatching {
		st.dispatching = st.d.background(st.dispatch)
	}
}

// dispatchQueued starts the dispatcher after an inbound event was queued, if it may be
// delivered: the tunnel may be attached by now.
func (st *aliasState) dispatchQueued(released bool) {
	if released || st.alias.Load().Settings.AutoDeliver {
		st.startDispatch()
	}
}

// dispatch delivers the queued attempts of the alias in order, one at a time. It returns
// when none may be delivered.
func (st *aliasState) dispatch() {
	pause := time.Duration(0)
	var claimed *relay.Claim
	for {
		st.mu.Lock()
		st.rescan = false
		st.mu.Unlock()
		select {
		case <-st.wake:
			pause = 0
		default:
		}
		more, again := st.deliverNext(&claimed)
		switch {
		case more:
			pause = 0
		case again:
			pause = min(maxRequeueBackoff, max(minRequeueBackoff, 2*pause))
			if !st.sleep(pause) {
				return
			}
		case st.stopDispatch():
			return
		}
	}
}

// stopDispatch ends the dispatcher, unless it has to read the queue once more.
func (st *aliasState) stopDispatch() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.dispatching = st.rescan
	return !st.dispatching
}

// sleep waits for the backoff or a wake-up. When the relay stops, it ends the dispatcher and
// returns false.
func (st *aliasState) sleep(pause time.Duration) bool {
	select {
	case <-time.After(pause):
		return true
	case <-st.wake:
		return true
	case <-st.d.stop:
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.dispatching = false
	return false
}

// deliverNext delivers the oldest attempt that may be delivered: claimed, if the end of the
// last delivery has claimed it. It sets claimed to the one that it claims for the next call.
// more means that the attempt was sent and another one may follow, again that the
// dispatcher has to try later.
func (st *aliasState) deliverNext(claimed **relay.Claim) (more, again bool) {
	c := *claimed
	*claimed = nil
	next, ok := st.nextClaim()
	if !ok || !st.d.begin() {
		if c != nil {
			t := st.d.store.Requeue(c.Event.ID, c.N)
			<-t.Done()
			st.queueMoved(t.Err(), 0, 0)
		}
		return false, false
	}
	defer st.d.end()
	if c == nil {
		st.queue.move()
		var err error
		if c, err = st.d.store.Next(next); err != nil || c == nil {
			st.queue.moved(0, 0)
			if err == nil || errors.Is(err, relay.ErrFenced) { // when the tunnel is stored, the dispatcher is started again
				return false, false
			}
			level := slog.LevelWarn
			if relay.AsError(err).Code == relay.CodeStoreUnavailable {
				level = slog.LevelDebug // the store says it once for all
			}
			st.d.log.Log(st.d.base, level, "queue not read", "alias", st.id, "error", err)
			// A fixed pause: the store says soon whether it is back.
			return st.sleep(minRequeueBackoff), false
		}
	}
	st.queueMoved(nil, -1, -costOf(c.Event))
	var back bool
	back, *claimed = st.d.deliver(st, c, true)
	return !back, back
}

// nextClaim returns how to claim from the queue now. ok is false if the alias has no tunnel
// here, or the relay is stopping.
func (st *aliasState) nextClaim() (next relay.NextClaim, ok bool) {
	h, _ := st.online()
	if h == nil || h.remote != nil || closed(st.d.stop) {
		return next, false
	}
	return relay.NextClaim{Alias: st.id, Auto: st.alias.Load().Settings.AutoDeliver, Tunnel: h.info.ID}, true
}

// Release lets the inbound events that were queued while the alias was offline be
// delivered, now or when the tunnel is back. It returns their number; a second call
// returns 0.
func (d *Delivery) Release(ctx context.Context, who relay.Actor, alias string) (int, error) {
	n, err := d.store.Release(ctx, who, alias)
	if st := d.registry.byLabel(alias); st != nil && (err == nil || relay.AsError(err).Code == relay.CodeStoreUnavailable) { // the store may have released them before it failed
		d.feed.Tunnel(st.id)
		st.startDispatch()
	}
	return n, err
}

// Cancel cancels the queued attempts of an event and returns the event after that. Errors:
// ErrNotFound, and conflict when no attempt is queued.
func (d *Delivery) Cancel(ctx context.Context, who relay.Actor, id relay.ID) (*relay.Event, error) {
	if err := d.store.Cancel(ctx, who, id); err != nil {
		return nil, err
	}
	e, err := d.store.Event(ctx, who, id, record.MaxBody)
	if err != nil {
		return nil, err
	}
	d.registry.recount(e.AliasID)
	d.feed.Tunnel(e.AliasID)
	return e, nil
}
