package store

import (
	"testing"
	"time"

	"relay"
	"relay/store/db"
)

// The audit log ends: what is older than 400 days goes, and what is beyond the number
// of newest ones that are kept.
func TestAuditLogIsBounded(t *testing.T) {
	t.Parallel()
	s := figured(t, 1)
	now := time.Now()
	fill := func(rows int, at time.Time) {
		t.Helper()
		if err := s.db.Update(t.Context(), "", func(c *db.Tx) error {
			_, err := c.Exec(`WITH RECURSIVE k (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM k WHERE n < ?)
				INSERT INTO audit (at, actor, account_id, subject_id, action, target, detail) SELECT ?, 'x', 0, 0, 'x', '', '' FROM k`, rows, db.Micros(at))
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	left := func(want int) {
		t.Helper()
		var n, least int
		if err := s.db.Read.Get(&n, `SELECT COUNT(*) FROM audit`); err != nil || n != want {
			t.Errorf("%d entries are left, not %d (%v)", n, want, err)
		}
		if err := s.db.Read.Get(&least, `SELECT MAX(id) - MIN(id) + 1 FROM audit`); err != nil || least != want {
			t.Errorf("those that are left are not the newest (%v)", err)
		}
	}
	if err := s.db.Update(t.Context(), "", func(c *db.Tx) error { _, err := c.Exec(`DELETE FROM audit`); return err }); err != nil {
		t.Fatal(err)
	}
	fill(expiredRows+50, now.Add(-auditLife-time.Minute))
	fill(10, now.Add(-auditLife+time.Minute))
	if err := s.dropExpired(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	left(10)
	fill(300+2*expiredRows, now)
	for range 2 {
		if err := s.trimAudit(t.Context(), 300); err != nil {
			t.Fatal(err)
		}
		left(300)
	}
}

// More entries than one statement reads are listed whole, and each of them once.
func TestAllOfTheAuditLogIsListed(t *testing.T) {
	t.Parallel()
	s := figured(t, 1)
	who := relay.Actor{Kind: relay.ActorUser, Account: 7, Scopes: relay.AllScopes}
	const rows = 2*auditPage + 500 // every second one is about the account
	if err := s.db.Execute(t.Context(), "", `WITH RECURSIVE k (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM k WHERE n < ?)
		INSERT INTO audit (at, actor, account_id, subject_id, action, target, detail) SELECT n, 'x', 0, 7 * (n % 2), 'x', '', '' FROM k`, 2*rows); err != nil {
		t.Fatal(err)
	}
	for limit, want := range map[int]int{0: 100, 1: 1, auditPage: auditPage, auditPage + 1: auditPage + 1, rows: rows, rows + 1: rows, 100_000: rows} {
		list, err := s.Audit(t.Context(), who, limit)
		if err != nil || len(list) != want {
			t.Errorf("of %d asked for %d are listed, want %d (%v)", limit, len(list), want, err)
		}
		for i := range list[1:] {
			if list[i].ID-list[i+1].ID != 2 {
				t.Fatalf("of %d: %d follows %d", limit, list[i+1].ID, list[i].ID)
			}
		}
	}
}
