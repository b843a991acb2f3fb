package link

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/budget"
	"relay/waits"
)

// ErrLost is the error of a connection that has ended, and of its channels.
var ErrLost = errors.New("the connection was lost")

// EOFMeans says what an EOF on a channel means if the peer does not report how the channel ended.
type EOFMeans uint8

// The meanings of an EOF.
const (
	// EOFEnds: the peer has ended its side.
	EOFEnds EOFMeans = iota
	// EOFUnlessLost: the peer has ended its side, unless the whole connection is ending: x/crypto then
	// ends each channel with an EOF, too.
	EOFUnlessLost
	// EOFLost: the connection is ending. The peer reports the end of a channel before it sends EOF, so
	// an EOF without a report does not come from the peer.
	EOFLost
)

// ChannelOptions describe a channel. All fields may be zero.
type ChannelOptions struct {
	// Request is called for each request of the peer on the channel, one after another. It must not
	// block for long: x/crypto stops reading the connection while 16 requests wait. A request that the
	// function does not answer is refused. nil refuses all requests.
	Request func(*Channel, *Request)
	// Closed is called when the peer has closed the channel, or the connection has ended.
	Closed func()
	EOF    EOFMeans
	// Explains: a peer that ends the channel may report the reason before its CLOSE, so Channel.End waits for that
	// report.
	Explains bool
	// Guarded: the peer may not send extended data (only servers send it, RFC 4254, section 5.2) nor
	// data after EOF (section 5.3). The connection of such a peer is closed, because x/crypto keeps up
	// to 2 MiB of these bytes unread on each channel.
	Guarded bool
	// Direct: reads and writes run in the goroutine that calls Read or Write, which saves two switches of goroutines
	// for each. They have no deadline, and Close does not end them: they end with the peer's CLOSE or with the
	// connection. Ready must not be used.
	Direct bool
	// Budget bounds the unread bytes of channels, and Account is the account that they count for. Cut
	// is called before a channel is closed because there is no space for its bytes. A nil Budget bounds
	// nothing.
	Budget  *budget.Budget
	Account int64
	Cut     func()
}

// Channel is an SSH channel that this side has accepted or opened. It implements relay.Conn.
type Channel struct {
	reads
	writes
	conn *Conn
	ch   guardedReads
	o    ChannelOptions
	// counted: this side has opened the channel, so conn.channels counts it.
	counted bool

	done    chan struct{} // closed by Close
	begun   atomic.Bool   // a Write was called
	closing sync.Once
	unused  sync.Once     // makes release count the channel as unused only once
	ended   chan struct{} // closed when the peer has closed the channel, or the connection has ended
	told    chan struct{} // closed when said is set, at the latest together with ended
	telling sync.Once
	said    atomic.Pointer[relay.ConnEnd] // the peer's report of how the channel ended; nil = none yet
	found   atomic.Uint32                 // a relay.ConnHow: how the channel ended, according to the error of a read
	lost    func() bool                   // calls Conn.ending once, when the channel has ended, and keeps its result
}

func (c *Conn) newChannel(ch ssh.Channel, reqs <-chan *ssh.Request, o ChannelOptions, counted bool) *Channel {
	h := &Channel{
		conn: c, ch: guardedReads{Channel: ch}, o: o, counted: counted,
		done: make(chan struct{}), ended: make(chan struct{}), told: make(chan struct{}),
		lost: sync.OnceValue(c.ending),
	}
	failed := func(v any) { c.panicked("channel", v) }
	h.reads = reads{
		work: c.work, from: &h.ch, end: h.explain, failed: failed, over: c.done,
		budget: o.Budget, account: o.Account, cut: h.cutOff,
	}
	h.writes = writes{work: c.work, failed: failed, done: h.done, gone: c.ctx.Done()}
	h.reads.start()
	h.writes.start()
	if counted {
		c.channels.opened()
	}
	c.take("channel requests", func() { h.requests(reqs) })
	if o.Guarded {
		c.Go("channel guard", func() { c.guard(&h.ch, h.ended) })
	}
	return h
}

// requests handles the requests of the peer on the channel, and notices the end of the channel.
func (h *Channel) requests(reqs <-chan *ssh.Request) {
	for req := range reqs {
		h.request(newRequest(req))
	}
	close(h.ended)
	h.telling.Do(func() { close(h.told) })
	if said := h.said.Load(); h.o.EOF == EOFUnlessLost && !over(h.done) && (said == nil || said.How != relay.ConnRefused) {
		// lost is called first: if this is the last channel in use, release may make the caller of Drain close
		// the connection. lost would then report a lost connection, although the peer has ended the channel.
		h.lost()
	}
	h.release()
	if h.counted {
		h.conn.channels.closed()
	}
	if h.o.Closed != nil {
		h.o.Closed()
	}
}

// request handles one request. A panic ends the connection; later requests are still received.
func (h *Channel) request(r *Request) {
	defer h.conn.Recovered("channel request")
	if h.o.Request != nil {
		h.o.Request(h, r)
	}
	_ = r.Reply(false, nil)
}

// Say stores how the channel ended according to the peer. Only the first call has an effect.
func (h *Channel) Say(end relay.ConnEnd) {
	h.telling.Do(func() {
		h.said.Store(&end)
		close(h.told)
	})
}

