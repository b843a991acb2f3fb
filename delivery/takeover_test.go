package delivery_test

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"relay"
)

// die ends every channel with an error, as the SSH server does for a lost connection.
func (t *memTunnel) die() { t.end(errors.New("lost")) }

// end ends every channel with err.
func (t *memTunnel) end(err error) {
	t.mu.Lock()
	list := t.channels
	t.mu.Unlock()
	for _, c := range list {
		c.up.finish(err)
		c.down.finish(err)
	}
}

// outcome returns the state of an attempt and the code of its error.
func outcome(a relay.Attempt) string {
	if a.Error == nil {
		return a.State
	}
	return a.State + " " + a.Error.Code
}

// TestTakenOverAndThenLost: if a tunnel is taken over while a request runs on it, and its channels then end, the
// request gets tunnel-lost, and its attempt is interrupted.
func TestTakenOverAndThenLost(t *testing.T) {
	run(t, func(l *local) { l.ended() }, func(b *fixture) {
		_, done := b.begin(post)
		time.Sleep(time.Second)
		tun, _ := b.attach(always("hello", ok))
		b.hold.Detach(true)
		time.Sleep(10 * time.Second)
		b.tun.die()
		b.want("code", code(<-done), relay.CodeTunnelLost)
		b.want("state", b.event().State, relay.StateInterrupted)
		tun.cutAll()
		tun.wg.Wait()
	})
}

// TestNothingToTheOldTunnelAfterATakeover: after Attach, only the new tunnel gets requests, although the old
// one has an idle channel of the caller. The old one answers an earlier request.
func TestNothingToTheOldTunnelAfterATakeover(t *testing.T) {
	old, next := bodyRecorder{slow: 3 * time.Second}, bodyRecorder{}
	run(t, old.serve, func(b *fixture) {
		c, done := b.begin(numbered(1))
		time.Sleep(time.Second)
		oneConnection(b)
		// This request leaves an idle channel when it is answered, after 3 s.
		b.send(numbered(2))
		b.pause()
		_, reused := b.begin(numbered(3))
		<-reused
		b.want("connection before the takeover", b.last().Connection, relay.ConnectionReused)
		tun, _ := b.attach(next.serve)
		for i := range 5 {
			b.send(numbered(10 + i))
		}
		<-done
		b.want("answer of the request before", c.answer(), ok)
		b.want("requests of the old tunnel", old.list(), "00001 00002 00003")
		b.want("requests of the new tunnel", next.list(), "00010 00011 00012 00013 00014")
		tun.cutAll()
		tun.wg.Wait()
	})
}

// TestQueuedDeliveryTakenOverAndThenLost: a queued delivery whose tunnel is taken over, and whose channels
// then end, is interrupted with tunnel-lost.
func TestQueuedDeliveryTakenOverAndThenLost(t *testing.T) {
	run(t, nil, func(b *fixture) {
		b.send(post)
		first, h := b.attach(func(l *local) { l.ended() })
		time.Sleep(time.Second)
		tun, _ := b.attach(always("hello", ok))
		h.Detach(true)
		time.Sleep(10 * time.Second)
		first.die()
		time.Sleep(time.Second)
		b.want("attempt", outcome(b.last()), "interrupted tunnel-lost")
		for _, m := range []*memTunnel{first, tun} {
			m.cutAll()
			m.wg.Wait()
		}
	}, func(b *fixture) { b.a.Settings.AutoDeliver = true })
}

// TestTunnelLostWhileStoringFirst: if the tunnel is lost or taken over while a request is stored before it is
// sent, that tunnel does not get the request. The new tunnel gets it or, without one, it is queued.
func TestTunnelLostWhileStoringFirst(t *testing.T) {
	for _, how := range []string{"stale", "lost", "taken over"} {
		t.Run(how, func(t *testing.T) {
			var old, k bodyRecorder
			run(t, old.serve, func(b *fixture) {
				c, done := b.begin(numbered(1))
				time.Sleep(time.Second)
				tun := &memTunnel{serve: k.serve}
				switch how {
				case "stale":
					b.hold.Stale()
				case "lost":
					b.hold.Detach(false)
				default:
					b.d.Attach(b.a, tun)
				}
				out := <-done
				b.want("by the tunnel of before", old.list(), "")
				if how == "taken over" {
					b.want("answer", c.answer(), ok)
					b.want("by the new one", k.list(), "00001")
				} else {
					b.want("answer", code(out), "202")
					b.want("state", b.event().State, relay.StateQueued)
				}
				tun.cutAll()
				tun.wg.Wait()
			}, func(b *fixture) { b.opt.StoreFirst, b.s.delay = yes, 2*time.Second })
		})
	}
}

