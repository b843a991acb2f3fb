package wire

import "bytes"

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
			list = make([]Field, 0, countLines(all))
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

// countLines counts the lines up to the empty one.
func countLines(p []byte) (n int) {
	for len(p) > 0 {
		var line []byte
		if line, p = nextLine(p); len(line) == 0 {
			break
		}
		n++
	}
	return n
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
