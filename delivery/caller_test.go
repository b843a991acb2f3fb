package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/delivery"
)

func TestSlowBodyStreams(t *testing.T) {
	run(t, func(l *local) {
		l.until("\r\n\r\n")
		l.until("first")
		l.until("second")
		l.until("X: y")
		l.Write(ok)
	}, func(b *fixture) {
		c, done := b.begin("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfi")
		time.Sleep(time.Second)
		c.in.write([]byte("rst\r\n6\r\nsecond\r\n"))
		time.Sleep(time.Second)
		c.in.write([]byte("0\r\nX: y\r\n\r\nGET /next HTTP/1.1"))
		out := <-done
		b.want("keep-alive", out.KeepAlive, true)
		b.want("answer", c.answer(), ok)
		b.want("given back", string(c.unread), "GET /next HTTP/1.1")
		e := b.event()
		b.want("body", string(e.Request.Body.Data), "firstsecond")
		b.want("lines", string(e.Request.Lines), "5\r\n6\r\n0\r\nX: y\r\n\r\n")
		b.want("identical", *e.Attempts[0].Identical, true)
		b.want("send", e.Attempts[0].Timing.Send, 2*time.Second)
	})
}

func TestPipelinedRestIsGivenBack(t *testing.T) {
	run(t, always("hello", ok), func(b *fixture) {
		_, c := b.send(post + "GET /next HTTP/1.1\r\n")
		b.want("given back", string(c.unread), "GET /next HTTP/1.1\r\n")
		b.want("sent", contains(b.tun.channels[0].up.buf, "next"), false)
	})
}

func TestCallerGoneInsideBody(t *testing.T) {
	for name, end := range map[string]error{"ended": io.EOF, "broken": io.ErrUnexpectedEOF} {
		t.Run(name, func(t *testing.T) {
			var got []byte
			run(t, func(l *local) { l.ended(); got = l.got }, func(b *fixture) {
				c, done := b.begin("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc")
				time.Sleep(time.Second)
				c.in.finish(end)
				out := <-done
				b.want("relay's answer", code(out), "")
				e := b.event()
				b.want("state", e.State, relay.StateIncomplete)
				b.want("error", e.Error.Code, relay.CodeCallerGone)
				b.want("body state", e.Request.Body.State, relay.BodyAborted)
				b.want("body", string(e.Request.Body.Data), "abc")
				b.tun.wg.Wait()
				b.want("sent", strings.HasSuffix(string(got), "abc"), true)
			})
		})
	}
}

func TestCallerStallsInsideBody(t *testing.T) {
	run(t, func(l *local) { l.ended() }, func(b *fixture) {
		out, _ := b.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc")
		b.want("code", code(out), relay.CodeRequestTimeout)
		b.want("state", b.event().State, relay.StateIncomplete)
	})
}

func TestMalformedBodyAfterBytes(t *testing.T) {
	run(t, func(l *local) { l.ended() }, func(b *fixture) {
		c, done := b.begin("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
		time.Sleep(time.Millisecond)
		c.in.write([]byte("zz\r\n"))
		out := <-done
		b.want("code", code(out), relay.CodeRequestMalformed)
		b.want("state", b.event().State, relay.StateRejected)
		b.want("attempts", len(b.event().Attempts), 1)
	})
}

func TestMalformedBodyBeforeBytes(t *testing.T) {
	run(t, func(l *local) { l.ended() }, func(b *fixture) {
		out, _ := b.send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
		b.want("code", code(out), relay.CodeRequestMalformed)
		b.want("state", b.event().State, relay.StateRejected)
		b.want("opened", b.tun.count(), 0)
	})
}

func TestCallerGoneBeforeAnswer(t *testing.T) {
	run(t, func(l *local) {
		l.until("hello")
		time.Sleep(time.Second)
		l.Write(ok)
	}, func(b *fixture) {
		in, c := b.inbound(post)
		c.deaf = errors.New("reset")
		out := b.d.Capture(context.Background(), in)
		b.want("relay's answer", code(out), "")
		b.want("keep-alive", out.KeepAlive, false)
		a := b.event().Attempts[0]
		b.want("state", a.State, relay.StateDelivered)
		b.want("response state", a.ResponseState, relay.ResponseComplete)
		b.want("response", string(a.Response.Body.Data), "ok")
	})
}

// TestSlowCallerOfAShortAnswerSeesABreak: if a write to the caller fails, a complete response without a
// length ends with a reset of the caller's connection. It makes no difference whether the whole request has
// arrived.
func TestSlowCallerOfAShortAnswerSeesABreak(t *testing.T) {
	for name, request := range map[string]string{
		"whole request": post, "answered early": "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhello",
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(l *local) {
				l.until("hello")
				l.Write("HTTP/1.1 200 OK\r\n\r\nnot the end")
			}, func(b *fixture) {
				in, c := b.inbound(request)
				c.deaf = errors.New("i/o timeout")
				out := b.d.Capture(context.Background(), in)
				b.want("keep-alive", out.KeepAlive, false)
				b.want("aborted", c.wasAborted(), true)
				b.want("ended in order", c.wasHalved(), false)
				b.want("response state", b.event().Attempts[0].ResponseState, relay.ResponseComplete)
			})
		})
	}
}

