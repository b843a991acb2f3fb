package dashboard

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
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

// in returns line and column, both from 1, the column in bytes.
func (f *jsonFault) in(p []byte) (line, column int) {
	before := p[:min(f.Offset, len(p))]
	return 1 + bytes.Count(before, []byte("\n")), len(before) - bytes.LastIndexByte(before, '\n')
}

// prettyJSON indents p. A fault tells where p is not JSON (RFC 8259). With cut, p is only
// the start of a text, so that its end is no fault.
func prettyJSON(p []byte, cut bool) (out []byte, fault *jsonFault) {
	return indentJSON(p, cut, jsonOutput)
}

func indentJSON(p []byte, cut bool, most int) (out []byte, fault *jsonFault) {
	if fault = checkJSON(p); fault != nil && (!cut || fault.Offset < len(p)) {
		return nil, fault
	}
	j := &jsonIndenter{out: make([]byte, 0, len(p)+len(p)/4), most: most}
	for len(p) > 0 {
		p = p[j.next(p):]
	}
	return j.out, nil
}

// checkJSON returns the first fault of a text. Its offset is the length of the text if the
// text is only too short.
func checkJSON(p []byte) *jsonFault {
	var value json.RawMessage
	err := json.NewDecoder(bytes.NewReader(p)).Decode(&value)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &jsonFault{Offset: len(p), Why: "the end within a value"}
	}
	var syntax *json.SyntaxError
	switch err = json.Unmarshal(p, &value); { // also finds what follows the value
	case errors.As(err, &syntax):
		return &jsonFault{Offset: int(syntax.Offset) - 1, Why: syntax.Error()}
	case !utf8.Valid(p): // encoding/json replaces such bytes
		at := 0
		for r, size := utf8.DecodeRune(p); r != utf8.RuneError || size != 1; r, size = utf8.DecodeRune(p[at:]) {
			at += size
		}
		return &jsonFault{Offset: at, Why: "a string that is not UTF-8"}
	}
	return nil
}

// jsonIndenter indents valid JSON, or the start of it, without changing one byte of its
// names, strings and numbers: 1.0 stays 1.0, escapes stay escapes, doubled keys stay
// doubled. json.Indent is not used because it has no bounds: it writes 10,000 levels of
// brackets with 10,000 levels of spaces.
type jsonIndenter struct {
	out   []byte
	depth int
	most  int  // bytes after which indenting ends
	begun bool // the last byte is an opening bracket
}

// next writes the token or white space at the start of p and returns its length.
func (j *jsonIndenter) next(p []byte) int {
	begun := j.begun
	switch p[0] {
	case ' ', '\t', '\n', '\r':
		return 1
	case '}', ']':
		if j.depth--; !begun {
			j.newline()
		}
	default:
		if begun {
			j.newline()
		}
	}
	j.begun = false
	size := 1
	switch p[0] {
	case '{', '[':
		j.depth++
		j.begun = true
	case '"':
		for size < len(p) && p[size] != '"' {
			if p[size] == '\\' {
				size++
			}
			size++
		}
		size = min(size+1, len(p))
	}
	j.out = append(j.out, p[:size]...)
	switch p[0] {
	case ',':
		j.newline()
	case ':':
		j.out = append(j.out, ' ')
	}
	return size
}

func (j *jsonIndenter) newline() {
	if j.depth > jsonDepth || len(j.out) > j.most {
		return
	}
	j.out = append(j.out, '\n')
	for range j.depth {
		j.out = append(j.out, ' ', ' ')
	}
}
