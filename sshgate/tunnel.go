package sshgate

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/cli"
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

// Heard is the time since the last byte of the peer.
func (f *forward) Heard() time.Duration { return f.c.sock.silentFor() }

// LazyDial tells whether the peer said that it dials at the first byte.
func (f *forward) LazyDial() bool { return f.c.lazy.Load() }

// Info describes the tunnel.
func (f *forward) Info() relay.TunnelInfo { return f.info }

// Close gives the connection up because of reason, or, when the alias is no more or the client
// moves, what the alias has of it. It returns at once.
func (f *forward) Close(reason string) {
	if f.closed.Swap(true) {
		return
	}
	f.c.spawn(func() {
		switch {
		case reason == relay.AliasRemoved:
			f.c.removeForward(f)
			return
		case f.c.isMoving():
			f.c.handOver(f)
			return
		}
		ctx, cancel := context.WithTimeout(f.c.ctx, f.c.srv.o.TakeoverDrain)
		defer cancel()
		f.c.drain(ctx, closeReason{
			notice:   shell.Notice{Kind: relay.NoticeSuperseded, Alias: f.alias.Name, Message: record.SafeText(reason)},
			exit:     cli.ExitTaken,
			graceful: true,
		})
	})
}

// openProbe is how long a client may take to answer an open before it is pinged. One that waits
// for a local server which does not answer says nothing meanwhile, and is no silent peer: the
// other requests of its tunnel go on.
const openProbe = 500 * time.Millisecond

// opened is the outcome of a channel open.
type opened struct {
	ch   ssh.Channel
	reqs <-chan *ssh.Request
	err  error
}

// openChannel opens a channel and sends the result to the channel to. If ctx ends before
// somebody receives it, openChannel calls late with the channel that was opened. It may take
// longer than ctx lasts, because x/crypto waits for the peer without a limit, or for ever: see
// calls.
func openChannel(ctx context.Context, to chan<- opened, c ssh.Conn, kind string, payload []byte, late func(ssh.Channel, <-chan *ssh.Request)) {
	ch, reqs, err := c.OpenChannel(kind, payload)
	select {
	case to <- opened{ch, reqs, err}:
	case <-ctx.Done():
		if err == nil {
			late(ch, reqs)
		}
	}
}

// originAddr is the address of a caller as channel opens name it.
func originAddr(origin netip.AddrPort) string {
	if addr := origin.Addr().Unmap(); addr.IsValid() {
		return addr.String()
	}
	return "0.0.0.0"
}

// Open makes a channel.
func (f *forward) Open(ctx context.Context, origin netip.AddrPort) (relay.Channel, error) {
	if !f.c.srv.o.Budget.Fits(f.alias.Owner, pausedBytes) {
		return nil, errNoBuffer
	}
	if err := f.c.reserveOpen(); err != nil {
		return nil, err
	}
	defer f.c.openEnded() // newChannel has counted the channel by then
	lastHeard := f.c.sock.heard.Load()
	payload := ssh.Marshal(forwardedOpen{Bind: f.asked.Bind, Port: f.port, Origin: originAddr(origin), OriginPort: uint32(origin.Port())})
	result := make(chan opened)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // what is opened after this is closed
	if !f.c.spawn(func() {
		openChannel(ctx, result, f.c.sc, "forwarded-tcpip", payload, func(ch ssh.Channel, reqs <-chan *ssh.Request) {
			_ = f.c.newChannel(ch, reqs, f.alias.Owner).Close()
		})
		f.c.mu.Lock()
		defer f.c.mu.Unlock()
		f.c.unansweredOpens--
	}) {
		return nil, relay.ErrNotSent
	}
	probe := time.AfterFunc(openProbe, f.c.ping)
	defer probe.Stop()
	select {
	case r := <-result:
		var refused *ssh.OpenChannelError
		if r.err == nil {
			return f.c.newChannel(r.ch, r.reqs, f.alias.Owner), nil
		} else if errors.As(r.err, &refused) {
			return nil, openRefusal(refused.Reason, record.SafeTextMax(refused.Message, 256))
		}
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) && f.c.ctx.Err() == nil {
			f.c.goStale(lastHeard)
		}
	case <-f.c.ctx.Done(): // x/crypto may not say so: see calls
	}
	return nil, relay.ErrNotSent
}

// reserveOpen counts an open without an answer, or says why there can be none. A peer that
// does not close its channels loses the connection.
func (c *conn) reserveOpen() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch unclosed := c.alive - c.open; {
	case c.dead || c.draining || c.unansweredOpens >= maxUnanswered:
		return relay.ErrNotSent
	case unclosed > maxUnclosed && time.Since(c.closedAt) >= unclosedTime:
		c.log.Warn("the ssh peer does not close its channels; the connection is given up", "open", unclosed)
		go func() { _ = c.sock.Close() }()
		return relay.ErrNotSent
	case c.alive+c.unansweredOpens >= maxAlive:
		return errUnclosed
	}
	c.unansweredOpens++
	c.opening++
	return nil
}

// openEnded is called when nobody waits for an open any more.
func (c *conn) openEnded() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opening--
	c.checkDrained()
}

// errNoBuffer is the answer to a request while the buffer space is used up.
var errNoBuffer = relay.Errorf(relay.CodeOverloaded, "too many answers wait for callers that do not take them; try again in a moment")

// errUnclosed is the answer to a request whose tunnel still has to close the channels of
// those before it.
var errUnclosed = relay.Errorf(relay.CodeOverloaded, "the tunnel client has not closed its earlier connections yet; try again in a moment")

// openRefusal is what the peer's reason means: the tunnel is up, its local end is not.
func openRefusal(reason ssh.RejectionReason, text string) *relay.Error {
	switch reason {
	case ssh.ConnectionFailed:
		return relay.Errorf(relay.CodeLocalRefused, "the local server could not be reached (%s); is it running?", cmp.Or(text, "connection refused"))
	case ssh.ResourceShortage:
		return relay.Errorf(relay.CodeOverloaded, "the tunnel client is out of resources (%s); try again", cmp.Or(text, "no reason given"))
	default:
		return relay.Errorf(relay.CodeLocalUnresolvable,
			"the tunnel client could not open the local target (%s); check the host name behind -R", cmp.Or(text, "no reason given"))
	}
}
