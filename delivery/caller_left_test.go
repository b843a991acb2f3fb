package delivery_test

import (
	"context"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"relay"
)

// TestCallerLeft: CallerGone of the attempt, and the status in the outcome, tell whether the caller got the
// response. A replay never has CallerGone.
func TestCallerLeft(t *testing.T) {
	late := func(l *local) { l.until("hello"); time.Sleep(20 * time.Second); l.Write(ok); l.ended() }
	never := func(l *local) { l.until("hello"); l.ended() }
	reset := func(c *memCaller) { c.become(relay.CallerReset) }
	for name, c := range map[string]struct {
		raw    string
		serve  func(*local)
		leave  func(*memCaller)
		gone   bool
		status int
		state  string
		told   bool // Outcome.Gone is called, as package server does for a caller that did not take the whole answer
	}{
		"stays":      {post, late, func(*memCaller) {}, false, 200, relay.StateDelivered, false},
		"resets":     {post, late, reset, true, 0, relay.StateDelivered, false},
		"only shuts": {post, late, func(c *memCaller) { c.become(relay.CallerHalfClosed) }, false, 200, relay.StateDelivered, false},
		"closes": {post, late, func(c *memCaller) {
			c.become(relay.CallerHalfClosed)
			c.onWrite(func() { c.become(relay.CallerReset) })
		}, true, 0, relay.StateDelivered, false},
		"write fails": {post, late, (*memCaller).failWrites, true, 0, relay.StateDelivered, false},
		"inside its body": {
			"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nhello", never,
			func(c *memCaller) { c.in.finish(io.ErrUnexpectedEOF) }, true, 0, relay.StateIncomplete, false,
		},
		"resets, no answer": {post, never, reset, true, 0, relay.StateFailed, false},
		"closes, no answer": {post, never, func(c *memCaller) { c.become(relay.CallerHalfClosed) }, true, 0, relay.StateFailed, true},
		"stays, no answer":  {post, never, func(*memCaller) {}, false, 0, relay.StateFailed, false},
		"resets inside the answer": {post, func(l *local) {
			l.until("hello")
			l.Write("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx")
			l.ended()
		}, reset, true, 0, relay.StateDelivered, false},
		"stays, broken answer": {post, func(l *local) {
			l.until("hello")
			time.Sleep(20 * time.Second)
			l.Write("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx")
		}, func(*memCaller) {}, false, 200, relay.StateDelivered, false},
		"closes after an upgrade": {upgrading + "hello", func(l *local) { l.until("hello"); l.Write(switching); l.ended() }, func(c *memCaller) {
			c.in.finish(io.ErrUnexpectedEOF)
		}, false, 101, relay.StateDelivered, false},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, c.serve, func(b *fixture) {
				caller, done := b.begin(c.raw)
				time.Sleep(10 * time.Second)
				c.leave(caller)
				out := <-done
				if c.told {
					out.Gone()
				}
				time.Sleep(time.Second)
				e := b.event()
				b.want("state", e.State, c.state)
				b.want("caller gone", e.Attempts[0].CallerGone, c.gone)
				b.want("status", out.Status, c.status)
				if e.State != relay.StateIncomplete {
					again, n, err := b.d.Replay(context.Background(), relay.System(), e.ID, 2*time.Minute)
					if a := again.Attempt(n); err == nil && a != nil && a.CallerGone {
						t.Error("a replay has a caller who left")
					}
				}
			}, slowStep)
		})
	}
}

// lostNoteStore stores no CallerGone, like the store of a relay that is killed right after the end of an
// attempt is stored.
type lostNoteStore struct{ *memStore }

func (lostNoteStore) CallerGone(relay.ID, int) *relay.Ticket {
	t := relay.NewTicket()
	t.Resolve(relay.Errorf(relay.CodeStoreUnavailable, "killed"))
	return t
}

