package server

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// piece is the most that is written under one deadline.
const piece = 64 << 10

// movingConn is the connection below TLS. Its writes have no deadline as long as
// they move: they fail once the peer has taken nothing for the stall time. It has
// to sit below TLS, where a write that timed out can be continued.
type movingConn struct {
	net.Conn
	stall time.Duration // 0 = writes never stall

	patient atomic.Bool // writes may take for ever from now on

	mu    sync.Mutex
	until time.Time // write deadline set from above
}

// Write sends p in pieces and looks four times within the stall time whether bytes
// moved; how many did is only known when a deadline passes.
func (m *movingConn) Write(p []byte) (int, error) {
	if m.stall <= 0 || m.patient.Load() {
		return m.Conn.Write(p)
	}
	for sent, moved := 0, time.Now(); ; {
		_ = m.Conn.SetWriteDeadline(m.deadline(m.stall / 4))
		n, err := m.Conn.Write(p[sent:min(sent+piece, len(p))])
		sent += n
		switch {
		case err == nil && sent == len(p):
			return sent, nil
		case n > 0 && (err == nil || errors.Is(err, os.ErrDeadlineExceeded)) && !m.late():
			moved = time.Now()
		case !errors.Is(err, os.ErrDeadlineExceeded) || m.late() || time.Since(moved) >= m.stall:
			return sent, err
		}
	}
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
	_ = m.Conn.Close()
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
