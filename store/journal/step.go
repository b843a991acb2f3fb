package journal

import (
	"time"

	"relay"
	"relay/store/events"
	"relay/store/spool"
)

// claimStep is the kind of a step that claims the oldest attempt of a queue. Such steps are never
// written to the spool.
const claimStep = spool.Requeue + 1

// step is one change to make durable, on its way to the database.
type step struct {
	spool.Step
	claim  *queueClaim // claim of a claimStep, or of a Finish that is followed by a claim
	ticket *relay.Ticket

	seq    uint64
	ahead  int64       // sum of lane.cost of all steps that entered the lane of this step before it
	waiter *time.Timer // fails the step if its lane still has no space for it; nil = the step does not wait for space
	dead   bool        // the ticket was resolved while the step waited
	err    error       // error of this step only, set in its transaction

	spooled int64 // number of the step in the spool; 0 = not from the spool
}

// stepOverhead is the memory in bytes that a step counts in addition to its content.
const stepOverhead = 512

// Accept stores a new event; see delivery.Journal. Its times are corrected to the clock of Postgres.
// After the clock was set back, they are moved so that they follow the times of earlier events.
func (j *Journal) Accept(e *relay.Event) *relay.Ticket {
	j.db.Clock.Adjust(e)
	size := messageSize(&e.Request)
	for i := range e.Attempts {
		j.db.Clock.Correct(&e.Attempts[i])
		size += attemptSize(&e.Attempts[i])
	}
	return j.enqueueStep(&step{Step: spool.Step{Kind: spool.Accept, ID: e.ID, Event: e, Size: size}})
}

// Chunk stores part i of a large body; see delivery.Journal. If the disk has less free space than MinFree of
// store.Options, parts of requests are refused: the remaining space is reserved for the responses to earlier
// requests.
func (j *Journal) Chunk(id relay.ID, n, i int, data []byte) *relay.Ticket {
	if full := j.db.Disk.Low(); full != nil && n == 0 {
		t := relay.NewTicket()
		t.Resolve(full)
		return t
	}
	return j.enqueueStep(&step{Step: spool.Step{Kind: spool.Chunk, ID: id, N: n, I: i, Data: data, Size: int64(len(data))}})
}

// Finish ends an attempt that this process is delivering, and corrects its times to the clock of
// Postgres; see delivery.Journal.
func (j *Journal) Finish(id relay.ID, a *relay.Attempt, event string) *relay.Ticket {
	return j.enqueueStep(&step{Step: spool.Step{Kind: spool.Finish, ID: id, N: a.N, Attempt: a, State: event, Size: attemptSize(a)}})
}

// CallerGone stores, after the end of an attempt, that its caller did not get the whole answer; see
// delivery.Journal. It is a Finish without a state.
func (j *Journal) CallerGone(id relay.ID, n int) *relay.Ticket {
	return j.enqueueStep(&step{Step: spool.Step{Kind: spool.Finish, ID: id, N: n, Attempt: &relay.Attempt{N: n, CallerGone: true}}})
}

// Amend replaces the request of an event; see delivery.Journal.
func (j *Journal) Amend(e *relay.Event) *relay.Ticket {
	return j.enqueueStep(&step{Step: spool.Step{Kind: spool.Amend, ID: e.ID, Event: e, Size: messageSize(&e.Request)}})
}

// Requeue puts an attempt back to queued; see delivery.Journal.
func (j *Journal) Requeue(id relay.ID, n int) *relay.Ticket {
	return j.enqueueStep(&step{Step: spool.Step{Kind: spool.Requeue, ID: id, N: n}})
}

// RequeueWithheld puts an attempt back to queued, and withholds it: it removes its mark Released; see delivery.Journal.
func (j *Journal) RequeueWithheld(id relay.ID, n int) *relay.Ticket {
	return j.enqueueStep(&step{Step: spool.Step{Kind: spool.Requeue, ID: id, N: n, State: withheldState}})
}

// withheldState is the State of the Requeue that RequeueWithheld enqueues. Its text is that of earlier versions, because
// it is written to the spool.
const withheldState = "held"

