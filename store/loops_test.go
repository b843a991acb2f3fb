package store

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"relay"
	"relay/relaytest"
	"relay/store/cluster"
	"relay/store/db"
	"relay/store/events"
	"relay/store/partition"
	"relay/store/schematest"
	"relay/store/spool"
)

// testCluster is a number of nodes on one Postgres.
type testCluster struct {
	*testing.T
	nodes []*Store
	alias int64
	heard []*atomic.Int64 // number of changes that each node has heard of
}

func newTestCluster(t *testing.T, nodes int, o Options) *testCluster {
	t.Helper()
	c := &testCluster{T: t}
	for range nodes {
		o.DataDir = t.TempDir()
		s, heard := openMigrated(t, o), &atomic.Int64{}
		s.SetRunning(func() map[relay.AttemptRef]bool { return nil })
		if err := s.Serve(t.Context(), func(list []relay.Change) { heard.Add(int64(len(list))) }); err != nil {
			t.Fatal(err)
		}
		c.nodes, c.heard = append(c.nodes, s), append(c.heard, heard)
	}
	return c
}

func (c *testCluster) withAlias() *testCluster {
	c.Helper()
	s, ctx := c.nodes[0], c.Context()
	if _, err := s.CreateAccount(ctx, relay.System(), "alice", false); err != nil {
		c.Fatal(err)
	}
	a, err := s.CreateAlias(ctx, relay.System(), "hooks", "alice")
	if err != nil {
		c.Fatal(err)
	}
	c.alias = a.ID
	return c
}

// another makes one more alias of the account.
func (c *testCluster) another(name string) int64 {
	c.Helper()
	a, err := c.nodes[0].CreateAlias(c.Context(), relay.System(), name, "alice")
	if err != nil {
		c.Fatal(err)
	}
	return a.ID
}

// holdEvictions gives the leases of the loops that remove events to the first node, which has no limits and so
// removes nothing. Nodes that are opened later remove events only when the test runs a loop.
func (c *testCluster) holdEvictions() {
	c.Helper()
	for _, lease := range []string{cluster.LeaseRetention, cluster.LeaseEviction, cluster.LeaseAccounts} {
		c.exec(`INSERT INTO leases (name, holder, until) VALUES (?, ?, ?)
			ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until`, lease, c.nodes[0].NodeID(), db.Micros(time.Now().Add(time.Hour)))
	}
}

// add stores n events in the given state, each with a body of size bytes. They arrived at the time at or shortly
// after it. The start of an attempt is ahead of the clock, so that no node takes the attempt for one whose
// process is gone while the test prepares its input.
func (c *testCluster) add(n, size int, at time.Time, state string) (ids []relay.ID) {
	c.Helper()
	s := c.nodes[0]
	var tickets []*relay.Ticket
	for i := range n {
		arrived := at.Add(time.Duration(i) * time.Millisecond)
		id, ms := s.NewID(), arrived.UnixMilli()
		binary.BigEndian.PutUint32(id[0:], uint32(ms>>16))
		binary.BigEndian.PutUint16(id[4:], uint16(ms))
		e := &relay.Event{
			ID: id, AliasID: c.alias, ReceivedAt: arrived, State: state, Method: "POST", Target: []byte("/"),
			Request:  relay.Message{Body: relay.Body{Data: make([]byte, size), Size: int64(size), State: relay.BodyComplete}},
			Attempts: []relay.Attempt{{N: 1, Kind: relay.KindOriginal, State: state, ReceivedAt: arrived, StartedAt: time.Now().Add(time.Hour)}},
		}
		for i := range e.Request.Body.Data { // the bytes cannot be compressed
			e.Request.Body.Data[i] = byte(i * i >> 3)
		}
		ids, tickets = append(ids, id), append(tickets, s.Accept(e))
	}
	for _, ticket := range tickets {
		if err := wait(ticket); err != nil {
			c.Fatal(err)
		}
	}
	return ids
}

