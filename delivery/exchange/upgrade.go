package exchange

import (
	"errors"
	"io"
	"runtime/debug"
	"time"

	"relay"
)

// Errors that end an upgraded connection.
var (
	errRequestCut = errors.New("the caller did not send the whole request")
	errSpliceCut  = errors.New("one side broke off, or the tunnel or the relay ended")
)

// splice copies bytes in both directions of an upgraded connection until both sides have ended.
// Each direction ends on its own, and there is no deadline.
func (x *run) splice() {
	x.conn.Upgraded()
	_ = x.conn.SetWriteDeadline(time.Time{})
	x.out.flush()
	x.out.sink.DisableWriteTimeout()
	ended := make(chan struct{})
	defer close(ended)
	go func(sink Sink, lost, cut <-chan struct{}) {
		// This goroutine ends a write that waits for a caller which does not read.
		select {
		case <-lost:
		case <-cut:
		case <-ended:
			return
		}
		sink.Abort()
	}(x.out.sink, x.ctx.Done(), x.q.o.Cut.Done())
	up := make(chan error, 1)
	go func() {
		err := errSpliceCut
		defer func() {
			if v := recover(); v != nil {
				x.q.o.logPanic(x.q, v, debug.Stack())
			}
			up <- err
		}()
		err = x.spliceUp()
	}()
	if err := x.spliceDown(up); err != nil {
		_ = x.conn.Close()
		x.out.abort()
	}
	x.closeConn()
	x.at.end = time.Now()
	// This second Finish stores that the attempt ended at the end of the splice. Nothing waits for its ticket.
	x.sendFinish(relay.StateDelivered, nil, "")
}

// spliceDown copies bytes to the caller until both sides have ended; up is the result of spliceUp. It
// returns nil if both sides ended in order.
func (x *run) spliceDown(up <-chan error) (err error) {
	down := true
	tick := time.NewTicker(checkCallerEvery)
	defer tick.Stop()
	defer func() {
		if up != nil {
			// This closes the connection and resets that of the caller, which ends spliceUp.
			_ = x.conn.Close()
			x.out.abort()
			<-up
		}
	}()
	b := newPiece()
	defer pieces.Put(b)
	for up != nil || down {
		var ready <-chan struct{}
		if down {
			ready = x.conn.Ready()
		}
		select {
		case <-ready:
			n, err := x.conn.Read(*b)
			x.out.write((*b)[:n])
			switch {
			case !x.out.reads(), err != nil && !errors.Is(err, io.EOF):
				return errSpliceCut
			case err != nil:
				down = false
				_ = x.out.sink.CloseWrite()
			}
		case err := <-up:
			if up = nil; err != nil {
				return err
			}
		case now := <-tick.C:
			// A spliceUp that waits for a write does not notice that its caller has left.
			if x.send.blocked(x.q, now) >= checkCallerEvery && x.out.sink.Presence() == relay.CallerReset {
				return errSpliceCut
			}
		case <-x.ctx.Done():
			return errSpliceCut
		case <-x.q.o.Cut.Done():
			return errSpliceCut
		}
	}
	return nil
}

// spliceUp copies bytes to the local server. It returns nil if the caller has closed its side in
// order. If the sender of the request is still running, spliceUp first waits for its end, because only
// one goroutine may read from the caller.
func (x *run) spliceUp() error {
	x.endSender()
	if x.q.accepted != acceptedWhole {
		x.amend()
	}
	if x.end.how != endWhole {
		return errRequestCut
	}
	b := newPiece()
	defer pieces.Put(b)
	for {
		n, err := x.q.caller.Read(*b)
		if n > 0 {
			x.send.writing.Store(max(1, int64(time.Since(x.q.began))))
			_, werr := x.conn.Write((*b)[:n])
			x.send.writing.Store(0)
			if werr != nil {
				return werr
			}
		}
		var e *relay.Error
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			// CloseWrite may wait for the local server to take bytes, but in this goroutine it delays nothing else.
			_ = x.conn.CloseWrite()
			return nil
		case errors.As(err, &e) && e.Code == relay.CodeRequestTimeout:
			// An upgraded connection may be silent for any time, so the stall timeout does not end it.
		default:
			return err
		}
	}
}
