package store_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/store"
)

// queueReplays adds n queued replays to the only event of a store, by SQL.
func queueReplays(t *testing.T, o store.Options, n int) {
	t.Helper()
	db := database(t, o)
	numbers := `WITH RECURSIVE v (k) AS (SELECT 2 UNION ALL SELECT k + 1 FROM v WHERE k <= %d) `
	const columns = `alias_id, state, received_at, started_at, ended_at, error_code, error_message, released, from_queue, connection,
		has_response, status, response_state, claim_node, claim_boot, bytes`
	for _, statement := range []string{
		`INSERT INTO attempts (event_id, n, kind, actor, ` + columns + `) ` + numbers + `SELECT event_id, k, 1, 'user:alice', ` + columns + ` FROM attempts, v WHERE n = 1`,
		`INSERT INTO queue (event_id, n, alias_id, received_at, kind, released, bytes) SELECT event_id, n, alias_id, received_at, kind, released, bytes FROM attempts WHERE n > 1`,
		`UPDATE events SET attempts = (SELECT COUNT(*) FROM attempts)`,
	} {
		if _, err := db.Exec(strings.ReplaceAll(statement, "%d", strconv.Itoa(n))); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCancelOfManyAttempts cancels an event with 10,000 queued replays. Other events are stored before the
// cancel ends.
func TestCancelOfManyAttempts(t *testing.T) {
	onEngines(t, func(t *testing.T, o store.Options) {
		const many = 10_000
		s := mustServe(t, o)
		alias := withAlias(t, s)
		id := stored(t, s, eventAt(s, alias, time.Now(), relay.StateQueued, "x"))
		queueReplays(t, o, many)
		ended := make(chan error, 1)
		go func() { ended <- s.Cancel(t.Context(), system, id) }()
		meanwhile := 0
		for done := false; !done; {
			if _, err := capture(s, alias); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-ended:
				if done = true; err != nil {
					t.Fatal(err)
				}
			default:
				meanwhile++
			}
		}
		if meanwhile < 3 {
			t.Errorf("%d events were stored while %d attempts were canceled", meanwhile, many)
		}
		db := database(t, o)
		if n := count(t, db, `SELECT COUNT(*) FROM attempts WHERE state = 5 AND ended_at > 0 AND error_code = 'canceled'`); n != many+1 {
			t.Errorf("%d attempts are canceled, want %d", n, many+1)
		}
		if n := count(t, db, `SELECT COUNT(*) FROM queue`); n != 0 {
			t.Errorf("%d still wait", n)
		}
		if n := count(t, db, `SELECT COUNT(*) FROM audit WHERE action = 'cancel'`); n != 1 {
			t.Errorf("%d entries in the audit log", n)
		}
		if n := count(t, db, `SELECT COUNT(*) FROM events WHERE state = 5 AND ended_n = attempts`); n != 1 {
			t.Error("the event is not canceled")
		}
	})
}
