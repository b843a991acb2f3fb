package store

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"relay"
	"relay/relaytest"
	"relay/store/db"
	"relay/store/events"
	"relay/store/plantest"
	"relay/store/schematest"
)

// Sizes of the store with many aliases.
const (
	manyAll    = 40_000 // number of all aliases
	manyOwn    = 5_000  // number of aliases of alice: every eighth one
	manyEvents = 20_000 // number of events, spread over aliases of both accounts and over manyDays
	manyDays   = 8
	manyQueued = 49 // one of 49 events is queued
)

// withManyAliases runs a test with a store on each engine. The store has manyAll aliases, inserted by
// SQL, and the test gets the owner of manyOwn of them.
func withManyAliases(t *testing.T, test func(t *testing.T, s *Store, alice relay.Actor)) {
	t.Helper()
	for name, o := range map[string]Options{
		"sqlite": {DataDir: t.TempDir()}, "postgres": {URL: schematest.URL(t), DataDir: t.TempDir()},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Open(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			if _, _, err := s.db.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			if err := s.Serve(t.Context(), func([]relay.Change) {}); err != nil {
				t.Fatal(err)
			}
			t.Log("serve", time.Since(began))
			test(t, s, fillManyAliases(t, s))
		})
	}
}

// fillManyAliases inserts accounts, aliases, events and attempts by SQL.
func fillManyAliases(t *testing.T, s *Store) relay.Actor {
	t.Helper()
	var owners [2]int64
	for i, name := range []string{"alice", "carol"} {
		a, err := s.CreateAccount(t.Context(), relay.System(), name, false)
		if err != nil {
			t.Fatal(err)
		}
		owners[i] = a.ID
	}
	numbers := func(n int) string {
		return fmt.Sprintf(`WITH RECURSIVE k (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM k WHERE i < %d) `, n)
	}
	begin := time.Now().Add(-(manyDays - 1) * 24 * time.Hour).UnixMilli()
	step := time.Since(time.UnixMilli(begin)).Milliseconds() / manyEvents
	id := fmt.Sprintf(`(lpad(to_hex((%[1]d + i * %[2]d) >> 16), 8, '0') || lpad(to_hex((%[1]d + i * %[2]d) & 65535), 4, '0') || '70008000' || lpad(to_hex(i), 12, '0'))::uuid`, begin, step)
	target := `convert_to('/hook/' || i, 'UTF8')`
	if !s.db.Dialect.SeveralNodes() {
		id = fmt.Sprintf(`unhex(printf('%%08x%%04x70008000%%012x', (%[1]d + i * %[2]d) >> 16, (%[1]d + i * %[2]d) & 65535, i))`, begin, step)
		target = `CAST('/hook/' || i AS BLOB)`
	}
	at := fmt.Sprintf(`(%d + i * %d) * CAST(1000 AS BIGINT)`, begin, step)
	state := fmt.Sprintf(`CASE WHEN i %% %d = 0 THEN 0 ELSE 2 END`, manyQueued)
	statements := []string{
		numbers(manyAll) + fmt.Sprintf(`INSERT INTO aliases (name, owner_id, created_at, offline_status, auto_deliver, host_header, forwarded, fresh_connections, paused)
			SELECT 'a' || i, CASE WHEN i %% %d = 0 THEN %d ELSE %d END, 1, 202, 0, 'preserve', 0, 0, 0 FROM k`, manyAll/manyOwn, owners[0], owners[1]),
		numbers(manyEvents) + fmt.Sprintf(`INSERT INTO events (`+plantest.EventColumns+`) SELECT %s, 1 + i * 7 %% %d, %s, %s, '', 0, CASE WHEN i %% 3 = 0 THEN 'GET' ELSE 'POST' END,
			%s, 1, '', '', '', '', 0, 0, %s, '', '', CASE WHEN i %% 50 = 1 THEN 404 ELSE 200 END, 1, 1, 1, '', 5 FROM k`, id, manyAll, at, at, target, state),
		numbers(manyEvents) + fmt.Sprintf(`INSERT INTO attempts (`+events.AttemptColumns+`) SELECT %s, 1, 1 + i * 7 %% %d, 0, %s, %s, 0, 0, '', '', '', 0, 0, 'new', 1, NULL, 1, 200,
			'complete', 'n', 1, 10 FROM k`, id, manyAll, state, at),
		plantest.FillQueue,
		numbers(manyEvents) + fmt.Sprintf(`INSERT INTO payloads (`+events.PayloadColumns+`) SELECT %s, 0, %s, NULL, 0, 0, %s, 0, 1, 1, NULL, 'complete', NULL, NULL FROM k`, id, target, target),
	}
	for _, statement := range append(statements, plantest.AnalyzeTables...) {
		if _, err := s.db.Slow.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%.60s: %v", statement, err)
		}
	}
	return relay.Actor{Account: owners[0], AccountName: "alice", Name: "alice", Kind: relay.ActorUser, Scopes: relay.AllScopes}
}

