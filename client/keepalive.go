package client

import (
	"context"
	"time"

	"relay/cli"
	"relay/link"
)

// Liveness of a connection. The relay uses spare channels only if it heard from the client within the last
// 2.5 s, so the client pings every 2 s. A connection without a byte from the relay for silentAfter seconds is
// closed.
const (
	pingEvery   = 2 * time.Second
	lookEvery   = time.Second
	silentAfter = 10 // number of checks, one each lookEvery, without a byte from the relay
)

// keepalive pings the relay until ctx or the connection ends. If the relay is silent for too long, it closes the
// connection.
func (c *Conn) keepalive(ctx context.Context) { c.Watch(ctx, pingEvery, lookEvery, silentAfter) }

// silence returns an error if the connection has ended because the relay was silent.
func (c *Conn) silence() error {
	if c.Cause() != link.Silent {
		return nil
	}
	return cli.Errorf(cli.ExitUnreachable, "the relay has been silent for %d s", int((silentAfter * lookEvery).Seconds()))
}