func (c *testCluster) exec(query string, args ...any) {
	c.Helper()
	if err := c.nodes[0].db.Execute(c.Context(), "", query, args...); err != nil {
		c.Fatal(err)
	}
}

func (c *testCluster) count(query string) (n int) {
	c.Helper()
	if err := c.nodes[0].db.Read.Get(&n, query); err != nil {
		c.Fatal(err)
	}
	return n
}

// anyNumber is the want of a loop whose result depends on the day or on the bytes that a row takes.
const anyNumber = -1

// loopCases define for each loop its input and the check of its result.
var loopCases = map[string]struct {
	prepare func(*testCluster)
	result  string // query for a number that must be the same with one node and with three
	want    int    // that number, or anyNumber
}{
	"changes by others": {func(c *testCluster) {
		c.exec(`INSERT INTO revisions (at, origin, kind, alias_id, n, account_id, credential) VALUES (1, 'other', 'alias', 7, 0, 0, '')`)
	}, `SELECT COUNT(*) FROM revisions WHERE origin = 'other'`, 1},
	"free space of the disk": {func(*testCluster) {}, `SELECT 1`, 1},
	"results written late": {func(c *testCluster) {
		c.nodes[0].NoteLogin(relay.Actor{Kind: relay.ActorSSH, Account: 1, Credential: "key_1"}, "192.0.2.1:1")
	}, `SELECT COUNT(*) FROM audit WHERE action = 'login.ssh'`, 1},
	"claims that nobody runs": {func(c *testCluster) {
		id := c.add(1, 10, time.Now().Add(-time.Hour), relay.StateDelivering)[0]
		c.exec(`UPDATE attempts SET from_queue = 1, started_at = 1 WHERE event_id = ?`, id)
	}, `SELECT 10 * COUNT(*) + SUM(state) FROM attempts`, 24}, // afterwards one attempt is interrupted, and a second one is queued
	"claims of dead nodes": {func(c *testCluster) {
		id := c.add(1, 10, time.Now(), relay.StateDelivering)[0]
		c.exec(`UPDATE attempts SET claim_node = 'gone', from_queue = 1 WHERE event_id = ?`, id)
	}, `SELECT 10 * COUNT(*) + SUM(state) FROM attempts`, 24},
	"events that are too old": {func(c *testCluster) {
		old := c.add(40, 10, time.Now().Add(-48*time.Hour), relay.StateDelivering)
		c.exec(`UPDATE attempts SET state = 2`)
		c.exec(`UPDATE events SET state = 2`)
		c.exec(`INSERT INTO event_marks (alias_id, event_id, pinned, label, note) VALUES (?, ?, 1, '', '')`, c.alias, old[3])
		c.add(3, 10, time.Now(), relay.StateQueued)
	}, `SELECT COUNT(*) FROM events`, 4},
	"events beyond the storage of an alias": {func(c *testCluster) {
		c.add(120, 20<<10, time.Now().Add(-time.Hour), relay.StateDelivering)
		c.exec(`UPDATE attempts SET state = 2`)
		c.exec(`UPDATE events SET state = 2`)
	}, `SELECT COUNT(*) FROM events`, anyNumber},
	"owners and limits of accounts": {func(c *testCluster) {
		for _, s := range c.nodes {
			s.usage.Heard(relay.ChangeAccount, 0, "")
		}
	}, `SELECT 1`, 1},
	"events beyond the storage of an account": {func(c *testCluster) {
		c.exec(`UPDATE accounts SET max_storage = ?`, 1<<20)
		c.alias = c.another("other")
		for _, s := range c.nodes {
			s.usage.Heard(relay.ChangeAccount, 0, "")
			if err := s.usage.ReadLimits(c.Context()); err != nil {
				c.Fatal(err)
			}
		}
		c.add(120, 20<<10, time.Now().Add(-time.Hour), relay.StateDelivering)
		c.exec(`UPDATE attempts SET state = 2`)
		c.exec(`UPDATE events SET state = 2`)
	}, `SELECT COUNT(*) FROM events`, anyNumber},
	"events of removed aliases": {func(c *testCluster) {
		c.add(20, 10, time.Now(), relay.StateQueued)
		if err := c.nodes[0].RemoveAlias(c.Context(), relay.System(), "hooks"); err != nil {
			c.Fatal(err)
		}
	}, `SELECT COUNT(*) FROM events`, 0},
	"partitions of the days to come": {func(c *testCluster) {
		c.exec(`DROP TABLE ` + partition.Tables("", partition.Day(time.Now().UTC().AddDate(0, 0, 2)).Of("")))
	}, `SELECT COUNT(*) FROM pg_inherits WHERE inhparent = 'events'::regclass`, anyNumber},
	"rows that have expired": {func(c *testCluster) {
		c.exec(`INSERT INTO audit (at, actor, account_id, subject_id, action, target, detail) SELECT 1, 'x', 7, 7, 'x', '', '' FROM generate_series(1, 500)`)
		c.exec(`INSERT INTO audit (at, actor, account_id, subject_id, action, target, detail) SELECT ?, 'x', 8, 8, 'x', '', '' FROM generate_series(1, ?)`, db.Micros(time.Now()), auditRows+100)
	}, `SELECT COUNT(*) FROM audit WHERE action = 'x'`, auditRows},
	"bodies without an event": {func(c *testCluster) {
		for _, age := range []time.Duration{time.Hour, 48 * time.Hour} {
			c.exec(`INSERT INTO body_chunks (event_id, n, i, data) VALUES (?, 0, 0, '')`, events.LowestID(time.Now().Add(-age)))
		}
	}, `SELECT COUNT(*) FROM body_chunks`, 1},
}

