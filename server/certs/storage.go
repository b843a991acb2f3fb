package certs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"
)

// The quota of new names. CAs limit the new names of a registered domain in a week (Let's Encrypt: 50).
// Renewals do not count.
const (
	quotaPeriod     = 7 * 24 * time.Hour
	quotaPerAccount = 20
	quotaTotal      = 40
	quotaFile       = "new-names.json"
)

// quota counts the names for which a certificate was ordered, in a file that outlives a restart and
// that all nodes share. A quota is safe for concurrent use.
type quota struct{ storage certmagic.Storage }

// quotaEntry is one name in the file.
type quotaEntry struct {
	Name    string    `json:"name"`
	Account int64     `json:"account"`
	At      time.Time `json:"at"`
}

// quotaError says that the quota is used up.
type quotaError struct {
	detail   string
	wait     time.Duration // time until a part of the quota is free again
	prefetch bool          // the half for prefetches is used up; the other half may be free
}

func (e *quotaError) Error() string { return e.detail }

// shareOf returns the number of names that one account may have: half of those that remain of quotaTotal, but
// at least two and at most quotaPerAccount. others is the number of names that the other accounts have used.
// So no two accounts can use up the whole quota.
func shareOf(others int) int { return min(quotaPerAccount, max(2, (quotaTotal-others)/2)) }

// use counts a name, or returns a *quotaError if the quota of the account or of all accounts is used
// up. A prefetch may use half of the quota. A name that is already in the file does not count again.
func (b *quota) use(ctx context.Context, name string, account int64, now time.Time, prefetch bool) error {
	if err := b.storage.Lock(ctx, quotaFile); err != nil {
		return err
	}
	defer func() { _ = b.storage.Unlock(ctx, quotaFile) }()
	list, err := b.read(ctx, now)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(list, func(o quotaEntry) bool { return o.Name == name }) {
		return nil
	}
	own := slices.DeleteFunc(slices.Clone(list), func(o quotaEntry) bool { return o.Account != account })
	for _, q := range []struct {
		used   []quotaEntry
		most   int
		detail string
	}{
		{own, shareOf(len(list) - len(own)), "the account has had certificates for %d new names within a week"},
		{list, quotaTotal, "there were certificates for %d new names within a week; a wildcard certificate has no such bound"},
	} {
		if prefetch {
			q.most /= 2
		}
		if len(q.used) >= q.most {
			oldest := slices.MinFunc(q.used, func(a, b quotaEntry) int { return a.At.Compare(b.At) })
			return &quotaError{fmt.Sprintf(q.detail, len(q.used)), oldest.At.Add(quotaPeriod).Sub(now), prefetch}
		}
	}
	text, err := json.Marshal(append(list, quotaEntry{Name: name, Account: account, At: now.UTC()}))
	if err != nil {
		return err
	}
	return b.storage.Store(ctx, quotaFile, text)
}

// read returns the names of the last week. A damaged file counts as empty, because it is
// no reason to refuse certificates.
func (b *quota) read(ctx context.Context, now time.Time) ([]quotaEntry, error) {
	text, err := b.storage.Load(ctx, quotaFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []quotaEntry
	if json.Unmarshal(text, &list) != nil {
		return nil, nil
	}
	return slices.DeleteFunc(list, func(o quotaEntry) bool { return now.Sub(o.At).Abs() >= quotaPeriod }), nil
}

// SharedFiles stores the files that all nodes of a store share. store.Store satisfies it.
type SharedFiles interface {
	// SharedFile returns a file and the time of its last change. The error is fs.ErrNotExist if there is no such
	// file.
	SharedFile(ctx context.Context, name string) (data []byte, modified time.Time, err error)
	WriteSharedFile(ctx context.Context, name string, data []byte) error
	// RemoveSharedFiles removes a file, or all files of a folder.
	RemoveSharedFiles(ctx context.Context, name string) error
	// SharedFiles lists the files of a folder and of the folders below it.
	SharedFiles(ctx context.Context, folder string) (names []string, err error)
	// LockShared takes a lock that only one process of all nodes can hold at a time, and waits for it.
	LockShared(ctx context.Context, name string) (unlock func(), err error)
}

// sharedFolder is the folder of certificates among the shared files.
const sharedFolder = "certificates"

// sharedStorage is the storage of certmagic that all nodes share.
type sharedStorage struct {
	files SharedFiles
	held  *sync.Map // functions that release the locks, by name, because certmagic releases a lock by its name
}

func sharedName(key string) string { return path.Join(sharedFolder, key) }

// Lock implements certmagic.Storage.
func (s sharedStorage) Lock(ctx context.Context, name string) error {
	unlock, err := s.files.LockShared(ctx, sharedName(name))
	if err == nil {
		s.held.Store(name, unlock)
	}
	return err
}

// Unlock implements certmagic.Storage.
func (s sharedStorage) Unlock(_ context.Context, name string) error {
	unlock, ok := s.held.LoadAndDelete(name)
	if !ok {
		return errors.New("certificates: the lock " + name + " is not held")
	}
	unlock.(func())()
	return nil
}

// Store implements certmagic.Storage.
func (s sharedStorage) Store(ctx context.Context, key string, value []byte) error {
	return s.files.WriteSharedFile(ctx, sharedName(key), value)
}

// Load implements certmagic.Storage.
func (s sharedStorage) Load(ctx context.Context, key string) ([]byte, error) {
	data, _, err := s.files.SharedFile(ctx, sharedName(key))
	return data, err
}

// Delete implements certmagic.Storage.
func (s sharedStorage) Delete(ctx context.Context, key string) error {
	return s.files.RemoveSharedFiles(ctx, sharedName(key))
}

// Exists implements certmagic.Storage.
func (s sharedStorage) Exists(ctx context.Context, key string) bool {
	_, err := s.Stat(ctx, key)
	return err == nil
}

// List implements certmagic.Storage.
func (s sharedStorage) List(ctx context.Context, folder string, recursive bool) (keys []string, err error) {
	names, err := s.files.SharedFiles(ctx, sharedName(folder))
	if err == nil && len(names) == 0 {
		err = fs.ErrNotExist
	}
	seen := map[string]bool{}
	for _, name := range names {
		parts := strings.Split(strings.TrimPrefix(name, sharedName(folder)+"/"), "/")
		for n := range parts {
			key := path.Join(folder, path.Join(parts[:n+1]...))
			if (n == 0 || recursive) && !seen[key] {
				seen[key] = true
				keys = append(keys, key)
			}
		}
	}
	return keys, err
}

// Stat implements certmagic.Storage.
func (s sharedStorage) Stat(ctx context.Context, key string) (certmagic.KeyInfo, error) {
	data, modified, err := s.files.SharedFile(ctx, sharedName(key))
	if !errors.Is(err, fs.ErrNotExist) {
		return certmagic.KeyInfo{Key: key, Modified: modified, Size: int64(len(data)), IsTerminal: true}, err
	}
	names, lerr := s.files.SharedFiles(ctx, sharedName(key))
	if lerr != nil || len(names) == 0 {
		return certmagic.KeyInfo{}, cmp.Or(lerr, err)
	}
	return certmagic.KeyInfo{Key: key}, nil
}
