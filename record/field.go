package record

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"relay"
	reading "relay/record/body"
)

// MatchBody reports whether a body has all of the fields with their values. It searches JSON, each of several
// JSON values, the fields of form and multipart bodies by their names, and JSON within these fields. If a
// body is partly invalid, or if cut says that p is only its beginning, MatchBody searches what is readable.
// The needed memory is proportional to the number most.
func MatchBody(fields []relay.FieldFilter, l reading.Label, p []byte, cut bool, most int) bool {
	if start := reading.Start(p); len(start) > 0 && start[0] == '{' && len(l.Codings) == 0 && (l.Charset == "" || strings.EqualFold(l.Charset, "utf-8")) {
		if matchFields(fields, start) {
			return true
		}
		if s := (scanner{p: start}); s.skip() && s.peek() == 0 {
			return false // p is one JSON object, and matchFields has searched all of it
		}
	}
	r := reading.Read(l, p, cut, most)
	for i := range fields {
		if !hasField(r, fields[i].Path, fields[i].Value) {
			return false
		}
	}
	return true
}

// matchFields reports whether a text that is one JSON value has all of the fields with their values.
func matchFields(fields []relay.FieldFilter, text []byte) bool {
	for i := range fields {
		if !findIn(text, fields[i].Path, fields[i].Value) {
			return false
		}
	}
	return true
}

// findIn reports whether a JSON text has the wanted value at path.
func findIn(text []byte, path []string, want string) bool {
	s := scanner{p: text}
	found, _ := s.find(path, want, 0)
	return found
}

// hasField reports whether a body has the wanted value at path.
func hasField(r *reading.Reading, path []string, want string) bool {
	switch r.Form {
	case reading.JSONLines: // searched like the elements of an array
		for i, d := range r.Documents {
			text := r.Text[d.Start:d.End]
			if findIn(text, path, want) || path[0] == strconv.Itoa(i) && findIn(text, path[1:], want) {
				return true
			}
		}
		return false
	case reading.URLEncoded:
		for i := range r.Fields {
			f := &r.Fields[i]
			rest, named := below(f.Name, path)
			if named && len(rest) == 0 && f.Value == want || f.JSON && (findIn([]byte(f.Value), path, want) || named && findIn([]byte(f.Value), rest, want)) {
				return true
			}
		}
		return false
	case reading.Multipart:
		for i := range r.Parts {
			p := &r.Parts[i]
			rest, named := below(p.Name, path)
			if named && len(rest) == 0 && string(p.Text) == want || hasField(p.Reading, path, want) || named && len(rest) > 0 && hasField(p.Reading, rest, want) {
				return true
			}
		}
		return false
	}
	return findIn(r.Text, path, want)
}

// below reports whether path begins with the form field called name, and returns the rest of path. A name such
// as card[number] stands for two steps of a path.
func below(name string, path []string) (rest []string, named bool) {
	if name == path[0] {
		return path[1:], true
	}
	most := 0 // a name with more bytes cannot be the start of path, even if it writes each byte of a step as an escape of ten bytes
	for _, step := range path {
		most += 10*len(step) + len(`[""]`)
	}
	if len(name) > most {
		return nil, false
	}
	steps, ok := splitPath(name)
	if ok && len(steps) > 1 && len(steps) <= len(path) && slices.Equal(steps, path[:len(steps)]) {
		return path[len(steps):], true
	}
	return nil, false
}

// maxFieldDepth bounds the nesting of arrays that a path searches.
const maxFieldDepth = 100

// find reads one value and reports whether it has the wanted value at path. ok is false if the input ends or
// is not JSON; no further value can then be read.
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

// skip skips one value. It returns false if the input ends or is not JSON.
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

// literal reads a number, true, false or null.
func (s *scanner) literal() []byte {
	s.peek()
	start := s.i
	for s.i < len(s.p) && strings.IndexByte(",:]}[{\" \t\r\n", s.p[s.i]) < 0 {
		s.i++
	}
	return s.p[start:s.i]
}

// ValueAt returns the value at a path in a text that is valid JSON, or nil if there is none. The steps are
// names of members and indexes of elements. If several members have the same name, the last one counts.
// ValueAt reads each byte once, however long the path is.
func ValueAt(text []byte, steps []string) []byte {
	s := scanner{p: text}
	return s.valueAt(steps)
}

// valueAt reads the next value to its end and returns the value at the path within it.
func (s *scanner) valueAt(steps []string) (value []byte) {
	open := s.peek()
	switch {
	case len(steps) == 0:
		start := s.i
		s.skip()
		return s.p[start:s.i]
	case open == '{':
		s.members(func(key []byte) bool {
			if !equalJSONText(key, steps[0]) {
				return s.skip()
			}
			value = s.valueAt(steps[1:])
			return true
		})
	case open == '[':
		index, err := strconv.Atoi(steps[0])
		if err != nil || strconv.Itoa(index) != steps[0] {
			index = -1
		}
		s.take('[')
		for i := 0; !s.take(']') && s.peek() != 0; i++ {
			s.take(',')
			if i == index {
				value = s.valueAt(steps[1:])
			} else {
				s.skip()
			}
		}
	default:
		s.skip()
	}
	return value
}

// equalJSONText reports whether a JSON string, which is given with its quotes and escapes, stands for the text
// want.
func equalJSONText(raw []byte, want string) bool {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1:len(raw)-1]) == want
	}
	var s string
	return json.Unmarshal(raw, &s) == nil && s == want
}
