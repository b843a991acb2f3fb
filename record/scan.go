package record

import (
	"encoding/json"
)

// scanLimit is how many bytes of a body are looked at.
const scanLimit = 64 << 10

// found are raw JSON strings, quotes included, nil where there was none.
type found struct{ event, delivery, inner []byte }

// scanTop looks for string values of two keys at the top of a JSON object, and for
// the first of them also within the object under nested. It reads at most scanLimit
// bytes, does not mind whether the rest is there or valid, and allocates nothing.
// The first value of a key counts.
func scanTop(p []byte, event, delivery, nested string) found {
	if len(p) > scanLimit {
		p = p[:scanLimit]
	}
	s := scanner{p: p}
	if !s.take('{') {
		return found{}
	}
	var f found
	depth, inside := 1, false // inside: directly within the nested object
	for depth > 0 {
		key, ok := s.text()
		if !ok {
			if !s.closing(&depth, &inside) {
				return f
			}
			continue
		}
		if !s.take(':') {
			continue // an element of an array
		}
		at := s.i
		raw, isText := s.text()
		if !isText {
			s.i = at
			inside = inside || depth == 1 && is(key, nested) && s.peek() == '{'
			continue
		}
		switch {
		case depth == 1 && f.event == nil && is(key, event):
			f.event = raw
		case depth == 1 && f.delivery == nil && is(key, delivery):
			f.delivery = raw
		case depth == 2 && inside && f.inner == nil && is(key, event):
			f.inner = raw
		}
		if f.complete(delivery, nested) {
			return f
		}
	}
	return f
}

// complete tells that there is nothing left to look for.
func (f *found) complete(delivery, nested string) bool {
	return f.event != nil && (delivery == "" || f.delivery != nil) && (nested == "" || f.inner != nil)
}

// is compares a raw JSON string with a key; escaped keys never match, providers do
// not write them.
func is(raw []byte, key string) bool {
	return key != "" && len(raw) == len(key)+2 && string(raw[1:len(raw)-1]) == key
}

type scanner struct {
	p []byte
	i int
}

// peek skips white space and gives the next byte, 0 at the end.
func (s *scanner) peek() byte {
	for ; s.i < len(s.p); s.i++ {
		switch c := s.p[s.i]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

func (s *scanner) take(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.i++
	return true
}

// text takes a string, quotes included.
func (s *scanner) text() ([]byte, bool) {
	if s.peek() != '"' {
		return nil, false
	}
	for j := s.i + 1; j < len(s.p); j++ {
		switch s.p[j] {
		case '\\':
			j++
		case '"':
			raw := s.p[s.i : j+1]
			s.i = j + 1
			return raw, true
		}
	}
	s.i = len(s.p)
	return nil, false
}

// closing steps over one byte that starts no string and follows the depth; false at
// the end of the input.
func (s *scanner) closing(depth *int, inside *bool) bool {
	switch s.peek() {
	case 0:
		return false
	case '{', '[':
		*depth++
	case '}', ']':
		*depth--
		if *depth == 1 {
			*inside = false
		}
	}
	s.i++
	return true
}

// jsonLabel reads a raw JSON string as a label.
func jsonLabel(raw []byte) string {
	if len(raw) < 2 || len(raw) > 6*maxLabel+2 {
		return ""
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return label([]byte(s))
}
