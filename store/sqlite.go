package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/jmoiron/sqlx"
	sqlite3 "modernc.org/sqlite/lib"

	"relay"
	"relay/store/file"
)

const (
	databaseFile = "relay.db"
	readers      = 4
)

// openSQLite opens one writer and some readers on the file in the data dir. The
// pragmas stand in the DSN because they belong to a connection: auto_vacuum works
// only before the first table, and FULL makes a commit survive a power loss.
func (s *Store) openSQLite(ctx context.Context) error {
	s.d = sqliteDialect
	s.disk = disk{dir: s.opt.DataDir, min: s.opt.MinFree, free: s.opt.FreeSpace}
	if s.disk.free == nil {
		s.disk.free = file.FreeSpace
	}
	if s.opt.DataDir == "" {
		return errors.New("sqlite needs a data dir")
	}
	path := filepath.Join(s.opt.DataDir, databaseFile)
	if err := s.touchDatabase(path); err != nil {
		return err
	}
	common := []string{file.BusyTimeout, "foreign_keys(1)"}
	first := []string{"auto_vacuum(INCREMENTAL)"} // takes the write lock, even when there is nothing to do
	if s.opt.NoCreate {
		common[0], first = file.BusyBeside, nil
	}
	var err error
	s.write, err = file.OpenSQLite(ctx, path, 1, append(append(common, first...), "journal_mode(WAL)",
		"synchronous(FULL)", "journal_size_limit(67108864)", "cache_size(-16384)", fmt.Sprintf("wal_autocheckpoint(%d)", walMaxPages)), "")
	if err != nil {
		return fmt.Errorf("open %s: %w%s", path, err, s.openAdvice(err))
	}
	s.direct, s.journal = s.write, s.write
	s.heavyReads = newHeavyReads(readers)
	s.read, err = file.OpenSQLite(ctx, path, readers, append(common, "query_only(1)", "cache_size(-8192)"), "")
	if err != nil {
		return fmt.Errorf("open %s for reading: %w%s", path, err, s.openAdvice(err))
	}
	s.readLogin, err = file.OpenSQLite(ctx, path, 1, append(common, "query_only(1)", "cache_size(-1024)"), "")
	if err != nil {
		return fmt.Errorf("open %s for logins: %w%s", path, err, s.openAdvice(err))
	}
	if s.opt.NoCreate {
		return nil // the server beside it moves the log
	}
	s.checkpointer.wake = make(chan struct{}, 1)
	s.checkpointer.db, err = file.OpenSQLite(ctx, path, 1, append(common, "query_only(1)", "synchronous(FULL)"), "")
	if err != nil {
		return fmt.Errorf("open %s for its log: %w%s", path, err, s.openAdvice(err))
	}
	return nil
}

// openAdvice says what to do about a file that cannot be opened; "" where the error
// says all.
func (s *Store) openAdvice(err error) string {
	forUser := "; let the user that runs relayd read and write " + s.opt.DataDir + " and every file in it"
	if errors.Is(err, os.ErrPermission) {
		return forUser
	}
	switch file.SQLiteCode(err) {
	case sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM:
		return forUser
	case sqlite3.SQLITE_FULL:
		return "; free some space on the disk of " + s.opt.DataDir
	case sqlite3.SQLITE_BUSY:
		return "; another program keeps it locked: end that, then try again"
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return "; keep a copy of " + s.opt.DataDir + ", look at the disk, and restore a backup (docs/operations.md)"
	}
	return ""
}

// touchDatabase makes the file readable for its owner only, before sqlite would
// make it by the umask. It refuses one that is beside the log of another.
func (s *Store) touchDatabase(path string) error {
	if err := strayLog(path); err != nil {
		return fmt.Errorf("%w%s", err, s.openAdvice(err))
	}
	if _, err := os.Stat(path); err == nil {
		return nil
	} else if !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("look for database: %w", err)
	}
	if s.opt.NoCreate {
		return fmt.Errorf("no relay data in %s; pass --data-dir", s.opt.DataDir)
	}
	if err := os.MkdirAll(s.opt.DataDir, 0o700); err != nil {
		return fmt.Errorf("make data dir: %w", err)
	}
	f, err := file.Open(path, os.O_RDWR)
	if err != nil {
		return fmt.Errorf("make database: %w", err)
	}
	return f.Close()
}

