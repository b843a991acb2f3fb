package exchange

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"relay"
	"relay/waits"
	"relay/wire"
)

// readyConn is a connection to a local server that has sent bytes.
type readyConn struct {
	net.Conn
	bytes string // what the local server has sent
}

// Ready implements relay.Conn.
func (c *readyConn) Ready() <-chan struct{} {
	ready := make(chan struct{}, 1)
	if c.bytes != "" {
		ready <- struct{}{}
	}
	return ready
}

// Read implements net.Conn.
func (c *readyConn) Read(p []byte) (int, error) {
	n := copy(p, c.bytes)
	c.bytes = c.bytes[n:]
	return n, nil
}

// These methods implement Conn.
func (c *readyConn) Reused() bool                    { return false }
func (c *readyConn) Slow()                           {}
func (c *readyConn) Upgraded()                       {}
func (c *readyConn) Keep(time.Duration, bool)        {}
func (c *readyConn) CloseWrite() error               { return nil }
func (c *readyConn) Close() error                    { return nil }
func (c *readyConn) End(time.Duration) relay.ConnEnd { return relay.ConnEnd{} }

// idleJournal takes steps and resolves none.
type idleJournal struct{ Journal }

// Accept implements Journal.
func (idleJournal) Accept(*relay.Event) *relay.Ticket { return relay.NewTicket() }

// halfClosedSink is a caller that has closed its sending side.
type halfClosedSink struct{ Sink }

// Presence implements Sink.
func (halfClosedSink) Presence() relay.Presence { return relay.CallerHalfClosed }

