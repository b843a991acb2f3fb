package store

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"relay"
)

// openJournal opens the connections of the committers. They have shorter timeouts than
// others, because a caller waits. They stay open however long they are idle, because a new
// connection means that the database may have been unreachable.
func (s *Store) openJournal(ctx context.Context, dsn string) error {
	u, err := url.Parse(dsn)
	if err != nil {
		return err
	}
	q := u.Query()
	q.Set("connect_timeout", "1")
	u.RawQuery = q.Encode()
	by := &dialer{readTimeout: journalReadTimeout, shared: s.viaPooler, onDial: func() { s.lockUncertain.Store(true) }}
	s.journal, err = openPoolBy(ctx, u.String(), s.d.commit, by)
	if err != nil {
		return err
	}
	s.journal.SetConnMaxIdleTime(0)
	return nil
}

// setClaimant sets in whose name the spool keeps steps from now on.
func (s *Store) setClaimant() {
	if s.spool != nil {
		s.spool.mu.Lock()
		s.spool.claimant = claimant{s.spoolID, s.boot}
		s.spool.mu.Unlock()
	}
}

// journalTarget is where the committers write.
func (s *Store) journalTarget() *writeTarget {
	node, former := s.claimant()
	return &writeTarget{db: s.journal, node: node, former: former}
}

// checkServeLock refuses a write over a new connection until the serve lock was checked:
// the lock is lost when the server restarts.
func (s *Store) checkServeLock(ctx context.Context, by *writeTarget) error {
	if by.replaying || !s.lockUncertain.Load() {
		return nil
	}
	if s.spool == nil && s.lockUncertain.Swap(false) && (s.lock == nil || s.lock.file != nil || s.holdLock(ctx)) {
		return nil
	}
	s.lockUncertain.Store(true)
	return errLockUncertain
}

// shouldSpool reports whether steps that failed with err go to the spool: the connection or
// the server caused it, and not a full disk of the server.
func (s *Store) shouldSpool(err error) bool {
	return s.spool != nil && unavailable(err) == relay.CodeStoreUnavailable
}

// withSpoolHint adds to an error of Open how many spool files wait for the database.
func (s *Store) withSpoolHint(err error) error {
	if s.opt.URL == "" || s.opt.NoCreate || s.opt.DataDir == "" {
		return err
	}
	if n := len(leftSegments(s.opt.DataDir)); n > 0 {
		return fmt.Errorf("%w; %d spool files with events wait in %s and are stored once it is back: leave them there", err, n, s.opt.DataDir)
	}
	return err
}

// Health returns a nil error when new events can be stored. degraded means that they go to
// the spool because Postgres does not take them. It answers within 2 s.
func (s *Store) Health(ctx context.Context) (degraded bool, err error) {
	if s.spool == nil || s.fenced.Load() || s.standby.Load() || !s.serving.Load() {
		return false, s.health(ctx)
	}
	if s.spool.blocked() || s.spool.admitsTypical() != nil {
		return true, errSpoolUnready
	}
	if s.spool.active() {
		return true, s.spool.checkWritable()
	}
	err = s.health(ctx)
	if err != nil && s.shouldSpool(err) {
		return true, s.spool.checkWritable() // if that is nil, the next event goes to the spool
	}
	return false, err
}

func (c *committer) writeChunks(ctx context.Context, steps []*step) ([]relay.Change, error) {
	return c.s.writeChunks(ctx, c.s.journalTarget(), steps)
}

func (c *committer) writeRows(ctx context.Context, steps []*step) ([]relay.Change, error) {
	return c.s.writeRows(ctx, c.s.journalTarget(), steps)
}

// divert makes steps durable in the spool, or fails those that do not fit.
func (c *committer) divert(steps []*step, why error) {
	refused, size, err := c.s.spool.put(steps, why)
	refusal := c.s.fault("write event", err)
	lost := make(map[*step]bool, len(refused))
	for _, st := range refused {
		lost[st] = true
	}
	for _, st := range steps {
		if lost[st] {
			c.refuse(st, refusal)
			continue
		}
		st.ticket.Resolve(nil)
	}
	c.s.meter.spooled.Add(int64(len(steps) - len(refused)))
	c.s.spool.throttle(size)
}

// drainLast waits up to closeDrain for the spool to be drained before the store closes,
// unless the database does not answer or makes no progress.
func (s *Store) drainLast() {
	if s.stop == nil || !s.spool.active() {
		return
	}
	deadline := time.Now().Add(closeDrain)
	for left, moved := s.spool.size(), time.Now(); s.spool.active() && !s.spool.databaseDown() && time.Now().Before(deadline); {
		<-time.After(drainPause)
		if now := s.spool.size(); now < left {
			left, moved = now, time.Now()
		} else if time.Since(moved) > closeStuck {
			return
		}
	}
}
