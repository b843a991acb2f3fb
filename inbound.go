package relay

import (
	"net/netip"
	"time"
)

// Caller is the caller's side of an exchange: one HTTP/1.1 connection, positioned
// after a request head. Read is used by one goroutine and Write by one other at a time.
// All requests of one connection have the same Caller, and no other connection has an
// equal one: delivery keeps reused channels to the local server apart by it.
type Caller interface {
	// Buffered returns how many bytes Read can return without reading from the
	// connection.
	Buffered() int
	// Read reads the next bytes, first those that came together with the head. If
	// the caller sends no byte for the stall timeout, or a body too slowly, the error
	// is an *Error request-timeout, and Read may be called again. Any other error
	// means that the caller is gone.
	Read(p []byte) (int, error)
	// Unread puts the end of what the last Read returned back: bytes after the end of
	// this request.
	Unread(p []byte)
	// Write sends bytes of the response as they are. It fails when the caller does
	// not read for the stall timeout. Nothing may be written after an error.
	Write(p []byte) (int, error)
	// DisableWriteTimeout lets further writes take any time, for upgraded connections.
	DisableWriteTimeout()
	// CloseWrite ends the response (TLS close_notify, FIN).
	CloseWrite() error
	// Abort resets the connection (linger 0, no close_notify), so that the caller
	// cannot take a partial response for a complete one.
	Abort()
}

// Presence is the state of a caller's connection while nobody reads from it.
type Presence uint8

// The states of a caller's connection.
const (
	CallerPresent    Presence = iota // or not known
	CallerHalfClosed                 // the caller has sent FIN; it may still read the response
	CallerReset                      // the connection is broken
)

// PresenceReporter is a Caller that knows the state of its connection without reading.
// Presence may be called while another goroutine writes.
type PresenceReporter interface {
	Presence() Presence
}

// Inbound is one request to an alias, after its head was parsed and routed.
type Inbound struct {
	Alias   *Alias
	From    netip.AddrPort
	TLS     bool
	Arrived time.Time // first byte of the head
	Head    []byte    // exactly as received; the receiver of Inbound owns the bytes
	Caller  Caller
}

// Outcome says what package server has to do after a capture.
type Outcome struct {
	// Answer, if not nil, is the relay-made answer to write. No byte of a final
	// response was written then.
	Answer *Answer
	// KeepAlive says that the connection may serve another request. Otherwise it is
	// closed, gracefully unless Caller.Abort was called.
	KeepAlive bool
}

// Answer is a relay-made answer: a response that no local server sent.
type Answer struct {
	Error *Error // nil = the offline answer
	Event ID     // zero = no event was kept
	// Status is the offline status of the alias; used when Error is nil.
	Status int
}
