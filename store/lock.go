package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// serveLock is held by the one serving process of a store.
type serveLock struct {
	file *os.File  // sqlite
	conn *sql.Conn // postgres: the session that holds the advisory lock
	pid  int       // of its backend
	told bool      // that it cannot be held
}

// release gives the lock up.
func (l *serveLock) release() error {
	switch {
	case l.file != nil:
		return l.file.Close()
	case l.conn != nil:
		// Before the connection goes: the server notices the end of that some time later,
		// and who serves next would wait until then.
		ctx, cancel := context.WithTimeout(context.Background(), silence)
		defer cancel()
		_, err := l.conn.ExecContext(ctx, `SELECT pg_advisory_unlock_all()`)
		return errors.Join(err, l.conn.Close())
	}
	return nil
}

const advisoryLock = 0x72656c61

// takeServeLock makes this the one serving process. On SQLite it fails at once
// when another one serves; on Postgres it waits as standby until ctx ends.
func (s *Store) takeServeLock(ctx context.Context) error {
	if !s.d.bulk {
		return s.Claim()
	}
	defer s.standby.Store(false)
	for {
		lock, err := s.tryAdvisoryLock(ctx)
		if err == nil && lock.conn != nil {
			s.lock = &lock
			return nil
		}
		if err != nil && unavailable(err) == "" {
			return fmt.Errorf("take serve lock: %w", err)
		}
		if !s.standby.Swap(true) {
			if err != nil {
				s.log.Warn("the serve lock cannot be asked for; trying again", "database", s.place(), "err", err)
			} else {
				s.log.Info("another relayd serves this database; waiting as standby", "database", s.place())
			}
			if err := s.adoptAsStandby(ctx); err != nil {
				return fmt.Errorf("store what waits in the spool: %w", err)
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait as standby: %w", ctx.Err())
		case <-time.After(time.Second):
		}
	}
}

// openLock opens a file of the data dir that stands for a lock.
func (s *Store) openLock(name string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(s.opt.DataDir, name), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock file: %w%s", err, s.openAdvice(err))
	}
	return f, nil
}

func (s *Store) lockDataDir() error {
	f, err := s.openLock("serve.lock")
	if err != nil {
		return err
	}
	if err := lockFile(f, false); err != nil {
		return errors.Join(fmt.Errorf("another relayd already serves %s; stop it, or give this one its own --data-dir", s.opt.DataDir), f.Close())
	}
	s.lock = &serveLock{file: f}
	return nil
}

// tryAdvisoryLock gives the session that holds the lock, or none when another one
// does. The lock belongs to the schema, so that several relays may share a database.
func (s *Store) tryAdvisoryLock(ctx context.Context) (l serveLock, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := s.locks.Conn(ctx)
	if err != nil {
		return l, err
	}
	var got bool
	if err = ownSession(ctx, s.locks, conn); err == nil {
		_, err = conn.ExecContext(ctx, endAlone)
	}
	if err == nil {
		err = conn.QueryRowContext(ctx, `SELECT pg_try_advisory_lock($1, hashtext(current_schema())), pg_backend_pid()`, advisoryLock).Scan(&got, &l.pid)
	}
	if err != nil || !got {
		return l, errors.Join(err, conn.Close())
	}
	l.conn = conn
	return l, nil
}

// endAlone has the server end the session of the lock when nobody asks for long: the line
// was cut, or the machine of the server lost. By itself it would not hear of that for two
// hours, and until then neither a standby could serve nor this process, over a new
// connection. keepLock asks each second. A server that has no such setting, as before
// Postgres 14, is left with its tcp_keepalives_idle.
const endAlone = `SELECT set_config(name, '15s', false) FROM pg_settings WHERE name = 'idle_session_timeout'`

// holdLock watches the session of the advisory lock and tells whether it is there.
// When it was lost it is taken again, and unless this process still is the one that
// serves, nothing more is written here but what is in the spool.
func (s *Store) holdLock(ctx context.Context) bool {
	s.locking.Lock()
	defer s.locking.Unlock()
	if s.lock.conn != nil {
		probe, cancel := context.WithTimeout(ctx, patience)
		var serving string
		var pid int
		err := s.lock.conn.QueryRowContext(probe, `SELECT value, pg_backend_pid() FROM meta WHERE name = 'serving'`).Scan(&serving, &pid)
		cancel()
		switch {
		case err == nil && serving == s.servingName():
			if s.lock.pid != pid {
				s.lock.given(s)
			}
			return true
		case ctx.Err() != nil:
			return false
		case err == nil: // taken again from one that was about to serve
			_, _ = s.lock.conn.ExecContext(ctx, `SELECT pg_advisory_unlock_all()`)
		default:
			s.log.Warn("serve lock lost with its connection; taking it again", "err", err)
		}
		_ = s.lock.conn.Close() // if it is broken the pool drops it
		s.lock.conn = nil
	}
	serving, err := s.servingNow(ctx)
	if err != nil {
		return false // the database is away; tried again in a second
	}
	if serving != s.servingName() {
		if !s.fenced.Swap(true) {
			s.log.Error("another relayd took over this database; this one writes nothing more, restart it to make it the standby")
		}
		return false
	}
	lock, err := s.tryAdvisoryLock(ctx)
	if errors.Is(err, errShared) {
		s.lock.given(s)
		return true
	}
	if err != nil || lock.conn == nil {
		return false
	}
	s.lock.conn, s.lock.pid = lock.conn, lock.pid
	return true
}

// given says once that the session of the lock is not ours alone any more: somebody put
// a pooler in between, or changed its mode, while this process served. What the database
// says about who serves has to do until the next start.
func (l *serveLock) given(s *Store) {
	if !l.told {
		s.log.Error("the serve lock cannot be held any more; relayd goes on, but will not start like this", "err", errShared)
	}
	l.told = true
}

func (s *Store) servingName() string { return fmt.Sprintf("%s/%d", s.node, s.boot) }

// servingNow reads who took the serve lock last.
func (s *Store) servingNow(ctx context.Context) (name string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = s.locks.GetContext(ctx, &name, `SELECT value FROM meta WHERE name = 'serving'`)
	return name, err
}
