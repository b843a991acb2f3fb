package store

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"relay"
	"relay/relaytest"
	"relay/store/schematest"
)

// Revoked checks the rights of 10,000 SSH connections within 2 s, and returns exactly those that have ended.
func TestRevokedOfManyCredentials(t *testing.T) {
	t.Parallel()
	credentials, accounts := 10_000, 500 // account i owns alias i and is a member of alias i-1
	if relaytest.RaceEnabled() {
		credentials = 1000 // SQLite is some five times as slow with the race detector
	}
	for name, o := range map[string]Options{
		"sqlite": {DataDir: t.TempDir()}, "postgres": {URL: schematest.URL(t), DataDir: t.TempDir()},
	} {
		t.Run(name, func(t *testing.T) {
			s := openMigrated(t, o)
			numbers := func(n int) string {
				return fmt.Sprintf(`WITH RECURSIVE k (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM k WHERE i < %d) `, n)
			}
			for _, statement := range []string{
				numbers(accounts) + `INSERT INTO accounts (id, name, admin, created_at, removed_at) SELECT i, 'u' || i, 0, 1, CASE WHEN i = 7 THEN 1 ELSE 0 END FROM k`,
				numbers(accounts) + `INSERT INTO aliases (id, name, owner_id, created_at, offline_status, auto_deliver, host_header, forwarded, fresh_connections, paused)
					SELECT i, 'a' || i, i, 1, 202, 0, 'preserve', 0, 0, 0 FROM k`,
				numbers(accounts-1) + `INSERT INTO members (alias_id, account_id) SELECT i, i + 1 FROM k`,
				numbers(credentials) + fmt.Sprintf(`INSERT INTO keys (id, account_id, name, fingerprint, type, authorized_key, created_at)
					SELECT 'key_' || i, 1 + i %% %d, '', 'f' || i, 'x', 'x', 1 FROM k WHERE i <> 77`, accounts),
			} {
				if _, err := s.db.Slow.ExecContext(t.Context(), statement); err != nil {
					t.Fatalf("%.60s: %v", statement, err)
				}
			}
			var rights []relay.Right
			want := map[relay.Right]bool{
				{Account: 78, Key: "key_77"}:   true, // key_77 was removed
				{Account: 1, Key: "key_77777"}: true, // key_77777 never existed
				{Account: 3, Key: "key_1"}:     true, // key_1 belongs to another account
				{Account: 2, Alias: 3}:         true, // account 2 is neither owner nor member of alias 3
				{Account: 2, Alias: 77_777}:    true, // alias 77777 does not exist
				{Account: 7, Alias: 7}:         true, // account 7 was removed
			}
			for r := range want {
				rights = append(rights, r)
			}
			rights = append(rights, relay.Right{Account: 5, Alias: 5}, relay.Right{Account: 6, Alias: 5})
			for i := 1; len(rights) < credentials; i++ {
				if r := (relay.Right{Account: int64(1 + i%accounts), Key: fmt.Sprint("key_", i)}); i != 77 {
					rights = append(rights, r)
					if r.Account == 7 {
						want[r] = true
					}
				}
			}
			began := time.Now()
			revoked, err := s.Revoked(t.Context(), rights)
			if err != nil {
				t.Fatal(err)
			}
			tookAtMost(t, fmt.Sprintf("rights of %d connections", len(rights)), began, 2*time.Second)
			got := map[relay.Right]bool{}
			for _, r := range revoked {
				got[r] = true
			}
			if !maps.Equal(got, want) || len(revoked) != len(want) {
				t.Errorf("%d revoked, want %d", len(got), len(want))
			}
		})
	}
}
