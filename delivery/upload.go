package delivery

import (
	"errors"
	"time"

	"relay"
	"relay/delivery/pool"
)

// startUpload sends the rest of the request in its own goroutine, which ends before
// the exchange does.
func (x *exchange) startUpload() {
	x.uploading = true
	x.checkUploadAt = time.Now().Add(pool.SlowAfter)
	go func() {
		var u uploadResult
		defer func() {
			u.panicked = asPanic(recover())
			u.at = time.Now()
			x.uploadDone <- u
		}()
		switch {
		case x.firstRuns.Load() && !x.awaitFirst():
			u.how = notTaken
		case x.gathered.how == whole:
			u.how = whole
			x.allWritten.Store(!x.writeFailed)
		case x.stored:
			u = x.uploadStored()
		default:
			u = x.uploadCaller()
		}
	}()
}

// firstWrite is the result of the first write.
type firstWrite struct {
	n        int
	err      error
	panicked *panicError
}

// firstWait is how long an exchange waits for its first write alone. A write that takes longer
// waits for a peer, and is watched by the loop as the rest of the upload is.
const firstWait = 20 * time.Millisecond

// writeFirst writes the first piece, in a goroutine of its own: a peer that takes nothing
// blocks it until the channel is closed. ended is false if it still runs after firstWait.
func (x *exchange) writeFirst() (w firstWrite, ended bool) {
	x.markWriting()
	go func(ch relay.Channel, p []byte, done chan<- firstWrite) {
		var w firstWrite
		defer func() {
			w.panicked = asPanic(recover())
			done <- w
		}()
		w.n, w.err = ch.Write(p)
	}(x.ch, x.first, x.firstDone)
	x.armed = time.Time{}
	x.timer.Reset(firstWait)
	select {
	case w = <-x.firstDone:
		x.timer.Stop()
		return w, true
	case <-x.timer.C:
		return w, false
	}
}

// awaitFirst waits for the first write in the goroutine of the upload. It returns false if the
// channel has taken no byte.
func (x *exchange) awaitFirst() bool {
	taken := x.firstTaken(<-x.firstDone)
	x.firstRuns.Store(false)
	return taken
}

// firstTaken notes what the channel has taken of the first piece. It returns false if that
// was not one byte.
func (x *exchange) firstTaken(w firstWrite) bool {
	x.writing.Store(0)
	if w.panicked != nil {
		panic(w.panicked)
	}
	x.written.Write(x.first[:w.n])
	if w.n == 0 && w.err != nil {
		return false
	}
	x.att.Requests.Add(1)
	x.writeFailed = w.err != nil || w.n < len(x.first)
	x.att.Pool.Refill()
	return true
}

func (x *exchange) uploadCaller() uploadResult {
	b := x.d.piece()
	defer x.d.pieces.Put(b)
	for {
		held := x.awaiting100.Load()
		n, err := x.caller.Read(*b)
		if n > 0 {
			x.awaiting100.Store(false)
			used, u := x.receiveBytes((*b)[:n])
			if u.how == open || u.how == whole {
				x.raw.Write((*b)[:used])
				x.send((*b)[:used])
			}
			if u.how != open {
				x.allWritten.Store(u.how == whole && !x.writeFailed)
				return u
			}
		}
		if err != nil {
			u := readError(err)
			if u.how != stalled || !held { // the stall timeout starts anew once a 100 Continue was sent
				return u
			}
		}
		if x.stopReading.Load() {
			return uploadResult{how: gone, err: relay.Errorf(relay.CodeCallerGone, "the relay stopped reading the request")}
		}
	}
}

// errWriteFailed ends the rebuilding of a message after a write has failed.
var errWriteFailed = errors.New("the channel takes no more")

