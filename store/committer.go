package store

import (
	"context"
	"sync"
	"time"

	"relay"
)

// Bounds of the journal. A batch is what waits, up to these: no timer holds it back.
const (
	batchSteps  = 256 // 128 events with their ends
	batchBytes  = 4 << 20
	chunkBatch  = 4 // parts in one transaction: the only writer of SQLite is held for a few ms
	queueBytes  = 64 << 20
	roomWait    = 2 * time.Second         // for room in the queue
	commitLimit = 2500 * time.Millisecond // from then on a batch is not tried again
	tryLimit    = 2 * patience            // of one try; a silent server fails it earlier
	retryPause  = 20 * time.Millisecond
	probeEvery  = 250 * time.Millisecond
)

// committer makes steps durable, in order for each event, one transaction at a time.
type committer struct {
	s     *Store
	limit int64

	mu      sync.Mutex
	rows    []*step
	chunks  []*step
	stalled []*step // of rows and chunks: no room for them yet
	bytes   int64   // of the others
	busy    int     // steps in the transaction under way
	seq     uint64
	closing bool
	lost    error // the database cannot be used now: steps fail at once
	wake    chan struct{}
}

// stall ends a step that found no room in time.
type stall struct{ timer *time.Timer }

// startCommitters starts the goroutines; they end by close.
func (s *Store) startCommitters(ctx context.Context) (err error) {
	if s.prepared, err = s.prepare(ctx); err != nil {
		return err
	}
	for range s.d.commit {
		c := &committer{s: s, limit: queueBytes / int64(s.d.commit), wake: make(chan struct{}, 1)}
		s.committers = append(s.committers, c)
		s.wait.Go(func() { c.run(ctx) })
	}
	s.serving.Store(true)
	return nil
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
	if len(c.stalled) > 0 || c.bytes > 0 && c.bytes+st.size > c.limit {
		st.stalled = &stall{time.AfterFunc(roomWait, func() { c.expire(st) })}
		c.stalled = append(c.stalled, st)
	} else {
		c.bytes += st.size
	}
	if st.kind == stepChunk {
		c.chunks = append(c.chunks, st)
	} else {
		c.rows = append(c.rows, st)
	}
	c.signal()
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
	st.dead = true
	c.refuse(st, errQueueFull)
}

// admit lets stalled steps in, in order, as room comes.
func (c *committer) admit() {
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

// take removes the next chunks and the next rows from the queue. A row does not
// pass chunks of its event that were handed over before it.
func (c *committer) take() (chunks, rows []*step) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.admit()
	chunks, c.chunks = cut(c.chunks, chunkBatch, nil)
	var first map[relay.ID]uint64
	for _, st := range c.chunks {
		if first == nil {
			first = map[relay.ID]uint64{}
		}
		if _, ok := first[st.id]; !ok {
			first[st.id] = st.seq
		}
	}
	rows, c.rows = cut(c.rows, batchSteps, first)
	for _, list := range [][]*step{chunks, rows} {
		for _, st := range list {
			c.bytes -= st.size
		}
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

// commit makes steps durable by write, which runs one transaction and resolves
// nothing. A batch that fails because of one of its rows is split until only that
// row fails; one that fails because the database is away is tried again for a while
// (every step may run twice) and then fails whole, with all that waits.
func (c *committer) commit(ctx context.Context, steps []*step, write func(context.Context, []*step) ([]relay.Change, error)) {
	if len(steps) == 0 {
		return
	}
	deadline := time.Now().Add(commitLimit)
	for {
		if c.s.spool.active() {
			c.divert(steps, nil)
			return
		}
		try, cancel := c.s.tryContext(ctx)
		changes, err := write(try, steps)
		cancel()
		switch {
		case err == nil:
			c.settle(steps, changes)
			return
		case retriable(err):
		case unavailable(err) == "":
			c.split(ctx, steps, err, write)
			return
		case c.s.spools(err):
			c.divert(steps, err)
			return
		case !c.s.d.bulk || time.Now().After(deadline):
			c.lose(steps, err)
			return
		default:
			// The connection is gone or the server starts; the next try dials again.
			<-time.After(retryPause)
		}
	}
}

// tryContext bounds one transaction, whatever becomes of ctx. SQLite needs no bound:
// it waits 2 s for the lock of an operator command and gives up by itself, and a
// context that can end costs a goroutine for every statement.
func (s *Store) tryContext(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx = context.WithoutCancel(ctx)
	if !s.d.bulk {
		return ctx, func() {}
	}
	if s.spool != nil {
		return context.WithTimeout(ctx, commitLimit)
	}
	return context.WithTimeout(ctx, tryLimit)
}

func (c *committer) settle(steps []*step, changes []relay.Change) {
	c.s.committed.Add(int64(len(steps)))
	c.s.batches.Add(1)
	c.s.out.put(changes)
	for _, st := range steps {
		st.ticket.Resolve(st.err)
	}
}

// split finds the row that a batch fails for. Steps of one event stay together
// until the event is alone.
func (c *committer) split(ctx context.Context, steps []*step, cause error, write func(context.Context, []*step) ([]relay.Change, error)) {
	list := units(steps)
	switch {
	case len(steps) == 1:
		c.s.log.Error("a row cannot be stored", "event", steps[0].id.String(), "err", cause)
		c.s.broken.note(steps[0])
		steps[0].ticket.Resolve(&relay.Error{
			Code: relay.CodeStoreUnavailable, Detail: "the relay cannot store this request", Cause: cause,
		})
	case len(list) == 1:
		for _, st := range steps {
			c.commit(ctx, []*step{st}, write)
		}
	default:
		half := len(list) / 2
		c.commit(ctx, flatten(list[:half]), write)
		c.commit(ctx, flatten(list[half:]), write)
	}
}

func flatten(list []*unit) (steps []*step) {
	for _, u := range list {
		steps = append(steps, u.steps...)
	}
	return steps
}

// lose fails the batch and everything that waits behind it.
func (c *committer) lose(steps []*step, cause error) {
	c.s.log.Error("events cannot be stored; callers get 503 until the database is back", "err", cause)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost = cause
	for _, list := range [][]*step{steps, c.chunks, c.rows} {
		for _, st := range list {
			if st.dead {
				continue
			}
			if st.stalled != nil {
				st.stalled.timer.Stop()
				st.stalled = nil
			}
			c.refuse(st, cause)
		}
	}
	c.rows, c.chunks, c.stalled, c.bytes = nil, nil, nil, 0
}

// probe waits for the database to take writes again.
func (c *committer) probe(ctx context.Context) {
	select {
	case <-c.wake: // closing
	case <-time.After(probeEvery):
	}
	try, cancel := c.s.tryContext(ctx)
	defer cancel()
	_, err := session{try, c.s.write, &c.s.d}.exec(`INSERT INTO meta (name, value) VALUES ('probe', ?)
		ON CONFLICT (name) DO UPDATE SET value = excluded.value`, time.Now().UTC().Format(time.RFC3339Nano))
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && c.s.stillFull(c.lost) == nil {
		c.lost = nil
		c.s.log.Info("events can be stored again")
	} else if err != nil && c.s.spools(err) {
		c.lost = nil // not of the disk any more: the spool may take them
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
