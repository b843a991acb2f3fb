package wire

import (
	"bytes"
	"slices"
	"strings"
)

// nextLine cuts off the first line of p, including its line end; text is the line without CRLF or LF.
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

// firstLine is nextLine, but skips one leading empty line, because a refused head may have one.
func firstLine(head []byte) (text, rest []byte) {
	text, rest = nextLine(head)
	if len(text) == 0 {
		return nextLine(rest)
	}
	return text, rest
}

// HeadEnd returns the index after the first empty line, which may end with CRLF or LF; -1 = no empty line.
// The argument seen says how many bytes at the start of p are known to contain no empty line.
func HeadEnd(p []byte, seen int) int {
	for i := min(max(seen-2, 0), len(p)); ; {
		line := bytes.IndexByte(p[i:], '\n') + 1
		if line == 0 {
			return -1
		}
		i += line
		switch rest := p[i:]; {
		case bytes.HasPrefix(rest, []byte("\n")):
			return i + 1
		case bytes.HasPrefix(rest, []byte("\r\n")):
			return i + 2
		}
	}
}

// Fields lists the header lines of a head in order, up to the empty line. It accepts any bytes,
// including refused heads: a line without a colon becomes a name without a value.
func Fields(head []byte) []Field {
	_, rest := firstLine(head)
	return fields(rest)
}

// Trailers lists the trailer lines of a stored message. lines are its chunk-size lines and trailer lines.
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
	from := 0 // start of the last value
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
			// A folded line extends the previous value. If that value is empty, it begins in this line. A
			// blank line adds nothing; it is skipped here, because otherwise the search for the end of a
			// value would pass over all blank lines again and again.
			if len(bytes.TrimRight(line, " \t\r")) == 0 {
				continue
			}
			end := at + len(line)
			if len(bytes.Trim(all[from:at], " \t\r\n")) == 0 {
				from = end - len(bytes.TrimLeft(line, " \t"))
			}
			list[len(list)-1].Value = all[from : from+len(bytes.TrimRight(all[from:end], " \t\r\n"))]
			continue
		}
		name, value, ok := bytes.Cut(line, []byte{':'})
		from = at + len(line)
		if ok {
			value = trim(value)
			from = at + len(name) + 1
			for len(value) > 0 && isSpace(all[from]) {
				from++
			}
		}
		list = append(list, Field{Name: name, Value: all[from : from+len(value)]})
	}
	return list
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

// SetHost returns a copy of a request head in which only the value of the Host line is replaced. The copy
// is unchanged if the head has no Host line, or if the value is not a valid host.
func SetHost(head []byte, value string) []byte {
	_, rest := nextLine(head)
	for only([]byte(value), valueOctet) && len(rest) > 0 {
		at := len(head) - len(rest)
		var line []byte
		if line, rest = nextLine(rest); len(line) == 0 {
			break
		}
		name, old, colon := bytes.Cut(line, []byte{':'})
		if !colon || !fold(name, "host") {
			continue
		}
		from := at + len(name) + 1 + len(old) - len(bytes.TrimLeft(old, " \t"))
		return slices.Concat(head[:from], []byte(value), head[from+len(trim(old)):])
	}
	return bytes.Clone(head)
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

// AcceptsCoding reports whether the values of Accept-Encoding name a content coding, with a weight above 0.
func AcceptsCoding(values []string, coding string) bool {
	for _, value := range values {
		for member := range strings.SplitSeq(value, ",") {
			name, weight, _ := strings.Cut(member, ";")
			if strings.EqualFold(strings.TrimSpace(name), coding) {
				q := strings.ReplaceAll(weight, " ", "")
				return !strings.HasPrefix(q, "q=0") || strings.Trim(q, "q=0.") != ""
			}
		}
	}
	return false
}