// uploadStored sends a stored body, and stops once a write to the channel has failed. Where
// the request expects a 100 Continue, it waits a second for one, and sends nothing if the
// final answer comes instead.
func (x *exchange) uploadStored() uploadResult {
	if x.continueCh != nil {
		select {
		case yes := <-x.continueCh:
			if !yes {
				return uploadResult{how: answeredBefore100}
			}
		case <-time.After(continueWait):
		}
	}
	out := x.d.piece()
	defer x.d.pieces.Put(out)
	w := &pieceWriter{x: x, piece: *out}
	err := x.rebuild(w)
	x.send(w.piece[:w.n])
	x.allWritten.Store(!x.writeFailed && err == nil)
	if err != nil && !errors.Is(err, errWriteFailed) {
		return uploadResult{how: unread, err: &relay.Error{
			Code:       relay.CodeStoreUnavailable,
			Detail:     "the relay could not read the stored request to its end, so the local server did not get all of it",
			RetryAfter: retryAfter, Cause: err,
		}}
	}
	return uploadResult{how: whole}
}

// pieceWriter collects what is sent into pieces of a fixed size.
type pieceWriter struct {
	x     *exchange
	piece []byte
	n     int // bytes of it that are used
}

func (w *pieceWriter) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		k := copy(w.piece[w.n:], rest)
		if w.n, rest = w.n+k, rest[k:]; w.n == len(w.piece) {
			w.x.send(w.piece)
			w.n = 0
		}
	}
	if w.x.writeFailed {
		return 0, errWriteFailed
	}
	return len(p), nil
}

// send writes to the channel until a write has failed. A failed write does not end the
// request: the rest of it is still recorded.
func (x *exchange) send(p []byte) {
	if x.writeFailed || len(p) == 0 {
		return
	}
	x.markWriting()
	n, err := x.ch.Write(p)
	x.writing.Store(0)
	x.written.Write(p[:n])
	if err != nil || n < len(p) {
		x.writeFailed = true
	}
}

func (x *exchange) markWriting() { x.writing.Store(max(1, int64(time.Since(x.at.start)))) }

// uploadEnded takes the result of the upload, whose goroutine has ended.
func (x *exchange) uploadEnded(u uploadResult) {
	x.uploading, x.reqEnd = false, u
	if u.how == notTaken {
		x.writeFailed, x.reqEnd = true, x.gathered
	}
	x.gathered = uploadResult{}
	if x.reqEnd.how == whole {
		x.at.whole = u.at
	}
	if u.panicked != nil {
		panic(u.panicked)
	}
}

// endUpload waits for an upload whose channel is closed, or that has come to its last byte.
func (x *exchange) endUpload() {
	x.uploadEnded(<-x.uploadDone)
	if x.reqEnd.how == open { // its first piece was not taken
		x.startUpload()
		x.uploadEnded(<-x.uploadDone)
	}
}

// lastWriteWait is how long an exchange waits for a write that is about to return.
const lastWriteWait = 10 * time.Millisecond

// joinUpload waits a moment for an upload that has read the whole request, and whose last
// write is about to return: the answer can arrive before that.
func (x *exchange) joinUpload() {
	if !x.uploading || !x.rec.isWhole() {
		return
	}
	select {
	case u := <-x.uploadDone:
		x.uploadEnded(u)
	case <-time.After(lastWriteWait):
	}
}

// awaitUpload waits for the end of the upload, and stops it when enough comes first or the
// drain of the relay is over.
func (x *exchange) awaitUpload(enough <-chan time.Time) {
	for x.uploading {
		select {
		case u := <-x.uploadDone:
			if x.uploadEnded(u); x.reqEnd.how == open { // its first piece was not taken
				x.startUpload()
			}
		case <-enough:
			x.stopUpload()
		case <-x.d.cut:
			x.stopUpload()
		}
	}
}

// stopUpload ends an upload that may be waiting for a silent caller.
func (x *exchange) stopUpload() {
	x.stopReading.Store(true)
	x.caller.Abort()
	x.callerState = max(x.callerState, callerGone)
	x.endUpload()
}

