package delivery

import (
	"hash/maphash"
	"net/netip"
	"sync/atomic"
	"time"

	"relay"
	"relay/wire"
)

// exchange is one request on its way to a local server and the answer on its way
// back: an original with its caller, or a replay or queued delivery with nobody.
// One goroutine runs it; a second one sends what does not fit into the first write.
type exchange struct {
	d      *Delivery
	st     *aliasState
	alias  *relay.Alias
	hold   *hold
	lost   <-chan struct{}
	origin netip.AddrPort

	event   *relay.Event  // until Accept: ours; afterwards only read
	attempt relay.Attempt // as far as known
	queued  bool          // a queued delivery: what reached nobody goes back

	// The request, and what was sent of it.
	req       request
	wire      []byte // head as it is sent
	first     []byte // first write
	scratch   []byte
	raw       maphash.Hash // over the request as it came
	written   maphash.Hash // over what the channel took
	deaf      bool         // the channel takes no more; of the upload while that runs
	held      atomic.Bool  // the caller keeps the body back until a 100, and nobody has sent it
	sent      atomic.Bool  // the last byte was written
	writing   atomic.Int64 // since when the upload is in a write: ns behind at.start; 0 = it is not
	enough    atomic.Bool  // the upload is to stop
	goAhead   chan bool    // to a body that waits for 100 Continue; nil = none does
	up        chan ended
	uploading bool
	reqEnd    ended

	ch     relay.Channel
	line   *line
	places places
	placed bool
	reused bool

	// The answer.
	final     *wire.Head
	body      *wire.Body
	res       recording
	head      []byte // an incomplete head
	interim   [][]byte
	interimN  int
	continued bool // a 100 went to the caller
	out       []byte
	done      bool // the answer has ended
	state     string
	extra     bool // something came behind the end
	early     bool // it began before the request was written whole
	begun     bool // a byte of a final answer went to the caller
	silent    bool // the caller takes no more
	short     bool // and has not had all that was written
	ended     bool // the caller has ended their side; perhaps they read on
	reached   bool // false: it is known that no byte reached the local server
	fault     *relay.Error

	accept, finish *relay.Ticket
	accepted       bool // Accept was called, or is not needed
	acceptedWhole  bool
	durable        bool
	acceptDue      bool
	slow           bool // T2 has passed; the pool counts it until the first byte of an answer

	at       marks
	patience time.Duration // T3
	cutAt    time.Time     // T4; zero = none
	lookAt   time.Time     // next look after the caller; zero = none
	pushAt   time.Time     // next look after the upload; zero = none
	goAt     time.Time     // end of waiting for somebody to let the body go; zero = none
	timer    *time.Timer
	armed    time.Time
}

// marks are points of the monotonic clock.
type marks struct {
	start, placed, open, whole, first, end time.Time
}

// verdict is what the loop came to.
type verdict uint8

const (
	goOn     verdict = iota
	complete         // the answer has ended and is stored
	failed           // fault says why
	unsent           // not one byte left us
	refused          // the request itself went bad
	spliced          // the connection was upgraded, and that is stored
)

func newExchange(d *Delivery) *exchange {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return &exchange{d: d, up: make(chan ended, 1), timer: t}
}

// exchange gives a clean one from the pool.
func (d *Delivery) exchange(st *aliasState, a *relay.Alias) *exchange {
	x, _ := d.exchanges.Get().(*exchange)
	up, timer, scratch, out, head := x.up, x.timer, x.scratch, x.out, x.head
	pending := [2][]*relay.Ticket{x.req.rec.pending, x.res.pending}
	*x = exchange{d: d, st: st, alias: a, up: up, timer: timer, scratch: scratch, out: out[:0], head: head[:0]}
	x.req.rec.pending, x.res.pending = pending[0][:0], pending[1][:0]
	x.raw.SetSeed(d.seed)
	x.written.SetSeed(d.seed)
	x.at.start = time.Now()
	x.reached = true
	x.patience = d.opt.ResponseTimeout
	if t := a.Settings.ResponseTimeout; t != nil {
		x.patience = *t
	}
	return x
}

// release gives the exchange back to the pool; nothing of it may be in use.
func (x *exchange) release() {
	x.timer.Stop()
	x.leave()
	if x.uploading { // must not be: its last word would be taken for that of the next exchange
		return
	}
	if cap(x.out) > writePiece {
		x.out = nil
	}
	if cap(x.scratch) > 2*firstPiece {
		x.scratch = nil
	}
	x.event, x.hold, x.line, x.ch = nil, nil, nil, nil
	x.req.caller, x.req.msg, x.req.head, x.req.body, x.req.reserve = nil, nil, nil, nil, nil
	x.req.rec.data, x.req.rec.first, x.res.data, x.res.first = nil, nil, nil, nil
	x.d.exchanges.Put(x)
}

