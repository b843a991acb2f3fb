package delivery_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"relay"
)

func sum(b []byte) [32]byte { return sha256.Sum256(b) }

func timeout(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}

// pause waits longer than verifyAfter of package kept, after which a channel that is still open may be reused.
func (b *fixture) pause() { time.Sleep(30 * time.Millisecond) }

// last returns attempt 1 of the newest event.
func (b *fixture) last() relay.Attempt {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	return b.s.events[b.s.order[len(b.s.order)-1]].Attempts[0]
}

func TestReuse(t *testing.T) {
	run(t, always("hello", ok), func(b *fixture) {
		b.send(post)
		time.Sleep(900 * time.Millisecond)
		_, c := b.send(post)
		b.want("answer", c.answer(), ok)
		b.want("opened", b.tun.count(), 1)
		b.want("connection", b.last().Connection, relay.ConnectionReused)
		b.want("connect", b.last().Timing.Connect, time.Duration(0))
		b.want("identical", *b.last().Identical, true)
		time.Sleep(1100 * time.Millisecond)
		b.want("closed after a second", b.d.Stats().Channels, 0)
		b.send(post)
		b.want("opened", b.tun.count(), 2)
	}, oneConnection)
}

func TestOriginatorOfAReusedChannelIsTheFirstCaller(t *testing.T) {
	run(t, always("\r\n\r\n", ok), func(b *fixture) {
		b.send(get)
		b.pause()
		in, _ := b.inbound(get)
		in.From = netip.MustParseAddrPort("198.51.100.1:7")
		b.d.Capture(context.Background(), in)
		b.want("connection", b.last().Connection, relay.ConnectionReused)
		b.want("originators told to the client", b.tun.origins, "[203.0.113.9:5201]")
	})
}

func TestReuseGuards(t *testing.T) {
	cl := "Content-Length: 2\r\n"
	for name, tc := range map[string]struct{ request, answer string }{
		"response closes":      {post, "HTTP/1.1 200 OK\r\nConnection: close\r\n" + cl + "\r\nok"},
		"request closes":       {strings.Replace(post, "Host", "Connection: close\r\nHost", 1), ok},
		"request is 1.0":       {strings.Replace(post, "HTTP/1.1", "HTTP/1.0", 1), ok},
		"response is 1.0":      {post, "HTTP/1.0 200 OK\r\n" + cl + "\r\nok"},
		"no body":              {post, "HTTP/1.1 204 No Content\r\n\r\n"},
		"error":                {post, "HTTP/1.1 404 Not Found\r\n" + cl + "\r\nok"},
		"keep-alive is zero":   {post, "HTTP/1.1 200 OK\r\nKeep-Alive: timeout=0\r\n" + cl + "\r\nok"},
		"bytes behind the end": {post, ok + "x"},
		"sloppy":               {post, "HTTP/1.1 200 OK\nContent-Length: 2\n\nok"},
		"method":               {strings.Replace(post, "POST", "LOCK", 1), ok},
		"get with a body":      {strings.Replace(post, "POST", "GET", 1), ok},
		"upgrade":              {strings.Replace(post, "Host", "Connection: upgrade\r\nUpgrade: x\r\nHost", 1), ok},
		"expect":               {strings.Replace(post, "Host", "Expect: 100-continue\r\nHost", 1), ok},
		"ntlm":                 {strings.Replace(post, "Host", "Authorization: NTLM abc\r\nHost", 1), ok},
		"proxy-connection":     {strings.Replace(post, "Host", "Proxy-Connection: close\r\nHost", 1), ok},
		"trailers":             {chunkedWith("Connection: close\r\n"), ok},
		"negotiate":            {post, "HTTP/1.1 200 OK\r\nWWW-Authenticate: Negotiate\r\n" + cl + "\r\nok"},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, always("hello", tc.answer), func(b *fixture) {
				b.send(tc.request)
				b.pause()
				b.send(tc.request)
				b.want("opened", b.tun.count(), 2)
			}, oneConnection)
		})
	}
	t.Run("fresh connections", func(t *testing.T) {
		run(t, always("hello", ok), func(b *fixture) {
			b.send(post)
			b.pause()
			b.send(post)
			b.want("opened", b.tun.count(), 2)
		}, oneConnection, func(b *fixture) { b.a.Settings.FreshConnections = true })
	})
	t.Run("fresh connections from now on", func(t *testing.T) {
		run(t, always("hello", ok), func(b *fixture) {
			b.send(post)
			b.pause()
			b.s.change(7, func(s *relay.Settings) { s.FreshConnections = true })
			b.send(post)
			b.want("opened", b.tun.count(), 2)
		}, oneConnection)
	})
	t.Run("answered before the request was whole", func(t *testing.T) {
		run(t, func(l *local) {
			l.until("he")
			l.Write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")
			l.until("hello")
			l.Write("ok")
			l.ended()
		}, func(b *fixture) {
			c, done := b.begin(strings.TrimSuffix(post, "llo"))
			time.Sleep(time.Millisecond)
			c.in.write([]byte("llo"))
			<-done
			b.want("kept", b.d.Stats().Channels, 0)
		})
	})
	t.Run("get without a body is fine", func(t *testing.T) {
		run(t, always("\r\n\r\n", ok), func(b *fixture) {
			b.send(get)
			b.pause()
			b.send(get)
			b.want("opened", b.tun.count(), 1)
		})
	})
	t.Run("error of a get is fine", func(t *testing.T) {
		run(t, always("\r\n\r\n", "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"), func(b *fixture) {
			b.send(get)
			b.pause()
			b.send(get)
			b.want("opened", b.tun.count(), 1)
		})
	})
	t.Run("half of the announced keep-alive", func(t *testing.T) {
		run(t, always("hello", "HTTP/1.1 200 OK\r\nKeep-Alive: timeout=1\r\nContent-Length: 0\r\n\r\n"), func(b *fixture) {
			b.send(post)
			time.Sleep(600 * time.Millisecond)
			b.send(post)
			b.want("opened", b.tun.count(), 2)
		}, oneConnection)
	})
}