// readToEnd reads the request to its end when no local answer will come, so that the
// event can be replayed. A caller that waits for 100 Continue gets it from the relay, which
// is not recorded as part of the answer.
func (x *exchange) readToEnd() {
	if x.reqEnd.how != open {
		return
	}
	x.awaiting100.Store(false)
	waits := x.uploading || x.caller.Buffered() == 0 // the upload has read what was there
	if waits && x.bodyNotSent() {
		x.continued = true
		x.write([]byte("HTTP/1.1 100 Continue\r\n\r\n"))
	}
	if !x.uploading {
		x.writeFailed = true
		x.startUpload()
	}
	x.awaitUpload(nil)
}

// writeTimeout is how long a piece of the request may wait for the local server to take
// it: as long as the answer to all of it may, but, after the first piece, not so short that a
// slow line would be taken for a server that hangs.
func (x *exchange) writeTimeout() time.Duration {
	if x.firstRuns.Load() {
		return x.responseTimeout
	}
	return max(x.responseTimeout, minWriteTimeout)
}

// checkUpload looks at an upload that is under way. One whose write has been blocked
// for pool.SlowAfter may wait for a local server of one connection; after writeTimeout the
// exchange fails, since it would hold its caller and its slot for as long as the tunnel
// lives. A blocked upload does not read from its caller, so that it is asked here whether
// that has left inside its body.
func (x *exchange) checkUpload(now time.Time) verdict {
	waited, limit := x.writeBlocked(now), x.writeTimeout()
	if waited >= pool.SlowAfter && x.at.first.IsZero() {
		x.becomeSlow()
	}
	if x.responseTimeout > 0 && waited >= limit {
		return x.fail(relay.Errorf(relay.CodeLocalTimeout, "the local server did not answer and took nothing more of the request for %v", limit))
	}
	if waited >= pool.SlowAfter && x.caller != nil {
		if v := x.checkSilentCaller(now); v != goOn {
			return v
		}
	}
	next := checkCallerEvery
	if !x.slow && !x.att.Lazy {
		next = pool.SlowAfter
	}
	if x.responseTimeout > 0 {
		next = min(next, limit-waited)
	}
	x.checkUploadAt = now.Add(max(next, time.Millisecond))
	return goOn
}

// checkSilentCaller ends an exchange without an answer whose caller has left: inside its body
// at once, after that when the time for an answer is over, which begins here where the alias
// has no response timeout.
func (x *exchange) checkSilentCaller(now time.Time) verdict {
	p := x.caller.Presence()
	switch {
	case p == relay.CallerPresent:
		x.leftAt = time.Time{}
	case p == relay.CallerReset && !x.rec.isWhole():
		return x.fail(relay.Errorf(relay.CodeCallerGone, "the caller ended the connection inside its request body"))
	case x.responseTimeout > 0:
	case x.leftAt.IsZero():
		x.leftAt = now
	case now.Sub(x.leftAt) >= defaultResponseTimeout:
		return x.fail(relay.Errorf(relay.CodeLocalTimeout, "the local server did not answer within %v after the caller had left", defaultResponseTimeout))
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

// startAwaiting100 notes that the caller holds its whole body back until it gets a 100
// Continue (RFC 9110, section 10.1.1). Such a body cannot stall, but the local server
// has to answer within the response timeout. It is called before the upload starts.
func (x *exchange) startAwaiting100() {
	x.continueBy = time.Time{}
	x.awaiting100.Store(x.head.Expect && !x.continued && len(x.first) == len(x.wire))
	if x.awaiting100.Load() && x.responseTimeout > 0 {
		x.continueBy = x.at.open.Add(x.responseTimeout)
	}
}

// bodyNotSent reports whether the caller still waits for a 100 Continue and has sent
// nothing of its body.
func (x *exchange) bodyNotSent() bool {
	size, _ := x.rec.progress()
	return x.head.Expect && !x.continued && size == 0
}

// piece gives a pooled buffer of readSize bytes.
func (d *Delivery) piece() *[]byte {
	b, _ := d.pieces.Get().(*[]byte)
	return b
}
