package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"relay"
	"relay/wire"
)

func yes() bool { return true }

// TestStoredFirstAndRefusedStaysWhole: the event of a request that is stored before it is forwarded stays
// complete, even if the local server refuses the request after its head and never gets the body.
func TestStoredFirstAndRefusedStaysWhole(t *testing.T) {
	const no = "HTTP/1.1 417 No\r\nContent-Length: 0\r\n\r\n"
	run(t, func(l *local) { l.until("\r\n\r\n"); l.Write(no); l.ended() }, func(b *fixture) {
		out, c := b.send(expecting)
		b.want("answer", c.answer(), no)
		b.want("keep-alive", out.KeepAlive, true)
		e := b.event()
		b.want("body", words(e.Request.Body.State, string(e.Request.Body.Data)), "complete hello")
		b.want("amended", len(b.s.amends), 0)
	}, func(b *fixture) { b.opt.StoreFirst = yes })
}

// TestStoredFirstTooLateIsNotLeftDelivering: if the store accepts a request after its caller got an error,
// the event becomes failed, and nothing is forwarded.
func TestStoredFirstTooLateIsNotLeftDelivering(t *testing.T) {
	var k bodyRecorder
	run(t, k.serve, func(b *fixture) {
		out, _ := b.send(numbered(1))
		b.want("code", code(out), relay.CodeStoreUnavailable)
		time.Sleep(time.Minute)
		b.want("state", b.event().State, relay.StateFailed)
		b.want("forwarded", k.list(), "")
	}, func(b *fixture) { b.opt.StoreFirst, b.s.delay = yes, 15*time.Second })
}

// TestSparesComeBack: after no spare could be opened, the next request makes the pool open spares again.
func TestSparesComeBack(t *testing.T) {
	run(t, always("hello", ok), func(b *fixture) {
		time.Sleep(time.Millisecond)
		b.tun.set(func() { b.tun.openErr = relay.Errorf(relay.CodeOverloaded, "full") })
		b.send(post)
		time.Sleep(time.Second)
		b.want("spares", b.d.Stats().Channels, 0)
		b.tun.set(func() { b.tun.openErr = nil })
		b.send(post)
		time.Sleep(time.Millisecond)
		b.want("spares when there can be some", b.d.Stats().Channels, 1)
	}, func(b *fixture) { b.tun.lazy = true })
}

func TestOverloadedIsFailedAndReplayable(t *testing.T) {
	run(t, always("hello", ok), func(b *fixture) {
		b.tun.set(func() { b.tun.openErr = relay.Errorf(relay.CodeOverloaded, "full") })
		out, _ := b.send(post)
		b.want("answer", code(out), relay.CodeOverloaded)
		b.want("Retry-After", out.Answer.Error.RetryAfter > 0, true)
		e := b.event()
		b.want("state", e.State, relay.StateFailed)
		b.want("error", e.Attempts[0].Error.Code, relay.CodeOverloaded)
		b.want("body", string(e.Request.Body.Data), "hello")
		b.want("blocker", e.Blocker, "")
		b.tun.set(func() { b.tun.openErr = nil })
		_, _, err := b.d.Replay(context.Background(), relay.System(), e.ID, time.Minute)
		b.want("error of the replay", err, nil)
		b.want("state after the replay", b.event().State, relay.StateDelivered)
	})
}

// TestBrokenOffBehindAChunkIsStoredExactly: a chunked message that ends just after the data of a chunk, or
// within the next bytes, is recorded byte for byte.
func TestBrokenOffBehindAChunkIsStoredExactly(t *testing.T) {
	raw := func(m relay.Message) string {
		var out strings.Builder
		if err := wire.Rebuild(&out, &m, nil, nil); err != nil {
			t.Error(err)
		}
		return out.String()
	}
	for _, end := range []string{"", "\r", "\r\n", "\r\n2"} {
		answer := "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n3\r\nabc" + end
		run(t, func(l *local) { l.until("hello"); l.Write(answer) }, func(b *fixture) {
			b.send(post)
			b.want("response", raw(b.event().Attempts[0].Response), answer)
		})
		request := "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n3\r\nabc" + end
		run(t, func(l *local) { l.ended() }, func(b *fixture) {
			c, done := b.begin(request)
			c.in.finish(io.EOF)
			<-done
			b.want("request", raw(b.event().Request), request)
		})
	}
}

// TestBrokenEventDoesNotStopTheQueue: a queued event whose body has the wrong size fails, and the next one is
// delivered.
func TestBrokenEventDoesNotStopTheQueue(t *testing.T) {
	var k bodyRecorder
	run(t, nil, func(b *fixture) {
		b.send(numbered(1))
		b.s.mu.Lock()
		b.s.events[b.s.order[0]].Request.Body.Size++
		b.s.mu.Unlock()
		time.Sleep(time.Millisecond)
		b.send(numbered(2))
		tun, _ := b.attach(k.serve)
		synctest.Wait()
		b.want("delivered", k.list(), "00002")
		b.want("states", b.s.states(), "failed delivered")
		tun.cutAll()
		tun.wg.Wait()
	}, func(b *fixture) { b.a.Settings.AutoDeliver = true })
}

