package body

import (
	"cmp"

	"relay/record"
)

// Bounds of a shown comparison.
const (
	diffValue = 300 // runes of a JSON value
	diffLine  = 500 // runes of a header line
)

// Diff is a comparison of two responses or two requests.
type Diff struct {
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

// DiffOf makes the view of a comparison.
func DiffOf(d *record.Diff, title string, columns [2]string) *Diff {
	v := &Diff{Diff: d, Title: title, Columns: columns}
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
			c := &d.Body.Changes[i]
			was, is := string(c.Old), string(c.Value)
			if c.Op == "move" && c.From != nil && c.Path != nil {
				was, is = "at "+*c.From, "at "+*c.Path
			}
			v.Fields = append(v.Fields, fieldChange{
				Name: record.SafeTextMax(cmp.Or(c.Field, "the whole body"), diffValue),
				Was:  record.SafeTextMax(was, diffValue), Is: record.SafeTextMax(is, diffValue), Noise: c.Noise,
			})
			v.Noise = v.Noise || c.Noise
		}
	}
	return v
}
