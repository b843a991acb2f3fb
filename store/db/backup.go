package db

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"relay"
	"relay/store/file"
)

// ErrUsePgDump is the error of Backup for a Postgres store, because Postgres has its own backup tools.
var ErrUsePgDump = errors.New("the store is in postgres; back it up with pg_dump, such as: pg_dump --format=custom --file=relay.dump \"$RELAY_DATABASE_URL\"")

// Backup writes a consistent copy of a SQLite store to a new file with mode 0600. A server may write
// to the store during the copy. The file appears complete and synced, or not at all. An existing file
// is not changed.
func (s *DB) Backup(ctx context.Context, path string) (err error) {
	if s.Dialect.SeveralNodes() {
		return ErrUsePgDump
	}
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%s is there already; give another name, or remove it", path)
	}
	// CreateTemp makes the file with mode 0600. SQLite writes into an existing empty file.
	part, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".part-*")
	if err != nil {
		return fmt.Errorf("make backup: %w", err)
	}
	defer func() {
		err = errors.Join(err, part.Close(), os.Remove(part.Name()))
		_ = os.Remove(part.Name() + "-journal") // SQLite leaves this file when the disk is full
	}()
	_, err = s.Write.ExecContext(ctx, `VACUUM INTO ?`, part.Name())
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return fmt.Errorf("the backup was broken off, and left no file: %w", context.Cause(ctx))
	case sqliteUnavailable(err) == relay.CodeStorageFull, errors.Is(err, syscall.ENOSPC): // the disk of the copy is full
		return fmt.Errorf("there is not enough space for the backup in %s; free some space there, or write it to another disk: %w", filepath.Dir(path), err)
	case file.Damaged(err):
		return fmt.Errorf("the database cannot be copied, because it is damaged; `relayd doctor` says more: %w", err)
	default:
		return s.Fault("copy the database", err)
	}
	if err := part.Sync(); err != nil {
		return fmt.Errorf("write backup to disk: %w", err)
	}
	// Unlike a rename, a link never replaces a file that was created in the meantime.
	if err := os.Link(part.Name(), path); err != nil {
		return fmt.Errorf("name backup: %w", err)
	}
	return file.SyncDir(filepath.Dir(path))
}

// strayLog refuses a database file next to the log of another one, for example a backup that was
// copied over the file of a killed server. SQLite would apply that log to the backup and damage it, or
// delete the log if the file is missing. strayLog checks a mark in the header of the file: SQLite
// writes the mark before it writes a log, and a backup does not have it.
func strayLog(path string) error {
	log, err := os.Stat(path + "-wal") // the log is checked before the header: if a log exists now, the mark is already in the header
	if errors.Is(err, os.ErrNotExist) || err == nil && log.Size() == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for the log of the database: %w", err)
	}
	const readVersion, withLog = 19, 2 // offset and value of the mark in the header of SQLite
	head := make([]byte, readVersion+1)
	f, err := os.Open(path)
	if err == nil {
		_, err = io.ReadFull(f, head)
		_ = f.Close()
	}
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%s is missing or empty, but its log is there, %[1]s-wal, which may hold the newest events: put the %[2]s back that it belongs to, or move the log away to begin anew",
			path, databaseFile)
	case err != nil:
		return fmt.Errorf("look at the database: %w", err)
	case head[readVersion] < withLog:
		return fmt.Errorf("%s was put beside the log of another database, %[1]s-wal, which would damage it: move that file and %[1]s-shm away, then start again; a backup is restored into an empty folder",
			path)
	}
	return nil
}
