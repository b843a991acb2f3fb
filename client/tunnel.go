package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
)

const (
	forwardPort     = 80
	replyTimeout    = 10 * time.Second // forwards and the session's first words
	shutDownTimeout = 2 * time.Second  // requests under way at a clean disconnect
	forwardRetry    = 3 * time.Second  // after a transient refusal
	maxLine         = 16 << 20
)

// tunnel is one connection of Up: its forwards and its session.
type tunnel struct {
	up    *Up
	conn  *Conn
	wg    sync.WaitGroup
	open  atomic.Int64  // channels
	busy  atomic.Int64  // channels with a request on them
	idle  chan struct{} // gets one when busy falls to 0
	stdin io.WriteCloser

	messages      chan *Message // closed when the session has ended
	answered      map[string]bool
	noRetryBefore time.Time // a stopping relay asked not to be dialed before; zero if none did
	readyCalled   bool      // Ready was called
}

// forwardRequest is the payload of tcpip-forward and its cancel (RFC 4254, section 7.1).
type forwardRequest struct {
	Bind string
	Port uint32
}

// channelOpen is the payload of a forwarded-tcpip channel (RFC 4254, section 7.2).
type channelOpen struct {
	Bind       string
	Port       uint32
	Origin     string
	OriginPort uint32
}

// run keeps the tunnel up until it is lost or ctx ends. It waits for all goroutines
// that it started.
func (t *tunnel) run(ctx context.Context) error {
	defer t.wg.Wait()
	defer t.conn.Close()
	alive, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	t.answered = map[string]bool{}
	t.idle = make(chan struct{}, 1)
	t.messages = make(chan *Message, 64)
	dead := make(chan error, 1)
	t.wg.Go(func() { dead <- t.conn.keepalive(alive, t.up.networkChanged) })
	channels := t.conn.HandleChannelOpen("forwarded-tcpip")
	t.wg.Go(func() { t.serveChannels(alive, channels) })
	t.wg.Go(func() {
		select {
		case <-ctx.Done():
			t.shutDown()
		case <-alive.Done():
		}
	})
	err := t.start()
	if err == nil {
		err = t.readMessages(alive)
	}
	cancel()
	t.conn.Close()
	if reason := <-dead; reason != nil && retryable(err) {
		return reason
	}
	return err
}

// start announces this program and the targets, requests the forwards and opens the
// session.
func (t *tunnel) start() error {
	timer := time.AfterFunc(replyTimeout, func() { t.conn.Close() })
	defer timer.Stop()
	hello := relay.Hello{Protocol: 1, Flags: relay.HelloLazyDial, Version: t.up.Dialer.Version}
	if _, _, err := t.conn.SendRequest(relay.HelloRequest, false, ssh.Marshal(hello)); err != nil {
		return t.lostError(err)
	}
	for _, f := range t.up.forwards() {
		if err := t.forward(f); err != nil {
			return t.lostError(err)
		}
	}
	return t.openSession()
}

// forward announces a target and requests its alias. The session tells whether the
// request was granted, with the reason, which SSH cannot carry.
func (t *tunnel) forward(f Forward) error {
	target := relay.Target{Bind: f.Alias, URL: f.Target.URL, HostHeader: f.Target.HostHeader}
	if _, _, err := t.conn.SendRequest(relay.TargetRequest, false, ssh.Marshal(target)); err != nil {
		return err
	}
	_, _, err := t.conn.SendRequest("tcpip-forward", true, ssh.Marshal(forwardRequest{f.Alias, forwardPort}))
	return err
}

// forwardLater requests an alias again that was refused for a transient reason.
func (t *tunnel) forwardLater(ctx context.Context, alias string) {
	t.wg.Go(func() {
		if !wait(ctx, forwardRetry) {
			return
		}
		for _, f := range t.up.forwards() { // it may have been removed meanwhile
			if SameAlias(f.Alias, alias) {
				_ = t.forward(f)
			}
		}
	})
}

func (t *tunnel) openSession() error {
	session, err := t.conn.NewSession()
	if err != nil {
		return t.lostError(err)
	}
	stdout, err1 := session.StdoutPipe()
	stderr, err2 := session.StderrPipe()
	stdin, err3 := session.StdinPipe()
	if err := errors.Join(err1, err2, err3, session.Start("up --json")); err != nil {
		return t.lostError(err)
	}
	t.stdin = stdin
	t.up.attach(t)
	t.wg.Go(func() { _, _ = io.Copy(io.Discard, stderr) })
	t.wg.Go(func() {
		defer close(t.messages)
		lines := bufio.NewScanner(stdout)
		lines.Buffer(make([]byte, 0, 4096), maxLine)
		for lines.Scan() {
			if m := parseMessage(lines.Bytes()); m != nil {
				t.messages <- m
			}
		}
		if lines.Err() != nil { // a line longer than maxLine: nothing more can be read
			t.conn.Close()
		}
		_ = session.Wait()
	})
	return nil
}

