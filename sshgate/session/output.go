package session

import (
	"errors"
	"io"
	"os"
	"time"

	"relay/cli"
)

// outputPiece is the number of bytes of a command's output that are written at once.
const outputPiece = 32 << 10

// commandOutput writes the output of a command, or of the API. If the peer reads nothing for StallTimeout,
// the session ends, the write returns, and the command ends. After that, at most one piece waits for the peer
// until the connection ends.
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
		if o.s.ctx.Err() != nil { // the deadline that limitOutput has set was replaced above
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

// limitOutput sets the deadline of the last output when the session has to end. Output that fits into
// the window of the peer is still sent.
func (s *session) limitOutput() { _ = s.ch.SetWriteDeadline(time.Now().Add(endTimeout)) }
