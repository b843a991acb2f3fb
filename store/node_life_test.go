package store_test

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"relay"
	"relay/relaytest"
	"relay/store"
	"relay/store/schematest"
)

// addNode adds the row of a node that has no process, so that nothing but the test changes the heartbeat in the
// row.
func addNode(t *testing.T, o store.Options, id, name string, seen time.Time) {
	t.Helper()
	_, err := database(t, o).Exec(`INSERT INTO nodes (id, name, peer_addr, peer_key, version, schema_version, started_at, seen_at, beat, state)
		VALUES ($1, $2, '', '', 'v0', 4, $3, $3, 7, 'serving')`, id, name, seen.UnixMicro())
	if err != nil {
		t.Fatal(err)
	}
}

// nodesByName returns the nodes that a store lists, by their names.
func nodesByName(t *testing.T, s *store.Store) map[string]relay.Node {
	t.Helper()
	list, err := s.Nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]relay.Node{}
	for _, n := range list {
		byName[n.Name] = n
	}
	return byName
}

// The running attempt of a dead node becomes interrupted, and the tunnel and the row of the node are removed.
// A node that finds itself declared dead rejoins with a new id.
func TestNodeSweptAndBack(t *testing.T) {
	t.Parallel()
	o := store.Options{URL: schematest.URL(t), DataDir: t.TempDir(), Log: testLog(t), NodeName: "a", Version: "v1"}
	s := mustServe(t, o)
	alias, db := withAlias(t, s), database(t, o)
	e := eventAt(s, alias, time.Now(), relay.StateDelivering, "x")
	settled(t, s.Accept(e))
	addNode(t, o, "ghost", "b", time.Now())
	for _, query := range []string{
		`UPDATE attempts SET claim_node = 'ghost'`,
		`INSERT INTO tunnels VALUES (1, 't1', 'ghost', 1, 'bob', 1, 'ssh', '', '', '', 0, 'online', 0)`,
	} {
		if _, err := db.Exec(query); err != nil {
			t.Fatal(err)
		}
	}
	if n := nodesByName(t, s)["b"]; n.State != relay.NodeServing || n.Tunnels != 1 {
		t.Errorf("the other node: %+v", n)
	}
	began := time.Now()
	eventually(t, "the dead node is swept", func() bool { return len(nodesByName(t, s)) == 1 })
	t.Logf("swept after %v", time.Since(began))
	got, err := s.Event(t.Context(), relay.System(), e.ID, 0)
	if err != nil || got.State != relay.StateInterrupted {
		t.Errorf("its attempt: %+v, %v", got, err)
	}
	var tunnels int
	if err := db.QueryRow(`SELECT count(*) FROM tunnels`).Scan(&tunnels); err != nil || tunnels != 0 {
		t.Errorf("%d tunnels, %v", tunnels, err)
	}

	before := s.NodeID()
	if _, err := db.Exec(`UPDATE nodes SET state = 'dead'`); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it joins again", func() bool { return s.NodeID() != before })
	mayClaim(t, s)
	settled(t, s.Accept(eventAt(s, alias, time.Now(), relay.StateDelivering, "x")))
	eventually(t, "its former row is swept", func() bool {
		n := nodesByName(t, s)["a"]
		return n.Self && n.State == relay.NodeServing && n.Version == "v1" && n.ID == s.NodeID()
	})
}

// A node begins attempts and is then declared dead several times. It can still end these attempts, or put them
// back into the queue.
func TestEndAfterRejoins(t *testing.T) {
	t.Parallel()
	o := store.Options{URL: schematest.URL(t), DataDir: t.TempDir(), Log: testLog(t)}
	s := mustServe(t, o)
	alias, db := withAlias(t, s), database(t, o)
	end := eventAt(s, alias, time.Now(), relay.StateDelivering, "x")
	back := eventAt(s, alias, time.Now(), relay.StateDelivering, "x")
	settled(t, s.Accept(end), s.Accept(back))
	for range 3 {
		before := s.NodeID()
		if _, err := db.Exec(`UPDATE nodes SET state = 'dead'`); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it rejoins", func() bool { return s.NodeID() != before })
		eventually(t, "its former row is swept", func() bool { return len(nodesByName(t, s)) == 1 })
	}
	settled(t, s.Finish(end.ID, &relay.Attempt{N: 1, State: relay.StateDelivered, EndedAt: time.Now()}, ""), s.Requeue(back.ID, 1))
	for id, want := range map[relay.ID]string{end.ID: relay.StateDelivered, back.ID: relay.StateQueued} {
		if e, err := s.Event(t.Context(), system, id, 0); err != nil || e.State != want || e.Attempts[0].State != want {
			t.Errorf("%+v, %v; want %s", e, err, want)
		}
	}
}