// TestResetIsStoredWithTheEnd: the step that ends the attempt says that the caller has reset its connection,
// if the caller did so before a slow response.
func TestResetIsStoredWithTheEnd(t *testing.T) {
	run(t, func(l *local) {
		l.until("hello")
		time.Sleep(20 * time.Second)
		l.Write(ok)
		l.ended()
	}, func(b *fixture) {
		c, done := b.begin(post)
		time.Sleep(10 * time.Second)
		c.become(relay.CallerReset)
		out := <-done
		e := b.event()
		b.want("status, state, caller gone", words(fmt.Sprint(out.Status), e.State, fmt.Sprint(e.Attempts[0].CallerGone)), words("0", relay.StateDelivered, "true"))
	}, func(b *fixture) { b.opt.Store = lostNoteStore{b.s} })
}

// TestCallerResetsInsideABodyThatIsAnsweredEarly: if the caller resets before it has sent its whole body, and
// the response is complete, the attempt has CallerGone.
func TestCallerResetsInsideABodyThatIsAnsweredEarly(t *testing.T) {
	run(t, func(l *local) {
		l.until("hello")
		time.Sleep(20 * time.Second)
		l.Write(ok)
		l.ended()
	}, func(b *fixture) {
		c, done := b.begin("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nhello")
		time.Sleep(10 * time.Second)
		c.become(relay.CallerReset)
		out := <-done
		time.Sleep(time.Second)
		b.want("status, caller gone", words(fmt.Sprint(out.Status), b.event().Attempts[0].CallerGone), words("0", true))
	}, slowStep)
}

// TestCallerIsNotLookedAtWhileItIsRead: while the rest of a request is read from the caller's connection,
// Caller.Left is not called, because both use the read buffer of the connection.
func TestCallerIsNotLookedAtWhileItIsRead(t *testing.T) {
	run(t, func(l *local) {
		l.until("\r\n\r\n")
		l.Write("HTTP/1.1 413 X\r\nContent-Length: 0\r\n\r\n")
		time.Sleep(5 * time.Millisecond)
		l.ended()
	}, func(b *fixture) {
		c, done := b.begin(largePost)
		c.become(relay.CallerHalfClosed)
		c.in.write(make([]byte, largeSize))
		c.in.finish(io.EOF)
		<-done
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.raced {
			t.Error("the caller was looked at while the upload read from it")
		}
	}, smallWindow)
}

// TestCallerCutAfterTheEndWasStored: Close cuts off a caller that still sends its request, although the malformed
// body of its response has ended the attempt. The attempt stays delivered, and gets CallerGone.
func TestCallerCutAfterTheEndWasStored(t *testing.T) {
	run(t, func(l *local) {
		l.until("\r\n\r\n")
		l.Write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
		time.Sleep(time.Millisecond)
		l.Write("no chunk\r\n")
		l.ended()
	}, func(b *fixture) {
		c, done := b.begin(largePost)
		c.in.write(make([]byte, 1<<10))
		time.Sleep(5 * time.Second)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = b.d.Close(ctx)
		out := <-done
		// The store needs this time to resolve its steps.
		time.Sleep(5 * time.Second)
		e := b.event()
		b.want("answer, state, caller gone", words(out.Answer == nil, e.State, e.Attempts[0].CallerGone), words(true, relay.StateDelivered, true))
	}, func(b *fixture) { b.s.delay = time.Second })
}

// slowStep delays each step of the store, so that the end of a response is stored after its beginning
// was sent.
func slowStep(b *fixture) { b.s.delay = time.Millisecond }

// TestCallerThatLeftBeforeContinueIsLetGo: after a caller has left before 100 Continue, Close does not reset
// its connection any more.
func TestCallerThatLeftBeforeContinueIsLetGo(t *testing.T) {
	run(t, nil, func(b *fixture) {
		in, c := b.inbound(waiting)
		c.failWrites()
		c.in.finish(io.EOF)
		b.d.Capture(context.Background(), in)
		b.want("state", b.event().State, relay.StateIncomplete)
		if err := b.d.Close(context.Background()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		b.want("aborted as the relay stopped", c.wasAborted(), false)
	})
}
