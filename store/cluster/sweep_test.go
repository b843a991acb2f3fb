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

// TestReleaseOutlivesANode: when a node dies, the events that another node has queued for its tunnel shortly before
// stay in the queue until a user releases them. The events that a user had released before are still delivered.
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
	queued := func(released bool) relay.ID {
		e := &relay.Event{
			ID: s.NewID(), AliasID: alias.ID, ReceivedAt: time.Now(), State: relay.StateQueued, Method: "POST", Target: []byte("/"),
			Request:  relay.Message{Body: relay.Body{State: relay.BodyComplete}},
			Attempts: []relay.Attempt{{N: 1, Kind: relay.KindOriginal, State: relay.StateQueued, ReceivedAt: time.Now(), Released: released}},
		}
		stored := s.Accept(e)
		if <-stored.Done(); stored.Err() != nil {
			t.Fatal(stored.Err())
		}
		return e.ID
	}
	early := queued(true) // there is no tunnel yet, so this event is not released
	byUser := queued(false)
	if n, err := s.Release(ctx, root, "hooks"); err != nil || n != 2 {
		t.Fatalf("%d released, %v", n, err)
	}
	db, err := sqlx.Open("postgres", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	now := time.Now().UnixMicro()
	db.MustExec(`INSERT INTO nodes (id, name, peer_addr, peer_key, version, schema_version, started_at, seen_at, beat, state)
		VALUES ('other', 'other', '', '', 'v0', 4, $1, $1, 7, 'serving')`, now)
	db.MustExec(`INSERT INTO tunnels VALUES ($1, 't1', 'other', 1, 'bob', 1, 'ssh', '', '', '', 0, 'online', 0)`, alias.ID)
	withheld := queued(true)
	if err := s.SweepSeen(ctx, "other", 7); err != nil {
		t.Fatal(err)
	}
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
		ended := s.Finish(c.Event.ID, &relay.Attempt{N: c.N, State: relay.StateDelivered, EndedAt: time.Now()}, "")
		if <-ended.Done(); ended.Err() != nil {
			t.Fatal(ended.Err())
		}
	}
	if !slices.Equal(got, []relay.ID{early, byUser}) {
		t.Errorf("claimed %v, want %v; %v waits for a release", got, []relay.ID{early, byUser}, withheld)
	}
}
