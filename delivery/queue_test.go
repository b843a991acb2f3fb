package delivery_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"relay"
	"relay/delivery"
)

// numbered returns a POST whose body is the number i, in five digits.
func numbered(i int) string {
	return fmt.Sprintf("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n%05d", i)
}

// words joins values with spaces.
func words(v ...any) string { return strings.TrimSpace(fmt.Sprintln(v...)) }

// bodyRecorder is a local server that records the request bodies, of 5 bytes each.
type bodyRecorder struct {
	mu     sync.Mutex
	bodies []string
	slow   time.Duration
}

func (k *bodyRecorder) serve(l *local) {
	for l.until("\r\n\r\n") {
		i := strings.Index(string(l.got), "\r\n\r\n") + 4
		if !l.n(i + 5) {
			return
		}
		k.mu.Lock()
		k.bodies = append(k.bodies, string(l.got[i:i+5]))
		k.mu.Unlock()
		time.Sleep(k.slow)
		l.got = nil
		if !l.Write(ok) {
			return
		}
	}
}

func (k *bodyRecorder) list() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return strings.Join(k.bodies, " ")
}

func (b *fixture) attach(serve func(*local)) (*memTunnel, relay.Attachment) {
	t := &memTunnel{serve: serve}
	h := b.d.Attach(b.a, t)
	b.t.Cleanup(func() {})
	return t, h
}

// TestOfflineAnswersAreCommittedFirst: each kind of answer of an offline alias waits until the store has
// accepted the event. If the store fails, the answer is store-unavailable.
func TestOfflineAnswersAreCommittedFirst(t *testing.T) {
	own := relay.OfflineAnswer{PathPrefix: "/", Status: 299, Body: relay.AnswerBody{Encoding: "utf8", Data: "own"}}
	for name, c := range map[string]struct {
		raw  string
		set  func(*relay.Settings)
		want string
	}{
		"queued":    {post, func(*relay.Settings) {}, "202"},
		"status":    {post, func(s *relay.Settings) { s.OfflineStatus = 503 }, "503"},
		"own":       {post, func(s *relay.Settings) { s.Answers = []relay.OfflineAnswer{own} }, "299"},
		"challenge": {slackChallenge, func(s *relay.Settings) { s.Handshakes = []string{"slack"} }, "200"},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, nil, func(b *fixture) {
				_, done := b.begin(c.raw)
				time.Sleep(999 * time.Millisecond)
				select {
				case out := <-done:
					t.Errorf("answered %s before it was durable", code(out))
				default:
				}
				time.Sleep(5 * time.Second)
				b.want("answer", code(<-done), c.want)
				b.s.fail("accept", relay.Errorf(relay.CodeStoreUnavailable, "down"))
				out, _ := b.send(c.raw)
				b.want("without a store", code(out), relay.CodeStoreUnavailable)
			}, func(b *fixture) { b.s.delay = time.Second; c.set(&b.a.Settings) })
		})
	}
}

func TestOfflineIsQueued(t *testing.T) {
	run(t, nil, func(b *fixture) {
		out, c := b.send(post)
		b.want("answer", code(out), "202")
		b.want("keep-alive", out.KeepAlive, true)
		b.want("nothing written", c.answer(), "")
		e := b.event()
		b.want("event", out.Answer.Event, e.ID)
		b.want("state", e.State, relay.StateQueued)
		b.want("queued", b.d.Stats().Queued, 1)
	})
}

