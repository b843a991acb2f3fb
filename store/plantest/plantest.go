// Package plantest asks Postgres for the query plan of each statement of a store, and fills a store with so
// many events that a bad plan shows.
package plantest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"relay/store/db"
	"relay/store/events"
)

// Planner asks Postgres for the plan of each statement before it runs.
type Planner struct {
	driver.Connector

	mu   sync.Mutex
	seen map[string]string
}

func (p *Planner) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := p.Connector.Connect(ctx)
	return plannedConn{c, p}, err
}

type plannedConn struct {
	driver.Conn
	planner *Planner
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

func (p *Planner) explain(ctx context.Context, c driver.Conn, query string, args []driver.NamedValue) error {
	if !explained.MatchString(query) {
		return nil
	}
	found, err := c.(driver.QueryerContext).QueryContext(ctx, `EXPLAIN `+query, args)
	if err != nil {
		return fmt.Errorf("explain %s: %w", query, err)
	}
	var plan strings.Builder
	line := make([]driver.Value, 1)
	for found.Next(line) == nil {
		fmt.Fprintf(&plan, "%s\n", line[0])
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen[query] = plan.String()
	return found.Close()
}

// Planned runs an operation, and fails the test for statements that read a whole table or sort much of
// it.
func (p *Planner) Planned(t testing.TB, what string, do func() error) {
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

// faultOfPlan returns the fault of a plan, "" = none. A plan may read whole partitions of a table, which have
// one day each, but not more than planSlice of them. It may not sort more than planSliceMost rows.
func faultOfPlan(plan string) string {
	read := map[string]int{}
	for _, m := range wholeScan.FindAllStringSubmatch(plan, -1) {
		if read[m[1]]++; read[m[1]] > planSlice {
			return "reads all of " + m[1]
		}
	}
	for _, m := range sorted.FindAllStringSubmatch(plan, -1) {
		if n, err := strconv.Atoi(m[1]); err != nil || n > planSliceMost {
			return "sorts " + m[1] + " rows"
		}
	}
	return ""
}

const (
	rows = 20_000
	days = 9 // the events are spread over so many days
	// planSlice is the number of days that one query of a list reads at most, for the alias that has half of
	// all events.
	planSlice = planSliceMost/(rows/2/days) + 2
)

// Attach makes the database d run its statements through a Planner. The store of d must not serve yet.
func Attach(t testing.TB, d *db.DB) *Planner {
	t.Helper()
	dsn, err := d.ListenAddress()
	if err != nil {
		t.Fatal(err)
	}
	connector, err := pq.NewConnector(dsn)
	if err != nil {
		t.Fatal(err)
	}
	p := &Planner{Connector: connector, seen: map[string]string{}}
	planned := sqlx.NewDb(sql.OpenDB(p), "postgres")
	t.Cleanup(func() { _ = planned.Close() })
	pool := d.Write
	t.Cleanup(func() { _ = pool.Close() })
	d.Write, d.Read = planned, planned
	return p
}

// Seen returns the plans of the statements that the last operation ran. The statements are the keys.
func (p *Planner) Seen() map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.seen)
}

// Fill stores events of twenty aliases that must exist. Half of the events belong to the fourth alias; one in 250 is queued.
func Fill(t testing.TB, d *db.DB) {
	t.Helper()
	ctx := t.Context()
	begin := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -1).UnixMilli()
	step := (days * 24 * time.Hour / rows).Milliseconds()
	conn, err := d.Slow.Conn(ctx) // the statements take long, and only this connection has the temporary table
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	for _, statement := range append([]string{
		fmt.Sprintf(`CREATE TEMP TABLE x AS SELECT i, ms * 1000 AS at, 1 + CASE WHEN i %% 2 = 0 THEN 3 ELSE i %% 20 END AS alias,
			CASE WHEN i %% 500 <= 1 THEN 0 ELSE 2 END AS state,
			(lpad(to_hex(ms >> 16), 8, '0') || lpad(to_hex(ms & 65535), 4, '0') || '70008000' || lpad(to_hex(i), 12, '0'))::uuid AS id
			FROM (SELECT i, %d + i * %d AS ms FROM generate_series(0, %d::bigint) i) times`, begin, step, rows-1),
		`INSERT INTO events (` + EventColumns + `) SELECT id, alias, at, at, '', 0, 'POST', '/', 1, '', '', '', '', 0, 0, state, '', '', 200, 1, 1, 1, '', 5 FROM x`,
		`INSERT INTO attempts (` + events.AttemptColumns + `) SELECT id, 1, alias, 0, state, at, at, at, '', '', '', 0, 0, 'new', 1, NULL, 1, 200, 'complete', 'n', 1, 10 FROM x`,
		FillQueue,
		`INSERT INTO payloads (` + events.PayloadColumns + `) SELECT id, n, '/', NULL, 0, 0, '/', 0, 1, 1, NULL, 'complete', NULL, NULL FROM x, (VALUES (0), (1)) v (n)`,
	}, AnalyzeTables...) {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			t.Fatal(statement, err)
		}
	}
}

// FillQueue is the statement that fills the queue from the queued attempts.
const FillQueue = `INSERT INTO queue (event_id, n, alias_id, received_at, kind, released, bytes)
	SELECT event_id, n, alias_id, received_at, kind, released, bytes FROM attempts WHERE state = 0`

// planSliceMost is the largest number of rows of an alias that one query of a list may read.
const planSliceMost = 4096

// AnalyzeTables are the statements that collect statistics of the tables that tests fill. ANALYZE without a
// table also covers the tables of Postgres itself, and two such statements can deadlock.
var AnalyzeTables = []string{`ANALYZE aliases`, `ANALYZE events`, `ANALYZE attempts`, `ANALYZE queue`, `ANALYZE payloads`}

// EventColumns are the columns of the table events that Fill and other tests set when they insert events.
// Columns that are added later have defaults.
const EventColumns = `id, alias_id, received_at, asked_at, remote, tls, method, target, http_minor, host,
	provider_name, provider_type, provider_delivery, signed_at, tolerance_us,
	state, error_code, error_message, status, latency_us, attempts, ended_n, blocker, req_size`
