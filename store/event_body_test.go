package store_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/store"
)

// manyAttempts adds copies of the first attempt, which must have ended, to the only event of a store, until
// the event has the given number of attempts.
func manyAttempts(t testing.TB, db *sql.DB, attempts int) {
	t.Helper()
	for table, columns := range map[string]string{
		"payloads": "head, framing, codec, body, parts, stored, size, sha256, state",
		"attempts": `alias_id, kind, state, received_at, started_at, ended_at, actor, error_code, error_message, released, from_queue, connection,
			has_response, status, response_state, claim_node, claim_boot, bytes`,
	} {
		if _, err := db.Exec(fmt.Sprintf(`WITH RECURSIVE k (n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM k WHERE n < %d)
			INSERT INTO %s (event_id, n, %s) SELECT event_id, k.n, %s FROM %s p, k WHERE p.n = 1`, attempts, table, columns, columns, table)); err != nil {
			t.Fatal(table, err)
		}
	}
	if _, err := db.Exec(fmt.Sprintf(`UPDATE events SET attempts = %d, ended_n = %d`, attempts, attempts)); err != nil {
		t.Fatal(err)
	}
}

// An event with 5000 attempts is returned with its request, its first attempt and the newest ones. All
// attempts are returned in pages. Each body has at most the requested number of bytes.
func TestAttemptsComeInPages(t *testing.T) {
	onEngines(t, func(t *testing.T, o store.Options) {
		s := mustServe(t, o)
		const attempts, size = 5000, 1000
		body := strings.Repeat("0123456789", size/10)
		alias := withAlias(t, s)
		e := eventAt(s, alias, s.NewID().Time(), relay.StateDelivering, body)
		settled(t, s.Accept(e), s.Finish(e.ID, answered(1, body), ""))
		manyAttempts(t, database(t, o), attempts)
		check := func(a *relay.Attempt, n, most int) {
			t.Helper()
			m := &a.Response
			if a.N != n || string(m.Body.Data) != body[:min(most, size)] || m.Body.Size != size || len(m.Head) == 0 {
				t.Fatalf("attempt %d instead of %d: of %d bytes %d came, size %d, head %q", a.N, n, most, len(m.Body.Data), m.Body.Size, m.Head)
			}
		}
		for _, most := range []int{1 << 20, size, 100, 0} {
			got, err := s.Event(t.Context(), system, e.ID, most)
			if err != nil || got.AttemptCount != attempts || len(got.Attempts) != 1+relay.ShownAttempts || got.Ended != nil {
				t.Fatalf("%d of %d attempts, %v, %v", len(got.Attempts), got.AttemptCount, got.Ended, err)
			}
			if string(got.Request.Body.Data) != body[:min(most, size)] {
				t.Errorf("of %d bytes of the request %d came", most, len(got.Request.Body.Data))
			}
			check(&got.Attempts[0], 1, most)
			for i := range relay.ShownAttempts {
				check(&got.Attempts[1+i], attempts-relay.ShownAttempts+1+i, most)
			}
		}
		var seen []int
		for before := 0; before != 1; {
			page, err := s.Attempts(t.Context(), system, e.ID, relay.AttemptPage{Before: before, Limit: 77, MaxBody: 10})
			if err != nil || len(page) == 0 || len(page) > 77 {
				t.Fatalf("%d attempts before %d, %v", len(page), before, err)
			}
			for i := range page {
				check(&page[i], page[0].N-i, 10)
				seen = append(seen, page[i].N)
			}
			before = page[len(page)-1].N
		}
		if len(seen) != attempts || seen[0] != attempts {
			t.Errorf("%d attempts in pages, the first is %d", len(seen), seen[0])
		}
		if only, err := s.Request(t.Context(), system, e.ID, size); err != nil || len(only.Attempts) > 0 || string(only.Request.Body.Data) != body {
			t.Errorf("the request: %d attempts, %d bytes, %v", len(only.Attempts), len(only.Request.Body.Data), err)
		}
		if part, err := s.BodyPart(t.Context(), e.ID, 100, 0); err != nil || string(part) != body {
			t.Errorf("one by itself: %d bytes, %v", len(part), err)
		}
	})
}

