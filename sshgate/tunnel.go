package sshgate

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"time"

	"relay"
	"relay/link"
	"relay/record"
	"relay/sshgate/node"
)

// forwardedOpen is the payload of a forwarded-tcpip open (RFC 4254, section 7.2). Clients find their forward
// by Bind and Port, so both must be exactly those of the client's request.
type forwardedOpen struct {
	Bind       string
	Port       uint32
	Origin     string
	OriginPort uint32
}

// Heard returns the time since the last byte of the peer.
func (f *forward) Heard() time.Duration { return f.c.Sock.SilentFor() }

// LazyDial reports whether the peer has announced that it dials the local server at the first byte.
func (f *forward) LazyDial() bool { return f.c.announced.lazy.Load() }

// Info describes the tunnel.
func (f *forward) Info() relay.TunnelInfo { return f.info }

// Close drains the connection with reason as the message. If the alias was removed or the client moves, Close
// ends only the forward. It returns at once.
func (f *forward) Close(reason string) {
	if f.closed.Swap(true) {
		return
	}
	f.c.Go("close tunnel", func() {
		switch {
		case reason == relay.AliasRemoved:
			f.c.removeForward(f)
		case f.c.moving.Load():
			f.c.forwardMoved(f)
		default:
			f.c.closeTakenOver(f.alias.Name, reason)
		}
	})
}

// openProbe is the time after which a client that has not answered an open is pinged. A client that waits for
// a slow local server sends nothing of its own, but it answers the ping. So its tunnel does not become stale,
// and the other requests on the tunnel continue.
const openProbe = 500 * time.Millisecond

// Open opens a channel to the client.
func (f *forward) Open(ctx context.Context, origin netip.AddrPort) (relay.Conn, error) {
	c := f.c
	if !c.srv.o.Budget.Fits(f.alias.Owner, link.PausedBytes) {
		return nil, node.ErrNoBuffer
	}
	heard := c.Sock.Heard()
	probe := time.AfterFunc(openProbe, c.Ping)
	defer probe.Stop()
	payload := link.Marshal(forwardedOpen{Bind: f.asked.Bind, Port: f.port, Origin: node.Origin(origin), OriginPort: uint32(origin.Port())})
	ch, err := c.OpenChannel(ctx, "forwarded-tcpip", payload, c.tunnelChannel(f.alias.Owner))
	if err != nil {
		return nil, c.openFailure(err, heard)
	}
	return ch, nil
}

// openFailure converts the error of a failed open into the error of a request. If the client has not answered in
// time, its tunnels become stale, unless it has sent a byte since the open: heard is the value of Socket.Heard
// before the open.
func (c *conn) openFailure(err error, heard int64) error {
	var refused *link.RefusedError
	switch {
	case errors.As(err, &refused):
		return openRefusal(refused.Reason, record.SafeTextMax(refused.Text, 256))
	case errors.Is(err, link.ErrUnclosed):
		return errUnclosed
	case errors.Is(err, context.DeadlineExceeded) && c.Context().Err() == nil:
		c.GoStale(heard)
	}
	return relay.ErrNotSent
}

// errUnclosed is the error of a request for a tunnel whose client has not closed the channels of earlier requests yet.
var errUnclosed = relay.Errorf(relay.CodeOverloaded, "the tunnel client has not closed its earlier connections yet; try again in a moment")

// openRefusal returns the error for a channel that the peer has refused: the tunnel is up, but its local
// server cannot be reached.
func openRefusal(reason link.Reason, text string) *relay.Error {
	switch reason {
	case link.ConnectFailed:
		return relay.Errorf(relay.CodeLocalRefused, "cannot connect to your local server (%s); start it, then replay this event", cmp.Or(text, "connection refused"))
	case link.ResourceShortage:
		return relay.Errorf(relay.CodeOverloaded, "the tunnel client is out of resources (%s); try again", cmp.Or(text, "no reason given"))
	default:
		return relay.Errorf(relay.CodeLocalUnresolvable,
			"the tunnel client could not open the local target (%s); check the host name behind -R", cmp.Or(text, "no reason given"))
	}
}
