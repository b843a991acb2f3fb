package store

import (
	"strings"
	"testing"

	"relay/store/pgtest"
)

// Postgres ends an idle session of the serve lock where it has that setting. A Postgres
// without the setting does not prevent a start.
func TestIdleTimeoutOfTheServeLock(t *testing.T) {
	t.Parallel()
	db, err := openPool(t.Context(), pgtest.URL(t), 1, readTimeout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	for _, statement := range []string{strings.ReplaceAll(idleSessionTimeout, "idle_session_timeout", "idle_unknown_timeout"), idleSessionTimeout} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(statement, err)
		}
	}
	var got string
	if err := db.Get(&got, `SHOW idle_session_timeout`); err != nil || got != "15s" {
		t.Errorf("the session of the lock ends after %q, %v", got, err)
	}
}
