package db

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/jmoiron/sqlx"
	"github.com/pressly/goose/v3"
	sqlite3 "modernc.org/sqlite/lib"

	"relay"
	"relay/migrations"
	"relay/store/file"
)

const (
	databaseFile = "relay.db"
	readers      = 4
)

// SQLite is the dialect of SQLite.
type SQLite struct{}

func (SQLite) name() string         { return "sqlite" }
func (SQLite) SeveralNodes() bool   { return false }
func (SQLite) Remote() bool         { return false }
func (SQLite) ForUpdate() string    { return "" }
func (SQLite) ForShare() string     { return "" }
func (SQLite) SkipLocked() string   { return "" }
func (SQLite) DatabaseTime() string { return `CAST(unixepoch('now', 'subsec') * 1000000 AS INTEGER)` }
func (SQLite) placeholders() int    { return sqlx.QUESTION }
func (SQLite) hasSchema() string {
	return `SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'goose_db_version'`
}

func (SQLite) migrations() (goose.Dialect, fs.FS) { return goose.DialectSQLite3, migrations.SQLite() }
func (SQLite) wrapCommit(err error) error         { return err }

func (SQLite) one(st *Statement, row []any) (string, []any) { return st.SQLite, row }

func (SQLite) run(b *Batch, st *Statement, rows [][]any) error {
	return b.conn.Raw(func(conn any) error { return b.db.inserts.run(b.Ctx, conn, st, rows) })
}

func (SQLite) insert(b *Batch, g *Group, rows [][][]any) (map[relay.ID]bool, error) {
	for i, st := range g.Inserts {
		if err := b.Run(st, rows[i]); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// openSQLite opens one writer and several readers on the file in the data dir. The pragmas are in the DSN,
// because every new connection needs them. auto_vacuum has an effect only before the first table is made.
// synchronous(FULL) makes a commit survive a power loss.
func (s *DB) openSQLite(ctx context.Context) error {
	s.Dialect = SQLite{}
	s.Disk = disk{Dir: s.opt.DataDir, Min: s.opt.MinFree, Free: s.opt.FreeSpace, log: s.log}
	if s.Disk.Free == nil {
		s.Disk.Free = file.FreeSpace
	}
	if s.opt.DataDir == "" {
		return errors.New("sqlite needs a data dir")
	}
	path := filepath.Join(s.opt.DataDir, databaseFile)
	if err := s.touchDatabase(path); err != nil {
		return err
	}
	common := []string{file.BusyTimeout, "foreign_keys(1)"}
	first := []string{"auto_vacuum(INCREMENTAL)"} // this pragma takes the write lock even if nothing has to be done, so only the first connection sets it
	if s.opt.NoCreate {
		common[0], first = file.BusyBeside, nil
	}
	var err error
	s.Write, err = file.OpenSQLite(ctx, path, 1, append(append(common, first...), "journal_mode(WAL)",
		"synchronous(FULL)", "journal_size_limit(67108864)", "cache_size(-16384)", fmt.Sprintf("wal_autocheckpoint(%d)", walMaxPages)), s.opt.VFS)
	if err != nil {
		return fmt.Errorf("open %s: %w%s", path, err, s.openAdvice(err))
	}
	s.Slow, s.Journal = s.Write, s.Write
	s.Read, err = file.OpenSQLite(ctx, path, readers, append(common, "query_only(1)", "cache_size(-8192)"), s.opt.VFS)
	if err != nil {
		return fmt.Errorf("open %s for reading: %w%s", path, err, s.openAdvice(err))
	}
	s.readLogin, err = file.OpenSQLite(ctx, path, 1, append(common, "query_only(1)", "cache_size(-1024)"), s.opt.VFS)
	if err != nil {
		return fmt.Errorf("open %s for logins: %w%s", path, err, s.openAdvice(err))
	}
	if s.opt.NoCreate {
		return nil // the server on this data dir checkpoints the log
	}
	s.checkpointer.wake = make(chan struct{}, 1)
	s.checkpointer.db, err = file.OpenSQLite(ctx, path, 1, append(common, "query_only(1)", "synchronous(FULL)"), s.opt.VFS)
	if err != nil {
		return fmt.Errorf("open %s for its log: %w%s", path, err, s.openAdvice(err))
	}
	return nil
}

// openAdvice returns the advice for a file that cannot be opened; "" if the error says enough.
func (s *DB) openAdvice(err error) string {
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
		return "; keep a copy of " + s.opt.DataDir + ", look at the disk, and restore a backup (docs/backup.md)"
	}
	return ""
}

// touchDatabase creates the file so that only its owner can read it; SQLite would create it according to the
// umask. It returns an error if the write-ahead log next to the file belongs to another file: see strayLog.
func (s *DB) touchDatabase(path string) error {
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

// sqliteUnavailable returns the relay code of an error that means that the file cannot be written now,
// and "" for errors of the statement itself.
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
