package wire

import (
	"bytes"
	"errors"

	"relay"
)

// wholeScan is the size up to which every call parses all of an incomplete head. If an incomplete head
// is longer, a call parses only its start line and its last tailScan bytes.
const (
	wholeScan = 8 << 10
	tailScan  = 2 << 10
)

// Request parses a request head at the start of p, strictly (RFC 9112, sections 2.2, 3, 5, 6). n is
// the length of the head, including one leading empty line, which is not part of Raw. Errors are
// ErrMore and *relay.Error with the codes of relay-made answers. A head is refused as soon as an error
// is certain, even if it is incomplete; use the bytes of a refused head for display only.
func Request(p []byte, l Limits) (h *Head, n int, err error) {
	skip := 0
	if len(p) > 0 && p[0] == '\r' {
		if len(p) == 1 {
			return nil, 0, ErrMore
		}
		if p[1] != '\n' {
			return nil, 0, malformed("it begins with a CR without LF; end lines with CRLF")
		}
		skip = 2
	}
	p, l.Seen = p[skip:], max(l.Seen-skip, 0)
	m := headerFlags{timeout: -1}
	var line Head
	if len(p) > wholeScan && HeadEnd(p, l.Seen) < 0 {
		err = unfinished(p, l)
	} else if line, n, err = requestLine(p, l.Target); err == nil {
		n, err = headerLines(p, n, &m)
	}
	switch {
	case errors.Is(err, ErrMore) && l.Head > 0 && len(p) >= l.Head, err == nil && l.Head > 0 && n > l.Head:
		return nil, 0, relay.Errorf(relay.CodeHeadTooLarge, "the request line and headers are larger than %d bytes; send fewer or shorter headers", l.Head)
	case err != nil:
		return nil, 0, err
	}
	h = &Head{}
	*h = line
	h.Raw = p[:n:n]
	if e := m.request(h); e != nil {
		return nil, 0, e
	}
	return h, skip + n, nil
}

// unfinished looks for errors at the start and the end of a long head that has no empty line yet. It returns
// ErrMore if it finds none.
func unfinished(p []byte, l Limits) error {
	first := bytes.IndexByte(p, '\n')
	if first < 0 || first >= l.Seen {
		if _, _, err := requestLine(p, l.Target); err != nil {
			return err
		}
	}
	tail := max(first, len(p)-tailScan)
	nl := bytes.IndexByte(p[tail:], '\n')
	if nl < 0 {
		return ErrMore
	}
	var m headerFlags
	if _, err := headerLines(p, tail+nl+1, &m); err != nil {
		return err
	}
	return ErrMore
}

// request completes a head whose lines are all well-formed.
func (m *headerFlags) request(h *Head) *relay.Error {
	h.Expect = m.expect && h.Minor == 1
	h.Upgrade = m.upgrade && h.Minor == 1
	switch {
	case m.hosts > 1:
		return malformed("it has more than one Host line; send exactly one")
	case m.hosts == 0 && h.Minor == 1:
		return malformed("it has no Host line; send exactly one")
	case m.hosts == 1 && !ValidHost(m.host):
		return malformed("its Host is not a host name with an optional port")
	}
	h.Host = m.host
	if e := checkTarget(h, m.hosts == 1); e != nil {
		return e
	}
	if reason := m.apply(h); reason != "" {
		if m.codings == 1 && m.lengths == 0 && h.Minor == 1 && m.otherCoding() {
			return relay.Errorf(relay.CodeTransferCodingUnsupported, "the request has a Transfer-Encoding other than chunked; send it chunked or with a Content-Length")
		}
		return malformed(reason)
	}
	return nil
}

