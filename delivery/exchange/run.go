package exchange

import (
	"context"
	"errors"
	"runtime/debug"
	"time"

	"relay"
)

// run is one exchange. Only the goroutine of Run uses it, except send; see sender.
type run struct {
	ctx     context.Context
	q       *Request
	conn    Conn // nil once the connection was given back
	journal Journal
	send    sender
	answer  answer
	out     output

	steps
	end          requestEnd // how the request has ended so far, by what was read of it and by the sender
	sending      bool       // the goroutine of the sender is running
	fault        *relay.Error
	maybeReached bool           // false = certainly no byte reached the local server
	gone         bool           // the record says that the caller did not get the whole answer
	slow         bool           // slowAfter has passed before the first byte of an answer
	attempt      *relay.Attempt // as it was given to the journal; nil = not given yet
	way          string         // relay.ConnectionNew or relay.ConnectionReused

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

// times are the times at which the connection was opened or taken, the whole request was sent, the first byte of an answer
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
	continueLine time.Time // end of the wait for a 100 Continue of the local server; then the exchange fails, and readToEnd sends a 100, so that the body can be recorded
	leftAt       time.Time // when the exchange found that the caller has left, before the final head
}

// Errors of transfer.
var (
	errFault    = errors.New("the exchange has failed") // the field fault of run has the reason
	errUntaken  = errors.New("not one byte of the request was taken")
	errNotWhole = errors.New("the request did not come whole")
)

// Run sends a request through conn, passes the response to sink and records both. A nil sink means that
// there is no caller. The end of ctx means that the tunnel is lost. When Run returns, it has passed every
// step of the record to the journal, and has waited for those on which the answer to the caller depends. conn is
// closed or kept for another request, unless the result is Untaken without an Err.
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
	x := &run{ctx: ctx, q: q, conn: conn, journal: journal, maybeReached: conn != nil, end: q.end}
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

// step handles what comes next before the end of the response.
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

// result ends an exchange whose transfer has ended with err, and returns its result.
func (x *run) result(err error) Result {
	switch {
	case errors.Is(err, errUntaken):
		return Result{Untaken: true}
	case x.q.Queued && err != nil && !x.maybeReached && x.conn != nil:
		_ = x.conn.Close()
		x.endStoredSender()
		return Result{Untaken: true, Err: x.fault}
	case err == nil && x.answer.state == relay.ResponseUpgraded && x.out.sink != nil:
		// The Result gets the attempt as it was before the splice, so that the metrics do not count the time of
		// the splice.
		a := x.attempt
		x.splice()
		x.attempt = a
		return x.made(nil, true)
	case err == nil:
		return x.answered()
	case errors.Is(err, errNotWhole) && !x.q.stored:
		return x.refuse()
	case errors.Is(err, errNotWhole):
		x.fault = x.end.err
	}
	return x.failed()
}