// sqliteUnavailable returns the relay code of an error that means that the file
// cannot be written now, "" for errors of the statement itself.
func sqliteUnavailable(err error) string {
	switch file.SQLiteCode(err) {
	case sqlite3.SQLITE_FULL:
		return relay.CodeStorageFull
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY,
		sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_INTERRUPT:
		return relay.CodeStoreUnavailable
	}
	return ""
}

// The write-ahead log of SQLite is checkpointed over a separate connection, so that
// commits of the journal do not have to do it. Sizes are pages of 4 KiB in the log.
const (
	checkpointPages    = 1000                  // a checkpoint is worthwhile from here on
	walMaxPages        = 8000                  // from here on the writer checkpoints after a commit and restarts the log, which needs a moment without commits
	checkpointInterval = 20 * time.Millisecond // between two checks
)

// checkpointer checkpoints the log. Its zero value does nothing.
type checkpointer struct {
	db   *sqlx.DB
	wake chan struct{} // the log may have grown
}

// checkpointLoop checkpoints the log as it grows, until ctx ends. Commits are durable
// without that: the log itself is synced.
func (s *Store) checkpointLoop(ctx context.Context) {
	pause := time.NewTicker(checkpointInterval)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.checkpointer.wake:
		}
		s.checkpoint(ctx, walState.worthCheckpoint)
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
	}
}

// walState is the result of a checkpoint: the pages in the log, and how many of them are
// in the database file.
type walState struct {
	Busy int `db:"busy"`
	Log  int `db:"log"`
	Done int `db:"checkpointed"`
}

// worthCheckpoint reports whether enough pages wait for a checkpoint.
func (l walState) worthCheckpoint() bool { return l.Log-l.Done >= checkpointPages }

// pending reports whether any page waits.
func (l walState) pending() bool { return l.Log > l.Done }

// needsRestart reports whether the log is so long that it should be restarted, which is
// possible once all of it is checkpointed.
func (l walState) needsRestart() bool { return l.Log >= walMaxPages && l.pending() }

// checkpoint runs a passive checkpoint if due says so. Neither readers nor the writer wait
// for it. It is best effort: the rest is checkpointed after a later commit.
func (s *Store) checkpoint(ctx context.Context, due func(walState) bool) {
	if s.checkpointer.db == nil {
		return
	}
	var log walState
	err := s.checkpointer.db.GetContext(ctx, &log, `PRAGMA wal_checkpoint(NOOP)`)
	if err == nil && due(log) {
		err = s.checkpointer.db.GetContext(ctx, &log, `PRAGMA wal_checkpoint(PASSIVE)`)
	}
	if err != nil && ctx.Err() == nil {
		s.log.Debug("the write-ahead log was not checkpointed", "err", err)
	}
}

const (
	freePages  = 1024             // kept free in the SQLite file for new events, in addition to 2 % of the file
	vacuumTime = time.Millisecond // spent on freeing pages in one transaction
)

// vacuum returns free pages of the SQLite file to the file system in short transactions:
// all of them when the disk is full, otherwise those beyond what new events need soon.
func (s *Store) vacuum(ctx context.Context) error {
	if s.d.isPostgres {
		return nil // Postgres has autovacuum
	}
	for least := int64(math.MaxInt64); ; {
		var pages, free int64
		if err := s.view(ctx, "count free pages", func(q session) error {
			if err := q.get(&pages, `PRAGMA page_count`); err != nil {
				return err
			}
			return q.get(&free, `PRAGMA freelist_count`)
		}); err != nil {
			return err
		}
		keep := freePages + pages/50
		if s.disk.low() != nil {
			keep = 0
		}
		if free <= keep || pages >= least { // the last round freed no page: the file was created elsewhere, without auto_vacuum
			s.checkpoint(ctx, walState.pending) // the file shrinks when the log is checkpointed
			return nil
		}
		least = pages
		err := s.pacedUpdate(ctx, "give free pages back", func(c *writeTx, _ int) error {
			// The statement frees one page for each row that is read, and keeps its
			// progress when it is closed early.
			rows, err := c.q.QueryContext(c.ctx, `PRAGMA incremental_vacuum(`+strconv.FormatInt(free-keep, 10)+`)`) // a pragma takes no parameters
			if err != nil {
				return err
			}
			began := time.Now()
			for rows.Next() && time.Since(began) < vacuumTime {
				continue
			}
			if err := rows.Close(); err != nil {
				return err
			}
			return rows.Err()
		})
		if err != nil {
			return err
		}
	}
}
