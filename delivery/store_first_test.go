package delivery_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"relay"
)

func TestNothingIsForwardedWhileTheStoreFails(t *testing.T) {
	var k bodyRecorder
	run(t, k.serve, func(b *fixture) {
		b.s.fail("accept", relay.Errorf(relay.CodeStoreUnavailable, "down"))
		out, _ := b.send(numbered(1))
		b.want("the first one", code(out), relay.CodeStoreUnavailable)
		for range 3 {
			out, _ = b.send(numbered(2))
			b.want("code", code(out), relay.CodeStoreUnavailable)
		}
		b.want("forwarded", k.list(), "00001")
		b.s.fail("accept", nil)
		out, c := b.send(numbered(3))
		b.want("when it is back", c.answer(), ok)
		b.want("keep-alive", out.KeepAlive, true)
		b.want("identical", *b.last().Identical, true)
		b.want("forwarded", k.list(), "00001 00003")
		_, c = b.send(numbered(4))
		b.want("answer", c.answer(), ok)
	})
}

func TestStoredFirstThenQueued(t *testing.T) {
	run(t, always("hello", ok), func(b *fixture) {
		b.s.fail("accept", relay.Errorf(relay.CodeStoreUnavailable, "down"))
		b.send(post)
		b.s.fail("accept", nil)
		b.tun.set(func() { b.tun.heard, b.tun.hang = time.Minute, true })
		out, _ := b.send(post)
		b.want("answer", code(out), "202")
		b.want("state", b.event().State, relay.StateQueued)
		b.want("queued", b.d.Stats().Queued, 1)
	})
}

func TestStoredFirstReadsWhatIsStillComing(t *testing.T) {
	run(t, always("hello", ok), func(b *fixture) {
		b.s.fail("accept", relay.Errorf(relay.CodeStoreUnavailable, "down"))
		b.send(post)
		b.s.fail("accept", nil)
		c, done := b.begin("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe")
		time.Sleep(time.Second)
		c.in.write([]byte("llo\r\n0\r\n\r\n"))
		<-done
		b.want("answer", c.answer(), ok)
		b.want("identical", *b.last().Identical, true)
	})
}

func TestTakeoverWhileWaiting(t *testing.T) {
	var k bodyRecorder
	run(t, always("00001", ok), func(b *fixture) {
		b.tun.set(func() { b.tun.heard, b.tun.hang = time.Minute, true })
		c, done := b.begin(numbered(1))
		time.Sleep(time.Second)
		tun, h := b.attach(k.serve)
		<-done
		b.want("answer", c.answer(), ok)
		b.want("by the new one", k.list(), "00001")
		b.want("identical", *b.last().Identical, true)
		h.Detach(true)
		synctest.Wait()
		tun.cutAll()
	})
}

// TestStoredFirstThenQueuedGoesOutByItself: with autoDeliver, an event that was stored before it was to be
// sent, and that could not be sent, is delivered later by the same tunnel.
func TestStoredFirstThenQueuedGoesOutByItself(t *testing.T) {
	var k bodyRecorder
	run(t, k.serve, func(b *fixture) {
		b.tun.set(func() { b.tun.openErr = relay.ErrNotSent })
		out, _ := b.send(numbered(1))
		b.want("answer", code(out), "202")
		b.tun.set(func() { b.tun.openErr = nil })
		time.Sleep(time.Minute)
		b.want("delivered", k.list(), "00001")
		b.want("state", b.event().State, relay.StateDelivered)
	}, func(b *fixture) { b.opt.StoreFirst, b.a.Settings.AutoDeliver = yes, true })
}

// TestFullDiskBehindTheForwardIsNotStorageFull: if the disk is full, a request that was forwarded gets
// store-unavailable, and one of which no byte was forwarded gets storage-full.
func TestFullDiskBehindTheForwardIsNotStorageFull(t *testing.T) {
	full := &relay.Error{Code: relay.CodeStorageFull, Detail: "the disk is full", RetryAfter: 30 * time.Second}
	large := fmt.Sprintf("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n", 3*relay.BodyPart)
	never := func(l *local) { l.ended() }
	for name, c := range map[string]struct {
		step, request string
		serve         func(*local)
	}{
		"request not stored":                  {"accept", post, always("hello", ok)},
		"request without answer not stored":   {"accept", post, never},
		"answer not stored":                   {"finish", post, always("hello", ok)},
		"part of the request not stored":      {"chunk", large, never},
		"request that went bad not stored":    {"accept", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nhe", never},
		"request behind a refusal not stored": {"accept", post, nil},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(l *local) { c.serve(l) }, func(b *fixture) {
				want := relay.CodeStoreUnavailable
				if c.serve == nil {
					// The tunnel refuses the connection, so no byte is forwarded.
					b.tun.set(func() { b.tun.openErr = relay.Errorf(relay.CodeLocalRefused, "refused") })
					want = relay.CodeStorageFull
				}
				b.s.fail(c.step, full)
				call, done := b.begin(c.request)
				if c.step == "chunk" {
					go call.in.write(make([]byte, 3*relay.BodyPart))
				}
				out := <-done
				b.want("code", code(out), want)
				b.want("retry", out.Answer.Error.RetryAfter, 30*time.Second)
				b.want("event", out.Answer.Event.IsZero(), true)
				out, _ = b.send(post)
				if c.step == "accept" {
					// relayd now knows that the disk is full. It tries to store this request before it forwards a
					// byte of it, and refuses it because the store fails.
					b.want("the next one", code(out), relay.CodeStorageFull)
				}
			})
		})
	}
}

