package link

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
)

const (
	// maxUnanswered is the maximum number of unanswered opens of a connection. Each open keeps a
	// goroutine until the peer answers, even if the caller of OpenChannel no longer waits; the
	// goroutine then closes the channel.
	maxUnanswered = 2048
	// maxUnclosed limits the channels that this side has closed and the peer has not. If there are
	// more, and the peer has closed none for unclosedTime, an open ends the connection. For a slow peer
	// that still closes channels, only maxAlive is a limit: it bounds all channels that the peer has
	// not closed, together with the unanswered opens.
	maxUnclosed  = 1024
	unclosedTime = 10 * time.Second
	maxAlive     = 8192
)

// ErrUnclosed is the error of an open on a connection whose peer has too many earlier channels still
// open.
var ErrUnclosed = errors.New("the peer has not closed earlier channels yet")

// RefusedError is the error of an open that the peer refuses.
type RefusedError struct {
	Reason Reason
	Text   string // the text that the peer sent
}

// Error implements error.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("channel refused (%v): %s", e.Reason, e.Text)
}

// channels counts the channels that this side has opened.
type channels struct {
	mu         sync.Mutex
	inUse      int           // channels that neither side has closed
	alive      int           // channels in use, and those that the peer has not closed yet
	closedAt   time.Time     // when the peer last closed a channel, or was first found to leave too many open
	opening    int           // opens for which OpenChannel is waiting
	unanswered int           // opens that the peer has not answered, even if OpenChannel has already returned
	drained    chan struct{} // made by Drain, closed when no channel is in use
}

// change calls f, which changes the counts, and then closes drained if Drain was called and no channel is in use any
// more.
func (n *channels) change(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
	if n.drained != nil && n.inUse+n.opening == 0 && !over(n.drained) {
		close(n.drained)
	}
}

func (n *channels) opened() {
	n.change(func() { n.inUse, n.alive = n.inUse+1, n.alive+1 })
}

func (n *channels) released() {
	n.change(func() {
		n.inUse--
		if n.alive-n.inUse == maxUnclosed+1 {
			n.closedAt = time.Now()
		}
	})
}

func (n *channels) closed() {
	n.change(func() { n.alive, n.closedAt = n.alive-1, time.Now() })
}

// InUse returns the number of channels that this side has opened and neither side has closed, together
// with those that this side is opening.
func (c *Conn) InUse() int {
	n := &c.channels
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.inUse + n.opening
}

// Drain stops the opening of channels. It returns a Go channel that is closed when no SSH channel is
// in use.
func (c *Conn) Drain() <-chan struct{} {
	n := &c.channels
	n.change(func() {
		if n.drained == nil {
			n.drained = make(chan struct{})
		}
	})
	return n.drained
}

// reserveOpen counts an open that has no answer yet, or returns the reason why no open is possible. It
// ends the connection if the peer does not close its channels.
func (c *Conn) reserveOpen() error {
	n := &c.channels
	n.mu.Lock()
	defer n.mu.Unlock()
	switch unclosed := n.alive - n.inUse; {
	case c.ctx.Err() != nil || n.drained != nil:
		return ErrLost
	case c.o.Unbounded:
	case n.unanswered >= maxUnanswered:
		return ErrLost
	case unclosed > maxUnclosed && time.Since(n.closedAt) >= unclosedTime:
		go c.Close(UnclosedChannels, "open", unclosed)
		return ErrLost
	case n.alive+n.unanswered >= maxAlive:
		return ErrUnclosed
	}
	n.unanswered++
	n.opening++
	return nil
}

// opened is the result of an open.
type opened struct {
	ch   ssh.Channel
	reqs <-chan *ssh.Request
	err  error
}

// OpenChannel opens a channel. Errors: a *RefusedError; ErrUnclosed; the error of ctx; ErrLost if the
// connection has ended, after Drain, or beyond maxUnanswered. If the peer confirms the channel after the end of ctx,
// the channel is closed. OpenChannel needs the handshake.
func (c *Conn) OpenChannel(ctx context.Context, kind string, payload []byte, o ChannelOptions) (*Channel, error) {
	if err := c.reserveOpen(); err != nil {
		return nil, err
	}
	n := &c.channels
	// This runs after newChannel has counted the channel, so that the end of an open is not taken for the
	// end of the last channel.
	defer n.change(func() { n.opening-- })
	result, left := make(chan opened), make(chan struct{})
	// Closing left tells the goroutine below that nobody waits for its result any more. If the peer confirms the SSH
	// channel later, that goroutine closes it.
	defer close(left)
	if !c.Go("open", func() {
		defer n.change(func() { n.unanswered-- })
		ch, reqs, err := c.ssh.OpenChannel(kind, payload)
		select {
		case result <- opened{ch, reqs, err}:
		case <-left:
			if err == nil {
				_ = c.newChannel(ch, reqs, o, true).Close()
			}
		}
	}) {
		n.change(func() { n.unanswered-- })
		return nil, ErrLost
	}
	select {
	case r := <-result:
		var refused *ssh.OpenChannelError
		switch {
		case r.err == nil:
			return c.newChannel(r.ch, r.reqs, o, true), nil
		case errors.As(r.err, &refused):
			return nil, &RefusedError{refused.Reason, refused.Message}
		}
		return nil, ErrLost
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.ctx.Done():
		// x/crypto's OpenChannel may never return if the connection ends.
		return nil, ErrLost
	}
}
