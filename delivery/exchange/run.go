package exchange

import (
	"context"
	"errors"
	"io"
	"runtime/debug"
	"time"

	"relay"
	"relay/budget"
)

// run is one exchange. Only the goroutine of Run uses it.
type run struct {
	ctx     context.Context
	q       *Request
	conn    Conn // nil once the connection was given back
	journal Journal
	send    sender
	answer  answer
	out     output

	steps
	end     requestEnd // the result of the sender
	sending bool       // the goroutine of the sender is running
	fault   *relay.Error
	reached bool           // false = certainly no byte reached the local server
	gone    bool           // the record says that the caller did not get the whole answer
	slow    bool           // slowAfter has passed before the first byte of an answer
	attempt *relay.Attempt // as it was given to the journal; nil = not given yet
	way     string         // relay.ConnectionNew or relay.ConnectionReused

	at    times
	timer *time.Timer
	due   deadlines
}

// steps are the steps that were passed to the journal, with the time limit and the result of storing them.
type steps struct {
	accept, finish *relay.Ticket // accept becomes nil when it has resolved
	storeBy        time.Time     // the time by which the event must be stored, set at the final head
	storeErr       error         // the error of a failed step
	recorded       bool          // all steps are stored
}

// times are the times at which the connection was opened, the whole request was sent, the first byte of an answer
// came, and the attempt ended; zero = not yet.
type times struct {
	open, whole, first, end time.Time
}

// deadlines are the times of the next checks of the loop; zero = no check.
type deadlines struct {
	armed        time.Time // the time for which the timer is set
	resumed      time.Time // no limit ends the exchange before this time; set when a limit is noticed late
	upload       time.Time // next check of the sender
	caller       time.Time // next check of the caller before there is an answer
	continueLine time.Time // end of the wait for a 100 Continue of the local server; then the exchange itself sends one to the caller
	leftAt       time.Time // when the exchange found that the caller has left, before the final head
}

// Errors of transfer.
var (
	errFault    = errors.New("the exchange has failed") // the field fault of run has the reason
	errUntaken  = errors.New("not one byte of the request was taken")
	errNotWhole = errors.New("the request did not come whole")
)

// Run sends a request through conn, passes the response to sink and records both. A nil sink means that
// there is no caller. The end of ctx means that the tunnel is lost. When Run returns, every step of the
// record is stored or has failed, and conn is released, unless the result says that conn was not used.
func Run(ctx context.Context, q *Request, conn Conn, journal Journal, sink Sink) (res Result) {
	x := newRun(ctx, q, conn, journal, sink)
	defer x.release()
	defer func() {
		if v := recover(); v != nil {
			res = x.panicked(v, debug.Stack())
		}
	}()
	return x.result(x.transfer())
}

// Fail records a request that got no connection; why is the reason.
func Fail(q *Request, why *relay.Error, journal Journal, sink Sink) Result {
	x := newRun(context.Background(), q, nil, journal, sink)
	defer x.release()
	return x.result(x.fail(why))
}

// Refuse records a request that did not arrive completely and of which nothing was sent.
func Refuse(q *Request, journal Journal, sink Sink) Result {
	x := newRun(context.Background(), q, nil, journal, sink)
	defer x.release()
	return x.result(errNotWhole)
}

func newRun(ctx context.Context, q *Request, conn Conn, journal Journal, sink Sink) *run {
	x := &run{ctx: ctx, q: q, conn: conn, journal: journal, reached: conn != nil, end: q.end}
	x.send.q, x.send.conn = q, conn
	space := q.rec.space
	space.bytes = 0
	x.out.sink, x.out.space = sink, space
	if q.left {
		x.out.reader = readerLeft
	}
	x.answer.request, x.answer.maxHead = q.Head, q.o.MaxHead
	x.answer.rec = recording{journal: journal, id: q.Event.ID, n: q.Attempt.N, limit: q.o.MaxResponseCapture, space: space, over: q.o.Base.Done()}
	if x.timer, _ = q.o.timers.Get().(*time.Timer); x.timer == nil {
		x.timer = time.NewTimer(time.Hour)
		x.timer.Stop()
	}
	if conn != nil {
		x.at.open = time.Now()
		x.way = relay.ConnectionNew
		if conn.Reused() {
			x.way = relay.ConnectionReused
		}
	}
	return x
}

func (x *run) release() {
	x.timer.Stop()
	x.q.o.timers.Put(x.timer)
	x.out.space.release()
	x.answer.rec.release()
}

// fail ends the attempt because of err. The time of later reads of the request does not count for the
// attempt.
func (x *run) fail(err *relay.Error) error {
	x.fault = err
	if x.at.end.IsZero() {
		x.at.end = time.Now()
	}
	return errFault
}

// transfer sends the request, receives the response and waits until both are stored.
func (x *run) transfer() error {
	if x.end.how != endOpen && x.end.how != endWhole {
		return errNotWhole
	}
	rest, ok := x.send.sendFirst()
	if !ok {
		return errUntaken
	}
	if x.end.how == endWhole && len(rest) == 0 {
		x.send.whole.Store(!x.send.failed && !x.send.late)
		x.at.whole = time.Now()
		// All bytes of the first piece were sent.
		x.q.freePiece()
	} else {
		x.startSender(rest)
	}
	for x.answer.state == "" {
		if err := x.step(); err != nil {
			return err
		}
	}
	return x.store()
}

