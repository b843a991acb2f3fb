package delivery

import (
	"errors"
	"io"
	"time"

	"relay"
)

// splice copies bytes in both directions of an upgraded connection until both sides have
// ended. Each direction ends on its own, and there is no deadline. The connection no
// longer uses a slot of the tunnel.
func (x *exchange) splice() relay.Outcome {
	x.releaseSlot()
	x.flush()
	x.caller.DisableWriteTimeout()
	ended := make(chan struct{})
	defer close(ended)
	go func(caller relay.Caller, lost, cut <-chan struct{}) { // a write may wait for a caller that does not read
		select {
		case <-lost:
		case <-cut:
		case <-ended:
			return
		}
		caller.Abort()
	}(x.caller, x.lost, x.d.cut)
	var upErr error
	upEnded := make(chan struct{})
	go func() {
		defer close(upEnded)
		defer func() {
			if p := asPanic(recover()); p != nil {
				upErr = p
			}
		}()
		upErr = x.spliceUp()
	}()
	if err := x.spliceDown(upEnded, &upErr); err != nil {
		x.pooled.Close()
		x.caller.Abort()
	}
	<-upEnded
	var p *panicError
	if errors.As(upErr, &p) {
		panic(p)
	}
	x.at.end = time.Now()
	x.sendFinish(relay.StateDelivered, nil, "") // a second time, now with the duration; nothing waits for it
	return relay.Outcome{}
}

// Errors that end an upgraded connection.
var (
	errNotWhole  = errors.New("the caller did not send the whole request")
	errSpliceCut = errors.New("one side broke off, or the tunnel or the relay ended")
)

// spliceDown copies bytes to the caller until both sides have ended: upErr is the result of
// spliceUp once upEnded is closed. It returns nil when both sides ended in order.
func (x *exchange) spliceDown(upEnded <-chan struct{}, upErr *error) error {
	localEnded := false
	tick := time.NewTicker(checkCallerEvery)
	defer tick.Stop()
	for upEnded != nil || !localEnded {
		if !localEnded {
			x.pooled.RequestRead()
		}
		select {
		case f := <-x.pooled.Reads():
			x.pooled.ReadDone()
			x.write(x.pooled.Bytes(f))
			switch {
			case x.callerState >= callerGone, f.Err != nil && !errors.Is(f.Err, io.EOF):
				return errSpliceCut
			case f.Err != nil:
				localEnded = true
				_ = x.caller.CloseWrite()
			}
		case <-upEnded:
			if upEnded = nil; *upErr != nil {
				return *upErr
			}
		case now := <-tick.C: // a blocked spliceUp does not read from its caller
			if x.writeBlocked(now) >= checkCallerEvery && x.caller.Presence() == relay.CallerReset {
				return errSpliceCut
			}
		case <-x.lost:
			return errSpliceCut
		case <-x.d.cut:
			return errSpliceCut
		}
	}
	return nil
}

// spliceUp copies bytes to the local server. It returns nil when the caller has closed
// its side in order. If the upload of the request still runs, spliceUp waits for its end
// first, because only one goroutine may read from the caller.
func (x *exchange) spliceUp() error {
	if x.uploading {
		x.endUpload()
	}
	if x.accepted != acceptedWhole {
		x.amend()
	}
	if x.reqEnd.how != whole {
		return errNotWhole
	}
	b := x.d.piece()
	defer x.d.pieces.Put(b)
	for {
		n, err := x.caller.Read(*b)
		if n > 0 {
			x.markWriting()
			_, werr := x.ch.Write((*b)[:n])
			x.writing.Store(0)
			if werr != nil {
				return werr
			}
		}
		var e *relay.Error
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			_ = x.ch.CloseWrite() // here, because it may wait for the peer
			return nil
		case errors.As(err, &e) && e.Code == relay.CodeRequestTimeout:
			// silence is fine on an upgraded connection
		default:
			return err
		}
	}
}
