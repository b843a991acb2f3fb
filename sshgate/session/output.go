package session

import (
	"errors"
	"io"
	"os"
	"time"

	"relay/cli"
)

// outputPiece is how many bytes of a command's output are written at once.
const outputPiece = 32 << 10

// commandOutput writes the output of a command, or of the API. A peer that takes nothing for
// StallTimeout loses the session; then the write returns, and the command ends. What still waits
// for the peer, until the connection ends, is one piece.
type commandOutput struct {
	s  *session
	to io.Writer // the session's channel, or its error output
}

// Write writes p in pieces.
func (o commandOutput) Write(p []byte) (sent int, err error) {
	for sent < len(p) && err == nil {
		var deadline time.Time
		if limit := o.s.of.StallTimeout; limit > 0 {
			deadline = time.Now().Add(limit)
		}
		_ = o.s.ch.SetWriteDeadline(deadline)
		if o.s.ctx.Err() != nil { // limitOutput may have been called before
			o.s.limitOutput()
		}
		var n int
		n, err = o.to.Write(p[sent:min(sent+outputPiece, len(p))])
		sent += n
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		o.s.Stop(cli.ExitFailure)
	}
	return sent, err
}

// limitOutput is called when the session is to end: what fits into the window of the peer is still
// told.
func (s *session) limitOutput() { _ = s.ch.SetWriteDeadline(time.Now().Add(endTimeout)) }
