package store

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"relay"
)

// Bounds of the journal. A batch takes the steps that wait, up to these bounds. No timer
// delays it.
const (
	batchSteps = 256 // 128 events with their ends
	batchBytes = 4 << 20
	chunkBatch = 4               // parts in one transaction, so that the only writer of SQLite is held for a few ms
	spaceWait  = 2 * time.Second // for space in the queue
)

// Bounds of what waits for the database, in bytes. Parts of bodies have a quota of their
// own, so that large bodies of one alias do not cause requests of others to be refused.
// They may wait longer: the sender of a large body is only slowed down, because nothing
// more is read from its socket.
const (
	queueBytes = 64 << 20
	partBytes  = queueBytes / 4
	partWait   = 10 * time.Second // for space in the quota of parts
)

// committer makes steps durable, in order for each event, one transaction at a time.
type committer struct {
	s     *Store
	limit int64 // bytes of rows
	parts int   // chunks that have space; each holds at most BodyPart bytes

	mu      sync.Mutex
	rows    []*step
	chunks  []*step
	waiting []*step // rows that wait for space
	bytes   int64   // of the rows that have space
	busy    int     // steps in the current transaction
	seq     uint64
	closing bool
	lost    error // why the database cannot be used; steps fail at once while it is set
	refusal error // what callers get while lost is set
	wake    chan struct{}

	// Only the goroutine of the committer uses these.
	often  rate.Sometimes // for the log
	logged bool           // that nothing can be stored, and not yet the end of that
}

// startCommitter starts the goroutine; close ends it.
func (s *Store) startCommitter(ctx context.Context) (err error) {
	if s.prepared, err = s.prepare(ctx); err != nil {
		return err
	}
	s.committer = newCommitter(s)
	s.wait.Go(func() { s.committer.run(ctx) })
	s.serving.Store(true)
	return nil
}

func newCommitter(s *Store) *committer {
	return &committer{
		s: s, limit: queueBytes - partBytes, parts: partBytes / (relay.BodyPart + stepOverhead), wake: make(chan struct{}, 1),
		often: rate.Sometimes{Interval: logInterval},
	}
}

// running returns the committer once it runs, else nil; for callers that may be earlier.
func (s *Store) running() *committer {
	if !s.serving.Load() {
		return nil
	}
	return s.committer
}

func (c *committer) enqueue(st *step) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closing:
		st.ticket.Resolve(relay.Errorf(relay.CodeStoreUnavailable, "the relay is stopping"))
		return
	case c.lost != nil:
		c.refuse(st, c.refusal)
		return
	}
	c.seq++
	st.seq = c.seq
	switch {
	case st.kind == stepChunk:
		if len(c.chunks) >= c.parts {
			c.waitForSpace(st, partWait)
		}
		c.chunks = append(c.chunks, st)
	case len(c.waiting) > 0 || c.bytes > 0 && c.bytes+st.size > c.limit:
		c.waitForSpace(st, spaceWait)
		c.waiting, c.rows = append(c.waiting, st), append(c.rows, st)
	default:
		c.bytes += st.size
		c.rows = append(c.rows, st)
	}
	signal(c.wake)
}

// waitForSpace makes a step wait for space, for most at most.
func (c *committer) waitForSpace(st *step, most time.Duration) {
	st.waiter = time.AfterFunc(most, func() { c.expire(st) })
}

// refuse fails a step that was not tried, with the error for its caller. A result that is lost this way leaves a claim
// that reconcile ends.
func (c *committer) refuse(st *step, refusal error) {
	c.s.dropClaim(st)
	c.s.meter.failed.Add(1)
	st.ticket.Resolve(refusal)
}

var errQueueFull = &relay.Error{
	Code: relay.CodeStoreUnavailable, RetryAfter: 2 * time.Second, Detail: "the relay's storage is too slow for what comes in; try again in a moment",
}

// expire fails a step that got no space in time.
func (c *committer) expire(st *step) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if st.waiter == nil || st.dead {
		return
	}
	st.dead, st.data = true, nil // it stays in its list until dequeue skips it
	c.refuse(st, errQueueFull)
}

// admit gives space to waiting steps, in order.
func (c *committer) admit() {
	c.admitChunks()
	for len(c.waiting) > 0 {
		st := c.waiting[0]
		if !st.dead {
			if c.bytes > 0 && c.bytes+st.size > c.limit {
				return
			}
			c.bytes += st.size
			st.waiter.Stop()
		}
		st.waiter = nil
		c.waiting = c.waiting[1:]
	}
}

// admitChunks gives space to the first chunks.
func (c *committer) admitChunks() {
	room := c.parts
	for _, st := range c.chunks {
		if room == 0 {
			return
		}
		if st.dead {
			continue
		}
		if room--; st.waiter != nil {
			st.waiter.Stop()
			st.waiter = nil
		}
	}
}

// dequeue removes the next chunks and the next rows from the queue. A row does not overtake
// earlier chunks of its own event, but it may overtake those of other events.
func (c *committer) dequeue() (chunks, rows []*step) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.admit()
	chunks, c.chunks = takeBatch(c.chunks, chunkBatch, nil)
	var first map[relay.ID]uint64
	for _, st := range c.chunks {
		if st.dead {
			continue
		}
		if first == nil {
			first = map[relay.ID]uint64{}
		}
		if _, ok := first[st.id]; !ok {
			first[st.id] = st.seq
		}
	}
	rows, c.rows = takeBatch(c.rows, batchSteps, first)
	for _, st := range rows {
		c.bytes -= st.size
	}
	c.admit()
	c.busy = len(chunks) + len(rows)
	return chunks, rows
}

// takeBatch takes up to limit steps that have space and need not wait for a chunk. behind
// is the number of the first chunk that still waits, by event. A claim is not taken together with
// a step that puts an attempt back into a queue, which may be the one that it has to claim.
func takeBatch(list []*step, limit int, behind map[relay.ID]uint64) (taken, rest []*step) {
	var bytes int64
	requeued := false
	for i, st := range list {
		if st.dead {
			continue
		}
		requeued = requeued || st.kind == stepRequeue
		if st.waiter != nil || len(taken) == limit || bytes > 0 && bytes+st.size > batchBytes || requeued && st.claim != nil {
			return taken, append(rest, list[i:]...)
		}
		if seq, ok := behind[st.id]; ok && seq < st.seq {
			rest = append(rest, st)
			continue
		}
		taken, bytes = append(taken, st), bytes+st.size
	}
	return taken, rest
}

func (c *committer) run(ctx context.Context) {
	for {
		chunks, rows := c.dequeue()
		if len(chunks)+len(rows) > 0 {
			c.commit(ctx, chunks, c.s.writeChunks)
			c.commit(ctx, rows, c.s.writeRows)
			c.mu.Lock()
			c.busy = 0
			c.mu.Unlock()
			continue
		}
		c.mu.Lock()
		done, lost := c.closing && len(c.rows)+len(c.chunks) == 0, c.lost != nil
		c.mu.Unlock()
		switch {
		case done:
			return
		case lost:
			c.probe(ctx)
		default:
			<-c.wake
		}
	}
}

// down returns why events cannot be stored now; nil when they can.
func (c *committer) down() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost
}

// currentRefusal returns what callers get while the database cannot be used, else nil.
func (c *committer) currentRefusal() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refusal
}

func (c *committer) length() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.rows) + len(c.chunks) + c.busy
}

// close makes the goroutine end after the steps that wait are durable.
func (c *committer) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closing = true
	signal(c.wake)
}
