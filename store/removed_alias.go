package store

import (
	"context"
	"time"

	"relay/store/db"
	"relay/store/events"
)

// clearAgain is how long after the removal of an alias a request that was under way may still
// bring an event.
const clearAgain = time.Hour

// deleteRemovedAliases deletes what removed aliases left, and forgets those that leave nothing more.
func (s *Store) deleteRemovedAliases(ctx context.Context) error {
	var aliases []struct {
		ID int64 `db:"alias_id"`
		At int64 `db:"removed_at"`
	}
	err := s.db.View(ctx, "read removed aliases", func(q db.Query) error {
		return q.All(&aliases, `SELECT alias_id, removed_at FROM removed_aliases`)
	})
	if err != nil {
		return err
	}
	for _, a := range aliases {
		if _, err := s.removeOldest(ctx, holder{id: a.ID}, events.LastID, time.Time{}, nil, nil); err != nil {
			return err
		}
		if s.db.Now().Sub(db.FromMicros(a.At)) <= clearAgain {
			continue
		}
		if err := s.db.Execute(ctx, "forget a removed alias", `DELETE FROM removed_aliases WHERE alias_id = ?
			AND NOT EXISTS (SELECT 1 FROM events e WHERE e.alias_id = removed_aliases.alias_id)`, a.ID); err != nil {
			return err
		}
	}
	return nil
}

// aliasRemoved has the events of a removed alias deleted: behind the caller where this process serves.
func (s *Store) aliasRemoved(ctx context.Context) error {
	if s.stop == nil {
		return s.deleteRemovedAliases(ctx)
	}
	db.Signal(s.wakeCleaner)
	return nil
}
