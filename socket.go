package relay

import (
	"errors"
	"io"
	"net"
	"time"
)

// KernelConn returns the connection below everything that wraps it and says so by a method
// NetConn, such as what reads a proxy's header.
func KernelConn(c net.Conn) net.Conn {
	for {
		outer, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return c
		}
		c = outer.NetConn()
	}
}

// HalfClose ends what is sent on a connection, and leaves open what is received.
func HalfClose(c net.Conn) error {
	if half, ok := KernelConn(c).(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// SetLinger sets SO_LINGER where the connection can: with 0 s its close is a reset.
func SetLinger(c net.Conn, seconds int) {
	if l, ok := KernelConn(c).(interface{ SetLinger(int) error }); ok {
		_ = l.SetLinger(seconds)
	}
}

// discardPiece is how much Discard reads under one deadline.
const discardPiece = 16 << 10

// Discard reads and drops what still comes on a connection that was half-closed and is to be
// closed. A close with unread bytes would reset it (RFC 1122, section 4.2.2.13), and its peer
// would lose what was written last. Discard returns nil when the peer has closed its end, or
// after most bytes, and an error at the deadline, which depends on the bytes read so far.
func Discard(c net.Conn, most int64, deadline func(read int64) time.Time) error {
	for read := int64(0); read < most; {
		_ = c.SetReadDeadline(deadline(read))
		n, err := io.CopyN(io.Discard, c, discardPiece)
		read += n
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
	return nil
}
