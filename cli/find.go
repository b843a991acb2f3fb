package cli

import (
	"context"
	"encoding/json"
	"net/url"
	"slices"
	"strings"

	"relay"
)

// LastEvent is an argument that means the newest event of all aliases of the account.
const LastEvent = "@last"

// eventHelp is the end of the help of commands that take an event.
const eventHelp = `

Instead of the id of an event you can give an alias, which is its newest event, ` + LastEvent + ` for the
newest event of all your aliases, or the last characters of an id.`

const (
	// minEnd is the minimum length of the end of an id: the chance that two of 200 events share the
	// last four characters is 2 %.
	minEnd = 4
	// searchedEnds is the number of newest events that are searched for the end of an id.
	searchedEnds = 1000
)

// ofEvents returns a Question that replaces the events in its arguments by their ids and then calls the
// Question asked.
func (f *Front) ofEvents(asked Question) Question {
	return func(ctx context.Context, api *API, args []string, emit func(json.RawMessage) error) (json.RawMessage, error) {
		ids := slices.Clone(args)
		for i, typed := range args {
			name, attempt, numbered := strings.Cut(typed, "/") // diff takes ID/ATTEMPT, too
			id, err := f.eventID(ctx, api, name)
			if err != nil {
				return nil, err
			}
			if ids[i] = id; numbered {
				ids[i] += "/" + attempt
			}
		}
		return asked(ctx, api, ids, emit)
	}
}

// eventID returns the id of the event that a typed name refers to. If the name is not an id, it prints a
// message with the id.
func (f *Front) eventID(ctx context.Context, api *API, name string) (string, error) {
	if id := strings.ToLower(name); strings.HasPrefix(id, relay.IDPrefix) {
		return id, nil
	}
	id, err := api.findEvent(ctx, name)
	if err == nil {
		f.Say(name + " is " + id)
	}
	return id, err
}

// findEvent returns the id of the event that a name refers to: LastEvent, an alias or the end of an id,
// in this order.
func (a *API) findEvent(ctx context.Context, name string) (string, error) {
	query, of := url.Values{}, ""
	if name != LastEvent {
		alias := AliasLabel(NormalAlias(name))
		if !relay.ValidLabel(alias) {
			return "", noEvent(name)
		}
		query.Set("alias", alias)
		of = " of " + alias
	}
	newest, err := a.list(ctx, query, 1)
	switch {
	case of != "" && HasCode(err, relay.CodeNotFound):
		return a.findEnd(ctx, name)
	case err != nil:
		return "", err
	case len(newest.Data) == 0:
		return "", &Error{Exit: ExitNotFound, Code: relay.CodeNotFound, Text: "there is no event" + of + " yet"}
	}
	return idOf(newest.Data[0]), nil
}

// findEnd searches the newest events for the only id that ends with end.
func (a *API) findEnd(ctx context.Context, end string) (string, error) {
	if len(end) < minEnd {
		return "", noEvent(end)
	}
	newest, err := a.list(ctx, url.Values{}, searchedEnds)
	if err != nil {
		return "", err
	}
	defer a.forget(0) // releases the memory that the list has reserved
	var found []string
	for _, event := range newest.Data {
		if id := idOf(event); strings.HasSuffix(id, strings.ToLower(end)) {
			found = append(found, id)
		}
	}
	switch len(found) {
	case 0:
		return "", noEvent(end)
	case 1:
		return found[0], nil
	}
	return "", Usage("several ids end with %s: %s", end, strings.Join(found[:min(len(found), 3)], ", ")).
		WithHint("give more characters of the one you mean")
}

// noEvent returns the error for a name that refers to no event.
func noEvent(name string) *Error {
	return &Error{Exit: ExitNotFound, Code: relay.CodeNotFound, Text: name + " is no event and no alias of yours"}
}
