package store

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"relay"
)

// openJournal opens the connections of the committers, which give up earlier than
// others: a caller waits. They are kept however long they idle, because a new one
// says that the database may have been away.
func (s *Store) openJournal(ctx context.Context, dsn string) error {
	u, err := url.Parse(dsn)
	if err != nil {
		return err
	}
	q := u.Query()
	q.Set("connect_timeout", "1")
	u.RawQuery = q.Encode()
	by := &dialer{silence: quiet, shared: s.pooled, dialed: func() { s.unsure.Store(true) }}
	s.journal, err = openPoolBy(ctx, u.String(), s.d.commit, by)
	if err != nil {
		return err
	}
	s.journal.SetConnMaxIdleTime(0)
	return nil
}

// sign says in whose name this process writes from now on.
func (s *Store) sign() {
	s.pen = penman{db: s.journal, owner: owner{s.node, s.boot}}
	if s.spool != nil {
		s.spool.mu.Lock()
		s.spool.by = s.pen.owner
		s.spool.mu.Unlock()
	}
}

// mayCommit keeps a committer from writing over a new connection before it is known
// that the serve lock, which goes with the server, is still ours.
func (s *Store) mayCommit(ctx context.Context, by *penman) error {
	if by.late || !s.unsure.Load() {
		return nil
	}
	if s.spool == nil && s.unsure.Swap(false) && (s.lock == nil || s.lock.file != nil || s.holdLock(ctx)) {
		return nil
	}
	s.unsure.Store(true)
	return errLockUnsure
}

// spools tells whether steps that fail for this reason go to the spool: the
// connection or the server is at fault, not the room on its disk.
func (s *Store) spools(err error) bool {
	return s.spool != nil && unavailable(err) == relay.CodeStoreUnavailable
}

// spoolWaits adds to the reason why the store cannot be opened what waits for it.
func (s *Store) spoolWaits(err error) error {
	if s.opt.URL == "" || s.opt.NoCreate || s.opt.DataDir == "" {
		return err
	}
	if n := len(leftSegments(s.opt.DataDir)); n > 0 {
		return fmt.Errorf("%w; %d spool files with events wait in %s and are stored once it is back: leave them there", err, n, s.opt.DataDir)
	}
	return err
}

// Health tells whether new events can be kept (err is nil then), and whether they
// go to the spool because Postgres does not take them. It answers within 2 s.
func (s *Store) Health(ctx context.Context) (degraded bool, err error) {
	if s.spool == nil || s.fenced.Load() || s.standby.Load() || !s.serving.Load() {
		return false, s.health(ctx)
	}
	if s.spool.blocked() != nil || s.spool.admitsUsual() != nil {
		return true, errSpoolUnready
	}
	if s.spool.active() {
		return true, s.spool.unwritable()
	}
	err = s.health(ctx)
	if err != nil && s.spools(err) {
		return true, s.spool.unwritable() // or the next event goes to the spool
	}
	return false, err
}

func (c *committer) writeChunks(ctx context.Context, steps []*step) ([]relay.Change, error) {
	return c.s.writeChunks(ctx, &c.s.pen, steps)
}

func (c *committer) writeRows(ctx context.Context, steps []*step) ([]relay.Change, error) {
	return c.s.writeRows(ctx, &c.s.pen, steps)
}

// divert makes steps durable in the spool, or fails them.
func (c *committer) divert(steps []*step, why error) {
	refused, size, err := c.s.spool.put(steps, why)
	lost := make(map[*step]bool, len(refused))
	for _, st := range refused {
		lost[st] = true
	}
	for _, st := range steps {
		if lost[st] {
			c.refuse(st, err)
			continue
		}
		st.ticket.Resolve(nil)
	}
	c.s.meter.spooled.Add(int64(len(steps) - len(refused)))
	c.s.spool.keepPace(size)
}

// drainLast gives the spool a moment to reach the database before the store closes,
// unless that is away, or takes nothing for a while.
func (s *Store) drainLast() {
	if s.stop == nil || !s.spool.active() {
		return
	}
	deadline := time.Now().Add(closeDrain)
	for left, moved := s.spool.size(), time.Now(); s.spool.active() && !s.spool.deserted() && time.Now().Before(deadline); {
		<-time.After(drainPause)
		if now := s.spool.size(); now < left {
			left, moved = now, time.Now()
		} else if time.Since(moved) > closeStuck {
			return
		}
	}
}