// An event with thousands of waiting attempts shows the result of the last attempt that has ended, and all
// waiting attempts can be canceled.
func TestManyWaitingAttempts(t *testing.T) {
	onEngines(t, func(t *testing.T, o store.Options) {
		s := mustServe(t, o)
		const waiting = 2500
		alias := withAlias(t, s)
		e := eventAt(s, alias, s.NewID().Time(), relay.StateDelivering, "x")
		settled(t, s.Accept(e), s.Finish(e.ID, answered(1, "first"), ""))
		if _, err := s.BeginReplay(t.Context(), system, e.ID, true); err != nil {
			t.Fatal(err)
		}
		settled(t, s.Finish(e.ID, answered(2, "second"), ""))
		if _, err := s.BeginReplay(t.Context(), system, e.ID, false); err != nil {
			t.Fatal(err)
		}
		db := database(t, o)
		for table, columns := range map[string]string{
			"attempts": `alias_id, kind, state, received_at, started_at, ended_at, actor, error_code, error_message, released, from_queue, connection,
				has_response, status, response_state, claim_node, claim_boot, bytes`,
			"queue": "alias_id, received_at, kind, released, bytes",
		} {
			if _, err := db.Exec(fmt.Sprintf(`WITH RECURSIVE k (n) AS (SELECT 4 UNION ALL SELECT n + 1 FROM k WHERE n < %d)
				INSERT INTO %s (event_id, n, %s) SELECT event_id, k.n, %s FROM %s p, k WHERE p.n = 3`, waiting+2, table, columns, columns, table)); err != nil {
				t.Fatal(table, err)
			}
		}
		if _, err := db.Exec(fmt.Sprintf(`UPDATE events SET attempts = %d`, waiting+2)); err != nil {
			t.Fatal(err)
		}
		got, err := s.Event(t.Context(), system, e.ID, 100)
		if err != nil || len(got.Attempts) != 1+relay.ShownAttempts || got.Ended == nil || got.Ended.N != 2 || string(got.Ended.Response.Body.Data) != "second" {
			t.Fatalf("%d attempts, ended %+v, %v", len(got.Attempts), got.Ended, err)
		}
		if last := got.Attempts[len(got.Attempts)-1]; last.N != waiting+2 || last.Position == 0 || got.LastEnded() != got.Ended {
			t.Errorf("the last one is %d at position %d", last.N, last.Position)
		}
		answeredOnes, err := s.Attempts(t.Context(), system, e.ID, relay.AttemptPage{Limit: 5, Answered: true})
		if err != nil || len(answeredOnes) != 2 || answeredOnes[0].N != 2 {
			t.Errorf("attempts with an answer: %d, %v", len(answeredOnes), err)
		}
		if err := s.Cancel(t.Context(), system, e.ID); err != nil {
			t.Fatal(err)
		}
		got, err = s.Event(t.Context(), system, e.ID, 100)
		if err != nil || got.State != relay.StateCanceled || got.Status != 0 || got.Ended != nil || got.LastEnded().N != waiting+2 {
			t.Errorf("canceled: %s, status %d, %v", got.State, got.Status, err)
		}
		if n := count(t, db, `SELECT COUNT(*) FROM queue`) + count(t, db, `SELECT COUNT(*) FROM attempts WHERE state = 0`); n > 0 {
			t.Errorf("%d rows still wait", n)
		}
		if err := s.Cancel(t.Context(), system, e.ID); relay.AsError(err).Code != relay.CodeConflict {
			t.Errorf("canceled again: %v", err)
		}
	})
}

