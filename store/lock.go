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
	file   *os.File  // sqlite
	conn   *sql.Conn // postgres: the session with the advisory lock
	pid    int       // process id of its backend
	logged bool      // it was logged that the lock cannot be held
}

// release releases the lock.
func (l *serveLock) release() error {
	switch {
	case l.file != nil:
		return l.file.Close()
	case l.conn != nil:
		// Unlock before closing: the server notices the end of the connection some time
		// later, and the next relayd would wait until then.
		ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
		defer cancel()
		_, err := l.conn.ExecContext(ctx, `SELECT pg_advisory_unlock_all()`)
		return errors.Join(err, l.conn.Close())
	}
	return nil
}

const advisoryLock = 0x72656c61

// takeServeLock makes this process the serving one. On SQLite it fails at once when another
// process serves; on Postgres it waits as standby until ctx ends.
func (s *Store) takeServeLock(ctx context.Context) error {
	if !s.d.isPostgres {
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
			if err := s.recoverSpoolAsStandby(ctx); err != nil {
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

// openLock opens a lock file in the data dir.
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

// tryAdvisoryLock returns a lock with the session that holds it, or without one when another
// session has the lock. The lock belongs to the schema, so that several relays can share a
// database.
func (s *Store) tryAdvisoryLock(ctx context.Context) (l serveLock, err error) {
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	conn, err := s.locks.Conn(ctx)
	if err != nil {
		return l, err
	}
	var got bool
	if err = checkDedicatedSession(ctx, s.locks, conn); err == nil {
		_, err = conn.ExecContext(ctx, idleSessionTimeout)
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

// idleSessionTimeout makes the server end the session of the lock when it gets no query for
// 15 s, because the network failed or the machine of the relay is lost. By default the server
// notices that after two hours, and until then neither a standby nor this process could take
// the lock over a new connection. lockLoop queries each second. Postgres before 14 has no
// such setting; there tcp_keepalives_idle applies.
const idleSessionTimeout = `SELECT set_config(name, '15s', false) FROM pg_settings WHERE name = 'idle_session_timeout'`

// holdLock checks the session of the advisory lock and reports whether this process holds
// the lock. A lost lock is taken again if this process is still the serving one. Otherwise
// this process is fenced: it writes nothing more but its spool.
func (s *Store) holdLock(ctx context.Context) bool {
	s.lockMu.Lock()
	defer s.lockMu.Unlock()
	if s.lock.conn != nil {
		probe, cancel := context.WithTimeout(ctx, opTimeout)
		var serving string
		var pid int
		err := s.lock.conn.QueryRowContext(probe, `SELECT value, pg_backend_pid() FROM meta WHERE name = 'serving'`).Scan(&serving, &pid)
		cancel()
		switch {
		case err == nil && serving == s.servingName():
			if s.lock.pid != pid {
				s.lock.logPooled(s)
			}
			return true
		case ctx.Err() != nil:
			return false
		case err == nil: // another process serves now: the lock was taken from it by mistake
			_, _ = s.lock.conn.ExecContext(ctx, `SELECT pg_advisory_unlock_all()`)
		default:
			s.log.Warn("serve lock lost with its connection; taking it again", "err", err)
		}
		_ = s.lock.conn.Close() // the pool drops a broken connection
		s.lock.conn = nil
	}
	serving, err := s.servingNow(ctx)
	if err != nil {
		return false // the database is unreachable; lockLoop tries again in a second
	}
	if serving != s.servingName() {
		if !s.fenced.Swap(true) {
			s.log.Error("another relayd took over this database; this one writes nothing more, restart it to make it the standby")
		}
		return false
	}
	lock, err := s.tryAdvisoryLock(ctx)
	if errors.Is(err, errPooledSession) {
		s.lock.logPooled(s)
		return true
	}
	if err != nil || lock.conn == nil {
		return false
	}
	s.lock.conn, s.lock.pid = lock.conn, lock.pid
	return true
}

// logPooled logs once that the session of the lock is shared: somebody put a pooler in
// between, or changed its mode, while this process served. Until the next start only the
// name in meta says which process serves.
func (l *serveLock) logPooled(s *Store) {
	if !l.logged {
		s.log.Error("the serve lock cannot be held any more; relayd goes on, but will not start like this", "err", errPooledSession)
	}
	l.logged = true
}

func (s *Store) servingName() string { return fmt.Sprintf("%s/%d", s.spoolID, s.firstBoot) }

// servingNow reads the name of the process that took the serve lock last.
func (s *Store) servingNow(ctx context.Context) (name string, err error) {
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	err = s.locks.GetContext(ctx, &name, `SELECT value FROM meta WHERE name = 'serving'`)
	return name, err
}

// Claim takes the serve lock of a SQLite store before Serve does, so that a second server
// fails before it migrates or listens. On Postgres it does nothing: there a second server
// waits in Serve. Close releases the lock. Call it from the goroutine that will call Serve,
// before others use the store.
func (s *Store) Claim() error {
	if s.d.isPostgres || s.lock != nil {
		return nil
	}
	return s.lockDataDir()
}