func TestOfflineStatusAndPause(t *testing.T) {
	run(t, always("hello", ok), func(b *fixture) {
		out, _ := b.send(post)
		b.want("answer", code(out), "503")
		st, _ := b.d.Status(context.Background(), []relay.Alias{*b.a})
		b.want("state", st[0].State, relay.TunnelOffline)
		b.want("tunnel", st[0].Tunnel == nil, true)
		e, n, err := b.d.Replay(context.Background(), relay.System(), b.event().ID, time.Minute)
		b.want("error", err, nil)
		b.want("replay", e.Attempt(n).State, relay.StateQueued)
		b.s.change(7, func(s *relay.Settings) { s.Paused = false })
		synctest.Wait()
		e = b.event()
		b.want("replay after the pause", e.Attempts[1].State, relay.StateDelivered)
		b.want("superseded", e.Attempts[0].State, relay.StateCanceled)
		out, _ = b.send(post)
		b.want("answer", code(out), "")
	}, func(b *fixture) { b.a.Settings.Paused, b.a.Settings.OfflineStatus = true, 503 })
}

func TestReleaseInOrder(t *testing.T) {
	var k bodyRecorder
	run(t, nil, func(b *fixture) {
		var want []string
		for i := range 20 {
			b.send(numbered(i))
			want = append(want, fmt.Sprintf("%05d", i))
			time.Sleep(time.Millisecond)
		}
		tun, h := b.attach(k.serve)
		synctest.Wait()
		b.want("inbound events wait", k.list(), "")
		n, err := b.d.Release(context.Background(), relay.System(), "hook")
		b.want("released", words(n, err), "20 <nil>")
		synctest.Wait()
		b.want("order", k.list(), strings.Join(want, " "))
		b.want("queued", b.d.Stats().Queued, 0)
		n, _ = b.d.Release(context.Background(), relay.System(), "hook")
		b.want("released again", n, 0)
		h.Detach(true)
		tun.cutAll()
		tun.wg.Wait()
	})
}

// TestClaimedAttemptIsPutBack: if the tunnel ends while the end of a queued delivery is being stored, the
// next attempt stays queued, and the next tunnel delivers it.
func TestClaimedAttemptIsPutBack(t *testing.T) {
	k := bodyRecorder{slow: time.Second}
	run(t, nil, func(b *fixture) {
		b.send(numbered(1))
		b.send(numbered(2))
		tun, h := b.attach(k.serve)
		// The answer has arrived, and the end of its attempt is being stored.
		time.Sleep(1500 * time.Millisecond)
		h.Detach(false)
		time.Sleep(5 * time.Second)
		b.want("delivered", k.list(), "00001")
		b.want("second", b.last().State, relay.StateQueued)
		b.want("queued", b.d.Stats().Queued, 1)
		next, _ := b.attach(k.serve)
		time.Sleep(10 * time.Second)
		b.want("delivered", k.list(), "00001 00002")
		for _, m := range []*memTunnel{tun, next} {
			m.cutAll()
			m.wg.Wait()
		}
	}, func(b *fixture) { b.a.Settings.AutoDeliver, b.s.delay = true, time.Second })
}

// fencedStore refuses each claim with ErrFenced, as a store does whose record names another tunnel for the alias
// than the one that claims.
type fencedStore struct {
	*memStore
	claims atomic.Int64
}

func (s *fencedStore) Next(relay.NextClaim) (*relay.Claim, error) {
	s.claims.Add(1)
	return nil, relay.ErrFenced
}

// TestQueueOfAFencedTunnelIsLeftAlone: after ErrFenced, the dispatcher does not claim again within a minute,
// and logs nothing.
func TestQueueOfAFencedTunnelIsLeftAlone(t *testing.T) {
	var k bodyRecorder
	var s *fencedStore
	run(t, nil, func(b *fixture) {
		b.send(numbered(1))
		tun, h := b.attach(k.serve)
		synctest.Wait()
		claims := s.claims.Load()
		time.Sleep(time.Minute)
		if more := s.claims.Load() - claims; claims == 0 || more != 0 {
			t.Errorf("claimed %d times, and %d times in the minute after", claims, more)
		}
		b.want("log", b.log.String(), "")
		h.Detach(false)
		tun.cutAll()
		tun.wg.Wait()
	}, logged, func(b *fixture) {
		b.a.Settings.AutoDeliver = true
		s = &fencedStore{memStore: b.s}
		b.opt.Store = s
	})
}

