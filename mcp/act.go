package mcp

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"relay"
	"relay/record"
)

// addActing lists the tools that send something to a local server.
func (t *tools) addActing() {
	acts := func(name, title, text string) tool {
		return tool{name: name, title: title, text: text, scope: "events:replay", acts: true}
	}
	add(t, acts("replay_event", "Replay an event", "Send the exact bytes of an event to the local server again, wait for its answer, and return the new attempt with its difference to the last one that got an answer. While no tunnel is attached the replay is queued."), t.replayEvent)
	add(t, acts("replay_queued", "Deliver queued events", "Deliver the events of an alias that were queued while it was offline. expect must be their number as list_aliases gives it."), t.replayQueued)
}

type replayIn struct {
	hiding
	ID   string `json:"id"`
	Wait int    `json:"wait,omitempty" jsonschema:"seconds to wait for the answer, 1 to 60; default 30"`
}

// replayed is the attempt that a replay made.
type replayed struct {
	EventID    string          `json:"eventId"`
	State      string          `json:"state"`
	Attempt    *record.Attempt `json:"attempt"`
	Difference *record.Diff    `json:"difference"` // null where one of the attempts has no response
}

func (t *tools) replayEvent(ctx context.Context, in replayIn) (any, error) {
	seconds, err := within("wait", in.Wait, usualWait, maxWait)
	if err != nil {
		return nil, err
	}
	if err := t.check(ctx, in.ID); err != nil {
		return nil, err
	}
	var e record.Event
	if err := t.API.Decode(ctx, http.MethodPost, "/events/"+url.PathEscape(in.ID)+"/replay?wait="+strconv.Itoa(seconds)+"s", nil, &e); err != nil {
		return nil, err
	}
	answered := slices.DeleteFunc(slices.Clone(e.Attempts), func(a record.Attempt) bool { return a.Response == nil })
	if !in.Reveal {
		if err := record.Mask(ctx, &e); err != nil { // the replay was made, and its outcome is told
			return &replayed{EventID: e.ID, State: e.State}, nil
		}
	}
	out := &replayed{EventID: e.ID, State: e.State}
	if n := len(e.Attempts); n > 0 {
		out.Attempt = &e.Attempts[n-1]
		if r := out.Attempt.Response; r != nil {
			cut(r.Body, usualPiece)
		}
	}
	if n := len(answered); n > 1 && out.Attempt.Number == answered[n-1].Number {
		ref := func(a record.Attempt) string { return fmt.Sprintf("%s/%d", e.ID, a.Number) }
		// The replay was made, and is told whether it can be compared or not.
		out.Difference, _ = t.difference(ctx, ref(answered[n-2]), ref(answered[n-1]), record.DiffResponse, in.Reveal)
	}
	return out, nil
}

type queuedIn struct {
	Alias  string `json:"alias"`
	Expect int    `json:"expect" jsonschema:"how many events are queued"`
}

func (t *tools) replayQueued(ctx context.Context, in queuedIn) (any, error) {
	path, err := t.aliasPath(in.Alias)
	if err != nil {
		return nil, err
	}
	var a record.Alias
	if err := t.API.Get(ctx, path, &a); err != nil {
		return nil, err
	}
	if a.QueuedEvents != in.Expect {
		return nil, relay.Errorf(relay.CodeConflict, "%s are queued, and not %d; nothing was delivered", record.Count(a.QueuedEvents, "event", "events"), in.Expect)
	}
	var out record.Released
	err = t.API.Decode(ctx, http.MethodPost, path+"/replay-queued", nil, &out)
	return &out, err
}
