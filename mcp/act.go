package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"relay"
	"relay/record"
)

// addActing adds the tools that send a request to a local server, if the listing includes them.
func addActing(s *sdk.Server, l listing) {
	acts := func(name, title, text string) tool {
		return tool{name: name, title: title, text: text, scopes: []string{"events:replay"}, acts: true}
	}
	add(s, l, acts("replay_event", "Replay an event", "Send the exact bytes of an event to the local server again, wait for its answer, and return the new attempt with its difference to the last one that got an answer. While no tunnel is attached the replay is queued."), (*tools).replayEvent)
	send := acts("send_event", "Send a new event", "Make a new event and send it once to the local server: from a captured event with changes, from a sample (last:TYPE for the newest event of a type), or from nothing. It is a new event, not a replay; sign: auto signs it now with the secret of the alias. With dryRun nothing is sent.")
	send.scopes = []string{"events:send"}
	add(s, l, send, (*tools).sendEvent)
	queued := acts("replay_queued", "Deliver queued events", "Deliver the events of an alias that were queued while it was offline. expect must be their number as list_aliases gives it.")
	queued.scopes = append(queued.scopes, "aliases:read") // to compare the number
	add(s, l, queued, (*tools).replayQueued)
}

type replayIn struct {
	hiding
	ID   string  `json:"id"`
	Wait float64 `json:"wait,omitempty" jsonschema:"seconds to wait for the answer, at most 60; default 30"`
}

// replayed is the result of a replay: the attempt that it made.
type replayed struct {
	EventID    string          `json:"eventId"`
	State      string          `json:"state"`
	Attempt    *record.Attempt `json:"attempt"`
	Difference *record.Diff    `json:"difference"` // null where one of the attempts has no response
}

func (t *tools) replayEvent(ctx context.Context, in replayIn) (any, error) {
	seconds, err := waitWithin("wait", in.Wait)
	if err != nil {
		return nil, err
	}
	if err := t.check(ctx, in.ID); err != nil {
		return nil, err
	}
	var e record.Event
	if err := t.API.Decode(ctx, http.MethodPost, "/events/"+url.PathEscape(in.ID)+"/replay?wait="+seconds, nil, &e); err != nil {
		return nil, err
	}
	answered := slices.DeleteFunc(slices.Clone(e.Attempts), func(a record.Attempt) bool { return a.Response == nil })
	if !in.Reveal {
		if err := record.Mask(ctx, &e); err != nil { // the replay was made, so its outcome is returned without bodies
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
		// The replay was made: its result is returned even if the comparison fails.
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

type sendIn struct {
	hiding
	Alias    string         `json:"alias"`
	From     string         `json:"from,omitempty" jsonschema:"the event that the new one is made from"`
	Sample   string         `json:"sample,omitempty" jsonschema:"name of a sample such as github/push, or last:TYPE"`
	Method   string         `json:"method,omitempty" jsonschema:"by itself: the request is made from nothing"`
	Path     string         `json:"path,omitempty"`
	Headers  [][]string     `json:"headers,omitempty" jsonschema:"lines as [name, value]; each name replaces the lines of it"`
	Remove   []string       `json:"removeHeaders,omitempty" jsonschema:"names of lines to leave out"`
	Body     *sentBody      `json:"body,omitempty" jsonschema:"replaces the whole body"`
	Set      map[string]any `json:"set,omitempty" jsonschema:"replaces members of the JSON body by their paths, such as data.object.status"`
	Sign     string         `json:"sign,omitempty" jsonschema:"auto, none, or the name of a sender; default none"`
	SecretID string         `json:"secretId,omitempty"`
	NewID    bool           `json:"newId,omitempty" jsonschema:"a new delivery id"`
	DryRun   bool           `json:"dryRun,omitempty" jsonschema:"show the request; nothing is sent or stored"`
	Wait     float64        `json:"wait,omitempty" jsonschema:"seconds to wait for the answer, at most 60; default 30"`
}

type sentBody struct {
	Encoding string `json:"encoding" jsonschema:"utf8 or base64"`
	Data     string `json:"data"`
}

// sent is the result of a send: the new event.
type sent struct {
	Event *shownEvent `json:"event"`
	// RequestDifference is the difference from the base event; null without a base event.
	RequestDifference  *record.Diff `json:"requestDifference"`
	ResponseDifference *record.Diff `json:"responseDifference"`
}

func (t *tools) sendEvent(ctx context.Context, in sendIn) (any, error) {
	seconds, err := waitWithin("wait", in.Wait)
	if err != nil {
		return nil, err
	}
	path, err := t.aliasPath(in.Alias)
	if err != nil {
		return nil, err
	}
	reveal := in.Reveal
	in.Alias, in.Wait, in.Reveal = "", 0, false // these are no keys of the request body of the API
	body, err := sendBody(&in)
	if err != nil {
		return nil, err
	}
	if in.DryRun {
		var p preview
		err := t.API.Decode(ctx, http.MethodPost, path+"/send", body, &p)
		if err == nil && !reveal {
			err = p.mask(ctx)
		}
		return &p, err
	}
	var made record.Event
	if err := t.API.Decode(ctx, http.MethodPost, path+"/send?wait="+seconds, body, &made); err != nil {
		return nil, err
	}
	out := &sent{}
	if in.From != "" {
		// The event was sent: its result is returned even if the comparison fails.
		out.RequestDifference, _ = t.difference(ctx, in.From, made.ID, record.DiffRequest, reveal)
		out.ResponseDifference, _ = t.difference(ctx, in.From, made.ID, record.DiffResponse, reveal)
	}
	if !reveal {
		if err := record.Mask(ctx, &made); err != nil {
			return nil, err
		}
	}
	out.Event = shown(&made, usualAttempts, usualPiece)
	return out, nil
}

// sendBody returns the request body of the API for the arguments of a send.
func sendBody(in *sendIn) (map[string]any, error) {
	text, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	var body map[string]any
	err = json.Unmarshal(text, &body)
	delete(body, "alias")
	return body, err
}

// preview is the result of a dry run of a send.
type preview struct {
	Request  *record.Message `json:"request"`
	Raw      string          `json:"raw,omitempty"` // set only if the call reveals secrets
	Method   string          `json:"method"`
	Path     string          `json:"path"`
	Changes  []string        `json:"changes"`
	SignedBy *string         `json:"signedBy"`
}

// mask hides the secrets of the request.
func (p *preview) mask(ctx context.Context) error {
	e := record.Event{Summary: record.Summary{Method: p.Method, Path: p.Path}, Request: p.Request}
	err := record.Mask(ctx, &e)
	p.Request, p.Path, p.Raw = e.Request, e.Path, ""
	cut(p.Request.Body, usualPiece)
	return err
}