// Each loop has the same result with one node and with three nodes that run it at the same moment, as may
// happen around the end of a lease.
func TestLoopsOnSeveralNodes(t *testing.T) {
	t.Parallel()
	for _, l := range (&Store{clusterStore: &clusterStore{}, eventRetention: &eventRetention{}, db: &db.DB{Dialect: db.Postgres{}}, opt: Options{MaxAliasStorage: 1, AccountLimits: true}, spool: spool.New(spool.Options{Limit: 1})}).loops(cluster.RevisionMark{}) {
		if l.run != nil {
			continue // the work of a loop with its own schedule concerns only its own node
		}
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			given, known := loopCases[l.name]
			if !known {
				t.Fatal("loopCases does not say what the loop does")
			}
			results := map[int]int{}
			for _, n := range []int{1, 3} {
				o := Options{URL: schematest.URL(t)}
				newTestCluster(t, 1, o).holdEvictions() // so that no node removes events while the test prepares them
				o.MaxAliasStorage, o.AccountLimits, o.Retention = 1<<20, true, 24*time.Hour
				c := newTestCluster(t, n, o).withAlias()
				given.prepare(c)
				// A round may stop at its time limit before its work is done. So the loop runs until a round changes nothing.
				for before, changed := -1, true; changed; before = results[n] {
					c.allAtOnce(l.name)
					results[n] = c.count(given.result)
					changed = results[n] != before
				}
			}
			if results[1] != results[3] || given.want != anyNumber && results[1] != given.want {
				t.Errorf("%s: one node leaves %d, three leave %d, want %d", given.result, results[1], results[3], given.want)
			}
		})
	}
}

// allAtOnce runs a loop at each node at the same time, even at nodes without the lease.
func (c *testCluster) allAtOnce(name string) {
	c.Helper()
	begin := make(chan struct{})
	var ended sync.WaitGroup
	for _, s := range c.nodes {
		if !relaytest.Poll(time.Minute, func() bool { return s.MayClaim() == nil }) { // a node that did not run for three seconds, or had no database, leaves its work for a moment
			c.Fatal("a node may not claim")
		}
		last, err := s.LastRevision(c.Context())
		if err != nil {
			c.Fatal(err)
		}
		for _, l := range s.loops(last) {
			if l.name != name {
				continue
			}
			ended.Go(func() {
				<-begin
				err := l.round(c.Context(), s.db.Now())
				for tries := 0; db.Unavailable(err) != "" && tries < 10; tries++ { // a server runs the loop again, for example after a statement timeout
					err = l.round(c.Context(), s.db.Now())
				}
				if err != nil {
					c.Errorf("%s: %v", name, err)
				}
			})
		}
	}
	close(begin)
	ended.Wait()
}

