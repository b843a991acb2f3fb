package link

import (
	"io"
	"net"
	"os"
	"sync"
)

// writePiece is the size of one write of x/crypto: one packet.
const writePiece = 32 << 10

var writePieces = sync.Pool{New: func() any { return new([writePiece]byte) }}

// writes runs the writes of a channel. x/crypto cannot interrupt a write that waits for the peer's window or for its
// socket, so each runs in a goroutine with a copy of its bytes. Channel.Write may return earlier, at a deadline for
// example; the next Channel.Write then first waits until the running write of x/crypto has ended.
type writes struct {
	work     *Workers
	failed   func(any)       // called with the value of a panic
	done     <-chan struct{} // closed when this side has closed the channel
	gone     <-chan struct{} // closed when the connection has ended
	deadline deadline
	run      func() // the method writeOnce
	wrote    chan wrote

	mu    sync.Mutex // lets writes and half-closes run one at a time
	left  bool       // a write is running although Channel.Write has returned
	to    io.Writer  // target of the running write
	piece *[writePiece]byte
	size  int
}

type wrote struct {
	n   int
	err error
}

// start initialises w.
func (w *writes) start() {
	w.wrote = make(chan wrote, 1)
	w.run = w.writeOnce
}

// write writes to the channel or to its error output.
func (w *writes) write(to io.Writer, p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	passed := w.deadline.wait()
	// A select would choose at random if both channels are closed.
	switch {
	case over(w.done):
		return 0, net.ErrClosed
	case over(passed):
		return 0, os.ErrDeadlineExceeded
	}
	if w.left {
		if _, err := w.await(passed); err != nil {
			return 0, err
		}
	}
	for total := 0; total < len(p); {
		if over(w.done) {
			return total, net.ErrClosed
		}
		w.piece = writePieces.Get().(*[writePiece]byte)
		w.to, w.size = to, copy(w.piece[:], p[total:])
		w.work.Go(w.run)
		n, err := w.await(passed)
		total += n
		if err != nil {
			return total, err
		}
	}
	return len(p), nil
}

// await waits for the running write. If await gives up before the write has ended, it reports all bytes
// of the write as sent, because they may be on their way.
func (w *writes) await(passed <-chan struct{}) (n int, err error) {
	result := func(r wrote) (int, error) {
		w.left = false
		return r.n, w.cause(r.err)
	}
	select {
	case r := <-w.wrote:
		return result(r)
	case <-w.done:
		err = net.ErrClosed
	case <-w.gone:
		err = ErrLost
	case <-passed:
		err = os.ErrDeadlineExceeded
	}
	select {
	case r := <-w.wrote:
		// The write has ended, too, so its result is known.
		return result(r)
	default:
		w.left = true
		return w.size, err
	}
}

// cause returns err, the result of a call into x/crypto. After Close it returns net.ErrClosed in place of
// an error, because x/crypto returns io.EOF.
func (w *writes) cause(err error) error {
	if err != nil && over(w.done) {
		return net.ErrClosed
	}
	return err
}

// writeOnce writes one piece.
func (w *writes) writeOnce() {
	r := wrote{err: ErrLost}
	defer func() {
		if v := recover(); v != nil {
			// r.n is at least 1, because 0 would mean that no byte was sent.
			r.n, r.err = max(r.n, 1), ErrLost
			w.failed(v)
		}
		// This does not block, because wrote has space for one result and one write runs at a time.
		w.wrote <- r
	}()
	r.n, r.err = w.to.Write(w.piece[:w.size])
	writePieces.Put(w.piece)
}

// Writing reports whether a write is running, even if Channel.Write has already returned.
func (w *writes) Writing() bool {
	if !w.mu.TryLock() {
		return true
	}
	defer w.mu.Unlock()
	return w.left && len(w.wrote) == 0
}

// afterWrites is like call, but begins after the running write has ended.
func (w *writes) afterWrites(f func() error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.left {
		if _, err := w.await(w.deadline.wait()); err != nil {
			return err
		}
	}
	return w.call(f)
}

// call runs f, a call into x/crypto that may wait for the peer or for the socket. It does not wait for f
// beyond the deadline of writes, Close or the end of the connection.
func (w *writes) call(f func() error) error {
	passed := w.deadline.wait()
	ended := make(chan error, 1)
	w.work.Go(func() {
		err := error(ErrLost)
		defer func() {
			if v := recover(); v != nil {
				w.failed(v)
			}
			ended <- err
		}()
		err = f()
	})
	select {
	case err := <-ended:
		return w.cause(err)
	case <-w.done:
		return net.ErrClosed
	case <-w.gone:
		return ErrLost
	case <-passed:
		return os.ErrDeadlineExceeded
	}
}
