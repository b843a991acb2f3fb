package store

import (
	"context"
	"time"

	"relay/store/db"
)

// mostStopped is the longest time for which a relay may have been stopped before a start doubts its clock. A
// clock that is ahead by less is trusted, so that events may be deleted too early by the time that it is ahead.
// If the shortest retention is less than mostStopped, judgeClock therefore uses that retention instead.
const mostStopped = time.Hour

// judgeClock checks the clock before the first loop that deletes old events. A machine may start with a wrong
// clock, and a replica that became the primary Postgres may have a clock that differs from that of the previous
// primary.
func (s *Store) judgeClock(ctx context.Context) error {
	var seen, noted, shortest int64
	if err := s.db.View(ctx, "read when the store was used last", func(q db.Query) (err error) {
		if seen, err = lastSeen(q); err != nil {
			return err
		}
		if noted, err = lastNoted(q); err != nil {
			return err
		}
		return q.Get(&shortest, `SELECT COALESCE(MIN(retention_us), 0) FROM aliases WHERE retention_us > 0`)
	}); err != nil {
		return err
	}
	tolerance := mostStopped
	for _, span := range []time.Duration{time.Duration(shortest) * time.Microsecond, s.opt.Retention} {
		if span > 0 {
			tolerance = min(tolerance, span)
		}
	}
	last := seen
	if noted > 0 && db.FromMicros(seen).Sub(db.FromMicros(noted)) > 2*tidyInterval {
		last = noted // the clock was ahead when the newest entries were stored
	}
	ahead := s.jumps.begin(s.db.Now(), db.FromMicros(last), time.Duration(s.db.Clock.Offset.Load()), max(tolerance, maxClockDrift))
	if ahead > 0 {
		s.log.Info("the relay was stopped for a long time, or its clock is ahead: old events are not deleted for ten minutes", "ahead", ahead.Round(time.Second))
	}
	if behind := db.FromMicros(seen).Sub(s.db.Now()); seen > 0 && behind > maxClockDrift {
		s.log.Warn("the clock is behind: the store has entries that are newer; have the time synchronised (chrony, systemd-timesyncd)", "behind", behind.Round(time.Second))
	}
	return nil
}

// lastSeen returns the newest time in the database, in microseconds: that of the newest event, revision or audit
// entry, or that of lastNoted. 0 = none.
func lastSeen(q db.Query) (seen int64, err error) {
	for _, query := range []string{
		`SELECT COALESCE(MAX(received_at), 0) FROM (SELECT received_at FROM events ORDER BY id DESC LIMIT 1) x`,
		`SELECT COALESCE(MAX(at), 0) FROM (SELECT at FROM revisions ORDER BY id DESC LIMIT 1) x`,
		`SELECT COALESCE(MAX(at), 0) FROM (SELECT at FROM audit ORDER BY id DESC LIMIT 1) x`,
	} {
		var at int64
		if err := q.Get(&at, query); err != nil {
			return 0, err
		}
		seen = max(seen, at)
	}
	noted, err := lastNoted(q)
	return max(seen, noted), err
}

// lastNoted returns the newest time, in microseconds, that a server with a trusted clock stored; 0 if there is
// none. Such a server stores the time each hour and when it stops. After a clock that was ahead has been set
// back, this time is older than the newest entries.
func lastNoted(q db.Query) (at int64, err error) {
	err = q.Get(&at, `SELECT COALESCE(MAX(CAST(value AS BIGINT)), 0) FROM meta WHERE name = 'last_seen_us'`)
	return at, err
}
