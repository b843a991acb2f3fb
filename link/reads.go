package link

import (
	"io"
	"net"
	"os"
	"sync"
	"time"

	"relay/budget"
	"relay/waits"
)

const (
	// PauseAfter is the time without a Read after which a channel counts as paused. The budget does not
	// count the bytes that a peer can send within this time.
	PauseAfter = 100 * time.Millisecond
	// askedPause takes the place of PauseAfter after a call of Ready, because the goroutine that has
	// called Ready is about to read.
	askedPause = time.Second
	// PausedBytes is the number of bytes that a paused channel may hold: x/crypto's constant window, and the bytes of a
	// response that package exchange may hold.
	PausedBytes = 2<<20 + 256<<10
	// smallPiece is the usual size of a read. largePiece is the size of a read after one that filled
	// its buffer, because x/crypto sends packets of up to 32 KiB.
	smallPiece, largePiece = 4 << 10, 32 << 10
)

var (
	smallPieces = sync.Pool{New: func() any { return new([smallPiece]byte) }}
	largePieces = sync.Pool{New: func() any { return new([largePiece]byte) }}
)

// reads runs the reads of a channel. x/crypto cannot interrupt a read, so each runs in a goroutine and
// into its own buffer, at most one at a time. Channel.Read may return before the read has ended, at a
// deadline for example; the next Read then returns the bytes.
//
// Between two Reads, x/crypto continues to accept bytes from the peer, up to its window. Therefore a
// channel that had no Read for a while reads one piece ahead. When bytes arrive, space for the bytes
// that may follow is reserved in the budget until the next Read. An idle peer reserves nothing.
type reads struct {
	work     *Workers
	from     io.Reader         // guardedReads on the channel of x/crypto
	end      func(error) error // explains the error of a read; may wait
	failed   func(any)         // called with the value of a panic
	over     <-chan struct{}   // closed when the connection has ended completely
	deadline deadline
	ready    chan struct{} // has an element once bytes or the end have arrived
	run      func()        // the method readOnce

	budget  *budget.Budget // nil = unread bytes are not counted, and no piece is read ahead
	account int64
	cut     func() // called when the budget has no space

	mu       sync.Mutex
	timer    *time.Timer
	reading  bool // a read of x/crypto is running
	ahead    bool // paused has started the running read, without a call of Read or Ready
	waiting  bool // a Read waits for the running read
	asked    bool // Ready has started the running read, and no Read was called since
	large    bool // the last read filled its buffer, so the next one is large
	buf      []byte
	data     []byte // the bytes in buf that no Read has taken yet
	err      error  // the error that Read returns after data
	closed   bool
	reserved bool
}

// start initialises r.
func (r *reads) start() {
	r.ready = make(chan struct{}, 1)
	r.run = r.readOnce
	if r.budget == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.timer = time.AfterFunc(PauseAfter, r.paused)
}

// Read implements relay.Conn.
func (r *reads) Read(p []byte) (int, error) {
	passed := r.deadline.wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.resume()
	for {
		switch {
		case over(passed):
			r.pause()
			return 0, os.ErrDeadlineExceeded
		case len(p) == 0:
			return 0, nil
		case len(r.data) > 0:
			n := copy(p, r.data)
			if r.data = r.data[n:]; len(r.data) == 0 {
				r.free()
			}
			r.pause()
			return n, nil
		case r.closed && (r.err == nil || r.err == io.EOF):
			// After Close, x/crypto returns an io.EOF that does not come from the peer.
			return 0, net.ErrClosed
		case r.err != nil:
			return 0, r.err
		}
		r.startRead()
		r.waiting = true
		r.mu.Unlock()
		r.wait(passed)
		r.mu.Lock()
		r.waiting = false
	}
}

