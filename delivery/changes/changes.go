// Package changes reads the events and attempts of committed changes, and encodes them as items of the live
// feed.
package changes

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"relay"
	"relay/record"
)

// AtOnce is the number of changes whose events and attempts are read and held together. It is small, because an
// attempt may have 128 KiB of response head, and 128 KiB of interim response heads.
const AtOnce = 16

// Store is the part of the store that this package reads. Its methods are safe for concurrent use.
type Store interface {
	// Summaries reads events as lists show them; deleted events are left out.
	Summaries(ctx context.Context, ids []relay.ID) ([]relay.Event, error)
	// AttemptHeads reads attempts of an alias without their response bodies; deleted attempts are left
	// out.
	AttemptHeads(ctx context.Context, alias int64, refs []relay.AttemptRef) (map[relay.AttemptRef]*relay.Attempt, error)
}

// Encoder encodes changes. It is safe for concurrent use.
type Encoder struct {
	Store Store
	Site  relay.Site
	// Alias returns an alias, from memory; nil when the alias was removed.
	Alias func(id int64) *relay.Alias
	// Status returns the status of each of the aliases, in the same order.
	Status func(ctx context.Context, aliases []relay.Alias) ([]relay.AliasStatus, error)
}

// Change is a change with the snapshot of the event and the attempt that the store passed along. If the
// snapshot is nil, Items reads the store.
type Change struct {
	relay.Change
	event   *relay.Event
	attempt *relay.Attempt
}

// Of calls c.Snapshot and keeps its results, so that the Change holds no reference to memory of the store.
func Of(c relay.Change) Change {
	own := Change{Change: c}
	if c.Snapshot != nil {
		own.event, own.attempt = c.Snapshot()
	}
	own.Snapshot = nil
	return own
}

// Coalesce removes changes that a later, equal change replaces. A change of an attempt also counts as a change
// of its event.
func Coalesce(changes []Change) (out []Change) {
	type key struct {
		kind relay.ChangeKind
		ref  relay.AttemptRef
	}
	seen := map[key]bool{}
	add := func(c Change) {
		if k := (key{c.Kind, c.ref()}); !seen[k] {
			seen[k] = true
			out = append(out, c)
		}
	}
	for _, c := range slices.Backward(changes) {
		add(c)
		if c.Kind == relay.ChangeAttempt {
			c.Kind, c.N = relay.ChangeEvent, 0
			add(c)
		}
	}
	slices.Reverse(out)
	return out
}

func (c *Change) ref() relay.AttemptRef { return relay.AttemptRef{Event: c.Event, N: c.N} }

// Items reads and encodes changes of one alias, in order. Removed events have no item.
func (e *Encoder) Items(ctx context.Context, alias int64, changes []Change) (items []relay.FeedItem, err error) {
	if err := e.read(ctx, alias, changes); err != nil {
		return nil, err
	}
	a, summaries := e.Alias(alias), summarise(changes, e.Site)
	for i := range changes {
		c, item := &changes[i], relay.FeedItem{Alias: alias}
		var value any
		switch {
		case c.Kind == relay.ChangeEvent && c.event != nil:
			item.Name, value = "event", summaries[c.Event]
		case c.Kind == relay.ChangeAttempt && c.attempt != nil:
			message := &record.AttemptMessage{EventID: c.Event.String(), Event: summaries[c.Event], Attempt: record.OfAttempt(c.attempt, false)}
			if a != nil {
				message.Alias = a.Name
			}
			item.Name, value = "attempt", message
		case c.Kind == relay.ChangeQueue && a != nil:
			status, err := e.Status(ctx, []relay.Alias{*a})
			if err != nil {
				return items, err
			}
			item.Name, value = "tunnel", record.OfAlias(a, status[0], e.Site)
		default:
			continue
		}
		if item.Data, err = json.Marshal(value); err != nil {
			return items, err
		}
		items = append(items, item)
	}
	return items, nil
}

// summarise returns the summaries of changed events, each from the snapshot of its last change, because
// earlier snapshots may be outdated.
func summarise(changes []Change, site relay.Site) map[relay.ID]*record.Summary {
	summaries := map[relay.ID]*record.Summary{}
	for _, c := range slices.Backward(changes) {
		if c.event != nil && summaries[c.Event] == nil {
			summaries[c.Event] = record.Summarise(c.event, site, time.Now())
		}
	}
	return summaries
}

// read reads the events and attempts of changes that came without a snapshot.
func (e *Encoder) read(ctx context.Context, alias int64, changes []Change) error {
	events, attempts := map[relay.ID]*relay.Event{}, map[relay.AttemptRef]*relay.Attempt{}
	for i := range changes {
		c := &changes[i]
		if c.event == nil && c.Kind != relay.ChangeQueue {
			events[c.Event] = nil
		}
		if c.attempt == nil && c.Kind == relay.ChangeAttempt {
			attempts[c.ref()] = nil
		}
	}
	if len(events) > 0 {
		list, err := e.Store.Summaries(ctx, slices.Collect(maps.Keys(events)))
		if err != nil {
			return err
		}
		for i := range list {
			events[list[i].ID] = &list[i]
		}
	}
	if len(attempts) > 0 {
		var err error
		if attempts, err = e.Store.AttemptHeads(ctx, alias, slices.Collect(maps.Keys(attempts))); err != nil {
			return err
		}
	}
	for i := range changes {
		c := &changes[i]
		if c.event == nil {
			c.event = events[c.Event]
		}
		if c.attempt == nil && c.Kind == relay.ChangeAttempt {
			c.attempt = attempts[c.ref()]
		}
	}
	return nil
}