// One or three nodes whose limit is below the bytes of an alias, or of an account with two aliases, evict at
// the same time. They remove hardly more bytes than needed, keep a pinned event, and evict the oldest events
// of both aliases of the account.
func TestEvictionOnSeveralNodes(t *testing.T) {
	t.Parallel()
	for _, of := range []string{"alias", "account"} {
		for _, n := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s, %d nodes", of, n), func(t *testing.T) {
				t.Parallel()
				evictOnNodes(t, of, n)
			})
		}
	}
}

func evictOnNodes(t *testing.T, of string, n int) {
	const limit, size = 1 << 20, 20 << 10
	o := Options{URL: schematest.URL(t)}
	before := newTestCluster(t, 1, o).withAlias()
	first := before.add(100, size, time.Now().Add(-time.Hour), relay.StateDelivering)
	if of == "account" {
		before.alias = before.another("other")
	}
	before.add(100, size, time.Now().Add(-time.Hour), relay.StateDelivering)
	before.exec(`UPDATE attempts SET state = 2`)
	before.exec(`UPDATE events SET state = 2`)
	before.exec(`INSERT INTO event_marks (alias_id, event_id, pinned, label, note) VALUES (?, ?, 1, '', '')`, before.nodes[0].aliasOf(t), first[0])
	before.holdEvictions()
	loop := "events beyond the storage of an " + of
	if of == "alias" {
		o.MaxAliasStorage = limit
	} else {
		o.MaxAccountStorage, o.AccountLimits = limit, true
	}
	c := newTestCluster(t, n, o)
	stored := func() int { return c.count(`SELECT SUM(` + events.PayloadBytes + `) FROM payloads`) }
	for _, s := range c.nodes {
		for s.usage.Total() < 200*size { // the node counts in the background
			<-time.After(10 * time.Millisecond)
		}
	}
	for c.allAtOnce(loop); stored() > limit; { // repeated, because a round may stop at its time limit while bytes are still over the limit
		c.allAtOnce(loop)
	}
	for _, s := range c.nodes { // the nodes now evict for a request
		_ = s.Capacity(c.nodes[0].aliasOf(t), size, time.Second)
	}
	if left := stored(); left < limit-limit/64-3*size {
		t.Errorf("%d nodes left %d bytes of %d", n, left, limit)
	}
	if c.count(`SELECT COUNT(*) FROM events e JOIN event_marks m ON m.event_id = e.id`) != 1 {
		t.Error("a pinned event is gone")
	}
	if of == "account" && c.count(`SELECT COUNT(DISTINCT alias_id) FROM events`) != 2 {
		t.Error("not the oldest events of all aliases went")
	}
}

func (s *Store) aliasOf(t *testing.T) (id int64) {
	t.Helper()
	if err := s.db.Read.Get(&id, `SELECT MIN(id) FROM aliases`); err != nil {
		t.Fatal(err)
	}
	return id
}

