package wire

import (
	"bytes"

	"relay"
)

// checkTarget requires one of the forms of RFC 9112, section 3.2. It sets the host from
// an absolute-form target, which must name the same host as the Host line.
func checkTarget(h *Head, hasHost bool) *relay.Error {
	t := h.Target
	switch {
	case t[0] == '/':
		return nil
	case len(t) == 1 && t[0] == '*':
		if string(h.Method) != "OPTIONS" {
			return malformed("the target * goes with OPTIONS only")
		}
		return nil
	}
	authority, _, ok := cutAbsolute(t)
	switch {
	case !ok:
		return malformed("its target is neither a path nor an http or https address")
	case !ValidHost(authority):
		return malformed("the host in its target is not a host name with an optional port")
	case hasHost && !bytes.EqualFold(authority, h.Host):
		return malformed("its target and its Host line name different hosts")
	}
	if !hasHost {
		h.Host = authority
	}
	return nil
}

// cutAbsolute splits an absolute-form target of http or https.
func cutAbsolute(t []byte) (authority, rest []byte, ok bool) {
	for _, scheme := range []string{"http://", "https://"} {
		n := len(scheme)
		if len(t) < n || !fold(t[:n], scheme) {
			continue
		}
		end := len(t)
		if i := bytes.IndexAny(t[n:], "/?#"); i >= 0 {
			end = n + i
		}
		return t[n:end:end], t[end:], true
	}
	return nil, nil, false
}

// ShownTarget returns the target without scheme and authority: the target itself, or the
// part of an absolute-form target after the authority ("/" if that is empty).
func ShownTarget(target []byte) []byte {
	_, rest, ok := cutAbsolute(target)
	switch {
	case !ok:
		return target
	case len(rest) == 0:
		return []byte{'/'}
	}
	return rest
}

// ValidHost reports whether p is a valid uri-host [":" port] (RFC 9110, section 7.2) without percent
// encoding. Names of aliases contain no percent encoding.
func ValidHost(p []byte) bool {
	if bytes.HasPrefix(p, []byte{'['}) {
		end := bytes.IndexByte(p, ']')
		return end > 2 && only(p[1:end], literalOctet) && validPort(p[end+1:])
	}
	host, _, _ := bytes.Cut(p, []byte{':'})
	return len(host) > 0 && only(host, hostOctet) && validPort(p[len(host):])
}

// validPort reports whether p is "" or a colon with at most five digits. RFC 3986 allows an empty
// port.
func validPort(p []byte) bool {
	if len(p) == 0 {
		return true
	}
	if p[0] != ':' || len(p) > len(":65535") {
		return false
	}
	n, ok := parseLength(p[1:])
	return len(p) == 1 || ok && n <= 65535
}
