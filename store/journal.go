package store

import (
	"relay"
)

type stepKind uint8

const (
	stepAccept stepKind = iota
	stepChunk
	stepAmend
	stepFinish
	stepRequeue
)

// step is one thing to make durable. After it was handed over nobody changes what
// it points to.
type step struct {
	kind    stepKind
	id      relay.ID
	event   *relay.Event   // accept
	attempt *relay.Attempt // finish
	message *relay.Message // amend
	data    []byte         // chunk
	n, i    int            // attempt number; part number
	state   string         // finish: event state, "" = that of the attempt
	size    int64          // bytes held while it waits
	ticket  *relay.Ticket

	seq     uint64
	stalled *stall // not nil while there is no room for it
	dead    bool   // resolved while it waited
	err     error  // of this step alone, found in its transaction
	to      int64  // where it ends in its file of the spool; 0 = it comes from elsewhere
}

// stepOverhead is what a step weighs besides its bytes.
const stepOverhead = 512

// Accept stores a new event; see delivery.Journal. When the clock went back its times
// are moved behind those of events that came before it.
func (s *Store) Accept(e *relay.Event) *relay.Ticket {
	s.clock.settle(e)
	return s.hand(&step{kind: stepAccept, id: e.ID, event: e, size: messageSize(&e.Request) + attemptsSize(e.Attempts)})
}

// Chunk stores part i of a large body; see delivery.Journal. What is free below
// Options.MinFree is for requests that are under way, not for more of new ones.
func (s *Store) Chunk(id relay.ID, n, i int, data []byte) *relay.Ticket {
	if full := s.disk.low(); full != nil && n == 0 {
		t := relay.NewTicket()
		t.Resolve(full)
		return t
	}
	return s.hand(&step{kind: stepChunk, id: id, n: n, i: i, data: data, size: int64(len(data))})
}

// Finish ends an attempt that this process has under way; see delivery.Journal.
func (s *Store) Finish(id relay.ID, a *relay.Attempt, event string) *relay.Ticket {
	return s.hand(&step{kind: stepFinish, id: id, n: a.N, attempt: a, state: event, size: attemptsSize([]relay.Attempt{*a})})
}

// Amend replaces the request of an event; see delivery.Journal.
func (s *Store) Amend(id relay.ID, m *relay.Message) *relay.Ticket {
	return s.hand(&step{kind: stepAmend, id: id, message: m, size: messageSize(m)})
}

// Requeue puts an attempt back to queued; see delivery.Journal.
func (s *Store) Requeue(id relay.ID, n int) *relay.Ticket {
	return s.hand(&step{kind: stepRequeue, id: id, n: n})
}

func messageSize(m *relay.Message) int64 {
	size := len(m.Head) + len(m.Lines)
	if m.Body.Parts == 0 {
		size += len(m.Body.Data)
	}
	return int64(size)
}

func attemptsSize(list []relay.Attempt) (size int64) {
	for i := range list {
		a := &list[i]
		size += messageSize(&a.Response) + int64(len(a.SentHead))
		for _, h := range a.Interim {
			size += int64(len(h))
		}
	}
	return size
}

// hand gives a step to the committer of its event.
func (s *Store) hand(st *step) *relay.Ticket {
	st.ticket = relay.NewTicket()
	st.size += stepOverhead
	if len(s.committers) == 0 {
		st.ticket.Resolve(relay.Errorf(relay.CodeStoreUnavailable, "the store is not being served"))
		return st.ticket
	}
	// The last byte of a UUIDv7 is random: a hash of the id.
	s.committers[int(st.id[15])%len(s.committers)].push(st)
	return st.ticket
}

// unit is what waits of one event in one batch, in the order it came.
type unit struct {
	id    relay.ID
	steps []*step
	fresh *fresh // its Accept and what could be merged into it
}

// units groups the steps of a batch by event, keeping the order of each.
func units(steps []*step) []*unit {
	var list []*unit
	byID := make(map[relay.ID]*unit, len(steps))
	for _, st := range steps {
		u := byID[st.id]
		if u == nil {
			u = &unit{id: st.id}
			byID[st.id] = u
			list = append(list, u)
		}
		u.steps = append(u.steps, st)
	}
	return list
}

// fresh is a new event as it stands at the end of a batch: Accept, with the Amend
// and the Finish of its first attempt that came before the batch was taken.
type fresh struct {
	event   *relay.Event
	attempt *relay.Attempt
	request *relay.Message
	state   int // of the event
	merged  int // steps of the unit that are in it
	blocker string
}

// merge looks at the start of a unit: an Accept and what can be merged into its
// inserts. It changes nothing that was handed over.
func (u *unit) merge() error {
	u.fresh = nil
	if len(u.steps) == 0 || u.steps[0].kind != stepAccept {
		return nil
	}
	e := u.steps[0].event
	f := &fresh{event: e, request: &e.Request, merged: 1, blocker: e.Blocker}
	if len(e.Attempts) > 0 {
		a := e.Attempts[0]
		if a.N == 0 {
			a.N = 1
		}
		f.attempt = &a
	}
	state := e.State
	if state == "" && f.attempt != nil {
		state = f.attempt.State
	}
	var err error
	if f.state, err = stateCode(state); err != nil {
		return err
	}
	for _, st := range u.steps[1:] {
		if !f.take(st) {
			break
		}
		f.merged++
	}
	u.fresh = f
	return nil
}

// take merges one more step if it can.
func (f *fresh) take(st *step) bool {
	switch st.kind {
	case stepAmend:
		f.request = st.message
		return true
	case stepFinish:
		a := st.attempt
		if f.attempt == nil || a.N != f.attempt.N || f.attempt.State != relay.StateDelivering || a.State == relay.StateDelivering {
			return false
		}
		state, err := finishState(st)
		if err != nil {
			return false
		}
		if f.state < rejected {
			f.state = state
		}
		end := endedAttempt(f.attempt, a)
		f.attempt, f.blocker = &end, upgradeBlocker(a, f.blocker)
		return true
	}
	return false
}

// endedAttempt is the stored attempt with what Finish says about its end.
func endedAttempt(stored, end *relay.Attempt) relay.Attempt {
	a := *end
	a.Kind, a.ReceivedAt, a.Actor, a.Released = stored.Kind, stored.ReceivedAt, stored.Actor, stored.Released
	if a.StartedAt.IsZero() {
		a.StartedAt = stored.StartedAt
	}
	return a
}

// finishState is the code of the event's state after a Finish.
func finishState(st *step) (int, error) {
	if st.state != "" {
		return stateCode(st.state)
	}
	return stateCode(st.attempt.State)
}

// upgradeBlocker: an event that was answered by 101 cannot be replayed.
func upgradeBlocker(a *relay.Attempt, before string) string {
	if before == "" && a.N == 1 && a.ResponseState == relay.ResponseUpgraded {
		return relay.BlockedUpgraded
	}
	return before
}
