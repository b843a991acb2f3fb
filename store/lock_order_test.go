package store

import (
	"database/sql"
	"errors"
	"testing"
	"time"

	"relay"
	"relay/store/schematest"
)

// Each operation locks the event first and its attempt afterwards. Operations with different orders could
// deadlock, and a deadlock in the journal fails a whole batch of events.
func TestLocksAreTakenInOneOrder(t *testing.T) {
	t.Parallel()
	o := Options{URL: schematest.URL(t), DataDir: t.TempDir()}
	s := openMigrated(t, o)
	if err := s.Serve(t.Context(), func([]relay.Change) {}); err != nil {
		t.Fatal(err)
	}
	dsn, err := s.db.ListenAddress()
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("postgres", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	system := relay.System()
	if _, err := s.CreateAccount(t.Context(), system, "alice", false); err != nil {
		t.Fatal(err)
	}
	a, err := s.CreateAlias(t.Context(), system, "hooks", "alice")
	if err != nil {
		t.Fatal(err)
	}
	ended := func(state string) *relay.Attempt {
		return &relay.Attempt{N: 1, State: state, EndedAt: time.Now(), Status: 200, HasResponse: true}
	}
	for _, c := range []struct {
		name, state string
		foreign     bool // another node has the claim
		do          func(id relay.ID) error
	}{
		{"finish", relay.StateDelivering, false, func(id relay.ID) error { return wait(s.Finish(id, ended(relay.StateDelivered), "")) }},
		{"requeue", relay.StateDelivering, false, func(id relay.ID) error { return wait(s.Requeue(id, 1)) }},
		{"sweep", relay.StateDelivering, true, func(relay.ID) error { _, err := s.Sweep(t.Context()); return err }},
		{"next", relay.StateQueued, false, func(relay.ID) error {
			_, err := s.Next(relay.NextClaim{Alias: a.ID, Auto: true})
			return err
		}},
		{"cancel", relay.StateQueued, false, func(id relay.ID) error { return s.Cancel(t.Context(), system, id) }},
		{"delete", relay.StateQueued, false, func(id relay.ID) error { return s.DeleteEvent(t.Context(), system, id) }},
		{"replay", relay.StateQueued, false, func(id relay.ID) error { _, err := s.BeginReplay(t.Context(), system, id, true); return err }},
	} {
		t.Run(c.name, func(t *testing.T) {
			id := s.NewID()
			if err := wait(s.Accept(&relay.Event{
				ID: id, AliasID: a.ID, ReceivedAt: time.Now(), State: c.state,
				Request:  relay.Message{Body: relay.Body{State: relay.BodyComplete}},
				Attempts: []relay.Attempt{{N: 1, State: c.state, ReceivedAt: time.Now()}},
			})); err != nil {
				t.Fatal(err)
			}
			if c.foreign {
				if _, err := db.Exec(`UPDATE attempts SET claim_node = 'gone' WHERE event_id = $1`, id); err != nil {
					t.Fatal(err)
				}
			}
			maySoonClaim(t, s)
			waitsForTheEvent(t, db, id, func() error { return c.do(id) })
			if _, err := db.Exec(`DELETE FROM attempts; DELETE FROM queue`); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func wait(ticket *relay.Ticket) error {
	<-ticket.Done()
	return ticket.Err()
}

// waitsForTheEvent runs the function do while a transaction locks the event. The test fails if the function
// does not wait for that lock, or has locked the attempt while it waits.
func waitsForTheEvent(t *testing.T, db *sql.DB, id relay.ID, do func() error) {
	t.Helper()
	for range 5 { // on a busy machine do may fail with the lock timeout of 1.8 s before sawWait sees it wait: then sawWait is called again
		if sawWait(t, db, id, do) {
			return
		}
	}
	t.Error("gave up the wait for the event before it was seen")
}

func sawWait(t *testing.T, db *sql.DB, id relay.ID, do func() error) bool {
	t.Helper()
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	var pid int
	if err := tx.QueryRow(`SELECT pg_backend_pid() FROM events WHERE id = $1 FOR UPDATE`, id).Scan(&pid); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- do() }()
	for waiting := 0; waiting == 0; {
		if err := db.QueryRow(`SELECT COUNT(*) FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))`, pid).Scan(&waiting); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-done:
			if errors.Is(err, &relay.Error{Code: relay.CodeStoreUnavailable}) {
				return false
			}
			t.Fatalf("did not wait for the event: %v", err)
		default:
		}
	}
	if _, err := db.Exec(`SELECT 1 FROM attempts WHERE event_id = $1 FOR UPDATE NOWAIT`, id); err != nil {
		t.Errorf("has locked the attempt before the event: %v", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	<-done // the result of the operation after such a wait does not matter here
	return true
}
