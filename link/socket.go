package link

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
	"time"

	"relay/sockets"
	"relay/waits"
)

// Socket is the TCP connection below SSH. It notes the time of the peer's last byte, ends writes that
// make no progress, combines the small writes of many channels, and calls a function once when it is
// closed.
type Socket struct {
	net.Conn
	start   time.Time
	ack     func()      // acknowledges received bytes at once; may be nil
	unread  func() bool // reports whether received bytes are unread; may be nil
	onHeard func()      // called after each read that returned bytes
	onLost  func()      // called once, after the first read that failed
	onClose func(cause Cause, details []any)
	onFlood func() // called before the connection is closed because the peer sent more than maxLoginBytes before its login; nil = no such bound

	loggedIn   atomic.Bool // the peer has logged in and may send any number of bytes
	loginBytes int         // bytes that were read before the login; only Read and PeerCiphers use it

	heard   atomic.Int64 // time of the last received byte, since start
	state   atomic.Int32 // one of the constants socketOpen to socketClosed
	broken  atomic.Value // a Cause, PeerClosed or LineFailed: how the first failed read or write of the TCP connection ended
	why     atomic.Pointer[reason]
	reading atomic.Bool   // a goroutine is waiting for bytes of the peer
	reads   atomic.Int64  // number of reads that have begun
	stall   time.Duration // longest time for which a write may make no progress; 0 = no limit
	linger  atomic.Bool   // set by Linger
	out     *batchWriter  // bytes to send

	said  []byte // our version line, after ExchangeVersions has sent it; Write drops it if x/crypto writes it again
	ahead []byte // bytes of the peer that ExchangeVersions and PeerCiphers have read, and x/crypto has not
}

// States of a socket. A socket never returns to an earlier state.
const (
	socketOpen   int32 = iota
	socketLost         // a read has failed, so no more bytes will arrive
	socketClosed       // closed by this side
)

func newSocket(tcp net.Conn, stall, userTimeout time.Duration) *Socket {
	s := &Socket{Conn: tcp, start: time.Now(), stall: stall, onHeard: func() {}, onLost: func() {}, onClose: func(Cause, []any) {}}
	s.ack, s.unread = tune(sockets.KernelConn(tcp), userTimeout)
	s.out = newBatchWriter(sender{s})
	return s
}

func (s *Socket) now() int64 { return int64(time.Since(s.start)) }

// On an overloaded machine, bytes of the peer wait in the kernel until their reader runs. Once nothing
// was read for unreadCheckAfter, the socket checks for such bytes. If there are some, the peer counts as
// silent only when unreadTrustedFor has passed since the last read.
const (
	unreadCheckAfter = time.Second
	unreadTrustedFor = 30 * time.Second
)

// lastHeard returns the time of the peer's last byte, or the current time if bytes of the peer wait in
// the kernel (see unreadCheckAfter). Both are measured from the start of the socket.
func (s *Socket) lastHeard() int64 {
	now, last := s.now(), s.heard.Load()
	if q := time.Duration(now - last); q >= unreadCheckAfter && q < unreadTrustedFor && s.unread != nil && s.unread() {
		return now
	}
	return last
}

// SilentFor returns the time since the last byte of the peer.
func (s *Socket) SilentFor() time.Duration { return time.Duration(max(0, s.now()-s.lastHeard())) }

// maxVersion is the longest version line (RFC 4253, section 4.2).
const maxVersion = 255

// Age returns the time since the connection was made.
func (s *Socket) Age() time.Duration { return time.Since(s.start) }

// Heard returns the time of the peer's last byte as a number that is only useful for comparison; 0 =
// none has arrived.
func (s *Socket) Heard() int64 { return s.heard.Load() }

// LoggedIn removes the limit of maxLoginBytes, after the peer has logged in.
func (s *Socket) LoggedIn() { s.loggedIn.Store(true) }

// Linger makes the end of the connection wait up to lingerTime, so that the peer can read the last bytes.
func (s *Socket) Linger() { s.linger.Store(true) }

// ExchangeVersions sends our version line and returns that of the peer, so that the offer of this side can depend
// on it: x/crypto fixes the offer before it reads that line. If the write fails, the result is "". If the peer
// stops sending early, the result has the bytes that arrived, and x/crypto reports the error later.
func (s *Socket) ExchangeVersions(own string) (peer string) {
	s.said = []byte(own + "\r\n")
	if _, err := s.Conn.Write(s.said); err != nil {
		return ""
	}
	buf := make([]byte, maxVersion)
	for n := 0; n < len(buf); {
		got, err := s.Read(buf[n:])
		n += got
		if err != nil || bytes.IndexByte(buf[:n], '\n') >= 0 || n == len(buf) {
			s.ahead = buf[:n]
			break
		}
	}
	return string(s.ahead)
}

