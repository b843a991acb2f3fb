package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"
	"unicode/utf8"

	"relay"
	"relay/store/db"
	"relay/store/people"
)

// SharedFile returns a file that all nodes of the store share, such as the SSH host key, and the time
// of its last change. If there is none, the error is fs.ErrNotExist.
func (s *Store) SharedFile(ctx context.Context, name string) (data []byte, modified time.Time, err error) {
	err = s.db.View(ctx, "read shared file", func(q db.Query) error {
		return q.Row(`SELECT value, modified_at FROM shared_files WHERE name = ?`, db.StorableText(name)).Scan(&data, (*db.Time)(&modified))
	})
	if errors.Is(err, relay.ErrNotFound) {
		err = fmt.Errorf("shared file %s: %w", name, fs.ErrNotExist)
	}
	return data, modified, err
}

// AddSharedFile stores a file unless there is one with that name, and returns the file that is stored
// now. If several nodes add a file at the same time, all get the same one.
func (s *Store) AddSharedFile(ctx context.Context, name string, data []byte) (stored []byte, err error) {
	err = s.db.Update(ctx, "add shared file", func(c *db.Tx) error {
		putSharedFile(c, name, data, `NOTHING`)
		return c.Get(&stored, `SELECT value FROM shared_files WHERE name = ?`, name)
	})
	return stored, err
}

// WriteSharedFile stores a file, and replaces one with the same name.
func (s *Store) WriteSharedFile(ctx context.Context, name string, data []byte) error {
	return s.db.Update(ctx, "write shared file", func(c *db.Tx) error {
		putSharedFile(c, name, data, `UPDATE SET value = excluded.value, modified_at = excluded.modified_at`)
		return nil
	})
}

func putSharedFile(c *db.Tx, name string, data []byte, conflict string) {
	c.Do(`INSERT INTO shared_files (name, value, modified_at) VALUES (?, ?, `+c.Dialect.DatabaseTime()+`) ON CONFLICT (name) DO `+conflict, name, db.NonNil(data))
}

// RemoveSharedFiles removes the file with the given name and all files in the folder with that name.
func (s *Store) RemoveSharedFiles(ctx context.Context, name string) error {
	folder, length := folderPrefix(name)
	return s.db.Execute(ctx, "remove shared files", `DELETE FROM shared_files WHERE name = ? OR substr(name, 1, ?) = ?`, db.StorableText(name), length, folder)
}

// SharedFiles lists the names of the files in a folder and in the folders below it, in order.
func (s *Store) SharedFiles(ctx context.Context, folder string) (names []string, err error) {
	err = s.db.View(ctx, "list shared files", func(q db.Query) error {
		prefix, length := folderPrefix(folder)
		return q.All(&names, `SELECT name FROM shared_files WHERE substr(name, 1, ?) = ? ORDER BY name`, length, prefix)
	})
	return names, err
}

// folderPrefix returns the start of the names in a folder, and its length in characters. Queries
// compare the prefix, because a range of names depends on the collation of the database.
func folderPrefix(folder string) (prefix string, length int) {
	prefix = db.StorableText(folder) + "/"
	return prefix, utf8.RuneCountInString(prefix)
}

// LockShared takes a lock that only one process of all nodes holds at a time. It waits for the lock
// until ctx ends. The lock is renewed until unlock is called; if the process ends without unlocking,
// the lock is free after 30 s.
func (s *Store) LockShared(ctx context.Context, name string) (unlock func(), err error) {
	holder := people.NewSecret("")
	for wait := time.Duration(0); ; wait = leaseLife / 60 {
		if err := db.Pause(ctx, wait); err != nil {
			return nil, err
		}
		held, err := s.takeLease(ctx, name, holder, "")
		if err != nil {
			return nil, err
		}
		if held {
			break
		}
	}
	released, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for db.Pause(released, leaseLife/3) == nil {
			if held, err := s.takeLease(released, name, holder, ""); err == nil && !held {
				s.log.Warn("a lock was lost to another node, because it could not be renewed for 30 s", "lock", name)
				return
			}
		}
	}()
	return func() {
		stop()
		<-ended
		if err := s.db.Execute(context.WithoutCancel(ctx), "give a lock back", `DELETE FROM leases WHERE name = ? AND holder = ?`, name, holder); err != nil {
			s.log.Warn("a lock of all nodes could not be given back; it is free in 30 s", "lock", name, "err", err)
		}
	}, nil
}
