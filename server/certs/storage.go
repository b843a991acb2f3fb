package certs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"
)

// The quota of new names. CAs bound them by week and registered domain (Let's Encrypt:
// 50). Renewals do not count.
const (
	quotaPeriod     = 7 * 24 * time.Hour
	quotaPerAccount = 20
	quotaTotal      = 40
	quotaFile       = "new-names.json"
)

// quota counts the names for which a certificate was ordered, in a file that outlives
// a restart. Safe for concurrent use.
type quota struct {
	file string
	mu   sync.Mutex
}

// quotaEntry is one name in the file.
type quotaEntry struct {
	Name    string    `json:"name"`
	Account int64     `json:"account"`
	At      time.Time `json:"at"`
}

// quotaError says that the quota is used up.
type quotaError struct {
	detail   string
	wait     time.Duration // until it is no longer
	prefetch bool          // the half for prefetches is used up, the other half may not be
}

func (e *quotaError) Error() string { return e.detail }

func newQuota(dir string) *quota { return &quota{file: filepath.Join(dir, quotaFile)} }

// use counts a name, or returns a *quotaError if the quota of the account or of all
// accounts is used up. A prefetch may use half of it. A name that is in the file
// already does not count again.
func (b *quota) use(name string, account int64, now time.Time, prefetch bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	list, err := b.read(now)
	if err != nil {
		return err
	}
	maxOwn, limit := quotaPerAccount, quotaTotal
	if prefetch {
		maxOwn, limit = maxOwn/2, limit/2
	}
	own, oldest, oldestOwn := 0, now, now
	for _, o := range list {
		if o.Name == name {
			return nil
		}
		if o.At.Before(oldest) {
			oldest = o.At
		}
		if o.Account == account {
			if own++; o.At.Before(oldestOwn) {
				oldestOwn = o.At
			}
		}
	}
	switch {
	case own >= maxOwn:
		return &quotaError{
			prefetch: prefetch,
			detail:   fmt.Sprintf("the account has had certificates for %d new names within a week", own),
			wait:     oldestOwn.Add(quotaPeriod).Sub(now),
		}
	case len(list) >= limit:
		return &quotaError{
			prefetch: prefetch,
			detail:   fmt.Sprintf("there were certificates for %d new names within a week; a wildcard certificate has no such bound", len(list)),
			wait:     oldest.Add(quotaPeriod).Sub(now),
		}
	}
	return b.write(append(list, quotaEntry{Name: name, Account: account, At: now.UTC()}))
}

// read returns the names of the last week. A damaged file counts as empty, because it is
// no reason to refuse certificates.
func (b *quota) read(now time.Time) ([]quotaEntry, error) {
	text, err := os.ReadFile(b.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all, list []quotaEntry
	if json.Unmarshal(text, &all) != nil {
		return nil, nil
	}
	for _, o := range all {
		if age := now.Sub(o.At); age < quotaPeriod && age > -quotaPeriod {
			list = append(list, o)
		}
	}
	return list, nil
}

// write replaces the file atomically.
func (b *quota) write(list []quotaEntry) error {
	text, err := json.Marshal(list)
	if err != nil {
		return err
	}
	if err := os.WriteFile(b.file+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(b.file+".new", b.file)
}

// fileStorage is the storage of certmagic. Its locks are in memory, because one process
// uses the directory: lock files of a process that was killed would block the next one.
type fileStorage struct {
	certmagic.Storage
	mu    sync.Mutex
	locks map[string]chan struct{} // closed when the lock is given back
}

func newFileStorage(dir string) *fileStorage {
	return &fileStorage{Storage: &certmagic.FileStorage{Path: dir}, locks: map[string]chan struct{}{}}
}

// Lock waits for a lock until ctx ends.
func (f *fileStorage) Lock(ctx context.Context, name string) error {
	for {
		f.mu.Lock()
		other, taken := f.locks[name]
		if !taken {
			f.locks[name] = make(chan struct{})
		}
		f.mu.Unlock()
		if !taken {
			return nil
		}
		select {
		case <-other:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Unlock releases a lock.
func (f *fileStorage) Unlock(_ context.Context, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	held, ok := f.locks[name]
	if !ok {
		return errors.New("certificates: the lock " + name + " is not held")
	}
	delete(f.locks, name)
	close(held)
	return nil
}
