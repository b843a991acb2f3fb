package store

import (
	"testing"
	"time"

	"relay"
	"relay/store/db"
	"relay/store/events"
	"relay/store/plantest"
)

// figured returns a store with n events of the alias hooks of alice, a minute apart.
func figured(t *testing.T, n int) *Store {
	t.Helper()
	s, err := Open(t.Context(), Options{DataDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if _, _, err := s.db.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	a, err := s.CreateAccount(t.Context(), relay.System(), "alice", false)
	if err != nil {
		t.Fatal(err)
	}
	al, err := s.CreateAlias(t.Context(), relay.System(), "hooks", a.Name)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	err = s.db.Update(t.Context(), "insert", func(c *db.Tx) error {
		for i := range n {
			at := now.Add(-time.Duration(i) * time.Minute)
			id := events.LowestID(at)
			id[15] = 1
			if _, err := c.Exec(`INSERT INTO events (`+plantest.EventColumns+`) VALUES (?, ?, ?, ?, '', 0, 'POST', x'', 1, '', '', '', '', 0, 0, ?, '', '', 200, ?, 1, 1, '', 0)`,
				id, al.ID, db.Micros(at), db.Micros(at), events.Delivered, i); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}
