package delivery

import (
	"hash/maphash"
	"net/netip"
	"sync/atomic"
	"time"

	"relay"
	"relay/delivery/pool"
	"relay/wire"
)

// exchange is one request on its way to a local server, and the answer on its way back.
// An original has a caller; a replay or a queued delivery has none. One goroutine runs
// the exchange; a second one uploads what does not fit into the first write.
type exchange struct {
	d      *Delivery
	st     *aliasState
	alias  *relay.Alias
	att    *attachment
	lost   <-chan struct{}
	origin netip.AddrPort

	event   *relay.Event  // not changed any more after Accept
	attempt relay.Attempt // as far as known
	queued  bool          // a queued delivery: it is queued again if no byte of it was sent

	// The request, and what was sent of it.
	req         request
	wire        []byte // head as it is sent
	first       []byte // first write
	scratch     []byte
	raw         maphash.Hash // over the request as it came
	written     maphash.Hash // over what the channel took
	writeFailed bool         // the channel takes no more; guarded by the upload while that runs
	awaiting100 atomic.Bool  // the caller holds the body back for a 100 Continue, and none was sent
	allWritten  atomic.Bool  // the last byte was written
	writing     atomic.Int64 // when the running write of the upload began, in ns after at.start; 0 = none runs
	stopReading atomic.Bool  // the upload is to stop
	continueCh  chan bool    // to an upload that waits for 100 Continue; nil = it does not wait
	uploadDone  chan uploadResult
	uploading   bool
	reqEnd      uploadResult

	ch      relay.Channel
	pooled  *pool.Channel
	slot    channelSlot
	hasSlot bool
	reused  bool
	kept    pool.KeptChannels // as the request was sent

	// The answer.
	final            *wire.Head
	body             *wire.Body
	res              recording
	head             []byte // an incomplete head
	interim          [][]byte
	interimN         int
	continued        bool // a 100 went to the caller
	out              []byte
	reserved         int64 // bytes reserved in the budget for out and head
	done             bool  // the answer has ended
	state            string
	trailingBytes    bool // bytes came after the end
	answeredEarly    bool // the answer began before the whole request was written
	responseStarted  bool // a byte of a final answer went to the caller
	callerGone       bool // the caller takes no more
	partialWrite     bool // the caller has not received all bytes that were written to it
	callerHalfClosed bool // the caller has closed its sending side; it may read on
	reached          bool // false: it is known that no byte reached the local server
	fault            *relay.Error

	accept, finish *relay.Ticket
	claim          func() relay.AttemptRef // of the next queued attempt; nil = not asked for
	claimEnd       *relay.Ticket           // claim returns its result once this has resolved
	accepted       bool                    // Accept was called, or is not needed
	acceptedWhole  bool
	durable        bool
	acceptDue      bool
	slow           bool // pool.SlowAfter has passed before the first byte of an answer
	slowCounted    bool // the pool counts it as slow until then

	at              times
	responseTimeout time.Duration // from the whole request to the first byte of the response; 0 = no limit
	cutAt           time.Time     // when an answer that nobody reads is cut; zero = never
	checkCallerAt   time.Time     // next check of the caller; zero = none
	checkUploadAt   time.Time     // next check of the upload; zero = none
	continueBy      time.Time     // when the wait for a 100 Continue ends; zero = none
	timer           *time.Timer
	armed           time.Time
}

// times are points of the monotonic clock.
type times struct {
	start, admitted, open, whole, first, end time.Time
}

// verdict is the result of the loop.
type verdict uint8

const (
	goOn     verdict = iota
	complete         // the answer has ended and is stored
	failed           // fault says why
	notSent          // no byte of the request was sent
	refused          // the request did not come whole
	upgraded         // the connection was upgraded, and that is stored
)

func newExchange(d *Delivery) *exchange {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return &exchange{d: d, uploadDone: make(chan uploadResult, 1), timer: t}
}

// exchange returns an empty exchange from the pool.
func (d *Delivery) exchange(st *aliasState, a *relay.Alias) *exchange {
	x, _ := d.exchanges.Get().(*exchange)
	up, timer, scratch, out, head := x.uploadDone, x.timer, x.scratch, x.out, x.head
	pending := [2][]*relay.Ticket{x.req.rec.pending, x.res.pending}
	*x = exchange{d: d, st: st, alias: a, uploadDone: up, timer: timer, scratch: scratch, out: out[:0], head: head[:0]}
	x.req.rec.pending, x.res.pending = pending[0][:0], pending[1][:0]
	for _, r := range []*recording{&x.req.rec, &x.res} {
		r.budget, r.account = d.opt.Budget, a.Owner
	}
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
	x.unreserve()
	x.req.rec.release()
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
	x.event, x.att, x.pooled, x.ch = nil, nil, nil, nil
	x.req.caller, x.req.msg, x.req.head, x.req.body, x.req.reserve = nil, nil, nil, nil, nil
	x.d.exchanges.Put(x)
}

// releaseChannel closes the channel and releases its slot.
func (x *exchange) releaseChannel() {
	if x.pooled != nil {
		x.pooled.Close()
		x.pooled = nil
	}
	x.releaseSlot()
}