// If two running nodes have the same name, a number is appended to that of the second one. The row of a killed
// node does not reserve its name.
func TestNodeNames(t *testing.T) {
	t.Parallel()
	for name, beating := range map[string]bool{"living": true, "killed": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := store.Options{URL: schematest.URL(t), DataDir: t.TempDir(), Log: testLog(t), NodeName: "a"}
			first := mustServe(t, o)
			if err := first.Close(); err != nil {
				t.Fatal(err)
			}
			addNode(t, o, "other", "a", time.Now())
			if beating {
				db, done, ended := database(t, o), make(chan struct{}), make(chan struct{})
				defer func() { close(done); <-ended }()
				go func() {
					defer close(ended)
					for {
						select {
						case <-done:
							return
						case <-time.After(100 * time.Millisecond):
							_, _ = db.Exec(`UPDATE nodes SET beat = beat + 1 WHERE id = 'other'`)
						}
					}
				}()
			}
			s := mustServe(t, o)
			want := map[bool]string{true: "a-2", false: "a"}[beating]
			if n := nodesByName(t, s)[want]; beating && !n.Self || len(nodesByName(t, s)) == 0 {
				t.Errorf("no node %s: %+v", want, nodesByName(t, s))
			}
		})
	}
}

// A SQLite store has one node, which may claim at once. Operator commands see that its server runs.
func TestNodeOfSQLite(t *testing.T) {
	t.Parallel()
	o := store.Options{DataDir: t.TempDir(), Log: testLog(t), NodeName: "a"}
	for range 2 {
		s := mustServe(t, o)
		if err := s.MayClaim(); err != nil {
			t.Error(err)
		}
		if n := nodesByName(t, besides(t, o)); len(n) != 1 || n["a"].State != relay.NodeServing {
			t.Errorf("beside a server: %+v", n)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Two nodes serve one database, and a node does not change the running attempt of the other. The queue that
// both nodes fill is in order although their clocks differ by an hour. A stopping node removes its row.
func TestTwoNodes(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	first := mustServe(t, store.Options{URL: url, DataDir: t.TempDir(), Log: testLog(t), NodeName: "a"})
	alias := withAlias(t, first)
	under := eventAt(first, alias, time.Now(), relay.StateDelivering, "x")
	settled(t, first.Accept(under))
	ahead := func() time.Time { return time.Now().Add(time.Hour) }
	var log relaytest.Buffer
	second := mustServe(t, store.Options{
		URL: url, DataDir: t.TempDir(), Log: slog.New(slog.NewTextHandler(&log, nil)), NodeName: "a", Now: ahead, CorrectNow: true,
	})
	eventually(t, "they know each other", func() bool { return first.HasOtherNodes() && second.HasOtherNodes() })
	if n := nodesByName(t, second)["a-2"]; !n.Self || (n.ClockOffset+time.Hour).Abs() > time.Minute {
		t.Errorf("the second node: %+v", n)
	}
	if n := strings.Count(log.String(), "the clock of this node differs"); n != 1 {
		t.Errorf("the log tells %d times that the clock differs:\n%s", n, &log)
	}
	var queued []relay.ID
	began := time.Now().Add(-10 * time.Minute)
	for i := range 10 {
		s, at := first, began.Add(time.Duration(i)*time.Minute) // the times are further apart than the error with which a node measures the offset of its clock
		if i%2 == 1 {
			s, at = second, at.Add(time.Hour)
		}
		e := oldEvent(s, alias, "queued", relay.StateQueued)
		e.ReceivedAt, e.Attempts[0].ReceivedAt = at, at
		settled(t, s.Accept(e))
		queued = append(queued, e.ID)
	}
	for i, id := range queued {
		mayClaim(t, second)
		c, err := second.Next(relay.NextClaim{Alias: alias, Auto: true})
		if err != nil || c == nil || c.Event.ID != id {
			t.Fatalf("%d. out of the queue: %+v, %v", i, c, err)
		}
		settled(t, second.Finish(id, &relay.Attempt{N: 1, State: relay.StateDelivered, EndedAt: time.Now()}, ""))
	}
	settled(t, first.Finish(under.ID, &relay.Attempt{N: 1, State: relay.StateDelivered, EndedAt: time.Now()}, ""))
	for _, s := range []*store.Store{first, second} { // both nodes give a replay the present time
		c, err := s.BeginReplay(t.Context(), relay.System(), queued[0], false)
		if err != nil {
			t.Fatal(err)
		}
		e, err := s.Event(t.Context(), relay.System(), queued[0], 0)
		if err != nil || time.Until(e.Attempts[c.N-1].ReceivedAt).Abs() > time.Minute {
			t.Errorf("a replay of now arrived at %v, %v", e.Attempts[c.N-1].ReceivedAt, err)
		}
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if list := nodesByName(t, second); len(list) != 1 {
		t.Errorf("after one stopped: %+v", list)
	}
	settled(t, second.Accept(eventAt(second, alias, time.Now(), relay.StateDelivering, "x")))
}

// A second server with the same data dir is refused, also on Postgres, because two servers must not write the
// same spool.
func TestOneDataDir(t *testing.T) {
	onEngines(t, func(t *testing.T, o store.Options) {
		mustServe(t, o)
		err := mustOpen(t, o).LockDataDir()
		if err == nil || !strings.Contains(err.Error(), o.DataDir) || !strings.Contains(err.Error(), "--data-dir") {
			t.Errorf("a second server got %v", err)
		}
	})
}

// A node that an operator drains or resumes learns that with its next heartbeat. The last serving node
// cannot be drained.
func TestNodeIsDrained(t *testing.T) {
	t.Parallel()
	o := store.Options{URL: schematest.URL(t), DataDir: t.TempDir(), Log: testLog(t), NodeName: "a"}
	a, ctx, who := mustServe(t, o), t.Context(), relay.System()
	var refused *relay.Error
	if err := a.DrainNode(ctx, who, "a", true); !errors.As(err, &refused) || refused.Code != relay.CodeConflict {
		t.Errorf("the only node: %v", err)
	}
	o.DataDir, o.NodeName = t.TempDir(), "b"
	b, drained := mustServe(t, o), make(chan bool, 4)
	a.OnDrain(func(on bool) { drained <- on })
	for _, on := range []bool{true, false} {
		if err := b.DrainNode(ctx, who, "a", on); err != nil {
			t.Fatal(err)
		}
		if got := <-drained; got != on {
			t.Errorf("told %v, want %v", got, on)
		}
		want := map[bool]string{true: relay.NodeDraining, false: relay.NodeServing}[on]
		if n := nodesByName(t, b)["a"]; n.State != want {
			t.Errorf("its state is %s, want %s", n.State, want)
		}
		eventually(t, "the other node knows", func() bool { return b.HasOtherNodes() != on })
	}
	if err := b.DrainNode(ctx, who, "nobody", true); !errors.Is(err, relay.ErrNotFound) {
		t.Errorf("an unknown node: %v", err)
	}
	a.Leaving()
	if err := b.DrainNode(ctx, who, "a", false); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the node that stops is draining", func() bool { return nodesByName(t, b)["a"].State == relay.NodeDraining })
}

// If one node cannot connect to another, every node, operator command and doctor lists that other node as
// unreachable. It stays listed until the connection works again, or the node that could not connect has
// stopped.
func TestNodeIsUnreachable(t *testing.T) {
	t.Parallel()
	o := store.Options{URL: schematest.URL(t), DataDir: t.TempDir(), Log: testLog(t), NodeName: "a"}
	a := mustServe(t, o)
	o.DataDir, o.NodeName = t.TempDir(), "b"
	b := mustServe(t, o)
	eventually(t, "the nodes know each other", func() bool { return a.HasOtherNodes() && b.HasOtherNodes() })
	o.NoCreate = true
	operator := mustOpen(t, o)
	stateOf := func(name, want string) {
		t.Helper()
		for who, s := range map[string]*store.Store{"a": a, "b": b, "an operator": operator} {
			eventually(t, name+" is "+want+" for "+who, func() bool { return nodesByName(t, s)[name].State == want })
		}
	}
	b.NodeReachable(a.NodeID(), false)
	b.NodeReachable("gone", false)
	stateOf("a", relay.NodeUnreachable)
	stateOf("b", relay.NodeServing)
	if f := findings(t, operator)["nodes"]; f.Verdict != relay.VerdictFail || !strings.Contains(f.Reason, "a cannot be reached from b:") {
		t.Errorf("doctor: %+v", f)
	}
	b.NodeReachable(a.NodeID(), true)
	stateOf("a", relay.NodeServing)
	b.NodeReachable(a.NodeID(), false)
	stateOf("a", relay.NodeUnreachable)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a is reached by all that are left", func() bool { return nodesByName(t, a)["a"].State == relay.NodeServing })
}

// TestNodeHearsNothing: doctor reports a node that receives no notices from Postgres, for example through a
// pooler in transaction mode, unless it has just started.
func TestNodeHearsNothing(t *testing.T) {
	t.Parallel()
	o := store.Options{URL: schematest.URL(t), DataDir: t.TempDir(), Log: testLog(t)}
	if err := mustServe(t, o).Close(); err != nil {
		t.Fatal(err)
	}
	o.NoCreate = true
	operator := mustOpen(t, o)
	ahead := time.Now().Add(time.Hour) // keeps the row alive although the node has no process
	addNode(t, o, "a/1", "a", ahead)
	for age, verdict := range map[time.Duration]string{time.Second: relay.VerdictOK, time.Hour: relay.VerdictWarn} {
		if _, err := database(t, o).Exec(`UPDATE nodes SET feed = 'polling', started_at = $1`, ahead.Add(-age).UnixMicro()); err != nil {
			t.Fatal(err)
		}
		if f := findings(t, operator)["nodes"]; f.Verdict != verdict || strings.Contains(f.Reason, "a gets no notices") != (verdict == relay.VerdictWarn) || strings.Contains(f.Fix, "--database-direct-url") != (verdict == relay.VerdictWarn) {
			t.Errorf("%v after its start: %+v", age, f)
		}
	}
}

// A node detects that a newer program has changed the schema, logs that once, and continues.
func TestNodeNoticesANewerSchema(t *testing.T) {
	t.Parallel()
	var log relaytest.Buffer
	o := store.Options{URL: schematest.URL(t), DataDir: t.TempDir(), Log: slog.New(slog.NewTextHandler(&log, nil))}
	s := mustServe(t, o)
	if n := s.NewerSchema(); n != 0 {
		t.Errorf("schema %d is newer", n)
	}
	if _, err := database(t, o).Exec(`INSERT INTO goose_db_version (version_id, is_applied) VALUES (999, true)`); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the newer schema is noticed", func() bool { return s.NewerSchema() == 999 })
	lines := func() int { return strings.Count(log.String(), "newer relayd has changed the schema") }
	eventually(t, "the line, which is written after that", func() bool { return lines() > 0 })
	seen := func() (last time.Time) {
		for _, n := range nodesByName(t, s) {
			last = n.LastSeenAt
		}
		return last
	}
	for range 2 { // the second heartbeat begins after the first has logged what it noticed
		before := seen()
		eventually(t, "a heartbeat", func() bool { return seen().After(before) })
	}
	if lines() != 1 {
		t.Errorf("the log says %q", log.String())
	}
	settled(t, s.Accept(eventAt(s, withAlias(t, s), time.Now(), relay.StateDelivering, "x")))
}

// A start may have to wait for a locked table longer than the time after which other nodes declare a node dead.
// The starting node keeps sending heartbeats during this wait.
func TestBeatDuringASlowStart(t *testing.T) {
	t.Parallel()
	o := store.Options{URL: schematest.URL(t), DataDir: t.TempDir(), Log: testLog(t), NodeName: "a", Version: "v1"}
	s := mustOpen(t, o)
	if _, _, err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	db := database(t, o)
	for range 5 { // a start waits for a lock for at most 1.8 s, which may be too short on a busy machine
		lock := begun(t, db, `LOCK TABLE events IN ACCESS EXCLUSIVE MODE`)
		s, served, beat := mustOpen(t, o), make(chan error, 1), 0
		go func() { served <- s.Serve(t.Context(), deaf) }()
		eventually(t, "the node renews its beat, or its start fails", func() bool {
			if blocks(t, db, lock, "") {
				_ = db.QueryRow(`SELECT beat FROM nodes ORDER BY started_at DESC`).Scan(&beat)
			}
			return beat > 2 || len(served) > 0
		})
		if err := lock.Rollback(); err != nil {
			t.Fatal(err)
		}
		err := <-served
		if beat > 2 && err == nil {
			return
		}
		t.Log(beat, err)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Error("the beat stands still during the start")
}

// A node has claimed attempts from the queue of an alias, and another node takes over the tunnel of that
// alias. The attempts are interrupted and queued again; claims of other aliases stay.
func TestTakeoverSweepsClaims(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	first := mustServe(t, store.Options{URL: url, DataDir: t.TempDir(), Log: testLog(t), NodeName: "a"})
	second := mustServe(t, store.Options{URL: url, DataDir: t.TempDir(), Log: testLog(t), NodeName: "b"})
	aliases := []int64{withAlias(t, first)}
	other, err := first.CreateAlias(t.Context(), relay.System(), "other", "alice")
	if err != nil {
		t.Fatal(err)
	}
	aliases = append(aliases, other.ID)
	attach := func(s *store.Store, alias int64, id string) {
		t.Helper()
		if _, err := s.StoreTunnels(t.Context(), []relay.TunnelWrite{{Op: relay.TunnelAttach, TunnelRecord: relay.TunnelRecord{
			TunnelInfo: relay.TunnelInfo{ID: id, Since: time.Now()}, Alias: alias, State: relay.TunnelOnline,
		}}}); err != nil {
			t.Fatal(err)
		}
	}
	var claimed []relay.ID
	for i, alias := range aliases {
		settled(t, first.Accept(oldEvent(first, alias, "queued", relay.StateQueued)))
		attach(first, alias, fmt.Sprint("tun_", i))
		mayClaim(t, first)
		c, err := first.Next(relay.NextClaim{Alias: alias, Auto: true, Tunnel: fmt.Sprint("tun_", i)})
		if err != nil || c == nil {
			t.Fatalf("claimed %+v, %v", c, err)
		}
		claimed = append(claimed, c.Event.ID)
	}
	attach(second, aliases[0], "tun_b")
	for i, want := range []string{relay.StateQueued, relay.StateDelivering} {
		if e, err := second.Event(t.Context(), relay.System(), claimed[i], 0); err != nil || e.State != want || len(e.Attempts) != 2-i {
			t.Errorf("alias %d: %+v, %v; want %s", i, e, err, want)
		}
	}
	mayClaim(t, second)
	c, err := second.Next(relay.NextClaim{Alias: aliases[0], Auto: true, Tunnel: "tun_b"})
	if err != nil || c == nil || c.Event.ID != claimed[0] || c.N != 2 {
		t.Errorf("at the new node: %+v, %v", c, err)
	}
}

// RefreshPeers adds a node that has just started to the list of another node.
func TestRefreshPeers(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	first := mustServe(t, store.Options{URL: url, DataDir: t.TempDir(), Log: testLog(t), NodeName: "a"})
	for n, name := range []string{"b", "c", "d"} {
		mustServe(t, store.Options{URL: url, DataDir: t.TempDir(), Log: testLog(t), NodeName: name})
		first.RefreshPeers(t.Context())
		if peers := first.Peers(); len(peers) != n+1 {
			t.Errorf("after the start of %s it knows %v", name, peers)
		}
	}
}

// A node knows the number of connections that each account has at another node. It forgets these numbers when
// that node stops.
func TestConnectionsElsewhere(t *testing.T) {
	t.Parallel()
	url, here := schematest.URL(t), map[int64]int{}
	var mu sync.Mutex
	open := func(name string) *store.Store {
		s := mustOpen(t, store.Options{URL: url, DataDir: t.TempDir(), Log: testLog(t), NodeName: name})
		s.SetConnections(func() map[int64]int { mu.Lock(); defer mu.Unlock(); return maps.Clone(here) })
		if _, _, err := s.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.Serve(t.Context(), deaf); err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := open("a")
	second := mustServe(t, store.Options{URL: url, DataDir: t.TempDir(), Log: testLog(t), NodeName: "b"})
	eventually(t, "the second node hears notices", func() bool {
		peers := first.Peers()
		return len(peers) == 1 && peers[0].Feed == "listening"
	})
	var took []time.Duration
	begun := time.Now()
	for _, want := range []map[int64]int{{1: 3, 12: 200}, {12: 1}, {}, {1: 1}, {1: 2}, {}} {
		changed := time.Now()
		mu.Lock()
		here = want
		mu.Unlock()
		eventually(t, "the connections are known", func() bool {
			return second.ConnectionsElsewhere(1) == want[1] && second.ConnectionsElsewhere(12) == want[12]
		})
		took = append(took, time.Since(changed))
	}
	slices.Sort(took)
	t.Logf("known at the other node after %v", took)
	if most := relaytest.Limit(500*time.Millisecond, begun); took[len(took)/2] > most {
		t.Errorf("most changes were known at the other node later than after %v", most)
	}
	mu.Lock()
	here = map[int64]int{1: 3}
	mu.Unlock()
	eventually(t, "the connection is known", func() bool { return second.ConnectionsElsewhere(1) == 3 })
	// After a failover, or after a renewal whose answer was lost, the row of the node may differ from the
	// values that the node wrote last. The node then has to write them again.
	db := database(t, store.Options{URL: url})
	if _, err := db.Exec(`UPDATE nodes SET accounts = '1:200' WHERE name = 'a'`); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the connection is written again", func() bool {
		return count(t, db, `SELECT COUNT(*) FROM nodes WHERE name = 'a' AND accounts = '1:3'`) == 1
	})
	if first.ConnectionsElsewhere(1) != 0 {
		t.Error("a node counts its own connections as those of another one")
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the connections of the stopped node are forgotten", func() bool { return second.ConnectionsElsewhere(1) == 0 })
}

// A start has to change rows of the killed node of the same name. If the transaction of a lost connection still
// locks these rows, the start waits, instead of failing with "canceling statement due to lock timeout".
func TestStartBesideAnAbandonedLock(t *testing.T) {
	t.Parallel()
	for name, lock := range map[string]string{
		"node":   `SELECT 1 FROM nodes FOR UPDATE`,
		"tunnel": `SELECT 1 FROM tunnels FOR UPDATE`,
		"event":  `SELECT 1 FROM events FOR UPDATE`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := store.Options{URL: schematest.URL(t), DataDir: t.TempDir(), Log: testLog(t), NodeName: "a", Version: "v1"}
			first := mustServe(t, o)
			alias, db := withAlias(t, first), database(t, o)
			e := eventAt(first, alias, time.Now(), relay.StateDelivering, "x")
			settled(t, first.Accept(e))
			id := first.NodeID()
			if err := first.Close(); err != nil {
				t.Fatal(err)
			}
			// The rows have the values that a killed node leaves behind.
			addNode(t, o, id, "a", time.Now())
			if err := begun(t, db, `UPDATE events SET state = 1`,
				`UPDATE attempts SET state = 1, claim_node = '`+id+`'`,
				`INSERT INTO tunnels VALUES (1, 't1', '`+id+`', 1, 'bob', 1, 'ssh', '', '', '', 0, 'online', 0)`,
			).Commit(); err != nil {
				t.Fatal(err)
			}
			abandoned := begun(t, db, lock)
			next := mustOpen(t, o)
			if _, _, err := next.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			served := make(chan error, 1)
			go func() { served <- next.Serve(t.Context(), func([]relay.Change) {}) }()
			eventually(t, "the start waits for the lock", func() bool { return blocks(t, db, abandoned, "") || len(served) > 0 })
			select {
			case err := <-served:
				t.Fatalf("the start did not wait for the lock: %v", err)
			case <-time.After(4 * time.Second): // twice the lock_timeout of a statement
			}
			if err := abandoned.Rollback(); err != nil {
				t.Fatal(err)
			}
			if err := <-served; err != nil {
				t.Fatal(err)
			}
			if list := nodesByName(t, next); len(list) != 1 || list["a"].ID != next.NodeID() || list["a"].Tunnels != 0 {
				t.Errorf("the nodes after the start: %+v", list)
			}
			got, err := next.Event(t.Context(), relay.System(), e.ID, 0)
			if err != nil || got.State != relay.StateInterrupted {
				t.Errorf("the event of the predecessor: %+v, %v", got, err)
			}
		})
	}
}

// After several starts, at most two names of former nodes are kept. An attempt of the first start still shows
// the name of its node.
func TestNamesOfFormerNodesDoNotPileUp(t *testing.T) {
	onEngines(t, func(t *testing.T, o store.Options) {
		o.NodeName = "left"
		var id relay.ID
		for i := range 4 {
			s := mustServe(t, o)
			if i == 0 {
				e := eventAt(s, withAlias(t, s), time.Now(), relay.StateDelivering, "x")
				settled(t, s.Accept(e))
				settled(t, s.Finish(e.ID, &relay.Attempt{N: 1, State: relay.StateDelivered, EndedAt: time.Now(), HasResponse: true, Status: 200}, ""))
				id = e.ID
			}
			if i < 3 {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				continue
			}
			e, err := s.Event(t.Context(), relay.System(), id, 0)
			if err != nil || len(e.Attempts) != 1 || e.Attempts[0].Node != "left" {
				t.Errorf("%+v, %v", e, err)
			}
		}
		var n int
		if err := database(t, o).QueryRow(`SELECT COUNT(*) FROM node_names`).Scan(&n); err != nil || n > 2 {
			t.Errorf("%d names, %v", n, err)
		}
	})
}
