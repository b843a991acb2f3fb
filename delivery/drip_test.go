package delivery_test

import (
	"testing"
	"time"

	"relay"
)

// TestDrippingBodiesKeepNobodyWaiting: while 64 slow bodies use all soft slots of a tunnel (see
// limiter.Limiter), no other request takes longer than a second.
func TestDrippingBodiesKeepNobodyWaiting(t *testing.T) {
	const drip = "POST /drip HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n"
	for name, lazy := range map[string]bool{"ssh": false, "relay up": true} {
		t.Run(name, func(t *testing.T) {
			run(t, func(l *local) {
				for l.until("\r\n\r\n") && !contains(l.got, "/drip") {
					l.until("hello")
					l.got = nil
					l.Write(ok)
				}
				l.ended()
			}, func(b *fixture) {
				var drips []*memCaller
				var ends []<-chan relay.Outcome
				for range 64 {
					c, done := b.begin(drip)
					drips, ends = append(drips, c), append(ends, done)
				}
				var longest time.Duration
				waits := make(chan time.Duration, 1000)
				sent := 0
				send := func() {
					sent++
					start := time.Now()
					_, done := b.begin(post)
					go func() {
						b.want("answer", code(<-done), "")
						waits <- time.Since(start)
					}()
				}
				for second := range 20 {
					for _, c := range drips {
						c.in.write([]byte("x"))
					}
					// The limiter admits waiting requests in steps. Requests every 137 ms come at different
					// times between two steps.
					for range 7 {
						time.Sleep(137 * time.Millisecond)
						send()
					}
					if second%5 == 4 {
						for range 60 {
							send()
						}
					}
					time.Sleep(41 * time.Millisecond)
				}
				for range sent {
					longest = max(longest, <-waits)
				}
				t.Logf("%d requests beside 64 that drip, the longest took %v", sent, longest)
				if longest > time.Second {
					t.Errorf("a request took %v", longest)
				}
				for i, c := range drips {
					c.Abort()
					<-ends[i]
				}
			}, func(b *fixture) { b.tun.lazy = lazy })
		})
	}
}
