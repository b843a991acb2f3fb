package record

import (
	"fmt"
	"strings"
)

// DiffLines returns a comparison as text for a terminal: the headline, then a line for each change.
// All text in it is safe to print.
func DiffLines(d *Diff) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s %s and %s\n", SafeText(d.Headline), d.Part, d.Left, d.Right)
	if d.Request != nil {
		fmt.Fprintf(&b, "\n- %s\n+ %s\n", SafeText(d.Request.Left), SafeText(d.Request.Right))
	}
	if len(d.Headers) > 0 {
		b.WriteString("\n")
	}
	for _, h := range d.Headers {
		note := ""
		if h.Noise {
			note = "  (always differs)"
			if strings.EqualFold(h.Name, "content-length") {
				note = "  (follows from the body)"
			}
		}
		if h.Left != nil {
			fmt.Fprintf(&b, "- %s: %s%s\n", SafeText(h.Name), SafeText(*h.Left), note)
		}
		if h.Right != nil {
			fmt.Fprintf(&b, "+ %s: %s%s\n", SafeText(h.Name), SafeText(*h.Right), note)
		}
	}
	if len(d.Body.Changes) > 0 {
		b.WriteString("\n")
	}
	for i := range d.Body.Changes {
		b.WriteString(d.Body.Changes[i].line(d.Body.Kind) + "\n")
	}
	if d.Body.Note != "" {
		fmt.Fprintf(&b, "(%s)\n", SafeText(d.Body.Note))
	}
	return b.String()
}

// maxShownValue bounds a JSON value in a line, in characters.
const maxShownValue = 200

// line returns one change of a body of the given kind (BodyDiff.Kind) as a line of text.
func (c *BodyChange) line(kind string) string {
	if kind == DiffText {
		return map[string]string{"add": "+ ", "remove": "- ", "same": "  ", "skip": "…"}[c.Op] + SafeText(strings.ReplaceAll(c.Text, "\t", "    "))
	}
	field := SafeText(c.Field)
	if field == "" {
		field = "the whole body"
	}
	value, old := SafeTextMax(string(c.Value), maxShownValue), SafeTextMax(string(c.Old), maxShownValue)
	note := ""
	if c.Noise {
		note = "  (the id of the delivery)"
	}
	switch c.Op {
	case "add":
		return "+ " + field + ": " + value
	case "remove":
		return "- " + field + ": " + old
	case "move":
		return "> " + field + " moved to " + SafeText(*c.Path) + ": " + value
	default:
		return "~ " + field + ": " + old + " → " + value + note
	}
}
