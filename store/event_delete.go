package store

import (
	"context"

	"github.com/jmoiron/sqlx"

	"relay"
)

// DeleteEvent removes an event with its attempts, bytes and shares, for the owner of
// its alias; conflict while an attempt is delivering, queued ones go with it.
func (s *Store) DeleteEvent(ctx context.Context, who relay.Actor, id relay.ID) error {
	if err := allow(who, relay.ScopeEventsWrite); err != nil {
		return err
	}
	weight, alias := []doomed{{ID: id}}, int64(0)
	err := s.update(ctx, "delete event", func(c *change) error {
		e, err := c.ownEvent(who, id)
		if err != nil {
			return err
		}
		alias = e.AliasID
		if err := c.weigh(weight); err != nil {
			return err
		}
		var states []int
		if err := c.all(&states, `SELECT state FROM attempts WHERE event_id = ?`+c.d.forUpdate, id); err != nil {
			return err
		}
		waiting := false
		for _, st := range states {
			if st == delivering {
				return relay.Errorf(relay.CodeConflict, "the event is being delivered; delete it when that has ended")
			}
			waiting = waiting || st == queued
		}
		if err := c.deleteEvents([]relay.ID{id}); err != nil {
			return err
		}
		c.publish(relay.Change{Kind: relay.ChangeEvent, Alias: e.AliasID, Event: id})
		if waiting {
			c.publish(relay.Change{Kind: relay.ChangeQueue, Alias: e.AliasID})
		}
		return nil
	})
	if err == nil {
		s.stock.add(alias, -weight[0].Bytes)
	}
	return err
}

// deleteEvents removes events and all that hangs on them.
func (c *change) deleteEvents(ids []relay.ID) error {
	for _, table := range []string{
		`events WHERE id`, `attempts WHERE event_id`, `payloads WHERE event_id`, `body_chunks WHERE event_id`, `shares WHERE event_id`,
	} {
		query, args, err := sqlx.In(`DELETE FROM `+table+` IN (?)`, values(ids))
		if err != nil {
			return err
		}
		if _, err := c.exec(query, args...); err != nil {
			return err
		}
	}
	return nil
}