func (t *tunnel) lostError(err error) error {
	return &Error{Exit: ExitUnreachable, Text: "lost the connection to the relay", Cause: err}
}

// readMessages handles the messages of the session until it ends.
func (t *tunnel) readMessages(ctx context.Context) error {
	defer t.up.detach()
	defer t.wg.Go(func() {
		for range t.messages { // until the reader has ended too
		}
	})
	late := time.NewTimer(replyTimeout)
	defer late.Stop()
	heard := false
	for {
		select {
		case m, ok := <-t.messages:
			if !ok {
				return t.ended(heard)
			}
			heard = true
			if err := t.handle(ctx, m); err != nil {
				return err
			}
		case <-late.C:
			if !heard {
				return Errorf(ExitFailure, "%s speaks SSH but does not answer like a relay", t.conn.Addr)
			}
		}
	}
}

func (t *tunnel) ended(heard bool) error {
	if !heard {
		return t.lostError(errors.New("it closed the session without a word"))
	}
	return t.lostError(io.EOF)
}

// handle handles one message; an error ends the tunnel.
func (t *tunnel) handle(ctx context.Context, m *Message) error {
	switch m.Type {
	case TypeOnline:
		t.answered[m.Alias] = true
		t.up.reached = true
	case TypeSuperseded:
		t.up.removeForward(m)
	case TypeRefused:
		if m.Transient() {
			t.forwardLater(ctx, m.Alias)
		} else {
			t.up.removeForward(m)
		}
	case TypeStopping:
		t.noRetryBefore = time.Now().Add(m.retryAfter())
	case TypeRevoked:
		if m.Alias == "" { // the login itself was revoked
			return Errorf(ExitRefused, "the relay has ended this connection: %s", m.Message)
		}
		t.up.removeForward(m)
	}
	t.up.Show(m)
	if len(t.up.names()) == 0 {
		return t.up.finalError()
	}
	if !t.readyCalled && m.Type != TypeHello && t.allAnswered() {
		t.readyCalled = true
		t.up.ready()
	}
	return nil
}

func (t *tunnel) allAnswered() bool {
	return !slices.ContainsFunc(t.up.names(), func(name string) bool { return !t.answered[AliasLabel(name)] })
}

// AliasLabel returns the alias of a bind string such as stripe-dev.example.com.
func AliasLabel(bind string) string {
	name, _, _ := strings.Cut(bind, ".")
	return name
}

// permanent reports whether requesting an alias again cannot help.
func permanent(code string) bool {
	switch code {
	case relay.CodeStopping, relay.CodeStoreUnavailable, relay.CodeOverloaded, relay.CodeRateLimited, relay.CodeInternal:
		return false
	}
	return true
}

// serveChannels serves each channel in a goroutine.
func (t *tunnel) serveChannels(ctx context.Context, offers <-chan ssh.NewChannel) {
	for offer := range offers {
		var open channelOpen
		if err := ssh.Unmarshal(offer.ExtraData(), &open); err != nil {
			_ = offer.Reject(reasonConnectFailed, "malformed forwarded-tcpip")
			continue
		}
		forward, ok := t.up.forward(open.Bind)
		if !ok {
			_ = offer.Reject(reasonProhibited, "nothing is forwarded for "+open.Bind)
			continue
		}
		if t.open.Add(1) > maxChannels {
			t.open.Add(-1)
			_ = offer.Reject(reasonShortage, fmt.Sprintf("more than %d connections at a time", maxChannels))
			continue
		}
		t.wg.Go(func() {
			defer t.open.Add(-1)
			serveChannel(ctx, offer, forward, t.up.monitor, t.count)
		})
	}
}

// count adds to the number of channels that carry a request.
func (t *tunnel) count(delta int64) {
	if t.busy.Add(delta) > 0 {
		return
	}
	select {
	case t.idle <- struct{}{}:
	default:
	}
}

// shutDown cancels the forwards, waits up to shutDownTimeout for requests in progress,
// and closes the connection.
func (t *tunnel) shutDown() {
	end := time.AfterFunc(shutDownTimeout, func() { t.conn.Close() })
	defer end.Stop()
	for _, bind := range t.up.names() {
		_, _, _ = t.conn.SendRequest("cancel-tcpip-forward", false, ssh.Marshal(forwardRequest{bind, forwardPort}))
	}
	late := time.NewTimer(shutDownTimeout)
	defer late.Stop()
	for t.busy.Load() > 0 {
		select {
		case <-t.idle:
		case <-late.C:
			t.conn.Close()
			return
		}
	}
	t.conn.Close()
}

// release requests the delivery of the queued events of an alias.
func (t *tunnel) release(alias string) error {
	_, err := io.WriteString(t.stdin, "replay-queued "+alias+"\n")
	return err
}
