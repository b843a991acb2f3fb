package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"relay"
	"relay/store/db"
	"relay/store/events"
)

const (
	partitionsAhead  = 3            // days that have partitions before they begin: each costs the plans of queries
	partitionLock    = 0x72656c6179 // advisory lock under which partitions are made
	partitionTimeout = 30 * time.Second
	attachTime       = 2 * time.Second // Postgres looks through the default partition, which it locks

	dropAgain = time.Minute
	dayLook   = 5 * time.Minute // at all of a day, while nobody waits
)

var partitioned = []struct{ table, options string }{
	{"events", " WITH (fillfactor = 90)"},
	{"attempts", " WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02)"},
	{"payloads", ""},
	{"body_chunks", ""},
}

// tables lists the partitioned tables, each name between a prefix and a suffix.
func tables(before, behind string) string {
	var list []string
	for _, p := range partitioned {
		list = append(list, before+p.table+behind)
	}
	return strings.Join(list, ", ")
}

// makePartitions makes the partitions of the days from yesterday to partitionsAhead days
// ahead. The range of a day is a range of UUIDv7. The default partitions take rows of other
// days, and of days whose partitions cannot be made, so an error does not prevent the service.
func (s *Store) makePartitions(ctx context.Context, now time.Time) error {
	if !s.db.Dialect.SeveralNodes() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, partitionTimeout)
	defer cancel()
	q := s.db.Session(ctx, s.db.Slow)
	missing, err := missingDays(q, now)
	if err != nil {
		return fmt.Errorf("list partitions: %w", err)
	}
	for _, day := range missing {
		err := s.makeDay(ctx, day)
		switch code := db.SQLState(err); {
		case code == "42P07": // duplicate_table: another process made it meanwhile
		case code == "23514": // check_violation
			s.log.Warn("a day stays in the default partition, because rows of that day are there already", "day", day.String())
		case err != nil:
			return fmt.Errorf("make partitions of %s: %w", day, err)
		}
	}
	return nil
}

// partitionDays lists the days that have partitions. The partitions of a day are made in one transaction,
// so it is enough to look at one table.
func partitionDays(q db.Query) (days []pastDay, err error) {
	var names []string
	err = q.All(&names, `SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
		WHERE i.inhparent = to_regclass('events') ORDER BY c.relname`)
	for _, name := range names {
		if day, err := time.Parse("events_20060102", name); err == nil {
			days = append(days, pastDay(day))
		}
	}
	return days, err
}

// missingDays lists the days from yesterday to partitionsAhead days ahead that have no
// partitions.
func missingDays(q db.Query, now time.Time) (missing []pastDay, err error) {
	days, err := partitionDays(q)
	if err != nil {
		return nil, err
	}
	first := now.UTC().Truncate(24*time.Hour).AddDate(0, 0, -1)
	for i := range partitionsAhead + 2 {
		if day := pastDay(first.AddDate(0, 0, i)); !slices.Contains(days, day) {
			missing = append(missing, day)
		}
	}
	return missing, nil
}

// makeDay makes the partitions of one day. CREATE TABLE … PARTITION OF would lock the
// whole table against everybody, behind every reader of it and before every writer. A
// table that is made by itself and then attached takes a lock that stops neither readers
// nor writers, but for that on the default partition: relayd waits for it for TableWait
// and tries again later. Names in DDL cannot be parameters; these consist of constants
// and digits.
func (s *Store) makeDay(ctx context.Context, day pastDay) error {
	tx, err := s.db.Slow.BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	statements := []string{
		fmt.Sprintf(`SET LOCAL statement_timeout = %d`, db.TableWait.Milliseconds()),
		// Behind a network failure the server keeps the locks of this transaction, for which writes wait.
		fmt.Sprintf(`SET LOCAL idle_in_transaction_session_timeout = %d`, attachTime.Milliseconds()),
		fmt.Sprintf(`SELECT pg_advisory_xact_lock(%d, hashtext(current_schema()))`, partitionLock&0x7fffffff),
	}
	for _, p := range partitioned {
		statements = append(statements, fmt.Sprintf(`CREATE TABLE %s (LIKE %s INCLUDING ALL)%s`, day.of(p.table), p.table, p.options))
	}
	statements = append(statements,
		`LOCK TABLE `+tables("ONLY ", "")+` IN SHARE UPDATE EXCLUSIVE MODE`,
		`LOCK TABLE `+tables("", "_default")+` IN ACCESS EXCLUSIVE MODE`,
		fmt.Sprintf(`SET LOCAL statement_timeout = %d`, attachTime.Milliseconds()))
	first, next := day.ids()
	for _, p := range partitioned {
		statements = append(statements, fmt.Sprintf(`ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM ('%x') TO ('%x')`,
			p.table, day.of(p.table), first[:], next[:]))
	}
	for _, statement := range statements {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return errors.Join(err, db.Rollback(tx))
		}
	}
	return tx.Commit()
}

