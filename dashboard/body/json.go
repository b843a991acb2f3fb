package body

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"unicode/utf8"
)

// jsonDepth is how many levels of JSON get lines of their own; deeper ones stay on one line.
const jsonDepth = 64

// Fault is where a text stops being JSON.
type Fault struct {
	Offset int // in bytes from 0
	Why    string
}

// checkJSON returns the first fault of a text. Its offset is the length of the text if the
// text is only too short.
func checkJSON(p []byte) *Fault {
	var value json.RawMessage
	err := json.NewDecoder(bytes.NewReader(p)).Decode(&value)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &Fault{Offset: len(p), Why: "the end within a value"}
	}
	var syntax *json.SyntaxError
	switch err = json.Unmarshal(p, &value); { // also finds what follows the value
	case errors.As(err, &syntax):
		return &Fault{Offset: int(syntax.Offset) - 1, Why: syntax.Error()}
	case !utf8.Valid(p): // encoding/json replaces such bytes
		at := 0
		for r, size := utf8.DecodeRune(p); r != utf8.RuneError || size != 1; r, size = utf8.DecodeRune(p[at:]) {
			at += size
		}
		return &Fault{Offset: at, Why: "a string that is not UTF-8"}
	}
	return nil
}

// Indented indents p, without changing one byte of its names, strings and numbers: 1.0
// stays 1.0, escapes stay escapes, doubled keys stay doubled. A fault tells where p is not
// JSON (RFC 8259). With cut, p is only the start of a text, so that its end is no fault.
// json.Indent is not used because it needs a whole text and has no bounds: it writes 10,000
// levels of brackets with 10,000 levels of spaces.
func Indented(p []byte, cut bool) (out []byte, fault *Fault) {
	if fault = checkJSON(p); fault != nil && (!cut || fault.Offset < len(p)) {
		return nil, fault
	}
	depth, most := 0, max(1<<20, 3*len(p)) // bytes after which indenting ends
	newline := func() {
		if depth <= jsonDepth && len(out) <= most {
			out = append(append(out, '\n'), strings.Repeat("  ", depth)...)
		}
	}
	opened := false // the token before is an opening bracket
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
		if closes != opened { // an empty object or array stays on its line
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
	return out, nil
}
