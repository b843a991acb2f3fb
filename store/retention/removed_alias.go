package retention

import (
	"context"
	"time"

	"relay/store/db"
	"relay/store/events"
	"relay/store/usage"
)

// clearAgain is the time after the removal of an alias during which a request in progress may still
// store an event.
const clearAgain = time.Hour

// DeleteRemovedAliases deletes the events of removed aliases. It also deletes the row of an alias in
// removed_aliases once no request can store an event of the alias any more.
func (r *Retention) DeleteRemovedAliases(ctx context.Context) error {
	var aliases []struct {
		ID int64 `db:"alias_id"`
		At int64 `db:"removed_at"`
	}
	err := r.db.View(ctx, "read removed aliases", func(q db.Query) error {
		return q.All(&aliases, `SELECT alias_id, removed_at FROM removed_aliases`)
	})
	if err != nil {
		return err
	}
	for _, a := range aliases {
		if _, err := r.removeOldest(ctx, usage.Holder{ID: a.ID}, events.LastID, time.Time{}, nil, nil); err != nil {
			return err
		}
		if r.db.Now().Sub(db.FromMicros(a.At)) <= clearAgain {
			continue
		}
		if err := r.db.Execute(ctx, "forget a removed alias", `DELETE FROM removed_aliases WHERE alias_id = ?
			AND NOT EXISTS (SELECT 1 FROM events e WHERE e.alias_id = removed_aliases.alias_id)`, a.ID); err != nil {
			return err
		}
	}
	return nil
}

// AliasRemoved deletes the events of a removed alias. A serving process deletes them in the background, an
// operator command before AliasRemoved returns.
func (r *Retention) AliasRemoved(ctx context.Context) error {
	if !r.usage.Serving() {
		return r.DeleteRemovedAliases(ctx)
	}
	db.Signal(r.wake)
	return nil
}
