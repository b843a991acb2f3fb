package link

import (
	"context"

	"golang.org/x/crypto/ssh"
)

// Handlers get the channels and requests of a peer. All fields may be nil.
type Handlers struct {
	// LoggedIn is called once on the side of the server, after the login has succeeded and before the
	// other handlers. A message that it sends follows directly after the success of the login.
	LoggedIn func(meta ssh.ConnMetadata, p *ssh.Permissions)
	// Channel gets each channel that the peer opens, and Request each global request, one after
	// another, in one goroutine. They must not block: x/crypto stops reading the connection while 16
	// channels or 16 requests wait. nil refuses all.
	Channel func(*Offer)
	Request func(*Request)
	// Ended is called after the last call of the other handlers, which may still be called after Options.Closed.
	Ended func()
}

// begun is a connection of x/crypto whose handshake has succeeded.
type begun struct {
	conn     ssh.Conn
	perms    *ssh.Permissions // permissions of the login, for a server; nil for a client
	channels <-chan ssh.NewChannel
	requests <-chan *ssh.Request
}

// Connect makes the handshake of a client and logs in. If ctx ends before that, Connect closes the connection and
// returns at once. After the login, the handlers get the channels and requests of the peer.
func (c *Conn) Connect(ctx context.Context, addr string, config *ssh.ClientConfig, h Handlers) error {
	return c.handshake(ctx, h, func() (b begun, err error) {
		b.conn, b.channels, b.requests, err = ssh.NewClientConn(library{c.Sock, c}, addr, config)
		return b, err
	})
}

// Accept makes the handshake of a server, and is otherwise like Connect.
func (c *Conn) Accept(ctx context.Context, config *ssh.ServerConfig, h Handlers) error {
	before := config.PreAuthConnCallback
	config.PreAuthConnCallback = func(conn ssh.ServerPreAuthConn) {
		c.shaking.Store(conn)
		if before != nil {
			before(conn)
		}
	}
	return c.handshake(ctx, h, func() (begun, error) {
		server, channels, requests, err := ssh.NewServerConn(library{c.Sock, c}, config)
		if err != nil {
			return begun{}, err
		}
		return begun{server.Conn, server.Permissions, channels, requests}, nil
	})
}

// handshake runs the function shake in a goroutine, so that it can return at the end of ctx: x/crypto takes no context.
func (c *Conn) handshake(ctx context.Context, h Handlers, shake func() (begun, error)) error {
	result := make(chan error, 1)
	if !c.Go("handshake", func() {
		err := ErrLost
		defer func() { result <- err }()
		var b begun
		if b, err = shake(); err != nil {
			c.Close(c.failure())
			return
		}
		c.Use(b.conn)
		if h.LoggedIn != nil {
			h.LoggedIn(b.conn, b.perms)
		}
		c.take("peer", func() { c.serve(h, b.channels, b.requests) })
	}) {
		return ErrLost
	}
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		c.Close(GivenUp)
		return ctx.Err()
	}
}

// take runs the function loop in a goroutine, even if the connection has ended. loop receives from a Go channel of
// x/crypto until x/crypto closes it, because x/crypto blocks while nobody receives.
func (c *Conn) take(what string, loop func()) {
	if !c.Go(what, loop) {
		// The connection has just ended, so x/crypto closes the Go channel, and loop returns.
		go loop()
	}
}

// serve passes the channels and global requests of the peer to the handlers. When x/crypto's mux ends, it
// closes both Go channels, the parameters channels and requests. serve still passes on what is left in
// them, and then closes the connection.
func (c *Conn) serve(h Handlers, channels <-chan ssh.NewChannel, requests <-chan *ssh.Request) {
	if h.Ended != nil {
		defer h.Ended()
	}
	defer func() { c.Close(c.failure()) }()
	for channels != nil || requests != nil {
		select {
		case open, ok := <-channels:
			if !ok {
				channels = nil
				continue
			}
			c.requestsOf(h, requests)
			c.offer(h, open)
		case req, ok := <-requests:
			if !ok {
				requests = nil
				continue
			}
			c.request(h, req)
		case taken := <-c.barriers:
			for range len(channels) { // no other goroutine receives from channels, so this does not block
				open := <-channels
				c.requestsOf(h, requests)
				c.offer(h, open)
			}
			c.requestsOf(h, requests)
			close(taken)
		}
	}
}

// requestsOf passes on the global requests that have arrived. It is called before a channel is passed on, because the
// peer may have sent them before it: a forward that comes before a session must not look like one that comes after its
// command.
func (c *Conn) requestsOf(h Handlers, requests <-chan *ssh.Request) {
	for range len(requests) { // no other goroutine receives from requests, so this does not block
		c.request(h, <-requests)
	}
}

func (c *Conn) request(h Handlers, req *ssh.Request) {
	defer c.Recovered("request")
	r := newRequest(req)
	if h.Request == nil {
		_ = r.Reply(false, nil)
		return
	}
	h.Request(r)
}

func (c *Conn) offer(h Handlers, open ssh.NewChannel) {
	if h.Channel == nil || !c.Run("channel", func() { h.Channel(c.Offer(open)) }) {
		_ = open.Reject(UnknownType, "")
	}
}
