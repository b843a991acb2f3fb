package body

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Fault is an error in a body: its place and the reason.
type Fault struct {
	At   int    // index of a byte in the text; -1 = the error has no place
	Text string // a sentence without its full stop, for users; it may contain text of an untrusted sender
}

// Document is one JSON value of a text, or a line that is not JSON.
type Document struct {
	Start, End int  // range in the text
	Fault      bool // the range is not JSON
}

// maxDocuments is the largest number of values of JSON lines that are read.
const maxDocuments = 10_000

// jsonFault returns the first error in a text as JSON (RFC 8259); nil = the text is valid. If the text is only
// the beginning of a JSON value, the field At of the fault is the length of the text.
func jsonFault(p []byte) *Fault {
	if json.Valid(p) {
		if at := notUTF8(p); at >= 0 { // encoding/json accepts bytes that are not UTF-8 and replaces them
			return notJSON(p, at, "a string that is not UTF-8")
		}
		return nil
	}
	var value json.RawMessage
	syntax, is := errors.AsType[*json.SyntaxError](json.Unmarshal(p, &value))
	if !is || atEnd(p, syntax) {
		return notJSON(p, len(p), "the end within a value")
	}
	return notJSON(p, int(syntax.Offset)-1, syntax.Error())
}

// atEnd reports whether a text is the beginning of a value; e is the error of encoding/json for the text.
// encoding/json reads a space after the end of a text. If the text ends within a word, a number or an escape,
// encoding/json reports that space as the error.
func atEnd(p []byte, e *json.SyntaxError) bool {
	return e.Error() == "unexpected end of JSON input" ||
		int(e.Offset) == len(p) && !bytes.HasSuffix(p, []byte(" ")) && strings.HasPrefix(e.Error(), "invalid character ' '")
}

func notJSON(p []byte, at int, why string) *Fault {
	line, column := placeOf(p, at)
	return &Fault{at, fmt.Sprintf("Not JSON: line %d, column %d (byte %d): %s", line, column, at, why)}
}

// placeOf returns the line and column of a byte, both counted from 1.
func placeOf(p []byte, at int) (line, column int) {
	before := p[:min(at, len(p))]
	return 1 + bytes.Count(before, []byte("\n")), len(before) - bytes.LastIndexByte(before, '\n')
}

// notUTF8 returns the index of the first byte that is not valid UTF-8; -1 = all are valid.
func notUTF8(p []byte) int {
	if utf8.Valid(p) {
		return -1
	}
	at := 0
	for r, size := utf8.DecodeRune(p); r != utf8.RuneError || size != 1; r, size = utf8.DecodeRune(p[at:]) {
		at += size
	}
	return at
}

// StartsJSON reports whether a text begins like an object or an array.
func StartsJSON(p []byte) bool {
	p = bytes.TrimLeft(p[:min(len(p), 1<<10)], " \t\r\n")
	return len(p) > 0 && (p[0] == '{' || p[0] == '[')
}

// isDocument reports whether a text is a JSON object or array.
func isDocument(p []byte) bool {
	end := bytes.TrimRight(p, " \t\r\n")
	return StartsJSON(p) && (end[len(end)-1] == '}' || end[len(end)-1] == ']') && json.Valid(p) && utf8.Valid(p)
}

// recordSeparator begins each value of a JSON text sequence (RFC 7464).
const recordSeparator = 0x1e

// jsonLines splits a text into consecutive JSON values, each of which may have several lines. After the first
// error it splits the rest into lines. faults is the number of these lines that are not JSON, not counting
// the last line of a text that was cut.
func jsonLines(p []byte, cut bool) (list []Document, faults int) {
	separated := bytes.IndexByte(p, recordSeparator) >= 0
	at := 0
	if !separated {
		d := json.NewDecoder(bytes.NewReader(p))
		var value json.RawMessage
		for len(list) < maxDocuments && d.Decode(&value) == nil {
			end := int(d.InputOffset())
			list = append(list, Document{Start: end - len(value), End: end})
			at = end
		}
	}
	for at < len(p) && len(list) < maxDocuments {
		end, next := len(p), len(p)
		divider := byte('\n')
		if separated {
			divider = recordSeparator
		}
		if n := bytes.IndexByte(p[at:], divider); n >= 0 {
			end, next = at+n, at+n+1
		}
		if line := bytes.TrimSpace(p[at:end]); len(line) > 0 {
			start := at + bytes.Index(p[at:end], line[:1])
			doc := Document{Start: start, End: start + len(line), Fault: !json.Valid(line)}
			if doc.Fault && cut && next == len(p) {
				doc.Fault = false
			}
			if list = append(list, doc); doc.Fault {
				faults++
			}
		}
		at = next
	}
	return list, faults
}

// jsonDepth is the number of levels of JSON that are indented; deeper levels stay on one line.
const jsonDepth = 64

var indents = strings.Repeat("  ", jsonDepth)

// Indent indents JSON, or its beginning, without changing a byte of its names, strings and numbers. For
// example, 1.0 stays 1.0, and escapes and repeated keys are kept. json.Indent is not used because it needs a
// complete text and its output is not bounded: for 10,000 levels of brackets it writes 10,000 levels of
// spaces.
func Indent(p []byte) (out []byte) {
	depth, most := 0, max(1<<20, 3*len(p)) // most is the size of the output after which indenting ends
	newline := func() {
		if depth <= jsonDepth && len(out) <= most {
			out = append(append(out, '\n'), indents[:2*max(depth, 0)]...)
		}
	}
	opened := false // the previous token is an opening bracket
	for size := 0; len(p) > 0; p = p[size:] {
		size = 1
		c := p[0]
		if strings.IndexByte(" \t\r\n", c) >= 0 {
			continue
		}
		closes := c == '}' || c == ']'
		if closes {
			depth--
		}
		if closes != opened { // an empty object or array stays on one line
			newline()
		}
		if opened = c == '{' || c == '['; opened {
			depth++
		}
		if c == '"' {
			for size < len(p) && p[size] != '"' {
				if p[size] == '\\' {
					size++
				}
				size++
			}
			size = min(size+1, len(p))
		}
		out = append(out, p[:size]...)
		switch c {
		case ',':
			newline()
		case ':':
			out = append(out, ' ')
		}
	}
	return out
}
