package retention

import (
	"testing"
	"time"

	"relay/store/db"
	"relay/store/usage"
)

// The audit log is bounded: entries older than 400 days are removed, and those beyond the maximum number.
func TestAuditLogIsBounded(t *testing.T) {
	t.Parallel()
	s := open(t, "", usage.Options{})
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
	if err := s.DropExpired(t.Context(), now); err != nil {
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
