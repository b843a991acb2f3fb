package feed

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"relay"
	"relay/record"
)

// items reads and encodes each changed event, attempt, tunnel or alias once, ordered by its last
// change. left holds the changes that could not be read, or that came after roundBytes.
func (f *Feed) items(ctx context.Context, changes []change) (items []relay.FeedItem, left []change) {
	changes = coalesce(changes)
	var ids []relay.ID
	rows := map[relay.ID]*relay.Event{}
	for _, c := range changes {
		switch {
		case c.Kind != relay.ChangeEvent:
		case c.event != nil:
			rows[c.Event] = c.event
		default:
			ids = append(ids, c.Event)
		}
	}
	if len(ids) > 0 {
		list, err := f.Store.Summaries(ctx, ids)
		if err != nil {
			f.Log.Warn("changes not read for the live feed", "error", err)
			return nil, changes
		}
		for i := range list {
			rows[list[i].ID] = &list[i]
		}
	}
	r, size := reading{f: f, changes: changes, events: rows, now: time.Now()}, 0
	for i, c := range changes {
		item, err := r.item(ctx, i)
		switch {
		case err != nil:
			left = append(left, c)
		case item.Data != nil:
			items = append(items, item)
		}
		if size += len(item.Data); size > roundBytes {
			return items, append(left, changes[i+1:]...)
		}
	}
	return items, left
}

// headsAtOnce is how many attempts the feed reads together: each may have 128 KiB of
// response head.
const headsAtOnce = 4

// reading makes items of the changes of one round.
type reading struct {
	f        *Feed
	changes  []change
	events   map[relay.ID]*relay.Event
	attempts map[relay.AttemptRef]*relay.Attempt // read together
	read     int                                 // attempts of changes before this index were read
	now      time.Time

	positions map[int64]map[relay.AttemptRef]int // in the queues of aliases, read once for all changes
}

// attempt returns the attempt of change i, nil when it was removed. It reads the attempts of
// the next changes together with it.
func (r *reading) attempt(ctx context.Context, i int) (*relay.Attempt, error) {
	if a := r.changes[i].attempt; a != nil {
		return a, nil
	}
	if i >= r.read {
		var refs []relay.AttemptRef
		next := i
		for ; next < len(r.changes) && len(refs) < headsAtOnce; next++ {
			if c := &r.changes[next]; c.Kind == relay.ChangeAttempt && c.attempt == nil {
				refs = append(refs, relay.AttemptRef{Event: c.Event, N: c.N})
			}
		}
		var err error
		if r.attempts, err = r.f.Store.AttemptHeads(ctx, refs); err != nil {
			return nil, err
		}
		r.read = next
	}
	a := r.attempts[relay.AttemptRef{Event: r.changes[i].Event, N: r.changes[i].N}]
	if a == nil || a.State != relay.StateQueued {
		return a, nil
	}
	if err := r.readPositions(ctx, r.changes[i].Alias); err != nil {
		return nil, err
	}
	a.Position = r.positions[r.changes[i].Alias][relay.AttemptRef{Event: r.changes[i].Event, N: r.changes[i].N}]
	return a, nil
}

// readPositions reads the positions of all changed attempts of an alias in its queue, which
// is numbered for that.
func (r *reading) readPositions(ctx context.Context, alias int64) error {
	if r.positions[alias] != nil {
		return nil
	}
	var refs []relay.AttemptRef
	for _, c := range r.changes {
		if c.Kind == relay.ChangeAttempt && c.Alias == alias {
			refs = append(refs, relay.AttemptRef{Event: c.Event, N: c.N})
		}
	}
	positions, err := r.f.Store.QueuePositions(ctx, alias, refs)
	if err != nil {
		return err
	}
	if r.positions == nil {
		r.positions = map[int64]map[relay.AttemptRef]int{}
	}
	r.positions[alias] = positions
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
func (r *reading) item(ctx context.Context, i int) (relay.FeedItem, error) {
	f, c := r.f, r.changes[i]
	item := relay.FeedItem{Alias: c.Alias}
	var value any
	switch c.Kind {
	case relay.ChangeEvent:
		e := r.events[c.Event]
		if e == nil {
			return item, nil
		}
		item.Name, value = itemEvent, record.Summarise(e, f.Site, r.now)
	case relay.ChangeAttempt:
		a, err := r.attempt(ctx, i)
		if err != nil || a == nil {
			return item, err
		}
		name := ""
		if alias := f.Alias(c.Alias); alias != nil {
			name = alias.Name
		}
		item.Name = itemAttempt
		value = &record.AttemptMessage{EventID: c.Event.String(), Alias: name, Attempt: record.OfAttempt(a, false)}
	default:
		a := f.Alias(c.Alias)
		if a == nil {
			return item, nil
		}
		status, err := f.Status(ctx, []relay.Alias{*a})
		if err != nil {
			return item, err
		}
		item.Name, value = itemTunnel, record.OfAlias(a, status[0], f.Site)
	}
	var err error
	item.Data, err = json.Marshal(value)
	return item, err
}
