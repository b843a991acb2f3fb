package store

import (
	"sync"
	"time"

	"relay"
)

// repairs are the results that could not be written while the database was unreachable.
// Their attempts would stay delivering for ever. When the database is back, they end as
// interrupted or go back to the queue.
type repairs struct {
	mu    sync.Mutex
	steps map[repairKey]*step

	claimMu sync.Mutex // held while claims are undone
	claims  []lostClaim
}

type repairKey struct {
	id relay.ID
	n  int
}

const maxRepairs = 100_000

// rememberRepair remembers how to repair the result of a failed step. Beyond maxRepairs the
// repair is dropped, logged and counted: the attempt stays delivering until the next start.
func (s *Store) rememberRepair(st *step) {
	if s.repairs.remember(st) {
		return
	}
	s.noteDroppedRepair(st.id)
}

func (s *Store) noteDroppedRepair(id relay.ID) {
	if s.meter.repairsDropped.Add(1) == 1 {
		s.log.Error("too many results wait for the database; further attempts stay delivering until relayd is restarted",
			"limit", maxRepairs, "event", id.String())
	}
}

// remember reports whether there was space for the repair, or none is needed.
func (r *repairs) remember(st *step) bool {
	var again *step
	switch st.kind {
	case stepRequeue:
		again = &step{kind: stepRequeue, id: st.id, n: st.n}
	case stepFinish:
		again = endLost(st.id, st.attempt)
	case stepAccept: // a commit whose result was lost may have stored it
		if len(st.event.Attempts) == 0 || st.event.Attempts[0].State != relay.StateDelivering {
			return true
		}
		again = endLost(st.id, &st.event.Attempts[0])
	default:
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.steps == nil {
		r.steps = map[repairKey]*step{}
	}
	if len(r.steps) >= maxRepairs {
		return false
	}
	r.steps[repairKey{st.id, again.n}] = again
	return true
}

func endLost(id relay.ID, a *relay.Attempt) *step {
	n := max(a.N, 1)
	return &step{kind: stepFinish, id: id, n: n, attempt: &relay.Attempt{
		N: n, State: relay.StateInterrupted, StartedAt: a.StartedAt, EndedAt: time.Now(),
		Error: &relay.Fault{Code: relay.CodeResponseNotStored, Message: "the outcome could not be stored because the database was away"},
	}}
}

// repair enqueues the repairs once the database is back. A repair that fails is remembered
// again.
func (s *Store) repair() {
	if s.spool.active() {
		return
	}
	s.repairClaims()
	for _, c := range s.committers {
		if c.down() != nil {
			return
		}
	}
	s.repairs.mu.Lock()
	steps := s.repairs.steps
	s.repairs.steps = nil
	s.repairs.mu.Unlock()
	for _, st := range steps {
		s.enqueueStep(st)
	}
}
