package relay

import (
	"net/netip"
	"time"
)

// Caller is the caller's side of an exchange: one HTTP/1.1 connection, positioned
// behind a request head. Read is used by one goroutine and Write by one other at a
// time. All requests of one connection come with the same Caller, and no other
// connection ever has an equal one: channels to the local server are kept apart by it.
type Caller interface {
	// Buffered is how many bytes Read can give without touching the connection.
	Buffered() int
	// Read gives the next bytes, first those that came together with the head.
	// A caller that does not move for the stall timeout gives an *Error of
	// request-timeout; any other error means that the caller is gone.
	Read(p []byte) (int, error)
	// Unread gives back the end of what the last Read gave: bytes behind the end
	// of this request.
	Unread(p []byte)
	// Write sends bytes of the answer as they are; it fails when the caller does
	// not read for the stall timeout. Not one byte may be written after an error.
	Write(p []byte) (int, error)
	// DisableWriteTimeout takes the stall timeout away from further writes; for upgraded
	// connections.
	DisableWriteTimeout()
	// CloseWrite ends our side in order (TLS close_notify, FIN).
	CloseWrite() error
	// Abort breaks the transfer so that nobody takes it for complete: linger 0,
	// no close_notify.
	Abort()
}

// Presence is what is known of a caller whom nobody reads.
type Presence uint8

// Callers come and go.
const (
	CallerPresent    Presence = iota // or it is not known
	CallerHalfClosed                 // ended their side in order; they may still read the answer
	CallerReset                      // the connection is broken: nobody reads
)

// PresenceReporter is a Caller that can tell, without reading, whether anybody is there. It
// may be asked while another goroutine writes.
type PresenceReporter interface {
	Presence() Presence
}

// Inbound is one request to an alias, its head parsed and routed.
type Inbound struct {
	Alias   *Alias
	From    netip.AddrPort
	TLS     bool
	Arrived time.Time // first byte of the head
	Head    []byte    // exactly as received; owned by the receiver of Inbound
	Caller  Caller
}

// Outcome says what is left for the front door to do after a capture.
type Outcome struct {
	// Answer, if not nil, is an answer that the relay makes itself; nothing of a
	// final response was written yet.
	Answer *Answer
	// KeepAlive: the connection may serve another request. False: close it, in
	// order unless Caller.Abort was called.
	KeepAlive bool
}

// Answer is an answer no local server sent.
type Answer struct {
	Error *Error // nil = the offline answer
	Event ID     // zero = none was kept
	// Status is the offline status of the alias; used when Error is nil.
	Status int
}
