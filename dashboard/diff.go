package dashboard

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	udiff "github.com/aymanbagabas/go-udiff"

	"relay"
	"relay/record"
)

// Bounds of a comparison.
const (
	diffBody   = 128 << 10 // bytes of each body
	diffLines  = 4000      // lines of each side
	diffFields = 100       // changed fields and changed lines that are listed
	diffValue  = 200       // runes of a value
	diffLong   = 500       // runes of a line

	diffContext = 3 // unchanged lines shown around a change of a body
)

// diffView compares the responses of two attempts.
type diffView struct {
	Left, Right int
	Headline    string
	Headers     []diffLine
	Fields      []fieldChange // of two JSON bodies
	Body        []diffLine
	BodyNote    string
}

// diffLine is one line: "+" only right, "-" only left, " " both, "…" left out.
type diffLine struct {
	Sign, Text string
	Noise      bool // the header line differs between any two responses
}

// Class is the style of the line.
func (l diffLine) Class() string {
	switch {
	case l.Noise:
		return "noise"
	case l.Sign == "+":
		return "added"
	case l.Sign == "-":
		return "removed"
	}
	return "same"
}

// Note says why a header line is not counted as a change.
func (l diffLine) Note() string {
	if l.Noise {
		return " (differs in every response)"
	}
	return ""
}

// fieldChange is a place in a JSON body whose value differs; "" = it is not there.
type fieldChange struct{ Path, Was, Is string }

// compareResponses tells how the response of one attempt differs from that of another.
func compareResponses(was, is *relay.Attempt) diffView {
	d := diffView{Left: was.N, Right: is.N}
	parts := []string{strconv.Itoa(was.Status)}
	if was.Status != is.Status {
		parts[0] += " → " + strconv.Itoa(is.Status)
	} else {
		parts[0] += " in both"
	}
	lines, ok := record.CompareHeaders(record.OfAttempt(was, false).Response.Headers, record.OfAttempt(is, false).Response.Headers)
	d.Headers = headerRows(lines)
	if n := record.CountHeaderChanges(lines); n > 0 {
		parts = append(parts, countText(n, "header line changed", "header lines changed"))
	} else if !ok {
		parts = append(parts, "too many header lines to compare")
	}
	parts = append(parts, d.compareBodies(was, is))
	if was.HasTiming && is.HasTiming {
		parts = append(parts, latencyChange(was, is))
	}
	d.Headline = strings.Join(parts, ", ")
	return d
}

// compareBodies compares two bodies, JSON by its fields, and says the outcome in words.
func (d *diffView) compareBodies(was, is *relay.Attempt) string {
	a, b := &was.Response.Body, &is.Response.Body
	if a.Size == b.Size && a.SHA256 == b.SHA256 {
		d.BodyNote = "The bodies are identical."
		return "same body"
	}
	left, right := contentOf(was.Response.Head, a), contentOf(is.Response.Head, b)
	if !isText(left.plain, left.cut) || !isText(right.plain, right.cut) {
		d.BodyNote = fmt.Sprintf("Binary bodies are not compared: %s and %s.", sizeText(a.Size), sizeText(b.Size))
		return "different body"
	}
	one, oneJSON := left.diffText()
	two, twoJSON := right.diffText()
	lines, ok := lineDiff(one, two)
	d.Body = lines
	beyond := max(left.comparedBytes(), right.comparedBytes())
	switch {
	case !ok:
		d.BodyNote = "The bodies have too many lines to compare."
	case beyond > 0:
		d.BodyNote = "Only the first " + sizeText(int64(beyond)) + " are compared."
	}
	n, err := 0, errNoJSON
	if oneJSON && twoJSON {
		d.Fields, n, err = fieldChanges(left.plain, right.plain)
	}
	switch {
	case n > 0:
		return countText(n, "field changed", "fields changed")
	case err == nil && ok:
		return "same JSON values, different formatting"
	case !ok:
		return "different body"
	case len(lines) > 0:
		return countText(countChanges(lines), "line changed", "lines changed")
	case beyond > 0:
		return "bodies differ after the compared part"
	}
	d.BodyNote = "The bodies have the same text but different bytes: line endings or compression differ."
	return "same text, different bytes"
}

// comparedBytes returns how many bytes of a body are compared, or 0 when all are.
func (c *content) comparedBytes() int {
	if !c.cut && len(c.plain) <= diffBody {
		return 0
	}
	return min(len(c.plain), diffBody)
}

// diffText are the text of a body for comparing, JSON indented.
func (c *content) diffText() (text string, isJSON bool) {
	p := c.plain[:min(len(c.plain), diffBody)]
	cut := c.cut || len(p) < len(c.plain)
	if c.isJSON() {
		if out, fault := prettyJSON(p, cut); fault == nil {
			return visible(out) + "\n", !cut
		}
	}
	return visible(p) + "\n", false
}

// headerRows gives the removed and added header lines of a comparison.
func headerRows(lines []record.HeaderLine) []diffLine {
	var list []diffLine
	for _, l := range lines {
		line := diffLine{Text: cutLine(record.SafeText(l.Name + ": " + l.Value)), Noise: l.Noise}
		switch l.Op {
		case record.HeaderRemoved:
			line.Sign = "-"
		case record.HeaderAdded:
			line.Sign = "+"
		default:
			continue
		}
		if len(list) == 4*diffFields {
			return append(list, diffLine{Sign: "…", Text: "more changes are not shown"})
		}
		list = append(list, line)
	}
	return list
}

// lineDiff gives what changed with some lines around it; false when there is too much.
func lineDiff(was, is string) ([]diffLine, bool) {
	if strings.Count(was, "\n") > diffLines || strings.Count(is, "\n") > diffLines {
		return nil, false
	}
	edits := udiff.Lines(was, is)
	u, err := udiff.ToUnifiedDiff("", "", was, edits, diffContext)
	if err != nil {
		return nil, false
	}
	var list []diffLine
	changed := 0
	for i, h := range u.Hunks {
		if i > 0 {
			list = append(list, diffLine{Sign: "…"})
		}
		for _, l := range h.Lines {
			line := diffLine{Sign: " ", Text: cutLine(strings.TrimSuffix(l.Content, "\n"))}
			switch l.Kind {
			case udiff.Delete:
				line.Sign = "-"
			case udiff.Insert:
				line.Sign = "+"
			}
			if line.Sign != " " {
				changed++
			}
			if changed > 4*diffFields {
				return append(list, diffLine{Sign: "…", Text: "more changes are not shown"}), true
			}
			list = append(list, line)
		}
	}
	return list, true
}

// cutLine is the start of a line that is safe to show, with its tabs.
func cutLine(s string) string {
	n := 0
	for i := range s {
		if n++; n > diffLong {
			return s[:i] + "…"
		}
	}
	return s
}

// countChanges counts changed lines: one taken away and one added beside it are one.
func countChanges(lines []diffLine) int {
	total, removed, added := 0, 0, 0
	for _, l := range append(slices.Clone(lines), diffLine{Sign: " "}) {
		switch l.Sign {
		case "-":
			removed++
		case "+":
			added++
		default:
			total += max(removed, added)
			removed, added = 0, 0
		}
	}
	return total
}

// latencyChange says how much later the second answer came.
func latencyChange(was, is *relay.Attempt) string {
	ms := float64(is.Timing.Latency().Microseconds()-was.Timing.Latency().Microseconds()) / 1000
	switch {
	case math.Abs(ms) < 0.05:
		return "same latency"
	case ms > 0:
		return millisText(ms) + " slower"
	default:
		return millisText(-ms) + " faster"
	}
}
