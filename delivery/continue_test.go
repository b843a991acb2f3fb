package delivery_test

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"relay"
)

const (
	waiting = "POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
	goAhead = "HTTP/1.1 100 Continue\r\n\r\n"
)

// silent is a local server that takes everything and says nothing.
func silent(l *local) { l.ended() }

// A caller who waited for the 100 Continue of a local server that says nothing was
// told after the stall timeout that its body does not move, and the event was lost.
func TestSilentServerIsNotTheFaultOfWhoWaitsForContinue(t *testing.T) {
	var got string
	run(t, func(l *local) { l.ended(); got = string(l.got) }, func(b *fixture) {
		begin := time.Now()
		c, done := b.begin(waiting)
		time.Sleep(59 * time.Second)
		b.want("100 before the response timeout", c.answer(), "")
		time.Sleep(2 * time.Second)
		b.want("100 behind it", c.answer(), goAhead)
		time.Sleep(20 * time.Second) // less than the stall timeout
		c.in.write([]byte("hello"))
		out := <-done
		b.want("code", code(out), relay.CodeLocalTimeout)
		b.want("took", time.Since(begin).Round(time.Second), 81*time.Second)
		e := b.event()
		b.want("told", out.Answer.Event, e.ID)
		b.want("state", words(e.State, e.Error.Code, string(e.Blocker)), "failed local-timeout")
		b.want("body", words(e.Request.Body.State, string(e.Request.Body.Data)), "complete hello")
		b.want("interim", len(e.Attempts[0].Interim), 0)
		synctest.Wait()
		b.want("sent", got, waiting)
		b.tun.set(func() { b.tun.serve = always("hello", ok) })
		e, n, err := b.d.Replay(context.Background(), relay.System(), e.ID, time.Minute)
		b.want("replay", err, nil)
		b.want("replayed", e.Attempt(n).State, relay.StateDelivered)
	})
}

// Who has got the 100 and sends nothing has stalled, whoever it came from: also when
// that was at the end of the time of one read.
func TestWhoGotItsContinueMayStall(t *testing.T) {
	late := func(l *local) {
		l.until("\r\n\r\n")
		time.Sleep(29 * time.Second)
		l.Write(goAhead)
		l.ended()
	}
	for name, serve := range map[string]func(*local){"ours": silent, "the local server's": late} {
		t.Run(name, func(t *testing.T) {
			run(t, serve, func(b *fixture) {
				begin := time.Now()
				out, c := b.send(waiting)
				b.want("code", code(out), relay.CodeRequestTimeout)
				b.want("100s", strings.Count(c.answer(), goAhead), 1)
				b.want("state", words(b.event().State, b.event().Request.Body.State), "incomplete aborted")
				if took := time.Since(begin); took < 59*time.Second || took > 120*time.Second {
					t.Errorf("stalled after %v", took)
				}
			})
		})
	}
}

// A caller who does not wait for its 100, or waits no more, has its body waited for as
// any other, and the local server has its whole time from the end of that on.
func TestBodyBeforeContinueIsAsAnyOther(t *testing.T) {
	run(t, silent, func(b *fixture) {
		begin := time.Now()
		out, _ := b.send(waiting + "he")
		b.want("code", words(code(out), time.Since(begin).String()), "request-timeout 30s")
		b.want("state", b.event().State, relay.StateIncomplete)
	})
	var got string
	run(t, func(l *local) { l.ended(); got = string(l.got) }, func(b *fixture) {
		begin := time.Now()
		c, done := b.begin(waiting)
		time.Sleep(45 * time.Second)
		c.in.write([]byte("he"))
		time.Sleep(25 * time.Second)
		c.in.write([]byte("llo"))
		b.want("code", code(<-done), relay.CodeLocalTimeout)
		b.want("took", time.Since(begin), 130*time.Second)
		b.want("no 100 of ours", c.answer(), "")
		synctest.Wait()
		b.want("sent", got, waiting+"hello")
	})
}

// The 100 of the local server, however late, is passed on and recorded, and nothing is
// added to it; its own no ends the waiting as well.
func TestLateContinueOfTheLocalServer(t *testing.T) {
	answer := func(first string, after time.Duration) func(*local) {
		return func(l *local) {
			l.until("\r\n\r\n")
			time.Sleep(after)
			l.Write(first)
			if first == goAhead && l.until("hello") {
				l.Write(ok)
			}
			l.ended()
		}
	}
	run(t, answer(goAhead, 50*time.Second), func(b *fixture) {
		c, done := b.begin(waiting)
		time.Sleep(55 * time.Second)
		b.want("100", c.answer(), goAhead)
		c.in.write([]byte("hello"))
		<-done
		b.want("answer", c.answer(), goAhead+ok)
		a := b.event().Attempts[0]
		b.want("state", a.State, relay.StateDelivered)
		b.want("interim", string(bytes.Join(a.Interim, nil)), goAhead)
	})
	const no = "HTTP/1.1 417 No\r\nContent-Length: 0\r\n\r\n"
	run(t, answer(no, 50*time.Second), func(b *fixture) {
		_, c := b.send(waiting)
		b.want("answer", c.answer(), no)
		b.want("record", words(b.event().State, b.event().Request.Body.State), "delivered not_sent")
	})
}

// Without a response timeout nothing but the caller or the tunnel ends the waiting.
func TestContinueWithoutResponseTimeout(t *testing.T) {
	off := func(b *fixture) { b.opt.ResponseTimeout = 0 }
	run(t, silent, func(b *fixture) {
		c, done := b.begin(waiting)
		time.Sleep(time.Hour)
		b.want("answer", c.answer(), "")
		c.in.finish(io.EOF)
		<-done
		b.want("record", words(b.event().State, b.event().Request.Body.State), "incomplete not_sent")
	}, off)
	run(t, silent, func(b *fixture) {
		c, done := b.begin(waiting)
		time.Sleep(time.Hour)
		b.hold.Detach(false)
		time.Sleep(time.Second)
		b.want("100", c.answer(), goAhead)
		c.in.write([]byte("hello"))
		b.want("code", code(<-done), relay.CodeTunnelLost)
	}, off)
}
