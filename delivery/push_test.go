package delivery_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"relay"
)

const largeSize = 1 << 20

// largePost is the head of a request whose body is larger than the window of a channel. The window is the
// number of bytes that a channel takes before the local server reads.
var largePost = fmt.Sprintf("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n", largeSize)

// TestLocalServerTakesNoMore: if the local server stops reading inside a large request, the request and its
// replay fail as local-timeout, and the channel is closed.
func TestLocalServerTakesNoMore(t *testing.T) {
	run(t, func(l *local) { l.until("\r\n\r\n"); l.hang() }, func(b *fixture) {
		start := time.Now()
		c, done := b.begin(largePost)
		c.in.write(make([]byte, largeSize))
		out := <-done
		b.want("code", code(out), relay.CodeLocalTimeout)
		b.want("after", time.Since(start).Round(time.Second), 60*time.Second)
		e := b.event()
		b.want("state", e.State, relay.StateFailed)
		b.want("body", words(e.Request.Body.State, e.Request.Body.Size), words(relay.BodyComplete, largeSize))
		b.want("identical", *e.Attempts[0].Identical, false)
		b.want("channels", b.d.Stats().Channels, 0)
		e, n, err := b.d.Replay(context.Background(), relay.System(), e.ID, 2*time.Minute)
		b.want("error", err, nil)
		b.want("replay", words(e.Attempt(n).State, e.Attempt(n).Error.Code), "failed local-timeout")
	}, func(b *fixture) { b.tun.window = 64 << 10 })
}

// TestSlowUploadIsNoTimeout: an upload whose caller or local server pauses for 25 s between pieces is
// delivered.
func TestSlowUploadIsNoTimeout(t *testing.T) {
	const pieces = 16
	for name, who := range map[string]struct{ caller, local time.Duration }{"caller": {25 * time.Second, 0}, "local server": {0, 25 * time.Second}} {
		t.Run(name, func(t *testing.T) {
			run(t, func(l *local) {
				l.until("\r\n\r\n")
				for range pieces / 2 {
					time.Sleep(who.local)
					l.n(len(l.got) + largeSize/pieces)
				}
				l.n(len(largePost) + largeSize)
				l.Write(ok)
			}, func(b *fixture) {
				c, done := b.begin(largePost)
				for range pieces {
					time.Sleep(who.caller)
					c.in.write(make([]byte, largeSize/pieces))
				}
				<-done
				b.want("answer", c.answer(), ok)
				b.want("identical", *b.event().Attempts[0].Identical, true)
			}, func(b *fixture) {
				second := time.Second
				b.tun.window, b.a.Settings.ResponseTimeout = 64<<10, &second
			})
		})
	}
}

// TestQueueGoesOnPastOneThatTakesNoMore: a queued delivery whose body the local server stops reading fails,
// and the next one is delivered.
func TestQueueGoesOnPastOneThatTakesNoMore(t *testing.T) {
	var k bodyRecorder
	run(t, nil, func(b *fixture) {
		c, done := b.begin(largePost)
		c.in.write(make([]byte, largeSize))
		<-done
		time.Sleep(time.Millisecond)
		b.send(numbered(2))
		tun := &memTunnel{window: 64 << 10, serve: func(l *local) {
			if l.until("\r\n\r\n"); contains(l.got, fmt.Sprint("Content-Length: ", largeSize)) {
				l.hang()
				return
			}
			k.serve(l)
		}}
		b.d.Attach(b.a, tun)
		time.Sleep(2 * time.Minute)
		b.want("delivered", k.list(), "00002")
		b.want("states", b.s.states(), "failed delivered")
		tun.cutAll()
		tun.wg.Wait()
	}, func(b *fixture) { b.a.Settings.AutoDeliver = true })
}
