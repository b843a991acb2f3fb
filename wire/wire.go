// Package wire is HTTP/1.1 on byte slices: push parsers for message heads and
// bodies, strict for requests and lenient for responses, and what rebuilds and
// edits stored messages. No readers, no goroutines, no clock, no copies of bodies.
package wire

import (
	"errors"

	"relay"
)

// ErrMore means that the head is not complete yet.
var ErrMore = errors.New("wire: more bytes needed")

// Limits bound a head; 0 = no bound.
type Limits struct {
	Head   int // bytes from start line to empty line
	Target int // bytes of the request-target
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
	Sloppy  bool  // response: accepted leniently (bare LF, folded lines): never reuse, close the caller's connection
	// KeepAliveTimeout is the number of Keep-Alive: timeout=, in seconds; -1 = none.
	KeepAliveTimeout int
}

// Request parses a request head at the start of p, strictly. n is how many bytes it
// took, one leading empty line (not part of Raw) included. Errors are ErrMore and
// *relay.Error with the codes of the relay's own answers; the bytes of a refused
// head are not trusted for anything but display.
func Request(p []byte, l Limits) (h *Head, n int, err error) { panic("todo") }

// Response parses a response head at the start of p, leniently; req is the head of
// the request that it answers. Errors are ErrMore and *relay.Error local-malformed.
func Response(p []byte, l Limits, req *Head) (h *Head, n int, err error) { panic("todo") }

// Body follows the framing of one message body without touching its bytes.
type Body struct {
	// Tee, if set, gets the decoded body bytes and the framing bytes (chunk-size
	// lines, last chunk, trailers, final empty line, without the CRLF behind chunk
	// data) in wire order; one of the two is empty at each call. The slices are
	// valid during the call only.
	Tee func(decoded, line []byte)
	// unexported state follows
}

// NewBody starts the body that h announces; strict for requests, lenient for
// responses.
func NewBody(h *Head) *Body { panic("todo") }

// Feed takes the next wire bytes. n of them belong to the body; end tells that it
// is complete, so p[n:] belongs to something else. A body that is empty by its
// framing ends at Feed(nil). Errors are *relay.Error request-malformed or
// local-malformed; nothing of p behind n may be forwarded then.
func (b *Body) Feed(p []byte) (n int, end bool, err error) { panic("todo") }

// EOF tells that the peer ended its side: nil when that is a good end.
func (b *Body) EOF() error { panic("todo") }

// Field is one header or trailer line: the name as received, the value without
// outer white space (obs-fold kept inside).
type Field struct{ Name, Value []byte }

// Fields lists the header lines of a head in order.
func Fields(head []byte) []Field { panic("todo") }

// Trailers lists the trailer lines within the chunk lines of a message.
func Trailers(lines []byte) []Field { panic("todo") }

// StartLine gives the three parts of the first line of a head: method, target,
// version; or version, status, reason.
func StartLine(head []byte) (a, b, c []byte) { panic("todo") }

// ShownTarget is everything after the alias domain: the target itself, or, of an
// absolute-form target, the part behind the authority ("/" when that is empty).
func ShownTarget(target []byte) []byte { panic("todo") }

// SetHost gives a copy of a request head in which only the value bytes of the Host
// line differ.
func SetHost(head []byte, value string) []byte { panic("todo") }

// AddLines gives a copy of a head with complete lines put in before its empty line.
func AddLines(head, lines []byte) []byte { panic("todo") }

// Rebuild writes the exact wire form of a stored message through to: head (used in
// place of m.Head), then the body with its framing. next gives the decoded body
// piece by piece and io.EOF at its end; it may be nil when m.Body.Data is all of it.
// Pieces given to to are valid during the call only.
func Rebuild(m *relay.Message, head []byte, next func() ([]byte, error), to func([]byte) error) error {
	panic("todo")
}
