package delivery

import (
	"crypto/sha256"
	"errors"
	"strings"
	"sync"
	"time"

	"relay"
	"relay/record"
	"relay/wire"
)

// capacityWait is how long a request waits for older events of its alias to go.
const capacityWait = 2 * time.Second

// admit says why a request is refused before a byte of it is forwarded; nil when it is not.
func (st *aliasState) admit(in *relay.Inbound, h *wire.Head) *relay.Error {
	if limit := st.d.opt.MaxBody; limit > 0 && h.Framing == relay.FramingLength && h.Length > limit {
		e := errTooLarge(limit)
		st.reject(in, e)
		return e
	}
	return st.d.checkCapacity(in, h.Length, capacityWait)
}

// checkCapacity says why a request cannot be kept; nil when it can. A chunked body counts
// 0 bytes here: its size is known only when it is stored.
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

// errStoreTimeout means that a step was neither stored nor refused in time.
var errStoreTimeout = errors.New("no word from the store")

// markStoreDegraded notes that the store fails, for one alias or for all. Until it works
// again, requests are stored before anything of them is forwarded, so that what cannot
// be kept does not reach a local server either.
func (d *Delivery) markStoreDegraded(st *aliasState, err error) {
	var e *relay.Error
	switch {
	case !errors.As(err, &e), e.Code == relay.CodeStoreUnavailable:
		d.storeDegraded.Store(true)
	case e.Code == relay.CodeStorageFull:
		d.counters.storageFull.Add(1)
		st.storageFull.Store(true)
	}
}

// markStoreHealthy notes that the store has taken something of the alias.
func (d *Delivery) markStoreHealthy(st *aliasState) {
	if d.storeDegraded.Load() {
		d.storeDegraded.Store(false)
	}
	if st.storageFull.Load() {
		st.storageFull.Store(false)
	}
}

// storeFirst reads the whole request and stores it; then it goes out of what was
// stored. ok is false when the caller is to get the outcome at once.
func (x *exchange) storeFirst() (out relay.Outcome, ok bool) {
	if x.reqEnd.how == open {
		x.readToEnd()
	}
	if x.reqEnd.how != whole {
		return x.refuse(), false
	}
	_, x.attempt.Released = x.st.remoteOwner() // if it cannot be reached, its node delivers this out of the queue
	x.sendAccept()
	if err := x.awaitStored(); err != nil {
		if !closed(x.accept.Done()) { // it may be stored yet, and nobody will deliver it
			x.sendFinish(relay.StateFailed, err, "")
		}
		return x.refusal(err, relay.ID{}), false
	}
	x.accept, x.stored, x.writeFailed, x.reqEnd = nil, true, false, uploadResult{}
	x.at.whole = time.Time{} // that was when its caller had sent it
	x.raw.Reset()
	x.raw.Write(x.event.Request.Head)
	x.gather()
	return out, true
}

// rejectsPerMinute is how many refused requests of an alias are kept as events.
const rejectsPerMinute = 60

// rejectRate counts refused requests of one alias by the minute.
type rejectRate struct {
	mu    sync.Mutex
	since time.Time
	n     int
}

// Reject keeps a refused request of a known alias as an event: best effort, at most
// 60 a minute for an alias; the rest is only counted. It never blocks.
func (d *Delivery) Reject(in *relay.Inbound, why *relay.Error) {
	if in.Alias == nil {
		return
	}
	if st := d.registry.byID(in.Alias.ID); st != nil {
		st.reject(in, why)
	}
}

// mayReject tells whether one more refused request may be kept; one that may not is
// counted.
func (st *aliasState) mayReject() bool {
	r := &st.rejects
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); now.Sub(r.since) >= time.Minute {
		r.since, r.n = now, 0
	}
	if r.n++; r.n > rejectsPerMinute {
		st.d.counters.dropped.Inc()
		return false
	}
	return true
}

func (st *aliasState) reject(in *relay.Inbound, why *relay.Error) {
	if !st.mayReject() {
		return
	}
	if !st.d.begin() {
		st.d.counters.dropped.Inc()
		return
	}
	defer st.d.end()
	if st.d.checkCapacity(in, 0, 0) != nil {
		st.d.counters.dropped.Inc()
		return
	}
	st.d.counters.rejected.Inc()
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
	e.ID, e.State, e.Error, e.Blocker = st.d.store.NewID(), relay.StateRejected, asFault(why), relay.BlockedRejected
	e.Request.Body.State, e.Request.Body.SHA256 = relay.BodyNotSent, sha256.Sum256(nil)
	st.d.store.Accept(e) // best effort: nobody waits for the ticket
}