// Bodies without an event are not removed, however old they are, while any node has steps in its spool. While
// only a part of a spool is in the database, only bodies older than a month are removed.
func TestOrphansWaitForSpools(t *testing.T) {
	t.Parallel()
	s, _ := servedOnPostgres(t)
	now := time.Now()
	c := &testCluster{T: t, nodes: []*Store{s}}
	for _, age := range []time.Duration{25 * time.Hour, 31 * 24 * time.Hour} {
		c.exec(`INSERT INTO body_chunks (event_id, n, i, data) VALUES (?, 0, 0, '')`, events.LowestID(now.Add(-age)))
	}
	swept := func(when string, want int) {
		t.Helper()
		if n, err := s.SweepOrphans(t.Context(), now); err != nil || n != want {
			t.Errorf("%s: %d bodies were swept, want %d (%v)", when, n, want, err)
		}
	}
	s.spool.Active.Store(true)
	swept("own spool", 0)
	s.spool.Active.Store(false)
	c.exec(`INSERT INTO nodes (id, name, peer_addr, peer_key, version, schema_version, started_at, seen_at, beat, state, spool_steps, clock_offset_us, feed, unreachable) SELECT 'other', 'other', '', '', '', 1, 1, 1, 1, 'serving', 5, 0, '', ''`)
	swept("spool of another node", 0)
	c.exec(`UPDATE nodes SET spool_steps = 0 WHERE id = 'other'`)
	c.exec(`INSERT INTO spool_marks (spool, step) VALUES ('gone/1', 3)`)
	expired := func(at time.Time, left int) {
		t.Helper()
		if err := s.DropExpired(t.Context(), at); err != nil {
			t.Fatal(err)
		}
		var marks int
		if err := s.db.Read.Get(&marks, `SELECT COUNT(*) FROM spool_marks`); err != nil || marks != left {
			t.Errorf("%d marks are left, want %d (%v)", marks, left, err)
		}
	}
	expired(now.Add(29*24*time.Hour), 1)
	swept("a spool that was stored in part", 1)
	expired(now.Add(31*24*time.Hour), 0)
	swept("a spool whose rest never came", 1)
}

// A clock that is ahead deletes no event: neither if it jumps while the loops run, nor if the relay starts
// with it.
func TestLoopsDoubtTheClock(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"sqlite", "postgres"} {
		for _, when := range []string{"at the start", "while it runs"} {
			t.Run(engine+" "+when, func(t *testing.T) {
				t.Parallel()
				var ahead atomic.Int64
				o := Options{DataDir: t.TempDir(), Retention: 30 * 24 * time.Hour}
				if engine == "postgres" {
					o.URL = schematest.URL(t)
				}
				o.Now = func() time.Time { return time.Now().Round(0).Add(time.Duration(ahead.Load())) }
				begin := func() *Store {
					s := openMigrated(t, o)
					if err := s.Serve(t.Context(), func([]relay.Change) {}); err != nil {
						t.Fatal(err)
					}
					return s
				}
				s := begin()
				c := (&testCluster{T: t, nodes: []*Store{s}}).withAlias()
				c.add(1, 10, time.Now().Add(-time.Minute), relay.StateDelivering)
				c.exec(`UPDATE attempts SET state = 2`)
				c.exec(`UPDATE events SET state = 2`)
				if when == "at the start" {
					if err := s.Close(); err != nil {
						t.Fatal(err)
					}
				}
				ahead.Store(int64(31 * 24 * time.Hour))
				if when == "at the start" {
					s = begin()
					c.nodes[0] = s
				}
				for _, l := range s.loops(cluster.RevisionMark{}) {
					if l.when&sureClock == 0 {
						continue
					}
					for range 2 {
						if done, err := s.runRound(t.Context(), &l, true); done || err != nil {
							t.Errorf("%s: done %v, %v", l.name, done, err)
						}
					}
				}
				if n := c.count(`SELECT COUNT(*) FROM events`); n != 1 {
					t.Error("the event is gone")
				}
				ahead.Store(0) // the clock is corrected
				for _, l := range s.loops(cluster.RevisionMark{}) {
					if l.when&sureClock != 0 && l.when&noSpool == 0 {
						if done, err := s.runRound(t.Context(), &l, true); !done {
							t.Errorf("%s with the right clock: %v", l.name, err)
						}
					}
				}
			})
		}
	}
}

