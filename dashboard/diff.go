package dashboard

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

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
	left, err := record.ParseAttemptRef(q.Get("left"))
	if err != nil {
		return nil, err
	}
	v := diffPageView{Part: record.DiffRequest}
	if q.Get("part") == record.DiffResponse {
		v.Part = record.DiffResponse
	}
	e, err := p.Events.Event(r.Context(), who, left.Event, 0)
	if err != nil {
		return nil, err
	}
	v.Sides[0] = rowOf(record.Summarise(e, p.Site, time.Now()), nil)
	if q.Get("right") == "" {
		v.Candidates, err = p.candidates(r.Context(), who, e)
		return diffPage(v), err
	}
	right, err := record.ParseAttemptRef(q.Get("right"))
	if err != nil {
		return nil, err
	}
	if e, err = p.Events.Event(r.Context(), who, right.Event, 0); err != nil {
		return nil, err
	}
	v.Sides[1] = rowOf(record.Summarise(e, p.Site, time.Now()), nil)
	v.Swap = comparePath(q.Get("right"), q.Get("left"), v.Part)
	v.Other = comparePath(q.Get("left"), q.Get("right"), map[string]string{record.DiffRequest: record.DiffResponse, record.DiffResponse: record.DiffRequest}[v.Part])
	d, err := record.ReadDiff(r.Context(), p.Events, who, left, right, v.Part)
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
func (p *pages) candidates(ctx context.Context, who relay.Actor, e *relay.Event) (list []rowView, err error) {
	f := relay.Filter{Alias: e.Alias, Type: e.Provider.EventType, Limit: diffCandidates, Cursor: e.ID.String()}
	if f.Type == "" {
		f.Method = e.Method
	}
	page, err := p.Events.Events(ctx, who, f)
	for i := range page.Events {
		row := rowOf(record.Summarise(&page.Events[i], p.Site, time.Now()), nil)
		row.Link = comparePath(row.ID, e.ID.String(), record.DiffRequest)
		list = append(list, row)
	}
	return list, err
}

// comparePath is the page that compares two events.
func comparePath(left, right, part string) string {
	return withQuery("/diff", url.Values{"left": {left}, "right": {right}, "part": {part}})
}
