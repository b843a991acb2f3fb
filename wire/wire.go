// Package wire parses HTTP/1.1 in byte slices: push parsers for message heads and bodies, strict for requests
// and lenient for responses. It also rebuilds and edits stored messages. It has no readers, no goroutines and
// no clock, and does not copy bodies.
//
// Received bytes are forwarded unchanged, so a request must have a single meaning. If RFC 9112 leaves the
// meaning open, or another parser is known to read the request differently, the request is refused. Responses
// come from the user's own server and are parsed as tolerantly as in browsers, except that ambiguous framing
// is refused.
//
// All functions are safe for concurrent use; a Body belongs to one goroutine.
package wire

import (
	"errors"

	"relay"
)

// ErrMore means that the head is incomplete: call again with the same bytes and further bytes.
var ErrMore = errors.New("wire: more bytes needed")

// Limits bound a head and the work on it; 0 = no bound.
type Limits struct {
	Head   int // bytes from start line to empty line
	Target int // bytes of the request-target
	// Seen is the length of p in an earlier call that returned ErrMore. These bytes are not searched
	// again, because a head that arrives byte by byte would otherwise cost quadratic time. 0 is
	// always valid.
	Seen int
}

// Head is a parsed message head. Its slices point into the bytes that were parsed.
type Head struct {
	Raw     []byte // start line to empty line
	Method  []byte // requests only
	Target  []byte // requests only; as sent
	Host    []byte // requests only; value of the Host line, or the authority of an absolute-form target
	Status  int    // responses only
	Minor   int    // 0 or 1
	Framing relay.Framing
	Length  int64 // value of Content-Length, with FramingLength
	Close   bool  // the connection ends with this message
	Upgrade bool  // a request asks for an upgrade, or a response has the status 101
	Expect  bool  // requests only; Expect: 100-continue
	Auth    bool  // the connection itself is authenticated, by NTLM or Negotiate in Authorization, WWW-Authenticate, Proxy-Authorization or Proxy-Authenticate
	// ProxyConnection is set if there is a Proxy-Connection line. The line is not standardised.
	// Because of it some servers, such as aiohttp 3.8, close the connection without announcing that.
	ProxyConnection bool
	Sloppy          bool // responses only; accepted leniently (bare LF, folded lines): the connection to the local server must not be reused, and that of the caller must be closed
	EventStream     bool // Content-Type: text/event-stream
	// KeepAliveTimeout is the parameter timeout of Keep-Alive, in seconds; -1 = none.
	KeepAliveTimeout int
}

// Field is one header or trailer line: the name as received, and the value without outer white space.
// Line breaks within a folded value (obs-fold) are kept.
type Field struct{ Name, Value []byte }
