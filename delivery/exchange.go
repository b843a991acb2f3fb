package delivery

import (
	"cmp"
	"errors"
	"hash/maphash"
	"io"
	"net/netip"
	"sync/atomic"
	"time"

	"relay"
	"relay/budget"
	"relay/delivery/pool"
	"relay/delivery/registry"
	"relay/wire"
)

// exchange is one request on its way to a local server, and the answer on its way back.
// An original has a caller; a replay or a queued delivery has none. One goroutine runs
// the exchange, a second one does the first write, and a third one uploads what does not fit
// into that.
type exchange struct {
	d      *Delivery
	st     *registry.Alias
	alias  *relay.Alias
	att    *registry.Attachment
	lost   <-chan struct{}
	origin netip.AddrPort

	event   *relay.Event  // not changed any more after Accept
	attempt relay.Attempt // as far as known
	queued  bool          // a queued delivery: it is queued again if no byte of it was sent

	sending
	answering

	// What was handed over to the store.
	accepted       acceptance
	accept, finish *relay.Ticket       // accept is nil again once it has resolved
	claim          func() *relay.Claim // next queued attempt, once finish has resolved; nil = not asked for

	at              times
	responseTimeout time.Duration // from the whole request to the first byte of the response; 0 = no limit
	timer           *time.Timer
	armed           time.Time
}

// sending is the request, and what was sent of it.
type sending struct {
	caller relay.Caller // reads the answer; nil for replays and queued deliveries
	stored bool         // the request comes from the store, not from the caller
	head   *wire.Head
	body   *wire.Body // parser of the caller's body; nil = there is none
	rec    recording
	reqEnd uploadResult
	// queueBytes are reserved in the queue for the request; 0 = it is not to be queued.
	queueBytes int64

	wire      []byte          // head as it is sent
	first     []byte          // first write
	firstDone chan firstWrite // its result
	firstRuns atomic.Bool     // the loop has begun before its result was known
	gathered  uploadResult    // reqEnd as gather left it, while firstRuns
	scratch   []byte
	raw       maphash.Hash // over the request as it came
	written   maphash.Hash // over what the channel took

	writeFailed   bool         // the channel takes no more; guarded by the upload while that runs
	awaiting100   atomic.Bool  // the caller holds the body back for a 100 Continue, and none was sent
	allWritten    atomic.Bool  // the last byte was written
	writing       atomic.Int64 // when the running write of the upload began, in ns after at.start; 0 = none runs
	stopReading   atomic.Bool  // the upload is to stop
	continueCh    chan bool    // to an upload that waits for 100 Continue; nil = it does not wait
	uploadDone    chan uploadResult
	uploading     bool
	checkUploadAt time.Time // next check of the upload; zero = none
	continueBy    time.Time // when the wait for a 100 Continue ends; zero = none

	ch          relay.Channel
	pooled      *pool.Channel // ch, until it is given back
	slot        registry.Slot
	hasSlot     bool
	reused      bool
	reached     bool              // false: it is known that no byte reached the local server
	kept        pool.KeptChannels // as the request was sent
	clientSlow  bool              // the client of a tunnel at another node lives, but did not answer in time
	slow        bool              // pool.SlowAfter has passed before the first byte of an answer
	slowCounted bool              // the pool counts it as slow until then
}

// answering is the answer, and what the caller got of it.
type answering struct {
	final    *wire.Head
	resBody  *wire.Body
	res      recording
	partial  []byte // an incomplete head
	refused  []byte // the beginning of a head that was refused
	interim  [][]byte
	interimN int

	state         string // how the answer has ended; "" = not yet
	trailingBytes bool   // bytes came after its end
	answeredEarly bool   // it began before the whole request was written
	fault         *relay.Error

	callerState     callerState
	gone            bool // the record says that the caller did not get the whole answer
	leftBefore      bool // the caller had left, or closed its sending side, before an answer without a length began
	continued       bool // a 100 went to the caller
	responseStarted bool // a byte of a final answer went to the caller
	begun           bool // the beginning of a final answer may have gone out, or would have to a caller
	out             []byte
	space           reservation // for out and partial
	cutAt           time.Time   // when an answer that nobody reads is cut; zero = never
	checkCallerAt   time.Time   // next check of the caller; zero = none
	leftAt          time.Time   // when a caller was seen to have left before the final head; zero = not
	storeBy         time.Time   // when the event has to be stored, from the final head on
}

// callerState says how far a caller still takes the answer.
type callerState uint8

