package dashboard

import (
	"fmt"
	"unicode/utf8"
)

// Bounds of the pretty view.
const (
	jsonDepth  = 64      // levels that get lines of their own; deeper ones stay on one line
	jsonOutput = 1 << 20 // bytes after which indenting ends; wholeOutput where the text is asked for alone
)

// jsonFault is where a text stops being JSON.
type jsonFault struct {
	Offset int // in bytes from 0
	Why    string
}

// in gives line and column, both from 1, the column in bytes.
func (f *jsonFault) in(p []byte) (line, column int) {
	line, column = 1, 1
	for _, c := range p[:min(f.Offset, len(p))] {
		column++
		if c == '\n' {
			line, column = line+1, 1
		}
	}
	return line, column
}

// jsonPrinter indents JSON without changing one byte of its names, strings and
// numbers: 1.0 stays 1.0, escapes stay escapes, doubled keys stay doubled.
type jsonPrinter struct {
	p     []byte
	i     int
	out   []byte
	stack []byte // the open brackets
	most  int    // bytes after which indenting ends
}

// prettyJSON indents p. A fault tells where p is no JSON (RFC 8259); with cut, the
// end of p is the end of what is at hand and no fault, and out is what there is.
func prettyJSON(p []byte, cut bool) (out []byte, fault *jsonFault) {
	return indentJSON(p, cut, jsonOutput)
}

func indentJSON(p []byte, cut bool, most int) (out []byte, fault *jsonFault) {
	j := &jsonPrinter{p: p, out: make([]byte, 0, len(p)+len(p)/4), most: most}
	fault = j.value()
	for fault == nil && len(j.stack) > 0 {
		fault = j.next()
	}
	if fault == nil {
		if j.space(); j.i < len(p) {
			fault = j.fail("something follows the end of the JSON value")
		}
	}
	if fault != nil && cut && fault.Offset >= len(p) {
		fault = nil
	}
	return j.out, fault
}

// value reads a value up to its end, or up to its opening bracket.
func (j *jsonPrinter) value() *jsonFault {
	j.space()
	if j.i >= len(j.p) {
		return j.fail("the end where a value is expected")
	}
	switch c := j.p[j.i]; {
	case c == '{' || c == '[':
		return j.open(c)
	case c == '"':
		return j.text()
	case c == '-' || c >= '0' && c <= '9':
		return j.number()
	default:
		return j.literal()
	}
}

func (j *jsonPrinter) open(c byte) *jsonFault {
	j.take(1)
	j.space()
	if j.i < len(j.p) && j.p[j.i] == c+2 { // } and ] stand two behind { and [
		j.take(1)
		return nil
	}
	j.stack = append(j.stack, c)
	j.newline()
	if c == '{' {
		return j.member()
	}
	return j.value()
}

// next reads what follows a value within a bracket.
func (j *jsonPrinter) next() *jsonFault {
	j.space()
	open := j.stack[len(j.stack)-1]
	if j.i >= len(j.p) {
		return j.fail("the end within an object or array")
	}
	switch c := j.p[j.i]; {
	case c == ',':
		j.take(1)
		j.newline()
		j.space()
		if open == '{' {
			return j.member()
		}
		return j.value()
	case c == open+2:
		j.stack = j.stack[:len(j.stack)-1]
		j.newline()
		j.take(1)
		return nil
	case open == '{':
		return j.fail("expected , or }")
	default:
		return j.fail("expected , or ]")
	}
}

func (j *jsonPrinter) member() *jsonFault {
	j.space()
	if j.i >= len(j.p) || j.p[j.i] != '"' {
		return j.fail("expected a name in quotes")
	}
	if fault := j.text(); fault != nil {
		return fault
	}
	j.space()
	if j.i >= len(j.p) || j.p[j.i] != ':' {
		return j.fail("expected :")
	}
	j.take(1)
	j.out = append(j.out, ' ')
	return j.value()
}

func (j *jsonPrinter) text() *jsonFault {
	for k := j.i + 1; k < len(j.p); k++ {
		switch c := j.p[k]; {
		case c == '"':
			if !utf8.Valid(j.p[j.i:k]) {
				return j.fail("a string that is not UTF-8")
			}
			j.take(k + 1 - j.i)
			return nil
		case c < 0x20:
			j.i = k
			return j.fail("a control character within a string")
		case c == '\\':
			n := escapeLength(j.p[k:])
			if n == 0 {
				if len(j.p)-k < 6 {
					k = len(j.p) // perhaps only cut
				}
				j.i = k
				return j.fail("an unknown escape within a string")
			}
			k += n - 1
		}
	}
	j.take(len(j.p) - j.i) // of a string that was cut, what there is
	return j.fail("the end within a string")
}

// escapeLength is the length of the escape at the start of p, 0 = it is none.
func escapeLength(p []byte) int {
	if len(p) < 2 {
		return 0
	}
	switch p[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if len(p) < 6 {
			return 0
		}
		for _, c := range p[2:6] {
			if (c < '0' || c > '9') && (c < 'a' || c > 'f') && (c < 'A' || c > 'F') {
				return 0
			}
		}
		return 6
	}
	return 0
}

func (j *jsonPrinter) number() *jsonFault {
	k := j.i
	digits := func() bool {
		from := k
		for k < len(j.p) && j.p[k] >= '0' && j.p[k] <= '9' {
			k++
		}
		return k > from
	}
	at := func(set string) bool {
		for i := range len(set) {
			if k < len(j.p) && j.p[k] == set[i] {
				k++
				return true
			}
		}
		return false
	}
	at("-")
	ok := at("0") || digits()
	if ok && at(".") {
		ok = digits()
	}
	if ok && at("eE") {
		at("+-")
		ok = digits()
	}
	if !ok {
		j.i = k
		return j.fail("a number that is not finished")
	}
	j.take(k - j.i)
	return nil
}

func (j *jsonPrinter) literal() *jsonFault {
	for _, word := range []string{"true", "false", "null"} {
		n := min(len(word), len(j.p)-j.i)
		if string(j.p[j.i:j.i+n]) == word[:n] {
			if n < len(word) {
				j.i = len(j.p)
				return j.fail("the end within a value")
			}
			j.take(n)
			return nil
		}
	}
	return j.fail(fmt.Sprintf("%q where a value is expected", j.p[j.i:min(j.i+1, len(j.p))]))
}

// take copies n bytes as they are.
func (j *jsonPrinter) take(n int) {
	j.out = append(j.out, j.p[j.i:j.i+n]...)
	j.i += n
}

func (j *jsonPrinter) space() {
	for j.i < len(j.p) {
		switch j.p[j.i] {
		case ' ', '\t', '\n', '\r':
			j.i++
		default:
			return
		}
	}
}

func (j *jsonPrinter) newline() {
	if len(j.stack) > jsonDepth || len(j.out) > j.most {
		return
	}
	j.out = append(j.out, '\n')
	for range j.stack {
		j.out = append(j.out, ' ', ' ')
	}
}

func (j *jsonPrinter) fail(why string) *jsonFault { return &jsonFault{Offset: j.i, Why: why} }
