package delivery_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"relay"
)

// longHead is a request whose head alone does not fit into the window of smallWindow.
var longHead = "POST / HTTP/1.1\r\nHost: h\r\nX-Long: " + strings.Repeat("x", 60<<10) + "\r\nContent-Length: 5\r\n\r\nhello"

func smallWindow(b *fixture) { b.tun.window = 32 << 10 }

// slowEvents makes each step of the store take a minute.
func slowEvents(b *fixture) { b.s.delay = time.Minute }

// TestEveryPhaseEnds combines each phase of an exchange with each event that can end it. The request ends within
// the time that the table ends gives; some combinations have no time limit.
func TestEveryPhaseEnds(t *testing.T) {
	const begun = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx"
	phases := map[string]struct {
		raw     string
		serve   func(*local)
		prepare func(*fixture)
		more    bool // the caller sends more bytes after those of raw
	}{
		"open":        {post, func(l *local) { l.hang() }, func(b *fixture) { b.tun.hang = true }, false},
		"first write": {longHead, func(l *local) { l.hang() }, smallWindow, false},
		"first write of a part": {
			strings.Replace(longHead, "Length: 5", "Length: 50", 1), func(l *local) { l.hang() }, smallWindow, true,
		},
		"first write, nothing taken": {longHead, func(l *local) { l.hang() }, func(b *fixture) { b.tun.window = 1 }, false},
		"upload":                     {largePost, func(l *local) { l.until("\r\n\r\n"); l.hang() }, smallWindow, true},
		"wait for the head":          {post, func(l *local) { l.until("hello"); l.ended() }, nil, false},
		"inside the body":            {post, func(l *local) { l.until("hello"); l.Write(begun); l.ended() }, nil, false},
		"hold for the store":         {post, func(l *local) { l.until("hello"); l.Write(ok); l.ended() }, slowEvents, false},
		"splice":                     {upgrading + "hello", func(l *local) { l.until("hello"); l.Write(switching); l.ended() }, nil, false},
		"splice, nothing taken":      {upgrading + "hello", func(l *local) { l.until("hello"); l.Write(switching); l.hang() }, smallWindow, true},
	}
	const second, minute = time.Second, time.Minute
	ends := map[string]struct {
		do    func(b *fixture, c *memCaller)
		after map[string]time.Duration // longest wait for the end, by phase; "" = all other phases, 0 = no limit
	}{
		// An answer that has begun has no time limit while its caller is there, nor has an upgraded
		// connection.
		"response timeout": {nil, map[string]time.Duration{"": minute + second, "inside the body": 0, "splice": 0, "splice, nothing taken": 0}},
		"stale":            {func(b *fixture, _ *memCaller) { b.hold.Stale() }, map[string]time.Duration{"": 2 * second, "hold for the store": 11 * second}},
		"lost":             {func(b *fixture, _ *memCaller) { b.hold.Detach(false) }, map[string]time.Duration{"": 2 * second, "hold for the store": 11 * second}},
		"takeover": {func(b *fixture, _ *memCaller) {
			b.d.Attach(b.a, &memTunnel{serve: always("hello", ok)})
			// Package sshgate does this, too, some time after a takeover.
			b.hold.Detach(false)
		}, map[string]time.Duration{"": 2 * second, "hold for the store": 11 * second}},
		"drain": {func(b *fixture, _ *memCaller) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			if took := timed(func() { _ = b.d.Close(ctx) }); took > 5*time.Second {
				b.t.Errorf("Close took %v", took)
			}
		}, map[string]time.Duration{"": 5 * second}},
		// A request that was received completely is sent and answered although its caller has left. An
		// incomplete request ends at once.
		"caller reset": {func(_ *fixture, c *memCaller) {
			c.become(relay.CallerReset)
			c.in.finish(io.ErrUnexpectedEOF)
		}, map[string]time.Duration{
			"": minute + 2*second, "first write of a part": 3 * second, "upload": 3 * second, "inside the body": minute + 2*second,
			"splice": second, "splice, nothing taken": 3 * second,
		}},
		"caller ends": {func(_ *fixture, c *memCaller) {
			c.become(relay.CallerHalfClosed)
			c.in.finish(io.EOF)
		}, map[string]time.Duration{"": minute + 2*second, "inside the body": minute + 2*second, "splice, nothing taken": 0}},
	}
	for phase, p := range phases {
		for end, e := range ends {
			t.Run(phase+"/"+end, func(t *testing.T) {
				for _, timeout := range []time.Duration{time.Minute, 0} {
					if timeout == 0 && e.do == nil {
						continue
					}
					limit, ok := e.after[phase]
					if !ok {
						limit = e.after[""]
					}
					serve := p.serve
					run(t, serve, func(b *fixture) {
						c, done := b.begin(p.raw)
						switch {
						case !p.more:
						case strings.HasPrefix(end, "caller"):
							c.in.write(make([]byte, largeSize/2))
						default:
							c.in.write(make([]byte, largeSize))
						}
						time.Sleep(time.Second)
						if e.do != nil {
							e.do(b, c)
						}
						select {
						case <-done:
						case <-time.After(limit):
							if limit > 0 {
								t.Errorf("timeout %v: not ended after %v", timeout, limit)
							}
							b.hold.Detach(false)
							c.Abort()
							<-done
						}
					}, func(b *fixture) {
						if b.opt.ResponseTimeout = timeout; p.prepare != nil {
							p.prepare(b)
						}
					})
				}
			})
		}
	}
}

