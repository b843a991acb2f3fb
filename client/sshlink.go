package client

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
)

const (
	// apiSubsystem is the subsystem that serves the API as HTTP/1.1 on its channel.
	apiSubsystem = "relay-api"
	// apiChannels is how many API channels a connection has at a time: the relay accepts
	// four sessions on one.
	apiChannels = 3
)

// NewSSHAPI returns the API of the relay of a dialer. It makes one SSH connection when it
// is first needed, and a new one when that is lost.
func NewSSHAPI(d *Dialer) *API {
	link := &sshLink{dialer: d}
	addr, err := d.Addr()
	if err != nil {
		addr = d.Server
	}
	a := newSSHAPI(d.Version, addr, link.openAPI)
	a.link = link
	return a
}

// newSSHAPI returns the API of a relay on the channels that open opens.
func newSSHAPI(version, addr string, open func() (net.Conn, error)) *API {
	a := newAPI(sshBase, version, &http.Transport{
		DialContext:     func(context.Context, string, string) (net.Conn, error) { return open() },
		MaxConnsPerHost: apiChannels, MaxIdleConnsPerHost: apiChannels,
	})
	a.endpoint = Endpoint{Name: "ssh", Addr: addr}
	return a
}

// sshLink is the SSH connection of an API.
type sshLink struct {
	dialer *Dialer

	mu        sync.Mutex
	conn      *Conn
	keepalive sync.WaitGroup // of conn
	reason    error          // why keepalive has ended conn, or nil; valid when it has ended
}

// connect makes the connection unless there is one.
func (l *sshLink) connect(ctx context.Context) error {
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

// openAPI opens a channel on the connection.
func (l *sshLink) openAPI() (net.Conn, error) {
	l.mu.Lock()
	conn := l.conn
	l.mu.Unlock()
	if conn == nil {
		return nil, net.ErrClosed
	}
	return conn.openAPI()
}

// lose ends the connection after a request on it has failed, so that the next request makes
// a new one. It returns the reason why the connection was lost, or cause if nobody knows
// better.
func (l *sshLink) lose(cause error) error {
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
			result <- lostConnection(err)
			return
		}
		go ssh.DiscardRequests(requests)
		// A relay serves the API, so the request for it needs no answer and saves a round trip.
		ok, err := ch.SendRequest("subsystem", !c.isRelay(), ssh.Marshal(struct{ Name string }{apiSubsystem}))
		switch {
		case err != nil:
			err = lostConnection(err)
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
		return nil, lostConnection(io.EOF)
	case <-late.C:
		c.Close()
		return nil, Errorf(ExitUnreachable, "the relay has not opened a channel for %d s", int(loginTimeout.Seconds()))
	}
}

// isRelay reports whether the peer says in its version that it is a relay.
func (c *Conn) isRelay() bool {
	return strings.HasPrefix(string(c.ServerVersion()), "SSH-2.0-relayd")
}

func notARelay(addr string) *Error {
	return Errorf(ExitFailure, "%s speaks SSH but does not answer like a relay", addr)
}