func (x *run) startSender(rest []byte) {
	q, s := x.q, &x.send
	if q.end.how != endWhole {
		if q.stored && q.expects() {
			s.proceed = make(chan bool, 1)
		}
		if !q.stored && !s.failed {
			x.awaitContinue()
		}
	}
	if len(rest) == 0 {
		// All bytes of the first piece were sent.
		q.freePiece()
	}
	x.end, x.sending, x.due.upload = requestEnd{}, true, time.Now().Add(slowAfter)
	s.start(rest)
}

// awaitContinue notes that the caller sends its body only after 100 Continue (RFC 9110, section
// 10.1.1). The stall timeout does not apply to such a body, but the local server has to respond within the
// response timeout.
func (x *run) awaitContinue() {
	q := x.q
	if !q.Head.Expect || q.continued || len(q.first) > len(q.sentHead) {
		return
	}
	x.send.awaiting100.Store(true)
	if q.ResponseTimeout > 0 {
		x.due.continueLine = x.at.open.Add(q.ResponseTimeout)
	}
}

// step handles the next event of the loop before the end of the response.
func (x *run) step() error {
	if x.answer.final != nil {
		if !x.q.Accepted() {
			x.sendAccept()
		}
		if x.isDurable() {
			x.out.flush()
		}
	}
	x.arm()
	var ready <-chan struct{}
	if len(x.out.held) < maxHeldOutput {
		ready = x.conn.Ready()
	}
	select {
	case <-ready:
		return x.read()
	case u := <-x.send.done:
		return x.sent(u)
	case <-pending(x.accept):
		return x.onAccept()
	case <-x.timer.C:
		return x.onTime(time.Now())
	case <-x.ctx.Done():
		return x.onLost()
	case <-x.q.o.Cut.Done():
		// Base ends later than Cut, so Cut covers both.
		return x.fail(x.broken("the relay stopped"))
	}
}

// isDurable reports whether the event is stored.
func (x *run) isDurable() bool { return x.q.Accepted() && x.accept == nil }

// read reads the bytes that the local server has sent.
func (x *run) read() error {
	b := newPiece()
	defer pieces.Put(b)
	n, err := x.conn.Read(*b)
	if n > 0 {
		if x.at.first.IsZero() {
			x.at.first = time.Now()
			x.answer.early = !x.send.whole.Load()
		}
		if e := x.take((*b)[:n]); e != nil {
			return e
		}
	}
	switch {
	case err == nil:
		return nil
	case x.answer.state != "":
		x.answer.trailing = true
		return nil
	}
	return x.onConnEnd(err)
}

// take handles bytes of the local server: heads first, then the body.
func (x *run) take(p []byte) error {
	a := &x.answer
	for a.final == nil {
		if len(p) == 0 {
			return nil
		}
		h, rest, err := a.head(p)
		switch {
		case err != nil:
			return x.fail(err)
		case h == nil:
			return x.reserve()
		case h.Status < 200 && h.Status != 101:
			if err := a.addInterim(h); err != nil {
				return x.fail(err)
			}
			x.passInterim(h.Status, h.Raw)
		default:
			x.begin(h)
		}
		p = rest
	}
	switch {
	case a.state == relay.ResponseUpgraded:
		x.out.hold(p)
		return x.reserve()
	case a.state != "":
		a.trailing = a.trailing || len(p) > 0
		return nil
	}
	return x.takeBody(p)
}

// passInterim sends a 1xx response to the caller at once. Nothing has to be stored first, because
// it does not tell the caller that the request was accepted.
func (x *run) passInterim(status int, head []byte) {
	if status == 100 {
		x.q.continued = true
		x.send.awaiting100.Store(false)
	}
	x.send.signalProceed(true)
	if x.q.Head.Minor > 0 {
		x.out.write(head)
	}
}

// takeBody handles body bytes. It never passes on bytes that follow the body.
func (x *run) takeBody(p []byte) error {
	a := &x.answer
	n, ended, err := a.feed(p)
	if !ended && err == nil && x.isDurable() {
		x.out.flush()
		x.out.started = x.out.write(p[:n]) || x.out.started
	} else {
		x.out.hold(p[:n])
	}
	if e := x.reserve(); e != nil {
		return e
	}
	switch e := a.rec.partsError(); {
	case e != nil:
		return x.fail(StoreError(e))
	case err != nil:
		// The response has begun, whether or not its head was passed on, so it is recorded like one whose
		// connection breaks off.
		a.state = relay.ResponseTruncated
		return x.fail(relay.AsError(err))
	}
	if _, full := a.rec.progress(); full && !ended && !x.out.cutAt.IsZero() && !x.out.reads() {
		a.state = relay.ResponseCut
	}
	return nil
}

