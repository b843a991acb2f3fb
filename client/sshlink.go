package client

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"relay/cli"
)

// apiSubsystem is the subsystem that serves the API as HTTP/1.1 on its channel.
const apiSubsystem = "relay-api"

// NewSSHAPI returns the API of the relay of a dialer. It makes one SSH connection when it
// is first needed, and a new one when that is lost.
func NewSSHAPI(d *Dialer) *cli.API {
	link := &sshLink{dialer: d}
	addr, err := d.Addr()
	if err != nil {
		addr = d.Server
	}
	open := func() (net.Conn, error) {
		link.mu.Lock()
		conn := link.conn
		link.mu.Unlock()
		if conn == nil {
			return nil, net.ErrClosed
		}
		return conn.openAPI()
	}
	return cli.NewSSHAPI(d.Version, addr, open, link)
}

// sshLink is the SSH connection of an API.
type sshLink struct {
	dialer *Dialer

	mu        sync.Mutex
	conn      *Conn
	keepalive sync.WaitGroup // of conn
	reason    error          // why keepalive has ended conn, or nil; valid when it has ended
}

// Connect implements cli.Link.
func (l *sshLink) Connect(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil && l.conn.alive.Err() == nil {
		return nil
	}
	conn, err := l.dialer.Dial(ctx)
	if err != nil {
		return err
	}
	l.keepalive.Wait() // that of the connection before
	l.conn = conn
	l.keepalive.Go(func() { l.reason = conn.keepalive(conn.alive) })
	return nil
}

// Lose implements cli.Link.
func (l *sshLink) Lose(cause error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil {
		return cause
	}
	l.conn.Close()
	if l.keepalive.Wait(); l.reason != nil {
		return l.reason
	}
	return cause
}

// channelConn is a channel that serves the API, as the net.Conn that the HTTP transport
// wants. The transport sets no deadlines.
type channelConn struct {
	ssh.Channel
	addr net.Addr
}

// LocalAddr and RemoteAddr return the address of the relay: nobody asks for them.
func (c *channelConn) LocalAddr() net.Addr  { return c.addr }
func (c *channelConn) RemoteAddr() net.Addr { return c.addr }

// The deadlines of a channel cannot be set.
func (c *channelConn) SetDeadline(time.Time) error      { return errors.ErrUnsupported }
func (c *channelConn) SetReadDeadline(time.Time) error  { return errors.ErrUnsupported }
func (c *channelConn) SetWriteDeadline(time.Time) error { return errors.ErrUnsupported }

// openAPI opens a channel that serves the API. It has a goroutine of its own for that,
// because x/crypto leaves an open for ever that begins while the connection ends:
// mux.loop forgets the channels before it closes the transport.
func (c *Conn) openAPI() (net.Conn, error) {
	var ch ssh.Channel
	result := make(chan error, 1)
	go func() {
		var requests <-chan *ssh.Request
		var err error
		if ch, requests, err = c.OpenChannel("session", nil); err != nil {
			result <- cli.LostConnection(err)
			return
		}
		go ssh.DiscardRequests(requests)
		// A relay serves the API, so the request for it needs no answer and saves a round trip.
		ok, err := ch.SendRequest("subsystem", !c.isRelay(), ssh.Marshal(struct{ Name string }{apiSubsystem}))
		switch {
		case err != nil:
			err = cli.LostConnection(err)
		case !ok && !c.isRelay():
			err = notARelay(c.Addr)
		}
		if err != nil {
			ch.Close()
		}
		result <- err
	}()
	late := time.NewTimer(loginTimeout)
	defer late.Stop()
	select {
	case err := <-result:
		if err != nil {
			return nil, err
		}
		return &channelConn{Channel: ch, addr: c.RemoteAddr()}, nil
	case <-c.alive.Done():
		return nil, cli.LostConnection(io.EOF)
	case <-late.C:
		c.Close()
		return nil, cli.Errorf(cli.ExitUnreachable, "the relay has not opened a channel for %d s", int(loginTimeout.Seconds()))
	}
}

// isRelay reports whether the peer says in its version that it is a relay.
func (c *Conn) isRelay() bool {
	return strings.HasPrefix(string(c.ServerVersion()), "SSH-2.0-relayd")
}

func notARelay(addr string) *cli.Error {
	return cli.Errorf(cli.ExitFailure, "%s speaks SSH but does not answer like a relay", addr)
}