// TestClockJumpsInARound: if the clock jumps ahead just after a loop has checked it, nothing expires by the new time.
func TestClockJumpsInARound(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64 // of the clock in a round; the first one is the check
	calls.Store(math.MinInt64)
	o := Options{DataDir: t.TempDir(), Retention: 30 * 24 * time.Hour}
	o.Now = func() time.Time {
		now := time.Now().Round(0)
		if calls.Add(1) > 1 {
			now = now.Add(31 * 24 * time.Hour)
		}
		return now
	}
	s := openMigrated(t, o)
	c := (&testCluster{T: t, nodes: []*Store{s}}).withAlias()
	c.exec(`INSERT INTO idempotency (credential, key, target, node, created_at, status) VALUES ('c', 'k', '', '', ?, 200)`, db.Micros(time.Now().Add(-time.Minute)))
	c.exec(`INSERT INTO kept_names (name, account_id, until) VALUES ('gone', 1, ?)`, db.Micros(time.Now().Add(time.Hour)))
	ran := 0
	for _, l := range s.loops(cluster.RevisionMark{}) {
		if l.when&sureClock == 0 || l.when&noSpool != 0 {
			continue
		}
		calls.Store(0)
		if done, err := s.runRound(t.Context(), &l, true); !done {
			t.Errorf("%s: %v", l.name, err)
		}
		calls.Store(math.MinInt64)
		ran++
	}
	if n := c.count(`SELECT (SELECT COUNT(*) FROM idempotency) + (SELECT COUNT(*) FROM kept_names)`); n != 2 || ran < 2 {
		t.Errorf("%d rows are left after %d rounds", n, ran)
	}
}

// TestDoubtedClockGivesNothingAway: reservations in the database do not expire because of a clock that is ahead.
// The name of a removed alias stays reserved for its account, and a call with an Idempotency-Key of a minute ago
// is not carried out again.
func TestDoubtedClockGivesNothingAway(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"sqlite", "postgres"} {
		for _, when := range []string{"at the start", "while it runs"} {
			t.Run(engine+" "+when, func(t *testing.T) {
				t.Parallel()
				var ahead atomic.Int64
				o := Options{DataDir: t.TempDir(), AliasClaim: true}
				if engine == "postgres" {
					o.URL = schematest.URL(t)
				}
				o.Now = func() time.Time { return time.Now().Round(0).Add(time.Duration(ahead.Load())) }
				begin := func() *Store {
					s := openMigrated(t, o)
					if err := s.Serve(t.Context(), func([]relay.Change) {}); err != nil {
						t.Fatal(err)
					}
					return s
				}
				s := begin()
				people := map[string]relay.Actor{}
				for _, name := range []string{"former", "other"} {
					a, err := s.CreateAccount(t.Context(), relay.System(), name, false)
					if err != nil {
						t.Fatal(err)
					}
					people[name] = relay.Actor{Account: a.ID, AccountName: name, Name: name, Kind: relay.ActorUser, Scopes: relay.AllScopes, Credential: name}
				}
				if _, err := s.CreateAlias(t.Context(), people["former"], "gone", ""); err != nil {
					t.Fatal(err)
				}
				if err := s.RemoveAlias(t.Context(), people["former"], "gone"); err != nil {
					t.Fatal(err)
				}
				if _, _, err := s.BeginIdempotent(t.Context(), people["former"], "key", "target"); err != nil {
					t.Fatal(err)
				}
				if err := s.EndIdempotent(t.Context(), people["former"], "key", 200, []byte("{}")); err != nil {
					t.Fatal(err)
				}
				s.jumps.check(s.db.Now) // a loop calls check each second
				if when == "at the start" {
					if err := s.Close(); err != nil {
						t.Fatal(err)
					}
				}
				ahead.Store(int64(31 * 24 * time.Hour))
				if when == "at the start" {
					s = begin()
				}
				if _, err := s.ClaimAlias(t.Context(), people["other"], "gone"); err == nil {
					t.Error("the name of somebody else is given away")
				}
				if status, _, err := s.BeginIdempotent(t.Context(), people["former"], "key", "target"); status != 200 || err != nil {
					t.Errorf("the call would be done again: %d, %v", status, err)
				}
			})
		}
	}
}

