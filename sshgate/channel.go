package sshgate

import (
	"cmp"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/record"
)

// writePiece is how much one write of x/crypto gets: one packet.
const writePiece = 32 << 10

// maxUnclosed is how many channels that are closed here a peer may leave open when it
// closes none of them for unclosedTime: many requests that end at once leave more to a
// slow client. The next request finds it out. maxAlive bounds those of a slow client too.
const (
	maxUnclosed  = 1024
	unclosedTime = 10 * time.Second
	maxAlive     = 8192
)

// settleTime is how long the end of a channel waits for the end of the whole connection,
// before and while connectionEnding asks whether that is ending too, at most maxSettles
// times: the goroutine that reads the connection may not have run yet.
const settleTime, maxSettles = 5 * time.Millisecond, 200

// errLost is the end of a channel that nobody has ended in order.
var errLost = errors.New("the tunnel was lost")

// channel is a forwarded-tcpip channel as relay.Channel.
//
// x/crypto gives no way to interrupt a read or a write that waits for the peer,
// so both run in goroutines that can be left alone until the channel or the
// connection ends.
type channel struct {
	fills
	writes
	c  *conn
	ch guarded

	begun   bool          // somebody has written
	done    chan struct{} // closed by Close
	release sync.Once

	refusal    atomic.Pointer[relay.Error]
	brokeOff   atomic.Bool   // the peer has said that the local server broke off
	peerClosed chan struct{} // closed when the peer has closed the channel, or is no more
	lost       func() bool   // connectionEnding, asked once when the channel has ended
}

func (c *conn) newChannel(ch ssh.Channel, reqs <-chan *ssh.Request, owner int64) *channel {
	c.mu.Lock()
	c.open++
	c.alive++
	c.mu.Unlock()
	h := &channel{
		fills:  fills{srv: c.srv, log: c.log, owner: owner, panics: c.recovered},
		writes: newWrites(c.srv, c.recovered),
		c:      c, ch: guarded{Channel: ch},
		done:       make(chan struct{}),
		peerClosed: make(chan struct{}),
		lost:       sync.OnceValue(c.connectionEnding),
	}
	if !c.spawn(func() { h.requests(reqs) }) {
		go h.requests(reqs) // the connection has just ended, and with it reqs
	}
	c.spawn(func() { c.guard(&h.ch, h.peerClosed) })
	h.startFills(h.readOnce, h.Close)
	return h
}

func (h *channel) readOnce(buf []byte) relay.Fill {
	n, err := h.ch.Read(buf)
	switch {
	case err == nil, h.refusal.Load() != nil: // CLOSE follows the refusal, as it was said
	case h.brokeOff.Load(): // it was said, and answered, before the end
		err = io.ErrUnexpectedEOF
	case h.lost():
		err = errLost
	}
	return relay.Fill{N: n, Err: err}
}

// guarded is a channel that several may read: who serves a Fill, who discards what comes after
// Close, and conn.guard.
type guarded struct {
	ssh.Channel
	// reading is held while x/crypto reads: at the end of a channel it wakes one reader
	// only, and a second one would wait for ever.
	reading sync.Mutex
	eof     atomic.Bool // a read has returned EOF
}

// Read reads, and notes EOF.
func (g *guarded) Read(p []byte) (int, error) {
	g.reading.Lock()
	defer g.reading.Unlock()
	n, err := g.Channel.Read(p)
	if err == io.EOF {
		g.eof.Store(true)
	}
	return n, err
}

// guardInterval is the time between two looks for bytes after EOF.
const guardInterval = 250 * time.Millisecond

// guard closes the connection of a peer that sends bytes on a channel which no legal
// client sends: extended data, which is for servers (RFC 4254, section 5.2), and data
// after EOF (section 5.3). x/crypto keeps up to 2 MiB of them per channel, and nobody
// would read them. It returns when the peer has closed the channel.
func (c *conn) guard(ch *guarded, closed <-chan struct{}) {
	stderr, b := ch.Stderr(), make([]byte, 1)
	for {
		extended, _ := stderr.Read(b) // returns 0 once the peer has sent EOF or CLOSE
		late := 0
		if ch.eof.Load() {
			late, _ = ch.Read(b)
		}
		if extended+late > 0 {
			c.log.Warn("ssh connection closed: its peer sent bytes that no client may send", "extended", extended > 0)
			_ = c.sock.Close()
			return
		}
		select {
		case <-closed:
			return
		case <-time.After(guardInterval):
		}
	}
}