func TestTooLargeByLength(t *testing.T) {
	run(t, always("x", ok), func(b *fixture) {
		out, _ := b.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1001\r\n\r\n")
		b.want("code", code(out), relay.CodeBodyTooLarge)
		b.want("opened", b.tun.count(), 0)
		b.want("state", b.event().State, relay.StateRejected)
	}, func(b *fixture) { b.opt.MaxBody = 1000 })
}

func TestLargestBody(t *testing.T) {
	body := strings.Repeat("x", 1000)
	for name, raw := range map[string]string{
		"length":  "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n" + body,
		"chunked": "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3e8\r\n" + body + "\r\n0\r\n\r\n",
	} {
		run(t, always(body, ok), func(b *fixture) {
			_, c := b.send(raw)
			b.want(name, c.answer(), ok)
			b.want("state", b.event().State, relay.StateDelivered)
		}, func(b *fixture) { b.opt.MaxBody = 1000 })
	}
}

func TestTooLargeAsItComes(t *testing.T) {
	run(t, func(l *local) { l.ended() }, func(b *fixture) {
		c, done := b.begin("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3e8\r\n" + strings.Repeat("x", 1000))
		time.Sleep(time.Millisecond)
		c.in.write([]byte("\r\n1\r\nx\r\n0\r\n\r\n"))
		out := <-done
		b.want("code", code(out), relay.CodeBodyTooLarge)
		e := b.event()
		b.want("state", e.State, relay.StateIncomplete)
		b.want("body state", e.Request.Body.State, relay.BodyOverLimit)
	}, func(b *fixture) { b.opt.MaxBody = 1000 })
}

func TestLargeBodyGoesInParts(t *testing.T) {
	const size = 5<<20 + 123
	run(t, func(l *local) {
		l.until("\r\n\r\n")
		l.n(len(l.got) - len(l.got[strings.Index(string(l.got), "\r\n\r\n")+4:]) + size)
		l.Write(ok)
	}, func(b *fixture) {
		c, done := b.begin(fmt.Sprintf("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n", size))
		go c.in.write([]byte(strings.Repeat("0123456789abcdef", size/16+1)[:size]))
		<-done
		e := b.event()
		b.want("answer", c.answer(), ok)
		b.want("parts", e.Request.Body.Parts, 21)
		b.want("size", e.Request.Body.Size, size)
		b.want("at most two unresolved", b.s.num(&b.s.mostUnset) <= 2, true)
		var all []byte
		for i := range e.Request.Body.Parts {
			p := b.s.parts[partKey{e.ID, 0, i}]
			if i < e.Request.Body.Parts-1 && len(p) != relay.BodyPart {
				b.t.Errorf("part %d has %d bytes", i, len(p))
			}
			all = append(all, p...)
		}
		b.want("sha256", e.Request.Body.SHA256, sum(all))
		b.want("identical", *e.Attempts[0].Identical, true)
		// A replay sends the same request from the store.
		ev, n, err := b.d.Replay(context.Background(), relay.System(), e.ID, time.Minute)
		b.want("error", err, nil)
		b.want("state", ev.Attempt(n).State, relay.StateDelivered)
		b.want("replay identical", *ev.Attempt(n).Identical, true)
	}, func(b *fixture) { b.s.delay = 3 * time.Millisecond })
}

func TestLostPartIsNoSuccess(t *testing.T) {
	run(t, func(l *local) { l.ended() }, func(b *fixture) {
		b.s.fail("chunk", relay.Errorf(relay.CodeStoreUnavailable, "down"))
		c, done := b.begin("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n")
		go c.in.write(make([]byte, 1000000))
		b.want("code", code(<-done), relay.CodeStoreUnavailable)
		c.in.finish(io.EOF)
	})
}