func timed(f func()) time.Duration {
	began := time.Now()
	f()
	return time.Since(began)
}

// TestPartOfTheFirstWriteIsNeverSentAgain: if a channel has taken a part of the first write before its tunnel
// ends, the request is sent on no other channel. The attempt is interrupted.
func TestPartOfTheFirstWriteIsNeverSentAgain(t *testing.T) {
	size := len(longHead)
	const atOnce, aSecond, late = "ends at once", "ends after a second", "takes nothing for a second"
	for _, lazy := range []bool{false, true} {
		for _, taken := range []int{1, 100, size - 1} {
			for _, when := range []string{atOnce, aSecond, late} {
				t.Run(fmt.Sprintf("lazy %v, %d taken, %s", lazy, taken, when), func(t *testing.T) {
					breakAfter := func(b *fixture) {
						if b.tun.lazy, b.tun.window = lazy, taken; when == late {
							b.tun.window = -1
						}
					}
					run(t, func(l *local) { l.hang() }, func(b *fixture) {
						if lazy && when != late {
							// The request uses the existing spare. The spare that is opened in its place takes no byte.
							synctest.Wait()
							b.tun.set(func() { b.tun.window = 0 })
						}
						_, done := b.begin(longHead)
						if when != atOnce {
							time.Sleep(time.Second)
						}
						if when == late {
							b.tun.set(func() {
								for _, c := range b.tun.channels {
									c.up.mu.Lock()
									c.up.window = taken
									c.up.changed()
									c.up.mu.Unlock()
								}
							})
						}
						time.Sleep(time.Millisecond)
						b.hold.Detach(false)
						b.tun.cutAll()
						out := <-done
						b.want("code", code(out), relay.CodeTunnelLost)
						// A client of relay up also has spares without a request.
						sent := 0
						b.tun.set(func() {
							for _, c := range b.tun.channels {
								if len(c.up.buf) > 0 {
									sent++
								}
							}
						})
						b.want("sent on", sent, 1)
						e := b.event()
						b.want("states", words(e.State, len(e.Attempts)), words(relay.StateInterrupted, 1))
						b.want("queued", b.d.Stats().Queued, 0)
					}, breakAfter)
				})
			}
		}
	}
}

// TestNothingTakenBeforeTheTunnelEnds: a request of which no byte was taken before its tunnel ends is queued,
// whichever ends first, the tunnel or its channels.
func TestNothingTakenBeforeTheTunnelEnds(t *testing.T) {
	ends := map[string]func(b *fixture){
		"channel, then tunnel": func(b *fixture) { b.tun.cutAll(); b.hold.Detach(false) },
		"tunnel, then channel": func(b *fixture) { b.hold.Detach(false); b.tun.cutAll() },
	}
	for name, end := range ends {
		for _, raw := range []string{post, longHead} {
			t.Run(fmt.Sprintf("%s, %d bytes", name, len(raw)), func(t *testing.T) {
				// The exchange notices the ends of tunnel and channel in a random order, so the test repeats each case.
				for range 20 {
					run(t, func(l *local) { l.hang() }, func(b *fixture) {
						_, done := b.begin(raw)
						time.Sleep(time.Second)
						end(b)
						out := <-done
						b.want("code", code(out), "202")
						e := b.event()
						b.want("states", words(e.State, len(e.Attempts)), words(relay.StateQueued, 1))
						b.want("queued", b.d.Stats().Queued, 1)
					}, func(b *fixture) { b.tun.window = -1 })
				}
			})
		}
	}
}