// chunkedWith returns a chunked request with the trailer lines.
func chunkedWith(trailers string) string {
	return "POST /hook HTTP/1.1\r\nHost: hook.localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n" + trailers + "\r\n"
}

func TestChunkedRequestIsReused(t *testing.T) {
	run(t, always("\r\n0\r\n\r\n", ok), func(b *fixture) {
		b.send(chunkedWith(""))
		b.pause()
		b.send(chunkedWith(""))
		b.want("opened", b.tun.count(), 1)
	}, oneConnection)
}

// TestBodyBytesStayWithTheirCaller: if a local server takes an unread body for the next request, only the caller
// that has sent the body gets the answer to it, because no other caller gets that channel.
func TestBodyBytesStayWithTheirCaller(t *testing.T) {
	run(t, ignoresBodies, func(b *fixture) {
		oneConnection(b)
		attacker := b.caller
		const body = "GET /evil HTTP/1.1\r\nX-Ignore: "
		b.send(fmt.Sprintf("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
		b.pause()
		b.caller = nil
		alone := strings.Replace(get, "Host", "Connection: close\r\nHost", 1)
		_, victim := b.send(alone)
		b.want("answer to another caller", answerBody(victim), "GET /")
		b.want("its connection", b.last().Connection, relay.ConnectionNew)
		b.pause()
		b.caller = attacker
		_, c := b.send(get)
		b.want("answer to the caller itself", answerBody(c), "GET /evil")
		b.want("its connection", b.last().Connection, relay.ConnectionReused)
		b.pause()
		b.caller = nil
		_, victim = b.send(alone)
		b.want("answer to another caller, after a GET of the first one", answerBody(victim), "GET /")
	})
}

func answerBody(c *memCaller) string {
	_, body, _ := strings.Cut(c.answer(), "\r\n\r\n")
	return body
}

// ignoresBodies answers each request head with the start of the head, and does not read bodies, so that
// it takes a body for the next head.
func ignoresBodies(l *local) {
	for l.until("\r\n\r\n") {
		head, rest, _ := bytes.Cut(l.got, []byte("\r\n\r\n"))
		line, _, _ := strings.Cut(string(head), " HTTP/1.1")
		l.got = rest
		if !l.Write(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(line), line)) {
			return
		}
	}
}

func TestReplayWithABodyKeepsNoChannel(t *testing.T) {
	run(t, always("hello", ok), func(b *fixture) {
		b.send(post)
		b.want("kept for its caller", b.d.Stats().Channels, 1)
		time.Sleep(2 * time.Second)
		if _, _, err := b.d.Replay(context.Background(), relay.Actor{}, b.event().ID, time.Second); err != nil {
			t.Fatal(err)
		}
		b.want("kept for nobody", b.d.Stats().Channels, 0)
	})
}

func TestBytesWhileParkedEndReuse(t *testing.T) {
	run(t, func(l *local) {
		l.until("hello")
		l.Write(ok)
		time.Sleep(10 * time.Millisecond)
		l.Write("HTTP/1.1 408 Request Timeout\r\n\r\n")
		l.ended()
	}, func(b *fixture) {
		b.send(post)
		time.Sleep(100 * time.Millisecond)
		_, c := b.send(post)
		b.want("answer", c.answer(), ok)
		b.want("opened", b.tun.count(), 2)
		b.send(post)
		b.want("opened, as reuse is off", b.tun.count(), 3)
		b.want("connection", b.last().Connection, relay.ConnectionNew)
	}, oneConnection)
}

func TestCloseWhileParkedIsSeen(t *testing.T) {
	run(t, func(l *local) {
		l.until("hello")
		l.Write(ok)
		time.Sleep(10 * time.Millisecond)
	}, func(b *fixture) {
		b.send(post)
		time.Sleep(100 * time.Millisecond)
		_, c := b.send(post)
		b.want("answer", c.answer(), ok)
		b.want("opened", b.tun.count(), 2)
		b.want("connection", b.last().Connection, relay.ConnectionNew)
	}, oneConnection)
}

func TestCloseAfterEachAnswerLosesNothing(t *testing.T) {
	run(t, func(l *local) {
		l.until("hello")
		l.Write(ok)
	}, func(b *fixture) {
		for range 5 {
			_, c := b.send(post)
			b.want("answer", c.answer(), ok)
		}
		b.want("opened", b.tun.count(), 5)
	}, oneConnection)
}

func TestProvenReuseIsImmediate(t *testing.T) {
	run(t, always("hello", ok), func(b *fixture) {
		b.send(post)
		b.pause()
		for range 5 {
			b.send(post)
		}
		b.want("opened", b.tun.count(), 1)
	}, oneConnection)
}

// TestEmptyCloseOfReusedChannel: if a reused channel is closed without a response, the request is not sent
// again, and further requests use new channels. A metric and a log line report this once.
func TestEmptyCloseOfReusedChannel(t *testing.T) {
	reg, log := prometheus.NewRegistry(), &bytes.Buffer{}
	run(t, func(l *local) {
		l.until("hello")
		l.Write(ok)
		l.got = nil
		l.until("hello")
	}, func(b *fixture) {
		b.send(post)
		b.pause()
		out, _ := b.send(post)
		b.want("code", code(out), relay.CodeLocalClosed)
		b.want("never sent twice", b.tun.count(), 1)
		b.want("noted", strings.Contains(b.last().Error.Message, "kept connection"), true)
		for range 2 {
			b.pause()
			b.send(post)
		}
		b.want("opened, as reuse is off", b.tun.count(), 3)
		b.want("counted", shown(t, reg)["reuse_ended_total"], 1)
		b.want("logged", strings.Count(log.String(), "connections to a local server are no longer reused"), 1)
		b.want("reason", strings.Contains(log.String(), "alias=7") && strings.Contains(log.String(), "reason="), true)
	}, oneConnection, func(b *fixture) { b.opt.Registry, b.opt.Log = reg, slog.New(slog.NewTextHandler(log, nil)) })
}

// TestConnectionOfADistrustedStatusIsNotKept: a response with 400, 408, 501 or 505 ends the reuse of its
// connection only.
func TestConnectionOfADistrustedStatusIsNotKept(t *testing.T) {
	for _, status := range []string{"400 Bad Request", "408 Request Timeout", "501 Not Implemented", "505 HTTP Version Not Supported"} {
		run(t, func(l *local) {
			for i := 0; l.until("\r\n\r\n"); i++ {
				l.got = nil
				if i == 1 {
					l.Write("HTTP/1.1 " + status + "\r\nContent-Length: 0\r\n\r\n")
					continue
				}
				l.Write(ok)
			}
		}, func(b *fixture) {
			for range 6 {
				b.send(get)
				b.pause()
			}
			b.want("opened with "+status, b.tun.count(), 3)
		}, oneConnection)
	}
}

func TestRetryOnlyAfterNotOneByte(t *testing.T) {
	run(t, always("hello", ok), func(b *fixture) {
		b.send(post)
		b.pause()
		b.tun.channels[0].dead = errors.New("gone")
		_, c := b.send(post)
		b.want("answer", c.answer(), ok)
		b.want("opened", b.tun.count(), 2)
		b.want("connection", b.last().Connection, relay.ConnectionNew)
	}, oneConnection)
	t.Run("of a fresh channel: queued", func(t *testing.T) {
		run(t, always("hello", ok), func(b *fixture) {
			b.tun.dead = []error{errors.New("gone")}
			out, _ := b.send(post)
			b.want("answer", code(out), "202")
			b.want("opened", b.tun.count(), 1)
		})
	})
}

func TestDeadSpareIsReplaced(t *testing.T) {
	run(t, always("hello", ok), func(b *fixture) {
		time.Sleep(time.Millisecond)
		_, c := b.send(post)
		b.want("answer", c.answer(), ok)
		b.want("identical", *b.last().Identical, true)
	}, func(b *fixture) { b.tun.lazy, b.tun.dead = true, []error{errors.New("gone")} })
}

func TestSilentLocalServerLosesParkedChannels(t *testing.T) {
	run(t, func(l *local) {
		for l.until("hello") {
			if contains(l.got, "slow") {
				time.Sleep(900 * time.Millisecond)
			}
			l.got = nil
			l.Write(ok)
		}
	}, func(b *fixture) {
		_, done := b.begin(strings.Replace(post, "hook?", "slow?", 1))
		time.Sleep(20 * time.Millisecond)
		b.send(post)
		time.Sleep(70 * time.Millisecond)
		b.want("after 90 ms", b.d.Stats().Channels, 2)
		time.Sleep(20 * time.Millisecond)
		b.want("after 110 ms", b.d.Stats().Channels, 1)
		<-done
	})
}

// serial returns a function that serves the connections of a tunnel one after another: it serves a
// connection only after the previous one is closed.
func serial() func(*local) {
	free := make(chan struct{}, 1)
	return func(l *local) {
		free <- struct{}{}
		defer func() { <-free }()
		always("hello", ok)(l)
	}
}

// onSerial calls run with a local server that accepts one connection at a time.
func onSerial(t *testing.T, f func(b *fixture), prepare ...func(b *fixture)) {
	t.Helper()
	run(t, nil, f, append([]func(b *fixture){func(b *fixture) { b.tun = &memTunnel{serve: serial()} }}, prepare...)...)
}

// TestNoChannelIsKeptWhileOneWaits: a local server that accepts one connection at a time answers 80 requests
// within 110 ms, and then 20 more within 100 ms. After 11 s a channel is kept again.
func TestNoChannelIsKeptWhileOneWaits(t *testing.T) {
	onSerial(t, func(b *fixture) {
		start := time.Now()
		var all []<-chan relay.Outcome
		for range 80 {
			_, done := b.begin(post)
			all = append(all, done)
		}
		for _, done := range all {
			<-done
		}
		b.want("all within 100 ms and the time of the store", time.Since(start) < 110*time.Millisecond, true)
		again := time.Now()
		for range 20 {
			b.send(post)
		}
		b.want("no look of 100 ms while reuse pauses", time.Since(again) < 100*time.Millisecond, true)
		time.Sleep(11 * time.Second)
		b.send(post)
		b.want("kept again", b.d.Stats().Channels, 1)
	})
}

// TestSlowAnswerClosesNoChannelOfAQuickServer: a local server has answered a request on a new channel while a
// kept channel was open. Then one slow response does not close the kept channel, but two slow responses at once
// do.
func TestSlowAnswerClosesNoChannelOfAQuickServer(t *testing.T) {
	run(t, func(l *local) {
		for l.until("\r\n\r\n") {
			if contains(l.got, "slow") {
				time.Sleep(150 * time.Millisecond)
			}
			l.got = nil
			l.Write(ok)
		}
	}, func(b *fixture) {
		alone := strings.Replace(get, "Host", "Connection: close\r\nHost", 1)
		slow := strings.Replace(alone, "/", "/slow", 1)
		// The channel is kept for this caller alone.
		b.send(post)
		time.Sleep(time.Millisecond)
		b.send(alone)
		b.send(slow)
		b.want("kept after 100 ms", b.d.Stats().Channels, 1)
		_, first := b.begin(slow)
		_, second := b.begin(slow)
		<-first
		<-second
		b.want("kept after 100 ms, with more open than before", b.d.Stats().Channels, 0)
		b.send(get)
		b.pause()
		b.send(get)
		b.want("connection", b.last().Connection, relay.ConnectionReused)
	})
}

// TestSlowAnswerOnAReusedChannelClosesNoOther: a slow response on a reused channel leaves both kept channels
// open.
func TestSlowAnswerOnAReusedChannelClosesNoOther(t *testing.T) {
	run(t, func(l *local) {
		for l.until("hello") {
			// The answer is slow enough that both requests run at the same time.
			time.Sleep(10 * time.Millisecond)
			if contains(l.got, "slow") {
				time.Sleep(150 * time.Millisecond)
			}
			l.got = nil
			l.Write(ok)
		}
	}, func(b *fixture) {
		two := callers(2)
		b.sendAll(two, post)
		b.pause()
		b.caller = two[0]
		b.send(strings.Replace(post, "hook?", "slow?", 1))
		b.want("connection", b.last().Connection, relay.ConnectionReused)
		b.want("kept", b.d.Stats().Channels, 2)
	})
}

// callers makes n caller connections.
func callers(n int) []*memCaller {
	out := make([]*memCaller, n)
	for i := range out {
		out[i] = newCaller("")
	}
	return out
}

// sendAll sends a request over each caller connection at once, and returns the duration until the last
// answer.
func (b *fixture) sendAll(callers []*memCaller, raw string) time.Duration {
	b.t.Helper()
	start := time.Now()
	var all []<-chan relay.Outcome
	for _, c := range callers {
		b.caller = c
		_, done := b.begin(raw)
		all = append(all, done)
	}
	for _, done := range all {
		b.want("error", code(<-done), "")
	}
	return time.Since(start)
}

// TestEachOfManyCallersReusesItsChannel: 200 callers that send again open no further channel. At most 256
// channels are kept, and channels of later callers replace those of earlier ones.
func TestEachOfManyCallersReusesItsChannel(t *testing.T) {
	run(t, always("hello", ok), func(b *fixture) {
		senders := callers(200)
		for range 4 {
			b.sendAll(senders, post)
			b.pause()
		}
		b.want("opened", b.tun.count(), len(senders))
		b.sendAll(callers(100), post)
		b.want("kept", b.d.Stats().Channels, 256)
		// Channels that have been idle for this time give way to new ones.
		time.Sleep(300 * time.Millisecond)
		senders = callers(100)
		b.sendAll(senders, post)
		opened := b.tun.count()
		b.sendAll(senders, post)
		b.want("opened for callers that came later", b.tun.count()-opened, 0)
	})
}

// workers returns a function that serves the connections of a tunnel with a fixed number of workers,
// each of which keeps its connection until it is closed.
func workers(n int) func(*local) {
	free := make(chan struct{}, n)
	return func(l *local) {
		free <- struct{}{}
		defer func() { <-free }()
		for l.until("hello") {
			time.Sleep(time.Millisecond)
			l.got = nil
			if !l.Write(ok) {
				return
			}
		}
	}
}

// TestKeptChannelsLeaveWorkersFree: if kept channels use every worker of a local server, 80 further requests
// end within 200 ms plus twice the time that the workers need for them.
func TestKeptChannelsLeaveWorkersFree(t *testing.T) {
	for _, n := range []int{2, 5, 16} {
		run(t, nil, func(b *fixture) {
			few, many := callers(n), callers(80)
			for range 4 {
				b.sendAll(few, post)
				b.pause()
			}
			direct := 80 / time.Duration(n) * time.Millisecond
			for round := range 5 {
				if took := b.sendAll(many, post); took > 200*time.Millisecond+2*direct {
					b.t.Errorf("%d workers, round %d: the last answer took %v", n, round, took)
				}
			}
		}, func(b *fixture) { b.tun = &memTunnel{serve: workers(n)} })
	}
}

// TestAnotherLocalServerMayBeSerial: after a concurrent local server is replaced by one that accepts one
// connection at a time, no caller waits over 150 ms.
func TestAnotherLocalServerMayBeSerial(t *testing.T) {
	run(t, always("hello", ok), func(b *fixture) {
		for range 3 {
			b.sendAll(callers(10), post)
			b.pause()
		}
		time.Sleep(2 * time.Second)
		b.tun.set(func() { b.tun.serve = serial() })
		for range 5 {
			// This request leaves a kept channel.
			b.send(post)
			if took := b.sendAll(callers(1), post); took > 150*time.Millisecond {
				t.Errorf("the next caller waited %v", took)
			}
		}
	})
}

// TestClientWithFewDescriptors: if a client can open no other connection, kept ones are closed, and the
// request is answered. Afterwards at most 64 are kept.
func TestClientWithFewDescriptors(t *testing.T) {
	run(t, always("hello", ok), func(b *fixture) {
		senders := callers(200)
		for range 3 {
			b.sendAll(senders[:150], post)
			b.pause()
		}
		b.caller = nil
		_, c := b.send(post)
		b.want("answer", c.answer(), ok)
		b.sendAll(senders, post)
		b.want("kept: 64 at most", b.d.Stats().Channels <= 64, true)
	}, func(b *fixture) { b.tun.most = 150 })
}

// TestChannelIsBackBeforeTheStore: a local server that accepts one connection at a time serves five requests
// within two seconds, although each response takes a second to store.
func TestChannelIsBackBeforeTheStore(t *testing.T) {
	onSerial(t, func(b *fixture) {
		start := time.Now()
		var all []<-chan relay.Outcome
		for range 5 {
			_, done := b.begin(post)
			all = append(all, done)
		}
		for _, done := range all {
			<-done
		}
		b.want("time", time.Since(start) < 2*time.Second, true)
	}, func(b *fixture) { b.s.delay, b.a.Settings.FreshConnections = time.Second, true })
}

func TestUploadThatIsNotReadLosesParkedChannels(t *testing.T) {
	onSerial(t, func(b *fixture) {
		b.send(post)
		b.want("kept", b.d.Stats().Channels, 1)
		start := time.Now()
		big := strings.Replace(strings.Replace(post, "Length: 5", "Length: 50005", 1), "hello", strings.Repeat("x", 50000)+"hello", 1)
		_, c := b.send(big)
		b.want("answer", c.answer(), ok)
		b.want("within", time.Since(start) < 250*time.Millisecond, true)
	}, func(b *fixture) { b.tun.window = 20000 })
}

func TestSparesOfLazyTunnel(t *testing.T) {
	run(t, always("hello", ok), func(b *fixture) {
		time.Sleep(time.Millisecond)
		b.want("one ahead", b.tun.count(), 1)
		_, c := b.send(post)
		b.want("answer", c.answer(), ok)
		b.want("connection", b.last().Connection, relay.ConnectionNew)
		time.Sleep(time.Millisecond)
		b.want("refilled", b.tun.count(), 2)
		b.want("waiting", b.d.Stats().Channels, 1)
		b.send(post)
		time.Sleep(time.Millisecond)
		b.want("never reused", b.tun.count(), 3)
	}, func(b *fixture) { b.tun.lazy = true })
}

func TestSparesFollowThePeak(t *testing.T) {
	run(t, func(l *local) {
		l.until("hello")
		time.Sleep(time.Second)
		l.Write(ok)
	}, func(b *fixture) {
		var all []<-chan relay.Outcome
		for range 5 {
			_, done := b.begin(post)
			all = append(all, done)
		}
		for _, done := range all {
			<-done
		}
		b.send(post)
		time.Sleep(time.Millisecond)
		b.want("spares", b.d.Stats().Channels, 5)
		time.Sleep(30 * time.Second)
		b.want("spares when idle", b.d.Stats().Channels, 1)
	}, func(b *fixture) { b.tun.lazy = true })
}

func TestSilentPeerIsProbed(t *testing.T) {
	run(t, always("hello", ok), func(b *fixture) {
		b.send(post)
		b.tun.set(func() { b.tun.heard = 2100 * time.Millisecond })
		b.send(post)
		b.want("a kept channel is not trusted", b.tun.count(), 2)
		b.tun.set(func() { b.tun.heard, b.tun.hang = time.Minute, true })
		start := time.Now()
		out, _ := b.send(post)
		b.want("answer", code(out), "202")
		took := time.Since(start)
		b.want("within 2 s, with time left to store it", took < 2*time.Second, true)
		st, _ := b.d.Status(context.Background(), []relay.Alias{*b.a})
		b.want("state", st[0].State, relay.TunnelStale)
		out, _ = b.send(post)
		b.want("at once", time.Since(start), took)
		b.want("answer", code(out), "202")
		b.tun.set(func() { b.tun.heard, b.tun.hang = 0, false })
		time.Sleep(time.Second)
		st, _ = b.d.Status(context.Background(), []relay.Alias{*b.a})
		b.want("state when a byte came", st[0].State, relay.TunnelOnline)
	}, oneConnection)
}
