package wire

import (
	"bytes"
	"errors"

	"relay"
)

// Response parses a response head at the start of p, leniently. req is the head of the answered
// request, or nil if unknown. Errors are ErrMore and *relay.Error local-malformed.
//
// Lines may end with LF alone, be folded, and have invalid names or control bytes. Such a head is
// Sloppy. A head with ambiguous framing is refused.
func Response(p []byte, l Limits, req *Head) (h *Head, n int, err error) {
	line, from, err := statusLine(p)
	if err != nil && !errors.Is(err, ErrMore) {
		return nil, 0, err
	}
	n = HeadEnd(p, l.Seen)
	if l.Head > 0 && (n > l.Head || n < 0 && len(p) >= l.Head) {
		return nil, 0, relay.Errorf(relay.CodeLocalMalformed, "the local server's answer has a head larger than %d bytes", l.Head)
	}
	if n < 0 || err != nil {
		return nil, 0, ErrMore
	}
	m := headerFlags{timeout: -1}
	h = &Head{}
	*h = line
	h.Raw = p[:n:n]
	if e := responseLines(h, from, &m); e != nil {
		return nil, 0, e
	}
	if e := m.response(h, req); e != nil {
		return nil, 0, e
	}
	return h, n, nil
}

// statusLine reads "HTTP/1.1 200 reason"; the reason may be empty, and the space before it may be
// missing. n is the length of the line including its end. An incomplete line is refused as soon as no
// continuation can make it valid.
func statusLine(p []byte) (h Head, n int, err error) {
	const name, whole = "HTTP/1.", len("HTTP/1.1 200")
	if known := min(len(p), len(name)); string(p[:known]) != name[:known] {
		return h, 0, localMalformed(foreignProtocol(p))
	}
	end := bytes.IndexByte(p, '\n')
	if end < 0 {
		return h, 0, ErrMore
	}
	line, ok := bytes.CutSuffix(p[:end], []byte{'\r'})
	h.Sloppy = !ok
	if len(line) < whole || line[7] != '0' && line[7] != '1' || line[8] != ' ' ||
		len(line) > whole && line[whole] != ' ' {
		return h, 0, localMalformed("its status line cannot be read")
	}
	code, ok := parseLength(line[9:whole])
	if !ok || code < 100 || badOctets(line[whole:], &h.Sloppy) {
		return h, 0, localMalformed("its status line cannot be read")
	}
	h.Status, h.Minor = int(code), int(line[7]-'0')
	return h, end + 1, nil
}

// foreignProtocol names the protocol of a response that does not begin like HTTP/1, by its first
// bytes: a TLS alert or handshake (RFC 8446, section 5.1), or a SETTINGS or GOAWAY frame of HTTP/2
// (RFC 9113, section 4.1).
func foreignProtocol(p []byte) string {
	isTLS := (p[0] == 0x15 || p[0] == 0x16) && (len(p) == 1 || p[1] == 3)
	isHTTP2 := len(p) >= 9 && (p[3] == 4 || p[3] == 7) && p[4] == 0 && string(p[5:9]) == "\x00\x00\x00\x00"
	switch {
	case isTLS:
		return "it speaks TLS; use --target https://… of relay up, or forward the port where it speaks plain HTTP"
	case isHTTP2:
		return "it speaks HTTP/2 without TLS; forward a port where it speaks HTTP/1.1"
	}
	return "it does not begin with HTTP/1.0 or HTTP/1.1; is it a web server?"
}

// responseLines reads the header lines of h.Raw from index i on.
func responseLines(h *Head, i int, m *headerFlags) *relay.Error {
	var name []byte
	for p := h.Raw[i:]; ; {
		end := bytes.IndexByte(p, '\n')
		line, ok := bytes.CutSuffix(p[:end], []byte{'\r'})
		p = p[end+1:]
		h.Sloppy = h.Sloppy || !ok
		if len(line) == 0 {
			return nil
		}
		if badOctets(line, &h.Sloppy) {
			return localMalformed("a header line holds a NUL or a CR without LF")
		}
		value := line
		if isSpace(line[0]) {
			// A folded line counts as another line of the same name. So a second Content-Length or
			// Transfer-Encoding is refused, and all options of Connection are found.
			h.Sloppy = true
			if name == nil {
				return localMalformed("its first header line begins with white space")
			}
		} else {
			colon := bytes.IndexByte(line, ':')
			if colon <= 0 {
				return localMalformed("a header line has no name or no colon")
			}
			name, value = line[:colon], line[colon+1:]
			if !only(name, tokenOctet) {
				h.Sloppy = true
				name = trim(name)
				if fold(name, "content-length") || fold(name, "transfer-encoding") {
					return localMalformed("white space stands between the name and the colon of a line that frames its body")
				}
			}
		}
		m.note(name, trim(value))
	}
}

// badOctets reports whether a line has octets that parsers interpret differently. Other invalid octets
// only set sloppy.
func badOctets(line []byte, sloppy *bool) bool {
	for _, c := range line {
		if is(c, valueOctet) {
			continue
		}
		if c == 0 || c == '\r' {
			return true
		}
		*sloppy = true
	}
	return false
}

// response completes a head. If the method of the request or the status says that there is no body, the header
// lines do not count for the framing (RFC 9112, section 6.3).
func (m *headerFlags) response(h *Head, req *Head) *relay.Error {
	h.Upgrade = h.Status == 101
	if h.Upgrade && req != nil && !req.Upgrade {
		return localMalformed("it switched protocols (101) without having been asked to")
	}
	reason := m.apply(h)
	switch {
	case h.Status < 200 || h.Status == 204 || h.Status == 304 || req != nil && string(req.Method) == "HEAD":
		// A response to HEAD or with one of these statuses has no body, whatever its header lines say. If the
		// lines are invalid, the connection to the local server is not reused.
		h.Framing, h.Length = relay.FramingNone, 0
		h.Sloppy = h.Sloppy || reason != ""
	case reason != "":
		return localMalformed(reason)
	case h.Framing == relay.FramingNone:
		h.Framing, h.Close = relay.FramingClose, true
	}
	h.Close = h.Close || h.Sloppy
	return nil
}

// localMalformed returns the error for a refused response. why is a predicate whose subject is the
// response.
func localMalformed(why string) *relay.Error {
	return &relay.Error{Code: relay.CodeLocalMalformed, Detail: "the local server's answer was not understood: " + why}
}
