package server

import (
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"relay"
)

// lateConn imitates a process that is suspended while a deadline passes: the first call that fails at its
// deadline returns later than that, by the duration in the field stopped.
type lateConn struct {
	net.Conn
	stopped time.Duration
}

func (c *lateConn) late(n int, err error) (int, error) {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		time.Sleep(c.stopped)
		c.stopped = 0
	}
	return n, err
}

// Read implements net.Conn.
func (c *lateConn) Read(p []byte) (int, error) { return c.late(c.Conn.Read(p)) }

// Write implements net.Conn.
func (c *lateConn) Write(p []byte) (int, error) { return c.late(c.Conn.Write(p)) }

// TestDeadlineNoticedLate: if relayd was suspended when the deadline of a caller passed, what the caller sent
// or read in that time counts as in time. If the caller did nothing, a read waits one second more, and a
// write another stall time, before it fails.
func TestDeadlineNoticedLate(t *testing.T) {
	t.Parallel()
	const stall, stopped = 10 * time.Second, time.Hour
	for name, test := range map[string]struct {
		call       func(c *conn) error
		callerSent bool          // the caller sends or reads while the process is suspended
		took       time.Duration // time until the call fails; 0 = it succeeds
	}{
		"body":       {call: func(c *conn) error { _, err := c.Read(make([]byte, 1)); return err }, callerSent: true},
		"no body":    {call: func(c *conn) error { _, err := c.Read(make([]byte, 1)); return err }, took: stall + stopped + time.Second},
		"head":       {call: func(c *conn) error { c.deadline(stall); _, err := c.fill(); return err }, callerSent: true},
		"no head":    {call: func(c *conn) error { c.deadline(stall); _, err := c.fill(); return err }, took: stall + stopped + time.Second},
		"write":      {call: func(c *conn) error { _, err := c.Write([]byte("b")); return err }, callerSent: true},
		"no reading": {call: func(c *conn) error { _, err := c.Write([]byte("b")); return err }, took: 2*(stall+stall/slack) + stopped},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mine, theirs := net.Pipe()
				defer mine.Close()
				defer theirs.Close()
				late := &stallConn{Conn: &lateConn{mine, stopped}, stall: stall}
				c := &conn{srv: &Server{opt: Options{StallTimeout: stall, MinRate: 100, MinRateGrace: 2 * stall}}, sock: late, net: late}
				c.rewind()
				if test.callerSent {
					time.AfterFunc(stall+stopped/2, func() {
						go func() { _, _ = theirs.Write([]byte("a")) }()
						go func() { _, _ = theirs.Read(make([]byte, 1)) }()
					})
				}
				begun := time.Now()
				err := test.call(c)
				var e *relay.Error
				late408 := errors.As(err, &e) && e.Code == relay.CodeRequestTimeout || errors.Is(err, os.ErrDeadlineExceeded)
				switch took := time.Since(begun); {
				case test.callerSent && err != nil, !test.callerSent && (!late408 || took != test.took):
					t.Errorf("got %v after %v", err, took)
				case c.body.waited > 0:
					t.Errorf("the caller is charged for %v", c.body.waited)
				}
			})
		})
	}
}
