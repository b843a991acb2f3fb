package journal

import (
	"context"
	"slices"
	"time"

	"relay"
	"relay/store/db"
	"relay/store/spool"
)

// Times of one transaction of the journal.
const (
	commitLimit = 2500 * time.Millisecond // after this time a batch is not tried again
	tryLimit    = 2 * db.OpTimeout        // limit of one try, which fails earlier if the server does not answer
	probeEvery  = 250 * time.Millisecond

	logInterval = 10 * time.Second // time between two log lines about a database that stores nothing
)

// commit makes steps durable with the function write, which runs one transaction and resolves no ticket; write
// may run twice for a step. A batch that fails because of one of its rows is split until only that row fails.
// If the database is unreachable, commit tries again until commitLimit, and then fails the batch and all
// waiting steps. Steps that were dequeued together with failed ones fail at once, so that no caller waits twice.
func (c *committer) commit(ctx context.Context, steps []*step, write func(context.Context, []*step) ([]relay.Change, error)) {
	if len(steps) == 0 {
		return
	}
	deadline := time.Now().Add(commitLimit)
	for tries := 1; ; tries++ {
		c.mu.Lock()
		refusal := c.refusal
		c.mu.Unlock()
		if refusal != nil {
			for _, st := range steps {
				c.refuse(st, refusal)
			}
			return
		}
		if c.j.spool.Active.Load() {
			c.divert(steps, nil)
			return
		}
		try, cancel := c.j.tryContext(ctx)
		began := time.Now()
		changes, err := write(try, steps)
		cancel()
		if err == nil {
			c.j.meter.recordBatch(len(steps), time.Since(began))
			c.j.nodes.Publish(changes)
			for _, st := range steps {
				st.ticket.Resolve(st.err)
			}
			return
		}
		c.j.meter.Retried.Add(1)
		switch {
		case db.Retriable(err) && time.Now().Before(deadline):
			<-time.After(db.RetryPause)
		case db.Unavailable(err) == "":
			c.split(ctx, steps, err, write)
			return
		case c.j.ShouldSpool(err):
			c.divert(steps, err)
			return
		case !c.j.db.Dialect.Remote() || tries > 1 && time.Now().After(deadline): // at least two tries, even on an overloaded machine
			c.failAll(steps, err)
			return
		default:
			// The connection broke or the server is starting; the next try dials again.
			<-time.After(db.RetryPause)
		}
	}
}

// tryContext returns the context of one transaction, which does not end with ctx. SQLite needs no time
// limit, because it waits 2 s for the lock of an operator command and then fails. A context with a
// deadline would need a goroutine for every statement.
func (j *Journal) tryContext(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx = context.WithoutCancel(ctx)
	if !j.db.Dialect.Remote() {
		return ctx, func() {}
	}
	if j.spool.Enabled() {
		return context.WithTimeout(ctx, commitLimit)
	}
	return context.WithTimeout(ctx, tryLimit)
}

// ShouldSpool reports whether steps that failed with err go to the spool. They do if the spool is
// enabled, and the connection or the server caused the error, unless the disk of the server is full.
func (j *Journal) ShouldSpool(err error) bool {
	return j.spool.Enabled() && db.Unavailable(err) == relay.CodeStoreUnavailable
}

// divert makes steps durable in the spool. Steps that do not fit fail.
func (c *committer) divert(steps []*step, why error) {
	steps = slices.DeleteFunc(slices.Clone(steps), func(st *step) bool {
		c.j.dropClaim(st)
		if st.Kind == claimStep {
			st.ticket.Resolve(spool.ErrCatchingUp)
		}
		return st.Kind == claimStep
	})
	kept := make([]*spool.Step, len(steps))
	for i, st := range steps {
		kept[i] = &st.Step
	}
	refused, size, err := c.j.spool.Put(kept, why)
	refusal := c.j.db.Fault("write event", err)
	for _, st := range steps {
		if slices.Contains(refused, &st.Step) {
			c.refuse(st, refusal)
		} else {
			st.ticket.Resolve(nil)
		}
	}
	c.j.meter.Spooled.Add(int64(len(steps) - len(refused)))
	c.j.spool.Throttle(size)
}

// split halves a batch until it has found the row that makes it fail. Steps of one event stay together
// until no other event is left in the batch.
func (c *committer) split(ctx context.Context, steps []*step, cause error, write func(context.Context, []*step) ([]relay.Change, error)) {
	list := groupByEvent(steps)
	switch {
	case len(steps) == 1:
		c.j.log.Error("a row cannot be stored", "event", steps[0].ID.String(), "err", cause)
		c.j.meter.Failed.Add(1)
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

func flatten(list []*eventSteps) (steps []*step) {
	for _, u := range list {
		steps = append(steps, u.steps...)
	}
	return steps
}

// failAll fails the batch and all waiting steps. It makes one error for all of them, because making it reads
// the free space of the disk. It does so without the lock, because a disk that hangs must not block the
// metrics.
func (c *committer) failAll(steps []*step, cause error) {
	refusal := c.j.db.Fault("write event", cause)
	c.mu.Lock()
	c.away, c.refusal = cause, refusal
	var failed []*step
	for _, list := range [][]*step{steps, c.chunks.steps, c.rows.steps} {
		for _, st := range list {
			if !st.dead {
				st.stopWaiting()
				failed = append(failed, st)
			}
		}
	}
	for _, l := range []*lane{&c.rows, &c.chunks} {
		l.steps, l.out = nil, l.in
	}
	c.mu.Unlock()
	for _, st := range failed {
		c.refuse(st, refusal)
	}
	c.logThrottled(cause)
}

// logThrottled logs the reason why nothing can be stored, at most once in logInterval.
func (c *committer) logThrottled(cause error) {
	c.often.Do(func() {
		c.logged = true
		until := "the database is back"
		switch {
		case c.j.db.DiskFull(cause):
			until = relay.FormatBytes(db.FullDisk) + " are free on the data disk"
		case db.Unavailable(cause) == relay.CodeStorageFull:
			until = "the disk of postgres has free space: free some, or set a shorter --retention"
		}
		c.j.log.Error("events cannot be stored; callers get 503", "until", until, "err", cause)
	})
}

// probe waits a moment and then checks whether the database commits a row with the durability of
// events. After a full disk, the disk must also have free space again, because a small row may fit
// where no event does.
func (c *committer) probe(ctx context.Context) {
	select {
	case <-c.wake: // the committer is closing
	case <-time.After(probeEvery):
	}
	try, cancel := c.j.tryContext(ctx)
	defer cancel()
	_, err := c.j.db.UpdateOnce(try, c.j.db.Begin, func(tx *db.Tx) error {
		tx.Do(`INSERT INTO meta (name, value) VALUES ('probe', ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value`,
			time.Now().UTC().Format(time.RFC3339Nano))
		return nil
	})
	why := c.whyAway()
	stores := err == nil && !(c.j.db.DiskFull(why) && c.j.db.Disk.Exhausted())
	if !stores && !c.j.ShouldSpool(err) { // after an error for which steps go to the spool, steps are accepted again, because the spool can store them
		c.logThrottled(why)
		return
	}
	c.mu.Lock()
	c.away, c.refusal = nil, nil
	c.mu.Unlock()
	if stores && c.logged {
		c.j.log.Info("events can be stored again")
		c.logged = false
	}
}
