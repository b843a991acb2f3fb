package delivery_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"relay"
	"relay/budget"
)

// TestAnswerOverBudgetIsCut: if a channel ends with budget.ErrOver inside a response, the response is
// recorded as cut, and the caller's connection is reset.
func TestAnswerOverBudgetIsCut(t *testing.T) {
	t.Parallel()
	run(t, func(l *local) {
		l.until("\r\n\r\n")
		l.Write("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nbegun")
		synctest.Wait()
		l.c.down.finish(budget.ErrOver)
	}, func(b *fixture) {
		_, c := b.send(get)
		a := b.event().Attempts[0]
		b.want("state", a.State, relay.StateDelivered)
		b.want("response", a.ResponseState, relay.ResponseCut)
		b.want("aborted", c.wasAborted(), true)
	})
}

// TestHeldAnswersAreBounded: the bytes of a response that waits for the store count in the budget. If the budget
// has no space for a response, the caller gets the error overloaded instead, and nothing stays reserved.
func TestHeldAnswersAreBounded(t *testing.T) {
	t.Parallel()
	// An account may use a quarter of the budget: 200 KiB. The bytes of a response count twice, because one
	// copy waits for the caller and one for the store.
	budget := budget.New(800 << 10)
	sizes := make(chan int, 3)
	run(t, func(l *local) {
		l.until("\r\n\r\n")
		l.Write("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + strings.Repeat("x", <-sizes))
		l.Close()
	}, func(b *fixture) {
		for _, x := range []struct {
			size int
			want string
		}{{8 << 10, ""}, {60 << 10, ""}, {200 << 10, relay.CodeOverloaded}} {
			sizes <- x.size
			_, done := b.begin(get)
			// The store takes a second to store the event, so the response is still held.
			time.Sleep(time.Second / 2)
			synctest.Wait()
			if used := budget.Stats().Used; (used > 0) != (x.size > 8<<10) {
				t.Errorf("%d bytes held: %d reserved", x.size, used)
			}
			b.want("answer", code(<-done), x.want)
			if used := budget.Stats().Used; used != 0 {
				t.Errorf("%d bytes are left reserved", used)
			}
		}
	}, func(b *fixture) { b.opt.Budget, b.s.delay = budget, time.Second })
}

// TestUnfinishedBodiesAreBounded: an unfinished body reserves its announced size in the budget. If the budget has
// no space for the body of a second request, that request gets the error overloaded, and its event has an
// incomplete body. At the end nothing stays reserved.
func TestUnfinishedBodiesAreBounded(t *testing.T) {
	t.Parallel()
	const head, sent, rest = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 60000\r\n\r\n", 40_000, 20_000
	for name, offline := range map[string]bool{"online": false, "offline": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			budget := budget.New(400 << 10) // 100 KiB for an account
			run(t, func(l *local) {
				l.until(strings.Repeat("x", sent+rest))
				l.Write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
				l.ended()
			}, func(b *fixture) {
				answered := map[bool]string{true: "202"}[offline]
				b.s.change(7, func(s *relay.Settings) { s.Paused = offline })
				c, first := b.begin(head + strings.Repeat("x", sent))
				synctest.Wait()
				if used := budget.Stats().Used; used != sent+rest {
					t.Errorf("%d bytes are reserved for one body", used)
				}
				_, second := b.begin(head + strings.Repeat("x", sent))
				b.want("the second", code(<-second), relay.CodeOverloaded)
				c.in.write([]byte(strings.Repeat("x", rest)))
				b.want("the first", code(<-first), answered)
				if used := budget.Stats().Used; used != 0 {
					t.Errorf("%d bytes are left reserved", used)
				}
				b.want("the third", code(func() relay.Outcome { out, _ := b.send(head + strings.Repeat("x", sent+rest)); return out }()), answered)
				b.s.mu.Lock()
				defer b.s.mu.Unlock()
				for _, e := range b.s.events {
					if whole := e.Request.Body.State == relay.BodyComplete; whole != (e.State == relay.StateDelivered || e.State == relay.StateQueued) {
						t.Errorf("an event is %s with a body that is %s", e.State, e.Request.Body.State)
					}
				}
			}, func(b *fixture) { b.opt.Budget = budget })
		})
	}
}

// TestAnswerOverBudgetBeforeItWentOut: if a channel ends with budget.ErrOver before a byte of the response
// was sent, the caller gets the error overloaded, and its connection is not reset.
func TestAnswerOverBudgetBeforeItWentOut(t *testing.T) {
	t.Parallel()
	run(t, func(l *local) {
		l.until("\r\n\r\n")
		l.Write("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nbegun")
		time.Sleep(time.Second / 4) // less than the second for which the response waits for the store
		l.c.down.finish(budget.ErrOver)
	}, func(b *fixture) {
		out, c := b.send(get)
		b.want("code", code(out), relay.CodeOverloaded)
		b.want("aborted", c.wasAborted(), false)
		b.want("state", b.event().State, relay.StateFailed)
	}, func(b *fixture) { b.s.delay = time.Second })
}

// TestAnswerThatFindsNoSpaceAtItsEnd: if the budget has no space for the rest of a response that was sent in
// part, the connection of the caller is reset. If the rest has to be stored, the attempt has the error that
// its response was not stored. If MaxResponseCapture bytes are stored already, the response is recorded as
// complete.
func TestAnswerThatFindsNoSpaceAtItsEnd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		capture         int64
		response, fault string
	}{
		"for its record": {32 << 20, "", relay.CodeResponseNotStored},
		"for its caller": {1 << 10, relay.ResponseComplete, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			budget := budget.New(400 << 10) // 100 KiB for an account
			run(t, func(l *local) {
				l.until("\r\n\r\n")
				l.Write("HTTP/1.1 200 OK\r\nContent-Length: 34000\r\n\r\n" + strings.Repeat("x", 4000))
				time.Sleep(time.Second)
				budget.Reserve(1, 100<<10)
				l.Write(strings.Repeat("x", 30000))
				l.ended()
			}, func(b *fixture) {
				_, caller := b.send(get)
				budget.Release(1, 100<<10)
				a := b.event().Attempts[0]
				b.want("state", a.State, relay.StateDelivered)
				b.want("response", a.ResponseState, c.response)
				fault := ""
				if a.Error != nil {
					fault = a.Error.Code
				}
				b.want("error", fault, c.fault)
				b.want("aborted", caller.wasAborted(), true)
				b.want("left reserved", budget.Stats().Used, 0)
			}, func(b *fixture) { b.opt.Budget, b.opt.MaxResponseCapture = budget, c.capture })
		})
	}
}

func TestHeadInPiecesIsNotHeldForEver(t *testing.T) {
	t.Parallel()
	budget := budget.New(0)
	run(t, func(l *local) {
		l.until("\r\n\r\n")
		l.Write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Long: " + strings.Repeat("x", 40<<10) + "\r\n\r\n")
		for range 2 {
			time.Sleep(time.Second)
			l.Write("5\r\nhello\r\n")
		}
		l.Write("0\r\n\r\n")
		l.ended()
	}, func(b *fixture) {
		_, done := b.begin(get)
		time.Sleep(1500 * time.Millisecond)
		b.want("reserved", budget.Stats().Used, 0)
		<-done
	}, func(b *fixture) { b.opt.Budget = budget })
}
