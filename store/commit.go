package store

import (
	"context"
	"errors"
	"time"

	"relay"
)

// Times of one transaction of the journal.
const (
	commitLimit = 2500 * time.Millisecond // from then on a batch is not tried again
	tryLimit    = 2 * patience            // of one try; a silent server fails it earlier
	retryPause  = 20 * time.Millisecond
	probeEvery  = 250 * time.Millisecond

	complainEvery = 10 * time.Second // while a small row may fit where no event does
)

// commit makes steps durable by write, which runs one transaction and resolves
// nothing. A batch that fails because of one of its rows is split until only that
// row fails; one that fails because the database is away is tried again for a while
// (every step may run twice) and then fails whole, with all that waits. Steps that
// were taken together with those fail at once: nobody waits twice.
func (c *committer) commit(ctx context.Context, steps []*step, write func(context.Context, []*step) ([]relay.Change, error)) {
	if len(steps) == 0 {
		return
	}
	deadline := time.Now().Add(commitLimit)
	for tries := 1; ; tries++ {
		if err := c.down(); err != nil {
			for _, st := range steps {
				c.refuse(st, err)
			}
			return
		}
		if c.s.spool.active() {
			c.divert(steps, nil)
			return
		}
		try, cancel := c.s.tryContext(ctx)
		began := time.Now()
		changes, err := write(try, steps)
		cancel()
		if err == nil {
			c.s.wrote(len(steps), time.Since(began))
			c.settle(steps, changes)
			return
		}
		c.s.meter.retried.Add(1)
		switch {
		case retriable(err) && time.Now().Before(deadline):
			<-time.After(retryPause)
		case unavailable(err) == "":
			c.split(ctx, steps, err, write)
			return
		case c.s.spools(err):
			c.divert(steps, err)
			return
		case !c.s.d.bulk || tries > 1 && time.Now().After(deadline): // one try may be all that a machine under load had time for
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
		c.s.meter.failed.Add(1)
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
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost = cause
	c.complain()
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

// complain says now and then why nothing can be stored; with the lock held.
func (c *committer) complain() {
	if time.Since(c.complained) < complainEvery {
		return
	}
	c.complained, c.told = time.Now(), true
	until := "the database is back"
	switch {
	case c.s.diskFull(c.lost):
		until = amount(fullDisk) + " are free on the data disk"
	case unavailable(c.lost) == relay.CodeStorageFull:
		until = "there is room on the disk of postgres: make some, or set a shorter --retention"
	}
	c.s.log.Error("events cannot be stored; callers get 503 until "+until, "err", c.lost)
}

// tryWrite is nil when the database takes a row, in a transaction as those of events are.
func (s *Store) tryWrite(ctx context.Context) error {
	tx, end, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	_, err = session{ctx, tx, &s.d, &s.clock}.exec(`INSERT INTO meta (name, value) VALUES ('probe', ?)
		ON CONFLICT (name) DO UPDATE SET value = excluded.value`, time.Now().UTC().Format(time.RFC3339Nano))
	if err != nil {
		return errors.Join(err, rollback(tx))
	}
	return tx.Commit()
}

// probe waits for the database to take writes again.
func (c *committer) probe(ctx context.Context) {
	select {
	case <-c.wake: // closing
	case <-time.After(probeEvery):
	}
	try, cancel := c.s.tryContext(ctx)
	defer cancel()
	err := c.s.tryWrite(try)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil && c.s.stillFull(c.lost) == nil:
		c.lost = nil
		if c.told {
			c.s.log.Info("events can be stored again")
		}
		c.told = false
	case err != nil && c.s.spools(err):
		c.lost = nil // not of the disk any more: the spool may take them
	default:
		c.complain()
	}
}
