package delivery_test

import (
	"testing"
	"time"

	"relay"
)

// slow answers after three seconds.
func slow(l *local) {
	l.until("hello")
	time.Sleep(3 * time.Second)
	l.Write(ok)
	l.ended()
}

// Requests that hang keep no other one waiting over 1 s, the way to its slot included.
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