func TestReleaseWhileOfflineGoesOutOnAttach(t *testing.T) {
	var k bodyRecorder
	run(t, nil, func(b *fixture) {
		b.send(numbered(1))
		b.d.Release(context.Background(), relay.System(), "hook")
		tun, h := b.attach(k.serve)
		synctest.Wait()
		b.want("delivered", k.list(), "00001")
		e := b.event()
		b.want("state", e.State, relay.StateDelivered)
		b.want("identical", *e.Attempts[0].Identical, true)
		h.Detach(false)
		tun.cutAll()
	})
}

func TestAutoDeliver(t *testing.T) {
	k := bodyRecorder{slow: time.Second}
	run(t, nil, func(b *fixture) {
		for i := range 3 {
			b.send(numbered(i))
			time.Sleep(time.Millisecond)
		}
		tun, h := b.attach(k.serve)
		time.Sleep(1500 * time.Millisecond)
		b.want("one at a time", k.list(), "00000 00001")
		_, done := b.begin(numbered(9))
		time.Sleep(100 * time.Millisecond)
		b.want("live ones don't wait", k.list(), "00000 00001 00009")
		<-done
		time.Sleep(5 * time.Second)
		b.want("all", k.list(), "00000 00001 00009 00002")
		h.Detach(true)
		tun.cutAll()
	}, func(b *fixture) { b.a.Settings.AutoDeliver = true })
}

// firstTries waits half a second, and returns how often attempts were queued again until then. Both the
// attach of a tunnel and its record in the store may cause a try.
func (b *fixture) firstTries() int {
	time.Sleep(500 * time.Millisecond)
	return b.s.num(&b.s.requeues)
}

func TestRefusedDeliveryGoesBack(t *testing.T) {
	var k bodyRecorder
	run(t, nil, func(b *fixture) {
		for i := range 2 {
			b.send(numbered(i))
			time.Sleep(time.Millisecond)
		}
		tun := &memTunnel{serve: k.serve, openErr: relay.Errorf(relay.CodeLocalRefused, "refused")}
		h := b.d.Attach(b.a, tun)
		first := b.firstTries()
		// The tries come after 1, 3, 7, 15, 31 and 61 s.
		time.Sleep(70 * time.Second)
		b.want("requeues", b.s.num(&b.s.requeues)-first, 6)
		b.want("states", b.s.states(), "queued queued")
		b.want("queued", b.d.Stats().Queued, 2)
		tun.set(func() { tun.openErr = nil })
		time.Sleep(30 * time.Second)
		b.want("order", k.list(), "00000 00001")
		h.Detach(true)
		tun.cutAll()
	}, func(b *fixture) { b.a.Settings.AutoDeliver = true })
}

// TestBackoffStartsAnewWithATunnel: a new tunnel resets the backoff of the queue, and not only its
// current pause.
func TestBackoffStartsAnewWithATunnel(t *testing.T) {
	run(t, nil, func(b *fixture) {
		b.send(numbered(0))
		refuses := func() *memTunnel {
			return &memTunnel{openErr: relay.Errorf(relay.CodeLocalRefused, "refused")}
		}
		b.d.Attach(b.a, refuses())
		first := b.firstTries()
		// The tries come after 1, 3, 7 and 15 s.
		time.Sleep(20 * time.Second)
		b.want("requeues", b.s.num(&b.s.requeues)-first, 4)
		b.d.Attach(b.a, refuses())
		first = b.firstTries()
		// The tries come 1, 3 and 7 s after the attach.
		time.Sleep(10 * time.Second)
		b.want("requeues by the next tunnel", b.s.num(&b.s.requeues)-first, 3)
	}, func(b *fixture) { b.a.Settings.AutoDeliver = true })
}

