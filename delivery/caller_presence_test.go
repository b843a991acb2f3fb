package delivery_test

import (
	"io"
	"testing"
	"time"

	"relay"
)

// TestCallerGoneInsideSilence: if a caller leaves while the local server pauses inside its response, the
// response is cut about a minute later, with or without a response timeout.
func TestCallerGoneInsideSilence(t *testing.T) {
	for name, c := range map[string]struct {
		presence relay.Presence
		timeout  time.Duration
	}{
		"reset": {relay.CallerReset, time.Minute}, "closed": {relay.CallerHalfClosed, time.Minute},
		"reset, without a response timeout": {relay.CallerReset, 0}, "closed, without a response timeout": {relay.CallerHalfClosed, 0},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(l *local) {
				l.until("hello")
				l.Write("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx")
				l.ended()
			}, func(b *fixture) {
				caller, done := b.begin(post)
				// Inside an answer there is no time limit while the caller is connected.
				time.Sleep(time.Hour)
				caller.become(c.presence)
				start := time.Now()
				<-done
				readOn := time.Since(start)
				b.want("bounded", readOn >= time.Minute && readOn <= time.Minute+2*time.Second, true)
				a := b.event().Attempts[0]
				b.want("state", a.State, relay.StateDelivered)
				b.want("response state", a.ResponseState, relay.ResponseCut)
				b.want("broken", caller.wasAborted(), c.presence == relay.CallerHalfClosed)
			}, func(b *fixture) { b.opt.ResponseTimeout = c.timeout })
		})
	}
}

// TestHalfClosedCallerReadsOn: a caller that has only closed its sending side gets the whole response, even if
// the local server takes seven and a half minutes to send it.
func TestHalfClosedCallerReadsOn(t *testing.T) {
	run(t, func(l *local) {
		l.until("hello")
		l.Write("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")
		for range 9 {
			time.Sleep(50 * time.Second)
			l.Write("x")
		}
	}, func(b *fixture) {
		c, done := b.begin(post)
		time.Sleep(time.Second)
		c.become(relay.CallerHalfClosed)
		<-done
		b.want("answer", c.answer(), "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nxxxxxxxxx")
		b.want("response state", b.event().Attempts[0].ResponseState, relay.ResponseComplete)
	})
}

// TestCallerGoneWhileTheLocalServerTakesNoMore: if a caller leaves after the local server has stopped reading
// the request, the exchange ends within an hour, and its channel is closed.
func TestCallerGoneWhileTheLocalServerTakesNoMore(t *testing.T) {
	run(t, func(l *local) {
		l.until("\r\n\r\n")
		l.Write("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx")
		l.hang()
	}, func(b *fixture) {
		c, done := b.begin(largePost)
		c.in.write(make([]byte, largeSize/2))
		// Inside an answer there is no time limit while the caller is connected.
		time.Sleep(time.Hour)
		b.want("channels", b.d.Stats().Channels, 1)
		c.become(relay.CallerReset)
		c.in.finish(io.ErrUnexpectedEOF)
		select {
		case <-done:
		case <-time.After(time.Hour):
			t.Error("still waiting")
			b.hold.Detach(false)
			<-done
		}
		e := b.event()
		b.want("body", words(e.Request.Body.State, e.Request.Body.Size), words(relay.BodyAborted, largeSize/2))
		b.want("response state", e.Attempts[0].ResponseState, relay.ResponseCut)
		b.want("channels", b.d.Stats().Channels, 0)
	}, func(b *fixture) { b.tun.window = 64 << 10 })
}