// wait waits for the read of x/crypto. After the end of the connection it waits for EndTime at most,
// because no more bytes can arrive.
func (r *reads) wait(passed <-chan struct{}) {
	select {
	case <-r.ready:
		return
	case <-passed:
		return
	case <-r.over:
	}
	late, stop := waits.After(EndTime)
	defer stop()
	select {
	case <-r.ready:
	case <-passed:
	case <-late:
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.reading && r.err == nil {
			r.err = ErrLost
		}
	}
}

// Ready implements relay.Conn.
func (r *reads) Ready() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.data) > 0 || r.err != nil || r.closed {
		r.signal()
	} else {
		r.startRead()
		r.asked = true
	}
	return r.ready
}

// startRead starts a read of x/crypto, unless one is running. mu is held, and data is empty.
func (r *reads) startRead() {
	select {
	case <-r.ready:
		// This removes an element that stands for bytes which a Read has already taken.
	default:
	}
	if !r.reading {
		r.reading, r.ahead = true, false
		r.work.Go(r.run)
	}
}

// readOnce reads one piece.
func (r *reads) readOnce() {
	buf, n, err := r.take(), 0, error(ErrLost)
	defer func() {
		if v := recover(); v != nil {
			n, err = 0, ErrLost
			r.failed(v)
		}
		r.came(buf, n, err)
	}()
	if n, err = r.from.Read(buf); err != nil {
		err = r.end(err)
	}
}

// take returns a buffer for the next read.
func (r *reads) take() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.large {
		return largePieces.Get().(*[largePiece]byte)[:]
	}
	return smallPieces.Get().(*[smallPiece]byte)[:]
}

// came stores the result of a read.
func (r *reads) came(buf []byte, n int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reading = false
	r.large = n == len(buf) || n > smallPiece
	if r.err == nil {
		r.err = err
	}
	r.buf, r.data = buf, buf[:n]
	if n == 0 || r.closed {
		r.free()
	}
	r.signal()
	switch {
	case len(r.data) == 0 || r.waiting:
	case r.ahead:
		r.reserve()
	default:
		r.pause()
	}
}

// free returns the buffer to the pool; mu is held.
func (r *reads) free() {
	switch len(r.buf) {
	case largePiece:
		largePieces.Put((*[largePiece]byte)(r.buf))
	case smallPiece:
		smallPieces.Put((*[smallPiece]byte)(r.buf))
	}
	r.buf, r.data = nil, nil
}

// signal makes ready receivable; mu is held.
func (r *reads) signal() {
	select {
	case r.ready <- struct{}{}:
	default:
	}
}

// pause notes the beginning of a time without a Read; resume notes its end. mu is held.
func (r *reads) pause() {
	if r.timer == nil || r.closed || r.err != nil {
		return
	}
	if r.asked {
		r.timer.Reset(askedPause)
	} else {
		r.timer.Reset(PauseAfter)
	}
}

func (r *reads) resume() {
	r.asked = false
	r.release()
}

// paused is called by the timer, when the channel has had no Read for PauseAfter or askedPause. If a Read
// ran while paused waited for mu, this call is too early; the Read has then started the timer again.
func (r *reads) paused() {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.waiting || r.closed || r.reserved || len(r.data) == 0 && r.err != nil:
	case len(r.data) > 0:
		r.reserve()
	case !r.reading:
		r.startRead()
		r.ahead = true
	}
}

// reserve reserves space for the bytes that the channel may hold, and calls cut if there is no space.
// mu is held, and data is not empty.
func (r *reads) reserve() {
	if r.reserved {
		return
	}
	if r.reserved = r.budget.Reserve(r.account, PausedBytes); !r.reserved {
		r.free()
		r.err = budget.ErrOver
		r.signal()
		go r.cut()
	}
}

func (r *reads) release() {
	if r.reserved {
		r.reserved = false
		r.budget.Release(r.account, PausedBytes)
	}
}

// close ends the reads. It gives back the reserved space.
func (r *reads) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	if r.timer != nil {
		r.timer.Stop()
	}
	r.free()
	r.release()
	r.signal()
	r.deadline.stop()
}
