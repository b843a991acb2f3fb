package record

import (
	"bytes"
	"encoding/json"
	"strconv"

	"relay"
)

// MatchFields reports whether a JSON body has all of the fields with their values. It does
// not mind whether the body is valid to its end: of a body that was cut, it sees the start.
func MatchFields(fields []relay.FieldFilter, body []byte) bool {
	for i := range fields {
		s := scanner{p: body}
		if found, _ := s.find(fields[i].Path, fields[i].Value, 0); !found {
			return false
		}
	}
	return true
}

// maxFieldDepth bounds the arrays within arrays that a path looks into.
const maxFieldDepth = 100

// find reads one value and reports whether it has the wanted value at path. ok is false
// where the input ends or is no JSON; then nothing more can be read.
func (s *scanner) find(path []string, want string, depth int) (found, ok bool) {
	if depth > maxFieldDepth {
		return false, s.skip()
	}
	switch s.peek() {
	case '{':
		if len(path) == 0 {
			return false, s.skip()
		}
		ok = s.members(func(key []byte) bool {
			if !equalJSONText(key, path[0]) {
				return s.skip()
			}
			var more bool
			found, more = s.find(path[1:], want, depth+1)
			return more && !found
		})
		return found, ok
	case '[':
		return s.findElement(path, want, depth+1)
	case '"':
		raw, ok := s.text()
		return ok && len(path) == 0 && equalJSONText(raw, want), ok
	default:
		raw := s.literal()
		return len(path) == 0 && len(raw) > 0 && string(raw) == want, len(raw) > 0
	}
}

func (s *scanner) findElement(path []string, want string, depth int) (found, ok bool) {
	index, rest := -1, path
	if len(path) > 0 {
		if n, err := strconv.ParseUint(path[0], 10, 31); err == nil {
			index, rest = int(n), path[1:]
		}
	}
	s.take('[')
	for i := 0; !s.take(']'); i++ {
		if i > 0 && !s.take(',') {
			return false, false
		}
		if index < 0 || index == i {
			found, ok = s.find(rest, want, depth)
		} else {
			ok = s.skip()
		}
		if found || !ok {
			return found, ok
		}
	}
	return false, true
}

// skip passes over one value.
func (s *scanner) skip() bool {
	for depth := 0; ; {
		switch s.peek() {
		case 0:
			return false
		case '"':
			if _, ok := s.text(); !ok {
				return false
			}
		case '{', '[':
			depth++
			s.i++
			continue
		case '}', ']':
			depth--
			s.i++
		case ',', ':':
			if depth == 0 {
				return false
			}
			s.i++
			continue
		default:
			if len(s.literal()) == 0 {
				return false
			}
		}
		if depth <= 0 {
			return depth == 0
		}
	}
}

// literal takes a number, true, false or null.
func (s *scanner) literal() []byte {
	s.peek()
	rest := s.p[s.i:]
	end := bytes.IndexAny(rest, ",:]}[{\" \t\r\n")
	if end < 0 {
		end = len(rest)
	}
	s.i += end
	return rest[:end]
}

// equalJSONText compares a JSON string, quotes included, with a text.
func equalJSONText(raw []byte, want string) bool {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1:len(raw)-1]) == want
	}
	var s string
	return json.Unmarshal(raw, &s) == nil && s == want
}
