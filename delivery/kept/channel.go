package kept

import (
	"errors"
	"io"
	"time"

	"relay"
)

// Channel is one channel of a tunnel. It is used by one request, or idle in the pool.
type Channel struct {
	relay.Conn
	pool *Pool

	// State of the request that uses the channel.
	sent     answeredChannels // the result of pool.answered at the moment when the request was sent
	answered bool             // the response has begun
	slow     bool             // the pool counts the request as slow

	// owner is the caller whose request body this channel has carried; nil = it has
	// carried none. Only the owner's requests may follow: a local server that answers
	// without reading a body takes the body for the beginning of the next request.
	owner    relay.Caller
	reused   bool      // the channel has carried a request before
	gotBytes bool      // the channel received bytes while it was idle
	ended    bool      // the channel received bytes, or ended, while it was idle
	since    time.Time // when the channel was kept
	until    time.Time // the time until which it may be kept
	closed   bool
}

// Reused implements registry.Channel.
func (l *Channel) Reused() bool { return l.reused }

// Way implements registry.Channel.
func (l *Channel) Way() string {
	if l.reused {
		return relay.ConnectionReused
	}
	return relay.ConnectionNew
}

// Idled implements registry.Channel.
func (l *Channel) Idled() bool { return l.reused }

// Begin implements registry.Channel.
func (l *Channel) Begin() { l.sent, l.answered = l.pool.answered(), false }

// Read reads from the channel, and reports the first bytes of a response to the pool.
func (l *Channel) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	switch {
	case l.answered:
	case n > 0:
		l.answered = true
		l.endSlow()
		l.pool.noteAnswer(l.sent, l.reused)
	case l.reused && errors.Is(err, io.EOF):
		l.pool.disableReuse("it closed a kept connection without an answer")
	}
	return n, err
}

// Slow implements registry.Channel. It ignores a reused channel: the local server has accepted its connection
// already, so this request does not wait for an idle channel to be closed.
func (l *Channel) Slow() {
	if !l.reused && !l.slow {
		l.slow = l.pool.addSlow()
	}
}

func (l *Channel) endSlow() {
	if l.slow {
		l.slow = false
		l.pool.removeSlow()
	}
}

// Keep implements registry.Channel.
func (l *Channel) Keep(limit time.Duration, owner relay.Caller) {
	if owner != nil {
		l.owner = owner
	}
	l.pool.park(l, min(limit, reuseLimit))
}

// polled reports whether an idle channel has ended or has received bytes, and whether it has received
// bytes.
func (l *Channel) polled() (any, bytes bool) {
	if !l.ended {
		select {
		case <-l.Ready():
			var b [1]byte
			n, _ := l.Conn.Read(b[:])
			l.ended, l.gotBytes = true, n > 0
		default:
		}
	}
	return l.ended, l.gotBytes
}

// Close ends the channel.
func (l *Channel) Close() error {
	if l.closed {
		return nil
	}
	l.closed = true
	l.endSlow()
	err := l.Conn.Close()
	l.pool.counts.Open.Add(-1)
	if l.reused {
		l.pool.counts.Kept.Add(-1)
		if l.pool.ended.Add(1); l.pool.kept.Add(-1) == 0 {
			l.pool.proven.Store(0)
		}
	}
	return err
}
