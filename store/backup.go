package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"relay"
)

// ErrUsePgDump says that a Postgres store has tools of its own for backups.
var ErrUsePgDump = errors.New("the store is in postgres; back it up with pg_dump, such as: pg_dump --format=custom --file=relay.dump \"$RELAY_DATABASE_URL\"")

// Backup writes a copy of a SQLite store as it is at one moment to a new file, for
// its owner only, while a server may go on writing. The file appears whole, on disk,
// or not at all; one that is there already is not touched.
func (s *Store) Backup(ctx context.Context, file string) (err error) {
	if s.d.bulk {
		return ErrUsePgDump
	}
	if _, err := os.Lstat(file); err == nil {
		return fmt.Errorf("%s is there already; give another name, or remove it", file)
	}
	// SQLite writes into an empty file that is there, so that its rights are ours.
	part, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".part-*") // 0600
	if err != nil {
		return fmt.Errorf("make backup: %w", err)
	}
	defer func() {
		err = errors.Join(err, part.Close(), os.Remove(part.Name()))
		_ = os.Remove(part.Name() + "-journal") // SQLite leaves it where it found no room
	}()
	if _, err := s.write.ExecContext(ctx, `VACUUM INTO ?`, part.Name()); err != nil {
		return s.backupFault(ctx, filepath.Dir(file), err)
	}
	if err := part.Sync(); err != nil {
		return fmt.Errorf("write backup to disk: %w", err)
	}
	// A link, and not a rename, never replaces a file that came meanwhile.
	if err := os.Link(part.Name(), file); err != nil {
		return fmt.Errorf("name backup: %w", err)
	}
	return syncDir(filepath.Dir(file))
}

// backupFault says why there is no backup: the disk that is full is that of the copy.
func (s *Store) backupFault(ctx context.Context, dir string, err error) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("the backup was broken off, and nothing of it was kept: %w", context.Cause(ctx))
	case sqliteUnavailable(err) == relay.CodeStorageFull, errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("there is no room for the backup in %s; free some space there, or write it to another disk: %w", dir, err)
	case damaged(err):
		return fmt.Errorf("the database cannot be copied, because it is damaged; `relayd doctor` says more: %w", err)
	}
	return s.fault("copy the database", err)
}

// strayLog refuses a database beside the log of another one, such as a backup that was
// copied over a file whose server had been killed: SQLite would carry that log into it
// and damage it, or throw the log of a missing file away. A file that has a log was
// told so in its header before the log began, and a backup was not.
func strayLog(file string) error {
	log, err := os.Stat(file + "-wal") // first: what has one now has the header too
	if errors.Is(err, os.ErrNotExist) || err == nil && log.Size() == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for the log of the database: %w", err)
	}
	const readVersion, withLog = 19, 2 // offset and value in the header of SQLite
	head := make([]byte, readVersion+1)
	switch n, err := readStart(file, head); {
	case err != nil:
		return fmt.Errorf("look at the database: %w", err)
	case n < len(head):
		return fmt.Errorf("%s is missing or empty, but its log is there, %[1]s-wal, which may hold the newest events: put the %[2]s back that it belongs to, or move the log away to begin anew",
			file, databaseFile)
	case head[readVersion] < withLog:
		return fmt.Errorf("%s was put beside the log of another database, %[1]s-wal, which would damage it: move that file and %[1]s-shm away, then start again; a backup is restored into an empty folder",
			file)
	}
	return nil
}

// readStart fills b from the start of a file and says how much there was; of one that
// is missing, nothing.
func readStart(file string, b []byte) (int, error) {
	f, err := os.Open(file)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	n, err := io.ReadFull(f, b)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return n, err
}

// syncDir makes the names in a folder durable, where the system can do that.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("write folder to disk: %w", err)
	}
	err = d.Sync()
	if errors.Is(err, errors.ErrUnsupported) || runtime.GOOS == "windows" {
		err = nil
	}
	return errors.Join(err, d.Close())
}
