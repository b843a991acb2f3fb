package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lib/pq"
)

const (
	dropWait  = 300 * time.Millisecond // for the lock that a drop needs; others wait behind it
	dropAgain = time.Minute
	dayLook   = 5 * time.Minute // at all of a day, while nobody waits
)

// dropDays drops the partitions of days of which nothing has to stay: that costs
// next to nothing, and gives the space back at once. One that cannot be dropped keeps
// no other. Postgres only.
func (s *Store) dropDays(ctx context.Context, now time.Time) (total int, err error) {
	if !s.d.bulk || now.Sub(s.daysTried) < dropAgain && now.Sub(s.daysTried) >= 0 {
		return 0, nil
	}
	s.daysTried = now
	days, err := s.pastDays(ctx, now)
	if err != nil {
		return 0, err
	}
	var first error
	for _, day := range days {
		n, err := s.dropDay(ctx, pastDay(day), now)
		var e *pq.Error
		switch {
		case errors.As(err, &e) && (e.Code == "55P03" || e.Code == "40P01"): // lock_not_available: tried again in a minute
			s.log.Debug("a day is in use and not dropped yet", "day", day.Format(time.DateOnly))
		case ctx.Err() != nil:
			return total, err
		case err != nil && first == nil:
			first = fmt.Errorf("drop partitions of %s: %w", day.Format(time.DateOnly), err)
		}
		total += n
	}
	return total, first
}

// pastDays lists the days that have partitions and are over.
func (s *Store) pastDays(ctx context.Context, now time.Time) (days []time.Time, err error) {
	var names []string
	if err := s.view(ctx, "list partitions", func(q session) error {
		return q.all(&names, `SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
			WHERE i.inhparent = to_regclass('events') ORDER BY c.relname`)
	}); err != nil {
		return nil, err
	}
	for _, name := range names {
		day, err := time.Parse("20060102", strings.TrimPrefix(name, "events_"))
		if err == nil && day.AddDate(0, 0, 1).Before(now) {
			days = append(days, day)
		}
	}
	return days, nil
}

// pastDay is a day that has partitions of its own.
type pastDay time.Time

// of is the partition of a table.
func (d pastDay) of(table string) string { return table + time.Time(d).Format("_20060102") }

// end is where the next day begins.
func (d pastDay) end() time.Time { return time.Time(d).AddDate(0, 0, 1) }

// String is the date.
func (d pastDay) String() string { return time.Time(d).Format(time.DateOnly) }

// dropDay drops the partitions of one day unless something in them has to stay.
func (s *Store) dropDay(ctx context.Context, day pastDay, now time.Time) (events int, err error) {
	weights, keep, err := s.lookAtDay(ctx, day, now)
	if err != nil || keep {
		return 0, err
	}
	err = s.update(ctx, "drop a day", func(c *change) (err error) {
		keep, err = c.dropDay(day, now, s.opt.Retention)
		return err
	})
	if err != nil || keep {
		return 0, err
	}
	for _, w := range weights {
		events += w.Events
		s.stock.add(w.Alias, -w.Bytes)
		s.gone.bytes.Add(w.Bytes)
	}
	s.gone.days.Add(1)
	s.gone.expired.Add(int64(events))
	s.log.Info("a day of old events was dropped", "day", day.String(), "events", events)
	return events, nil
}

// dayWeight is what one alias has of a day.
type dayWeight struct {
	Alias  int64 `db:"alias_id"`
	Events int   `db:"events"`
	Bytes  int64 `db:"bytes"`
}

// lookAtDay tells whether something of a day has to stay, and what all of it weighs if
// not. It reads all rows of the day, over a connection that may take its time.
func (s *Store) lookAtDay(ctx context.Context, day pastDay, now time.Time) (weights []dayWeight, keep bool, err error) {
	if err := s.reachable(); err != nil {
		return nil, false, s.fault("look at a day", err)
	}
	ctx, cancel := context.WithTimeout(ctx, dayLook)
	defer cancel()
	q := session{ctx, s.direct, &s.d, &s.clock}
	if keep, err = q.dayStays(day, now, s.opt.Retention); err == nil && !keep {
		err = q.all(&weights, `SELECT c.alias_id, c.events, COALESCE(b.bytes, 0) AS bytes
			FROM (SELECT alias_id, COUNT(*) AS events FROM `+day.of("events")+` GROUP BY alias_id) c
			LEFT JOIN (SELECT e.alias_id, CAST(SUM(`+payloadBytes+`) AS BIGINT) AS bytes
				FROM `+day.of("payloads")+` p JOIN `+day.of("events")+` e ON e.id = p.event_id GROUP BY e.alias_id) b USING (alias_id)`)
	}
	return weights, keep, s.fault("look at a day", err)
}

// dayStays tells whether something of a day has to stay; see held. It goes by indexes,
// a few rows of each: it is asked again while nobody else can use the tables. An alias
// that is gone keeps nothing; one without retention everything.
func (q session) dayStays(day pastDay, now time.Time, retention time.Duration) (stays bool, err error) {
	waits := `EXISTS (SELECT 1 FROM ` + day.of("attempts") + ` a JOIN aliases al ON al.id = a.alias_id WHERE a.state = %d)`
	span := `COALESCE(al.retention_us, ?)`
	err = q.get(&stays, `SELECT EXISTS (SELECT 1 FROM aliases al WHERE (`+span+` = 0 OR ? - `+span+` < ?)
			AND EXISTS (SELECT 1 FROM `+day.of("events")+` e WHERE e.alias_id = al.id))
		OR `+fmt.Sprintf(waits, queued)+` OR `+fmt.Sprintf(waits, delivering)+`
		OR EXISTS (SELECT 1 FROM shares sh WHERE sh.event_id >= ? AND sh.event_id < ? AND (sh.expires_at = 0 OR sh.expires_at > ?))`,
		retention.Microseconds(), micros(now), retention.Microseconds(), micros(day.end()),
		lowestID(time.Time(day)), lowestID(day.end()), micros(now))
	return stays, err
}

// dropDay drops the partitions of a day, unless something has to stay now that nobody
// can change it.
func (c *change) dropDay(day pastDay, now time.Time, retention time.Duration) (keep bool, err error) {
	if _, err := c.exec(fmt.Sprintf(`SET LOCAL lock_timeout = %d`, dropWait.Milliseconds())); err != nil {
		return false, err
	}
	var parents, children []string
	for _, p := range partitioned {
		parents, children = append(parents, "ONLY "+p.table), append(children, day.of(p.table))
	}
	if _, err := c.exec(`LOCK TABLE ` + strings.Join(parents, ", ") + ` IN ACCESS EXCLUSIVE MODE`); err != nil {
		return false, err
	}
	if keep, err := c.dayStays(day, now, retention); err != nil || keep {
		return keep, err
	}
	if _, err := c.exec(`DELETE FROM shares WHERE event_id >= ? AND event_id < ?`, lowestID(time.Time(day)), lowestID(day.end())); err != nil {
		return false, err
	}
	_, err = c.exec(`DROP TABLE IF EXISTS ` + strings.Join(children, ", "))
	return false, err
}