// leave drops the channel and gives its place back.
func (x *exchange) leave() {
	if x.line != nil {
		x.line.close()
		x.line = nil
	}
	x.giveUp()
}

// returnChannel gives the channel and its slot back once the answer has ended: the next
// request need not wait until this one is stored. An upload that still runs keeps them.
func (x *exchange) returnChannel() {
	if x.line == nil || x.state == relay.ResponseUpgraded {
		return
	}
	x.distrust()
	if x.uploading {
		return
	}
	if x.reqEnd.how == whole {
		x.park()
	}
	x.leave()
}

// park keeps the channel for another request if it may carry one.
func (x *exchange) park() {
	if limit, ok := x.reusable(); ok {
		x.hold.pool.park(x.line, limit)
		x.line = nil
	}
}

// becomeSlow makes way for a request that a local server of one connection at a time may
// not have begun to read.
func (x *exchange) becomeSlow() {
	if !x.slow && !x.hold.lazy {
		x.slow = true
		x.hold.pool.addSlow()
	}
}

func (x *exchange) endSlow() {
	if x.slow {
		x.slow = false
		x.hold.pool.removeSlow()
	}
}

func (x *exchange) giveUp() {
	x.endSlow()
	if x.placed {
		x.placed = false
		x.hold.pool.unuse()
		x.places.release()
	}
}

// run carries the request to the local server and the answer as far as it comes.
func (x *exchange) run() verdict {
	if x.reqEnd.how != open && x.reqEnd.how != whole {
		if x.req.msg != nil { // it would not be read another time either
			return x.fail(x.reqEnd.err)
		}
		return refused
	}
	if err := x.connect(); err != nil {
		x.d.noted.refused.add(err.Code)
		x.reached = false
		if err == relay.ErrNotSent {
			return unsent
		}
		return x.fail(err)
	}
	if x.reqEnd.how == whole {
		x.sent.Store(!x.deaf)
		x.at.whole = x.at.open
	} else {
		if x.req.msg != nil && x.expects() {
			x.goAhead = make(chan bool, 1)
		}
		if x.req.msg == nil {
			x.holds()
		}
		x.startUpload()
	}
	return x.loop()
}

func (x *exchange) fail(err *relay.Error) verdict {
	x.fault = err
	return failed
}

// connect finds a channel and writes the first piece. A second try is made only
// after a channel that had waited proved that not one byte had left.
func (x *exchange) connect() *relay.Error {
	x.places = places{tunnel: x.hold.slot, owner: x.d.registry.account(x.alias.Owner), all: x.d.all}
	x.d.noted.waiting.Add(1)
	err := x.places.acquire(x.patience, x.lost, x.d.cut)
	x.d.noted.waiting.Add(-1)
	if err != nil {
		return err
	}
	x.placed = true
	x.hold.pool.use()
	if closed(x.lost) { // while it was stored, or waited for a place
		return relay.ErrNotSent
	}
	x.at.placed = time.Now()
	x.attempt.StartedAt = x.at.placed
	fresh := x.alias.Settings.FreshConnections
	for {
		l, err := x.hold.take(x, fresh)
		if err != nil {
			return err
		}
		x.line, x.ch, x.reused = l, l.ch, l.kept
		x.d.noted.opened.add(l.way())
		x.at.open = time.Now()
		n, werr := l.ch.Write(x.first)
		x.written.Write(x.first[:n])
		if n > 0 || werr == nil {
			x.deaf, x.reached = werr != nil || n < len(x.first), true
			x.hold.pool.refill()
			return nil
		}
		waited := l.spare
		l.close()
		x.line, x.ch = nil, nil
		if fresh || !waited {
			return relay.ErrNotSent
		}
		fresh = true
	}
}

// loop waits for what happens next until there is a verdict.
func (x *exchange) loop() verdict {
	for {
		x.advance()
		x.arm()
		v, lost, cut := goOn, x.lost, (<-chan struct{})(x.d.cut)
		if x.done {
			lost, cut = nil, nil
		}
		select {
		case f := <-x.line.answers():
			v = x.onFill(f)
		case u := <-x.up:
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

// advance does what is possible now.
func (x *exchange) advance() {
	if !x.accepted && (x.final != nil || x.reqEnd.how == whole && x.acceptDue) {
		x.sendAccept()
	}
	if x.done && x.finish == nil {
		x.at.end = time.Now()
		x.sendFinish(relay.StateDelivered, nil, "")
		x.returnChannel()
	}
	if x.final != nil && x.durable && !x.done {
		x.flush()
	}
	if !x.done && len(x.out) < heldOutput {
		x.line.ask()
	}
}
