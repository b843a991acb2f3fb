package relay

import (
	"net/netip"
	"time"
)

// Caller is the HTTP/1.1 connection of a caller, positioned after a request head. One goroutine at a time may
// read, and one at a time may write. All requests of a connection have the same Caller, and Callers of
// different connections are never equal. Delivery compares them, because a channel that has carried a request
// body may be reused only for the same caller.
type Caller interface {
	// Buffered returns how many bytes Read can return without reading from the
	// connection.
	Buffered() int
	// Read reads the next bytes, beginning with those that arrived together with the
	// head. If the caller sends no byte for the stall timeout, or sends the body too
	// slowly, the error is an *Error request-timeout, and Read may be called again.
	// Any other error means that the connection is lost.
	Read(p []byte) (int, error)
	// Unread puts p back: bytes at the end of the last Read that come after the end of this request.
	Unread(p []byte)
	// Write sends bytes of the response unchanged. It fails when the caller does not
	// read for the stall timeout. Nothing may be written after an error.
	Write(p []byte) (int, error)
	// DisableWriteTimeout removes the time limit of further writes, for upgraded
	// connections.
	DisableWriteTimeout()
	// Presence returns the state of the connection without reading. It may be called while
	// another goroutine writes.
	Presence() Presence
	// Left reports whether the caller has left without reading all written bytes. A caller that has
	// closed its connection looks like a caller that has closed only its sending side, until a reset
	// answers the bytes sent to it. Left waits a moment for that reset, unless more bytes of the
	// caller have arrived.
	Left() bool
	// ResetOnCrash makes the connection end with a reset if this process is killed. By default the system
	// closes the connections of a killed process in order. For a response without a length, that looks like
	// the end of the response: the caller would take a part of the response, or a response that is not
	// stored, as complete. CloseWrite and Abort end the connection as usual.
	ResetOnCrash()
	// CloseWrite ends the response (TLS close_notify, FIN).
	CloseWrite() error
	// Abort resets the connection (linger 0, no close_notify), so that the caller
	// cannot take a partial response for a complete one.
	Abort()
}

// Presence is the state of a caller's connection while no goroutine reads from it.
type Presence uint8

// The states of a caller's connection.
const (
	CallerPresent    Presence = iota // the caller is connected, or the state is unknown
	CallerHalfClosed                 // the caller has sent FIN; it may still read the response
	CallerReset                      // the connection is broken
)

// Inbound is one request to an alias whose head was parsed and routed.
type Inbound struct {
	Alias   *Alias
	From    netip.AddrPort
	TLS     bool
	Arrived time.Time // arrival of the first byte of the head
	Head    []byte    // exactly as received; the receiver of Inbound owns the bytes
	Caller  Caller
}

// Outcome tells package server how to continue after a capture.
type Outcome struct {
	// Answer, if not nil, is the relay-made answer that server has to write. In that case no byte of
	// a final response was written before.
	Answer *Answer
	// KeepAlive permits another request on the connection. Without it the connection
	// is closed, gracefully unless Caller.Abort was called.
	KeepAlive bool
	// Status and Event are for the access log, if Answer is nil. Status is that of the response that the local
	// server sent, and 0 if the caller got no byte of it, or left before it got the whole response. Event is zero
	// if the event is not stored, or if that is unknown.
	Status int
	Event  ID
	// Gone, if not nil, is called if Answer could not be written, or if the caller has left without reading
	// all of it.
	Gone func()
}

// Answer is a relay-made answer: a response that no local server sent.
type Answer struct {
	Error *Error // nil = the offline answer
	Event ID     // zero = no event was stored
	// Status is the status of the answer; used when Error is nil.
	Status int
	// Own is the whole answer, head and body, if Error is nil and the answer is not the usual offline
	// answer. It answers a registration challenge, or comes from the alias setting answers.
	Own       []byte
	Handshake string // name of the answered challenge; "" = the event was queued
}