// examinePartitions checks whether the next days have partitions, and whether the default
// partition has rows.
func (s *Store) examinePartitions(q db.Query) relay.Finding {
	if !s.db.Dialect.SeveralNodes() {
		return db.OKFinding("SQLite keeps all events in one table")
	}
	missing, err := missingDays(q, s.db.Now())
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
			"%d of %d days have no partition, the first is %s: %s", len(missing), partitionsAhead+2, missing[0], harm)
	case rows > 0:
		return db.OKFinding("all days to come have partitions; the default partition holds %d events or more", rows)
	}
	return db.OKFinding("all days to come have partitions")
}

// dropDays drops the partitions of days whose events have all expired. A drop is much cheaper
// than deleting the rows and frees the space at once. A day that cannot be dropped does not
// prevent the drop of other days. Postgres only.
func (s *Store) dropDays(ctx context.Context, now time.Time) (total int, err error) {
	if !s.db.Dialect.SeveralNodes() || now.Sub(s.daysTried) < dropAgain && now.Sub(s.daysTried) >= 0 {
		return 0, nil
	}
	s.daysTried = now
	days, err := db.Read(ctx, s.db, "list partitions", partitionDays)
	if err != nil {
		return 0, err
	}
	var first error
	for _, day := range days {
		if !day.end().AddDate(0, 0, 1).Before(now) {
			continue // makePartitions would make the partition of yesterday again
		}
		n, err := s.dropDay(ctx, day, now)
		switch {
		case db.IsLocked(err): // tried again in a minute
			s.log.Debug("a day is in use and not dropped yet", "day", day.String())
		case ctx.Err() != nil:
			return total, err
		case err != nil && first == nil:
			first = fmt.Errorf("drop partitions of %s: %w", day, err)
		}
		total += n
	}
	return total, first
}

// pastDay is a day that has partitions of its own.
type pastDay time.Time

// of returns the name of the partition of a table.
func (d pastDay) of(table string) string { return table + time.Time(d).Format("_20060102") }

// end returns the time at which the next day begins.
func (d pastDay) end() time.Time { return time.Time(d).AddDate(0, 0, 1) }

// ids returns the first id of the day, and that of the next one.
func (d pastDay) ids() (first, next relay.ID) {
	return events.LowestID(time.Time(d)), events.LowestID(d.end())
}

// String returns the date.
func (d pastDay) String() string { return time.Time(d).Format(time.DateOnly) }

