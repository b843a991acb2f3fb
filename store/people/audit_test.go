package people

import (
	"testing"

	"relay"
)

// TestAllOfTheAuditLogIsListed: if the audit log has more entries than one statement reads, all of them are
// listed, each once.
func TestAllOfTheAuditLogIsListed(t *testing.T) {
	t.Parallel()
	s := openPeople(t)
	who := relay.Actor{Kind: relay.ActorUser, Account: 7, Scopes: relay.AllScopes}
	const rows = 2*auditPage + 500 // number of entries about the account; as many others lie between them
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
