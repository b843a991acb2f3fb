package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"relay"
	"relay/store/db"
	"relay/store/events"
	"relay/store/pgtest"
	"relay/store/spool"
)

// planner asks Postgres how it would run each statement, before it is run.
type planner struct {
	driver.Connector

	mu   sync.Mutex
	seen map[string]string // plan by statement
}

func (p *planner) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := p.Connector.Connect(ctx)
	return plannedConn{c, p}, err
}

type plannedConn struct {
	driver.Conn
	planner *planner
}

func (c plannedConn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, o)
}

func (c plannedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if err := c.planner.explain(ctx, c.Conn, query, args); err != nil {
		return nil, err
	}
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}

func (c plannedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if err := c.planner.explain(ctx, c.Conn, query, args); err != nil {
		return nil, err
	}
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
}

var explained = regexp.MustCompile(`^(SELECT|WITH|INSERT|UPDATE|DELETE)`)

func (p *planner) explain(ctx context.Context, c driver.Conn, query string, args []driver.NamedValue) error {
	if !explained.MatchString(query) {
		return nil
	}
	rows, err := c.(driver.QueryerContext).QueryContext(ctx, `EXPLAIN `+query, args)
	if err != nil {
		return fmt.Errorf("explain %s: %w", query, err)
	}
	var plan strings.Builder
	line := make([]driver.Value, 1)
	for rows.Next(line) == nil {
		fmt.Fprintf(&plan, "%s\n", line[0])
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen[query] = plan.String()
	return rows.Close()
}

// planned runs an operation, and complains of statements that read a whole table or sort
// much of it.
func (p *planner) planned(t *testing.T, what string, do func() error) {
	t.Helper()
	p.mu.Lock()
	clear(p.seen)
	p.mu.Unlock()
	if err := do(); err != nil {
		t.Errorf("%s: %v", what, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.seen) == 0 {
		t.Errorf("%s: no statement was seen", what)
	}
	for query, plan := range p.seen {
		if fault := faultOfPlan(plan); fault != "" {
			t.Errorf("%s %s:\n%s\n%s", what, fault, strings.Join(strings.Fields(query), " "), plan)
		}
	}
}

var (
	wholeScan = regexp.MustCompile(`Seq Scan on (events|attempts|payloads)_[0-9]`)
	sorted    = regexp.MustCompile(`Sort  \(cost=[0-9.]+ rows=([0-9]+)`)
)

// faultOfPlan says what is wrong with a plan, "" for nothing. Days may be read from end to
// end where much of them is asked for, as many as a slice of a list spans, but not all.
func faultOfPlan(plan string) string {
	days := map[string]int{}
	for _, m := range wholeScan.FindAllStringSubmatch(plan, -1) {
		if days[m[1]]++; days[m[1]] > planSlice {
			return "reads all of " + m[1]
		}
	}
	for _, m := range sorted.FindAllStringSubmatch(plan, -1) {
		if rows, err := strconv.Atoi(m[1]); err != nil || rows > planSliceMost {
			return "sorts " + m[1] + " rows"
		}
	}
	return ""
}

const (
	planRows  = 20_000                                  // events of the store that the plans are for
	planDays  = 9                                       // they are spread over
	planSlice = planSliceMost/(planRows/2/planDays) + 2 // days that a slice of the alias with half of them is in
)

// Lists, queues and retention go by an index, and never through all that is stored.
func TestPostgresPlans(t *testing.T) {
	t.Parallel()
	s, p := storeWithPlans(t)
	who := fillForPlans(t, s)
	ctx, now := t.Context(), time.Now()
	var all []relay.ID
	if err := s.db.Read.Select(&all, `SELECT id FROM events ORDER BY id`); err != nil {
		t.Fatal(err)
	}
	middle := all[len(all)/2]
	for what, f := range map[string]relay.Filter{
		"first page": {}, "page in the middle": {Cursor: middle.String()}, "alias": {Alias: "a3"}, "rare alias": {Alias: "a2"},
		"status": {Status: "404"}, "state": {State: relay.StateQueued}, "method": {Method: "GET"}, "path": {Alias: "a3", Path: "/x"},
		"time": {Since: middle.Time(), Until: middle.Time().Add(time.Hour)}, "text": {Texts: []relay.TextFilter{{Text: "needle"}}}, "text of an alias": {Alias: "a3", Texts: []relay.TextFilter{{Text: "needle"}}},
	} {
		f.Budget = 50 * time.Millisecond
		for _, by := range []relay.Actor{who, relay.System()} {
			p.planned(t, "list by "+what, func() error { _, err := s.Events(ctx, by, f); return err })
		}
	}
	p.planned(t, "event", func() error { _, err := s.Event(ctx, who, middle, 100); return err })
	p.planned(t, "attempt", func() error {
		_, err := s.AttemptHeads(ctx, []relay.AttemptRef{{Event: middle, N: 1}, {Event: all[0], N: 1}})
		return err
	})
	p.planned(t, "summaries", func() error { _, err := s.Summaries(ctx, all[:200]); return err })
	p.planned(t, "figures", func() error { _, err := s.Figures(ctx, who, "a3", now.Add(-time.Hour), now, 10); return err })
	p.planned(t, "health", func() error {
		_, err := s.AliasHealth(ctx, who, []int64{1, 2, 3, 4}, now.Add(-time.Hour), 24)
		return err
	})
	p.planned(t, "queues", func() error { _, err := s.QueueStats(ctx, []int64{1, 2, 3, 4}); return err })
	p.planned(t, "positions", func() error {
		_, err := s.QueuePositions(ctx, 4, []relay.AttemptRef{{Event: middle, N: 1}})
		return err
	})
	p.planned(t, "replay", func() error { _, err := s.BeginReplay(ctx, who, middle, false); return err })
	p.planned(t, "claims", func() error { return claimTwice(ctx, s) })
	p.planned(t, "release", func() error { _, err := s.Release(ctx, who, "a3"); return err })
	p.planned(t, "start", func() error { return s.RaiseIDs(ctx) })
	p.planned(t, "sweep", func() error { _, err := s.Sweep(ctx); return err })
	p.planned(t, "delete", func() error { return s.DeleteEvent(ctx, who, all[1]) })
	p.planned(t, "removal of an alias", func() error {
		left := int64(2)
		_, err := s.removeOldest(ctx, holder{id: 3}, events.LastID, time.Time{}, func(*db.Tx) (int64, error) { left--; return left, nil }, nil)
		return err
	})
	p.planned(t, "orphans", func() error { _, _, err := s.orphansInPage(ctx, "payloads", relay.ID{}, middle); return err })
	p.planned(t, "retention", func() error {
		list, err := s.removalCandidates(ctx, holder{id: 4}, removalRange{before: middle, now: now})
		if err == nil {
			_, _, _, err = s.remove(ctx, holder{id: 4}, list, now, nil)
		}
		return err
	})
	p.planned(t, "retention of days", func() error { _, err := s.dropDays(ctx, now); return err })
}

// TestOldestQueuedByIndex: a claim reads the beginning of an alias' queue by the index, also
// before Postgres has statistics of the table. With the plain condition it read and sorted
// the whole queue of the alias for each claim.
func TestOldestQueuedByIndex(t *testing.T) {
	t.Parallel()
	s, p := storeWithPlans(t)
	for _, query := range []string{
		`ALTER TABLE queue SET (autovacuum_enabled = false)`,
		`INSERT INTO queue (event_id, n, alias_id, received_at, kind, released, bytes)
			SELECT gen_random_uuid(), 1, i % 20, i, 0, 1, 100 FROM generate_series(1, 10000) i`,
	} {
		if _, err := s.db.Write.Exec(query); err != nil {
			t.Fatal(err)
		}
	}
	var first []relay.ID
	p.planned(t, "oldest of two aliases", func() error {
		args := oldestOnPostgres.Args([][]any{{int64(3), int64(0)}, {int64(4), int64(1)}})
		return s.db.Write.Select(&first, `SELECT event_id FROM (`+oldestOnPostgres.Postgres+`) q`, args...)
	})
	for _, plan := range p.seen {
		if len(first) != 2 || !strings.Contains(plan, "Index Scan using queue_pkey") || strings.Contains(plan, "Sort") {
			t.Errorf("found %d, by the plan\n%s", len(first), plan)
		}
	}
}

// TestClaimedReadByKey: what is claimed is changed and read by its keys, also before Postgres
// has statistics of the tables. By the state of the attempts it read those of a whole day.
func TestClaimedReadByKey(t *testing.T) {
	t.Parallel()
	s, p := storeWithPlans(t)
	fillForPlans(t, s)
	// Only those of this schema: tests of others on the same server need theirs.
	if _, err := s.db.Write.Exec(`DELETE FROM pg_statistic WHERE starelid IN (
		SELECT inhrelid FROM pg_inherits JOIN pg_class ON oid = inhrelid WHERE relnamespace = current_schema()::regnamespace)`); err != nil {
		t.Fatal(err)
	}
	p.planned(t, "claimed", func() error { return claimTwice(t.Context(), s) })
	claims := 0
	for query, plan := range p.seen {
		if !strings.Contains(query, "claim_node = ") || !strings.Contains(query, "LATERAL (SELECT * FROM payloads") {
			continue
		}
		claims++
		for _, table := range []string{"events", "payloads", "attempts"} {
			if !regexp.MustCompile(`Index Scan using ` + table + `_[0-9]+_pkey`).MatchString(plan) {
				t.Errorf("%s is not read by its key: %s\n%s", table, query, plan)
			}
		}
	}
	if claims == 0 {
		t.Error("no claim was seen")
	}
}

// analyzeTables makes statistics of what tests fill. ANALYZE of all tables, those of Postgres
// included, can meet that of another test in a deadlock.
var analyzeTables = []string{`ANALYZE aliases`, `ANALYZE events`, `ANALYZE attempts`, `ANALYZE queue`, `ANALYZE payloads`}

// claimTwice claims attempts of two aliases in one transaction, and in the next one ends
// them together with the claims of the next ones.
func claimTwice(ctx context.Context, s *Store) error {
	first := []*step{
		{Step: spool.Step{Kind: claimStep, ID: relay.ID{1}}, claim: &queueClaim{NextClaim: relay.NextClaim{Alias: 4, Auto: true}}},
		{Step: spool.Step{Kind: claimStep, ID: relay.ID{2}}, claim: &queueClaim{NextClaim: relay.NextClaim{Alias: 2, Auto: true}}},
	}
	s.db.Journal = s.db.Write
	here := &writeTarget{db: s.db.Write, node: "here"}
	if _, err := s.writeStepsAs(ctx, here, first); err != nil {
		return err
	}
	var ends []*step
	for _, st := range first {
		got := st.claim.got
		if st.err != nil || got == nil {
			return fmt.Errorf("nothing was claimed for alias %d: %w", st.claim.Alias, st.err)
		}
		ends = append(ends, &step{Step: spool.Step{Kind: spool.Finish, ID: got.Event.ID, N: got.N, Attempt: &relay.Attempt{N: got.N, State: relay.StateDelivered}}, claim: &queueClaim{NextClaim: st.claim.NextClaim}})
	}
	if _, err := s.writeStepsAs(ctx, here, ends); err != nil {
		return err
	}
	if ends[0].err != nil || ends[0].claim.got == nil {
		return fmt.Errorf("nothing was claimed with the end: %w", ends[0].err)
	}
	return nil
}

// storeWithPlans gives a store that nobody serves, and what sees its statements.
func storeWithPlans(t *testing.T) (*Store, *planner) {
	t.Helper()
	o := Options{URL: pgtest.URL(t), DataDir: t.TempDir(), Retention: 1000 * time.Hour}
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if _, _, err := s.db.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	makePartitions(t, s)
	dsn, err := s.db.ListenAddress()
	if err != nil {
		t.Fatal(err)
	}
	connector, err := pq.NewConnector(dsn)
	if err != nil {
		t.Fatal(err)
	}
	p := &planner{Connector: connector, seen: map[string]string{}}
	db := sqlx.NewDb(sql.OpenDB(p), "postgres")
	t.Cleanup(func() { _ = db.Close() })
	pool := s.db.Write
	t.Cleanup(func() { _ = pool.Close() })
	s.db.Write, s.db.Read = db, db
	return s, p
}

// fillForPlans makes twenty aliases of one account, half of all events the fourth's, and
// one of 250 in the queue.
func fillForPlans(t *testing.T, s *Store) relay.Actor {
	t.Helper()
	ctx := t.Context()
	a, err := s.CreateAccount(ctx, relay.System(), "alice", false)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if _, err := s.CreateAlias(ctx, relay.System(), fmt.Sprint("a", i), "alice"); err != nil {
			t.Fatal(err)
		}
	}
	begin := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -1).UnixMilli()
	step := (planDays * 24 * time.Hour / planRows).Milliseconds()
	conn, err := s.db.Slow.Conn(ctx) // which may take long, and keeps the table
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	for _, statement := range append([]string{
		fmt.Sprintf(`CREATE TEMP TABLE x AS SELECT i, ms * 1000 AS at, 1 + CASE WHEN i %% 2 = 0 THEN 3 ELSE i %% 20 END AS alias,
			CASE WHEN i %% 500 <= 1 THEN 0 ELSE 2 END AS state,
			(lpad(to_hex(ms >> 16), 8, '0') || lpad(to_hex(ms & 65535), 4, '0') || '70008000' || lpad(to_hex(i), 12, '0'))::uuid AS id
			FROM (SELECT i, %d + i * %d AS ms FROM generate_series(0, %d::bigint) i) times`, begin, step, planRows-1),
		`INSERT INTO events (` + events.EventColumns + `) SELECT id, alias, at, at, '', 0, 'POST', '/', 1, '', '', '', '', 0, 0, state, '', '', 200, 1, 1, 1, '', 5 FROM x`,
		`INSERT INTO attempts (` + events.AttemptColumns + `) SELECT id, 1, alias, 0, state, at, at, at, '', '', '', 0, 0, 'new', 1, NULL, 1, 200, 'complete', 'n', 1, 10 FROM x`,
		fillQueue,
		`INSERT INTO payloads (` + events.PayloadColumns + `) SELECT id, n, '/', NULL, 0, 0, '/', 0, 1, 1, NULL, 'complete', NULL, NULL FROM x, (VALUES (0), (1)) v (n)`,
	}, analyzeTables...) {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			t.Fatal(statement, err)
		}
	}
	return relay.Actor{Account: a.ID, AccountName: a.Name, Name: a.Name, Kind: relay.ActorUser, Scopes: relay.AllScopes}
}

// fillQueue makes the queue of the queued attempts.
const fillQueue = `INSERT INTO queue (event_id, n, alias_id, received_at, kind, released, bytes)
	SELECT event_id, n, alias_id, received_at, kind, released, bytes FROM attempts WHERE state = 0`

// planSliceMost is how many rows of an alias one query of a list looks at, at most.
const planSliceMost = 4096