// TestNothingIsForwardedOfABodyThatCannotBeRead: if the parts of a stored body cannot be read, no channel is
// opened, and the attempt fails. Once they can be read, the next request is forwarded completely.
func TestNothingIsForwardedOfABodyThatCannotBeRead(t *testing.T) {
	const size = relay.InlineBody + 1
	large := fmt.Sprintf("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n", size)
	forwarded := 0
	run(t, func(l *local) {
		if l.n(len(large) + size) {
			forwarded++
			l.Write(ok)
		}
	}, func(b *fixture) {
		b.s.fail("check", relay.Errorf(relay.CodeStoreUnavailable, "down"))
		call, done := b.begin(large)
		go call.in.write(make([]byte, size))
		out := <-done
		b.want("code", code(out), relay.CodeStoreUnavailable)
		b.want("state", b.last().State, relay.StateFailed)
		b.want("channels opened", b.tun.count(), 0)
		b.s.fail("check", nil)
		call, done = b.begin(large)
		go call.in.write(make([]byte, size))
		<-done
		b.want("answer", call.answer(), ok)
		b.want("forwarded whole", forwarded, 1)
	}, func(b *fixture) { b.opt.StoreFirst = yes })
}

// TestStoredFirstUploadHasItsTimeForAnAnswer: a stored request that the local server reads for two minutes is
// answered, although the response timeout is one minute.
func TestStoredFirstUploadHasItsTimeForAnAnswer(t *testing.T) {
	const size = 1 << 20
	large := fmt.Sprintf("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n", size)
	run(t, func(l *local) {
		piece := make([]byte, 16<<10)
		// The local server reads for two minutes.
		for got := 0; got < len(large)+size; {
			n, err := l.c.up.read(piece, 0)
			if err != nil {
				return
			}
			got += n
			time.Sleep(2 * time.Second)
		}
		l.Write(ok)
	}, func(b *fixture) {
		c, done := b.begin(large)
		go c.in.write(make([]byte, size))
		b.want("code", code(<-done), "")
		b.want("answer", c.answer(), ok)
	}, func(b *fixture) { b.opt.StoreFirst, b.tun.window = yes, 32<<10 })
}

// TestStoredFirstAnsweredEarlyTookTimeToSend: if the response comes 5 s after the start of a request that is
// still being sent, the phase send of the attempt lasts 5 s.
func TestStoredFirstAnsweredEarlyTookTimeToSend(t *testing.T) {
	const size = 1 << 20
	run(t, func(l *local) {
		l.until("\r\n\r\n")
		time.Sleep(5 * time.Second)
		l.Write(ok)
		l.hang()
	}, func(b *fixture) {
		c, done := b.begin(fmt.Sprintf("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n", size))
		go c.in.write(make([]byte, size))
		<-done
		b.want("send", b.last().Timing.Send, 5*time.Second)
	}, func(b *fixture) { b.opt.StoreFirst, b.tun.window, b.s.delay = yes, 32<<10, time.Second })
}

// TestSilentStoreEndsAnAnswerThatGoesOn: if the store is silent, a long response ends after 10 s with
// store-unavailable, and the next two requests are not forwarded.
func TestSilentStoreEndsAnAnswerThatGoesOn(t *testing.T) {
	run(t, func(l *local) {
		l.until("\r\n\r\n")
		l.Write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
		time.Sleep(time.Minute)
	}, func(b *fixture) {
		begun := time.Now()
		for range 3 {
			out, _ := b.send(get)
			b.want("code", code(out), relay.CodeStoreUnavailable)
		}
		b.want("waited", time.Since(begun), 30*time.Second)
		b.want("forwarded", b.tun.count(), 1)
	}, func(b *fixture) { b.s.delay = 5 * time.Minute })
}

