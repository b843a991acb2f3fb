package sshgate

import (
	"errors"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"relay/cli"
)

// outputPiece is how many bytes of a command's output are written at once.
const outputPiece = 32 << 10

// commandOutput writes what a command prints. A peer that takes nothing for StallTimeout loses the
// session; then the write returns, and with it goes what the command holds: what still waits
// for the peer, until the connection ends, is one piece.
type commandOutput struct {
	s     *session
	to    io.Writer
	stuck atomic.Bool
}

// Write writes p in pieces.
func (o *commandOutput) Write(p []byte) (int, error) {
	for sent := 0; sent < len(p); {
		if o.stuck.Load() {
			return sent, errOutputStuck
		}
		piece := slices.Clone(p[sent:min(sent+outputPiece, len(p))])
		written := make(chan error, 1)
		o.s.Go("session output", func() {
			_, err := o.to.Write(piece)
			written <- err
		})
		var stall <-chan time.Time
		if limit := o.s.c.srv.o.StallTimeout; limit > 0 {
			timer := time.NewTimer(limit)
			defer timer.Stop()
			stall = timer.C
		}
		select {
		case err := <-written:
			if err != nil {
				return sent, err
			}
			sent += len(piece)
			continue
		case <-stall:
			o.s.Stop(cli.ExitFailure)
		case <-o.s.ctx.Done():
			select { // what fits into the window of the peer is still told
			case err := <-written:
				if err == nil {
					sent += len(piece)
					continue
				}
				return sent, err
			case <-time.After(endTimeout):
			}
		}
		o.stuck.Store(true)
		return sent, errOutputStuck
	}
	return len(p), nil
}

var errOutputStuck = errors.New("the peer does not read")
