// Package partition makes the partitions of Postgres that hold the events of one day each, and knows their
// names and ranges. SQLite keeps all events in one table.
package partition

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"relay"
	"relay/store/db"
	"relay/store/events"
)

const (
	// Ahead is the number of days whose partitions are made before the days begin. It is small, because
	// each partition makes query plans slower.
	Ahead        = 3
	advisoryLock = 0x72656c6179 // advisory lock under which partitions are made
	makeTimeout  = 30 * time.Second
	attachTime   = 2 * time.Second // time limit of attaching a partition; longer than usual, because Postgres locks and reads the default partition
)

var partitioned = []struct{ table, options string }{
	{"events", " WITH (fillfactor = 90)"},
	{"attempts", " WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02)"},
	{"payloads", ""},
	{"body_chunks", ""},
}

// Tables lists the partitioned tables for SQL. The text in the parameter before comes in front of each name,
// and the text in behind after it.
func Tables(before, behind string) string {
	var list []string
	for _, p := range partitioned {
		list = append(list, before+p.table+behind)
	}
	return strings.Join(list, ", ")
}

// Day is a day that has its own partitions.
type Day time.Time

// Of returns the name of the day's partition of a table.
func (d Day) Of(table string) string { return table + time.Time(d).Format("_20060102") }

// End returns the beginning of the next day.
func (d Day) End() time.Time { return time.Time(d).AddDate(0, 0, 1) }

// IDs returns the first id of the day, and the first id of the next day.
func (d Day) IDs() (first, next relay.ID) {
	return events.LowestID(time.Time(d)), events.LowestID(d.End())
}

// String returns the date.
func (d Day) String() string { return time.Time(d).Format(time.DateOnly) }

// Make makes the partitions of the days from yesterday to Ahead days ahead. The range of a day is a
// range of UUIDv7. The default partitions accept rows of other days, and of days whose partitions
// cannot be made, so an error does not stop the service.
func Make(ctx context.Context, d *db.DB, log *slog.Logger, now time.Time) error {
	if !d.Dialect.SeveralNodes() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, makeTimeout)
	defer cancel()
	q := d.Session(ctx, d.Slow)
	missing, err := Missing(q, now)
	if err != nil {
		return fmt.Errorf("list partitions: %w", err)
	}
	for _, day := range missing {
		err := MakeDay(ctx, d, day)
		switch code := db.SQLState(err); {
		case code == "42P07": // duplicate_table: another process has made the partition
		case code == "23514": // check_violation: the default partition has rows of that day
			log.Warn("events of a day stay in the default partition, because some of them are there already", "day", day.String())
		case err != nil:
			return fmt.Errorf("make partitions of %s: %w", day, err)
		}
	}
	return nil
}

// Days lists the days that have partitions. It reads the partitions of one table only, because the partitions
// of all tables for a day are made in one transaction.
func Days(q db.Query) (days []Day, err error) {
	var names []string
	err = q.All(&names, `SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
		WHERE i.inhparent = to_regclass('events') ORDER BY c.relname`)
	for _, name := range names {
		if day, err := time.Parse("events_20060102", name); err == nil {
			days = append(days, Day(day))
		}
	}
	return days, err
}

// Missing lists the days from yesterday to Ahead days ahead that have no partitions.
func Missing(q db.Query, now time.Time) (missing []Day, err error) {
	days, err := Days(q)
	if err != nil {
		return nil, err
	}
	first := now.UTC().Truncate(24*time.Hour).AddDate(0, 0, -1)
	for i := range Ahead + 2 {
		if day := Day(first.AddDate(0, 0, i)); !slices.Contains(days, day) {
			missing = append(missing, day)
		}
	}
	return missing, nil
}

// MakeDay makes the partitions of one day. It attaches tables that it has made separately, because CREATE
// TABLE … PARTITION OF locks the whole table exclusively: that statement waits for every reader, and every
// later statement waits for it. Attaching locks only the default partition. relayd waits at most TableWait for
// that lock, and tries again later. Names in DDL cannot be parameters; these names consist of constants and
// digits.
func MakeDay(ctx context.Context, d *db.DB, day Day) error {
	tx, err := d.Slow.BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	statements := []string{
		fmt.Sprintf(`SET LOCAL statement_timeout = %d`, db.TableWait.Milliseconds()),
		// After a network failure, Postgres keeps the locks of this transaction until this timeout, and
		// writes wait for them.
		fmt.Sprintf(`SET LOCAL idle_in_transaction_session_timeout = %d`, attachTime.Milliseconds()),
		fmt.Sprintf(`SELECT pg_advisory_xact_lock(%d, hashtext(current_schema()))`, advisoryLock&0x7fffffff),
	}
	for _, p := range partitioned {
		statements = append(statements, fmt.Sprintf(`CREATE TABLE %s (LIKE %s INCLUDING ALL)%s`, day.Of(p.table), p.table, p.options))
	}
	statements = append(statements,
		`LOCK TABLE `+Tables("ONLY ", "")+` IN SHARE UPDATE EXCLUSIVE MODE`,
		`LOCK TABLE `+Tables("", "_default")+` IN ACCESS EXCLUSIVE MODE`,
		fmt.Sprintf(`SET LOCAL statement_timeout = %d`, attachTime.Milliseconds()))
	first, next := day.IDs()
	for _, p := range partitioned {
		statements = append(statements, fmt.Sprintf(`ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM ('%x') TO ('%x')`,
			p.table, day.Of(p.table), first[:], next[:]))
	}
	for _, statement := range statements {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return errors.Join(err, db.Rollback(tx))
		}
	}
	return tx.Commit()
}

// Examine checks whether the next days have partitions, and whether the default partition has rows.
func Examine(q db.Query, now time.Time) relay.Finding {
	if !q.Dialect.SeveralNodes() {
		return db.OKFinding("SQLite keeps all events in one table")
	}
	missing, err := Missing(q, now)
	if err != nil {
		return db.UnknownFinding(err)
	}
	var rows int
	if err := q.Get(&rows, `SELECT COUNT(*) FROM (SELECT 1 FROM events_default LIMIT 100000) x`); err != nil {
		return db.UnknownFinding(err)
	}
	const harm = "events of such a day go to the default partition, from which they are deleted row by row when they expire"
	switch {
	case len(missing) > 0:
		return relay.Findingf(relay.VerdictWarn, "end the transaction that reads events for so long (pg_stat_activity shows it by xact_start): a server that runs tries again each minute; where none runs, start it",
			"%d of %d days have no partition, the first is %s: %s", len(missing), Ahead+2, missing[0], harm)
	case rows > 0:
		return db.OKFinding("all days to come have partitions; the default partition holds %d events or more", rows)
	}
	return db.OKFinding("all days to come have partitions")
}
