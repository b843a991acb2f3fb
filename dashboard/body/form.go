package body

import (
	"fmt"

	"relay/record"
	reading "relay/record/body"
)

// Bounds of multipart bodies.
const (
	shownParts   = 50  // largest number of shown parts
	shownPartHex = 512 // shown bytes of a part that is not text
)

// partView is one part of a multipart body.
type partView struct {
	Name, File, Type, Size, Fault, Text string
	JSON                                bool // Text is indented JSON
}

// pairsOf returns the fields of a form or query in their order.
func pairsOf(fields []reading.Field) []Pair {
	var list []Pair
	for _, f := range fields {
		if len(list) == ShownLines {
			return append(list, Pair{Name: "…", Value: fmt.Sprintf("%d more fields; the download has them", len(fields)-ShownLines)})
		}
		p := Pair{Name: record.SafeText(f.Name), JSON: f.JSON}
		if f.JSON {
			p.Value = Visible(reading.Readable(reading.Indent([]byte(f.Value))))
		} else {
			p.Value = record.SafeText(f.Value)
		}
		list = append(list, p)
	}
	return list
}

// QueryPairs returns the fields of the query of a request-target.
func QueryPairs(target []byte) []Pair { return pairsOf(reading.Query(target)) }

// partsOf returns the parts of a multipart body.
func (c *content) partsOf() []partView {
	var list []partView
	for i := range c.Parts[:min(len(c.Parts), shownParts)] {
		p := &c.Parts[i]
		v := partView{
			Name: record.SafeText(p.Name), File: record.SafeText(p.File), Type: record.SafeTextMax(p.Label.Kind, 200), Size: SizeText(int64(len(p.Raw))),
			Fault: record.SafeText(p.FaultText()), JSON: p.Form == reading.JSON,
		}
		if p.Cut {
			v.Size = "at least " + v.Size
		}
		if text, ok := p.Plain(); ok {
			if v.JSON {
				text = reading.Readable(text)
			}
			v.Text = Visible(text)
		} else {
			v.Text = hexDump(p.Text[:min(len(p.Text), shownPartHex)])
			if len(p.Text) > shownPartHex {
				v.Size += ", of which the first " + SizeText(shownPartHex) + " are shown"
			}
		}
		list = append(list, v)
	}
	return list
}