// reserve reserves buffer space for the bytes of the response that the exchange holds. Without space
// the exchange fails as overloaded. A caller that has already got a part of the response then gets no
// more of it, and the response is recorded as far as it arrived.
func (x *run) reserve() error {
	if x.out.space.cover(len(x.out.held) + len(x.answer.partial)) {
		return nil
	}
	if x.out.started {
		x.out.leave(readerCut)
		return nil
	}
	x.out.held, x.answer.partial = nil, nil
	x.out.space.release()
	return x.fail(relay.Errorf(relay.CodeOverloaded, "the memory for responses in progress is used up; retry in a moment"))
}

// onConnEnd handles the end of the local server's side of the connection, which err describes.
func (x *run) onConnEnd(err error) error {
	a, orderly := &x.answer, errors.Is(err, io.EOF)
	switch {
	case errors.Is(err, budget.ErrOver) && (a.final == nil || x.out.reads() && !x.out.started):
		return x.fail(relay.Errorf(relay.CodeOverloaded, "no buffer space for the local server's answer; try again in a moment"))
	case errors.Is(err, budget.ErrOver):
		// The caller reads too slowly, and gets a broken transfer.
		a.state = relay.ResponseCut
		x.out.leave(readerCut)
		return nil
	case orderly && a.endsByClose():
		a.state = relay.ResponseComplete
		return nil
	}
	if orderly && x.at.first.IsZero() {
		if why := x.conn.End(refusalWait).Refusal; why != nil {
			x.reached = false
			return x.fail(withRetry(why))
		}
	}
	if x.tunnelEnded(!orderly && !errors.Is(err, io.ErrUnexpectedEOF)) {
		return x.tunnelLost()
	}
	switch {
	case a.final != nil:
		a.state = relay.ResponseTruncated
		return x.fail(relay.Errorf(relay.CodeLocalClosed, "the local server broke off inside its answer"))
	case x.conn.Reused() && x.at.first.IsZero():
		return x.fail(relay.Errorf(relay.CodeLocalClosed, "the local server closed a kept connection without an answer; each request gets its own from now on"))
	}
	return x.fail(relay.Errorf(relay.CodeLocalClosed, "the local server closed the connection without an answer; if it speaks TLS, use --target https://… of relay up"))
}

// tunnelEnded reports whether a connection has ended because its tunnel did. abnormal means that the read
// from the connection failed in a way that only the loss of the tunnel explains.
func (x *run) tunnelEnded(abnormal bool) bool {
	if abnormal {
		return true
	}
	select {
	case <-x.ctx.Done():
	case <-time.After(lostWait):
		// This wait is needed because x/crypto ends channels a moment before it reports the end of the tunnel.
	}
	return x.ctx.Err() != nil
}

// onLost handles the loss of the tunnel: it fails the exchange, unless bytes of the response have
// already arrived.
func (x *run) onLost() error {
	select {
	case <-x.conn.Ready():
		return x.read()
	default:
		return x.tunnelLost()
	}
}

// tunnelLost fails the exchange as tunnel-lost, unless its first write is still running and no byte was
// taken: then the result of that write decides. The write ends at about the same time as the tunnel.
func (x *run) tunnelLost() error {
	if x.sending && x.at.first.IsZero() {
		select {
		case u := <-x.send.done:
			if err := x.sent(u); err != nil {
				return err
			}
		case <-time.After(lastWriteWait):
		}
	}
	if x.answer.final != nil {
		// One read may have returned both the head of the response and the error of the lost tunnel.
		x.answer.state = relay.ResponseTruncated
	}
	return x.fail(x.broken("the tunnel went away"))
}

// broken returns the error of an exchange that could not continue. The parameter what is a clause that names
// the event, such as "the relay stopped".
func (x *run) broken(what string) *relay.Error {
	if x.answer.final != nil {
		return relay.Errorf(relay.CodeTunnelLost, "%s inside the local server's answer; it has run, but its answer is not whole", what)
	}
	return relay.Errorf(relay.CodeTunnelLost, "%s before the local server had answered; the outcome of the request is unknown", what)
}

// sent handles the result of the sender if it arrives before the end of the response.
func (x *run) sent(u sent) error {
	x.join(u)
	switch {
	case u.how == endUntaken && x.at.first.IsZero():
		return errUntaken
	case u.how == endUntaken && x.end.how == endOpen:
		// An answer came although no byte of the request was taken. The sender continues, to record the
		// request.
		x.startSender(nil)
		return nil
	case x.end.how == endWhole, x.answer.final != nil:
		// If no byte was taken, the next read reports the end of the connection.
		return nil
	case u.how == endUnreadable, u.how == endUnstored, u.how == endPanicked:
		return x.fail(u.err)
	}
	return errNotWhole
}

// join stores the result of the sender, whose goroutine has ended.
func (x *run) join(u sent) {
	x.sending = false
	if u.how == endUntaken {
		x.send.failed, x.end = true, x.q.end
	} else {
		x.end, x.q.end = u.requestEnd, u.requestEnd
	}
	if x.end.how == endWhole {
		x.at.whole = u.at
	}
}
