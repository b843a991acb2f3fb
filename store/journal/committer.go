package journal

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"relay"
	"relay/store/db"
	"relay/store/spool"
)

// Bounds of the journal. A batch takes the waiting steps, up to these bounds. No timer delays it.
const (
	batchSteps = 256 // 128 events with their ends
	batchBytes = 4 << 20
	chunkBatch = 4               // parts in one transaction, so that it keeps the only connection that writes to SQLite for just a few ms
	spaceWait  = 2 * time.Second // longest wait of a step for space in the queue
)

// Bounds of the steps that wait for the database, in bytes. Parts of bodies have a separate quota, so
// that large bodies of one alias do not cause requests of others to be refused. Parts may wait longer:
// this only slows down the sender of a large body, because nothing more is read from its socket.
const (
	queueBytes = 64 << 20
	partBytes  = queueBytes / 4
	partWait   = 10 * time.Second // longest wait of a part for space in its quota
)

// lane is a queue of steps. A step that would exceed the limit waits for space, and fails if there is no
// space in time. cost returns what a step counts towards the limit: its bytes in the lane rows, 1 in the lane
// chunks.
type lane struct {
	steps   []*step
	cost    func(*step) int64
	limit   int64 // largest sum of the costs of the waiting steps that have space
	wait    time.Duration
	in, out int64 // sums of the costs of all steps that have entered the lane so far, and of those that have left it
}

// hasSpace reports whether a step fits into the lane in addition to the steps before it.
func (l *lane) hasSpace(st *step) bool {
	before := st.ahead - l.out
	return before <= 0 || before+l.cost(st) <= l.limit
}

// committer makes steps durable, in order for each event, one transaction at a time.
type committer struct {
	j *Journal

	mu      sync.Mutex
	rows    lane
	chunks  lane // steps with parts of bodies, each at most BodyPart bytes
	busy    int  // number of steps in the current transaction
	seq     uint64
	closing bool
	away    error // reason why the database cannot be used; while it is set, steps fail at once
	refusal error // error for the callers while away is set
	wake    chan struct{}

	// Only the goroutine of the committer uses these fields.
	often  rate.Sometimes // limits the log lines about failures
	logged bool           // the log says that nothing can be stored, but not yet that storing works again
}

func newCommitter(j *Journal) *committer {
	return &committer{
		j: j, wake: make(chan struct{}, 1), often: rate.Sometimes{Interval: logInterval},
		rows:   lane{limit: queueBytes - partBytes, wait: spaceWait, cost: func(st *step) int64 { return st.Size }},
		chunks: lane{limit: partBytes / (relay.BodyPart + stepOverhead), wait: partWait, cost: func(*step) int64 { return 1 }},
	}
}

func (c *committer) enqueue(st *step) {
	if refusal := c.add(st); refusal != nil {
		c.refuse(st, refusal) // refuse is called without the lock, because it may enqueue a Requeue
	}
}

// add appends a step to its lane. It returns an error if the step is refused at once.
func (c *committer) add(st *step) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closing:
		st.ticket.Resolve(relay.Errorf(relay.CodeStoreUnavailable, "the relay is stopping"))
		return nil
	case c.away != nil:
		return c.refusal
	}
	c.seq++
	l := &c.rows
	if st.Kind == spool.Chunk {
		l = &c.chunks
	}
	st.seq, st.ahead = c.seq, l.in
	l.in += l.cost(st)
	l.steps = append(l.steps, st)
	if !l.hasSpace(st) {
		st.waiter = time.AfterFunc(l.wait, func() { c.expire(l, st) })
	}
	db.Signal(c.wake)
	return nil
}

// refuse fails a step that was not tried, with the error for its caller. It also ends the claim that the step
// itself was to make. If the step was the end of an attempt, that attempt stays claimed until Reconcile ends it.
func (c *committer) refuse(st *step, refusal error) {
	c.j.dropClaim(st)
	c.j.meter.Failed.Add(1)
	st.ticket.Resolve(refusal)
}

var errQueueFull = &relay.Error{
	Code: relay.CodeStoreUnavailable, RetryAfter: 2 * time.Second, Detail: "the relay's storage is too slow for the incoming requests; try again in a moment",
}

// expire fails a step that got no space in time.
func (c *committer) expire(l *lane, st *step) {
	c.mu.Lock()
	expired := st.waiter != nil && !l.hasSpace(st)
	if expired {
		st.waiter = nil
		l.out += l.cost(st)
		st.dead, st.Step = true, spool.Step{} // the step stays in its lane until take skips it, but holds no content
	}
	c.mu.Unlock()
	if expired {
		c.refuse(st, errQueueFull)
	}
}

// dequeue removes the next steps from the lanes chunks and rows. A step of the lane rows does not overtake
// earlier chunks of its own event, but it may overtake those of other events.
func (c *committer) dequeue() (chunks, rows []*step) {
	c.mu.Lock()
	defer c.mu.Unlock()
	chunks = c.chunks.take(chunkBatch, nil)
	var first map[relay.ID]uint64
	for _, st := range c.chunks.steps {
		if st.dead {
			continue
		}
		if first == nil {
			first = map[relay.ID]uint64{}
		}
		if _, ok := first[st.ID]; !ok {
			first[st.ID] = st.seq
		}
	}
	rows = c.rows.take(batchSteps, first)
	c.busy = len(chunks) + len(rows)
	return chunks, rows
}

// take removes up to limit steps that need not wait for a chunk. behind holds, by event, the number of the
// first chunk that still waits. A claim is not taken together with a step that puts an attempt back into a
// queue, because the claim may have to take that attempt.
func (l *lane) take(limit int, behind map[relay.ID]uint64) (taken []*step) {
	rest := l.steps[:0] // rest can use the array of l.steps, because it never holds more steps than the loop has read
	var bytes int64
	requeued := false
	for i, st := range l.steps {
		if st.dead {
			continue
		}
		requeued = requeued || st.Kind == spool.Requeue
		if len(taken) == limit || bytes > 0 && bytes+st.Size > batchBytes || requeued && st.claim != nil {
			rest = append(rest, l.steps[i:]...)
			break
		}
		if seq, ok := behind[st.ID]; ok && seq < st.seq {
			rest = append(rest, st)
			continue
		}
		st.stopWaiting()
		taken, bytes = append(taken, st), bytes+st.Size
		l.out += l.cost(st)
	}
	clear(l.steps[len(rest):])
	l.steps = rest
	return taken
}

// stopWaiting ends the wait of a step for space.
func (st *step) stopWaiting() {
	if st.waiter != nil {
		st.waiter.Stop()
		st.waiter = nil
	}
}

func (c *committer) run(ctx context.Context) {
	for {
		chunks, rows := c.dequeue()
		if len(chunks)+len(rows) > 0 {
			c.commit(ctx, chunks, c.j.writeSteps)
			c.commit(ctx, rows, c.j.writeSteps)
			c.mu.Lock()
			c.busy = 0
			c.mu.Unlock()
			continue
		}
		c.mu.Lock()
		done, away := c.closing && len(c.rows.steps)+len(c.chunks.steps) == 0, c.away != nil
		c.mu.Unlock()
		switch {
		case done:
			return
		case away:
			c.probe(ctx)
		default:
			<-c.wake
		}
	}
}

// whyAway returns the reason why events cannot be stored now; nil if they can.
func (c *committer) whyAway() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.away
}

func (c *committer) length() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.rows.steps) + len(c.chunks.steps) + c.busy
}

// close makes the goroutine end after the waiting steps are durable.
func (c *committer) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closing = true
	db.Signal(c.wake)
}
