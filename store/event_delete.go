package store

import (
	"context"
	"slices"
	"time"

	"relay"
)

// DeleteEvent removes an event with its attempts, bytes and shares, for the owner of its
// alias. It returns conflict while an attempt is being delivered; queued attempts are
// deleted too. The event is invisible at once; many or large bodies are deleted in further
// short transactions before DeleteEvent returns.
func (s *Store) DeleteEvent(ctx context.Context, who relay.Actor, id relay.ID) error {
	if err := allow(who, relay.ScopeEventsWrite); err != nil {
		return err
	}
	if err := s.caughtUp(); err != nil {
		return err // a step in the spool could store this event again
	}
	list, heavy := []removalCandidate{{ID: id}}, false
	var e relay.Event
	err := s.update(ctx, "delete event", func(c *writeTx) (err error) {
		if err := c.lockEvents([]relay.ID{id}); err != nil { // no replay begins from here on
			return err
		}
		if e, err = c.ownEvent(who, id); err != nil {
			return err
		}
		var states []int
		if err := c.all(&states, `SELECT state FROM attempts WHERE event_id = ?`+c.d.forUpdate, id); err != nil {
			return err
		}
		if slices.Contains(states, delivering) {
			return relay.Errorf(relay.CodeConflict, "the event is being delivered; delete it when that has ended")
		}
		list[0] = removalCandidate{ID: id, Attempts: e.AttemptCount}
		if err := c.loadSizes(list); err != nil {
			return err
		}
		heavy = list[0].cost() > removalMaxRows
		if _, err := c.removeEvents(e.AliasID, list, time.Time{}, heavy); err != nil {
			return err
		}
		c.publish(relay.Change{Kind: relay.ChangeEvent, Alias: e.AliasID, Event: id})
		if slices.Contains(states, queued) {
			c.publish(relay.Change{Kind: relay.ChangeQueue, Alias: e.AliasID})
		}
		return c.auditOfAlias(who, e.AliasID, "event.remove", id.String(), "of "+e.Alias)
	})
	if err != nil {
		return err
	}
	s.storage.add(e.AliasID, -list[0].Bytes)
	ctx = context.WithoutCancel(ctx)
	if heavy {
		err = s.removeOrphanRows(ctx, orphanPayloads, []relay.ID{id})
	}
	if err == nil && list[0].Parts > 0 {
		err = s.removeOrphanRows(ctx, orphanParts, []relay.ID{id})
	}
	if err != nil {
		s.log.Warn("some bytes of a removed event are still stored; a later sweep of orphans deletes them", "event", id.String(), "err", err)
	}
	return nil
}
