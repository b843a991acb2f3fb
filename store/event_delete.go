package store

import (
	"context"
	"slices"

	"relay"
)

// DeleteEvent removes an event with its attempts, bytes and shares, for the owner of
// its alias; conflict while an attempt is delivering, queued ones go with it. It
// vanishes from every answer at once; many or large bodies follow in short
// transactions, before this returns.
func (s *Store) DeleteEvent(ctx context.Context, who relay.Actor, id relay.ID) error {
	if err := allow(who, relay.ScopeEventsWrite); err != nil {
		return err
	}
	if err := s.caughtUp(); err != nil {
		return err // what waits in the spool may be of this event, and would bring it back
	}
	list, alias, heavy := []doomed{{ID: id}}, int64(0), false
	err := s.update(ctx, "delete event", func(c *change) error {
		e, err := c.ownEvent(who, id)
		if err != nil {
			return err
		}
		alias = e.AliasID
		waiting, err := c.waits(id)
		if err != nil {
			return err
		}
		list[0] = doomed{ID: id, Attempts: e.AttemptCount}
		if err := c.weigh(list); err != nil {
			return err
		}
		heavy = list[0].rows() > removalRows
		if err := c.deleteEvent(id, heavy); err != nil {
			return err
		}
		c.publish(relay.Change{Kind: relay.ChangeEvent, Alias: e.AliasID, Event: id})
		if waiting {
			c.publish(relay.Change{Kind: relay.ChangeQueue, Alias: e.AliasID})
		}
		return c.auditOfAlias(who, e.AliasID, "event.remove", id.String(), "of "+e.Alias)
	})
	if err != nil {
		return err
	}
	s.stock.add(alias, -list[0].Bytes)
	ctx = context.WithoutCancel(ctx)
	if heavy {
		err = s.removeRest(ctx, leftPayloads, []relay.ID{id})
	}
	if err == nil && list[0].Parts > 0 {
		err = s.removeRest(ctx, leftParts, []relay.ID{id})
	}
	if err != nil {
		s.log.Warn("some bytes of a removed event are still stored; they go with the next left-over ones", "event", id.String(), "err", err)
	}
	return nil
}

var errUnderWay = relay.Errorf(relay.CodeConflict, "the event is being delivered; delete it when that has ended")

// waits tells whether an attempt of an event waits in the queue; conflict while one is
// under way.
func (c *change) waits(id relay.ID) (waiting bool, err error) {
	var states []int
	if err := c.all(&states, `SELECT state FROM attempts WHERE event_id = ?`+c.d.forUpdate, id); err != nil {
		return false, err
	}
	if slices.Contains(states, delivering) {
		return false, errUnderWay
	}
	return slices.Contains(states, queued), nil
}

// deleteEvent deletes the rows of an event, and unless they are too many its payloads.
// On Postgres the row of the event is deleted once nobody has it, and a replay may have
// been begun meanwhile: conflict then.
func (c *change) deleteEvent(id relay.ID, heavy bool) error {
	if _, err := c.exec(`DELETE FROM events WHERE id = ?`, id); err != nil {
		return err
	}
	var states []int
	if err := c.all(&states, `DELETE FROM attempts WHERE event_id = ? RETURNING state`, id); err != nil {
		return err
	}
	if slices.Contains(states, delivering) {
		return errUnderWay
	}
	tables := []string{`shares`, `payloads`}
	if heavy {
		tables = tables[:1]
	}
	for _, table := range tables {
		if _, err := c.exec(`DELETE FROM `+table+` WHERE event_id = ?`, id); err != nil {
			return err
		}
	}
	return nil
}