// TestRightsOfAViewerAreReadUntilTheyAreKnown: a viewer whose account lost the alias while the store was down
// is ended once the store works again.
func TestRightsOfAViewerAreReadUntilTheyAreKnown(t *testing.T) {
	run(t, nil, func(b *fixture) {
		sub, err := b.d.Subscribe(context.Background(), relay.Actor{Account: 1, Kind: relay.ActorUser}, 7, "")
		must(t, err)
		defer sub.Close()
		b.s.fail("aliases", relay.Errorf(relay.CodeStoreUnavailable, "down"))
		b.s.mu.Lock()
		given := *b.s.aliases[7]
		given.Owner = 2
		b.s.aliases[7] = &given
		b.s.mu.Unlock()
		b.d.Publish([]relay.Change{{Kind: relay.ChangeAlias, Alias: 7}})
		time.Sleep(10 * time.Second)
		b.s.fail("aliases", nil)
		time.Sleep(2 * time.Second)
		b.d.Publish([]relay.Change{{Kind: relay.ChangeQueue, Alias: 7}})
		ctx, cancel := timeout(time.Minute)
		defer cancel()
		_, err = sub.Next(ctx)
		b.want("error", relay.AsError(err).Code, relay.CodeNotFound)
	})
}

// TestQueueIsCountedAgainWhenTheStoreIsBack: a queue that could not be counted is counted within two seconds
// after the store works again.
func TestQueueIsCountedAgainWhenTheStoreIsBack(t *testing.T) {
	run(t, nil, func(b *fixture) {
		b.send(numbered(1))
		b.s.fail("stats", relay.Errorf(relay.CodeStoreUnavailable, "down"))
		err := b.d.Cancel(context.Background(), relay.System(), b.event().ID)
		must(t, err)
		time.Sleep(10 * time.Second)
		b.want("queued", b.d.Stats().Queued, 1)
		b.s.fail("stats", nil)
		time.Sleep(2 * time.Second)
		b.want("queued when it is back", b.d.Stats().Queued, 0)
	})
}

// TestRefusedBodiesAreCounted: of 70 requests with a malformed body, 60 are stored and 10 are only counted.
func TestRefusedBodiesAreCounted(t *testing.T) {
	reg := prometheus.NewRegistry()
	run(t, nil, func(b *fixture) {
		for range 70 {
			b.send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
		}
		got := shown(t, reg)
		b.want("kept", got["rejected_total"], 60)
		b.want("not kept", got["rejected_dropped_total"], 10)
		b.want("accepts", b.s.num(&b.s.accepts), 60)
	}, func(b *fixture) { b.opt.Registry = reg })
}

// TestPromisedBodyTakesNoMemory: a request holds less memory than its Content-Length while only one byte of
// its body has arrived.
func TestPromisedBodyTakesNoMemory(t *testing.T) {
	const callers, each = 200, 64 << 10
	run(t, nil, func(b *fixture) {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for range callers {
			c, done := b.begin(fmt.Sprintf("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\nx", each))
			defer func() { c.in.finish(io.EOF); <-done }()
		}
		synctest.Wait()
		runtime.GC()
		runtime.ReadMemStats(&after)
		if took := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / callers; took >= each {
			t.Errorf("each of those who wait holds %d bytes", took)
		}
	})
}

// TestLostPartBeforeAStoredStep: if a part of a request body could not be stored, the caller gets
// store-unavailable; if a part of a response body could not be stored, the response breaks off. Both are so even
// if the store then accepts the event and the end of its attempt.
func TestLostPartBeforeAStoredStep(t *testing.T) {
	large := strings.Repeat("x", relay.InlineBody+1000)
	lossy := func(b *fixture) { b.s.delay, b.s.unchecked = time.Second, true }
	t.Run("request", func(t *testing.T) {
		raw := request(1, len(large))
		run(t, func(l *local) { l.n(len(raw)); l.Write(ok); l.ended() }, func(b *fixture) {
			b.s.fail("chunk", errors.New("disk"))
			out, c := b.send(raw)
			b.want("code", code(out), relay.CodeStoreUnavailable)
			b.want("answer", c.answer(), "")
		}, lossy)
	})
	t.Run("answer", func(t *testing.T) {
		answer := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(large), large)
		run(t, always("hello", answer), func(b *fixture) {
			b.s.fail("chunk", errors.New("disk"))
			out, c := b.send(post)
			b.want("whole answer", strings.HasSuffix(c.answer(), large), false)
			b.want("keep-alive", out.KeepAlive, false)
		}, lossy)
	})
}

// TestRefusedRequestIsNotCountedInTheQueue: a request that the store refused does not count in the queue.
func TestRefusedRequestIsNotCountedInTheQueue(t *testing.T) {
	run(t, nil, func(b *fixture) {
		b.s.fail("accept", errors.New("away"))
		out, _ := b.send(post)
		b.want("code", code(out), relay.CodeStoreUnavailable)
		b.want("queued", b.d.Stats().Queued, 0)
	})
}