// TestQueuedByTheStoreGoesOut: if the store itself queues an attempt and publishes this change of the queue, the
// existing tunnel delivers the attempt.
func TestQueuedByTheStoreGoesOut(t *testing.T) {
	var k bodyRecorder
	run(t, k.serve, func(b *fixture) {
		b.send(numbered(1))
		b.s.mu.Lock()
		e := b.s.events[b.s.order[0]]
		e.Attempts = append(e.Attempts, relay.Attempt{N: 2, Kind: relay.KindReplay, State: relay.StateQueued, Actor: "queue", ReceivedAt: time.Now()})
		e.State = relay.StateQueued
		b.s.mu.Unlock()
		b.d.Publish([]relay.Change{{Kind: relay.ChangeQueue, Alias: 7}})
		time.Sleep(time.Second)
		b.want("delivered", k.list(), "00001 00001")
		b.want("queued", b.d.Stats().Queued, 0)
	})
}

// TestQueuedBodyThatCannotBeReadGoesOutAgain: if the body of a queued event cannot be read, the attempt ends
// as interrupted. It ends as failed if the body is missing.
func TestQueuedBodyThatCannotBeReadGoesOutAgain(t *testing.T) {
	away, busy := relay.Errorf(relay.CodeStoreUnavailable, "away"), relay.Overloaded("busy")
	for _, c := range []struct {
		step string
		err  error
		want string
	}{
		{"part", away, "interrupted store-unavailable"},
		{"part", busy, "interrupted store-unavailable"},
		{"part", relay.ErrNotFound, "failed store-unavailable"},
		{"check", away, "interrupted store-unavailable"},
		{"check", busy, "interrupted overloaded"},
		{"check", relay.ErrNotFound, "failed store-unavailable"},
	} {
		t.Run(words(c.step, c.err), func(t *testing.T) {
			run(t, nil, func(b *fixture) {
				body := strings.Repeat("x", 3*relay.BodyPart)
				b.send(request(1, len(body)))
				b.s.fail(c.step, c.err)
				tun, _ := b.attach(func(l *local) { l.ended() })
				time.Sleep(time.Second)
				b.want("attempt", outcome(b.last()), c.want)
				tun.cutAll()
				tun.wg.Wait()
			}, func(b *fixture) { b.a.Settings.AutoDeliver = true })
		})
	}
}

// TestUnstoredPartOfABrokenAnswer: an attempt whose response broke off, and of which a part could not be
// stored, ends as delivered with response-not-stored, or as interrupted if the tunnel was lost.
func TestUnstoredPartOfABrokenAnswer(t *testing.T) {
	for _, how := range []string{"broken", "lost"} {
		for _, queued := range []bool{false, true} {
			t.Run(words(how, queued), func(t *testing.T) {
				run(t, nil, func(b *fixture) {
					if queued {
						b.send(post)
					}
					tun, h := b.attach(func(l *local) {
						l.until("hello")
						l.Write("HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n")
						time.Sleep(time.Second)
						l.Write(strings.Repeat("x", 2*relay.BodyPart))
						l.ended()
					})
					done := make(<-chan relay.Outcome)
					if !queued {
						_, done = b.begin(post)
					}
					time.Sleep(1100 * time.Millisecond)
					b.s.fail("chunk", errors.New("full"))
					time.Sleep(time.Second)
					b.s.fail("chunk", nil)
					if how == "lost" {
						h.Detach(false)
						tun.die()
					} else {
						tun.end(io.ErrUnexpectedEOF)
					}
					if !queued {
						<-done
					}
					time.Sleep(5 * time.Second)
					want := "delivered " + relay.CodeResponseNotStored
					if how == "lost" {
						want = "interrupted " + relay.CodeTunnelLost
					}
					b.want("attempt", outcome(b.last()), want)
					tun.wg.Wait()
				}, func(b *fixture) { b.a.Settings.AutoDeliver, b.s.delay = true, 500*time.Millisecond })
			})
		}
	}
}

// cancelingTunnel is the tunnel of a client that cancels its forward while a channel is being opened,
// and then refuses the channel.
type cancelingTunnel struct {
	*memTunnel
	hold relay.Attachment
}

func (t *cancelingTunnel) Open(context.Context, netip.AddrPort) (relay.Conn, error) {
	t.hold.Detach(true)
	return nil, relay.Errorf(relay.CodeLocalRefused, "open failed")
}

// TestForwardCanceledDuringAnOpen: if a client cancels its forward while a channel is being opened, the
// request or replay is queued, and the next tunnel delivers the replay.
func TestForwardCanceledDuringAnOpen(t *testing.T) {
	run(t, nil, func(b *fixture) {
		cancel := func() {
			tun := &cancelingTunnel{memTunnel: &memTunnel{}}
			tun.hold = b.d.Attach(b.a, tun)
		}
		cancel()
		out, _ := b.send(post)
		b.want("answer", code(out), "202")
		b.want("event", outcome(b.event().Attempts[0]), relay.StateQueued)
		cancel()
		if _, _, err := b.d.Replay(context.Background(), relay.System(), b.event().ID, time.Minute); err != nil {
			t.Error(err)
		}
		b.want("replay", outcome(b.event().Attempts[1]), relay.StateQueued)
		tun, _ := b.attach(always("hello", ok))
		time.Sleep(time.Second)
		b.want("replay by the next tunnel", outcome(b.event().Attempts[1]), relay.StateDelivered)
		tun.cutAll()
		tun.wg.Wait()
	})
}
