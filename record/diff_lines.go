package record

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	reading "relay/record/body"
)

// DiffLine is a line of the right body, or a line that only the left body has, with its mark.
type DiffLine struct {
	Op   string // add, remove, replace, move; "" = the same in both
	Text string // text of the line; for a replaced value, the text before the value
	Old  string // for a replaced value, the old value
	New  string // for a replaced value, the new value and the rest of the line
}

// shownLine limits the length of a shown line, in characters.
const shownLine = 300

// Limits of a body whose changes are marked in its text.
const (
	markedBytes = 64 << 10
	markedLines = 600
)

// Lines returns the right body of a JSON comparison, with a line for each value. The changes are marked
// in their places, and all text is safe to print. ok is false for a long body, if not all changes are
// listed, or if a change has no place in the text, such as a moved element.
func (diff *Diff) Lines() (lines []DiffLine, ok bool) {
	d := &diff.Body
	if d.Kind != DiffJSON || d.Same || len(d.Changes) == 0 || d.Total > len(d.Changes) || len(diff.right) == 0 || len(diff.right) > markedBytes {
		return nil, false
	}
	text := reading.Indent(diff.right)
	if bytes.Count(text, []byte("\n")) > markedLines {
		return nil, false
	}
	m := &lineMarker{changes: map[string]*BodyChange{}, removed: map[string][]*BodyChange{}}
	for i := range d.Changes {
		c := &d.Changes[i]
		if c.Path == nil || *c.Path == "" || c.Op == "move" {
			return nil, false
		}
		if c.Op == "remove" {
			parent := (*c.Path)[:strings.LastIndexByte(*c.Path, '/')]
			m.removed[parent] = append(m.removed[parent], c)
		} else {
			m.changes[*c.Path] = c
		}
	}
	for line := range bytes.Lines(text) {
		if !m.line(strings.TrimRight(string(line), "\r\n")) {
			return nil, false
		}
	}
	return m.lines, len(m.changes) == 0 && len(m.removed) == 0
}

// lineMarker marks changes in the lines of indented JSON, each of which has one value.
type lineMarker struct {
	changes map[string]*BodyChange   // the changes that were not found in the lines yet, by JSON pointer
	removed map[string][]*BodyChange // removed values, by the pointer of the object or array that contained them
	open    []openValue
	added   int             // depth of an added object or array whose lines are read; 0 = none
	whole   strings.Builder // text of that object or array
	want    []byte          // value of that object or array in the listed change
	lines   []DiffLine
}

// openValue is an object or an array whose end was not read yet.
type openValue struct {
	pointer string
	array   bool
	next    int // index of the next element
}

// line adds one line. It returns false if a change does not fit the line.
func (m *lineMarker) line(text string) bool {
	bare := strings.TrimLeft(text, " ")
	if bare == "" {
		return true
	}
	if bare[0] == '}' || bare[0] == ']' {
		return m.end(text)
	}
	pointer, value := m.place(bare)
	op := ""
	c := m.changes[pointer]
	delete(m.changes, pointer)
	opens := strings.HasSuffix(value, "{") || strings.HasSuffix(value, "[")
	switch {
	case m.added > 0:
		op = "add"
	case c == nil:
	case c.Op == "add":
		op = "add"
		if m.want = c.Value; opens {
			m.added = len(m.open) + 1
			m.whole.Reset()
		} else if !m.isWanted(value) {
			return false
		}
	case opens || !bytes.Equal(bytes.TrimSuffix([]byte(value), []byte(",")), c.Value):
		return false // the value in this line is not the one that the change has at this path
	default:
		m.lines = append(m.lines, DiffLine{Op: "replace", Text: readable(text[:len(text)-len(value)]), Old: readable(string(c.Old)), New: readable(value)})
		return true
	}
	m.lines = append(m.lines, DiffLine{Op: op, Text: readable(text)})
	if m.added == len(m.open)+1 {
		m.whole.WriteString(value)
	} else if m.added > 0 {
		m.whole.WriteString(bare)
	}
	if opens {
		m.open = append(m.open, openValue{pointer: pointer, array: value[len(value)-1] == '['})
		return true
	}
	return m.rest(pointer, len(text)-len(bare)+2)
}

// place returns the pointer to the value of a line, and the value as written in the line.
func (m *lineMarker) place(bare string) (pointer, value string) {
	if len(m.open) == 0 {
		return "", bare
	}
	in := &m.open[len(m.open)-1]
	if in.array {
		in.next++
		return in.pointer + "/" + strconv.Itoa(in.next-1), bare
	}
	s := scanner{p: []byte(bare)}
	name, _ := s.text()
	value = strings.TrimPrefix(bare[len(name):], ": ")
	if len(name) < 2 {
		return in.pointer + "/", value
	}
	return in.pointer + "/" + escapePointer.Replace(jsonString(name)), value
}

// end adds the end of an object or array, after the values that only the left object or array had. It returns
// false if a change does not fit the object or array.
func (m *lineMarker) end(text string) bool {
	if len(m.open) == 0 {
		return false
	}
	in := m.open[len(m.open)-1]
	if !m.rest(in.pointer, len(text)-len(strings.TrimLeft(text, " "))+2) {
		return false
	}
	m.open = m.open[:len(m.open)-1]
	op := ""
	if m.added > 0 {
		op = "add"
	}
	if m.added > 0 {
		m.whole.WriteString(strings.TrimLeft(text, " "))
	}
	if m.added == len(m.open)+1 {
		if m.added = 0; !m.isWanted(m.whole.String()) {
			return false
		}
	}
	m.lines = append(m.lines, DiffLine{Op: op, Text: readable(text)})
	return true
}

// isWanted reports whether a value of the right body equals the value in the change for its path. The two can
// differ in an array, because the index in a change holds when that change is applied, and later changes may move
// the element.
func (m *lineMarker) isWanted(text string) bool {
	var b bytes.Buffer
	return json.Compact(&b, []byte(strings.TrimSuffix(text, ","))) == nil && bytes.Equal(b.Bytes(), m.want)
}

// rest adds a line for each value that only the left object or array at pointer had. It always returns true.
func (m *lineMarker) rest(pointer string, indent int) bool {
	for _, c := range m.removed[pointer] {
		name := (*c.Path)[len(pointer)+1:]
		text := strings.Repeat(" ", indent)
		if in := len(m.open); in == 0 || !m.open[in-1].array {
			text += `"` + unescapePointer.Replace(name) + `": `
		}
		m.lines = append(m.lines, DiffLine{Op: "remove", Text: readable(text + string(c.Old))})
	}
	delete(m.removed, pointer)
	return true
}

var unescapePointer = strings.NewReplacer("~1", "/", "~0", "~")

// readable returns JSON with as few escapes as possible, on one line that is safe to print.
func readable(text string) string {
	return SafeTextMax(string(reading.Readable([]byte(text))), shownLine)
}
