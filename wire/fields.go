package wire

import (
	"bytes"
	"slices"
)

// nextLine cuts the first line off p, its end included; text is without CRLF or LF.
func nextLine(p []byte) (text, rest []byte) {
	end := bytes.IndexByte(p, '\n')
	if end < 0 {
		return p, nil
	}
	text = p[:end]
	if end > 0 && p[end-1] == '\r' {
		text = p[:end-1]
	}
	return text, p[end+1:]
}

// firstLine is nextLine, but skips one leading empty line, which a refused head may
// have.
func firstLine(head []byte) (text, rest []byte) {
	text, rest = nextLine(head)
	if len(text) == 0 {
		return nextLine(rest)
	}
	return text, rest
}

// HeadEnd returns the index after the first empty line, whether that ends with CRLF or LF; -1
// = there is none. The first seen bytes have none.
func HeadEnd(p []byte, seen int) int {
	from := min(max(seen-2, 0), len(p))
	p = p[from:]
	n := bytes.Index(p, []byte("\n\r\n"))
	if n >= 0 {
		p = p[:n+1]
	}
	if bare := bytes.Index(p, []byte("\n\n")); bare >= 0 {
		return from + bare + 2
	}
	if n >= 0 {
		return from + n + 3
	}
	return -1
}

// Fields lists the header lines of a head in order, up to the empty line. It accepts
// any bytes, also refused heads: a line without a colon is a name without a value.
func Fields(head []byte) []Field {
	_, rest := firstLine(head)
	return fields(rest)
}

// Trailers lists the trailer lines among the chunk lines of a message.
func Trailers(lines []byte) []Field {
	for len(lines) > 0 {
		var line []byte
		line, lines = nextLine(lines)
		if size, ok := chunkSize(line); !ok || size == 0 {
			return fields(lines)
		}
	}
	return nil
}

func fields(all []byte) []Field {
	var list []Field
	from := 0 // where the last value begins
	for p := all; len(p) > 0; {
		at := len(all) - len(p)
		var line []byte
		if line, p = nextLine(p); len(line) == 0 {
			break
		}
		if list == nil {
			list = make([]Field, 0, bytes.Count(all, []byte{'\n'}))
		}
		if isSpace(line[0]) && len(list) > 0 {
			list[len(list)-1].Value, from = unfold(all, from, at, at+len(line))
			continue
		}
		name, value, ok := bytes.Cut(line, []byte{':'})
		from = at + len(line)
		if ok {
			from = at + len(line) - len(bytes.TrimLeft(value, " \t"))
			value = trim(value)
		}
		list = append(list, Field{Name: name, Value: all[from : from+len(value)]})
	}
	return list
}

// unfold extends the value that begins at all[from] by the folded line all[at:end]. An
// empty value begins in that line.
func unfold(all []byte, from, at, end int) (value []byte, begins int) {
	if len(bytes.Trim(all[from:at], " \t\r\n")) == 0 {
		from = end - len(bytes.TrimLeft(all[at:end], " \t"))
	}
	return all[from : from+len(bytes.TrimRight(all[from:end], " \t\r\n"))], from
}

// StartLine returns the three parts of the first line of a head: method, target,
// version; or version, status, reason. Missing parts are empty.
func StartLine(head []byte) (a, b, c []byte) {
	line, _ := firstLine(head)
	a, line, _ = bytes.Cut(line, []byte{' '})
	b, c, _ = bytes.Cut(line, []byte{' '})
	return a, b, c
}

// chunkSize reads a stored chunk-size line.
func chunkSize(line []byte) (n int64, ok bool) {
	i := 0
	for ; i < len(line) && is(line[i], hexOctet); i++ {
		if n, ok = addHex(n, line[i]); !ok {
			return 0, false
		}
	}
	return n, i > 0
}

// SetHost returns a copy of a request head in which only the value bytes of the Host
// line differ. The copy is unchanged if the head has no Host line, or if the value is
// not valid in one.
func SetHost(head []byte, value string) []byte {
	from, to, ok := hostValue(head)
	if !ok || !only([]byte(value), valueOctet) {
		return bytes.Clone(head)
	}
	edited := make([]byte, 0, len(head)-(to-from)+len(value))
	edited = append(edited, head[:from]...)
	edited = append(edited, value...)
	return append(edited, head[to:]...)
}

// hostValue finds the value of the first Host line.
func hostValue(head []byte) (from, to int, ok bool) {
	_, rest := nextLine(head)
	for len(rest) > 0 {
		at := len(head) - len(rest)
		var line []byte
		if line, rest = nextLine(rest); len(line) == 0 {
			break
		}
		name, value, colon := bytes.Cut(line, []byte{':'})
		if !colon || !fold(name, "host") {
			continue
		}
		from = at + len(name) + 1 + len(value) - len(bytes.TrimLeft(value, " \t"))
		return from, from + len(trim(value)), true
	}
	return 0, 0, false
}

// AddLines returns a copy of a head with complete lines inserted before its empty line.
func AddLines(head, lines []byte) []byte {
	at := len(head)
	switch {
	case bytes.HasSuffix(head, []byte("\n\r\n")):
		at -= 2
	case bytes.HasSuffix(head, []byte("\n\n")):
		at--
	}
	return slices.Concat(head[:at], lines, head[at:])
}