// TestSilentStoreIsAskedFirst: if the store is silent, the first request is forwarded and the next two are
// not. All get store-unavailable.
func TestSilentStoreIsAskedFirst(t *testing.T) {
	run(t, always("hello", ok), func(b *fixture) {
		for range 3 {
			out, _ := b.send(post)
			b.want("code", code(out), relay.CodeStoreUnavailable)
		}
		b.want("forwarded", b.tun.count(), 1)
	}, func(b *fixture) { b.s.delay = 5 * time.Minute })
}

// refusingStore is a store that refuses each event after two seconds, and accepts the ends of attempts.
type refusingStore struct{ *memStore }

func (refusingStore) Accept(*relay.Event) *relay.Ticket {
	t := relay.NewTicket()
	time.AfterFunc(2*time.Second, func() { t.Resolve(relay.Errorf(relay.CodeStoreUnavailable, "no space")) })
	return t
}

func (refusingStore) Finish(relay.ID, *relay.Attempt, string) *relay.Ticket {
	t := relay.NewTicket()
	time.AfterFunc(time.Hour, func() { t.Resolve(relay.ErrNotFound) })
	return t
}

// refusedEndStore is a store that refuses the end of each attempt after two seconds, and has not stored the event by
// then.
type refusedEndStore struct{ *memStore }

func (refusedEndStore) Accept(*relay.Event) *relay.Ticket {
	return refusingStore{}.Finish(relay.ID{}, nil, "")
}

func (refusedEndStore) Finish(relay.ID, *relay.Attempt, string) *relay.Ticket {
	return refusingStore{}.Accept(nil)
}

// TestRefusedEventIsNotWaitedFor: if the store refuses an event, or the end of its attempt, after two seconds, the
// caller gets the error at once, although the store has not yet resolved the other step.
func TestRefusedEventIsNotWaitedFor(t *testing.T) {
	for name, c := range map[string]struct {
		serve func(*local)
		raw   string
	}{
		"response of the local server": {always("hello", ok), post},
		"answer of the relay, offline": {nil, slackChallenge},
	} {
		for step, store := range map[string]func(b *fixture){
			"event": func(b *fixture) { b.opt.Store = refusingStore{b.s} },
			"end":   func(b *fixture) { b.opt.Store = refusedEndStore{b.s} },
		} {
			t.Run(name+", "+step, func(t *testing.T) {
				run(t, c.serve, func(b *fixture) {
					begun := time.Now()
					out, _ := b.send(c.raw)
					b.want("code", code(out), relay.CodeStoreUnavailable)
					b.want("waited", time.Since(begun), 2*time.Second)
				}, withHandshakes("slack"), store)
			})
		}
	}
}

// TestSilentStoreEndsALargeRequest: if the store is silent, a request with a large body gets
// store-unavailable after 20 s.
func TestSilentStoreEndsALargeRequest(t *testing.T) {
	const size = 8 * relay.BodyPart
	for name, paused := range map[string]bool{"online": false, "offline": true} {
		t.Run(name, func(t *testing.T) {
			run(t, func(l *local) { l.ended() }, func(b *fixture) {
				b.s.change(7, func(s *relay.Settings) { s.Paused = paused })
				begun := time.Now()
				c, done := b.begin(fmt.Sprintf("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n", size))
				go c.in.write(make([]byte, size))
				b.want("code", code(<-done), relay.CodeStoreUnavailable)
				b.want("waited", time.Since(begun), 20*time.Second)
			}, func(b *fixture) { b.s.delay = 5 * time.Minute })
		})
	}
}

// TestStoredFirstAndQueuedTooLate: if a request was stored first and has to be queued, and the store confirms
// that too late, the caller gets store-unavailable, and the event is canceled.
func TestStoredFirstAndQueuedTooLate(t *testing.T) {
	run(t, nil, func(b *fixture) {
		b.tun = &memTunnel{hang: true}
		b.hold = b.d.Attach(b.a, b.tun)
		_, done := b.begin(post)
		time.Sleep(100 * time.Millisecond)
		b.s.setDelay(15 * time.Second)
		b.hold.Detach(false)
		b.want("code", code(<-done), relay.CodeStoreUnavailable)
		time.Sleep(20 * time.Second)
		b.want("state", b.event().Attempts[0].State, relay.StateCanceled)
		b.want("queued", b.d.Stats().Queued, 0)
	}, func(b *fixture) { b.opt.StoreFirst = yes })
}
