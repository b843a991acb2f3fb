package store_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"database/sql"
	"errors"
	"testing"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/store"
	"relay/store/schematest"
)

// authorizedKey returns the authorized_keys line of a new key.
func authorizedKey(t *testing.T) string {
	t.Helper()
	public, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return string(ssh.MarshalAuthorizedKey(key))
}

// A key or membership that is added while its account is removed is refused, or removed with the account.
// Another account can register the key afterwards.
func TestKeyOfAnAccountThatIsRemovedMeanwhile(t *testing.T) {
	t.Parallel()
	for name, held := range map[string]string{
		"before the account is locked": `SELECT pg_backend_pid() FROM accounts WHERE name = 'bob' FOR SHARE`,
		"after it":                     `SELECT pg_backend_pid() FROM keys FOR UPDATE`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 5 { // on a busy machine the transactions may overlap for longer than the lock timeout of 1.8 s
				if addDuringRemoval(t, held) {
					return
				}
			}
			t.Error("nobody waited until the lock was given back")
		})
	}
}

// addDuringRemoval adds a key and a membership to an account during its removal, and checks that neither exists
// after it. The parameter held is a statement that locks a row; the removal has to wait for this lock.
// addDuringRemoval returns false if a transaction gave up waiting for a lock.
func addDuringRemoval(t *testing.T, held string) bool {
	t.Helper()
	o := store.Options{URL: schematest.URL(t), DataDir: t.TempDir(), Log: testLog(t)}
	s := mustServe(t, o)
	db, ctx := database(t, o), t.Context()
	withAlias(t, s)
	if _, err := s.CreateAccount(ctx, system, "bob", false); err != nil {
		t.Fatal(err)
	}
	if _, err := s.AddKey(ctx, system, "bob", "old", authorizedKey(t)); err != nil {
		t.Fatal(err)
	}
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	var pid int
	if err := tx.QueryRow(held).Scan(&pid); err != nil {
		t.Fatal(err)
	}
	line := authorizedKey(t)
	removed, key, member := make(chan error, 1), make(chan error, 1), make(chan error, 1)
	go func() { removed <- s.RemoveAccount(ctx, system, "bob") }()
	remover := blockedBy(t, db, pid, removed)
	go func() { _, err := s.AddKey(ctx, system, "bob", "new", line); key <- err }()
	blockedBy(t, db, remover, key)
	go func() { member <- s.AddMember(ctx, system, "hooks", "bob") }()
	blockedBy(t, db, remover, member)
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	waited := true
	for i, done := range []chan error{removed, key, member} {
		err := <-done
		if errors.Is(err, &relay.Error{Code: relay.CodeStoreUnavailable}) {
			t.Log(err)
			waited = false
		} else if err != nil && (i == 0 || !errors.Is(err, relay.ErrNotFound)) {
			t.Error(err)
		}
	}
	if !waited {
		return false
	}
	for _, table := range []string{"keys", "members"} {
		if n := count(t, db, `SELECT COUNT(*) FROM `+table); n != 0 {
			t.Errorf("%d %s are left", n, table)
		}
	}
	if _, err := s.AddKey(ctx, system, "alice", "", line); err != nil {
		t.Error(err)
	}
	return true
}

// blockedBy waits until a session waits for a lock of the session pid, and returns the process id of the
// waiting session. It returns 0 if the operation that reports to done ends first.
func blockedBy(t *testing.T, db *sql.DB, pid int, done chan error) (blocked int) {
	t.Helper()
	eventually(t, "a session waits for the lock, or has ended", func() bool {
		err := db.QueryRow(`SELECT COALESCE(MAX(pid), 0) FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))`, pid).Scan(&blocked)
		if err != nil {
			t.Error(err)
		}
		return blocked != 0 || len(done) > 0
	})
	return blocked
}