const (
	callerReads      callerState = iota
	callerHalfClosed             // it has closed its sending side; it may read on
	callerGone                   // it takes no more
	callerPartial                // it has not received all bytes that were written to it
)

// acceptance says how much of the event was handed over to the store.
type acceptance uint8

const (
	notAccepted   acceptance = iota
	acceptedPart             // the request was not whole yet
	acceptedWhole            // all of it, or it was stored before
)

// times are points of the monotonic clock.
type times struct {
	start, admitted, open, whole, first, end time.Time
}

// verdict is the result of the loop.
type verdict uint8

const (
	goOn      verdict = iota
	complete          // the answer has ended and is stored
	failed            // fault says why
	notSent           // no byte of the request was sent
	untouched         // the channel has taken no byte; another one may be tried
	refused           // the request did not come whole
	upgraded          // the connection was upgraded, and that is stored
)

// exchange returns an empty exchange from the pool.
func (d *Delivery) exchange(st *registry.Alias, a *relay.Alias) *exchange {
	x, _ := d.exchanges.Get().(*exchange)
	up, first, timer, scratch, out, partial := x.uploadDone, x.firstDone, x.timer, x.scratch, x.out, x.partial
	pending := [2][]*relay.Ticket{x.rec.pending, x.res.pending}
	*x = exchange{d: d, st: st, alias: a, timer: timer}
	x.uploadDone, x.firstDone, x.scratch, x.out, x.partial = up, first, scratch, out[:0], partial[:0]
	x.rec.pending, x.res.pending = pending[0][:0], pending[1][:0]
	x.space = reservation{budget: d.opt.Budget, account: a.Owner}
	x.rec.space, x.res.space = x.space, x.space
	x.rec.over, x.res.over = d.cutOver, d.cutOver
	x.raw.SetSeed(d.seed)
	x.written.SetSeed(d.seed)
	x.at.start = time.Now()
	x.reached = true
	x.responseTimeout = d.opt.ResponseTimeout
	if t := a.Settings.ResponseTimeout; t != nil {
		x.responseTimeout = *t
	}
	return x
}

// ref names the attempt of the exchange.
func (x *exchange) ref() relay.AttemptRef {
	return relay.AttemptRef{Event: x.event.ID, N: x.attempt.N}
}

// release puts the exchange back into the pool. No other goroutine may use it any more.
func (x *exchange) release() {
	x.timer.Stop()
	x.space.release()
	x.rec.release()
	x.res.release()
	x.releaseChannel()
	if x.event != nil {
		x.d.underWay.remove(x.ref())
	}
	if x.uploading { // a bug: the next exchange would receive the result of this upload
		return
	}
	if cap(x.out) > writeSize {
		x.out = nil
	}
	if cap(x.scratch) > 2*maxFirstWrite {
		x.scratch = nil
	}
	x.event, x.att, x.ch = nil, nil, nil
	x.caller, x.head, x.body = nil, nil, nil
	x.d.exchanges.Put(x)
}

// releaseChannel closes the channel and releases its slot.
func (x *exchange) releaseChannel() {
	x.pooled.Close()
	x.pooled = nil
	x.releaseSlot()
}

// returnChannel gives the channel and its slot back once the answer has ended: the next
// request need not wait until this one is stored. An upload that still runs keeps them.
func (x *exchange) returnChannel() {
	if x.pooled == nil || x.state == relay.ResponseUpgraded {
		return
	}
	if x.uploading {
		return
	}
	if limit, ok := x.reusable(); ok {
		x.att.Pool.Park(x.pooled, limit)
		x.pooled = nil
	}
	x.releaseChannel()
}

// becomeSlow makes way for a request that a local server of one connection at a time may
// not have begun to read. A reused connection it has accepted already, so that no idle
// channel can be in the way of that.
func (x *exchange) becomeSlow() {
	if !x.slow && !x.att.Lazy {
		x.slow = true
		x.slowCounted = !x.reused && x.att.Pool.AddSlow()
	}
}

func (x *exchange) endSlow() {
	if x.slowCounted {
		x.slowCounted = false
		x.att.Pool.RemoveSlow()
	}
}

func (x *exchange) releaseSlot() {
	x.endSlow()
	if x.hasSlot {
		x.hasSlot = false
		x.att.Pool.RemoveInUse()
		x.slot.Release()
	}
}

