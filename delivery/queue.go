package delivery

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"relay"
	"relay/delivery/exchange"
	"relay/delivery/registry"
	"relay/handshake"
	"relay/record"
)

// Bounds of the pause after a queued delivery of which no byte was sent.
const (
	minRequeueBackoff = time.Second
	maxRequeueBackoff = 30 * time.Second
)

// queueLimits returns the limits of the queue of an alias.
func (d *Delivery) queueLimits() registry.QueueLimits {
	return registry.QueueLimits{Attempts: d.opt.QueueLimit, Bytes: d.opt.QueueBytes, Account: d.opt.AccountQueue}
}

// enqueue queues the request of a caller and returns the outcome once the queued event is durable.
func (j *job) enqueue() relay.Outcome {
	q := j.q
	if _, why := q.Whole(); why != nil {
		return j.outcome(j.spoilt(why))
	}
	if q.Accepted() {
		// storeFirst has stored the request already.
		if out, ok := j.answerHandshake(); ok {
			return out
		}
		return j.enqueueStored()
	}
	queue := &j.st.Queue
	size := int64(len(q.Event.Request.Head)) + max(0, q.Head.Length)
	if got := queue.Reserve(1, size, j.d.queueLimits()); got != registry.Reserved {
		if out, ok := j.answerWithFullQueue(); ok {
			return out
		}
		return j.ifPresent(refusal(exchange.ErrQueueFull(got == registry.AccountQueueFull, exchange.NotStored), relay.ID{}))
	}
	j.queueBytes = size
	handedOver := false
	defer func() {
		if !handedOver {
			queue.GiveBack(1, j.queueBytes)
		}
	}()
	q.ReadToEnd(j.growReservation)
	if whole, why := q.Whole(); !whole {
		return j.outcome(j.spoilt(why))
	}
	if out, ok := j.answerHandshake(); ok {
		return out
	}
	handedOver = true
	if err := j.acceptQueued(); err != nil {
		return j.ifPresent(refusal(err, relay.ID{}))
	}
	return j.queuedAnswer()
}

// enqueueStored queues a request that was stored before it could be sent.
func (j *job) enqueueStored() relay.Outcome {
	t, err := j.requeue()
	if err == nil {
		dispatchQueued(j.st, j.q.Attempt.Released)
		return j.queuedAnswer()
	}
	d, st, id := j.d, j.st, j.q.Event.ID
	if errors.Is(err, exchange.ErrStoreTimeout) {
		st.Queue.Move()
		if !d.background(func() { d.queueMoved(st, d.cancelUnanswered(t, id), 0, 0) }) {
			st.Queue.Moved(0, 0)
		}
	}
	return j.ifPresent(refusal(exchange.StoreError(err), relay.ID{}))
}

// requeue puts the attempt back into the queue. After exchange.ErrStoreTimeout, the store may still
// queue the attempt later.
func (j *job) requeue() (t *relay.Ticket, err error) {
	j.st.Queue.Move()
	if a := &j.q.Attempt; j.clientSlow && a.Released {
		// The attempt waits for a release, as it would at the node that has the tunnel of the client.
		a.Released = false
		t = j.d.store.RequeueWithheld(j.q.Event.ID, a.N)
	} else {
		t = j.d.store.Requeue(j.q.Event.ID, a.N)
	}
	err = j.d.exchanges.Await(t)
	if j.d.queueMoved(j.st, err, 1, costOf(j.q.Event)); err == nil {
		j.d.counters.requeued.Inc()
	}
	return t, err
}

// growReservation reserves more space in the queue for a chunked request, size bytes in all. It returns false
// if the queue is full.
func (j *job) growReservation(size int64) bool {
	more := size - j.queueBytes
	if more <= 0 {
		return true
	}
	if j.st.Queue.Reserve(0, more, registry.QueueLimits{Bytes: j.d.opt.QueueBytes}) != registry.Reserved {
		return false
	}
	j.queueBytes += more
	return true
}

// ifPresent removes the answer from an outcome if the caller has left.
func (j *job) ifPresent(o relay.Outcome) relay.Outcome {
	if j.q.Left() {
		return relay.Outcome{Event: o.Answer.Event}
	}
	return o
}

// queuedAnswer returns the answer to a caller whose request was queued.
func (j *job) queuedAnswer() relay.Outcome {
	out := relay.Outcome{
		Answer:    &relay.Answer{Event: j.q.Event.ID, Status: j.alias.Settings.OfflineStatus},
		KeepAlive: !j.q.Head.Close,
	}
	if a := j.alias.Settings.AnswerTo(j.q.Event.Method, j.q.Event.Target); a != nil {
		r := ownAnswer{status: a.Status, lines: a.Headers, body: record.AnswerBytes(a.Body)}
		out.Answer.Status, out.Answer.Own = a.Status, r.bytes(j.q)
	}
	return j.ifPresent(out)
}

