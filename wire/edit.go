package wire

import "bytes"

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
	edited := make([]byte, 0, len(head)+len(lines))
	edited = append(edited, head[:at]...)
	edited = append(edited, lines...)
	return append(edited, head[at:]...)
}