func messageSize(m *relay.Message) int64 {
	size := len(m.Head) + len(m.Lines)
	if m.Body.Parts == 0 {
		size += len(m.Body.Data)
	}
	return int64(size)
}

func attemptSize(a *relay.Attempt) int64 {
	size := messageSize(&a.Response) + int64(len(a.SentHead))
	for _, h := range a.Interim {
		size += int64(len(h))
	}
	return size
}

// enqueueStep passes a step to the committer.
func (j *Journal) enqueueStep(st *step) *relay.Ticket {
	st.ticket = relay.NewTicket()
	st.Size += stepOverhead
	if st.Attempt != nil {
		j.db.Clock.Correct(st.Attempt)
	}
	if c := j.committer.Load(); c != nil {
		c.enqueue(st)
	} else {
		st.ticket.Resolve(relay.Errorf(relay.CodeStoreUnavailable, "the store is not being served"))
	}
	return st.ticket
}

// eventSteps are the steps of one event in one batch, in their order.
type eventSteps struct {
	id     relay.ID
	steps  []*step
	insert *newEvent // the Accept merged with later steps; nil without an Accept
}

// groupByEvent groups the steps of a batch by event and keeps their order.
func groupByEvent(steps []*step) []*eventSteps {
	var list []*eventSteps
	byID := make(map[relay.ID]*eventSteps, len(steps))
	for _, st := range steps {
		u := byID[st.ID]
		if u == nil {
			u = &eventSteps{id: st.ID}
			byID[st.ID] = u
			list = append(list, u)
		}
		u.steps = append(u.steps, st)
	}
	return list
}

// newEvent is a new event in the state at the end of its batch. It is the Accept, merged with the
// Amend and the Finish of the first attempt if these are in the same batch.
type newEvent struct {
	event   *relay.Event
	attempt *relay.Attempt
	request *relay.Message
	state   int
	merged  int
	blocker string
}

// merge sets insert if the first step is an Accept, and merges the steps after it as far as possible.
// It does not change the enqueued steps.
func (u *eventSteps) merge() error {
	u.insert = nil
	if len(u.steps) == 0 || u.steps[0].Kind != spool.Accept {
		return nil
	}
	e := u.steps[0].Event
	f := &newEvent{event: e, request: &e.Request, merged: 1, blocker: e.Blocker}
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
	if f.state, err = events.StateCode(state); err != nil {
		return err
	}
	for _, st := range u.steps[1:] {
		if !f.mergeStep(st) {
			break
		}
		f.merged++
	}
	u.insert = f
	return nil
}

// mergeStep merges one more step. It returns false if that is not possible.
func (f *newEvent) mergeStep(st *step) bool {
	switch st.Kind {
	case spool.Amend:
		f.request, f.event = &st.Event.Request, events.Amended(f.event, st.Event)
		return true
	case spool.Finish:
		a := st.Attempt
		if f.attempt == nil || a.N != f.attempt.N || f.attempt.State != relay.StateDelivering || a.State == relay.StateDelivering {
			return false
		}
		state, err := finishState(st)
		if err != nil {
			return false
		}
		if f.state != events.Rejected && f.state != events.Incomplete {
			f.state = state
		}
		end, stored := *a, f.attempt
		end.Kind, end.ReceivedAt, end.Actor, end.Released = stored.Kind, stored.ReceivedAt, stored.Actor, false // the attempt was never in the queue
		if end.StartedAt.IsZero() {
			end.StartedAt = stored.StartedAt
		}
		f.attempt, f.blocker = &end, upgradeBlocker(a, f.blocker)
		return true
	}
	return false
}

// finishState returns the code of the event's state after a Finish.
func finishState(st *step) (int, error) {
	if st.State != "" {
		return events.StateCode(st.State)
	}
	return events.StateCode(st.Attempt.State)
}

// upgradeBlocker returns the reason why an event cannot be replayed after the Finish of the attempt a. The
// parameter before is the reason until then, "" = none. An event whose first attempt was answered by 101 cannot
// be replayed.
func upgradeBlocker(a *relay.Attempt, before string) string {
	if before == "" && a.N == 1 && a.ResponseState == relay.ResponseUpgraded {
		return relay.BlockedUpgraded
	}
	return before
}
