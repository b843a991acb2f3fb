package delivery

import (
	"strings"
	"sync"
	"time"

	"relay"
	"relay/record"
	"relay/wire"
)

// rejectsPerMinute is how many refused requests of an alias are kept as events.
const rejectsPerMinute = 60

// rejectRate counts refused requests of one alias by the minute.
type rejectRate struct {
	mu    sync.Mutex
	since time.Time
	n     int
}

func (r *rejectRate) allow(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.since) >= time.Minute {
		r.since, r.n = now, 0
	}
	if r.n++; r.n > rejectsPerMinute {
		return false
	}
	return true
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
	if !st.rejects.allow(time.Now()) {
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
	method, target, _ := wire.StartLine(in.Head)
	h := &wire.Head{Method: []byte(record.SafeTextMax(string(method), 32)), Target: target, Minor: 1}
	for _, f := range wire.Fields(in.Head) {
		if strings.EqualFold(string(f.Name), "Host") {
			h.Host = []byte(record.SafeTextMax(string(f.Value), 255))
			break
		}
	}
	e := newEvent(in, h)
	e.ID, e.State, e.Error, e.Blocker = st.d.store.NewID(), relay.StateRejected, asFault(why), relay.BlockedRejected
	e.Request.Body.State = relay.BodyNotSent
	st.d.store.Accept(e) // best effort: nobody waits for the ticket
}