// connectionEnding tells, once a channel has ended, whether the connection has ended too, or
// is about to: a connection that dies ends its channels as a local server does that closes
// its side, and only then says so. x/crypto reads nothing after a disconnect message, and it
// ends the channels before it closes the socket. So a connection goes on if somebody waits for
// its next bytes, or, on a busy one, if there was another read since the channel ended.
func (c *conn) connectionEnding() bool {
	wait := func() {
		select {
		case <-c.ctx.Done():
		case <-time.After(settleTime):
		}
	}
	wait() // many clients close their channels just before they go
	before := c.sock.reads.Load()
	for range maxSettles {
		switch {
		case c.sock.state.Load() != socketOpen, c.ctx.Err() != nil:
			return true
		case c.sock.reading.Load(), c.sock.reads.Load() != before:
			return false
		}
		wait()
	}
	return false
}

// requests drains the channel requests and notices the end.
func (h *channel) requests(reqs <-chan *ssh.Request) {
	for req := range reqs {
		if req.Type == relay.DialFailedRequest && h.refusal.Load() == nil {
			h.refusal.Store(dialFailure(req.Payload))
		}
		if req.Type == relay.BrokeOffRequest {
			h.brokeOff.Store(true)
		}
		_ = req.Reply(false, nil)
	}
	close(h.peerClosed)
	if h.refusal.Load() == nil {
		h.lost() // before a drain may close the connection
	}
	h.released()
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	h.c.alive--
	h.c.closedAt = time.Now()
}

// dialFailure reads dial-failed@relay; nil when it is malformed.
func dialFailure(payload []byte) *relay.Error {
	var d relay.DialFailed
	if ssh.Unmarshal(payload, &d) != nil {
		return nil
	}
	text := record.SafeTextMax(cmp.Or(d.Text, d.Class), 256)
	switch {
	case ssh.RejectionReason(d.Reason) == ssh.ResourceShortage:
		return openRefusal(ssh.ResourceShortage, text)
	case d.Class == "unresolvable":
		return relay.Errorf(relay.CodeLocalUnresolvable, "the name of the local server does not resolve (%s); check the target", text)
	}
	return openRefusal(ssh.ConnectionFailed, text)
}

// Write implements relay.Channel.
func (h *channel) Write(p []byte) (int, error) {
	first := !h.begun
	h.begun = true
	n, err := h.write(&h.ch, p, h.done)
	if err != nil && n == 0 && first && !h.c.lazy.Load() && !h.closed() {
		// plink and some libraries confirm a channel before they dial, and close it when
		// that fails. On a connection that lives this is the local server's answer and no
		// proof that another try is due; the next read tells the end. Clients that dial at
		// the first byte close channels for other reasons.
		if !h.lost() {
			return 0, nil
		}
	}
	return n, err
}

// closed tells whether Close was called.
func (h *channel) closed() bool {
	select {
	case <-h.done:
		return true
	default:
		return false
	}
}

// Refusal implements relay.Channel. Only clients that dial at the first byte say why
// they could not, so nothing is awaited of others.
func (h *channel) Refusal(wait time.Duration) *relay.Error {
	if !h.c.lazy.Load() {
		return nil
	}
	select {
	case <-h.peerClosed: // which follows what it says
	case <-h.done:
	case <-time.After(wait):
	}
	return h.refusal.Load()
}

// CloseWrite implements relay.Channel.
func (h *channel) CloseWrite() error { return h.writes.call("half-close", h.ch.CloseWrite, h.done) }

// Close implements relay.Channel.
func (h *channel) Close() error {
	return h.close(&h.ch, func() {
		close(h.done)
		h.released()
	})
}

// released takes the channel out of those that are in use.
func (h *channel) released() {
	h.release.Do(func() {
		h.c.mu.Lock()
		defer h.c.mu.Unlock()
		h.c.open--
		h.c.checkDrained()
		if h.c.alive-h.c.open == maxUnclosed+1 {
			h.c.closedAt = time.Now()
		}
	})
}
