package retention

import (
	"context"
	"fmt"
	"time"

	"relay/store/db"
	"relay/store/events"
	"relay/store/partition"
)

const (
	dropAgain = time.Minute
	dayLook   = 5 * time.Minute // time limit for reading all rows of a day; longer than usual, because no caller waits
)

// dropDays drops the partitions of days whose events have all expired. A drop is much cheaper than deleting
// the rows and frees the space at once. A day that cannot be dropped does not prevent the drop of other days.
// Postgres only.
func (r *Retention) dropDays(ctx context.Context, now time.Time) (total int, err error) {
	if !r.db.Dialect.SeveralNodes() || now.Sub(r.daysTried) < dropAgain && now.Sub(r.daysTried) >= 0 {
		return 0, nil
	}
	r.daysTried = now
	days, err := db.Read(ctx, r.db, "list partitions", partition.Days)
	if err != nil {
		return 0, err
	}
	var first error
	for _, day := range days {
		if !day.End().AddDate(0, 0, 1).Before(now) {
			continue // yesterday and later days stay, because partition.Make would make their partitions again
		}
		n, err := r.dropDay(ctx, day, now)
		switch {
		case db.IsLocked(err): // the next try is a minute later
			r.log.Debug("the partitions of a day are in use and not dropped yet", "day", day.String())
		case ctx.Err() != nil:
			return total, err
		case err != nil && first == nil:
			first = fmt.Errorf("drop partitions of %s: %w", day, err)
		}
		total += n
	}
	return total, first
}

// dropDay drops the partitions of one day, unless they contain an event that has not expired.
func (r *Retention) dropDay(ctx context.Context, day partition.Day, now time.Time) (dropped int, err error) {
	// The statements below read all rows of the day, so they use the handle Slow, which has no short timeouts.
	// Unlike View, they do not call Away themselves.
	if err := r.db.Away(); err != nil {
		return 0, r.db.Fault("look at a day", err)
	}
	look, cancel := context.WithTimeout(ctx, dayLook)
	defer cancel()
	q := r.db.Session(look, r.db.Slow)
	keep, err := dayStays(q, day, now, r.opt.Age)
	if err != nil || keep {
		return 0, r.db.Fault("look at a day", err)
	}
	var weights []dayWeight
	if err := q.All(&weights, `SELECT c.alias_id, c.events, COALESCE(b.bytes, 0) AS bytes
		FROM (SELECT alias_id, COUNT(*) AS events FROM `+day.Of("events")+` GROUP BY alias_id) c
		LEFT JOIN (SELECT e.alias_id, CAST(SUM(`+events.PayloadBytes+`) AS BIGINT) AS bytes
			FROM `+day.Of("payloads")+` p JOIN `+day.Of("events")+` e ON e.id = p.event_id GROUP BY e.alias_id) b USING (alias_id)`); err != nil {
		return 0, r.db.Fault("look at a day", err)
	}
	err = r.db.Update(ctx, "drop a day", func(c *db.Tx) (err error) {
		keep, err = dropTables(c, day, now, r.opt.Age)
		for _, w := range weights {
			if !keep {
				c.NoteFreed(w.Alias, w.Bytes)
			}
		}
		return err
	})
	if err != nil || keep {
		return 0, err
	}
	for _, w := range weights {
		dropped += w.Events
		r.counts.Bytes.Add(w.Bytes)
	}
	r.counts.Days.Add(1)
	r.counts.Expired.Add(int64(dropped))
	r.log.Info("the partitions of a day of old events were dropped", "day", day.String(), "events", dropped)
	return dropped, nil
}

// dayWeight is the number and size of the events of one alias on one day.
type dayWeight struct {
	Alias  int64 `db:"alias_id"`
	Events int   `db:"events"`
	Bytes  int64 `db:"bytes"`
}

// dayStays reports whether a day has an event that has not expired; see heldEvents. It reads only a
// few rows by indexes, because it is called again while the tables are locked. Events of a removed
// alias have expired; those of an alias without retention never expire.
func dayStays(q db.Query, day partition.Day, now time.Time, retention time.Duration) (stays bool, err error) {
	span := `COALESCE(al.retention_us, ?)`
	first, next := day.IDs()
	err = q.Get(&stays, `SELECT EXISTS (SELECT 1 FROM aliases al WHERE (`+span+` = 0 OR ? - `+span+` < ?)
			AND EXISTS (SELECT 1 FROM `+day.Of("events")+` e WHERE e.alias_id = al.id))
		OR EXISTS (SELECT 1 FROM queue w JOIN aliases al ON al.id = w.alias_id WHERE w.event_id >= ? AND w.event_id < ?)
		OR EXISTS (SELECT 1 FROM `+day.Of("attempts")+` a JOIN aliases al ON al.id = a.alias_id WHERE a.state = 1)
		OR EXISTS (SELECT 1 FROM event_marks em WHERE em.event_id >= ? AND em.event_id < ? AND em.pinned = 1)
		OR EXISTS (SELECT 1 FROM shares sh WHERE sh.event_id >= ? AND sh.event_id < ? AND (sh.expires_at = 0 OR sh.expires_at > ?))`,
		retention.Microseconds(), db.Micros(now), retention.Microseconds(), db.Micros(day.End()),
		first, next, first, next, first, next, db.Micros(now))
	return stays, err
}

// dropTables locks the tables and drops the partitions of a day. Before the drop, it checks again whether all
// events of the day have expired; if not, it drops nothing and returns true.
func dropTables(c *db.Tx, day partition.Day, now time.Time, retention time.Duration) (keep bool, err error) {
	for _, statement := range []string{
		fmt.Sprintf(`SET LOCAL statement_timeout = %d`, db.TableWait.Milliseconds()),
		`LOCK TABLE ` + partition.Tables("ONLY ", "") + ` IN ACCESS EXCLUSIVE MODE`,
		`LOCK TABLE ` + partition.Tables("", "_default") + `, ` + partition.Tables("", day.Of("")) + ` IN ACCESS EXCLUSIVE MODE`,
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
	first, next := day.IDs()
	for _, table := range []string{"queue", "shares", "event_marks"} { // only removed aliases can have rows in the queue of such a day
		c.Do(`DELETE FROM `+table+` WHERE event_id >= ? AND event_id < ?`, first, next)
	}
	c.Do(`DROP TABLE ` + partition.Tables("", day.Of("")))
	return false, nil
}
