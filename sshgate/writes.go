package sshgate

import "io"

// writes serves the writes of a relay.Channel. x/crypto gives no way to interrupt a write that
// waits for the peer's window, or for its socket, so each runs in a goroutine that can be
// left alone until the channel or the connection ends.
type writes struct {
	srv    *Server
	panics func(where string) // deferred in goroutines
	wrote  chan wrote
}

type wrote struct {
	n   int
	err error
}

func newWrites(srv *Server, panics func(where string)) writes {
	return writes{srv: srv, panics: panics, wrote: make(chan wrote, 1)}
}

// write writes p to ch, until done is closed. Each packet is copied, so that p is free again
// when done releases a write that waits for the peer.
func (w *writes) write(ch io.Writer, p []byte, done <-chan struct{}) (int, error) {
	total := 0
	for {
		select {
		case <-done:
			return total, io.ErrClosedPipe
		default:
		}
		piece := w.srv.buffers.Get().(*[writePiece]byte)
		size := copy(piece[:], p[total:])
		w.srv.work.Go(func() {
			defer w.panics("write")
			n, err := ch.Write(piece[:size])
			w.srv.buffers.Put(piece)
			w.wrote <- wrote{n, err}
		})
		select {
		case r := <-w.wrote:
			total += r.n
			if r.err != nil || total == len(p) {
				return total, r.err
			}
		case <-done:
			// Something of this packet may be on its way.
			return max(total, 1), io.ErrClosedPipe
		}
	}
}

// call runs a call of the channel that may wait for the peer or for the socket, until done is
// closed.
func (w *writes) call(where string, f func() error, done <-chan struct{}) error {
	ended := make(chan error, 1)
	w.srv.work.Go(func() {
		defer w.panics(where)
		ended <- f()
	})
	select {
	case err := <-ended:
		return err
	case <-done:
		return io.ErrClosedPipe
	}
}