// waitingRun returns an exchange that waits for its local server, and its connection.
func waitingRun(t *testing.T) (*run, *readyConn) {
	head := []byte("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n")
	h, _, err := wire.Request(head, wire.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	o := &Options{Log: slog.New(slog.DiscardHandler), Cut: t.Context(), Base: t.Context()}
	e := &relay.Event{}
	e.Request.Head = head
	conn := &readyConn{}
	q := o.Receive(idleJournal{}, e, h, nil, 0)
	q.ResponseTimeout = time.Minute
	x := newRun(context.Background(), q, conn, idleJournal{}, nil)
	t.Cleanup(x.release)
	return x, conn
}

// timeLimit is a limit of an exchange.
type timeLimit struct {
	name    string
	set     func(x *run, at time.Time)   // makes the limit end at this time
	decided func(x *run, err error) bool // whether the limit has ended the exchange; err is the result of onTime
	inTime  func(x *run)                 // makes the awaited event happen in time; nil = the event is that the local server sends bytes
}

func timeLimits() []timeLimit {
	failed := func(code string) func(*run, error) bool {
		return func(x *run, err error) bool { return err != nil && x.fault.Code == code }
	}
	timedOut := failed(relay.CodeLocalTimeout)
	final := func(x *run) { x.answer.final = &wire.Head{Status: 200} }
	return []timeLimit{
		{name: "response timeout", decided: timedOut, set: func(x *run, at time.Time) { x.at.whole = at.Add(-x.q.ResponseTimeout) }},
		{name: "wait for 100 Continue", decided: timedOut, set: func(x *run, at time.Time) {
			x.due.continueLine = at
			x.send.awaiting100.Store(true)
		}},
		{name: "blocked upload", decided: timedOut, set: func(x *run, at time.Time) {
			x.q.began = at.Add(-x.q.ResponseTimeout - time.Second)
			x.send.writing.Store(int64(time.Second))
			x.send.onFirst.Store(true)
			x.due.upload = at
		}},
		{name: "caller that has left", decided: timedOut, set: func(x *run, at time.Time) {
			x.q.ResponseTimeout, x.out.sink = 0, halfClosedSink{}
			x.at.whole, x.due.leftAt, x.due.caller = at.Add(-2*defaultResponseTimeout), at.Add(-defaultResponseTimeout), at
		}},
		{
			name: "response without a reader", set: func(x *run, at time.Time) { final(x); x.out.cutAt = at },
			decided: func(x *run, _ error) bool { return x.answer.state == relay.ResponseCut },
			inTime:  func(x *run) { x.answer.state = relay.ResponseComplete },
		},
		{
			name: "Accept", set: func(x *run, at time.Time) { final(x); x.accept, x.storeBy = relay.NewTicket(), at },
			decided: failed(relay.CodeStoreUnavailable),
			inTime:  func(x *run) { x.accept.Resolve(nil) },
		},
	}
}

// TestLimitDecidesOnlyWhatHasNotCome: a time limit ends an exchange at its time, unless the awaited event has
// come by then. If the process notices the limit late, because it was stopped, the limit ends the exchange
// waits.CatchUp after it was noticed.
func TestLimitDecidesOnlyWhatHasNotCome(t *testing.T) {
	for _, l := range timeLimits() {
		t.Run(l.name, func(t *testing.T) {
			at := time.Now()
			begin := func() (*run, *readyConn) {
				x, c := waitingRun(t)
				l.set(x, at)
				x.due.armed = at
				return x, c
			}
			x, _ := begin()
			if !l.decided(x, x.onTime(at)) {
				t.Error("does not decide in time")
			}
			if l.name != "response without a reader" { // that limit ends in cutAnswer, which itself reads what has arrived
				x, c := begin()
				if l.inTime == nil {
					c.bytes = "HTTP/1.1 200 OK\r\n"
				} else {
					l.inTime(x)
				}
				if l.decided(x, x.onTime(at)) {
					t.Error("decides although the event has come")
				}
			}
			x, _ = begin()
			late := at.Add(time.Hour)
			if l.decided(x, x.onTime(late)) {
				t.Error("decides when it is noticed late")
			}
			x.arm()
			if want := late.Add(waits.CatchUp); !x.due.armed.Equal(want) {
				t.Errorf("looks again %v after it was noticed, want %v", x.due.armed.Sub(late), waits.CatchUp)
			}
			if !l.decided(x, x.onTime(x.due.armed.Add(waits.CatchUp))) {
				t.Error("does not decide CatchUp later, when this is noticed late as well")
			}
		})
	}
}

// TestLateStoreLimit: if the process notices the limit of the wait for the store an hour late, a step that is stored
// within waits.CatchUp after it was noticed still counts as in time.
func TestLateStoreLimit(t *testing.T) {
	x, _ := waitingRun(t)
	step := relay.NewTicket()
	x.setTimer(time.Now())
	x.due.armed = time.Now().Add(-time.Hour)
	time.AfterFunc(10*time.Millisecond, func() { step.Resolve(nil) })
	if !x.resolves(step) {
		t.Error("a step that was stored after a pause counts as late")
	}
}

// frozenConn is a connection to a local server in whose first Write this process is stopped for a while. The local
// server answers two seconds after the Write.
type frozenConn struct {
	readyConn
	stopped  time.Duration
	answered chan struct{} // closed when the answer has arrived
}

// Write implements net.Conn.
func (c *frozenConn) Write(p []byte) (int, error) {
	time.Sleep(c.stopped)
	time.AfterFunc(2*time.Second, func() {
		c.bytes = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
		close(c.answered)
	})
	return len(p), nil
}

// SetWriteDeadline implements net.Conn. It does nothing, as for a write that has ended when its deadline is noticed.
func (c *frozenConn) SetWriteDeadline(time.Time) error { return nil }

// Ready implements relay.Conn.
func (c *frozenConn) Ready() <-chan struct{} { return c.answered }

// storingJournal stores each step at once.
type storingJournal struct{ Journal }

// Accept implements Journal.
func (storingJournal) Accept(*relay.Event) *relay.Ticket { return stored() }

// Finish implements Journal.
func (storingJournal) Finish(relay.ID, *relay.Attempt, string) *relay.Ticket { return stored() }

func stored() *relay.Ticket {
	t := relay.NewTicket()
	t.Resolve(nil)
	return t
}

// TestResponseTimeoutBeginsAfterTheWrite: the local server has the whole response timeout of one minute after the
// request was written, however long the write took.
func TestResponseTimeoutBeginsAfterTheWrite(t *testing.T) {
	for _, stopped := range []time.Duration{0, 50 * time.Second, 2 * time.Minute} {
		t.Run(stopped.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x, _ := waitingRun(t)
				conn := &frozenConn{stopped: stopped, answered: make(chan struct{})}
				x.conn, x.send.conn, x.journal = conn, conn, storingJournal{}
				x.q.first, x.q.end, x.end = []byte("x"), requestEnd{how: endWhole}, requestEnd{how: endWhole}
				x.q.rec.whole, x.at.open = true, time.Now()
				if err := x.transfer(); err != nil || x.answer.state != relay.ResponseComplete {
					t.Errorf("%v, state %q", err, x.answer.state)
				}
			})
		})
	}
}
