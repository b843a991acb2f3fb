package cluster_test

import (
	"slices"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"

	"relay"
	"relay/relaytest"
	"relay/store"
	"relay/store/schematest"
)

// A node is swept only if its heartbeat still has the observed value, or if it is marked dead. If the heartbeat
// has changed after it was observed, the node keeps its row and its tunnels.
func TestSweepLeavesANodeWhoseBeatMoved(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		beat  int64
		state string
		swept bool
	}{
		"stands still":         {7, relay.NodeServing, true},
		"moved":                {8, relay.NodeServing, false},
		"moved back":           {6, relay.NodeServing, false},
		"drains and moved":     {8, relay.NodeDraining, false},
		"was called dead":      {8, relay.NodeDead, true},
		"is gone (no row)":     {0, "", false},
		"drains, stands still": {7, relay.NodeDraining, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, url := t.Context(), schematest.URL(t)
			s, err := store.Open(ctx, store.Options{URL: url, DataDir: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			if _, _, err := s.Migrate(ctx); err != nil {
				t.Fatal(err)
			}
			db, err := sqlx.Open("postgres", url)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = db.Close() })
			now := time.Now().UnixMicro()
			if c.state != "" {
				db.MustExec(`INSERT INTO nodes (id, name, peer_addr, peer_key, version, schema_version, started_at, seen_at, beat, state)
					VALUES ('other', 'other', '', '', 'v0', 4, $1, $1, $2, $3)`, now, c.beat, c.state)
				db.MustExec(`INSERT INTO tunnels VALUES (1, 't1', 'other', 1, 'bob', 1, 'ssh', '', '', '', 0, 'online', 0)`)
			}
			if err := s.SweepSeen(ctx, "other", 7); err != nil {
				t.Fatal(err)
			}
			var rows, tunnels int
			if err := db.QueryRow(`SELECT (SELECT COUNT(*) FROM nodes WHERE state = $1), (SELECT COUNT(*) FROM tunnels)`, c.state).Scan(&rows, &tunnels); err != nil {
				t.Fatal(err)
			}
			want := 1
			if c.swept || c.state == "" {
				want = 0
			}
			if rows != want || tunnels != want {
				t.Errorf("%d rows in the same state and %d tunnels are left, want %d", rows, tunnels, want)
			}
		})
	}
}

// TestReleaseOutlivesANode: when a node dies, the events that another node has queued for its tunnel shortly before,
// or queues afterwards, stay in the queue until a user releases them. The events that a user had released before are
// still delivered.
func TestReleaseOutlivesANode(t *testing.T) {
	t.Parallel()
	ctx, url, root := t.Context(), schematest.URL(t), relay.System()
	s, err := store.Open(ctx, store.Options{URL: url, DataDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if err := s.Serve(ctx, func([]relay.Change) {}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.CreateAccount(ctx, root, "alice", false); err != nil {
		t.Fatal(err)
	}
	alias, err := s.CreateAlias(ctx, root, "hooks", "alice")
	if err != nil {
		t.Fatal(err)
	}
	done := func(step *relay.Ticket) {
		t.Helper()
		if <-step.Done(); step.Err() != nil {
			t.Fatal(step.Err())
		}
	}
	accept := func(state string, released bool) relay.ID {
		e := &relay.Event{
			ID: s.NewID(), AliasID: alias.ID, ReceivedAt: time.Now(), State: state, Method: "POST", Target: []byte("/"),
			Request:  relay.Message{Body: relay.Body{State: relay.BodyComplete}},
			Attempts: []relay.Attempt{{N: 1, Kind: relay.KindOriginal, State: state, ReceivedAt: time.Now(), Released: released}},
		}
		done(s.Accept(e))
		return e.ID
	}
	queued := func(released bool) relay.ID { return accept(relay.StateQueued, released) }
	release := func(want int) {
		t.Helper()
		if n, err := s.Release(ctx, root, "hooks"); err != nil || n != want {
			t.Errorf("%d released instead of %d, %v", n, want, err)
		}
	}
	early := queued(true) // there is no tunnel yet, so this event is not released
	byUser := queued(false)
	release(2)
	db, err := sqlx.Open("postgres", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	now := time.Now().UnixMicro()
	db.MustExec(`INSERT INTO nodes (id, name, peer_addr, peer_key, version, schema_version, started_at, seen_at, beat, state)
		VALUES ('other', 'other', '', '', 'v0', 4, $1, $1, 7, 'serving')`, now)
	db.MustExec(`INSERT INTO tunnels VALUES ($1, 't1', 'other', 1, 'bob', 1, 'ssh', '', '', '', 0, 'online', 0)`, alias.ID)
	both := queued(true)                                                     // released for the tunnel, and then by the user
	release(0)                                                               // this number counts only what waits for a release
	toSend := func() relay.ID { return accept(relay.StateDelivering, true) } // Requeue says later that it could not be sent
	withheld, late := []relay.ID{queued(true), toSend()}, toSend()
	done(s.Requeue(withheld[1], 1))
	if err := s.SweepSeen(ctx, "other", 7); err != nil {
		t.Fatal(err)
	}
	done(s.Requeue(late, 1))
	var got []relay.ID
	for {
		relaytest.Poll(time.Minute, func() bool { return s.MayClaim() == nil })
		c, err := s.Next(relay.NextClaim{Alias: alias.ID})
		if err != nil {
			t.Fatal(err)
		}
		if c == nil {
			break
		}
		got = append(got, c.Event.ID)
		done(s.Finish(c.Event.ID, &relay.Attempt{N: c.N, State: relay.StateDelivered, EndedAt: time.Now()}, ""))
	}
	want := []relay.ID{early, byUser, both}
	if !slices.Equal(got, want) {
		t.Errorf("claimed %v, want %v; %v wait for a release", got, want, append(withheld, late))
	}
	release(3)
}