// run sends the request to the local server and handles the answer, as far as both come.
func (x *exchange) run() verdict {
	if x.reqEnd.how != open && x.reqEnd.how != whole {
		if x.stored { // it would not be read another time either
			return x.fail(x.reqEnd.err)
		}
		return refused
	}
	if err := x.admit(); err != nil {
		return x.unsent(err)
	}
	for fresh := x.alias.Settings.FreshConnections; ; fresh = true {
		v := x.runOnChannel(fresh)
		if v != untouched {
			return v
		}
		x.pooled.Close()
		if fresh || !x.pooled.Idled() { // one that was idle may have ended before; any other one is not tried again
			x.pooled, x.ch = nil, nil
			return x.unsent(relay.ErrNotSent)
		}
		x.pooled, x.ch, x.at.whole = nil, nil, time.Time{}
	}
}

// unsent is the verdict when no byte of the request was sent.
func (x *exchange) unsent(err *relay.Error) verdict {
	if err == relay.ErrTunnelSlow {
		x.clientSlow, err = true, relay.ErrNotSent
	}
	count(x.d.counters.refused, err.Code)
	x.reached = false
	if err == relay.ErrNotSent {
		return notSent
	}
	return x.fail(err)
}

// runOnChannel runs the exchange on one channel.
func (x *exchange) runOnChannel(fresh bool) verdict {
	if err := x.open(fresh); err != nil {
		return x.unsent(err)
	}
	w, ended := x.writeFirst()
	if ended && !x.firstTaken(w) {
		return untouched
	}
	if ended && x.reqEnd.how == whole {
		x.allWritten.Store(!x.writeFailed)
		x.at.whole = x.at.open
		return x.loop()
	}
	if x.reqEnd.how != whole {
		if x.stored && x.expects() {
			x.continueCh = make(chan bool, 1)
		}
		if !x.stored {
			x.startAwaiting100()
		}
	}
	if !ended {
		x.firstRuns.Store(true)
		x.gathered, x.reqEnd = x.reqEnd, uploadResult{}
	}
	x.startUpload()
	return x.loop()
}

// fail ends the attempt. The rest of the request that is read afterwards takes time of the
// caller, not of the attempt.
func (x *exchange) fail(err *relay.Error) verdict {
	x.fault = err
	if x.at.end.IsZero() {
		x.at.end = time.Now()
	}
	return failed
}

// admit waits for a slot of the tunnel.
func (x *exchange) admit() *relay.Error {
	x.slot = x.att.Slot()
	x.d.counters.waiting.Inc()
	err := x.slot.Acquire(x.responseTimeout, x.lost, x.d.cut)
	x.d.counters.waiting.Dec()
	if err != nil {
		return err
	}
	x.hasSlot = true
	x.att.Pool.AddInUse()
	if closed(x.lost) { // while the event was stored, or while it waited for a slot
		return relay.ErrNotSent
	}
	x.at.admitted = time.Now()
	x.attempt.StartedAt = x.at.admitted
	return nil
}

// open takes an idle channel or opens one.
func (x *exchange) open(fresh bool) *relay.Error {
	l, err := x.att.Channel(x.caller, x.origin, fresh)
	if err != nil {
		return err
	}
	x.pooled, x.ch, x.reused, x.reached = l, l.Channel, l.Reused, true
	count(x.d.counters.opened, l.Origin())
	x.at.open = time.Now()
	if x.caller == nil && x.d.store.MayClaim() != nil {
		return relay.ErrNotSent // another node may have claimed it
	}
	x.kept = x.att.Pool.Kept()
	return nil
}

// loop handles one occurrence after the other until there is a verdict.
func (x *exchange) loop() verdict {
	for {
		x.advance()
		x.arm()
		v, lost, cut := goOn, x.lost, (<-chan struct{})(x.d.cut)
		if x.state != "" {
			lost, cut = nil, nil
		}
		select {
		case f := <-x.pooled.Reads():
			v = x.onFill(f)
		case u := <-x.uploadDone:
			v = x.onUpload(u)
		case <-pending(x.accept):
			v = x.onAccept()
		case <-pending(x.finish):
			v = x.onFinish()
		case <-x.timer.C:
			v = x.onTime(time.Now())
		case <-lost:
			v = x.onLost()
		case <-cut:
			v = x.fail(x.broken("the relay stopped"))
		case <-x.d.cutOver:
			v = x.storeLate()
		}
		if v != goOn {
			return v
		}
	}
}

func pending(t *relay.Ticket) <-chan struct{} {
	if t == nil {
		return nil
	}
	return t.Done()
}

// isDurable reports whether the event is stored.
func (x *exchange) isDurable() bool { return x.accepted != notAccepted && x.accept == nil }

