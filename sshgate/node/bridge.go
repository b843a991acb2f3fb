package node

import (
	"errors"
	"io"
	"math"
	"net"
	"sync"
	"time"

	"relay"
	"relay/link"
	"relay/waits"
)

// bridge connects a channel of another node with a channel to a tunnel's client. Bytes from the other node
// that the client has not read yet stay in the channel of the other node, so the budget counts them there.
type bridge struct {
	o      *Options
	tunnel Tunnel
	remote *link.Channel
	local  relay.Conn

	done       chan struct{} // closed when the bridge ends
	halfClosed chan struct{} // closed when the other node has announced a half-close
	upEnded    chan struct{} // closed when the client has all bytes from the other node
	downEnded  chan struct{} // closed when the other node has all bytes from the client
	half, end  sync.Once

	mu      sync.Mutex
	busy    bool   // a request uses the channel: the channel was opened for it, or bytes of it have come
	came    uint64 // number of bytes from the other node
	went    uint64 // number of bytes to the other node
	ended   uint64 // how many of the bytes from the other node belong to ended requests
	release func() // gives the slot of the tunnel back; nil = the request has no slot
	closed  bool
}

// request handles a request of the other node on the channel.
func (b *bridge) request(_ *link.Channel, req *link.Request) {
	switch req.Type {
	case halfCloseRequest:
		b.half.Do(func() { close(b.halfClosed) })
	case parkedRequest:
		// x/crypto passes requests and data to different goroutines, so bytes of the next request may be read
		// before this message.
		var m parked
		if link.Unmarshal(req.Payload, &m) != nil {
			return
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.came <= m.Sent {
			b.ended = max(b.ended, m.Sent) // these messages may arrive out of order
			b.unuse()
		}
	}
}

// passRest is called when the other node has closed its channel, so no request uses the channel any more. It
// passes the remaining bytes to the client, as a caller may end a connection right after its last bytes. It gives
// up if the client reads nothing for StallTimeout.
func (b *bridge) passRest() {
	b.mu.Lock()
	b.ended = math.MaxUint64
	b.unuse()
	b.mu.Unlock()
	b.await(b.upEnded, &b.came, b.o.StallTimeout)
}

// awaitOtherNode is called when the client has closed its channel or has gone. It waits until the other node,
// whose caller may be slow, has the client's last bytes and closes its channel. It gives up if the other node
// reads nothing.
func (b *bridge) awaitOtherNode() {
	patience := slowNode * b.o.StallTimeout
	if !b.await(b.downEnded, &b.went, patience) {
		return
	}
	over, stop := waits.After(patience)
	defer stop()
	select {
	case <-b.remote.Ended():
	case <-over:
	}
}

// slowNode is the factor by which another node may take longer than a client to accept a byte. x/crypto
// reopens a window only after half of it was read, so a caller that reads slowly but steadily may look
// stalled.
const slowNode = 20

// await waits until ended is closed, which means that one direction of the bridge has ended. It returns false
// if the bridge ends first, or if the counter *bytes, which mu guards, does not change for the duration
// patience.
func (b *bridge) await(ended <-chan struct{}, bytes *uint64, patience time.Duration) bool {
	for before := uint64(0); ; {
		over, stop := waits.After(patience)
		select {
		case <-ended:
			stop()
			return true
		case <-b.done:
			stop()
			return false
		case <-over:
		}
		b.mu.Lock()
		now := *bytes
		b.mu.Unlock()
		if now == before {
			return false
		}
		before = now
	}
}

// close ends both channels.
func (b *bridge) close() {
	b.mu.Lock()
	first := !b.closed
	b.closed = true
	b.unuse()
	b.mu.Unlock()
	if !first {
		return
	}
	close(b.done)
	_ = b.local.Close()
	_ = b.remote.Close()
}

// closeIdle closes the channel unless a request uses it.
func (b *bridge) closeIdle() {
	b.mu.Lock()
	busy := b.busy
	b.mu.Unlock()
	if !busy {
		b.lose()
	}
}

// lose ends the channel as if its tunnel was lost: a request on it fails with tunnel-lost, like requests of
// this node.
func (b *bridge) lose() { b.finish(ending{Kind: endLost}) }

// finish reports the end of the channel to the other node. After endEOF, the other node closes the channel; after
// any other kind of end, finish closes it.
func (b *bridge) finish(e ending) {
	b.end.Do(func() {
		_, _ = b.remote.SendRequest(endRequest, false, link.Marshal(e))
		if !b.remote.Writing() { // while a write is blocked, the EOF cannot be sent
			_ = b.remote.CloseWrite()
		}
	})
	if e.Kind != endEOF {
		_ = b.remote.Close()
	}
}

// use takes a slot of the tunnel for a request when n bytes of the request have arrived, unless the request
// has a slot already. It returns false if the bytes must not be sent: the bridge is closed, or there is no slot.
func (b *bridge) use(n int) bool {
	b.mu.Lock()
	b.came += uint64(n)
	late, taken, closed := b.came <= b.ended, b.release != nil, b.closed
	b.busy = b.busy || !late
	b.mu.Unlock()
	if late || taken || closed {
		return !closed
	}
	// If the node of a waiting request closes its channel, the request has ended there and must not be sent.
	release, err := b.tunnel.Acquire(b.remote.Ended())
	if err != nil {
		if err.Code == relay.CodeOverloaded {
			b.finish(ending{Kind: endRefused, Code: err.Code, Detail: err.Detail})
		} else {
			b.lose()
		}
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || !b.busy {
		release()
		return !b.closed
	}
	b.release = release
	return true
}

// unuse gives the slot of the request back. The caller holds mu.
func (b *bridge) unuse() {
	b.busy = false
	if b.release != nil {
		b.release()
		b.release = nil
	}
}

// cut ends the channel because the budget has no space for unread bytes.
func (b *bridge) cut() {
	b.o.Cut(b.o.Log, b.tunnel.Owner())
	b.lose()
}

// pieces is a pool of buffers for the bytes that pass through bridges. A bridge without traffic holds
// none.
var pieces = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// pass waits for the next bytes of a connection, and calls the function take with one piece of them.
func (b *bridge) pass(from relay.Conn, take func(p []byte) error) error {
	select {
	case <-from.Ready():
	case <-b.done:
		return net.ErrClosed
	}
	piece := pieces.Get().(*[32 << 10]byte)
	defer pieces.Put(piece)
	n, err := from.Read(piece[:])
	if n > 0 {
		if failed := take(piece[:n]); failed != nil {
			return failed
		}
	}
	return err
}

// errNotTaken is the error of writes to a client that accepts no more bytes.
var errNotTaken = errors.New("the client accepts no more bytes")

// up copies bytes from the other node to the client.
func (b *bridge) up() {
	defer close(b.upEnded)
	err := error(nil)
	for err == nil {
		err = b.pass(b.remote, func(p []byte) error {
			if !b.use(len(p)) {
				return net.ErrClosed
			}
			if _, err := b.local.Write(p); err != nil {
				return errNotTaken
			}
			return nil
		})
	}
	switch err {
	case net.ErrClosed:
		return
	case errNotTaken: // the method down notices the end of the client, too, and reports it to the other node
		_, _ = io.Copy(io.Discard, b.remote)
		return
	}
	b.passEOF()
}

// passEOF passes an EOF of the other node to the client if the node has announced it as a half-close. The
// announcement may be handled after the EOF, because x/crypto passes requests and data to different goroutines.
func (b *bridge) passEOF() {
	select {
	case <-b.halfClosed:
	case <-b.remote.Ended():
	case <-b.done:
		return
	}
	select {
	case <-b.halfClosed:
		_ = b.local.CloseWrite()
	default:
	}
}

// down copies bytes from the client to the other node.
func (b *bridge) down() {
	defer close(b.downEnded)
	got, taken, err := false, true, error(nil)
	for err == nil {
		err = b.pass(b.local, func(p []byte) error {
			got = true
			if taken { // after a failed write, the other node has gone: the bytes are dropped until the bridge ends
				_, failed := b.remote.Write(p)
				taken = failed == nil
				b.mu.Lock()
				b.went += uint64(len(p))
				b.mu.Unlock()
			}
			return nil
		})
	}
	if !over(b.done) {
		b.finish(b.endOf(err, got))
	}
}

// inUse reports whether a request with a slot uses the channel.
func (b *bridge) inUse() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.busy && b.release != nil
}

func (b *bridge) endOf(err error, got bool) ending {
	switch {
	case errors.Is(err, io.EOF):
		if !got {
			if why := b.local.End(firstWait).Refusal; why != nil {
				return ending{Kind: endRefused, Code: why.Code, Detail: why.Detail}
			}
		}
		return ending{Kind: endEOF}
	case errors.Is(err, io.ErrUnexpectedEOF):
		return ending{Kind: endBrokeOff}
	}
	return ending{Kind: endLost}
}

func over(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}
