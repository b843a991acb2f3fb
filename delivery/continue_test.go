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

// silent is a local server that reads the whole request and sends nothing.
func silent(l *local) { l.ended() }

// TestSilentServerIsNotTheFaultOfWhoWaitsForContinue: if the local server is silent, a caller that waits for
// 100 Continue gets it from relayd after the response timeout. Its request is then complete, is answered with
// local-timeout, and can be replayed.
func TestSilentServerIsNotTheFaultOfWhoWaitsForContinue(t *testing.T) {
	var got string
	run(t, func(l *local) { l.ended(); got = string(l.got) }, func(b *fixture) {
		begin := time.Now()
		c, done := b.begin(waiting)
		time.Sleep(59 * time.Second)
		b.want("100 before the response timeout", c.answer(), "")
		time.Sleep(2 * time.Second)
		b.want("100 behind it", c.answer(), goAhead)
		// The caller pauses for less than the stall timeout.
		time.Sleep(20 * time.Second)
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

// TestWhoGotItsContinueMayStall: a caller that gets 100 Continue, from relayd or from the local server, and
// sends no body gets request-timeout.
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

// TestBodyBeforeContinueIsAsAnyOther: a caller that begins its body without waiting for 100, and then stalls,
// gets request-timeout. If the body is complete, the response timeout begins at the end of the body, and relayd
// sends no 100.
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

// TestLateContinueOfTheLocalServer: a 100 Continue of the local server after 50 s is passed on and recorded
// unchanged. A refusal after 50 s is passed on, too.
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

// TestContinueWithoutResponseTimeout: without a response timeout, a wait for 100 Continue lasts over an hour,
// and ends when the caller or the tunnel ends.
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
