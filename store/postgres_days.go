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
)

// dropDays drops the partitions of days of which nothing has to stay: that costs
// next to nothing, and gives the space back at once. Postgres only.
func (s *Store) dropDays(ctx context.Context, now time.Time) (total int, err error) {
	if !s.d.bulk || now.Sub(s.daysTried) < dropAgain && now.Sub(s.daysTried) >= 0 {
		return 0, nil
	}
	s.daysTried = now
	days, err := s.pastDays(ctx, now)
	if err != nil {
		return 0, err
	}
	for _, day := range days {
		n, err := s.dropDay(ctx, day, now)
		var e *pq.Error
		switch {
		case errors.As(err, &e) && (e.Code == "55P03" || e.Code == "40P01"): // lock_not_available: tried again in a minute
			s.log.Debug("a day is in use and not dropped yet", "day", day.Format(time.DateOnly))
		case err != nil:
			return total, fmt.Errorf("drop partitions of %s: %w", day.Format(time.DateOnly), err)
		}
		total += n
	}
	return total, nil
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

// dropDay drops the partitions of one day unless something in them has to stay.
func (s *Store) dropDay(ctx context.Context, day, now time.Time) (events int, err error) {
	table := "events" + day.Format("_20060102")
	end := day.AddDate(0, 0, 1)
	// An alias that is gone keeps nothing; one without retention everything.
	stays := `SELECT EXISTS (SELECT 1 FROM ` + table + ` e JOIN aliases al ON al.id = e.alias_id
		WHERE COALESCE(al.retention_us, ?) = 0 OR ? - COALESCE(al.retention_us, ?) < ? OR ` + held + `)`
	args := []any{s.opt.Retention.Microseconds(), micros(now), s.opt.Retention.Microseconds(), micros(end), micros(now)}
	var weights []struct {
		Alias  int64 `db:"alias_id"`
		Events int   `db:"events"`
		Bytes  int64 `db:"bytes"`
	}
	keep := true
	if err := s.view(ctx, "look at a day", func(q session) error {
		if err := q.get(&keep, stays, args...); err != nil || keep {
			return err
		}
		return q.all(&weights, `SELECT e.alias_id, COUNT(DISTINCT e.id) AS events, CAST(SUM(`+payloadBytes+`) AS BIGINT) AS bytes
			FROM payloads p JOIN `+table+` e ON e.id = p.event_id GROUP BY e.alias_id`)
	}); err != nil || keep {
		return 0, err
	}
	err = s.update(ctx, "drop a day", func(c *change) error {
		if _, err := c.exec(fmt.Sprintf(`SET LOCAL lock_timeout = %d`, dropWait.Milliseconds())); err != nil {
			return err
		}
		var parents, children []string
		for _, p := range partitioned {
			parents, children = append(parents, "ONLY "+p.table), append(children, p.table+day.Format("_20060102"))
		}
		if _, err := c.exec(`LOCK TABLE ` + strings.Join(parents, ", ") + ` IN ACCESS EXCLUSIVE MODE`); err != nil {
			return err
		}
		if err := c.get(&keep, stays, args...); err != nil || keep { // as it is now that nobody can change it
			return err
		}
		lowest, next := lowestID(day), lowestID(end)
		if _, err := c.exec(`DELETE FROM shares WHERE event_id >= ? AND event_id < ?`, lowest, next); err != nil {
			return err
		}
		_, err := c.exec(`DROP TABLE IF EXISTS ` + strings.Join(children, ", "))
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
	s.log.Info("a day of old events was dropped", "day", day.Format(time.DateOnly), "events", events)
	return events, nil
}