// maxLoginBytes limits the bytes of a peer before it has logged in. A login that offers and proves 20
// RSA keys of 8,192 bits takes less than 80 KiB. x/crypto itself skips any number of ignorable
// messages, and accepts login messages of up to 256 KiB each.
const maxLoginBytes = 256 << 10

// Read implements net.Conn, and notes the time of received bytes.
func (s *Socket) Read(p []byte) (int, error) {
	if len(s.ahead) > 0 {
		n := copy(p, s.ahead)
		if s.ahead = s.ahead[n:]; len(s.ahead) == 0 {
			// This frees the buffer before the end of the connection.
			s.ahead = nil
		}
		return n, nil
	}
	if s.state.Load() == socketClosed {
		return 0, net.ErrClosed
	}
	s.reads.Add(1)
	s.reading.Store(true)
	n, err := s.Conn.Read(p)
	s.reading.Store(false)
	if s.state.Load() == socketClosed {
		return 0, net.ErrClosed
	}
	if n > 0 {
		if s.onFlood != nil && !s.loggedIn.Load() {
			if s.loginBytes += n; s.loginBytes > maxLoginBytes {
				s.onFlood()
				s.Close(LoginFlooded)
				return 0, net.ErrClosed
			}
		}
		s.heard.Store(s.now())
		s.onHeard()
		if s.ack != nil {
			s.ack()
		}
	}
	if err != nil && s.state.CompareAndSwap(socketOpen, socketLost) {
		if err == io.EOF {
			s.broken.CompareAndSwap(nil, PeerClosed)
		} else {
			s.broken.CompareAndSwap(nil, LineFailed)
		}
		s.onLost()
	}
	return n, err
}

// Write writes p, possibly together with the bytes of other writes. It must not be called concurrently.
func (s *Socket) Write(p []byte) (int, error) {
	if s.said != nil {
		same := bytes.Equal(s.said, p)
		if s.said = nil; same {
			return len(p), nil
		}
	}
	return s.out.Write(p)
}

// sender is the writer through which the batchWriter of a socket sends.
type sender struct{ *Socket }

// lingerTime is the longest time for which a closed connection still takes bytes from its peer, and
// LingerBytes is the largest number of these bytes.
const (
	lingerTime  = time.Second
	LingerBytes = 64 << 10
)

// Close closes the connection below the socket. A close with unread bytes resets the connection (RFC
// 1122, section 4.2.2.13), and the peer may lose the last bytes. After Linger, Close therefore first ends
// the sending side, and then drops further input. A peer that does not close its own side is reset after
// lingerTime.
func (s sender) Close() error {
	if !s.linger.Load() || sockets.HalfClose(s.Conn) != nil {
		return s.Conn.Close()
	}
	end := time.Now().Add(lingerTime)
	go func() {
		if sockets.Discard(s.Conn, LingerBytes, func(int64) time.Time { return end }) != nil {
			sockets.SetLinger(s.Conn, 0)
		}
		_ = s.Conn.Close()
	}()
	return nil
}

// Write sends all of p. If the peer takes no byte for the stall time, Write ends the connection.
func (s sender) Write(p []byte) (written int, err error) {
	// again: the last deadline was noticed late, and nothing was taken
	for again := false; ; {
		var limit time.Time
		if s.stall > 0 {
			limit = time.Now().Add(s.stall)
			_ = s.Conn.SetWriteDeadline(limit)
		}
		n, err := s.Conn.Write(p[written:])
		written += n
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			if err != nil {
				s.broken.CompareAndSwap(nil, LineFailed)
			}
			return written, err
		}
		if n == 0 && (again || !waits.IsLate(limit, time.Now())) {
			s.Socket.Close(Stalled)
			return written, err
		}
		again = n == 0
	}
}

// reason is the cause of the end of a connection, with details for the log line.
type reason struct {
	cause   Cause
	details []any
}

// Decide records the cause by which the connection will end, unless one is recorded already. It closes nothing.
func (s *Socket) Decide(cause Cause, details ...any) {
	s.why.CompareAndSwap(nil, &reason{cause, details})
}

// Close closes the connection by a cause; pending reads end at once. Only the first call closes it. Its cause does not
// count if Decide has recorded another one, except a breach of rules (a cause of level warn) and Revoked, which
// replace what was decided before the first Close.
func (s *Socket) Close(cause Cause, details ...any) {
	s.Decide(cause, details...)
	if s.state.Swap(socketClosed) == socketClosed {
		return
	}
	if cause.Level() == slog.LevelWarn || cause == Revoked {
		s.why.Store(&reason{cause, details})
	}
	_ = s.Conn.SetReadDeadline(time.Unix(1, 0))
	_ = s.out.Close()
	why := s.why.Load()
	s.onClose(why.cause, why.details)
}
