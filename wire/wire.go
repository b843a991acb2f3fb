// Package wire is HTTP/1.1 on byte slices: push parsers for message heads and
// bodies, strict for requests and lenient for responses, and what rebuilds and
// edits stored messages. No readers, no goroutines, no clock, no copies of bodies.
//
// Received bytes are forwarded as they are, so a request must not be readable in
// two ways: whatever RFC 9112 leaves open, or another parser is known to read
// otherwise, is refused. Responses come from the user's own server and are read as
// browsers read them, but never past a framing that could be doubted.
//
// All functions are safe for concurrent use; a Body belongs to one goroutine.
package wire

import (
	"errors"

	"relay"
)

// ErrMore means that the head is not complete yet: ask again with the same bytes
// and those that came behind them.
var ErrMore = errors.New("wire: more bytes needed")

// Limits bound a head and the work on it; 0 = no bound.
type Limits struct {
	Head   int // bytes from start line to empty line
	Target int // bytes of the request-target
	// Seen is how many bytes from the start of p an earlier call of the same limits
	// has answered with ErrMore: they need not be searched again, so that a sender
	// of single bytes does not cost the square of his head. 0 is always right.
	Seen int
}

// Head is a parsed message head. Its slices point into the bytes that were parsed.
type Head struct {
	Raw     []byte // start line to empty line
	Method  []byte // request
	Target  []byte // request, as sent
	Host    []byte // request: value of the Host line, or the authority of an absolute-form target
	Status  int    // response
	Minor   int    // 0 or 1
	Framing relay.Framing
	Length  int64 // FramingLength
	Close   bool  // the connection ends with this message
	Upgrade bool  // request: asks for one; response: is a 101
	Expect  bool  // request: Expect: 100-continue
	Auth    bool  // Authorization or WWW-Authenticate or Proxy-… of NTLM or Negotiate: the connection itself is authenticated
	// ProxyConnection: there is a Proxy-Connection line. It is no standard; some servers
	// close the connection because of it without saying so, aiohttp 3.8 for one.
	ProxyConnection bool
	Sloppy          bool // response: accepted leniently (bare LF, folded lines): never reuse, close the caller's connection
	// KeepAliveTimeout is the number of Keep-Alive: timeout=, in seconds; -1 = none.
	KeepAliveTimeout int
}

// Field is one header or trailer line: the name as received, the value without
// outer white space (obs-fold kept inside).
type Field struct{ Name, Value []byte }
