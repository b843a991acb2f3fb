package delivery

import (
	"context"
	"errors"
	"io"
	"time"

	"relay"
	"relay/delivery/pool"
	"relay/wire"
)

// startUpload sends the rest of the request in its own goroutine, which ends before
// the exchange does.
func (x *exchange) startUpload() {
	x.uploading = true
	x.checkUploadAt = time.Now().Add(pool.SlowAfter)
	go x.upload()
}

// upload reads and sends the request until it has ended.
func (x *exchange) upload() {
	var u uploadResult
	defer func() {
		u.panicked = asPanic(recover())
		u.at = time.Now()
		x.uploadDone <- u
	}()
	if x.req.msg == nil {
		u = x.uploadCaller()
	} else {
		u = x.uploadStored()
	}
}

func (x *exchange) uploadCaller() uploadResult {
	b := x.d.piece()
	defer x.d.pieces.Put(b)
	r := &x.req
	for {
		held := x.awaiting100.Load()
		n, err := r.caller.Read(*b)
		if n > 0 {
			x.release100()
			used, how, e := r.receiveBytes((*b)[:n])
			if how == open || how == whole {
				x.raw.Write((*b)[:used])
				x.send((*b)[:used])
			}
			if how != open {
				x.allWritten.Store(how == whole && !x.writeFailed)
				return uploadResult{how: how, err: e}
			}
		}
		if err != nil {
			u := r.readError(err)
			if u.how != stalled || !held { // the stall timeout starts anew once a 100 Continue was sent
				return u
			}
		}
		if x.stopReading.Load() {
			return uploadResult{how: gone, err: relay.Errorf(relay.CodeCallerGone, "the relay stopped reading the request")}
		}
	}
}

// uploadStored sends a stored body, and stops once a write to the channel has failed.
func (x *exchange) uploadStored() uploadResult {
	if !x.awaitContinue() {
		return uploadResult{how: answeredBefore100}
	}
	out := x.d.piece()
	defer x.d.pieces.Put(out)
	n, skip := 0, true
	err := wire.Rebuild(x.req.msg, nil, x.req.nextPart(), func(p []byte) error {
		if skip {
			skip = false
			return nil
		}
		x.raw.Write(p)
		for len(p) > 0 {
			k := copy((*out)[n:], p)
			n, p = n+k, p[k:]
			if n == len(*out) {
				x.send((*out)[:n])
				n = 0
			}
		}
		if x.writeFailed {
			return errWriteFailed
		}
		return nil
	})
	x.send((*out)[:n])
	x.allWritten.Store(!x.writeFailed && err == nil)
	if err != nil && !errors.Is(err, errWriteFailed) {
		return uploadResult{how: unread, err: errUnreadable(err)}
	}
	return uploadResult{how: whole}
}

// errUnreadable says that a stored request could not be read to its end.
func errUnreadable(cause error) *relay.Error {
	return &relay.Error{
		Code:       relay.CodeStoreUnavailable,
		Detail:     "the relay could not read the stored request to its end, so the local server did not get all of it",
		RetryAfter: retryAfter, Cause: cause,
	}
}

// awaitContinue waits for the local server's 100 Continue where a stored request expects
// one, for a second at most. It returns false if the final answer came instead.
func (x *exchange) awaitContinue() bool {
	if x.continueCh == nil {
		return true
	}
	late := time.NewTimer(continueWait)
	defer late.Stop()
	select {
	case yes := <-x.continueCh:
		return yes
	case <-late.C:
		return true
	}
}

// checkParts returns nil when all parts of the stored body can be read.
func (r *request) checkParts() error {
	ctx, cancel := context.WithTimeout(r.d.base, storeWait)
	defer cancel()
	return r.d.store.CheckParts(ctx, r.id, 0, r.msg.Body.Parts)
}

// nextPart reads a stored body part by part, each in one short query.
func (r *request) nextPart() func() ([]byte, error) {
	parts := r.msg.Body.Parts
	if parts == 0 {
		return nil
	}
	i := 0
	return func() ([]byte, error) {
		if i == parts {
			return nil, io.EOF
		}
		ctx, cancel := context.WithTimeout(r.d.base, storeWait)
		defer cancel()
		p, err := r.d.store.BodyPart(ctx, r.id, 0, i)
		i++
		return p, err
	}
}

// errWriteFailed ends the rebuilding of a message after a write has failed.
var errWriteFailed = errors.New("the channel takes no more")

// send writes to the channel until a write has failed. A failed write does not end the
// request: the rest of it is still recorded.
func (x *exchange) send(p []byte) {
	if x.writeFailed || len(p) == 0 {
		return
	}
	x.writing.Store(max(1, int64(time.Since(x.at.start))))
	n, err := x.ch.Write(p)
	x.writing.Store(0)
	x.written.Write(p[:n])
	if err != nil || n < len(p) {
		x.writeFailed = true
	}
}

// writeTimeout is how long a piece of the request may wait for the local server to take
// it: as long as the answer to all of it may, but not so short that a slow line would
// be taken for a server that hangs.
func (x *exchange) writeTimeout() time.Duration { return max(x.responseTimeout, minWriteTimeout) }

// onUploadCheck looks at an upload that is under way. One whose write has been blocked
// for pool.SlowAfter may wait for a local server of one connection; after writeTimeout the
// exchange fails, since it would hold its caller and its slot for as long as the tunnel
// lives.
func (x *exchange) onUploadCheck(now time.Time) verdict {
	if now.Before(x.checkUploadAt) {
		return goOn
	}
	waited, limit := x.writeBlocked(now), x.writeTimeout()
	if waited >= pool.SlowAfter && x.at.first.IsZero() {
		x.becomeSlow()
	}
	if x.responseTimeout > 0 && waited >= limit {
		return x.fail(relay.Errorf(relay.CodeLocalTimeout, "the local server did not answer and took nothing more of the request for %v", limit))
	}
	x.checkUploadAt = now.Add(max(limit-waited, pool.SlowAfter))
	if !x.slow && !x.att.lazy {
		x.checkUploadAt = now.Add(pool.SlowAfter)
	}
	return goOn
}

// writeBlocked is how long the piece of the request that goes out now has waited for the
// local server; 0 = none does.
func (x *exchange) writeBlocked(now time.Time) time.Duration {
	began := x.writing.Load()
	if began == 0 {
		return 0
	}
	return now.Sub(x.at.start) - time.Duration(began)
}

// piece gives a pooled buffer of readSize bytes.
func (d *Delivery) piece() *[]byte {
	b, _ := d.pieces.Get().(*[]byte)
	return b
}
