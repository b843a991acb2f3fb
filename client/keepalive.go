package client

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"relay/cli"
	"relay/link"
)

// Liveness of a connection. The relay uses spare channels only while it heard from the
// client within 2.5 s, so the client pings every 2 s. A relay that sends not one byte
// for silentAfter seconds is given up.
const (
	pingEvery   = 2 * time.Second
	lookEvery   = time.Second
	silentAfter = 10 // looks
)

const keepaliveRequest = "keepalive@openssh.com"

// activityConn counts the reads that brought bytes. Bytes count, not answers to pings:
// on a slow line an answer waits behind the data of others.
type activityConn struct {
	net.Conn
	out   *link.BatchWriter // to Conn
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

// keepalive pings the peer until ctx ends, and closes the connection when the peer is
// silent for too long; it returns why, or nil. Any answer to a ping will do.
//
// Silence is counted in looks and not taken from a clock: while this process is stopped
// or this machine sleeps no looks happen, so the peer gets its full time afterwards.
func (c *Conn) keepalive(ctx context.Context) error {
	go func() { // nobody waits for it: x/crypto may not return from a call that begins as the connection ends
		for cli.Wait(ctx, pingEvery) {
			if _, _, err := c.SendRequest(keepaliveRequest, true, nil); err != nil {
				return
			}
		}
	}()
	silent, reads := 0, c.activity.reads.Load()
	for cli.Wait(ctx, lookEvery) {
		if n := c.activity.reads.Load(); n != reads {
			silent, reads = 0, n
			continue
		}
		if silent++; silent >= silentAfter {
			c.Close() // also ends a ping that waits
			return cli.Errorf(cli.ExitUnreachable, "the relay has been silent for %d s", int((silentAfter * lookEvery).Seconds()))
		}
	}
	return nil
}