func TestResponseOverTheCapture(t *testing.T) {
	run(t, func(l *local) {
		l.until("hello")
		l.Write("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + strings.Repeat("r", 1000))
	}, func(b *fixture) {
		_, c := b.send(post)
		b.want("answer", strings.HasSuffix(c.answer(), strings.Repeat("r", 1000)), true)
		r := b.event().Attempts[0].Response.Body
		b.want("state", r.State, relay.BodyOverLimit)
		b.want("size", r.Size, 1000)
		b.want("stored", r.Stored, 300)
		b.want("sha256", r.SHA256, sum([]byte(strings.Repeat("r", 1000))))
	}, func(b *fixture) { b.opt.MaxResponseCapture = 300 })
}

func TestLargeResponseGoesInParts(t *testing.T) {
	const size = 3<<20 + 7
	body := strings.Repeat("0123456789abcde\n", size/16+1)[:size]
	run(t, func(l *local) {
		l.until("hello")
		l.Write(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", size) + body)
	}, func(b *fixture) {
		_, c := b.send(post)
		b.want("answer", strings.HasSuffix(c.answer(), body), true)
		r := b.event().Attempts[0].Response.Body
		b.want("size", r.Size, size)
		b.want("stored", r.Stored, size)
		b.want("parts", r.Parts, 13)
		b.want("sha256", r.SHA256, sum([]byte(body)))
	}, func(b *fixture) { b.s.delay = time.Millisecond })
}

func TestSettingsChangeTheHead(t *testing.T) {
	var got string
	serve := func(l *local) {
		l.until("hello")
		got = string(l.got)
		l.Write(ok)
	}
	run(t, serve, func(b *fixture) {
		b.send(post)
		b.want("head", got, "POST /hook?x=1 HTTP/1.1\r\nHost: 127.0.0.1:3000\r\nContent-Length: 5\r\n"+
			"X-Forwarded-For: 203.0.113.9\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: hook.localhost\r\n\r\nhello")
		e := b.event()
		b.want("identical", *e.Attempts[0].Identical, false)
		b.want("sent head", string(e.Attempts[0].SentHead)+"hello", got)
		b.want("head", string(e.Request.Head)+"hello", post)
		first := got
		b.s.change(7, func(s *relay.Settings) { s.Forwarded = false })
		b.d.Replay(context.Background(), relay.System(), e.ID, time.Minute)
		b.want("replay", got, first)
	}, func(b *fixture) {
		b.a.Settings.Forwarded = true
		b.tun.info = relay.TunnelInfo{Target: "http://127.0.0.1:3000", HostHeader: relay.HostRewrite}
	})
}

// TestForwardedLinesAreNotDoubled: the setting forwarded adds no X-Forwarded-Proto to a request that has one,
// and no X-Forwarded-Host to a request that has one.
func TestForwardedLinesAreNotDoubled(t *testing.T) {
	var got string
	serve := func(l *local) {
		l.until("hello")
		got = string(l.got)
		l.Write(ok)
	}
	run(t, serve, func(b *fixture) {
		for _, c := range []struct{ own, added string }{
			{"x-forwarded-proto: wss\r\n", "X-Forwarded-For: 203.0.113.9\r\nX-Forwarded-Host: hook.localhost\r\n"},
			{"X-FORWARDED-HOST: a.example\r\n", "X-Forwarded-For: 203.0.113.9\r\nX-Forwarded-Proto: http\r\n"},
		} {
			head := "POST / HTTP/1.1\r\nHost: hook.localhost\r\n" + c.own + "Content-Length: 5\r\n"
			b.send(head + "\r\nhello")
			b.want("head", got, head+c.added+"\r\nhello")
		}
	}, func(b *fixture) { b.a.Settings.Forwarded = true })
}

func TestHostHeader(t *testing.T) {
	for _, c := range []struct {
		name, setting string
		info          relay.TunnelInfo
		want          string
	}{
		{"preserve", relay.HostPreserve, relay.TunnelInfo{Target: "http://127.0.0.1:3000"}, "hook.localhost"},
		{"rewrite by plain ssh", relay.HostRewrite, relay.TunnelInfo{}, "localhost"},
		{"rewrite by relay up", relay.HostRewrite, relay.TunnelInfo{Target: "https://app.test:3000"}, "app.test:3000"},
		{"literal", "dev.example.com:81", relay.TunnelInfo{}, "dev.example.com:81"},
		{"relay up --host-header wins", "dev.example.com", relay.TunnelInfo{HostHeader: "other.test"}, "other.test"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			run(t, func(l *local) {
				l.until("hello")
				got = append(got, string(l.got))
				l.Write(ok)
			}, func(b *fixture) {
				b.send(post)
				b.d.Replay(context.Background(), relay.System(), b.event().ID, time.Minute)
				want := strings.Replace(post, "hook.localhost", c.want, 1)
				b.want("original and replay", got, []string{want, want})
				b.want("stored", string(b.event().Request.Head)+"hello", post)
				b.want("identical", *b.event().Attempts[0].Identical, want == post)
			}, func(b *fixture) { b.a.Settings.HostHeader, b.tun.info = c.setting, c.info })
		})
	}
}

func TestOwnContinueWhenNoAnswerWillCome(t *testing.T) {
	run(t, nil, func(b *fixture) {
		c, done := b.begin("POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
		time.Sleep(time.Millisecond)
		b.want("100", c.answer(), "HTTP/1.1 100 Continue\r\n\r\n")
		c.in.write([]byte("hello"))
		out := <-done
		b.want("answer", code(out), "202")
		b.want("body", string(b.event().Request.Body.Data), "hello")
	})
}

func TestOwnContinueWhenRefused(t *testing.T) {
	run(t, func(*local) {}, func(b *fixture) {
		b.tun.openErr = relay.Errorf(relay.CodeLocalRefused, "refused")
		c, done := b.begin("POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
		time.Sleep(time.Millisecond)
		b.want("100", c.answer(), "HTTP/1.1 100 Continue\r\n\r\n")
		c.in.write([]byte("hello"))
		b.want("code", code(<-done), relay.CodeLocalRefused)
		b.want("body", string(b.event().Request.Body.Data), "hello")
	})
}

// TestTimeAfterARefusalIsOfTheCaller: if the local server refuses the connection or does not answer in time, the
// phases of the attempt do not include the time in which the caller then sends the rest of its body.
func TestTimeAfterARefusalIsOfTheCaller(t *testing.T) {
	run(t, func(*local) {}, func(b *fixture) {
		b.tun.openErr = relay.Errorf(relay.CodeLocalRefused, "refused")
		c, done := b.begin("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhe")
		time.Sleep(20 * time.Second)
		c.in.write([]byte("llo"))
		b.want("code", code(<-done), relay.CodeLocalRefused)
		b.want("timing", b.event().Attempts[0].Timing, relay.Timing{})
	})
	run(t, silent, func(b *fixture) {
		c, done := b.begin(waiting)
		time.Sleep(80 * time.Second)
		c.in.write([]byte("hello"))
		b.want("code", code(<-done), relay.CodeLocalTimeout)
		b.want("latency", b.event().Attempts[0].Timing.Latency(), 60*time.Second)
	})
}

func TestOwnContinueWhenTheTunnelIsLost(t *testing.T) {
	run(t, func(l *local) { l.until("\r\n\r\n"); l.ended() }, func(b *fixture) {
		c, done := b.begin("POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
		time.Sleep(time.Second)
		b.want("100 before", c.answer(), "")
		b.hold.Detach(false)
		time.Sleep(time.Second)
		b.want("100", c.answer(), "HTTP/1.1 100 Continue\r\n\r\n")
		c.in.write([]byte("hello"))
		b.want("code", code(<-done), relay.CodeTunnelLost)
		b.want("body", string(b.event().Request.Body.Data), "hello")
	})
}

func TestStoppingRelay(t *testing.T) {
	run(t, func(l *local) { l.until("hello"); l.ended() }, func(b *fixture) {
		_, done := b.begin(post)
		time.Sleep(time.Second)
		ctx, cancel := timeout(5 * time.Second)
		defer cancel()
		closed := make(chan error, 1)
		go func() { closed <- b.d.Close(ctx) }()
		time.Sleep(time.Second)
		out, _ := b.send(post)
		b.want("new ones", code(out), relay.CodeStopping)
		b.want("cut", code(<-done), relay.CodeTunnelLost)
		b.want("state", b.event().State, relay.StateInterrupted)
		b.want("error", <-closed != nil, true)
	})
}

var _ = delivery.Stats{}
