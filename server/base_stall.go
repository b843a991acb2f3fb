package server

import (
	"io"
	"net/http"
	"time"
)

// stallReader renews the read deadline of its request with every read and removes it
// at the end of the body, so that the handler may take its time.
type stallReader struct {
	io.ReadCloser
	control *http.ResponseController
	stall   time.Duration
}

func (b *stallReader) setDeadline() { _ = b.control.SetReadDeadline(time.Now().Add(b.stall)) }

// Read reads with a new deadline.
func (b *stallReader) Read(p []byte) (int, error) {
	b.setDeadline()
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// streamPiece is the most of an HTTP/2 response that is written under one deadline.
const streamPiece = 16 << 10

// stallWriter bounds how long an HTTP/2 response waits for flow control window.
// While it waits nothing is written to the socket, so stallConn sees no stall: a
// viewer that opens no window would hold the handlers of all its streams, and the
// connection, for ever. Between writes there is no deadline: a stream may be silent.
type stallWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	stall   time.Duration
}

func newStallWriter(w http.ResponseWriter, stall time.Duration) *stallWriter {
	return &stallWriter{w, http.NewResponseController(w), stall}
}

func (a *stallWriter) setDeadline()   { _ = a.control.SetWriteDeadline(time.Now().Add(a.stall)) }
func (a *stallWriter) clearDeadline() { _ = a.control.SetWriteDeadline(time.Time{}) }

// Write writes in pieces, each with a new deadline.
func (a *stallWriter) Write(p []byte) (n int, err error) {
	defer a.clearDeadline()
	for {
		a.setDeadline()
		k, err := a.ResponseWriter.Write(p[n:min(n+streamPiece, len(p))])
		if n += k; err != nil || n == len(p) {
			return n, err
		}
	}
}

// FlushError implements what http.ResponseController looks for.
func (a *stallWriter) FlushError() error {
	defer a.clearDeadline()
	a.setDeadline()
	return a.control.Flush()
}

// Flush implements http.Flusher.
func (a *stallWriter) Flush() { _ = a.FlushError() }

// Unwrap lets http.ResponseController find the read deadlines.
func (a *stallWriter) Unwrap() http.ResponseWriter { return a.ResponseWriter }