// dropDay drops the partitions of one day unless an event in them has not expired.
func (s *Store) dropDay(ctx context.Context, day pastDay, now time.Time) (dropped int, err error) {
	// It reads all rows of the day, over a connection without the short timeouts of others.
	if err := s.db.Away(); err != nil {
		return 0, s.db.Fault("look at a day", err)
	}
	look, cancel := context.WithTimeout(ctx, dayLook)
	defer cancel()
	q := s.db.Session(look, s.db.Slow)
	keep, err := dayStays(q, day, now, s.opt.Retention)
	if err != nil || keep {
		return 0, s.db.Fault("look at a day", err)
	}
	var weights []dayWeight
	if err := q.All(&weights, `SELECT c.alias_id, c.events, COALESCE(b.bytes, 0) AS bytes
		FROM (SELECT alias_id, COUNT(*) AS events FROM `+day.of("events")+` GROUP BY alias_id) c
		LEFT JOIN (SELECT e.alias_id, CAST(SUM(`+events.PayloadBytes+`) AS BIGINT) AS bytes
			FROM `+day.of("payloads")+` p JOIN `+day.of("events")+` e ON e.id = p.event_id GROUP BY e.alias_id) b USING (alias_id)`); err != nil {
		return 0, s.db.Fault("look at a day", err)
	}
	err = s.db.Update(ctx, "drop a day", func(c *db.Tx) (err error) {
		keep, err = dropTables(c, day, now, s.opt.Retention)
		for _, w := range weights {
			if !keep {
				noteFreed(c, w.Alias, w.Bytes)
			}
		}
		return err
	})
	if err != nil || keep {
		return 0, err
	}
	for _, w := range weights {
		dropped += w.Events
		s.retentionCounts.bytes.Add(w.Bytes)
	}
	s.retentionCounts.days.Add(1)
	s.retentionCounts.expired.Add(int64(dropped))
	s.log.Info("a day of old events was dropped", "day", day.String(), "events", dropped)
	return dropped, nil
}

// dayWeight is the number and size of the events of one alias on one day.
type dayWeight struct {
	Alias  int64 `db:"alias_id"`
	Events int   `db:"events"`
	Bytes  int64 `db:"bytes"`
}

// dayStays reports whether an event of a day has not expired; see heldEvents. It reads only a few
// rows by indexes, because it is called again while the tables are locked. Events of a removed
// alias have expired; those of an alias without retention never expire.
func dayStays(q db.Query, day pastDay, now time.Time, retention time.Duration) (stays bool, err error) {
	span := `COALESCE(al.retention_us, ?)`
	first, next := day.ids()
	err = q.Get(&stays, `SELECT EXISTS (SELECT 1 FROM aliases al WHERE (`+span+` = 0 OR ? - `+span+` < ?)
			AND EXISTS (SELECT 1 FROM `+day.of("events")+` e WHERE e.alias_id = al.id))
		OR EXISTS (SELECT 1 FROM queue w JOIN aliases al ON al.id = w.alias_id WHERE w.event_id >= ? AND w.event_id < ?)
		OR EXISTS (SELECT 1 FROM `+day.of("attempts")+` a JOIN aliases al ON al.id = a.alias_id WHERE a.state = 1)
		OR EXISTS (SELECT 1 FROM event_marks em WHERE em.event_id >= ? AND em.event_id < ? AND em.pinned = 1)
		OR EXISTS (SELECT 1 FROM shares sh WHERE sh.event_id >= ? AND sh.event_id < ? AND (sh.expires_at = 0 OR sh.expires_at > ?))`,
		retention.Microseconds(), db.Micros(now), retention.Microseconds(), db.Micros(day.end()),
		first, next, first, next, first, next, db.Micros(now))
	return stays, err
}

// dropTables drops the partitions of a day, unless an event in them, now that the tables are
// locked, has not expired.
func dropTables(c *db.Tx, day pastDay, now time.Time, retention time.Duration) (keep bool, err error) {
	for _, statement := range []string{
		fmt.Sprintf(`SET LOCAL statement_timeout = %d`, db.TableWait.Milliseconds()),
		`LOCK TABLE ` + tables("ONLY ", "") + ` IN ACCESS EXCLUSIVE MODE`,
		`LOCK TABLE ` + tables("", "_default") + `, ` + tables("", day.of("")) + ` IN ACCESS EXCLUSIVE MODE`,
		`SET LOCAL statement_timeout = 0`,
	} {
		c.Do(statement)
	}
	if c.Err != nil {
		return false, c.Err
	}
	if keep, err := dayStays(c.Query, day, now, retention); err != nil || keep {
		return keep, err
	}
	first, next := day.ids()
	for _, table := range []string{"queue", "shares", "event_marks"} { // of the queue only what removed aliases had
		c.Do(`DELETE FROM `+table+` WHERE event_id >= ? AND event_id < ?`, first, next)
	}
	c.Do(`DROP TABLE ` + tables("", day.of("")))
	return false, nil
}
