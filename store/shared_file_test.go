package store_test

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"testing"
	"time"

	"relay/store"
)

// A file that one node stores can be read by another. If a file is added twice, the first one stays.
func TestSharedFiles(t *testing.T) {
	onEngines(t, func(t *testing.T, o store.Options) {
		s, ctx := mustServe(t, o), t.Context()
		beside := besides(t, o)
		if _, _, err := s.SharedFile(ctx, "key"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a file that is not there: %v", err)
		}
		for _, text := range []string{"first", "second"} {
			if got, err := s.AddSharedFile(ctx, "key", []byte(text)); err != nil || string(got) != "first" {
				t.Errorf("added %q, stored is %q, %v", text, got, err)
			}
		}
		for _, name := range []string{"a/b/c", "a/b.json", "a/d", "a", "ab/c"} {
			if err := s.WriteSharedFile(ctx, name, []byte(name)); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.WriteSharedFile(ctx, "a/d", nil); err != nil {
			t.Fatal(err)
		}
		if got, at, err := beside.SharedFile(ctx, "a/d"); err != nil || len(got) != 0 || time.Since(at).Abs() > time.Hour {
			t.Errorf("written anew: %q of %v, %v", got, at, err)
		}
		names, err := beside.SharedFiles(ctx, "a")
		slices.Sort(names)
		if err != nil || !slices.Equal(names, []string{"a/b.json", "a/b/c", "a/d"}) {
			t.Errorf("names %v, %v", names, err)
		}
		if err := s.RemoveSharedFiles(ctx, "a/b"); err != nil {
			t.Fatal(err)
		}
		if err := s.RemoveSharedFiles(ctx, "a"); err != nil {
			t.Fatal(err)
		}
		if left, err := s.SharedFiles(ctx, "ab"); err != nil || len(left) != 1 {
			t.Errorf("left: %v, %v", left, err)
		}
		if gone, err := s.SharedFiles(ctx, "a"); err != nil || len(gone) > 0 {
			t.Errorf("removed: %v, %v", gone, err)
		}
	})
}

// A lock has one holder. The next node gets the lock when its holder releases it or, if the process of the
// holder was killed, when the lock expires.
func TestSharedLock(t *testing.T) {
	onEngines(t, func(t *testing.T, o store.Options) {
		s, db := mustServe(t, o), database(t, o)
		unlock, err := s.LockShared(t.Context(), "order")
		if err != nil {
			t.Fatal(err)
		}
		expired, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := s.LockShared(expired, "order"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a lock that is held: %v", err)
		}
		got := make(chan func(), 1)
		go func() {
			next, err := s.LockShared(t.Context(), "order")
			if err != nil {
				t.Error(err)
			}
			got <- next
		}()
		unlock()
		(<-got)()
		if _, err := db.Exec(`INSERT INTO leases (name, holder, until) VALUES ('order', 'gone', 1)`); err != nil {
			t.Fatal(err)
		}
		if unlock, err = s.LockShared(t.Context(), "order"); err != nil {
			t.Fatal(err)
		}
		unlock()
		var left int
		if err := db.QueryRow(`SELECT COUNT(*) FROM leases WHERE name = 'order'`).Scan(&left); err != nil || left != 0 {
			t.Errorf("%d locks are left, %v", left, err)
		}
	})
}
