package feed

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"relay"
	"relay/record"
)

// readAtOnce is the number of changes whose events and attempts are read and held together: an attempt
// may have 128 KiB of response head, and as much of interim ones.
const readAtOnce = 16

// coalesce removes changes that a later, equal change replaces. A changed attempt changes its event
// too.
func coalesce(changes []change) (out []change) {
	type key struct {
		kind relay.ChangeKind
		ref  relay.AttemptRef
	}
	seen := map[key]bool{}
	add := func(c change) {
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

func (c *change) ref() relay.AttemptRef { return relay.AttemptRef{Event: c.Event, N: c.N} }

// items reads and encodes changes of one alias, in order. Removed events have no item.
func (f *Feed) items(ctx context.Context, alias int64, changes []change) (items []relay.FeedItem, err error) {
	if err := f.read(ctx, alias, changes); err != nil {
		return nil, err
	}
	a, summaries := f.Alias(alias), summarise(changes, f.Site)
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
			status, err := f.Status(ctx, []relay.Alias{*a})
			if err != nil {
				return items, err
			}
			item.Name, value = "tunnel", record.OfAlias(a, status[0], f.Site)
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

// summarise returns the summaries of changed events, each after its last change: the snapshot of an
// earlier change may be outdated.
func summarise(changes []change, site relay.Site) map[relay.ID]*record.Summary {
	summaries := map[relay.ID]*record.Summary{}
	for _, c := range slices.Backward(changes) {
		if c.event != nil && summaries[c.Event] == nil {
			summaries[c.Event] = record.Summarise(c.event, site, time.Now())
		}
	}
	return summaries
}

// read reads the events and attempts of changes that came without a snapshot.
func (f *Feed) read(ctx context.Context, alias int64, changes []change) error {
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
		list, err := f.Store.Summaries(ctx, slices.Collect(maps.Keys(events)))
		if err != nil {
			return err
		}
		for i := range list {
			events[list[i].ID] = &list[i]
		}
	}
	if len(attempts) > 0 {
		var err error
		if attempts, err = f.Store.AttemptHeads(ctx, alias, slices.Collect(maps.Keys(attempts))); err != nil {
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