// TestBackoffGoesOnAfterAStoreThatWasAway: an outage of the store between two tries does not reset the
// backoff.
func TestBackoffGoesOnAfterAStoreThatWasAway(t *testing.T) {
	run(t, nil, func(b *fixture) {
		b.send(numbered(0))
		b.d.Attach(b.a, &memTunnel{openErr: relay.Errorf(relay.CodeLocalRefused, "refused")})
		first := b.firstTries()
		// The tries come after 1, 3 and 7 s.
		time.Sleep(10 * time.Second)
		b.s.fail("Next", relay.Errorf(relay.CodeStoreUnavailable, "away"))
		time.Sleep(6 * time.Second)
		b.s.fail("Next", nil)
		// One try follows when the store is back, and the next one 16 s later.
		time.Sleep(14 * time.Second)
		b.want("requeues", b.s.num(&b.s.requeues)-first, 4)
	}, func(b *fixture) { b.a.Settings.AutoDeliver = true })
}

func TestQueueLimits(t *testing.T) {
	t.Run("attempts", func(t *testing.T) {
		run(t, nil, func(b *fixture) {
			for i := range 3 {
				out, _ := b.send(numbered(i))
				b.want("answer", code(out), "202")
			}
			out, _ := b.send(numbered(9))
			b.want("full", code(out), relay.CodeQueueFull)
			b.want("retry", out.Answer.Error.RetryAfter > 0, true)
			b.want("kept", b.s.num(&b.s.accepts), 3)
			_, _, err := b.d.Replay(context.Background(), relay.System(), b.s.order[0], 0)
			b.want("replay", relay.AsError(err).Code, relay.CodeQueueFull)
			b.d.Cancel(context.Background(), relay.System(), b.s.order[0])
			synctest.Wait()
			out, _ = b.send(numbered(10))
			b.want("after a cancel", code(out), "202")
		}, func(b *fixture) { b.opt.QueueLimit = 3 })
	})
	t.Run("at once", func(t *testing.T) {
		run(t, nil, func(b *fixture) {
			var all []<-chan relay.Outcome
			for i := range 50 {
				_, done := b.begin(numbered(i))
				all = append(all, done)
			}
			got := map[string]int{}
			for _, done := range all {
				got[code(<-done)]++
			}
			b.want("exact", words(got["202"], got[relay.CodeQueueFull]), "10 40")
		}, func(b *fixture) { b.opt.QueueLimit = 10; b.s.delay = 5 * time.Millisecond })
	})
	t.Run("bytes", func(t *testing.T) {
		size := int64(len(numbered(0)))
		run(t, nil, func(b *fixture) {
			for i := range 2 {
				out, _ := b.send(numbered(i))
				b.want("answer", code(out), "202")
			}
			out, _ := b.send(numbered(3))
			b.want("full", code(out), relay.CodeQueueFull)
			out, _ = b.send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")
			b.want("chunked", code(out), relay.CodeQueueFull)
		}, func(b *fixture) { b.opt.QueueBytes = 2*size + 10 })
	})
	t.Run("bytes, exactly", func(t *testing.T) {
		size := int64(len(numbered(0)))
		for limit, want := range map[int64]string{2 * size: "202", 2*size - 1: relay.CodeQueueFull} {
			run(t, nil, func(b *fixture) {
				b.send(numbered(1))
				out, _ := b.send(numbered(2))
				b.want("second", code(out), want)
			}, func(b *fixture) { b.opt.QueueBytes = limit })
		}
	})
	// The queued attempts of all aliases of an account count together; each account has its own count.
	t.Run("account", func(t *testing.T) {
		run(t, nil, func(b *fixture) {
			sendTo := func(name string, i int) relay.Outcome {
				in, _ := b.inbound(numbered(i))
				in.Alias, _ = b.d.Alias(name)
				return b.d.Capture(context.Background(), in)
			}
			b.want("first", code(sendTo("hook", 1)), "202")
			b.want("second", code(sendTo("other", 2)), "202")
			full := sendTo("hook", 3)
			b.want("full", code(full), relay.CodeQueueFull)
			b.want("says", strings.Contains(full.Answer.Error.Detail, "limit of what may wait at all its aliases"), true)
			b.want("retry", full.Answer.Error.RetryAfter > 0, true)
			b.want("full at the other", code(sendTo("other", 4)), relay.CodeQueueFull)
			b.want("another account", code(sendTo("foreign", 5)), "202")
			_, _, err := b.d.Replay(context.Background(), relay.System(), b.s.order[0], 0)
			b.want("replay", relay.AsError(err).Code, relay.CodeQueueFull)
			b.want("it names the limit", strings.Contains(err.Error(), "owner"), true)
			_, _, err = b.d.Replay(context.Background(), relay.Actor{Kind: relay.ActorShare}, b.s.order[0], 0)
			b.want("replay by a share", words(relay.AsError(err).Code, strings.Contains(err.Error(), "owner")), words(relay.CodeQueueFull, false))
			b.d.Cancel(context.Background(), relay.System(), b.s.order[0])
			synctest.Wait()
			b.want("after a cancel", code(sendTo("other", 6)), "202")
			own := int64(3)
			b.s.mu.Lock()
			for _, id := range []int64{7, 8} { // the store gives the limit of the account with each of its aliases
				changed := *b.s.aliases[id]
				changed.OwnerMaxQueue = &own
				b.s.aliases[id] = &changed
			}
			b.s.mu.Unlock()
			b.d.Publish([]relay.Change{{Kind: relay.ChangeAccount, Account: 1}})
			synctest.Wait()
			b.want("its own limit", code(sendTo("hook", 7)), "202")
			b.want("beyond it", code(sendTo("other", 8)), relay.CodeQueueFull)
		}, func(b *fixture) {
			b.opt.AccountQueue = 2
			b.s.aliases[8] = &relay.Alias{ID: 8, Name: "other", Owner: 1, Settings: relay.DefaultSettings()}
			b.s.aliases[9] = &relay.Alias{ID: 9, Name: "foreign", Owner: 2, Settings: relay.DefaultSettings()}
		})
	})
	// If a chunked body arrives completely with its head, its bytes are counted only when the request
	// is queued.
	t.Run("chunked", func(t *testing.T) {
		const head = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
		run(t, nil, func(b *fixture) {
			out, _ := b.send(head + "3e8\r\n" + strings.Repeat("x", 1000) + "\r\n0\r\n\r\n")
			b.want("too large", code(out), relay.CodeQueueFull)
			out, _ = b.send(head + "5\r\nhello\r\n0\r\n\r\n")
			b.want("small", code(out), "202")
		}, func(b *fixture) { b.opt.QueueBytes = int64(len(head)) + 500 })
	})
	t.Run("seeded", func(t *testing.T) {
		run(t, nil, func(b *fixture) {
			b.send(numbered(1))
			b.close()
			b.d = delivery.New(b.opt)
			b.s.publish = b.d.Publish
			b.d.Start(context.Background())
			out, _ := b.send(numbered(2))
			b.want("full", code(out), relay.CodeQueueFull)
		}, func(b *fixture) { b.opt.QueueLimit = 1 })
	})
}