// explain translates an error of x/crypto into the error that relay.Conn specifies for Read.
func (h *Channel) explain(err error) error {
	if err != io.EOF {
		h.find(relay.ConnLost)
		return err
	}
	if over(h.done) {
		// After Close the reason of the end is not needed.
		return err
	}
	if h.o.EOF == EOFLost {
		// told is closed at the latest when the connection ends.
		<-h.told
	}
	how := relay.ConnEOF
	switch said := h.said.Load(); {
	case said != nil:
		how = said.How
	case h.o.EOF == EOFLost, h.o.EOF == EOFUnlessLost && h.lost():
		how = relay.ConnLost
	}
	h.find(how)
	switch how {
	case relay.ConnBrokeOff:
		return io.ErrUnexpectedEOF
	case relay.ConnLost:
		return ErrLost
	}
	// A report that the local server refused the connection may arrive after this EOF, so only End returns it.
	return io.EOF
}

// find stores how the channel ended, unless this side has closed it before.
func (h *Channel) find(how relay.ConnHow) {
	if !over(h.done) {
		h.found.Store(uint32(how))
	}
}

// End returns how the channel ended. If the peer explains an end (ChannelOptions.Explains), End waits
// for the reason, at most for the duration wait. It implements relay.Conn.
func (h *Channel) End(wait time.Duration) relay.ConnEnd {
	if h.o.Explains && h.said.Load() == nil {
		over, stop := waits.After(wait)
		defer stop()
		select {
		case <-h.told:
		case <-h.done:
		case <-over:
		}
	}
	if said := h.said.Load(); said != nil {
		return *said
	}
	how := relay.ConnHow(h.found.Load())
	if how == relay.ConnOpen && !over(h.done) && h.conn.ctx.Err() != nil {
		// The connection has ended, and no read had found out before how the channel ended.
		how = relay.ConnLost
	}
	return relay.ConnEnd{How: how}
}

// Ended returns a Go channel that is closed when the peer has closed the SSH channel, or the connection has ended.
func (h *Channel) Ended() <-chan struct{} { return h.ended }

// Read implements relay.Conn.
func (h *Channel) Read(p []byte) (int, error) {
	if h.o.Direct {
		n, err := h.ch.Read(p)
		if err != nil {
			err = h.explain(err)
		}
		return n, err
	}
	return h.reads.Read(p)
}

// Write implements relay.Conn.
func (h *Channel) Write(p []byte) (int, error) {
	if h.o.Direct {
		return h.ch.Write(p)
	}
	first := !h.begun.Swap(true)
	n, err := h.write(h.ch.Channel, p)
	if first && n == 0 && err == io.EOF && h.o.EOF == EOFUnlessLost && !h.o.Explains && !h.lost() {
		// plink and some libraries confirm a channel before they connect to the local server, and close
		// the channel if that fails. While the SSH connection is alive, another channel would end in the
		// same way, so the write counts as done, and the next read reports the end. Clients with Explains
		// connect only at the first byte, so they have other reasons to close a channel before it.
		return len(p), nil
	}
	return n, err
}

// Stderr returns a writer of extended data. Its writes and those of the channel run one at a time.
func (h *Channel) Stderr() io.Writer { return errorOutput{h} }

type errorOutput struct{ h *Channel }

// Write implements io.Writer.
func (o errorOutput) Write(p []byte) (int, error) { return o.h.write(o.h.ch.Channel.Stderr(), p) }

// SendRequest sends a request on the channel. It fails at the deadline of writes, at Close and at the
// end of the connection, but does not wait for a write that is in progress.
func (h *Channel) SendRequest(kind string, wantReply bool, payload []byte) (ok bool, err error) {
	// The goroutine that call starts sets granted, and not the result ok, because it may still run after SendRequest
	// has returned.
	var granted bool
	if err := h.call(func() (err error) {
		granted, err = h.ch.SendRequest(kind, wantReply, payload)
		return err
	}); err != nil {
		return false, err
	}
	return granted, nil
}

// Tell sends a request that asks for no reply, and does not wait.
func (h *Channel) Tell(kind string, payload []byte) {
	h.conn.Go("channel request", func() { _, _ = h.ch.SendRequest(kind, false, payload) })
}

// CloseWrite implements relay.Conn.
func (h *Channel) CloseWrite() error { return h.afterWrites(h.ch.CloseWrite) }

// Close implements relay.Conn.
func (h *Channel) Close() error {
	h.closing.Do(func() {
		close(h.done)
		h.release()
		h.reads.close()
		h.writes.deadline.stop()
		h.conn.work.Go(func() {
			// Closing waits while the socket is blocked, so it runs in a goroutine.
			defer h.conn.Recovered("channel close")
			_ = h.ch.Close()
			// This drops the bytes that the peer sends before its CLOSE; x/crypto would keep them in memory.
			// After a CLOSE of this side, a read does not open the window again.
			_, _ = io.Copy(io.Discard, &h.ch)
		})
	})
	return nil
}

// release removes the channel from the count of channels in use.
func (h *Channel) release() {
	if h.counted {
		h.unused.Do(h.conn.channels.released)
	}
}

// cutOff closes a channel because there is no buffer space for its received bytes.
func (h *Channel) cutOff() {
	if h.o.Cut != nil {
		h.o.Cut()
	}
	_ = h.Close()
}

// SetReadDeadline sets the deadline of reads.
func (h *Channel) SetReadDeadline(t time.Time) error {
	h.reads.deadline.set(t)
	return nil
}

// SetWriteDeadline sets the deadline of writes, half-closes and requests.
func (h *Channel) SetWriteDeadline(t time.Time) error {
	h.writes.deadline.set(t)
	return nil
}

// SetDeadline sets both deadlines.
func (h *Channel) SetDeadline(t time.Time) error {
	h.reads.deadline.set(t)
	h.writes.deadline.set(t)
	return nil
}

// LocalAddr returns the address of the connection that carries the channel.
func (h *Channel) LocalAddr() net.Addr { return h.conn.Sock.LocalAddr() }

// RemoteAddr returns the address of the connection's peer.
func (h *Channel) RemoteAddr() net.Addr { return h.conn.Sock.RemoteAddr() }
