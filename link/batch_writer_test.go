package link

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// slowWriter completes a write when the test sends its result.
type slowWriter struct {
	began  chan []byte // the bytes of each write, when it begins
	result chan error
	closed chan struct{}
}

func newSlowWriter() *slowWriter {
	return &slowWriter{began: make(chan []byte), result: make(chan error), closed: make(chan struct{})}
}

func (w *slowWriter) Write(p []byte) (int, error) {
	w.began <- bytes.Clone(p)
	select {
	case err := <-w.result:
		return len(p), err
	case <-w.closed:
		return 0, net.ErrClosed
	}
}

func (w *slowWriter) Close() error {
	select {
	case <-w.closed:
	default:
		close(w.closed)
	}
	return nil
}

func write(t *testing.T, w io.Writer, text string) {
	t.Helper()
	if n, err := io.WriteString(w, text); n != len(text) || err != nil {
		t.Fatalf("Write: %d, %v", n, err)
	}
}

// TestBatchWriterJoinsWrites: writes that are made during another write are written together, in their order.
func TestBatchWriterJoinsWrites(t *testing.T) {
	t.Parallel()
	w := newSlowWriter()
	b := newBatchWriter(w)
	write(t, b, "first ")
	if got := <-w.began; string(got) != "first " {
		t.Fatalf("%q was written", got)
	}
	for _, text := range []string{"a", "b", "c"} {
		write(t, b, text)
	}
	w.result <- nil
	if got := <-w.began; string(got) != "abc" {
		t.Errorf("%q was written together", got)
	}
	w.result <- nil
	write(t, b, "alone")
	if got := <-w.began; string(got) != "alone" {
		t.Errorf("%q was written alone", got)
	}
	w.result <- nil
}

// TestBatchWriterIsBounded: Write waits while the buffer is full. Close ends a waiting Write with
// net.ErrClosed.
func TestBatchWriterIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newSlowWriter()
		b := newBatchWriter(w)
		piece := strings.Repeat("x", 32<<10)
		write(t, b, piece)
		<-w.began
		// These bytes wait in the buffer for the end of the first write.
		write(t, b, piece)
		done := make(chan error)
		go func() {
			for {
				if _, err := io.WriteString(b, piece); err != nil {
					done <- err
					return
				}
			}
		}()
		synctest.Wait()
		w.result <- nil
		if got := <-w.began; len(got) != len(piece) {
			t.Errorf("%d bytes waited", len(got))
		}
		synctest.Wait()
		_ = b.Close()
		if err := <-done; !errors.Is(err, net.ErrClosed) {
			t.Errorf("a write that waits ends with %v", err)
		}
		b.Wait()
	})
}

// TestBatchWriterCloses: bytes written before Close are sent. If the writer is stuck, the connection is
// closed within a second.
func TestBatchWriterCloses(t *testing.T) {
	t.Parallel()
	for name, stuck := range map[string]bool{"flows": false, "stuck": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newSlowWriter()
				b := newBatchWriter(w)
				write(t, b, "goodbye")
				_ = b.Close()
				if _, err := io.WriteString(b, "late"); !errors.Is(err, net.ErrClosed) {
					t.Errorf("Write after Close: %v", err)
				}
				began := time.Now()
				if got := <-w.began; string(got) != "goodbye" {
					t.Errorf("%q was written", got)
				}
				if !stuck {
					w.result <- nil
				}
				b.Wait()
				<-w.closed
				if took := time.Since(began); stuck != (took > 0) || took > time.Second {
					t.Errorf("closed after %v", took)
				}
			})
		})
	}
}

// TestBatchWriterReportsErrors: after a failed write, a later Write returns its error.
func TestBatchWriterReportsErrors(t *testing.T) {
	t.Parallel()
	w := newSlowWriter()
	b := newBatchWriter(w)
	write(t, b, "lost")
	<-w.began
	write(t, b, "lost too")
	broken := errors.New("broken")
	w.result <- broken
	b.Wait()
	if n, err := io.WriteString(b, "x"); n != 0 || !errors.Is(err, broken) {
		t.Errorf("Write: %d, %v", n, err)
	}
}