// acceptQueued stores the event as queued and counts it in place of the reservation.
func (j *job) acceptQueued() *relay.Error {
	d, st, e, reserved := j.d, j.st, j.q.Event, j.queueBytes
	a := relay.Attempt{N: 1, Kind: relay.KindOriginal, ReceivedAt: e.ReceivedAt}
	_, online := st.RemoteOwner() // the tunnel is online at another node
	// If the client of that tunnel is slow, the event waits for a release, as it would at that node.
	a.Released = online && !j.clientSlow
	j.q.Attempt = a
	if !online {
		// A challenge counts as missed only while the alias is offline.
		e.MissedHandshake = handshake.Recognise(j.challenge())
	}
	j.q.Prepare(relay.StateQueued)
	cost := costOf(e)
	st.Queue.Move()
	t := d.store.Accept(e)
	err := d.exchanges.Await(t)
	refused := closed(t.Done()) && t.Err() != nil
	if err != nil {
		d.markStoreDegraded(st, err)
		if !refused && d.background(func() {
			err := d.cancelUnanswered(t, e.ID)
			d.queueMoved(st, err, 0, 0)
			st.Queue.GiveBack(1, reserved)
		}) {
			return exchange.StoreError(err)
		}
	}
	// The space is given back only after the event is counted, so that no other request takes its place.
	defer st.Queue.GiveBack(1, reserved)
	switch {
	case err == nil:
		d.markStoreHealthy(st)
		d.queueMoved(st, nil, 1, cost)
		dispatchQueued(st, a.Released)
		return nil
	case refused:
		d.queueMoved(st, t.Err(), 1, cost)
	default: // the relay is stopping
		st.Queue.Moved(0, 0)
	}
	return exchange.StoreError(err)
}

// cancelUnanswered waits for the result of a step that the store did not confirm in time, and cancels
// the event if it was queued after all. The caller was told that the event is not stored and sends it
// again, so without the cancel it would be delivered twice. cancelUnanswered always returns an error, so that
// queueMoved has the queue counted again.
func (d *Delivery) cancelUnanswered(t *relay.Ticket, id relay.ID) error {
	if err := d.exchanges.AwaitEnd(t); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(d.base, storeWait)
	defer cancel()
	if why := d.store.Cancel(ctx, relay.System(), id); why != nil {
		d.log.Warn("event still queued although its caller got the answer that it is not stored", "event", id, "err", why)
	}
	return exchange.ErrStoreTimeout
}

// queueMoved reports the result of a queue change that Queue.Move has announced: n and cost are what the
// change adds to the number of queued attempts and to their bytes. After an error it is unknown whether
// the store has made the change, so the queue is counted again.
func (d *Delivery) queueMoved(st *registry.Alias, err error, n int, cost int64) {
	if err != nil {
		st.Queue.Moved(0, 0)
		d.registry.Recount(st.ID)
		return
	}
	st.Queue.Moved(n, cost)
	d.feed.Tunnel(st.ID)
}

// dispatcher delivers the queue of one alias. It runs only while the queue has attempts to deliver.
type dispatcher struct {
	d    *Delivery
	st   *registry.Alias
	wake chan struct{}
	// pause is the backoff after the last delivery. Only dispatch and the functions that it calls use
	// pause.
	pause time.Duration

	mu      sync.Mutex
	running bool
	rescan  bool // the dispatcher has to read the queue once more before it ends
}

func newDispatcher(d *Delivery, st *registry.Alias) *dispatcher {
	return &dispatcher{d: d, st: st, wake: make(chan struct{}, 1)}
}

// Start implements registry.Dispatcher.
func (q *dispatcher) Start() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
	q.run()
}

// Rescan implements registry.Dispatcher.
func (q *dispatcher) Rescan() {
	if _, ok := q.d.nextClaim(q.st); ok {
		q.run()
	}
}

// run starts the dispatcher. A running dispatcher reads the queue once more before it ends.
func (q *dispatcher) run() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.rescan = true
	if !q.running {
		q.running = q.d.background(q.dispatch)
	}
}

// dispatchQueued starts the dispatcher after an inbound event was queued, if it may be delivered: a
// tunnel may have been attached in the meantime.
func dispatchQueued(st *registry.Alias, released bool) {
	if released || st.Current().Settings.AutoDeliver {
		st.StartDispatch()
	}
}

