package body

import (
	"cmp"

	"relay/record"
	reading "relay/record/body"
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
	Changed []fieldChange // changes of method, path and header lines
	Noise   []fieldChange // changes of header lines that differ every time, such as Date
	Fields  []fieldChange // changes of the fields of two JSON bodies
	Lines   []diffRow     // lines of the right JSON body with the changes marked; nil = the changes cannot be marked
	Faded   bool          // some of Fields differ every time, so they are shown faded
}

// diffRow is a line of a body with its mark, or a gap of equal lines that are left out.
type diffRow struct {
	record.DiffLine
	Skipped int
}

// sign returns the sign at the start of a line.
func (r *diffRow) sign() string {
	return map[string]string{"add": "+ ", "remove": "− ", "replace": "~ "}[r.Op]
}

// sameAround is the number of equal lines that are shown around a change.
const sameAround = 3

// rowsOf leaves out equal lines that are far from a change.
func rowsOf(lines []record.DiffLine) (rows []diffRow) {
	near := make([]bool, len(lines))
	for i := range lines {
		if lines[i].Op != "" {
			for k := max(0, i-sameAround); k < min(len(lines), i+sameAround+1); k++ {
				near[k] = true
			}
		}
	}
	for i := 0; i < len(lines); i++ {
		end := i
		for end < len(lines) && !near[end] {
			end++
		}
		if end-i > 1 {
			rows = append(rows, diffRow{Skipped: end - i})
			i = end - 1
			continue
		}
		rows = append(rows, diffRow{DiffLine: lines[i]})
	}
	return rows
}

// fieldChange is a header line or a JSON field that differs; Was is its value on the left side and Is that on
// the right side; "" = the side has none.
type fieldChange struct {
	Name, Was, Is string
	Noise         bool
}

// diffSigns are the signs before the changed lines of two bodies that are compared as text.
var diffSigns = map[string]string{"add": "+", "remove": "-", "skip": "…"}

// DiffOf returns the view of a comparison.
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
		if c.Noise {
			v.Noise = append(v.Noise, c)
		} else {
			v.Changed = append(v.Changed, c)
		}
	}
	if d.Body.Kind == record.DiffJSON {
		for i := range d.Body.Changes {
			c := &d.Body.Changes[i]
			was, is := string(reading.Readable(c.Old)), string(reading.Readable(c.Value))
			if c.Op == "move" && c.From != nil && c.Path != nil {
				was, is = "at "+*c.From, "at "+*c.Path
			}
			v.Fields = append(v.Fields, fieldChange{
				Name: record.SafeTextMax(cmp.Or(c.Field, "the whole body"), diffValue),
				Was:  record.SafeTextMax(was, diffValue), Is: record.SafeTextMax(is, diffValue), Noise: c.Noise,
			})
			v.Faded = v.Faded || c.Noise
		}
		if lines, ok := d.Lines(); ok {
			v.Lines = rowsOf(lines)
		}
	}
	return v
}
