package feed

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"relay"
	"relay/record"
)

// events reads the events that have changed, as far as the changes do not have them.
func (f *Feed) events(ctx context.Context, changes []change) (map[relay.ID]*relay.Event, error) {
	var ids []relay.ID
	events := map[relay.ID]*relay.Event{}
	for _, c := range changes {
		switch {
		case c.Kind != relay.ChangeEvent:
		case c.event != nil:
			events[c.Event] = c.event
		default:
			ids = append(ids, c.Event)
		}
	}
	if len(ids) == 0 {
		return events, nil
	}
	list, err := f.Store.Summaries(ctx, ids)
	if err != nil {
		f.Log.Warn("changes not read for the live feed", "error", err)
		return nil, err
	}
	for i := range list {
		events[list[i].ID] = &list[i]
	}
	return events, nil
}

// items reads and encodes each changed event, attempt, tunnel or alias of one alias once, ordered by
// its last change. all is false where a change could not be read, or came after more bytes than
// wait for a viewer.
func (f *Feed) items(ctx context.Context, changes []change, events map[relay.ID]*relay.Event) (items []relay.FeedItem, all bool) {
	r, size := reading{f: f, changes: changes, events: events}, 0
	for i := range changes {
		item, err := r.item(ctx, i)
		if err != nil || size > pendingBytes {
			return items, false
		}
		if item.Data != nil {
			items = append(items, item)
		}
		size += len(item.Data)
	}
	return items, true
}

// leaveOut takes out the changes of the aliases in left, and of those, which it adds, that have
// more of them than may wait for a viewer: each viewer of such an alias gets a resync item in
// place of them all.
func leaveOut(changes []change, left map[int64]bool) []change {
	count := map[int64]int{}
	for i := range changes {
		alias := changes[i].Alias
		if count[alias]++; count[alias] > pendingItems {
			left[alias] = true
		}
	}
	if len(left) == 0 {
		return changes
	}
	return slices.DeleteFunc(changes, func(c change) bool { return left[c.Alias] })
}

// headsAtOnce is how many attempts the feed reads together: each may have 128 KiB of
// response head.
const headsAtOnce = 4

// reading makes items of the changes of one alias.
type reading struct {
	f         *Feed
	changes   []change
	events    map[relay.ID]*relay.Event
	positions map[relay.AttemptRef]int // in the queue of the alias, read once for all changes
}

// readAttempts reads the attempt of change i and those of the next changes.
func (r *reading) readAttempts(ctx context.Context, i int) error {
	var read []*change
	var refs []relay.AttemptRef
	for ; i < len(r.changes) && len(refs) < headsAtOnce; i++ {
		if c := &r.changes[i]; c.Kind == relay.ChangeAttempt && c.attempt == nil {
			read, refs = append(read, c), append(refs, c.ref())
		}
	}
	attempts, err := r.f.Store.AttemptHeads(ctx, refs)
	if err != nil {
		return err
	}
	for _, c := range read {
		c.attempt, c.read = attempts[c.ref()], true
	}
	return nil
}

// position returns the position of a changed attempt in the queue of its alias, which is
// numbered once for all attempts that have changed.
func (r *reading) position(ctx context.Context, changed *change) (int, error) {
	if r.positions == nil {
		var refs []relay.AttemptRef
		for i := range r.changes {
			if c := &r.changes[i]; c.Kind == relay.ChangeAttempt {
				refs = append(refs, c.ref())
			}
		}
		positions, err := r.f.Store.QueuePositions(ctx, changed.Alias, refs)
		if err != nil {
			return 0, err
		}
		r.positions = positions
	}
	return r.positions[changed.ref()], nil
}

// summary returns the summary of an event that has changed, nil if the event is gone.
func (r *reading) summary(id relay.ID) *record.Summary {
	if e := r.events[id]; e != nil {
		return record.Summarise(e, r.f.Site, time.Now())
	}
	return nil
}

// coalesce keeps the last of equal changes. A changed attempt changes its event too.
func coalesce(changes []change) []change {
	type key struct {
		kind  relay.ChangeKind
		alias int64
		event relay.ID
		n     int
	}
	seen := map[key]bool{}
	var out []change
	add := func(c change) {
		k := key{kind: c.Kind, event: c.Event, n: c.N}
		if c.Kind == relay.ChangeQueue || c.Kind == relay.ChangeAlias {
			k = key{kind: relay.ChangeQueue, alias: c.Alias}
		}
		if !seen[k] {
			seen[k] = true
			out = append(out, c)
		}
	}
	for _, c := range slices.Backward(changes) {
		if c.Kind == relay.ChangeAttempt {
			e := c
			e.Kind, e.N = relay.ChangeEvent, 0
			add(c)
			add(e)
			continue
		}
		add(c)
	}
	slices.Reverse(out)
	return out
}

// item encodes one change. The item has no Data when viewers do not need the change.
func (r *reading) item(ctx context.Context, i int) (item relay.FeedItem, err error) {
	f, c := r.f, &r.changes[i]
	item.Alias = c.Alias
	alias := f.Alias(c.Alias)
	var value any
	switch c.Kind {
	case relay.ChangeEvent:
		summary := r.summary(c.Event)
		if summary == nil {
			return item, nil
		}
		item.Name, value = itemEvent, summary
	case relay.ChangeAttempt:
		if c.attempt == nil && !c.read {
			if err := r.readAttempts(ctx, i); err != nil {
				return item, err
			}
		}
		a := c.attempt
		if a == nil {
			return item, nil
		}
		if c.read && a.State == relay.StateQueued {
			if a.Position, err = r.position(ctx, c); err != nil {
				return item, err
			}
		}
		message := &record.AttemptMessage{EventID: c.Event.String(), Event: r.summary(c.Event), Attempt: record.OfAttempt(a, false)}
		if alias != nil {
			message.Alias = alias.Name
		}
		item.Name, value = itemAttempt, message
	default:
		if alias == nil {
			return item, nil
		}
		status, err := f.Status(ctx, []relay.Alias{*alias})
		if err != nil {
			return item, err
		}
		item.Name, value = itemTunnel, record.OfAlias(alias, status[0], f.Site)
	}
	item.Data, err = json.Marshal(value)
	return item, err
}
