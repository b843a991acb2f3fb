package store

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	"relay"
)

// openJournal opens the connection of the committer. It has shorter timeouts than others,
// because callers wait. It stays open however long it is idle, because a new connection
// means that the database may have been unreachable.
func (s *Store) openJournal(ctx context.Context, dsn string) error {
	u, err := url.Parse(dsn)
	if err != nil {
		return err
	}
	q := u.Query()
	q.Set("connect_timeout", "1")
	u.RawQuery = q.Encode()
	by := &dialer{readTimeout: journalReadTimeout, shared: s.viaPooler}
	s.journal, err = openPool(ctx, u.String(), 1, by)
	if err != nil {
		return err
	}
	s.journal.SetConnMaxIdleTime(0)
	return nil
}

// shouldSpool reports whether steps that failed with err go to the spool: the connection or
// the server caused it, and not a full disk of the server.
func (s *Store) shouldSpool(err error) bool {
	return s.spool.enabled() && unavailable(err) == relay.CodeStoreUnavailable
}

// StoreFirst reports whether a request has to be stored before anything of it is forwarded:
// the spool is filling up, and a request that cannot be stored must not reach a local server.
// It answers from memory.
func (s *Store) StoreFirst() bool { return s.spool.nearlyFull() }

// Health returns a nil error when new events can be stored. degraded means that they go to
// the spool because Postgres does not take them. It answers within 2 s.
func (s *Store) Health(ctx context.Context) (degraded bool, err error) {
	if !s.spool.enabled() || !s.serving.Load() {
		return false, s.health(ctx)
	}
	if s.spool.intakeClosed.Load() || s.spool.admitsTypical() != nil {
		return true, errSpoolUnready
	}
	if s.spool.active.Load() {
		return true, s.spool.checkWritable()
	}
	err = s.health(ctx)
	if err != nil && s.shouldSpool(err) {
		return true, s.spool.checkWritable() // if that is nil, the next event goes to the spool
	}
	return false, err
}

// divert makes steps durable in the spool, or fails those that do not fit.
func (c *committer) divert(steps []*step, why error) {
	steps = slices.DeleteFunc(slices.Clone(steps), func(st *step) bool {
		c.s.dropClaim(st)
		if st.kind == stepClaim {
			st.ticket.Resolve(errCatchingUp)
		}
		return st.kind == stepClaim
	})
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
	if s.stop == nil || !s.spool.active.Load() {
		return
	}
	deadline := time.Now().Add(closeDrain)
	for left, moved := s.spool.undrained.Load(), time.Now(); s.spool.active.Load() && !s.spool.down.Load() && time.Now().Before(deadline); {
		<-time.After(drainPause)
		if now := s.spool.undrained.Load(); now < left {
			left, moved = now, time.Now()
		} else if time.Since(moved) > closeStuck {
			return
		}
	}
}

// SpoolContent is what a data dir has of a spool.
type SpoolContent struct {
	Bytes int64    // of steps that were not in Postgres when the file was written last
	Aside []string // names of files with steps that could not be read or stored
}

// LeftSpool reads what the spool in a data dir holds, also beside a server that uses it.
func LeftSpool(dir string) (c SpoolContent, err error) {
	for _, pattern := range []string{"spool-*" + spoolDamaged, spoolRefused} {
		names, _ := filepath.Glob(filepath.Join(dir, pattern))
		c.Aside = append(c.Aside, names...)
	}
	path := filepath.Join(dir, spoolFile)
	if _, err := os.Stat(path); err != nil {
		return c, nil
	}
	db, err := openFile(context.Background(), path, 1, []string{busyBeside, "query_only(1)"}, "")
	if err != nil {
		return c, err
	}
	content, err := (&spoolTable{read: db}).content()
	c.Bytes += content.Bytes
	return c, errors.Join(err, db.Close())
}

// spoolLeft reports whether an earlier process left a spool in dir.
func spoolLeft(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, spoolFile))
	old, _ := filepath.Glob(filepath.Join(dir, oldSpoolFiles))
	return err == nil || len(old) > 0
}

// recoverSpool writes the spool that an earlier process left to the database. It runs before
// the sweep, because the spool may hold the ends of attempts. It
// runs also when the spool is turned off now.
func (s *Store) recoverSpool(ctx context.Context) error {
	p, o := s.spool, s.opt
	if !p.enabled() {
		switch {
		case o.DataDir == "" || !spoolLeft(o.DataDir):
			return nil
		case !s.d.isPostgres:
			s.log.Warn("a spool waits in the data dir for the Postgres database that it was made for; it is stored when relayd runs with that and this data dir",
				"dir", o.DataDir)
			return nil
		}
		o.SpoolLimit = 1 // nothing is put into it
		p = newSpool(o, s.place(), s.claimant)
		defer func() { _ = p.close() }() // empty, unless ctx ended
	}
	if err := p.loadLeft(); err != nil {
		return err
	}
	if p.active.Load() {
		s.log.Info("storing what waits in the spool of an earlier run", "bytes", p.undrained.Load())
		return s.drain(ctx, p)
	}
	return s.reconnect(ctx)
}

// reconnect opens the connection of the committer again if it broke, so that the next steps
// do not go to the spool for that.
func (s *Store) reconnect(ctx context.Context) error {
	if !s.d.isPostgres {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	return s.journal.PingContext(ctx)
}
