package store

import (
	"context"
	"time"

	"relay/store/db"
	"relay/store/file"
	"relay/store/spool"
)

// Retain removes every event that is older than the retention of its alias at the time now.
func (s *Store) Retain(ctx context.Context, now time.Time) (int, error) {
	return s.eventRetention.Retain(ctx, now, true)
}

// RetentionStats count what retention deleted since Serve.
type RetentionStats struct {
	Expired, Evicted, DroppedDays, Orphans, FreedBytes int64

	StoredBytes int64         // stored bytes of all aliases; 0 without a storage limit
	LongestHold time.Duration // longest time for which one removal kept the connection that writes
}

// Retention returns the counts since Serve.
func (s *Store) Retention() RetentionStats {
	n := s.RetentionCounts()
	return RetentionStats{
		Expired: n.Expired.Load(), Evicted: n.Evicted.Load(), DroppedDays: n.Days.Load(), Orphans: n.Orphans.Load(),
		FreedBytes: n.Bytes.Load(), StoredBytes: s.usage.Total(), LongestHold: time.Duration(n.Longest.Load()),
	}
}

// CommitSettings returns the values of synchronous_commit in a read, an update and a batch of the journal. If
// the store has a DirectURL, its other connections go through a pooler, whose sessions are shared with other
// clients. CommitSettings then turns the setting off in these sessions before the update, as such a client could
// do.
func (s *Store) CommitSettings(ctx context.Context) (values []string) {
	read := func(q db.Query) error {
		var value string
		err := q.Get(&value, `SHOW synchronous_commit`)
		values = append(values, value)
		return err
	}
	note := func(err error) {
		if err != nil {
			values = append(values, err.Error())
		}
	}
	note(s.db.View(ctx, "", read))
	if s.opt.DirectURL != "" {
		for range s.db.Readers() {
			_, err := s.db.Write.ExecContext(ctx, `SET synchronous_commit = off`)
			note(err)
		}
	}
	note(s.db.Update(ctx, "", func(c *db.Tx) error { return read(c.Query) }))
	_, err := s.db.Batch(ctx, s.db.Journal, func(b *db.Batch) error { return read(b.Query) })
	note(err)
	return values
}

// WriterPragma returns the value of a pragma on the SQLite connection that writes.
func (s *Store) WriterPragma(ctx context.Context, name string) (value string, err error) {
	err = s.db.Write.GetContext(ctx, &value, `PRAGMA `+name)
	return value, err
}

// WriteFile durably makes or replaces a file.
var WriteFile = file.Write

// QuarantineOne appends one refused step to the file of such steps in dir.
func QuarantineOne(dir string) error { return spool.Quarantine(dir, []spool.Refused{{Reason: "test"}}) }

// Ready returns nil when new events can be stored: see Health.
func (s *Store) Ready(ctx context.Context) error {
	_, err := s.Health(ctx)
	return err
}
