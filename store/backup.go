package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
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
	}()
	if _, err := s.write.ExecContext(ctx, `VACUUM INTO ?`, part.Name()); err != nil {
		return s.fault("copy the database", err)
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
