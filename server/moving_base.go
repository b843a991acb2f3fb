package server

import (
	"io"
	"net/http"
	"time"
)

// movingBody renews the read deadline of its request with every read and takes it
// away at the end, so that the answer may take its time.
type movingBody struct {
	io.ReadCloser
	control *http.ResponseController
	stall   time.Duration
}

func (b *movingBody) deadline() { _ = b.control.SetReadDeadline(time.Now().Add(b.stall)) }

// Read reads with a fresh deadline.
func (b *movingBody) Read(p []byte) (int, error) {
	b.deadline()
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// answerPiece is the most of an HTTP/2 answer that has one deadline.
const answerPiece = 16 << 10

// movingAnswer bounds how long an answer over HTTP/2 waits for room in the viewer's
// flow control windows. Meanwhile nothing is written to the socket, so that movingConn
// sees no stall: a viewer who opens no window would hold the handlers of all streams,
// and the connection, for ever. Between writes there is no deadline: a stream may be
// silent.
type movingAnswer struct {
	http.ResponseWriter
	control *http.ResponseController
	limit   time.Duration
}

// newMovingAnswer grants as much as movingConn does at most: viewers who read slowly
// open their window again in large steps.
func newMovingAnswer(w http.ResponseWriter, stall time.Duration) *movingAnswer {
	return &movingAnswer{w, http.NewResponseController(w), stall + mostHidden*time.Second/slowPace}
}

func (a *movingAnswer) deadline() { _ = a.control.SetWriteDeadline(time.Now().Add(a.limit)) }
func (a *movingAnswer) unhurry()  { _ = a.control.SetWriteDeadline(time.Time{}) }

// Write writes piece by piece, each with a fresh deadline.
func (a *movingAnswer) Write(p []byte) (n int, err error) {
	defer a.unhurry()
	for {
		a.deadline()
		k, err := a.ResponseWriter.Write(p[n:min(n+answerPiece, len(p))])
		if n += k; err != nil || n == len(p) {
			return n, err
		}
	}
}

// FlushError is for http.ResponseController.
func (a *movingAnswer) FlushError() error {
	defer a.unhurry()
	a.deadline()
	return a.control.Flush()
}

// Flush is FlushError for those who ask for an http.Flusher.
func (a *movingAnswer) Flush() { _ = a.FlushError() }

// Unwrap is for http.ResponseController: read deadlines.
func (a *movingAnswer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