// With 40,000 aliases, a start reads aliases and queues within 10 s. The other operations on all aliases of
// an account, and filtered lists, keep their time limits too.
func TestManyAliases(t *testing.T) {
	t.Parallel()
	withManyAliases(t, func(t *testing.T, s *Store, alice relay.Actor) {
		began := time.Now()
		all, err := s.AllAliases(t.Context())
		if err != nil || len(all) != manyAll {
			t.Fatalf("%d aliases, %v", len(all), err)
		}
		stats, err := s.AllQueueStats(t.Context())
		if err != nil || len(stats) != manyEvents/manyQueued {
			t.Fatalf("%d aliases with a queue, %v", len(stats), err)
		}
		tookAtMost(t, "what a start reads", began, 10*time.Second)
		manyAliasesAtOnce(t, s, alice)
		manyFilters(t, s, alice)
	})
}

// tookAtMost fails the test if an operation took longer than bound, scaled by the load of the machine.
func tookAtMost(t *testing.T, what string, began time.Time, bound time.Duration) {
	t.Helper()
	took := time.Since(began)
	t.Logf("%s: %v", what, took.Round(time.Millisecond))
	if limit := relaytest.Limit(bound/2, began); took > limit {
		t.Errorf("%s took %v, more than %v", what, took, limit)
	}
}

// manyAliasesAtOnce checks reads of the queues and last events of all aliases of alice, and a write of all
// their tunnels.
func manyAliasesAtOnce(t *testing.T, s *Store, alice relay.Actor) {
	began := time.Now()
	own, err := s.Aliases(t.Context(), alice)
	if err != nil || len(own) != manyOwn {
		t.Fatalf("%d own aliases, %v", len(own), err)
	}
	ids := make([]int64, len(own))
	times := map[int64]time.Time{}
	for i := range own {
		ids[i] = own[i].ID
		times[ids[i]] = time.UnixMicro(int64(i)).UTC()
	}
	stats, err := s.QueueStats(t.Context(), ids)
	if err != nil || len(stats) != manyOwn {
		t.Fatalf("stats of %d aliases, %v", len(stats), err)
	}
	queued := 0
	for _, q := range stats {
		queued += q.Queued
	}
	last, err := s.LastEvents(t.Context(), ids)
	if err != nil {
		t.Fatal(err)
	}
	tookAtMost(t, "aliases with what waits and their last events", began, 2*time.Second)
	var want struct {
		Queued int `db:"queued"`
		Last   int `db:"last"`
	}
	if err := s.db.View(t.Context(), "", func(q db.Query) error {
		return q.Get(&want, `SELECT (SELECT COUNT(*) FROM attempts t JOIN aliases al ON al.id = t.alias_id WHERE t.state = 0 AND al.owner_id = ?) AS queued,
			(SELECT COUNT(DISTINCT e.alias_id) FROM events e JOIN aliases al ON al.id = e.alias_id WHERE al.owner_id = ?) AS last`, alice.Account, alice.Account)
	}); err != nil {
		t.Fatal(err)
	}
	if queued != want.Queued || len(last) != want.Last || queued == 0 || len(last) == 0 {
		t.Errorf("%d waiting, want %d; last events of %d, want %d", queued, want.Queued, len(last), want.Last)
	}
	began = time.Now()
	var writes []relay.TunnelWrite
	for id, at := range times {
		writes = append(writes, relay.TunnelWrite{At: at, TunnelRecord: relay.TunnelRecord{
			TunnelInfo: relay.TunnelInfo{ID: strconv.FormatInt(id, 10), Since: at}, Alias: id, State: relay.TunnelOnline,
		}})
	}
	if _, err := s.StoreTunnels(t.Context(), writes); err != nil {
		t.Fatal(err)
	}
	tookAtMost(t, "times of all tunnels", began, 5*time.Second)
	for _, i := range []int{1, manyOwn - 1} {
		if a, err := s.AliasByID(t.Context(), ids[i]); err != nil || !a.LastOnlineAt.Equal(times[ids[i]]) {
			t.Errorf("touched: %+v, %v", a, err)
		}
	}
}

