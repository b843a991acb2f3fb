package sshgate

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/record"
	"relay/sshgate/shell"
)

// maxUnanswered is how many opens without an answer a connection may have. Each
// keeps a goroutine until the peer answers, and, if it was too late, closes what it
// opened.
const maxUnanswered = 2048

// forwardedOpen is the payload of a forwarded-tcpip open (RFC 4254, section 7.2).
// Bind and Port are what clients recognise their forward by, byte for byte.
type forwardedOpen struct {
	Bind       string
	Port       uint32
	Origin     string
	OriginPort uint32
}

// tunnel is a forward as relay.Tunnel.
type tunnel struct {
	c      *conn
	bind   string
	port   uint32
	alias  string
	owner  int64 // account that owns the alias
	info   relay.TunnelInfo
	closed atomic.Bool // detached or replaced: Close means nothing any more
}

// Heard is the time since the last byte of the peer.
func (t *tunnel) Heard() time.Duration { return t.c.sock.silentFor() }

// LazyDial tells whether the peer said that it dials at the first byte.
func (t *tunnel) LazyDial() bool { return t.c.lazy.Load() }

// Info describes the tunnel.
func (t *tunnel) Info() relay.TunnelInfo { return t.info }

// Close gives the connection up because of reason, or, when the alias is no more,
// what the alias has of it. It returns at once.
func (t *tunnel) Close(reason string) {
	if t.closed.Swap(true) {
		return
	}
	if reason == relay.AliasRemoved {
		t.c.spawn(func() {
			if f := t.c.forwardOf(t); f != nil {
				t.c.removeForward(f)
			}
		})
		return
	}
	if t.c.handOver(t) {
		return
	}
	t.c.spawn(func() {
		ctx, cancel := context.WithTimeout(t.c.ctx, t.c.srv.o.TakeoverDrain)
		defer cancel()
		t.c.drain(ctx, closeReason{
			notice:   shell.Notice{Kind: relay.NoticeSuperseded, Alias: t.alias, Message: record.SafeText(reason)},
			exit:     shell.ExitTaken,
			graceful: true,
		})
	})
}

// opening is an open that is under way.
type opening struct {
	result chan opened
	over   atomic.Bool // set by the first of: the asker walks away, the answer is there
}

type opened struct {
	ch   ssh.Channel
	reqs <-chan *ssh.Request
	err  error
}

// Open makes a channel; x/crypto would wait for the peer without end.
func (t *tunnel) Open(ctx context.Context, origin netip.AddrPort) (relay.Channel, error) {
	if t.c.closing() {
		return nil, relay.ErrNotSent
	}
	if !t.c.srv.o.Budget.Fits(t.owner, pausedBytes) {
		return nil, errNoBuffer
	}
	lastHeard := t.c.sock.heard.Load()
	o := &opening{result: make(chan opened, 1)}
	if !t.c.spawn(func() { t.open(o, origin) }) {
		return nil, relay.ErrNotSent
	}
	select {
	case r := <-o.result:
		return t.use(r)
	case <-ctx.Done():
	case <-t.c.ctx.Done():
	}
	if o.over.Swap(true) { // the answer was faster
		return t.use(<-o.result)
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && t.c.ctx.Err() == nil {
		t.c.goStale(lastHeard)
	}
	return nil, relay.ErrNotSent
}

func (t *tunnel) open(o *opening, origin netip.AddrPort) {
	if err := t.c.reserveOpen(); err != nil {
		o.result <- opened{err: err}
		return
	}
	addr := origin.Addr().Unmap()
	text := addr.String()
	if !addr.IsValid() {
		text = "0.0.0.0"
	}
	ch, reqs, err := t.c.sc.OpenChannel("forwarded-tcpip", ssh.Marshal(forwardedOpen{
		Bind: t.bind, Port: t.port, Origin: text, OriginPort: uint32(origin.Port()),
	}))
	defer t.c.openAnswered()
	if !o.over.Swap(true) {
		o.result <- opened{ch, reqs, err}
		return
	}
	if err == nil { // nobody waits any more
		_ = t.c.newChannel(ch, reqs, t.owner).Close()
	}
}

// reserveOpen counts an open without an answer, or says why there can be none.
func (c *conn) reserveOpen() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.unansweredOpens >= maxUnanswered:
		return relay.ErrNotSent
	case c.alive+c.unansweredOpens >= maxAlive:
		return errUnclosed
	}
	c.unansweredOpens++
	return nil
}

// errNoBuffer is the answer to a request while the buffer space is used up.
var errNoBuffer = relay.Errorf(relay.CodeOverloaded, "too many answers wait for callers that do not take them; try again in a moment")

// errUnclosed is the answer to a request whose tunnel still has to close the channels of
// those before it.
var errUnclosed = relay.Errorf(relay.CodeOverloaded, "the tunnel client has not closed its earlier connections yet; try again in a moment")

func (c *conn) openAnswered() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unansweredOpens--
}

// closing tells that nothing new may be sent.
func (c *conn) closing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dead || c.draining
}

// use makes a relay.Channel, or says why there is none.
func (t *tunnel) use(r opened) (relay.Channel, error) {
	var refused *ssh.OpenChannelError
	switch {
	case r.err == nil:
		return t.c.newChannel(r.ch, r.reqs, t.owner), nil
	case r.err == error(errUnclosed):
		return nil, errUnclosed
	case errors.As(r.err, &refused):
		return nil, openRefusal(refused)
	}
	return nil, relay.ErrNotSent
}

// openRefusal reads the peer's reason: the tunnel is up, its local end is not.
func openRefusal(e *ssh.OpenChannelError) *relay.Error {
	text := record.SafeTextMax(e.Message, 256)
	switch e.Reason {
	case ssh.ConnectionFailed:
		return relay.Errorf(relay.CodeLocalRefused, "the local server could not be reached (%s); is it running?", cmp.Or(text, "connection refused"))
	case ssh.ResourceShortage:
		return relay.Errorf(relay.CodeOverloaded, "the tunnel client is out of resources (%s); try again", cmp.Or(text, "no reason given"))
	default:
		return relay.Errorf(relay.CodeLocalUnresolvable,
			"the tunnel client could not open the local target (%s); check the host name behind -R", cmp.Or(text, "no reason given"))
	}
}
