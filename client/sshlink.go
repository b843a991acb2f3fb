package client

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"relay/cli"
	"relay/link"
)

// apiSubsystem is the subsystem that serves the API as HTTP/1.1 on its channel.
const apiSubsystem = "relay-api"

// NewSSHAPI returns the API of a dialer's relay. It makes an SSH connection at the first request, and a new
// one after a loss.
func NewSSHAPI(d *Dialer) *cli.API {
	sshLink := &sshLink{dialer: d}
	addr, err := d.Addr()
	if err != nil {
		addr = d.Server
	}
	open := func() (net.Conn, error) {
		sshLink.mu.Lock()
		conn := sshLink.conn
		sshLink.mu.Unlock()
		if conn == nil {
			return nil, net.ErrClosed
		}
		return conn.openAPI()
	}
	return cli.NewSSHAPI(d.Version, addr, open, sshLink)
}

// sshLink is the SSH connection of an API.
type sshLink struct {
	dialer *Dialer

	mu   sync.Mutex
	conn *Conn
}

// Connect implements cli.Link.
func (l *sshLink) Connect(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil && l.conn.Context().Err() == nil {
		return nil
	}
	conn, err := l.dialer.Dial(ctx)
	if err != nil {
		return err
	}
	l.conn = conn
	conn.Go("keepalive", func() { conn.keepalive(conn.Context()) })
	return nil
}

// Lose implements cli.Link.
func (l *sshLink) Lose(cause error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	conn := l.conn
	if conn == nil {
		return cause
	}
	l.conn = nil // the context of conn may end later than CloseSent returns, if another goroutine is closing conn
	conn.CloseSent(link.Unneeded)
	if silent := conn.silence(); silent != nil {
		return silent
	}
	return cause
}

// openAPI opens a channel that serves the API.
func (c *Conn) openAPI() (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), loginTimeout)
	defer cancel()
	ch, err := c.OpenChannel(ctx, "session", nil, link.ChannelOptions{})
	if err == nil {
		deadline, _ := ctx.Deadline()
		_ = ch.SetWriteDeadline(deadline)
		// A relay always serves the API, so openAPI does not wait for its reply, which would take a round trip.
		var ok bool
		if ok, err = ch.SendRequest("subsystem", !c.isRelay(), link.Marshal(struct{ Name string }{apiSubsystem})); err == nil {
			if !ok && !c.isRelay() {
				ch.Close()
				return nil, notARelay(c.Addr)
			}
			_ = ch.SetWriteDeadline(time.Time{})
			return ch, nil
		}
		ch.Close()
	}
	if ctx.Err() != nil || errors.Is(err, os.ErrDeadlineExceeded) {
		c.Close(link.GivenUp)
		return nil, cli.Errorf(cli.ExitUnreachable, "the relay has not opened a channel for %d s", int(loginTimeout.Seconds()))
	}
	return nil, cli.LostConnection(err)
}

// isRelay reports whether the SSH version of the peer says that it is a relay.
func (c *Conn) isRelay() bool {
	return strings.HasPrefix(c.ServerVersion(), "SSH-2.0-relayd")
}

func notARelay(addr string) *cli.Error {
	return cli.Errorf(cli.ExitFailure, "%s is an SSH server but no relay", addr)
}
