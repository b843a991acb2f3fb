package client

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
)

// Liveness of a connection. The relay uses spare channels only while it heard from the
// client within 2.5 s, so the client pings every 2 s. A relay that sends not one byte
// for silentAfter seconds is given up.
const (
	pingEvery   = 2 * time.Second
	lookEvery   = time.Second
	silentAfter = 10 // looks
	// hintAnswer is how many looks the relay has to answer a ping that follows a change
	// of this machine's network.
	hintAnswer = 3
)

const keepaliveRequest = "keepalive@openssh.com"

// activityConn counts the reads that brought bytes. Bytes count, not answers to pings:
// on a slow line an answer waits behind the data of others.
type activityConn struct {
	net.Conn
	out   *relay.BatchWriter // to Conn
	reads atomic.Int64
}

// Write writes p, perhaps together with what other goroutines write now.
func (c *activityConn) Write(p []byte) (int, error) { return c.out.Write(p) }

// Close closes the connection after what was written before has left, if that does not
// take long.
func (c *activityConn) Close() error {
	_ = c.Conn.SetReadDeadline(time.Unix(1, 0)) // it is over for those who read
	err := c.out.Close()
	c.out.Wait()
	return err
}

// Read reads and counts.
func (c *activityConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.reads.Add(1)
	}
	return n, err
}

// ping sends keepalives every pingEvery, and one at once when now gets a value, until
// ctx or the connection ends. Any answer will do.
func ping(ctx context.Context, conn ssh.Conn, now <-chan struct{}) {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-now:
		case <-tick.C:
		}
		if _, _, err := conn.SendRequest(keepaliveRequest, true, nil); err != nil {
			return
		}
	}
}

// keepalive pings the peer until ctx ends, and closes the connection when the peer is
// silent for too long; it returns why, or nil. A value of networkChanged, which may be
// nil, makes it ping at once and wait less long for the answer.
//
// Silence is counted in looks and not taken from a clock: while this process is stopped
// or this machine sleeps no looks happen, so the peer gets its full time afterwards.
func (c *Conn) keepalive(ctx context.Context, networkChanged <-chan struct{}) error {
	now, done := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(done)
		ping(ctx, c.Client.Conn, now)
	}()
	defer func() { <-done }()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	silent, reads := 0, c.activity.reads.Load()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-networkChanged:
			select {
			case now <- struct{}{}:
			default: // a ping is due already
			}
			silent = max(silent, silentAfter-hintAnswer)
			reads = c.activity.reads.Load()
		case <-tick.C:
			if n := c.activity.reads.Load(); n != reads {
				silent, reads = 0, n
				continue
			}
			if silent++; silent >= silentAfter {
				c.Close() // also ends a ping that waits
				return Errorf(ExitUnreachable, "the relay has been silent for %d s", int((silentAfter * lookEvery).Seconds()))
			}
		}
	}
}
