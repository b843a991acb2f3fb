package dashboard

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"

	"github.com/a-h/templ"

	"relay"
	"relay/record"
)

// Bounds of a shown comparison.
const (
	diffValue      = 300 // runes of a JSON value
	diffLine       = 500 // runes of a header line
	diffCandidates = 20  // events to compare with
)

// diffView is a comparison of two responses or two requests.
type diffView struct {
	*record.Diff
	Title   string
	Columns [2]string
	Changed []fieldChange // method and path, and header lines
	Fields  []fieldChange // of two JSON bodies
	Noise   bool          // something is faded
}

// fieldChange is a header line or a JSON field that differs; "" = it is not there.
type fieldChange struct {
	Name, Was, Is string
	Noise         bool
}

// diffSigns are written before the lines of a text.
var diffSigns = map[string]string{"add": "+", "remove": "-", "skip": "…"}

func diffViewOf(d *record.Diff, title string, columns [2]string) *diffView {
	v := &diffView{Diff: d, Title: title, Columns: columns}
	if d.Request != nil {
		v.Changed = append(v.Changed, fieldChange{Name: "Method and path", Was: record.SafeTextMax(d.Request.Left, diffLine), Is: record.SafeTextMax(d.Request.Right, diffLine)})
	}
	for _, h := range d.Headers {
		c := fieldChange{Name: record.SafeTextMax(h.Name, diffValue), Noise: h.Noise}
		if h.Left != nil {
			c.Was = record.SafeTextMax(*h.Left, diffLine)
		}
		if h.Right != nil {
			c.Is = record.SafeTextMax(*h.Right, diffLine)
		}
		v.Changed, v.Noise = append(v.Changed, c), v.Noise || c.Noise
	}
	if d.Body.Kind == record.DiffJSON {
		for i := range d.Body.Changes {
			c := jsonChange(&d.Body.Changes[i])
			v.Fields, v.Noise = append(v.Fields, c), v.Noise || c.Noise
		}
	}
	return v
}

func jsonChange(c *record.BodyChange) fieldChange {
	f := fieldChange{Name: record.SafeTextMax(c.Field, diffValue), Was: record.SafeTextMax(string(c.Old), diffValue), Is: record.SafeTextMax(string(c.Value), diffValue), Noise: c.Noise}
	if f.Name == "" {
		f.Name = "the whole body"
	}
	if c.Op == "move" && c.From != nil && c.Path != nil {
		f.Was, f.Is = "at "+record.SafeTextMax(*c.From, diffValue), "at "+record.SafeTextMax(*c.Path, diffValue)
	}
	return f
}

// compareAttempts compares the responses of two attempts; nil if they cannot be read.
func (p *pages) compareAttempts(ctx context.Context, who relay.Actor, id relay.ID, left, right int) *diffView {
	d, err := record.ReadDiff(ctx, p.Events, who, relay.AttemptRef{Event: id, N: left}, relay.AttemptRef{Event: id, N: right}, record.DiffResponse)
	if err != nil {
		p.Log.Warn("attempts not compared", "event", id, "error", err)
		return nil
	}
	names := [2]string{"Attempt " + strconv.Itoa(left), "Attempt " + strconv.Itoa(right)}
	return diffViewOf(d, names[0]+" and "+strconv.Itoa(right), names)
}

// diffPageView is the page that compares two events, or asks with which one to compare.
type diffPageView struct {
	Part        string
	Sides       [2]rowView
	Diff        *diffView
	Other, Swap string    // addresses: of the other part, and with the sides swapped
	Candidates  []rowView // to choose from, while only one side is known; Link compares
	NoResponse  bool
}

// compare is the page /diff?left=…&right=…&part=….
func (p *pages) compare(_ http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
	q := r.URL.Query()
	v := diffPageView{Part: record.DiffRequest}
	other := record.DiffResponse
	if q.Get("part") == other {
		v.Part, other = other, v.Part
	}
	var refs [2]relay.AttemptRef
	for i, side := range [2]string{q.Get("left"), q.Get("right")} {
		var err error
		if i == 1 && side == "" {
			v.Candidates, err = p.candidates(r.Context(), who, v.Sides[0])
			return diffPage(v), err
		}
		if refs[i], err = record.ParseAttemptRef(side); err != nil {
			return nil, err
		}
		e, err := p.Events.Event(r.Context(), who, refs[i].Event, 0)
		if err != nil {
			return nil, err
		}
		v.Sides[i] = p.row(e)
	}
	v.Swap = comparePath(q.Get("right"), q.Get("left"), v.Part)
	v.Other = comparePath(q.Get("left"), q.Get("right"), other)
	d, err := record.ReadDiff(r.Context(), p.Events, who, refs[0], refs[1], v.Part)
	if errors.Is(err, relay.ErrNotFound) { // both events are there
		v.NoResponse = true
		return diffPage(v), nil
	}
	if err != nil {
		return nil, err
	}
	v.Diff = diffViewOf(d, "Changes", [2]string{"Left", "Right"})
	return diffPage(v), nil
}

// candidates are earlier events like one, to compare it with.
func (p *pages) candidates(ctx context.Context, who relay.Actor, like rowView) (list []rowView, err error) {
	f := relay.Filter{Alias: like.Alias, Limit: diffCandidates, Cursor: like.ID}
	if p := like.Provider; p != nil && p.EventType != nil {
		f.Type = *p.EventType
	} else {
		f.Method = like.Method
	}
	page, err := p.Events.Events(ctx, who, f)
	for i := range page.Events {
		row := p.row(&page.Events[i])
		row.Link = comparePath(row.ID, like.ID, record.DiffRequest)
		list = append(list, row)
	}
	return list, err
}

// comparePath is the page that compares two events.
func comparePath(left, right, part string) string {
	return withQuery("/diff", url.Values{"left": {left}, "right": {right}, "part": {part}})
}
