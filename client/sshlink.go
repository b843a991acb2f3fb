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
	a := newSSHAPI(d.Version, link.dial)
	addr, err := d.Addr()
	if err != nil {
		addr = d.Server
	}
	a.link, a.endpoint.Addr = link, addr
	return a
}

// api returns the API of the relay over this connection.
func (c *Conn) api(version string) *API {
	a := newSSHAPI(version, func(context.Context, string, string) (net.Conn, error) { return c.openAPI() })
	a.endpoint.Addr = c.Addr
	return a
}

func newSSHAPI(version string, dial func(context.Context, string, string) (net.Conn, error)) *API {
	a := newAPI(sshBase, version, &http.Transport{DialContext: dial, MaxConnsPerHost: apiChannels, MaxIdleConnsPerHost: apiChannels})
	a.endpoint.Name = "ssh"
	return a
}

// sshLink is the SSH connection of an API.
type sshLink struct {
	dialer *Dialer
	wg     sync.WaitGroup

	mu     sync.Mutex
	conn   *Conn
	alive  context.Context // of conn
	ended  chan struct{}   // closed when nothing of conn runs any more
	reason error           // why keepalive has ended conn, or nil; valid after ended
}

// connect makes the connection unless there is one.
func (l *sshLink) connect(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil && l.alive.Err() == nil {
		return nil
	}
	conn, err := l.dialer.Dial(ctx)
	if err != nil {
		return err
	}
	alive, end := context.WithCancel(context.Background())
	ended := make(chan struct{})
	l.conn, l.alive, l.ended = conn, alive, ended
	l.wg.Go(func() {
		_ = conn.Wait()
		end()
	})
	l.wg.Go(func() {
		defer close(ended)
		l.reason = conn.keepalive(alive)
	})
	return nil
}

// dial opens a channel for the HTTP transport.
func (l *sshLink) dial(context.Context, string, string) (net.Conn, error) {
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
	if <-l.ended; l.reason != nil {
		return l.reason
	}
	return cause
}

func (l *sshLink) close() {
	l.mu.Lock()
	if l.conn != nil {
		l.conn.Close()
	}
	l.mu.Unlock()
	l.wg.Wait()
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
	type opened struct {
		conn net.Conn
		err  error
	}
	result := make(chan opened, 1)
	go func() {
		conn, err := c.openSubsystem()
		result <- opened{conn, err}
	}()
	late := time.NewTimer(loginTimeout)
	defer late.Stop()
	select {
	case o := <-result:
		return o.conn, o.err
	case <-c.ended:
		return nil, lostConnection(io.EOF)
	case <-late.C:
		c.Close()
		return nil, Errorf(ExitUnreachable, "the relay has not opened a channel for %d s", int(loginTimeout.Seconds()))
	}
}

func (c *Conn) openSubsystem() (net.Conn, error) {
	ch, requests, err := c.OpenChannel("session", nil)
	if err != nil {
		return nil, lostConnection(err)
	}
	go ssh.DiscardRequests(requests)
	// A relay serves the API, so the request for it needs no answer and saves a round trip.
	isRelay := strings.HasPrefix(string(c.ServerVersion()), "SSH-2.0-relayd")
	ok, err := ch.SendRequest("subsystem", !isRelay, ssh.Marshal(struct{ Name string }{apiSubsystem}))
	switch {
	case err != nil:
		ch.Close()
		return nil, lostConnection(err)
	case !ok && !isRelay:
		ch.Close()
		return nil, notARelay(c.Addr)
	}
	return &channelConn{Channel: ch, addr: c.RemoteAddr()}, nil
}

func notARelay(addr string) *Error {
	return Errorf(ExitFailure, "%s speaks SSH but does not answer like a relay", addr)
}
