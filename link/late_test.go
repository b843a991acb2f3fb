package link

import (
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// lateConn is a connection of a process that is stopped before it notices that a deadline has passed.
type lateConn struct {
	net.Conn
	stopped time.Duration
}

// Write implements net.Conn.
func (c *lateConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		time.Sleep(c.stopped)
		c.stopped = 0
	}
	return n, err
}

// TestStallNoticedLate: if this process was stopped when the stall time of a write passed, the peer gets another
// stall time before the connection ends.
func TestStallNoticedLate(t *testing.T) {
	t.Parallel()
	const stall, stopped = 10 * time.Second, time.Hour
	for name, reads := range map[string]bool{"the peer reads": true, "it does not": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mine, theirs := net.Pipe()
				defer theirs.Close()
				s := newSocket(&lateConn{mine, stopped}, stall, 0)
				defer s.Close(Unneeded)
				if reads {
					time.AfterFunc(stall+stopped/2, func() { _, _ = theirs.Read(make([]byte, 1)) })
				}
				begun := time.Now()
				_, err := sender{s}.Write([]byte("a"))
				if took := time.Since(begun); reads != (err == nil) || !reads && took != 2*stall+stopped {
					t.Errorf("%v after %v", err, took)
				}
				if why := s.why.Load(); reads != (why == nil) || !reads && why.cause != Stalled {
					t.Errorf("ended by %+v", why)
				}
			})
		})
	}
}

// TestWriteThatEndsAtItsDeadline: if a write has ended and its deadline has passed, too, await returns the result
// of the write and not a timeout.
func TestWriteThatEndsAtItsDeadline(t *testing.T) {
	passed := make(chan struct{})
	close(passed)
	for range 50 { // a wrong await would choose one of the two at random
		w := writes{size: 5}
		w.start()
		w.wrote <- wrote{3, ErrLost}
		if n, err := w.await(passed); n != 3 || err != ErrLost || w.left {
			t.Fatalf("%d, %v, running %v", n, err, w.left)
		}
	}
}