// returnChannel gives the channel and its slot back once the answer has ended: the next
// request need not wait until this one is stored. An upload that still runs keeps them.
func (x *exchange) returnChannel() {
	if x.pooled == nil || x.state == relay.ResponseUpgraded {
		return
	}
	x.checkReusedAnswer()
	if x.uploading {
		return
	}
	if x.reqEnd.how == whole {
		x.park()
	}
	x.releaseChannel()
}

// park keeps the channel for another request if it may carry one.
func (x *exchange) park() {
	if limit, ok := x.reusable(); ok {
		x.att.pool.Park(x.pooled, limit)
		x.pooled = nil
	}
}

// becomeSlow makes way for a request that a local server of one connection at a time may
// not have begun to read. A reused connection it has accepted already, so that no idle
// channel can be in the way of that.
func (x *exchange) becomeSlow() {
	if !x.slow && !x.att.lazy {
		x.slow = true
		x.slowCounted = !x.reused && x.att.pool.AddSlow()
	}
}

func (x *exchange) endSlow() {
	if x.slowCounted {
		x.slowCounted = false
		x.att.pool.RemoveSlow()
	}
}

func (x *exchange) releaseSlot() {
	x.endSlow()
	if x.hasSlot {
		x.hasSlot = false
		x.att.pool.RemoveInUse()
		x.slot.release()
	}
}

// run sends the request to the local server and handles the answer, as far as both come.
func (x *exchange) run() verdict {
	if x.reqEnd.how != open && x.reqEnd.how != whole {
		if x.req.msg != nil { // it would not be read another time either
			return x.fail(x.reqEnd.err)
		}
		return refused
	}
	if err := x.connect(); err != nil {
		x.d.counters.refused.add(err.Code)
		x.reached = false
		if err == relay.ErrNotSent {
			return notSent
		}
		return x.fail(err)
	}
	if x.reqEnd.how == whole {
		x.allWritten.Store(!x.writeFailed)
		x.at.whole = x.at.open
	} else {
		if x.req.msg != nil && x.expects() {
			x.continueCh = make(chan bool, 1)
		}
		if x.req.msg == nil {
			x.startAwaiting100()
		}
		x.startUpload()
	}
	return x.loop()
}

func (x *exchange) fail(err *relay.Error) verdict {
	x.fault = err
	return failed
}

// connect takes or opens a channel and writes the first piece. It tries a second channel only
// if the first one was idle before and took no byte.
func (x *exchange) connect() *relay.Error {
	x.slot = x.att.slot()
	x.d.counters.waiting.Inc()
	err := x.slot.acquire(x.responseTimeout, x.lost, x.d.cut)
	x.d.counters.waiting.Dec()
	if err != nil {
		return err
	}
	x.hasSlot = true
	x.att.pool.AddInUse()
	if closed(x.lost) { // while the event was stored, or while it waited for a slot
		return relay.ErrNotSent
	}
	x.at.admitted = time.Now()
	x.attempt.StartedAt = x.at.admitted
	fresh := x.alias.Settings.FreshConnections
	for {
		l, err := x.att.channelFor(x, fresh)
		if err != nil {
			return err
		}
		x.pooled, x.ch, x.reused = l, l.Channel, l.Reused
		x.d.counters.opened.add(l.Origin())
		x.at.open = time.Now()
		if x.req.caller == nil && x.d.opt.MayClaim != nil && x.d.opt.MayClaim() != nil {
			return relay.ErrNotSent // another node may have claimed it
		}
		x.kept = x.att.pool.Kept()
		n, werr := l.Write(x.first)
		x.written.Write(x.first[:n])
		if n > 0 || werr == nil {
			x.att.requests.Add(1)
			x.writeFailed, x.reached = werr != nil || n < len(x.first), true
			x.att.pool.Refill()
			return nil
		}
		waited := l.Idled()
		l.Close()
		x.pooled, x.ch = nil, nil
		if fresh || !waited {
			return relay.ErrNotSent
		}
		fresh = true
	}
}

// loop handles one occurrence after the other until there is a verdict.
func (x *exchange) loop() verdict {
	for {
		x.advance()
		x.arm()
		v, lost, cut := goOn, x.lost, (<-chan struct{})(x.d.cut)
		if x.done {
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
			v = x.fail(x.stopped())
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

// advance takes the steps that the state of the exchange allows now: to store, to write and to read.
func (x *exchange) advance() {
	acceptNow := !x.accepted && (x.final != nil || x.reqEnd.how == whole && x.acceptDue)
	if x.done && x.finish == nil {
		x.at.end = time.Now()
		if acceptNow {
			x.sendAcceptAndFinish()
		} else {
			x.amendWhole()
			x.sendFinish(relay.StateDelivered, nil, "")
		}
		x.returnChannel()
	} else if acceptNow {
		x.sendAccept()
	}
	if x.final != nil && x.durable && !x.done {
		x.flush()
	}
	if !x.done && len(x.out) < maxHeldOutput {
		x.pooled.RequestRead()
	}
}