// TestAnswerBegunWithNothingTaken: if the local server takes no byte and only begins a response before the
// channel ends, the attempt fails as local-closed.
func TestAnswerBegunWithNothingTaken(t *testing.T) {
	for _, begun := range []string{"HTTP/1.1 2", "HTTP/1.1 100 Continue\r\n\r\n"} {
		for _, raw := range []string{post, longHead} {
			t.Run(fmt.Sprintf("%q, %d bytes", begun, len(raw)), func(t *testing.T) {
				run(t, func(l *local) { l.Write(begun); l.hang(); time.Sleep(time.Millisecond); l.Close() }, func(b *fixture) {
					_, done := b.begin(raw)
					time.Sleep(time.Second)
					b.tun.set(func() { b.tun.channels[0].up.finish(io.ErrUnexpectedEOF) })
					out := <-done
					b.want("code", code(out), relay.CodeLocalClosed)
					b.want("state", b.event().State, relay.StateFailed)
				}, func(b *fixture) { b.tun.window = -1 })
			})
		}
	}
}

// TestWholeAnswerWithNothingTaken: if the local server sends a complete response without taking a byte, and the
// channel ends while the response is being stored, the rest of the request is still read and stored.
func TestWholeAnswerWithNothingTaken(t *testing.T) {
	raw := strings.Replace(post, "Length: 5", "Length: 10", 1)
	run(t, func(l *local) { l.Write(ok); l.hang() }, func(b *fixture) {
		c, done := b.begin(raw)
		time.Sleep(time.Second)
		b.tun.set(func() { b.tun.channels[0].up.finish(io.ErrUnexpectedEOF) })
		time.Sleep(3 * time.Second)
		c.in.write([]byte("world"))
		b.want("code", code(<-done), "")
		b.want("answer", c.answer(), ok)
		// The end of the request is stored within this time.
		time.Sleep(3 * time.Second)
		e := b.event()
		b.want("request", words(e.State, e.Request.Body.State, string(e.Request.Body.Data)),
			words(relay.StateDelivered, relay.BodyComplete, "helloworld"))
	}, func(b *fixture) { b.tun.window, b.s.delay = -1, 2*time.Second })
}

// TestHeadAndLossInOneRead: if the tunnel is lost after a part of a response, the attempt is interrupted and has
// the truncated response. It makes no difference whether one read returns both the part and the loss.
func TestHeadAndLossInOneRead(t *testing.T) {
	const answer = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"
	const part = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhello"
	for name, raw := range map[string]string{"whole": post, "caller sends the rest": part, "caller leaves": part} {
		for _, together := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, together %v", name, together), func(t *testing.T) {
				run(t, func(l *local) {
					l.until("hello")
					l.Write(answer)
					if !together {
						time.Sleep(time.Millisecond)
					}
					// finish(errLate) does not close the channel: it makes reads fail as they do when the tunnel is lost.
					l.c.down.finish(errLate)
					l.ended()
				}, func(b *fixture) {
					c, done := b.begin(raw)
					time.Sleep(time.Second)
					b.hold.Detach(false)
					switch name {
					case "caller sends the rest":
						c.in.write([]byte("world"))
					case "caller leaves":
						c.in.finish(io.EOF)
					}
					<-done
					e := b.event()
					a := e.Attempts[0]
					b.want("state", words(e.State, a.State, a.Error.Code), words(relay.StateInterrupted, relay.StateInterrupted, relay.CodeTunnelLost))
					b.want("answer", words(a.Status, a.ResponseState, string(a.Response.Body.Data)), words(200, relay.ResponseTruncated, "abc"))
					state, body := relay.BodyComplete, "hello"
					switch {
					case name == "caller leaves", name == "caller sends the rest" && !together:
						// The answer had begun, so the connection of the caller was reset.
						state = relay.BodyAborted
					case name == "caller sends the rest":
						body = "helloworld"
					}
					b.want("request", words(e.Request.Body.State, string(e.Request.Body.Data)), words(state, body))
				}, func(b *fixture) { b.tun.endsWithLast = together })
			})
		}
	}
}