// requestLine reads the first line of a request; n is its length, CRLF included. limit is the largest length of
// the target; 0 = no limit.
func requestLine(p []byte, limit int) (h Head, n int, err error) {
	i := 0
	for i < len(p) && is(p[i], tokenOctet) {
		i++
	}
	if i == len(p) {
		return h, 0, ErrMore
	}
	if i == 0 || p[i] != ' ' {
		return h, 0, malformed("it does not begin with a method and one space, as an HTTP/1.1 request does")
	}
	h.Method = p[:i:i]
	at := i + 1
	i = at
	for i < len(p) && is(p[i], targetOctet) {
		i++
	}
	if limit > 0 && i-at > limit {
		return h, 0, relay.Errorf(relay.CodeTargetTooLong, "the path and query are longer than %d bytes; shorten them", limit)
	}
	if i == len(p) {
		return h, 0, ErrMore
	}
	if i == at || p[i] != ' ' {
		return h, 0, malformed("its first line is not method, path and version with one space between them, ended by CRLF")
	}
	h.Target = p[at:i:i]
	h.Minor, n, err = version(p[i+1:])
	if err == nil && string(h.Method) == "CONNECT" {
		err = relay.Errorf(relay.CodeMethodNotSupported, "CONNECT is not supported here; send the request itself")
	}
	return h, i + 1 + n, err
}

// version reads the end of a request line: "HTTP/1.1", CRLF.
func version(p []byte) (minor, n int, err error) {
	const name, whole = "HTTP/", len("HTTP/1.1\r\n")
	head := p[:min(len(p), whole)]
	if known := min(len(head), len(name)); string(head[:known]) != name[:known] {
		if line, _, whole := bytes.Cut(p, []byte("\n")); whole && bytes.Contains(line, []byte(" "+name)) {
			return 0, 0, malformed("its target has a space; a space in a target is written %20")
		}
		return 0, 0, malformed("its first line does not end with an HTTP version")
	}
	end := bytes.IndexByte(head, '\n')
	switch {
	case end < 0 && len(head) < whole:
		return 0, 0, ErrMore
	case end < 1 || head[end-1] != '\r':
		return 0, 0, malformed("its first line does not end with an HTTP version and CRLF")
	}
	v := head[len(name) : end-1]
	switch {
	case string(v) == "1.1":
		return 1, end + 1, nil
	case string(v) == "1.0":
		return 0, end + 1, nil
	case len(v) == 1 && isDigit(v[0]), len(v) == 3 && isDigit(v[0]) && v[1] == '.' && isDigit(v[2]):
		return 0, 0, relay.Errorf(relay.CodeHTTPVersionUnsupported, "only HTTP/1.0 and HTTP/1.1 are spoken here; send the request as HTTP/1.1")
	}
	return 0, 0, malformed("its first line does not end with an HTTP version")
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// headerLines parses the lines from p[i] on and returns the index after the empty one.
func headerLines(p []byte, i int, m *headerFlags) (int, error) {
	for i < len(p) && p[i] != '\r' {
		name := i
		for i < len(p) && is(p[i], tokenOctet) {
			i++
		}
		if i == len(p) {
			return 0, ErrMore
		}
		if i == name || p[i] != ':' {
			return 0, badName(p[i], i == name)
		}
		value := i + 1
		for i = value; i < len(p) && is(p[i], valueOctet); i++ {
		}
		if err := lineEnd(p[i:]); err != nil {
			return 0, err
		}
		m.note(p[name:value-1], trim(p[value:i:i]))
		i += 2
	}
	if err := lineEnd(p[i:]); err != nil {
		return 0, err
	}
	return i + 2, nil
}

// lineEnd returns nil if p begins with CRLF, ErrMore if p is too short to decide, and otherwise the reason of
// the refusal.
func lineEnd(p []byte) error {
	switch {
	case len(p) == 0:
		return ErrMore
	case p[0] == '\n':
		return malformed("a header line ends with LF alone; end lines with CRLF")
	case p[0] != '\r':
		return malformed("a header value holds a control byte")
	case len(p) == 1:
		return ErrMore
	case p[1] != '\n':
		return malformed("a header line holds a CR without LF; end lines with CRLF")
	}
	return nil
}

func badName(c byte, first bool) *relay.Error {
	switch {
	case first && isSpace(c):
		return malformed("a header line begins with white space; folded lines are not accepted")
	case isSpace(c):
		return malformed("a header name is followed by white space instead of a colon")
	case first && c == ':':
		return malformed("a header line has no name")
	case c == '\r' || c == '\n':
		return malformed("a header line has no colon")
	}
	return malformed("a header name holds a byte that names must not have")
}

// malformed returns the error for a refused request. why is a predicate whose subject is the request.
func malformed(why string) *relay.Error {
	return &relay.Error{Code: relay.CodeRequestMalformed, Detail: "the request was not understood: " + why}
}
