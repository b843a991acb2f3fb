package store_test

import (
	"strings"
	"testing"
	"time"

	"relay"
	"relay/store"
)

// The events of all aliases of an account count for its storage limit, and the oldest of them are evicted first.
// Events of other accounts stay. A changed limit applies, and a transferred alias counts for its new
// owner. A restarted store counts the same number of bytes.
func TestStorageOfAccount(t *testing.T) {
	onEngines(t, func(t *testing.T, o store.Options) {
		o.AccountLimits, o.MaxAccountStorage = true, 1<<20
		s := mustServe(t, o)
		first, now := withAlias(t, s), time.Now().Add(-time.Hour)
		made, err := s.CreateAlias(t.Context(), system, "second", "alice")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.CreateAccount(t.Context(), system, "bob", false); err != nil {
			t.Fatal(err)
		}
		other, err := s.CreateAlias(t.Context(), system, "of-bob", "bob")
		if err != nil {
			t.Fatal(err)
		}
		const weight = 104 << 10
		body := strings.Repeat("0123456789abcdef", 6400) // 100 KiB
		add := func(alias int64, state string) relay.ID {
			t.Helper()
			now = now.Add(time.Millisecond)
			return stored(t, s, eventAt(s, alias, now, state, body))
		}
		kept := add(first, relay.StateQueued)
		oldest := add(first, relay.StateDelivering)
		ofBob := add(other.ID, relay.StateDelivering)
		var newest relay.ID
		for range 12 {
			newest = add(made.ID, relay.StateDelivering)
		}
		eventually(t, "the oldest event of the account goes, whatever its alias", func() bool { return !there(t, s, oldest) })
		room(t, s, made.ID, weight, "")
		if !there(t, s, kept) || !there(t, s, newest) || !there(t, s, ofBob) {
			t.Error("an event is gone that is queued, the newest, or of another account")
		}
		room(t, s, first, 2<<20, relay.CodeStorageFull) // more bytes than the limit allows

		limit := int64(300 << 10)
		if _, err := s.SetAccount(t.Context(), system, "alice", map[string]*int64{"maxAccountStorage": &limit}); err != nil {
			t.Fatal(err)
		}
		usage := func(name string) relay.AccountUsage {
			t.Helper()
			all, err := s.AccountUsage(t.Context(), system)
			a, nameErr := s.AccountByName(t.Context(), name)
			if err != nil || nameErr != nil {
				t.Fatal(err, nameErr)
			}
			return all[a.ID]
		}
		eventually(t, "its own limit is held", func() bool { return usage("alice").Bytes <= limit })
		if _, err := s.CreateAccount(t.Context(), system, "carol", false); err != nil {
			t.Fatal(err)
		}
		if u := usage("carol"); u.Limit != o.MaxAccountStorage {
			t.Errorf("an account without aliases has %+v", u)
		}
		if u := usage("alice"); u.Limit != limit || u.Bytes < weight || u.Queued != 1 || !there(t, s, kept) {
			t.Errorf("alice has %+v", u)
		}
		if _, err := s.TransferAlias(t.Context(), system, "of-bob", "alice"); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the transferred alias counts, and its old event goes", func() bool { return !there(t, s, ofBob) && usage("alice").Bytes <= limit })
		before := usage("alice")
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = mustServe(t, o)
		eventually(t, "the same is counted after a restart", func() bool { return usage("alice") == before })
		for range 6 {
			add(first, relay.StateQueued)
		}
		room(t, s, first, weight, relay.CodeStorageFull)
		room(t, s, made.ID, weight, relay.CodeStorageFull)
		none := int64(0)
		if _, err := s.SetAccount(t.Context(), system, "alice", map[string]*int64{"maxAccountStorage": &none}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it has no limit any more", func() bool { return s.Capacity(first, weight, 0) == nil })
	})
}
