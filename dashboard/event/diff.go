package event

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"

	"github.com/a-h/templ"

	"relay"
	"relay/dashboard/alias"
	"relay/dashboard/body"
	"relay/dashboard/page"
	"relay/record"
)

const diffCandidates = 20 // number of events that the user can choose from

// diffPageView is the page that compares two events, or asks for the second one.
type diffPageView struct {
	Part        string
	Sides       [2]alias.Row
	Diff        *body.Diff
	Other, Swap string      // addresses of the comparison of the other part, and of the one with the sides swapped
	Candidates  []alias.Row // events to choose from while only one side is known; the Link of a row leads to the comparison
	NoResponse  bool
}

// compare returns the page /diff?left=…&right=…&part=…. Without part it compares the responses if left or right
// names an attempt, else the requests.
func (p pages) compare(_ http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
	q := r.URL.Query()
	part := q.Get("part")
	if part != "" && part != record.DiffRequest && part != record.DiffResponse {
		return nil, relay.Errorf(relay.CodeValidationFailed, "part: expected %s or %s", record.DiffRequest, record.DiffResponse)
	}
	v := diffPageView{Part: cmp.Or(part, record.DiffRequest)}
	var compared [2]record.Compared
	for i, side := range [2]string{q.Get("left"), q.Get("right")} {
		var err error
		if i == 1 && side == "" {
			v.Candidates, err = p.candidates(r.Context(), who, v.Sides[0])
			return diffPage(v), err
		}
		if compared[i], err = record.ReadCompared(r.Context(), p.Events, who, side); err != nil {
			return nil, err
		}
		v.Sides[i] = p.Row(compared[i].Event)
	}
	v.Part = cmp.Or(part, record.DiffPart(compared[0], compared[1]))
	other := record.DiffResponse
	if v.Part == other {
		other = record.DiffRequest
	}
	v.Swap = comparePath(q.Get("right"), q.Get("left"), v.Part)
	v.Other = comparePath(q.Get("left"), q.Get("right"), other)
	d, err := record.ReadDiff(r.Context(), p.Events, compared[0], compared[1], v.Part)
	switch {
	case errors.Is(err, relay.ErrNotFound): // the events exist, but one of them lacks the part
		v.NoResponse = true
	case err != nil:
		return nil, err
	default:
		v.Diff = body.DiffOf(d, "Changes", [2]string{"Left", "Right"})
	}
	return diffPage(v), nil
}

// candidates returns events that are older than the event in the parameter like, and have its event type or, if
// it has none, its method. If there is no such event, candidates returns newer ones.
func (p pages) candidates(ctx context.Context, who relay.Actor, like alias.Row) (list []alias.Row, err error) {
	f := relay.Filter{Alias: like.Alias, Limit: diffCandidates, Cursor: like.ID}
	if p := like.Provider; p != nil && p.EventType != nil {
		f.Type = *p.EventType
	} else {
		f.Method = like.Method
	}
	found, err := p.Events.Events(ctx, who, f)
	if err == nil && len(found.Events) == 0 { // there is no older event, so newer ones are offered
		f.Cursor = ""
		found, err = p.Events.Events(ctx, who, f)
	}
	for i := range found.Events {
		if found.Events[i].ID.String() == like.ID {
			continue
		}
		row := p.Row(&found.Events[i])
		row.Link = comparePath(min(row.ID, like.ID), max(row.ID, like.ID), record.DiffRequest)
		list = append(list, row)
	}
	return list, err
}

// comparePath returns the address of the page that compares two events.
func comparePath(left, right, part string) string {
	return page.WithQuery("/diff", url.Values{"left": {left}, "right": {right}, "part": {part}})
}
