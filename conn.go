package relay

import (
	"net"
	"time"
)

// Conn is one connection to a local server, through a channel of its tunnel. Its addresses may be
// those of the connection that carries the channel. Read and Ready may be called by one goroutine at
// a time, and so may Write and CloseWrite. Deadlines, Close and End may be called at any time.
//
// Read fails with io.EOF once the local server has closed its side in order, and with
// io.ErrUnexpectedEOF if the local server broke the connection off while the tunnel was up. At the
// deadline it fails with os.ErrDeadlineExceeded and loses no bytes. Any other error means that the
// tunnel is lost or that Close was called.
//
// If Write returns (0, err), no byte was sent. A nil error does not prove that the peer has the
// bytes. At the deadline, or at Close, a write ends with the number of bytes that were passed to the
// connection; these bytes may still be sent. When Write returns, its argument may be reused.
type Conn interface {
	net.Conn
	// Ready returns a channel that can be received from once Read does not block, because bytes or
	// the end have arrived. Calling it again is cheap, so one goroutine can wait for an idle
	// connection together with timers.
	Ready() <-chan struct{}
	// CloseWrite half-closes towards the local server; for upgraded connections only.
	CloseWrite() error
	// End returns how the connection has ended. If it ended without a byte, the peer may still send the
	// reason: End then waits for the reason, at most for the duration wait.
	End(wait time.Duration) ConnEnd
}

// ConnEnd describes the end of a Conn.
type ConnEnd struct {
	How     ConnHow
	Refusal *Error // the reason why no local server was reached (local-refused, …); set if How is ConnRefused
}

// ConnHow names a way in which a Conn ended.
type ConnHow uint8

// The ways in which a Conn ends.
const (
	ConnOpen     ConnHow = iota // the connection has not ended, as far as is known, or this side has closed it
	ConnEOF                     // the local server closed its side in order
	ConnBrokeOff                // the local server aborted the connection
	ConnRefused                 // no byte reached a local server
	ConnLost                    // the tunnel was lost
)