func TestCallerGoneWhileQueueing(t *testing.T) {
	run(t, nil, func(b *fixture) {
		c, done := b.begin("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc")
		time.Sleep(time.Second)
		c.Abort()
		out := <-done
		b.want("answer", code(out), "")
		b.want("state", b.event().State, relay.StateIncomplete)
		b.want("event for the access log", out.Event, b.event().ID)
		b.want("queued", b.d.Stats().Queued, 0)
	})
	run(t, nil, func(b *fixture) { // it takes no 100 Continue, but sends its body
		in, c := b.inbound("POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
		c.failWrites()
		time.AfterFunc(time.Second, func() { c.in.write([]byte("hello")) })
		out := b.d.Capture(context.Background(), in)
		b.want("answer and state", words(code(out), b.event().State), words("", relay.StateQueued))
		b.want("event for the access log", out.Event, b.event().ID)
	})
}

// TestEventOfAnOutcome: if a caller leaves inside its body and the event is not stored, the outcome names no event.
func TestEventOfAnOutcome(t *testing.T) {
	for _, serve := range []func(*local){nil, func(l *local) { l.ended() }} {
		run(t, serve, func(b *fixture) {
			b.s.fail("accept", &relay.Error{Code: relay.CodeStorageFull, Detail: "the disk is full"})
			c, done := b.begin("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc")
			time.Sleep(time.Second)
			c.Abort()
			out := <-done
			b.want("answer and event", words(code(out), out.Event), words("", relay.ID{}))
			b.want("stored", len(b.s.events), 0)
		})
	}
}

func TestRejectIsLimited(t *testing.T) {
	run(t, nil, func(b *fixture) {
		in, _ := b.inbound("G(ET / HTTP/1.1\r\nHost: hook\r\n\r\n")
		for range 100 {
			b.d.Reject(in, relay.Errorf(relay.CodeRequestMalformed, "bad"))
		}
		b.want("kept", b.s.num(&b.s.accepts), 60)
		time.Sleep(time.Minute)
		b.d.Reject(in, relay.Errorf(relay.CodeRequestMalformed, "bad"))
		b.want("kept", b.s.num(&b.s.accepts), 61)
	})
}

// TestRejectedEventIsDescribedByItsHead: a rejected event has the hash of an empty body and the HTTP
// version of its head.
func TestRejectedEventIsDescribedByItsHead(t *testing.T) {
	run(t, nil, func(b *fixture) {
		in, _ := b.inbound("G(ET / HTTP/1.0\r\nHost: hook\r\n\r\n")
		b.d.Reject(in, relay.Errorf(relay.CodeRequestMalformed, "bad"))
		e := b.event()
		b.want("sha256", e.Request.Body.SHA256, sha256.Sum256(nil))
		b.want("minor version", e.HTTPMinor, 0)
	})
}

// TestRejectDoesNotWaitForTheStore: Reject returns at once, although the store takes 10 s to store the event.
func TestRejectDoesNotWaitForTheStore(t *testing.T) {
	run(t, nil, func(b *fixture) {
		in, _ := b.inbound("G(ET / HTTP/1.1\r\nHost: hook\r\n\r\n")
		begun := time.Now()
		b.d.Reject(in, relay.Errorf(relay.CodeRequestMalformed, "bad"))
		b.want("time of Reject", time.Since(begun), time.Duration(0))
		time.Sleep(11 * time.Second)
		b.want("kept", b.event().State, relay.StateRejected)
	}, func(b *fixture) { b.s.delay = 10 * time.Second })
}

func TestRemovedAlias(t *testing.T) {
	run(t, always("hello", ok), func(b *fixture) {
		b.s.mu.Lock()
		delete(b.s.aliases, 7)
		b.s.mu.Unlock()
		b.d.Publish([]relay.Change{{Kind: relay.ChangeAlias, Alias: 7}})
		_, known := b.d.Alias("hook")
		b.want("known", known, false)
		synctest.Wait()
		b.want("told", fmt.Sprint(b.tun.closed), "[the alias was removed]")
	})
}

// TestStoredJustInTimeOrCanceled: if the store accepts a request exactly at the end of the wait, either the
// event is queued, or the caller gets store-unavailable and the event is canceled.
func TestStoredJustInTimeOrCanceled(t *testing.T) {
	// The result of the store and the timeout come in a random order.
	for range 50 {
		run(t, nil, func(b *fixture) {
			_, done := b.begin(post)
			out := <-done
			b.s.setDelay(0)
			time.Sleep(time.Second)
			want := relay.StateQueued
			if code(out) == relay.CodeStoreUnavailable {
				want = relay.StateCanceled
			}
			b.want("state after "+code(out), b.event().Attempts[0].State, want)
		}, func(b *fixture) { b.s.delay = 10 * time.Second })
	}
}
