package store

import (
	"context"
	"sync"
	"time"

	"relay"
)

// Bounds of the journal. A batch is what waits, up to these: no timer holds it back.
const (
	batchSteps = 256 // 128 events with their ends
	batchBytes = 4 << 20
	chunkBatch = 4               // parts in one transaction: the only writer of SQLite is held for a few ms
	roomWait   = 2 * time.Second // for room in the queue
)

// What waits for the database, in all. Parts of bodies have room of their own, so that
// the large bodies of one alias do not turn the requests of others away, and are waited
// for longer: who sends one only gets slower, as nothing more is read from the socket.
const (
	queueBytes = 64 << 20
	partBytes  = queueBytes / 4
	partWait   = 10 * time.Second // for room among them
)

// committer makes steps durable, in order for each event, one transaction at a time.
type committer struct {
	s     *Store
	limit int64 // bytes of rows
	parts int   // chunks: the first ones have room, each weighs at most BodyPart

	mu      sync.Mutex
	rows    []*step
	chunks  []*step
	stalled []*step // rows without room so far
	bytes   int64   // of the others
	busy    int     // steps in the transaction under way
	seq     uint64
	closing bool
	lost    error // the database cannot be used now: steps fail at once
	wake    chan struct{}

	complained time.Time // when it was last said that nothing can be stored
	told       bool      // and it was not taken back yet
}

// stall ends a step that found no room in time.
type stall struct{ timer *time.Timer }

// startCommitters starts the goroutines; they end by close.
func (s *Store) startCommitters(ctx context.Context) (err error) {
	if s.prepared, err = s.prepare(ctx); err != nil {
		return err
	}
	for range s.d.commit {
		c := newCommitter(s, s.d.commit)
		s.committers = append(s.committers, c)
		s.wait.Go(func() { c.run(ctx) })
	}
	s.serving.Store(true)
	return nil
}

// newCommitter makes one of n, which share the room.
func newCommitter(s *Store, n int) *committer {
	return &committer{
		s: s, limit: (queueBytes - partBytes) / int64(n), parts: partBytes / (relay.BodyPart + stepOverhead) / n,
		wake: make(chan struct{}, 1),
	}
}

// running gives the committers once they run; for those who may ask earlier.
func (s *Store) running() []*committer {
	if !s.serving.Load() {
		return nil
	}
	return s.committers
}

func (c *committer) push(st *step) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closing:
		st.ticket.Resolve(relay.Errorf(relay.CodeStoreUnavailable, "the relay is stopping"))
		return
	case c.s.fenced.Load():
		st.ticket.Resolve(errFencedServer)
		return
	case c.lost != nil:
		c.refuse(st, c.lost)
		return
	}
	c.seq++
	st.seq = c.seq
	switch {
	case st.kind == stepChunk:
		if len(c.chunks) >= c.parts {
			c.stall(st, partWait)
		}
		c.chunks = append(c.chunks, st)
	case len(c.stalled) > 0 || c.bytes > 0 && c.bytes+st.size > c.limit:
		c.stall(st, roomWait)
		c.stalled, c.rows = append(c.stalled, st), append(c.rows, st)
	default:
		c.bytes += st.size
		c.rows = append(c.rows, st)
	}
	c.signal()
}

// stall lets a step wait for room.
func (c *committer) stall(st *step, most time.Duration) {
	st.stalled = &stall{time.AfterFunc(most, func() { c.expire(st) })}
}

func (c *committer) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// refuse fails a step that was not tried; a result that is lost this way is
// repaired when the database is back.
func (c *committer) refuse(st *step, cause error) {
	c.s.meter.failed.Add(1)
	c.s.broken.note(st)
	st.ticket.Resolve(c.s.fault("write event", cause))
}

var errQueueFull = &relay.Error{
	Code: relay.CodeStoreUnavailable, RetryAfter: 2 * time.Second, Detail: "the relay's storage is too slow for what comes in; try again in a moment",
}

// expire ends a step that got no room.
func (c *committer) expire(st *step) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if st.stalled == nil || st.dead {
		return
	}
	st.dead, st.data = true, nil // it stays in its list until that is taken
	c.refuse(st, errQueueFull)
}

// admit lets stalled steps in, in order, as room comes.
func (c *committer) admit() {
	c.admitChunks()
	for len(c.stalled) > 0 {
		st := c.stalled[0]
		if !st.dead {
			if c.bytes > 0 && c.bytes+st.size > c.limit {
				return
			}
			c.bytes += st.size
			st.stalled.timer.Stop()
		}
		st.stalled = nil
		c.stalled = c.stalled[1:]
	}
}

// admitChunks gives room to the first chunks.
func (c *committer) admitChunks() {
	room := c.parts
	for _, st := range c.chunks {
		if room == 0 {
			return
		}
		if st.dead {
			continue
		}
		if room--; st.stalled != nil {
			st.stalled.timer.Stop()
			st.stalled = nil
		}
	}
}

// take removes the next chunks and the next rows from the queue. A row does not
// pass chunks of its event that were handed over before it, but those of others.
func (c *committer) take() (chunks, rows []*step) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.admit()
	chunks, c.chunks = cut(c.chunks, chunkBatch, nil)
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
	rows, c.rows = cut(c.rows, batchSteps, first)
	for _, st := range rows {
		c.bytes -= st.size
	}
	c.admit()
	c.busy = len(chunks) + len(rows)
	return chunks, rows
}

// cut takes up to limit steps that have room and do not have to wait for a chunk.
// behind gives the first chunk that still waits, by event.
func cut(list []*step, limit int, behind map[relay.ID]uint64) (taken, rest []*step) {
	var bytes int64
	for i, st := range list {
		if st.dead {
			continue
		}
		if st.stalled != nil || len(taken) == limit || bytes > 0 && bytes+st.size > batchBytes {
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
		chunks, rows := c.take()
		if len(chunks)+len(rows) > 0 {
			c.commit(ctx, chunks, c.writeChunks)
			c.commit(ctx, rows, c.writeRows)
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

// down says why events cannot be stored now, nil when they can.
func (c *committer) down() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost
}

func (c *committer) length() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.rows) + len(c.chunks) + c.busy
}

// close lets what waits become durable; the goroutine ends behind it.
func (c *committer) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closing = true
	c.signal()
}
