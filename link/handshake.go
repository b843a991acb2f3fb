package link

import (
	"context"

	"golang.org/x/crypto/ssh"
)

// Connect makes the handshake of a client and logs in. At the end of ctx it closes the connection and
// returns at once. After the login, Options.Channel and Options.Request get the channels and requests
// of the peer.
func (c *Conn) Connect(ctx context.Context, addr string, config *ssh.ClientConfig) error {
	return c.handshake(ctx, func() (ssh.Conn, <-chan ssh.NewChannel, <-chan *ssh.Request, error) {
		return ssh.NewClientConn(c.Sock, addr, config)
	})
}

// Accept makes the handshake of a server, and is otherwise like Connect. It returns the connection of
// x/crypto, which names the user.
func (c *Conn) Accept(ctx context.Context, config *ssh.ServerConfig) (*ssh.ServerConn, error) {
	var server *ssh.ServerConn
	config.PreAuthConnCallback = c.Handshaking
	err := c.handshake(ctx, func() (ssh.Conn, <-chan ssh.NewChannel, <-chan *ssh.Request, error) {
		conn, channels, requests, err := ssh.NewServerConn(c.Sock, config)
		if err != nil {
			return nil, nil, nil, err
		}
		server = conn
		return conn.Conn, channels, requests, nil
	})
	if err != nil {
		return nil, err
	}
	return server, nil
}

// handshake runs shake in a goroutine, because x/crypto does not know ctx.
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
		c.take("requests", func() { c.takeRequests(requests) })
		c.take("channels", func() { c.takeChannels(channels) })
		result <- nil
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

// take runs loop, which reads a channel of x/crypto to its end: x/crypto blocks until its values are
// read.
func (c *Conn) take(what string, loop func()) {
	if !c.Go(what, loop) {
		go loop() // the connection has just ended, and with it what comes
	}
}

// takeRequests passes on the global requests of the peer. The last ones may arrive together with the
// end of the connection.
func (c *Conn) takeRequests(requests <-chan *ssh.Request) {
	if c.o.RequestsEnded != nil {
		defer c.o.RequestsEnded()
	}
	for req := range requests {
		r := NewRequest(req)
		if c.o.Request == nil {
			_ = r.Reply(false, nil)
			continue
		}
		func() {
			defer c.Recovered("request")
			c.o.Request(r)
		}()
	}
}

// takeChannels passes on the channels that the peer opens. They end with x/crypto's mux, and so does
// the connection.
func (c *Conn) takeChannels(channels <-chan ssh.NewChannel) {
	defer c.Close()
	for open := range channels {
		if c.o.Channel == nil || !c.Run("channel", func() { c.o.Channel(c.Offer(open)) }) {
			_ = open.Reject(UnknownType, "")
		}
	}
}
