package store_test

import (
	"strings"
	"testing"
	"time"

	"relay"
	"relay/store"
)

// The bodies of an event with hundreds of attempts: each comes as far as it is asked
// for, and alone.
func TestBodiesOfManyAttempts(t *testing.T) {
	onEngines(t, func(t *testing.T, o store.Options) {
		s := mustServe(t, o)
		const attempts, size = 500, 1000
		body := strings.Repeat("0123456789", size/10)
		alias := withAlias(t, s)
		e := eventAt(s, alias, s.NewID().Time(), relay.StateDelivering, body)
		settled(t, s.Accept(e), s.Finish(e.ID, answered(1, body), ""))
		db := database(t, o)
		for table, columns := range map[string]string{
			"payloads": "head, framing, codec, body, parts, stored, size, sha256, state",
			"attempts": `alias_id, kind, state, received_at, started_at, ended_at, actor, error_code, error_message, released, from_queue, connection,
				has_response, status, response_state, claim_node, claim_boot, bytes`,
		} {
			if _, err := db.Exec(`WITH RECURSIVE k (n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM k WHERE n < 500)
				INSERT INTO ` + table + ` (event_id, n, ` + columns + `) SELECT event_id, k.n, ` + columns + ` FROM ` + table + ` p, k WHERE p.n = 1`); err != nil {
				t.Fatal(table, err)
			}
		}
		for _, most := range []int{1 << 20, size, 100, 0} {
			got, err := s.Event(t.Context(), system, e.ID, most)
			if err != nil || len(got.Attempts) != attempts {
				t.Fatal(err)
			}
			want := body[:min(most, size)]
			if string(got.Request.Body.Data) != want {
				t.Errorf("of %d bytes of the request %d came", most, len(got.Request.Body.Data))
			}
			for i := range got.Attempts {
				m := &got.Attempts[i].Response
				if string(m.Body.Data) != want || m.Body.Size != size || len(m.Head) == 0 {
					t.Fatalf("of %d bytes of attempt %d %d came, size %d, head %q", most, i+1, len(m.Body.Data), m.Body.Size, m.Head)
				}
			}
		}
		if part, err := s.BodyPart(t.Context(), e.ID, 100, 0); err != nil || string(part) != body {
			t.Errorf("one by itself: %d bytes, %v", len(part), err)
		}
	})
}

// Deleting an event with much in it leaves nothing behind.
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

// An end whose response has a part that was never stored is refused, and the attempt is still
// under way.
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
