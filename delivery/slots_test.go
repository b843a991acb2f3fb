package delivery_test

import (
	"testing"
	"time"

	"relay"
)

// slow answers one request after three seconds.
func slow(l *local) {
	l.until("hello")
	time.Sleep(3 * time.Second)
	l.Write(ok)
	l.ended()
}

// TestSlots: of 200 simultaneous requests, which take three seconds each, 64 run at first, and all 200 after 0.9 s.
func TestSlots(t *testing.T) {
	run(t, slow, func(b *fixture) {
		var all []<-chan relay.Outcome
		for range 200 {
			_, done := b.begin(post)
			all = append(all, done)
		}
		time.Sleep(700 * time.Millisecond)
		b.want("in use at first", b.d.Stats().Channels, 64)
		time.Sleep(200 * time.Millisecond)
		b.want("in use when the first ones hang", b.d.Stats().Channels, 200)
		for _, done := range all {
			b.want("answer", code(<-done), "")
		}
	}, func(b *fixture) { b.a.Settings.FreshConnections = true })
}

func TestSlotsOfTheBundledClientAreWaitedFor(t *testing.T) {
	run(t, slow, func(b *fixture) {
		var all []<-chan relay.Outcome
		for range 600 {
			_, done := b.begin(post)
			all = append(all, done)
		}
		time.Sleep(1500 * time.Millisecond)
		n := b.d.Stats().Channels
		b.want("200 in use and some spares, within what the client takes", n >= 200 && n <= 240, true)
		for _, done := range all {
			b.want("answer", code(<-done), "")
		}
	}, func(b *fixture) { b.tun.lazy = true })
}

// TestFailedRequestKeepsNoSlot: while 64 callers have not sent the rest of their failed requests, another
// request takes less than 500 ms.
func TestFailedRequestKeepsNoSlot(t *testing.T) {
	for name, fail := range map[string]func(*local){
		"no answer": func(l *local) {},
		"early answer": func(l *local) {
			l.Write("HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
			l.ended()
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(l *local) {
				if l.until("\r\n\r\n"); contains(l.got, "POST") {
					fail(l)
					return
				}
				l.Write(ok)
			}, func(b *fixture) {
				var callers []*memCaller
				var ends []<-chan relay.Outcome
				for range 64 {
					c, done := b.begin("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\nx")
					callers, ends = append(callers, c), append(ends, done)
				}
				time.Sleep(time.Second)
				start := time.Now()
				b.send(get)
				b.want("waited", time.Since(start) < 500*time.Millisecond, true)
				for i, c := range callers {
					c.Abort()
					<-ends[i]
				}
			})
		})
	}
}