// advance takes the steps that the state of the exchange allows now: to store, to write and to read.
func (x *exchange) advance() {
	if x.state != "" {
		if x.finish == nil {
			x.at.end = time.Now()
			x.amendWhole()
			x.sendFinish(relay.StateDelivered, nil, "")
			x.returnChannel()
		}
		return
	}
	if x.final != nil {
		if x.accepted == notAccepted {
			x.sendAccept()
		}
		if x.isDurable() {
			x.flush()
			x.begun = true
		}
	}
	if len(x.out) < maxHeldOutput {
		x.pooled.RequestRead()
	}
}

// arm sets the timer to the next time limit or check of the exchange.
func (x *exchange) arm() {
	var next time.Time
	sooner := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	switch w := x.at.whole; {
	case x.state != "":
		sooner(x.at.end.Add(storeWait))
	case x.final != nil:
		sooner(x.cutAt)
		sooner(x.checkCallerAt)
		if x.accept != nil {
			sooner(x.storeBy)
		}
	case w.IsZero():
		sooner(x.checkUploadAt)
		sooner(x.continueBy)
	default:
		if x.accepted == notAccepted {
			sooner(w.Add(acceptDelay))
		}
		if !x.slow && x.at.first.IsZero() && !x.att.Lazy {
			sooner(w.Add(pool.SlowAfter))
		}
		switch {
		case x.responseTimeout > 0:
			sooner(w.Add(x.responseTimeout))
		case x.caller != nil:
			x.checkCallerAt = later(x.checkCallerAt, w.Add(checkCallerEvery))
			sooner(x.checkCallerAt)
		}
	}
	if next.Equal(x.armed) {
		return
	}
	x.armed = next
	if next.IsZero() {
		x.timer.Stop()
		return
	}
	x.timer.Reset(time.Until(next))
}

// onTime handles the time limits and checks that are due.
func (x *exchange) onTime(now time.Time) verdict {
	x.armed = time.Time{}
	due := func(t time.Time) bool { return !t.IsZero() && !now.Before(t) }
	switch {
	case x.state != "", x.final != nil && x.accept != nil && due(x.storeBy):
		return x.storeLate()
	case x.final != nil:
		if due(x.cutAt) {
			x.state = relay.ResponseCut // nobody reads it, and it has reached its time limit
		} else if due(x.checkCallerAt) {
			x.checkCaller(now)
		}
		return goOn
	case x.at.whole.IsZero():
		if due(x.continueBy) {
			x.continueBy = time.Time{}
			if x.awaiting100.Load() {
				return x.fail(x.errNoAnswer())
			}
		}
		if due(x.checkUploadAt) {
			return x.checkUpload(now)
		}
		return goOn
	}
	since := now.Sub(x.at.whole)
	if since >= acceptDelay && x.accepted == notAccepted {
		x.sendAccept()
	}
	if since >= pool.SlowAfter && x.at.first.IsZero() {
		x.becomeSlow()
	}
	if x.responseTimeout > 0 && since >= x.responseTimeout {
		return x.fail(x.errNoAnswer())
	}
	if due(x.checkCallerAt) {
		x.checkCallerAt = now.Add(checkCallerEvery)
		return x.checkSilentCaller(now)
	}
	return goOn
}

