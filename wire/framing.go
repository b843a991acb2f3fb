package wire

import (
	"bytes"

	"relay"
)

// maxLengthDigits limits a Content-Length so that it fits into an int64.
const maxLengthDigits = 18

// headerFlags collects the information about framing and connection in the header lines of one head.
type headerFlags struct {
	host, length, coding    []byte // value of the last Host, Content-Length and Transfer-Encoding line
	hosts, lengths, codings int    // number of these lines
	close, keep             bool
	upgrade, expect, auth   bool
	proxyConnection         bool
	eventStream             bool
	timeout                 int
}

// note reads one header line. value has no white space at its ends.
func (m *headerFlags) note(name, value []byte) {
	switch {
	case fold(name, "host"):
		m.host, m.hosts = value, m.hosts+1
	case fold(name, "expect"):
		m.expect = m.expect || hasToken(value, "100-continue")
	case fold(name, "upgrade"):
		m.upgrade = m.upgrade || len(value) > 0
	case fold(name, "connection"):
		m.close = m.close || hasToken(value, "close")
		m.keep = m.keep || hasToken(value, "keep-alive")
	case fold(name, "keep-alive"):
		m.keepAlive(value)
	case fold(name, "content-length"):
		m.length, m.lengths = value, m.lengths+1
	case fold(name, "content-type"):
		kind, _, _ := bytes.Cut(value, []byte{';'})
		m.eventStream = m.eventStream || fold(trim(kind), "text/event-stream")
	case fold(name, "transfer-encoding"):
		m.coding, m.codings = value, m.codings+1
	case fold(name, "authorization"), fold(name, "proxy-authorization"):
		// NTLM and Negotiate authenticate a connection instead of a request. In a list of challenges
		// the scheme may be at any place. If a parameter looks like one of these schemes, the only
		// effect is that the connection is not reused.
		scheme, _, _ := bytes.Cut(value, []byte{' '})
		m.auth = m.auth || fold(scheme, "ntlm") || fold(scheme, "negotiate")
	case fold(name, "www-authenticate"), fold(name, "proxy-authenticate"):
		m.auth = m.auth || hasWord(value, "ntlm") || hasWord(value, "negotiate")
	case fold(name, "proxy-connection"):
		m.proxyConnection = true
	}
}

// keepAlive reads the timeout parameter of a Keep-Alive line.
func (m *headerFlags) keepAlive(value []byte) {
	const word = "timeout="
	for item := range bytes.SplitSeq(value, []byte{','}) {
		item = trim(item)
		if len(item) <= len(word) || !fold(item[:len(word)], word) {
			continue
		}
		if n, ok := parseLength(item[len(word):]); ok {
			m.timeout = int(min(n, 1<<31-1))
		}
	}
}

// apply sets the fields of a head for the connection (RFC 9112, section 9.3) and for the framing, by
// Content-Length and Transfer-Encoding; with neither, the framing is FramingNone. reason describes an
// ambiguity, "" = none.
func (m *headerFlags) apply(h *Head) (reason string) {
	h.Close = m.close || h.Minor == 0 && !m.keep
	h.Auth = m.auth
	h.ProxyConnection = m.proxyConnection
	h.EventStream = m.eventStream
	h.KeepAliveTimeout = m.timeout
	switch {
	case m.codings > 0 && m.lengths > 0:
		return "it has both Content-Length and Transfer-Encoding; send only one of them"
	case m.codings > 1:
		return "it has more than one Transfer-Encoding line; send only one"
	case m.lengths > 1:
		return "it has more than one Content-Length line; send only one"
	case m.codings > 0 && h.Minor == 0:
		return "HTTP/1.0 has no Transfer-Encoding; send a Content-Length"
	case m.codings > 0:
		if !fold(m.coding, "chunked") {
			return "its Transfer-Encoding is not chunked"
		}
		h.Framing = relay.FramingChunked
	case m.lengths > 0:
		n, ok := parseLength(m.length)
		if !ok {
			return "its Content-Length is not a plain number of at most 18 digits"
		}
		h.Framing, h.Length = relay.FramingLength, n
	}
	return ""
}

// otherCoding reports whether Transfer-Encoding is a well-formed list with a coding other than
// chunked. Such a request is unsupported, not malformed.
func (m *headerFlags) otherCoding() bool {
	other := false
	for item := range bytes.SplitSeq(m.coding, []byte{','}) {
		name, _, _ := bytes.Cut(item, []byte{';'})
		name = trim(name)
		if len(name) == 0 || !only(name, tokenOctet) {
			return false
		}
		other = other || !fold(name, "chunked") || bytes.IndexByte(item, ';') >= 0
	}
	return other
}

func parseLength(p []byte) (n int64, ok bool) {
	if len(p) == 0 || len(p) > maxLengthDigits {
		return 0, false
	}
	for _, c := range p {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}
