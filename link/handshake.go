package link

import (
	"context"

	"golang.org/x/crypto/ssh"
)

// Connect makes the handshake of a client and logs in. At the end of ctx it closes the connection
// and returns at once. Then Options.Channel and Options.Request get what the peer begins.
func (c *Conn) Connect(ctx context.Context, addr string, config *ssh.ClientConfig) error {
	return c.handshake(ctx, func() (ssh.Conn, <-chan ssh.NewChannel, <-chan *ssh.Request, error) {
		return ssh.NewClientConn(c.Sock, addr, config)
	})
}

// Accept makes the handshake of a server, and is otherwise like Connect. Who has logged in is in
// what it returns.
func (c *Conn) Accept(ctx context.Context, config *ssh.ServerConfig) (*ssh.ServerConn, error) {
	var server *ssh.ServerConn
	err := c.handshake(ctx, func() (ssh.Conn, <-chan ssh.NewChannel, <-chan *ssh.Request, error) {
		conn, channels, requests, err := ssh.NewServerConn(c.Sock, config)
		server = conn
		return conn, channels, requests, err
	})
	if err != nil {
		return nil, err
	}
	return server, nil
}

// handshake runs a handshake. x/crypto does not know ctx, so it has a goroutine of its own.
func (c *Conn) handshake(ctx context.Context, shake func() (ssh.Conn, <-chan ssh.NewChannel, <-chan *ssh.Request, error)) error {
	result := make(chan error, 1)
	if !c.Go("handshake", func() {
		conn, channels, requests, err := shake()
		if err != nil {
			_ = c.Close()
			result <- err
			return
		}
		c.Use(conn)
		result <- nil
		go c.takeRequests(requests)
		go c.takeChannels(channels)
	}) {
		return ErrLost
	}
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		_ = c.Close()
		return ctx.Err()
	}
}

// takeRequests takes all global requests of the peer, to the last one: x/crypto waits until it is
// taken.
func (c *Conn) takeRequests(requests <-chan *ssh.Request) {
	for req := range requests {
		r := NewRequest(req)
		if c.o.Request == nil || !c.Run("request", func() { c.o.Request(r) }) {
			_ = r.Reply(false, nil)
		}
	}
}

// takeChannels takes all channels that the peer opens. They end with x/crypto's mux, and the
// connection with them.
func (c *Conn) takeChannels(channels <-chan ssh.NewChannel) {
	for open := range channels {
		if c.o.Channel == nil || !c.Run("channel", func() { c.o.Channel(c.Offer(open)) }) {
			_ = open.Reject(Prohibited, "")
		}
	}
	_ = c.Close()
}
