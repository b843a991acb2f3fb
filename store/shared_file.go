package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"
	"unicode/utf8"

	"relay"
)

// SharedFile returns a file that all nodes of the store share, such as the SSH host key, and
// the time of its last change; an error that is fs.ErrNotExist if there is none.
func (s *Store) SharedFile(ctx context.Context, name string) (data []byte, modified time.Time, err error) {
	err = s.view(ctx, "read shared file", func(q session) error {
		return q.row(`SELECT value, modified_at FROM shared_files WHERE name = ?`, storableText(name)).Scan(&data, (*micro)(&modified))
	})
	if errors.Is(err, relay.ErrNotFound) {
		err = fmt.Errorf("shared file %s: %w", name, fs.ErrNotExist)
	}
	return data, modified, err
}

// AddSharedFile stores a file unless there is one of that name, and returns the one that is
// stored now: of several nodes that add one at the same time, all get the same.
func (s *Store) AddSharedFile(ctx context.Context, name string, data []byte) (stored []byte, err error) {
	err = s.update(ctx, "add shared file", func(c *writeTx) error {
		c.putSharedFile(name, data, `NOTHING`)
		return c.get(&stored, `SELECT value FROM shared_files WHERE name = ?`, name)
	})
	return stored, err
}

// WriteSharedFile stores a file, in place of the one of that name.
func (s *Store) WriteSharedFile(ctx context.Context, name string, data []byte) error {
	return s.update(ctx, "write shared file", func(c *writeTx) error {
		c.putSharedFile(name, data, `UPDATE SET value = excluded.value, modified_at = excluded.modified_at`)
		return nil
	})
}

func (c *writeTx) putSharedFile(name string, data []byte, conflict string) {
	c.do(`INSERT INTO shared_files (name, value, modified_at) VALUES (?, ?, `+c.d.micros+`) ON CONFLICT (name) DO `+conflict, name, nonNil(data))
}

// RemoveSharedFiles removes the file of that name and all files in the folder of that name.
func (s *Store) RemoveSharedFiles(ctx context.Context, name string) error {
	folder, length := folderPrefix(name)
	return s.execute(ctx, "remove shared files", `DELETE FROM shared_files WHERE name = ? OR substr(name, 1, ?) = ?`, storableText(name), length, folder)
}

// SharedFiles lists the names of the files in a folder and in the folders below it, in order.
func (s *Store) SharedFiles(ctx context.Context, folder string) (names []string, err error) {
	err = s.view(ctx, "list shared files", func(q session) error {
		prefix, length := folderPrefix(folder)
		return q.all(&names, `SELECT name FROM shared_files WHERE substr(name, 1, ?) = ? ORDER BY name`, length, prefix)
	})
	return names, err
}

// folderPrefix returns what the names in a folder begin with, and its length in characters. A
// range of names would depend on the collation of the database.
func folderPrefix(folder string) (prefix string, length int) {
	prefix = storableText(folder) + "/"
	return prefix, utf8.RuneCountInString(prefix)
}

// LockShared takes a lock that one process of all nodes holds at a time, waiting for it until
// ctx ends. A lock that was taken is renewed until unlock is called; after a process has
// ended without unlocking, it is free after 30 s.
func (s *Store) LockShared(ctx context.Context, name string) (unlock func(), err error) {
	holder := newSecret("")
	for wait := time.Duration(0); ; wait = leaseLife / 60 {
		if err := pause(ctx, wait); err != nil {
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
		for pause(released, leaseLife/3) == nil {
			if held, err := s.takeLease(released, name, holder, ""); err == nil && !held {
				s.log.Warn("a lock was lost to another node, because it could not be renewed for 30 s", "lock", name)
				return
			}
		}
	}()
	return func() {
		stop()
		<-ended
		if err := s.execute(context.WithoutCancel(ctx), "give a lock back", `DELETE FROM leases WHERE name = ? AND holder = ?`, name, holder); err != nil {
			s.log.Warn("a lock of all nodes could not be given back; it is free in 30 s", "lock", name, "err", err)
		}
	}, nil
}
