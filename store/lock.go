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
		return s.lockDataDir()
	}
	defer s.standby.Store(false)
	for {
		conn, err := s.tryAdvisoryLock(ctx)
		if err == nil && conn != nil {
			s.lock = &serveLock{conn: conn}
			return nil
		}
		if err != nil && unavailable(err) == "" {
			return fmt.Errorf("take serve lock: %w", err)
		}
		if !s.standby.Swap(true) {
			s.log.Info("another relayd serves this database; waiting as standby", "database", s.place())
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
		return nil, fmt.Errorf("open lock file: %w", err)
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

// tryAdvisoryLock gives the session that holds the lock, or nil when another one
// does. The lock belongs to the schema, so that several relays may share a database.
func (s *Store) tryAdvisoryLock(ctx context.Context) (*sql.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := s.locks.Conn(ctx)
	if err != nil {
		return nil, err
	}
	var got bool
	err = conn.QueryRowContext(ctx, `SELECT pg_try_advisory_lock($1, hashtext(current_schema()))`, advisoryLock).Scan(&got)
	if err != nil || !got {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// holdLock watches the session of the advisory lock and tells whether it is there.
// When it was lost it is taken again, and unless this process still is the one that
// serves, nothing more is written here but what is in the spool.
func (s *Store) holdLock(ctx context.Context) bool {
	s.locking.Lock()
	defer s.locking.Unlock()
	if s.lock.conn != nil {
		probe, cancel := context.WithTimeout(ctx, patience)
		var serving string
		err := s.lock.conn.QueryRowContext(probe, `SELECT value FROM meta WHERE name = 'serving'`).Scan(&serving)
		cancel()
		switch {
		case err == nil && serving == s.servingName():
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
	conn, err := s.tryAdvisoryLock(ctx)
	if err != nil || conn == nil {
		return false
	}
	s.lock.conn = conn
	return true
}

func (s *Store) servingName() string { return fmt.Sprintf("%s/%d", s.node, s.boot) }

// servingNow reads who took the serve lock last.
func (s *Store) servingNow(ctx context.Context) (name string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = s.locks.GetContext(ctx, &name, `SELECT value FROM meta WHERE name = 'serving'`)
	return name, err
}
