package changes

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"relay"
)

// TestCoalesce: of equal changes only the last one remains, at the place of the last one. A changed attempt adds a
// change of its event before it.
func TestCoalesce(t *testing.T) {
	type step struct {
		kind  relay.ChangeKind
		event byte
		n     int
	}
	of := func(steps []step) (out []Change) {
		for _, s := range steps {
			out = append(out, Of(relay.Change{Kind: s.kind, Event: relay.ID{s.event}, N: s.n}))
		}
		return out
	}
	event, attempt, queue := relay.ChangeEvent, relay.ChangeAttempt, relay.ChangeQueue
	for _, c := range []struct {
		name       string
		told, want []step
	}{
		{"nothing", nil, nil},
		{"equal ones", []step{{event, 1, 0}, {event, 2, 0}, {event, 1, 0}}, []step{{event, 2, 0}, {event, 1, 0}}},
		{"an attempt", []step{{attempt, 1, 1}}, []step{{event, 1, 0}, {attempt, 1, 1}}},
		{"an event and its attempt", []step{{event, 1, 0}, {attempt, 1, 1}}, []step{{event, 1, 0}, {attempt, 1, 1}}},
		{"two attempts of an event", []step{{attempt, 1, 1}, {attempt, 1, 2}}, []step{{attempt, 1, 1}, {event, 1, 0}, {attempt, 1, 2}}},
		{"the queue twice", []step{{queue, 0, 0}, {event, 1, 0}, {queue, 0, 0}}, []step{{event, 1, 0}, {queue, 0, 0}}},
	} {
		var got []step
		for _, c := range Coalesce(of(c.told)) {
			got = append(got, step{c.Kind, c.Event[0], c.N})
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, not %v", c.name, got, c.want)
		}
	}
}

// rows is a store with one event and one attempt, or a store whose reads fail.
type rows struct {
	event   relay.Event
	attempt *relay.Attempt
	fault   error
	reads   int
}

func (r *rows) Summaries(_ context.Context, ids []relay.ID) ([]relay.Event, error) {
	if r.reads++; !slices.Contains(ids, r.event.ID) {
		return nil, r.fault
	}
	return []relay.Event{r.event}, r.fault
}

func (r *rows) AttemptHeads(_ context.Context, _ int64, refs []relay.AttemptRef) (map[relay.AttemptRef]*relay.Attempt, error) {
	r.reads++
	out := map[relay.AttemptRef]*relay.Attempt{}
	for _, ref := range refs {
		if ref.Event == r.event.ID && ref.N == r.attempt.N {
			out[ref] = r.attempt
		}
	}
	return out, r.fault
}

// TestItems checks the names of the items and the number of reads for lists of changes: without and with
// snapshots, of removed events, of an alias, and after an error of the store.
func TestItems(t *testing.T) {
	id, gone := relay.ID{1}, relay.ID{2}
	s := &rows{event: relay.Event{ID: id, AliasID: 7, AttemptCount: 1}, attempt: &relay.Attempt{N: 1}}
	alias := &relay.Alias{ID: 7, Name: "hook"}
	e := Encoder{
		Store: s, Alias: func(int64) *relay.Alias { return alias },
		Status: func(context.Context, []relay.Alias) ([]relay.AliasStatus, error) {
			return make([]relay.AliasStatus, 1), nil
		},
	}
	snapshot := func() (*relay.Event, *relay.Attempt) { return &s.event, s.attempt }
	for _, c := range []struct {
		name  string
		told  []relay.Change
		want  []string
		reads int
	}{
		{"read", []relay.Change{{Kind: relay.ChangeEvent, Event: id}, {Kind: relay.ChangeAttempt, Event: id, N: 1}}, []string{"event", "attempt"}, 2},
		{"in memory", []relay.Change{{Kind: relay.ChangeEvent, Event: id, Snapshot: snapshot}, {Kind: relay.ChangeAttempt, Event: id, N: 1, Snapshot: snapshot}}, []string{"event", "attempt"}, 0},
		{"removed", []relay.Change{{Kind: relay.ChangeEvent, Event: gone}, {Kind: relay.ChangeAttempt, Event: gone, N: 1}}, nil, 2},
		{"the alias", []relay.Change{{Kind: relay.ChangeQueue}}, []string{"tunnel"}, 0},
	} {
		var told []Change
		for _, change := range c.told {
			told = append(told, Of(change))
		}
		s.reads = 0
		items, err := e.Items(t.Context(), 7, told)
		var names []string
		for _, item := range items {
			if names = append(names, item.Name); item.Alias != 7 || !json.Valid(item.Data) {
				t.Errorf("%s: item %+v", c.name, item)
			}
		}
		if err != nil || !slices.Equal(names, c.want) || s.reads != c.reads {
			t.Errorf("%s: %v after %d reads, %v", c.name, names, s.reads, err)
		}
	}
	alias = nil
	if items, err := e.Items(t.Context(), 7, []Change{Of(relay.Change{Kind: relay.ChangeQueue})}); len(items) > 0 || err != nil {
		t.Errorf("of an alias that is gone: %v, %v", items, err)
	}
	s.fault = errors.New("the store is away")
	if _, err := e.Items(t.Context(), 7, []Change{Of(relay.Change{Kind: relay.ChangeEvent, Event: id})}); !errors.Is(err, s.fault) {
		t.Errorf("without a store: %v", err)
	}
}