// storeLate ends an exchange of which the store has said nothing in time.
func (x *exchange) storeLate() verdict {
	x.d.markStoreDegraded(x.st, errStoreTimeout)
	if x.state != "" && x.caller != nil { // it may be stored yet, although the caller is told that it is not
		a := x.ended(relay.StateDelivered, errResponseNotStored)
		x.d.store.Finish(x.event.ID, &a, "")
	}
	return x.fail(storeError(errStoreTimeout))
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (x *exchange) errNoAnswer() *relay.Error {
	return relay.Errorf(relay.CodeLocalTimeout, "the local server did not answer within %v", x.responseTimeout)
}

func (x *exchange) onUpload(u uploadResult) verdict {
	x.uploadEnded(u)
	switch {
	case u.how == notTaken && x.at.first.IsZero():
		return untouched
	case u.how == notTaken && x.reqEnd.how == open:
		x.startUpload() // an answer came all the same: the rest of the request is recorded
		return goOn
	case x.reqEnd.how == whole, x.final != nil: // if nothing of it was taken, the end of the channel follows
		return goOn
	case u.how == unread, u.how == unstored:
		return x.fail(u.err)
	}
	return refused
}

func (x *exchange) onAccept() verdict {
	err := cmp.Or(x.accept.Err(), x.rec.partsError())
	x.accept = nil
	if err != nil {
		x.d.markStoreDegraded(x.st, err)
		return x.fail(storeError(err))
	}
	x.d.markStoreHealthy(x.st)
	return goOn
}

func (x *exchange) onFinish() verdict {
	if x.accept != nil && closed(x.accept.Done()) {
		if v := x.onAccept(); v != goOn {
			return v // the reason why Finish failed, too
		}
	}
	if err := cmp.Or(x.finish.Err(), x.res.partsError()); err != nil {
		x.d.markStoreDegraded(x.st, err)
		x.recordUnstored()
		return x.fail(storeError(err))
	}
	if x.state == relay.ResponseUpgraded && x.caller != nil {
		return upgraded
	}
	return complete
}

// onLost fails the exchange, unless bytes of the answer have already arrived.
func (x *exchange) onLost() verdict {
	select {
	case f := <-x.pooled.Reads():
		return x.onFill(f)
	default:
		return x.tunnelLost()
	}
}

// tunnelLost fails the exchange, unless its first write still ran and took nothing: the write ends
// with its channel, about when the tunnel does.
func (x *exchange) tunnelLost() verdict {
	if x.uploading && x.at.first.IsZero() {
		select {
		case u := <-x.uploadDone:
			if v := x.onUpload(u); v != goOn {
				return v
			}
		case <-time.After(lastWriteWait):
		}
	}
	return x.fail(x.broken("the tunnel went away"))
}

// broken is the error of an exchange that could not go on because of what has happened.
func (x *exchange) broken(what string) *relay.Error {
	if x.final != nil {
		return relay.Errorf(relay.CodeTunnelLost, "%s inside the local server's answer; it has run, but its answer is not whole", what)
	}
	return relay.Errorf(relay.CodeTunnelLost, "%s before the local server had answered; it is not known what became of the request", what)
}

// onFill takes what the local server sent.
func (x *exchange) onFill(f relay.Fill) verdict {
	x.pooled.ReadDone()
	if f.N > 0 {
		if x.at.first.IsZero() {
			x.at.first = time.Now()
			x.endSlow()
			x.att.Pool.NoteAnswer(x.kept, x.reused)
			x.answeredEarly = !x.allWritten.Load()
		}
		if v := x.onBytes(x.pooled.Bytes(f)); v != goOn {
			return v
		}
	}
	switch {
	case f.Err == nil:
		return goOn
	case x.state != "":
		x.trailingBytes = true
		return goOn
	}
	return x.onChannelEnd(f.Err)
}

// onChannelEnd decides what the end of the local server's side means.
func (x *exchange) onChannelEnd(err error) verdict {
	orderly := errors.Is(err, io.EOF)
	switch {
	case errors.Is(err, budget.ErrOver) && (x.final == nil || x.caller != nil && x.callerState < callerGone && !x.responseStarted):
		return x.fail(relay.Errorf(relay.CodeOverloaded, "the local server's answer found no buffer space; try again in a moment"))
	case errors.Is(err, budget.ErrOver): // the caller takes it too slowly, and sees a broken transfer
		x.state, x.callerState = relay.ResponseCut, callerPartial
		return goOn
	case orderly && x.resBody != nil && x.resBody.EOF() == nil:
		x.state = relay.ResponseComplete
		return goOn
	}
	early := x.at.first.IsZero()
	if orderly && early {
		if x.reused {
			x.att.Pool.DisableReuse("it closed a kept connection without an answer")
		}
		if why := x.ch.Refusal(refusalWait); why != nil {
			x.reached = false
			return x.fail(registry.OpenError(why))
		}
	}
	if x.tunnelEnded(!orderly && !errors.Is(err, io.ErrUnexpectedEOF)) {
		return x.tunnelLost()
	}
	switch {
	case x.final != nil:
		x.state = relay.ResponseTruncated
		return x.fail(relay.Errorf(relay.CodeLocalClosed, "the local server broke off inside its answer"))
	case x.reused && early:
		return x.fail(relay.Errorf(relay.CodeLocalClosed, "the local server closed a kept connection without an answer; each request gets its own from now on"))
	}
	return x.fail(relay.Errorf(relay.CodeLocalClosed, "the local server closed the connection without an answer; if it speaks TLS, use --target https://… of relay up"))
}

// tunnelEnded reports whether a channel has ended with its tunnel. abnormal tells that the
// channel did not end in a way of its own.
func (x *exchange) tunnelEnded(abnormal bool) bool {
	if abnormal && !x.att.Serves() {
		return true
	}
	select {
	case <-x.lost:
		return true
	case <-time.After(100 * time.Millisecond): // channels end a moment before the SSH gate calls Detach
		return false
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
