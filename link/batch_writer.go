package link

import (
	"io"
	"net"
	"runtime"
	"sync"
	"time"
)

// batchWriter combines many small writes into fewer system calls. An SSH connection carries many
// channels and writes each packet separately. With 16 concurrent requests, a batchWriter saves a tenth
// of the client's CPU time and a twentieth of the server's.
//
// Write copies its bytes and returns. A goroutine, which exists only while there are bytes to write,
// writes them together. If a write to w fails, a later call of Write therefore returns the error; a
// write of x/crypto behaves in the same way. The methods may be called concurrently.
type batchWriter struct {
	w io.WriteCloser

	mu      sync.Mutex
	changed sync.Cond // signals that out was taken, err was set, or writing ended
	out     []byte    // bytes for the next write to w
	writing bool      // flush is running
	err     error     // the error that Write returns
	failed  bool      // a write to w has failed; further bytes are dropped
}

// batchSize bounds the bytes that wait to be written; a second buffer of this size may be in the
// process of being written. A buffer has space for the largest SSH packet, which has 32 KiB of data. A
// batchWriter holds a buffer only while bytes wait.
const batchSize = 36 << 10

var batchBuffers = sync.Pool{New: func() any { return new([batchSize]byte) }}

// flushTime bounds the time in which bytes that were written before Close are sent.
const flushTime = 200 * time.Millisecond

// newBatchWriter returns a batchWriter that writes to w.
func newBatchWriter(w io.WriteCloser) *batchWriter {
	b := &batchWriter{w: w}
	b.changed.L = &b.mu
	return b
}

// Write takes all of p or nothing. It waits while the buffer has bytes and no space for p.
func (b *batchWriter) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.err == nil && len(b.out) > 0 && len(b.out)+len(p) > batchSize {
		b.changed.Wait()
	}
	if b.err != nil {
		return 0, b.err
	}
	if b.out == nil {
		b.out = batchBuffers.Get().(*[batchSize]byte)[:0]
	}
	b.out = append(b.out, p...)
	if !b.writing {
		b.writing = true
		go b.flush()
	}
	return len(p), nil
}

func (b *batchWriter) flush() {
	// This lets other goroutines call Write first, so that their bytes are sent together with these.
	runtime.Gosched()
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.out) > 0 && !b.failed {
		out := b.out
		b.out = nil
		b.changed.Broadcast()
		b.mu.Unlock()
		_, err := b.w.Write(out)
		batchBuffers.Put((*[batchSize]byte)(out[:batchSize]))
		b.mu.Lock()
		if err != nil {
			b.failed, b.out = true, nil
			if b.err == nil {
				b.err = err
			}
		}
	}
	b.writing = false
	b.changed.Broadcast()
	if b.err == net.ErrClosed {
		_ = b.w.Close()
	}
}

// Close closes w once all written bytes were sent, at the latest after flushTime. Close does not wait
// until w is closed; Wait does.
func (b *batchWriter) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = net.ErrClosed
	b.changed.Broadcast()
	if b.writing {
		time.AfterFunc(flushTime, func() { _ = b.w.Close() })
		return nil
	}
	return b.w.Close()
}

// Wait waits after Close until w is closed.
func (b *batchWriter) Wait() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.writing {
		b.changed.Wait()
	}
}
