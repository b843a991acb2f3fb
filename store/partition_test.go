package store

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/relaytest"
	"relay/store/db"
	"relay/store/events"
	"relay/store/partition"
	"relay/store/pgtest"
	"relay/store/plantest"
)

// openMigrated opens a migrated store without starting its server.
func openMigrated(t *testing.T, o Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if _, _, err := s.db.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// dropPartitions drops the partitions of a day by SQL.
func dropPartitions(t *testing.T, s *Store, day partition.Day) {
	t.Helper()
	if _, err := s.db.Slow.ExecContext(t.Context(), `DROP TABLE `+partition.Tables("", day.Of(""))); err != nil {
		t.Fatal(err)
	}
}

// today returns the day that is d days after the present one.
func today(d int) partition.Day {
	return partition.Day(time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, d))
}

// makePartitions calls partition.Make, and calls it again when a statement exceeds its limit of 300 ms, as a
// server does.
func makePartitions(t *testing.T, s *Store) {
	t.Helper()
	err := partition.Make(t.Context(), s.db, s.log, time.Now())
	for late := time.Now().Add(time.Minute); db.IsLocked(err) && time.Now().Before(late); {
		err = partition.Make(t.Context(), s.db, s.log, time.Now())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// While a long reader of events runs, a missing partition cannot be made. A try to make it gives up soon, and
// neither the start nor inserts wait for the partition. It is made when the reader has ended.
func TestPartitionsBesideAReader(t *testing.T) {
	t.Parallel()
	o := Options{URL: pgtest.URL(t), DataDir: t.TempDir()}
	s := openMigrated(t, o)
	makePartitions(t, s)
	newest := today(partition.Ahead)
	dropPartitions(t, s, newest)
	other, err := sql.Open("postgres", o.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	reader, err := other.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reader.Rollback() }()
	if _, err := reader.ExecContext(t.Context(), `SELECT 1 FROM events LIMIT 1`); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := s.Serve(t.Context(), func([]relay.Change) {}); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > relaytest.Limit(2500*time.Millisecond, began) {
		t.Errorf("the start took %v", took)
	}
	if err := partition.Make(t.Context(), s.db, s.log, time.Now()); !db.IsLocked(err) {
		t.Errorf("partitions beside a reader: %v", err)
	}
	insertsBeside(t, s)
	if f := partition.Examine(s.db.Session(t.Context(), s.db.Slow), time.Now()); f.Verdict != relay.VerdictWarn || !strings.Contains(f.Reason, newest.String()) {
		t.Errorf("doctor says %+v", f)
	}
	if err := reader.Rollback(); err != nil {
		t.Fatal(err)
	}
	makePartitions(t, s)
	if f := partition.Examine(s.db.Session(t.Context(), s.db.Slow), time.Now()); f.Verdict != relay.VerdictOK {
		t.Errorf("doctor says %+v", f)
	}
	samePartitions(t, s, today(0), newest)
}

// insertsBeside stores events while another goroutine tries to make partitions. It fails the test if the
// inserts wait for these tries.
func insertsBeside(t *testing.T, s *Store) {
	t.Helper()
	tries := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(tries)
		for ctx.Err() == nil {
			_ = partition.Make(ctx, s.db, s.log, time.Now())
		}
	}()
	begun := time.Now()
	var times []time.Duration
	for range 50 {
		began := time.Now()
		ticket := s.Accept(&relay.Event{
			ID: s.NewID(), AliasID: 1, ReceivedAt: time.Now(), State: relay.StateQueued,
			Request:  relay.Message{Body: relay.Body{State: relay.BodyComplete}},
			Attempts: []relay.Attempt{{N: 1, State: relay.StateQueued, ReceivedAt: time.Now()}},
		})
		<-ticket.Done()
		if err := ticket.Err(); err != nil {
			t.Fatal(err)
		}
		times = append(times, time.Since(began))
	}
	cancel()
	<-tries
	f := events.LatencyOf(times)
	t.Logf("events beside it: p50 %v, p99 %v, max %v", f.P50, f.P99, f.Max)
	if limit := relaytest.Limit(db.TableWait/2, begun); f.P95 >= limit {
		t.Errorf("events waited for partitions: %v, more than %v", f, limit)
	}
}

// samePartitions fails the test if two days differ in columns, compression, indexes or storage parameters.
func samePartitions(t *testing.T, s *Store, a, b partition.Day) {
	t.Helper()
	describe := func(table string) (lines []string) {
		q := s.db.Session(t.Context(), s.db.Slow)
		if err := q.All(&lines, `SELECT attname || ' ' || atttypid::regtype || ' ' || attnotnull || ' ' || attcompression::text FROM pg_attribute
			WHERE attrelid = to_regclass(?) AND attnum > 0
			UNION ALL SELECT replace(pg_get_indexdef(indexrelid), ?, 'day') || ' ' || indisprimary || ' ' || (SELECT COUNT(*) FROM pg_inherits h WHERE h.inhrelid = indexrelid)
				FROM pg_index WHERE indrelid = to_regclass(?)
			UNION ALL SELECT COALESCE(array_to_string(reloptions, ','), '') FROM pg_class WHERE oid = to_regclass(?) ORDER BY 1`,
			table, table, table, table); err != nil {
			t.Fatal(err)
		}
		return lines
	}
	for _, table := range []string{"events", "attempts", "payloads", "body_chunks"} {
		one, other := fmt.Sprint(describe(a.Of(table))), fmt.Sprint(describe(b.Of(table)))
		if one != other || !strings.Contains(one, "PRIMARY") && !strings.Contains(one, "true 1") {
			t.Errorf("%s:\n%s\n%s", table, one, other)
		}
	}
}

// A day gets no partition of its own while events of that day are in the default partition. Other days still get
// theirs.
func TestADayStaysInTheDefaultPartition(t *testing.T) {
	t.Parallel()
	s := openMigrated(t, Options{URL: pgtest.URL(t), DataDir: t.TempDir()})
	makePartitions(t, s)
	dropPartitions(t, s, today(0))
	dropPartitions(t, s, today(1))
	q := s.db.Session(t.Context(), s.db.Slow)
	if _, err := q.Exec(`INSERT INTO events (`+plantest.EventColumns+`) VALUES (?, 1, 1, 1, '', 0, 'POST', '', 1, '', '', '', '', 0, 0, 0, '', '', 0, NULL, 1, 0, '', 0)`,
		events.LowestID(time.Now())); err != nil {
		t.Fatal(err)
	}
	makePartitions(t, s)
	if missing, err := partition.Missing(q, time.Now()); err != nil || len(missing) != 1 || missing[0] != today(0) {
		t.Errorf("missing: %v, %v", missing, err)
	}
	var rows int
	if err := q.Get(&rows, `SELECT COUNT(*) FROM events_default`); err != nil || rows != 1 {
		t.Errorf("%d events in the default partition, %v", rows, err)
	}
}

// An event waits to be inserted into the default partition while the partition of its day is attached. The
// default partition then refuses the row, but the event is stored.
func TestRowThatMeetsANewPartition(t *testing.T) {
	t.Parallel()
	o := Options{URL: pgtest.URL(t), DataDir: t.TempDir(), SpoolLimit: 8 << 20}
	s := openMigrated(t, o)
	if err := s.Serve(t.Context(), func([]relay.Change) {}); err != nil {
		t.Fatal(err)
	}
	system := relay.System()
	_, err := s.CreateAccount(t.Context(), system, "alice", false)
	if err == nil {
		_, err = s.CreateAlias(t.Context(), system, "hooks", "alice")
	}
	other, openErr := sql.Open("postgres", o.URL)
	if err != nil || openErr != nil {
		t.Fatal(err, openErr)
	}
	t.Cleanup(func() { _ = other.Close() })
	day := today(partition.Ahead + 5) // a day for which no loop makes a partition
	first, next := day.IDs()
	attach, err := other.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = attach.Rollback() }()
	var pid int
	if err := attach.QueryRow(`SELECT pg_backend_pid()`).Scan(&pid); err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		fmt.Sprintf(`CREATE TABLE %s (LIKE events INCLUDING ALL)`, day.Of("events")),
		fmt.Sprintf(`ALTER TABLE events ATTACH PARTITION %s FOR VALUES FROM ('%x') TO ('%x')`, day.Of("events"), first[:], next[:]),
	} {
		if _, err := attach.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	id := first
	id[15] = 1
	now := time.Now()
	ticket := s.Accept(&relay.Event{
		ID: id, AliasID: 1, ReceivedAt: now, State: relay.StateQueued, Request: relay.Message{Body: relay.Body{State: relay.BodyComplete}},
		Attempts: []relay.Attempt{{N: 1, State: relay.StateQueued, ReceivedAt: now}},
	})
	waits := false
	relaytest.Until(t, 30*time.Second, "the row", func() bool {
		select {
		case <-ticket.Done(): // on a busy machine the step waited too long and is in the spool
			return true
		default:
		}
		err := other.QueryRow(`SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid)))`, pid).Scan(&waits)
		return err == nil && waits
	})
	if err := attach.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := wait(ticket); err != nil {
		t.Errorf("the caller gets %v", err)
	}
	relaytest.Until(t, 30*time.Second, "the event in the database", func() bool {
		_, err := s.Event(t.Context(), system, id, 0)
		return err == nil
	})
	if left, err := filepath.Glob(filepath.Join(o.DataDir, "spool-refused*")); err != nil || len(left) > 0 {
		t.Errorf("put aside: %v, %v", left, err)
	}
}
