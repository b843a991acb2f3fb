package relay

import (
	"net"
	"time"
)

// Conn is one connection to a local server, through a channel of its tunnel. Its addresses may be
// those of the connection that carries the channel. Read and Ready are called by one goroutine at a
// time, Write and CloseWrite likewise; deadlines, Close and End may be called at any time.
//
// Read fails with io.EOF once the local server has closed its side in order, with io.ErrUnexpectedEOF
// if it broke the connection off while the tunnel was up, and with os.ErrDeadlineExceeded at the
// deadline, which loses no bytes. Any other error means that the tunnel is lost or that Close was
// called.
//
// A Write that returns (0, err) has proven that no byte was sent. A nil error does not prove that the
// peer has the bytes. At the deadline, or at Close, a write ends with the number of bytes that were
// given to the connection: they may still be sent. The caller may reuse p when Write returns.
type Conn interface {
	net.Conn
	// Ready returns a channel that can be received from once a Read would not block: bytes have
	// arrived, or the end. Calling it again is cheap, so an idle connection can be watched beside
	// timers without a goroutine of its own.
	Ready() <-chan struct{}
	// CloseWrite half-closes towards the local server; for upgraded connections only.
	CloseWrite() error
	// End returns how the connection has ended. Where it ended without a byte and the peer may
	// still say why, End waits up to wait for that.
	End(wait time.Duration) ConnEnd
}

// ConnEnd describes the end of a Conn.
type ConnEnd struct {
	How     ConnHow
	Refusal *Error // with ConnRefused: why no local server was reached (local-refused, …)
}

// ConnHow names a way in which a Conn ended.
type ConnHow uint8

// The ways in which a Conn ends.
const (
	ConnOpen     ConnHow = iota // it has not ended, as far as is known, or was closed here
	ConnEOF                     // the local server closed its side in order
	ConnBrokeOff                // the local server aborted the connection
	ConnRefused                 // no byte reached a local server
	ConnLost                    // the tunnel was lost
)
