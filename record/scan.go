package record

import (
	"encoding/json"
	"strings"
)

// scanLimit is the number of bytes of a body that are searched for event type and delivery id.
const scanLimit = 64 << 10

// found holds raw JSON strings, quotes included; nil = not found.
type found struct{ event, delivery, innerEvent, innerDelivery []byte }

// scanTop searches for the string values of two keys, which the arguments event and delivery name. It looks at
// the top level of a JSON object or, if batch is set, of the first object of an array. It also looks within the
// value of the key that the argument nested names: an object, or the first object of an array. A dot in nested
// separates the keys of an object in an object. The first value of a key counts. It reads at most scanLimit
// bytes, tolerates incomplete or invalid JSON after the values, and allocates nothing.
func scanTop(p []byte, event, delivery, nested string, batch bool) found {
	s := scanner{p: p[:min(len(p), scanLimit)]}
	if batch {
		s.take('[')
	}
	var f found
	step, rest, _ := strings.Cut(nested, ".")
	s.members(func(key []byte) bool {
		ok := false
		switch {
		case is(key, step) && (s.peek() == '{' || s.peek() == '['):
			ok = f.within(&s, event, delivery, rest)
		case is(key, event):
			ok = s.pick(true, &f.event)
		default:
			ok = s.pick(is(key, delivery), &f.delivery)
		}
		// The search ends when all wanted values are found. A delivery id at the top level has priority over
		// one in a nested object, whatever their order.
		typed := event == "" || f.innerEvent != nil || nested == "" && f.event != nil
		named := delivery == "" || f.delivery != nil
		return ok && !(typed && named)
	})
	return f
}

// within searches the next value, which is an object or an array, for the two keys as scanTop does, and reads
// the value to its end.
func (f *found) within(s *scanner, event, delivery, nested string) bool {
	start := s.i
	s.take('[')
	step, rest, _ := strings.Cut(nested, ".")
	s.members(func(key []byte) bool {
		switch {
		case is(key, step) && (s.peek() == '{' || s.peek() == '['):
			return f.within(s, event, delivery, rest)
		case is(key, event):
			return s.pick(true, &f.innerEvent)
		}
		return s.pick(is(key, delivery), &f.innerDelivery)
	})
	s.i = start // skip has to pass the whole value, including the rest of an array
	return s.skip()
}

// is reports whether a raw JSON string is the given key. A string with escapes never is, because providers do not
// send such keys.
func is(raw []byte, key string) bool {
	return key != "" && len(raw) == len(key)+2 && string(raw[1:len(raw)-1]) == key
}

type scanner struct {
	p []byte
	i int
}

// peek skips white space and returns the next byte, 0 at the end.
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

// text reads a string, quotes included.
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

// members reads the next value, which must be an object. It calls the function each for every key; that
// function reads the value and reports whether to continue. members returns true if the object was read to its
// end.
func (s *scanner) members(each func(key []byte) bool) bool {
	if !s.take('{') {
		return false
	}
	for first := true; !s.take('}'); first = false {
		if !first && !s.take(',') {
			return false
		}
		key, ok := s.text()
		if !ok || !s.take(':') || !each(key) {
			return false
		}
	}
	return true
}

// pick reads a value. If wanted is true, *to is nil and the value is a string, pick stores the value in *to.
func (s *scanner) pick(wanted bool, to *[]byte) (ok bool) {
	if wanted && *to == nil && s.peek() == '"' {
		*to, ok = s.text()
		return ok
	}
	return s.skip()
}

// jsonLabel decodes a raw JSON string and returns the result of label.
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