// Deleting an event with many attempts deletes all of its rows, and no rows of another event.
func TestDeleteLargeEvent(t *testing.T) {
	onEngines(t, func(t *testing.T, o store.Options) {
		s := mustServe(t, o)
		alias := withAlias(t, s)
		part := []byte(strings.Repeat("x", relay.BodyPart))
		e := eventAt(s, alias, s.NewID().Time(), relay.StateDelivering, "")
		e.Request.Body = relay.Body{Parts: 8, Stored: 8 * relay.BodyPart, Size: 8 * relay.BodyPart, State: relay.BodyComplete}
		for i := range 8 {
			settled(t, s.Chunk(e.ID, 0, i, part))
		}
		settled(t, s.Accept(e), s.Finish(e.ID, answered(1, string(part)), ""))
		for n := 2; n <= 15; n++ {
			if _, err := s.BeginReplay(t.Context(), system, e.ID, true); err != nil {
				t.Fatal(err)
			}
			settled(t, s.Finish(e.ID, answered(n, string(part)), ""))
		}
		other := stored(t, s, eventAt(s, alias, s.NewID().Time(), relay.StateDelivering, "stays"))
		if err := s.DeleteEvent(t.Context(), system, e.ID); err != nil {
			t.Fatal(err)
		}
		db := database(t, o)
		for table, want := range map[string]int{"events": 1, "attempts": 1, "payloads": 2, "body_chunks": 0} {
			if n := count(t, db, `SELECT COUNT(*) FROM `+table); n != want {
				t.Errorf("%s: %d rows, want %d", table, n, want)
			}
		}
		if there(t, s, e.ID) || !there(t, s, other) {
			t.Error("the wrong one went")
		}
	})
}

// Finish is refused if a part of the response is not stored, and the attempt stays delivering.
func TestFinishWithoutItsPartIsRefused(t *testing.T) {
	t.Parallel()
	s := mustServe(t, store.Options{DataDir: t.TempDir(), Log: testLog(t)})
	ev := eventAt(s, withAlias(t, s), time.Now(), relay.StateDelivering, "request")
	settled(t, s.Accept(ev))
	a := answered(1, "")
	a.Response.Body = relay.Body{Size: 300 << 10, Stored: 300 << 10, Parts: 2, State: relay.BodyComplete}
	end := s.Finish(ev.ID, a, "")
	<-end.Done()
	got, err := s.Event(t.Context(), system, ev.ID, 0)
	if end.Err() == nil || err != nil || got.State != relay.StateDelivering {
		t.Errorf("finished with %v; event %+v, %v", end.Err(), got, err)
	}
}

// TestReleasedOnlyInTheQueue: an attempt that is stored with the mark Released keeps it if Requeue puts the attempt
// into the queue, and the tunnel is at another node. Without such a tunnel, Requeue removes the mark. RequeueWithheld and
// the end of the attempt always do.
func TestReleasedOnlyInTheQueue(t *testing.T) {
	onEngines(t, func(t *testing.T, o store.Options) {
		s := mustServe(t, o)
		alias := withAlias(t, s)
		db := database(t, o)
		for _, together := range []bool{true, false} {
			for _, how := range []string{"waits", "waits without a tunnel", "is withheld", "ends"} {
				tunnel := fmt.Sprintf(`INSERT INTO tunnels VALUES (%d, 't1', 'other', 1, 'bob', 1, 'ssh', '', '', '', 0, 'online', 0)`, alias)
				if how == "waits without a tunnel" {
					tunnel = ""
				}
				if _, err := db.Exec(`DELETE FROM tunnels; ` + tunnel); err != nil {
					t.Fatal(err)
				}
				e := eventAt(s, alias, s.NewID().Time(), relay.StateDelivering, "")
				e.Attempts[0].Released = true
				steps := []*relay.Ticket{s.Accept(e)}
				if !together {
					settled(t, steps...)
				}
				switch how {
				case "waits", "waits without a tunnel":
					steps = append(steps, s.Requeue(e.ID, 1))
				case "is withheld":
					steps = append(steps, s.RequeueWithheld(e.ID, 1))
				case "ends":
					steps = append(steps, s.Finish(e.ID, answered(1, "ok"), ""))
				}
				settled(t, steps...)
				got, err := s.Event(t.Context(), system, e.ID, 0)
				if err != nil || got.Attempts[0].Released != (how == "waits") {
					t.Errorf("one that %s, in one batch %v: %+v, %v", how, together, got.Attempts[0], err)
				}
			}
		}
	})
}
