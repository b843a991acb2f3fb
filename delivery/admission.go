package delivery

import (
	"crypto/sha256"
	"errors"
	"strings"
	"time"

	"relay"
	"relay/delivery/exchange"
	"relay/delivery/registry"
	"relay/record"
	"relay/wire"
)

// capacityWait bounds the time that a request waits for older events of its alias to be deleted.
const capacityWait = 2 * time.Second

// admit returns the reason to refuse a request before a byte of it is forwarded; nil = it is accepted.
func (d *Delivery) admit(st *registry.Alias, in *relay.Inbound, h *wire.Head) *relay.Error {
	if limit := d.opt.MaxBody; limit > 0 && h.Framing == relay.FramingLength && h.Length > limit {
		e := exchange.ErrTooLarge(limit)
		d.reject(st, in, e)
		return e
	}
	return d.checkCapacity(in, h.Length, capacityWait)
}

// checkCapacity returns the reason why a request cannot be stored; nil = it can. A chunked body counts
// as 0 bytes here, because its size is not known yet.
func (d *Delivery) checkCapacity(in *relay.Inbound, length int64, wait time.Duration) *relay.Error {
	if d.opt.Capacity == nil {
		return nil
	}
	e := d.opt.Capacity(in.Alias.ID, int64(len(in.Head))+max(0, length), wait)
	if e != nil && e.Code == relay.CodeStorageFull {
		d.counters.storageFull.Add(1)
	}
	return e
}

// markStoreDegraded notes that the store fails, for one alias or for all. Until it works again,
// requests are stored before they are forwarded, so that a local server never gets a request that
// cannot be stored.
func (d *Delivery) markStoreDegraded(st *registry.Alias, err error) {
	var e *relay.Error
	switch {
	case !errors.As(err, &e), e.Code == relay.CodeStoreUnavailable:
		d.storeDegraded.Store(true)
	case e.Code == relay.CodeStorageFull:
		d.counters.storageFull.Add(1)
		st.StorageFull.Store(true)
	}
}

// markStoreHealthy notes that the store has accepted a write of the alias.
func (d *Delivery) markStoreHealthy(st *registry.Alias) {
	if d.storeDegraded.Load() {
		d.storeDegraded.Store(false)
	}
	if st.StorageFull.Load() {
		st.StorageFull.Store(false)
	}
}

// storeFirst reads and stores the whole request, which is then sent from the store. ok is false if the
// request ends here: then out is the outcome for the caller.
func (j *job) storeFirst() (out relay.Outcome, ok bool) {
	d, q := j.d, j.q
	q.ReadToEnd(nil)
	if whole, why := q.Whole(); !whole {
		return j.outcome(j.spoilt(why)), false
	}
	// If another node has the tunnel but cannot be reached, the event counts as released, so that the other node
	// delivers it from the queue.
	_, q.Attempt.Released = j.st.RemoteOwner()
	q.Prepare(relay.StateDelivering)
	t := d.store.Accept(q.Event)
	if err := d.exchanges.Await(t); err != nil {
		d.markStoreDegraded(j.st, err)
		why := exchange.StoreError(err)
		if !closed(t.Done()) {
			// The store may still accept the event later. Its attempt would then stay in the state delivering, so
			// Finish ends it now.
			a := q.Failed(why)
			d.store.Finish(q.Event.ID, &a, "")
			d.counters.finished(&a, false)
		}
		return j.ifPresent(refusal(why, relay.ID{})), false
	}
	d.markStoreHealthy(j.st)
	q.SendStored()
	return out, true
}

// rejectsPerMinute is the largest number of refused requests of an alias that are stored as events in a
// minute.
const rejectsPerMinute = 60

// Reject stores a refused request of a known alias as an event, as far as possible: at most 60 a minute for
// an alias; further ones are only counted. It never blocks.
func (d *Delivery) Reject(in *relay.Inbound, why *relay.Error) {
	if in.Alias == nil {
		return
	}
	if st := d.registry.ByID(in.Alias.ID); st != nil {
		d.reject(st, in, why)
	}
}

// mayReject reports whether one more refused request may be stored. If not, it counts the request as dropped.
func (d *Delivery) mayReject(st *registry.Alias) bool {
	if st.Rejects.Add() > rejectsPerMinute {
		d.counters.dropped.Inc()
		return false
	}
	return true
}

// keepRejected reports whether one more refused request of an alias may be stored, and counts the request as
// stored or dropped.
func (d *Delivery) keepRejected(alias int64) bool {
	st := d.registry.ByID(alias)
	if st == nil || !d.mayReject(st) {
		return false
	}
	d.counters.rejected.Inc()
	return true
}

func (d *Delivery) reject(st *registry.Alias, in *relay.Inbound, why *relay.Error) {
	if !d.mayReject(st) {
		return
	}
	if !d.begin() {
		d.counters.dropped.Inc()
		return
	}
	defer d.end()
	if d.checkCapacity(in, 0, 0) != nil {
		d.counters.dropped.Inc()
		return
	}
	d.counters.rejected.Inc()
	method, target, version := wire.StartLine(in.Head)
	h := &wire.Head{Method: []byte(record.SafeTextMax(string(method), 32)), Target: target, Minor: 1}
	if string(version) == "HTTP/1.0" {
		h.Minor = 0
	}
	for _, f := range wire.Fields(in.Head) {
		if strings.EqualFold(string(f.Name), "Host") {
			h.Host = []byte(record.SafeTextMax(string(f.Value), 255))
			break
		}
	}
	e := newEvent(in, h)
	e.ID, e.State, e.Error, e.Blocker = d.store.NewID(), relay.StateRejected, &relay.Fault{Code: why.Code, Message: why.Detail}, relay.BlockedRejected
	e.Request.Body.State, e.Request.Body.SHA256 = relay.BodyNotSent, sha256.Sum256(nil)
	d.store.Accept(e) // best effort: nothing waits for the ticket
}