// manyFilters checks that lists with different filters contain all matching events of alice once, and that
// each page keeps listPromise.
func manyFilters(t *testing.T, s *Store, alice relay.Actor) {
	const own = `SELECT COUNT(*) FROM events e JOIN aliases al ON al.id = e.alias_id WHERE al.owner_id = ? AND `
	middle := time.Now().Add(-manyDays * 12 * time.Hour)
	for _, c := range []struct {
		filter relay.Filter
		where  string
		args   []any
	}{
		{relay.Filter{}, `1 = 1`, nil},
		{relay.Filter{Alias: "a8"}, `al.name = 'a8'`, nil},
		{relay.Filter{Method: "get"}, `e.method = 'GET'`, nil},
		{relay.Filter{Status: "404"}, `e.status = 404`, nil},
		{relay.Filter{Status: "5xx"}, `e.status > 499`, nil},
		{relay.Filter{State: relay.StateQueued}, `e.state = 0`, nil},
		{relay.Filter{Path: "/hook/77"}, `e.target >= ? AND e.target < ?`, []any{[]byte("/hook/77"), []byte("/hook/78")}},
		{relay.Filter{Path: "/none"}, `1 = 0`, nil},
		{relay.Filter{Texts: []relay.TextFilter{{Text: "/hook/7777"}}}, `e.target >= ? AND e.target < ?`, []any{[]byte("/hook/7777"), []byte("/hook/7778")}},
		{relay.Filter{Since: middle}, `e.received_at >= ?`, []any{db.Micros(middle)}},
		{relay.Filter{Until: middle}, `e.received_at < ?`, []any{db.Micros(middle)}},
	} {
		var want int
		if err := s.db.View(t.Context(), "", func(q db.Query) error {
			return q.Get(&want, own+c.where, append([]any{alice.Account}, c.args...)...)
		}); err != nil {
			t.Fatal(err)
		}
		f := c.filter
		f.Limit = 200
		seen := map[relay.ID]bool{}
		pages, longest := 0, time.Duration(0)
		for {
			began := time.Now()
			page, err := s.Events(t.Context(), alice, f)
			if err != nil {
				t.Fatal(err)
			}
			took := time.Since(began)
			if limit := relaytest.Limit(listPromise, began); took > limit {
				t.Errorf("%+v: a page took %v, more than %v", c.filter, took, limit)
			}
			longest = max(longest, took)
			for _, e := range page.Events {
				if seen[e.ID] {
					t.Errorf("%+v: %s came twice", c.filter, e.ID)
				}
				seen[e.ID] = true
			}
			pages++
			if page.Next == "" {
				break
			}
			if page.Next == f.Cursor {
				t.Fatalf("%+v: the list does not move on", c.filter)
			}
			f.Cursor = page.Next
		}
		t.Logf("%+v: %d events on %d pages, the longest %v", c.filter, len(seen), pages, longest.Round(time.Millisecond))
		if len(seen) != want {
			t.Errorf("%+v: %d events, want %d", c.filter, len(seen), want)
		}
	}
}