// dispatch delivers the queued attempts of the alias in order, one at a time. It returns when no
// further attempt may be delivered.
func (q *dispatcher) dispatch() {
	q.pause = 0
	var claimed *relay.Claim
	for {
		q.mu.Lock()
		q.rescan = false
		q.mu.Unlock()
		select {
		case <-q.wake:
			q.pause = 0
		default:
		}
		more, again := q.deliverNext(&claimed)
		switch {
		case more:
		case again:
			q.pause = min(maxRequeueBackoff, max(minRequeueBackoff, 2*q.pause))
			if !q.sleep(q.pause) {
				return
			}
		case q.stop():
			return
		}
	}
}

// stop ends the dispatcher, and returns true, unless the dispatcher has to read the queue once more.
func (q *dispatcher) stop() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.running = q.rescan
	return !q.running
}

// sleep waits until the pause is over or a wake-up comes; a wake-up resets the backoff. When the relay stops,
// it ends the dispatcher and returns false.
func (q *dispatcher) sleep(pause time.Duration) bool {
	select {
	case <-time.After(pause):
		return true
	case <-q.wake:
		q.pause = 0
		return true
	case <-q.d.stop:
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.running = false
	return false
}

// deliverNext delivers the oldest attempt that may be delivered, or the one in claimed, which was
// claimed together with the end of the last delivery. It sets claimed to the attempt for the next call,
// if it has claimed one. more means that another attempt may be ready; again means that the dispatcher
// has to try later. The backoff is reset once an attempt was sent.
func (q *dispatcher) deliverNext(claimed **relay.Claim) (more, again bool) {
	c := *claimed
	*claimed = nil
	next, ok := q.d.nextClaim(q.st)
	if !ok || !q.d.begin() {
		if c != nil {
			t := q.d.store.Requeue(c.Event.ID, c.N)
			q.d.queueMoved(q.st, q.d.exchanges.AwaitEnd(t), 0, 0)
		}
		return false, false
	}
	defer q.d.end()
	if c == nil {
		q.st.Queue.Move()
		var err error
		if c, err = q.d.store.Next(next); err != nil || c == nil {
			q.st.Queue.Moved(0, 0)
			if err == nil || errors.Is(err, relay.ErrFenced) {
				// The dispatcher starts again when the tunnel is stored.
				return false, false
			}
			level := slog.LevelWarn
			if relay.AsError(err).Code == relay.CodeStoreUnavailable {
				// The store logs its own failure.
				level = slog.LevelDebug
			}
			q.d.log.Log(q.d.base, level, "cannot read a queue", "alias", q.st.ID, "err", err)
			// This pause does not grow, because the store soon reports whether it is available again.
			return q.sleep(minRequeueBackoff), false
		}
	}
	q.d.queueMoved(q.st, nil, -1, -costOf(c.Event))
	var back bool
	if back, *claimed = q.d.deliver(q.st, c, true); !back {
		q.pause = 0
	}
	return !back, back
}

// nextClaim returns the argument with which Next claims the next attempt of the queue. ok is false if the
// alias has no tunnel at this node, or the relay is stopping.
func (d *Delivery) nextClaim(st *registry.Alias) (next relay.NextClaim, ok bool) {
	h, _ := st.Online()
	if h == nil || h.Remote() || closed(d.stop) {
		return next, false
	}
	return relay.NextClaim{Alias: st.ID, Auto: st.Current().Settings.AutoDeliver, Tunnel: h.Info.ID}, true
}

// Release allows the delivery of the inbound events that were queued while the alias was offline. They are
// delivered at once, or when the alias has a tunnel again. It returns their number; a second call returns 0.
func (d *Delivery) Release(ctx context.Context, who relay.Actor, alias string) (int, error) {
	n, err := d.store.Release(ctx, who, alias)
	if st := d.registry.ByLabel(alias); st != nil && (err == nil || notAnswered(err)) {
		// The store may have released the events before it failed.
		d.feed.Tunnel(st.ID)
		st.StartDispatch()
	}
	return n, err
}

// notAnswered reports whether err leaves unknown whether the store has made a change.
func notAnswered(err error) bool {
	code := relay.AsError(err).Code
	return code == relay.CodeStoreUnavailable || code == relay.CodeOverloaded
}

// Cancel cancels the queued attempts of an event. Errors: ErrNotFound, and conflict when no
// attempt is queued.
func (d *Delivery) Cancel(ctx context.Context, who relay.Actor, id relay.ID) error {
	e, err := d.store.Request(ctx, who, id, 0)
	if err != nil {
		return err
	}
	err = d.store.Cancel(ctx, who, id)
	if err == nil || notAnswered(err) {
		// The store may have canceled some attempts before it failed.
		d.registry.Recount(e.AliasID)
		d.feed.Tunnel(e.AliasID)
	}
	return err
}