// A start doubts a clock that is further ahead of the newest stored time than tolerated, or more than a
// minute ahead of the clock of Postgres.
func TestClockAtStart(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, c := range []struct {
		seen               time.Duration // age of the newest stored time
		database, tolerant time.Duration
		doubted            bool
	}{
		{0, 0, time.Hour, false},
		{59 * time.Minute, 0, time.Hour, false},
		{61 * time.Minute, 0, time.Hour, true},
		{11 * time.Minute, 0, 10 * time.Minute, true},
		{-time.Hour, 0, time.Hour, false},
		{0, 2 * time.Minute, time.Hour, true},
		{0, -2 * time.Minute, time.Hour, false},
		{0, 30 * time.Second, time.Hour, false},
	} {
		var l clockJumps
		l.begin(now, now.Add(-c.seen), c.database, c.tolerant)
		if got := l.recentJump(time.Now()); got != c.doubted {
			t.Errorf("%+v: doubted is %v", c, got)
		}
	}
	var l clockJumps
	if l.begin(now, time.Time{}, 0, time.Hour); l.recentJump(time.Now()) {
		t.Error("an empty store doubts the clock")
	}
}

// The newest revision that a node has read may be deleted for its age before the node reads the next one. The
// node must not take that for a failover.
func TestTidyingIsNoFailover(t *testing.T) {
	t.Parallel()
	s := openMigrated(t, Options{DataDir: t.TempDir()})
	heard := func() (kinds []string) {
		last, err := s.LastRevision(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		const row = `INSERT INTO revisions (at, origin, kind, alias_id, n, account_id, credential) VALUES (?, 'other', 'alias', ?, 0, 0, '')`
		if err := s.db.Execute(t.Context(), "", row, db.Micros(time.Now()), 9); err != nil {
			t.Fatal(err)
		}
		if err := s.DropExpired(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
		s.SetFeed(func(list []relay.Change) {
			for _, c := range list {
				kinds = append(kinds, string(c.Kind))
			}
		})
		if newest := s.PollRevisions(t.Context(), last); newest.ID != last.ID+1 {
			t.Errorf("read up to %d, not %d", newest.ID, last.ID+1)
		}
		<-s.Publish([]relay.Change{{Kind: "end"}})
		return kinds
	}
	old := time.Now().Add(-2 * cluster.RevisionLife)
	if err := s.db.Execute(t.Context(), "", `INSERT INTO revisions (at, origin, kind, alias_id, n, account_id, credential) VALUES (?, 'other', 'alias', 1, 0, 0, '')`, db.Micros(old)); err != nil {
		t.Fatal(err)
	}
	if kinds := strings.Join(heard(), " "); kinds != "alias end" {
		t.Errorf("heard %q", kinds)
	}
}

// auditRows is the number of entries kept for one action of one account, as in package retention.
const auditRows = 2000

// The audit log keeps auditRows entries of each action of each account. So neither other accounts nor other
// actions of the same account lose entries.
func TestAuditIsSharedByAccount(t *testing.T) {
	t.Parallel()
	s := openMigrated(t, Options{DataDir: t.TempDir()})
	c := &testCluster{T: t, nodes: []*Store{s}}
	add := func(account, rows int, action string) {
		c.exec(`WITH RECURSIVE k (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM k WHERE n < ?)
			INSERT INTO audit (at, actor, account_id, subject_id, action, target, detail) SELECT ?, 'x', ?, 1, ?, '', '' FROM k`, rows, db.Micros(time.Now()), account, action)
	}
	add(1, 3, "user.add")
	add(2, 3, "token.add")
	for _, action := range []string{"replay", "alias.set", "share.use"} {
		add(2, 3*auditRows, action)
	}
	add(1, 2, "alias.set")
	if err := s.DropExpired(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]int{
		`account_id = 1`: 5,
		`account_id = 2 AND action = 'token.add'`:  3,
		`account_id = 2 AND action = 'replay'`:     auditRows,
		`account_id = 2 AND action = 'alias.set'`:  auditRows,
		`account_id = 2 AND action <> 'token.add'`: 3 * auditRows,
	} {
		if n := c.count(`SELECT COUNT(*) FROM audit WHERE ` + query); n != want {
			t.Errorf("%s: %s", query, fmt.Sprintf("%d entries, want %d", n, want))
		}
	}
}
