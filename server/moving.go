package server

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// piece is the most that is written under one deadline.
const piece = 64 << 10

// What a slow reader is granted on top of the stall time: his system takes bytes
// that he has not read, and says nothing of his reading before a good part of them
// is gone (RFC 9293, section 3.8.6.2.2): with Linux' defaults on loopback 95 KiB at
// a time, with a large receive buffer 380 KiB were seen. Whoever reads slowPace
// bytes a second has emptied it within the time granted, so only then silence proves
// that nobody reads.
const (
	slowPace   = 16 << 10  // bytes a second
	mostHidden = 512 << 10 // bytes; larger buffers belong to readers who were quick
)

// movingConn is the connection below TLS. Its writes have no deadline as long as
// they move: they fail once the peer has taken nothing for the stall time and the
// time in which a slow reader may not be seen to read. It has to sit below TLS,
// where a write that timed out can be continued.
type movingConn struct {
	net.Conn
	stall time.Duration // 0 = writes never stall
	seat  seat

	patient atomic.Bool  // writes may take for ever from now on
	sent    atomic.Int64 // bytes written
	taken   int64        // as many of them were confirmed when we looked last; of the writer

	mu    sync.Mutex
	until time.Time // write deadline set from above
}

// Write sends p in pieces and looks four times within the stall time whether bytes
// moved: accepted by our system, or confirmed by the peer's. The first alone would
// not do, since a large send buffer takes nothing new before much of it is gone.
func (m *movingConn) Write(p []byte) (int, error) {
	if m.stall <= 0 || m.patient.Load() {
		n, err := m.Conn.Write(p)
		m.sent.Add(int64(n))
		return n, err
	}
	for sent, moved := 0, time.Now(); ; {
		_ = m.Conn.SetWriteDeadline(m.deadline(m.stall / 4))
		n, err := m.Conn.Write(p[sent:min(sent+piece, len(p))])
		sent += n
		m.sent.Add(int64(n))
		switch {
		case err == nil && sent == len(p):
			return sent, nil
		case err != nil && (!errors.Is(err, os.ErrDeadlineExceeded) || m.late()):
			return sent, err
		case n > 0 || m.confirmed():
			moved = time.Now()
		case time.Since(moved) >= m.stall+m.hidden():
			return sent, err
		}
	}
}

// confirmed tells whether the peer's system has taken bytes since the last look.
func (m *movingConn) confirmed() bool {
	c, ok := bottom(m.Conn).(syscall.Conn)
	if !ok { // in memory: what is written has been read
		return false
	}
	waiting, known := unacked(c)
	if !known { // no news, and the worst that can be
		m.taken = min(m.sent.Load(), mostHidden)
		return false
	}
	before := m.taken
	m.taken = m.sent.Load() - int64(waiting)
	return m.taken > before
}

// hidden is how long a reader of slowPace may need for bytes that his system has
// taken but he has not read yet.
func (m *movingConn) hidden() time.Duration {
	return time.Duration(min(m.taken, mostHidden)) * time.Second / slowPace
}

// Close ends the connection and gives its place back.
func (m *movingConn) Close() error {
	m.seat.leave()
	return m.Conn.Close()
}

// deadline is d from now, or what was set from above if that is earlier.
func (m *movingConn) deadline(d time.Duration) time.Time {
	t := time.Now().Add(d)
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.until.IsZero() && m.until.Before(t) {
		return m.until
	}
	return t
}

// late tells whether the deadline set from above has passed.
func (m *movingConn) late() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.until.IsZero() && !time.Now().Before(m.until)
}

// SetWriteDeadline adds an absolute end to that of stalling.
func (m *movingConn) SetWriteDeadline(t time.Time) error {
	m.mu.Lock()
	m.until = t
	m.mu.Unlock()
	return m.Conn.SetWriteDeadline(t)
}

// SetDeadline sets both deadlines.
func (m *movingConn) SetDeadline(t time.Time) error {
	if err := m.SetWriteDeadline(t); err != nil {
		return err
	}
	return m.SetReadDeadline(t)
}

// CloseWrite sends FIN where the connection can.
func (m *movingConn) CloseWrite() error {
	if c, ok := bottom(m.Conn).(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return errors.ErrUnsupported
}

// reset closes the connection so that the peer sees it broken, not ended.
func (m *movingConn) reset() {
	if c, ok := bottom(m.Conn).(interface{ SetLinger(int) error }); ok {
		_ = c.SetLinger(0)
	}
	_ = m.Close()
}

// bottom is the socket under any wrappers.
func bottom(c net.Conn) net.Conn {
	for {
		w, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return c
		}
		c = w.NetConn()
	}
}
