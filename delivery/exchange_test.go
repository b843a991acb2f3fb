package delivery_test

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"relay"
)

// TestMain fails if goroutines outlive the tests. It waits longer than goleak does by default, because on a
// busy machine some goroutines end late.
func TestMain(m *testing.M) {
	status := m.Run()
	if status == 0 {
		leak := goleak.Find()
		for end := time.Now().Add(realWait); leak != nil && time.Now().Before(end); {
			leak = goleak.Find()
		}
		if leak != nil {
			fmt.Fprintln(os.Stderr, leak)
			status = 1
		}
	}
	os.Exit(status)
}

func TestQuick(t *testing.T) {
	run(t, always("hello", ok), func(b *fixture) {
		out, c := b.send(post)
		b.want("answer", c.answer(), ok)
		b.want("keep-alive", out.KeepAlive, true)
		e := b.event()
		a := e.Attempts[0]
		b.want("state", e.State, relay.StateDelivered)
		b.want("body", string(e.Request.Body.Data), "hello")
		b.want("identical", *a.Identical, true)
		b.want("connection", a.Connection, relay.ConnectionNew)
		b.want("status", a.Status, 200)
		b.want("response", string(a.Response.Body.Data), "ok")
		b.want("accepts", b.s.num(&b.s.accepts), 1)
		b.want("origin", b.tun.origins[0], "203.0.113.9:5201")
	})
}

// slowAcceptStore takes a moment for each Accept.
type slowAcceptStore struct{ *memStore }

func (s *slowAcceptStore) Accept(e *relay.Event) *relay.Ticket {
	time.Sleep(time.Millisecond)
	return s.memStore.Accept(e)
}

// TestFinishIsReadyBeforeAccept: EndedAt of an attempt is the time at which the response arrived, even if
// Accept ends later.
func TestFinishIsReadyBeforeAccept(t *testing.T) {
	run(t, always("hello", ok), func(b *fixture) {
		began := time.Now()
		_, c := b.send(post)
		b.want("answer", c.answer(), ok)
		b.want("end after", b.event().Attempts[0].EndedAt.Sub(began), time.Duration(0))
	}, func(b *fixture) { b.opt.Store = &slowAcceptStore{b.s} })
}

func TestRequestOfASlowServerIsStoredFirst(t *testing.T) {
	var other *fixture
	run(t, func(l *local) {
		l.until("hello")
		time.Sleep(19 * time.Millisecond)
		other.want("accepts after 19 ms", other.s.num(&other.s.accepts), 0)
		time.Sleep(5 * time.Millisecond)
		other.want("accepts after 24 ms", other.s.num(&other.s.accepts), 1)
		l.Write(ok)
	}, func(b *fixture) {
		_, c := b.send(post)
		b.want("answer", c.answer(), ok)
		tm := b.event().Attempts[0].Timing
		b.want("wait", tm.Wait, 24*time.Millisecond)
	}, func(b *fixture) { other = b })
}

func TestStreamFlowsAndLastPieceWaits(t *testing.T) {
	run(t, func(l *local) {
		l.until("hello")
		l.Write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
		time.Sleep(time.Second)
		l.Write("3\r\ntwo\r\n")
		time.Sleep(time.Second)
		l.Write("0\r\n\r\n")
	}, func(b *fixture) {
		c, done := b.begin(post)
		time.Sleep(50 * time.Millisecond)
		b.want("before the commit", c.answer(), "")
		time.Sleep(100 * time.Millisecond)
		b.want("first piece", strings.HasSuffix(c.answer(), "3\r\none\r\n"), true)
		time.Sleep(time.Second)
		b.want("second piece", strings.HasSuffix(c.answer(), "3\r\ntwo\r\n"), true)
		time.Sleep(900 * time.Millisecond)
		b.want("last piece held", strings.HasSuffix(c.answer(), "3\r\ntwo\r\n"), true)
		<-done
		b.want("last piece", strings.HasSuffix(c.answer(), "0\r\n\r\n"), true)
		b.want("lines", string(b.event().Attempts[0].Response.Lines), "3\r\n3\r\n0\r\n\r\n")
	}, func(b *fixture) { b.s.delay = 100 * time.Millisecond })
}

func TestInterimPassesAtOnce(t *testing.T) {
	run(t, func(l *local) {
		l.until("hello")
		l.Write("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
		time.Sleep(10 * time.Millisecond)
		l.Write("HTTP/1.1 102 Processing\r\n\r\n" + ok)
	}, func(b *fixture) {
		c, done := b.begin(post)
		time.Sleep(5 * time.Millisecond)
		b.want("interim before the commit", c.answer(), "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
		<-done
		b.want("answer", strings.HasSuffix(c.answer(), "HTTP/1.1 102 Processing\r\n\r\n"+ok), true)
		b.want("interim", len(b.event().Attempts[0].Interim), 2)
	}, func(b *fixture) { b.s.delay = 100 * time.Millisecond })
}

func TestTooManyInterim(t *testing.T) {
	const interim = "HTTP/1.1 102 Processing\r\n\r\n"
	for n, want := range map[int]string{16: "", 17: relay.CodeLocalMalformed} {
		run(t, func(l *local) {
			l.until("hello")
			for range n {
				l.Write(interim)
			}
			l.Write(ok)
		}, func(b *fixture) {
			out, c := b.send(post)
			b.want(fmt.Sprint("code with ", n), code(out), want)
			b.want(fmt.Sprint("passed with ", n), strings.Count(c.answer(), interim), 16)
		})
	}
}

func TestUntilClose(t *testing.T) {
	run(t, func(l *local) {
		l.until("hello")
		l.Write("HTTP/1.0 200 OK\r\n\r\nall of it")
	}, func(b *fixture) {
		out, c := b.send(post)
		b.want("answer", c.answer(), "HTTP/1.0 200 OK\r\n\r\nall of it")
		b.want("keep-alive", out.KeepAlive, false)
		b.want("aborted", c.wasAborted(), false)
		a := b.event().Attempts[0]
		b.want("response state", a.ResponseState, relay.ResponseComplete)
		b.want("framing", a.Response.Framing, relay.FramingClose)
	})
}

func TestTruncated(t *testing.T) {
	for name, answer := range map[string]string{
		"length":  "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
		"chunked": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nha",
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(l *local) {
				l.until("hello")
				l.Write(answer)
			}, func(b *fixture) {
				out, c := b.send(post)
				b.want("answer", c.answer(), answer)
				b.want("aborted", c.wasAborted(), true)
				b.want("relay's answer", code(out), "")
				e := b.event()
				b.want("state", e.State, relay.StateDelivered)
				b.want("response state", e.Attempts[0].ResponseState, relay.ResponseTruncated)
			})
		})
	}
}

func TestBrokenUntilCloseIsTruncated(t *testing.T) {
	run(t, func(l *local) {
		l.until("hello")
		l.Write("HTTP/1.0 200 OK\r\n\r\nhalf")
		l.Break()
	}, func(b *fixture) {
		_, c := b.send(post)
		b.want("aborted", c.wasAborted(), true)
		b.want("response state", b.event().Attempts[0].ResponseState, relay.ResponseTruncated)
	})
}

func TestRefusedDial(t *testing.T) {
	run(t, func(*local) {}, func(b *fixture) {
		b.tun.set(func() { b.tun.openErr = relay.Errorf(relay.CodeLocalRefused, "refused") })
		out, _ := b.send(post)
		b.want("code", code(out), relay.CodeLocalRefused)
		e := b.event()
		b.want("state", e.State, relay.StateFailed)
		b.want("event of answer", out.Answer.Event, e.ID)
		b.want("body", string(e.Request.Body.Data), "hello")
		b.want("identical", e.Attempts[0].Identical == nil, true)
	})
}

func TestRefusedLazyDial(t *testing.T) {
	run(t, func(l *local) { l.until("hello") }, func(b *fixture) {
		b.tun.set(func() { b.tun.refusal = relay.Errorf(relay.CodeLocalRefused, "refused") })
		out, _ := b.send(post)
		b.want("code", code(out), relay.CodeLocalRefused)
		b.want("state", b.event().State, relay.StateFailed)
	}, func(b *fixture) { b.tun.lazy = true })
}

func TestEmptyClose(t *testing.T) {
	run(t, func(l *local) { l.until("hello") }, func(b *fixture) {
		out, _ := b.send(post)
		b.want("code", code(out), relay.CodeLocalClosed)
		b.want("state", b.event().State, relay.StateFailed)
	})
}

func TestGarbage(t *testing.T) {
	for name, answer := range map[string]string{
		"no http":   "SSH-2.0-OpenSSH_9.2\r\n",
		"huge head": "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 200<<10),
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(l *local) {
				l.until("hello")
				l.Write(answer)
				l.ended()
			}, func(b *fixture) {
				out, c := b.send(post)
				b.want("code", code(out), relay.CodeLocalMalformed)
				b.want("answer", c.answer(), "")
				b.want("state", b.event().State, relay.StateFailed)
			})
		})
	}
}

// TestTimeout: a request times out if the local server sends nothing, a part of a head, or only a 1xx response.
func TestTimeout(t *testing.T) {
	for name, begun := range map[string]string{
		"nothing": "", "part of a head": "HTTP/1.1 200 OK\r\nContent-", "interim": "HTTP/1.1 103 Early Hints\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(l *local) { l.until("hello"); l.Write(begun); l.ended() }, func(b *fixture) {
				start := time.Now()
				out, _ := b.send(post)
				b.want("code", code(out), relay.CodeLocalTimeout)
				b.want("after", time.Since(start), 60*time.Second)
				b.want("state", b.event().State, relay.StateFailed)
			})
		})
	}
}

func TestResponseTimeoutOfAlias(t *testing.T) {
	run(t, func(l *local) { l.until("hello"); l.ended() }, func(b *fixture) {
		start := time.Now()
		b.send(post)
		b.want("after", time.Since(start), 5*time.Minute)
	}, func(b *fixture) {
		d := 5 * time.Minute
		b.a.Settings.ResponseTimeout = &d
	})
}

func TestFailedCommits(t *testing.T) {
	down := relay.Errorf(relay.CodeStoreUnavailable, "down")
	t.Run("accept", func(t *testing.T) {
		run(t, always("hello", ok), func(b *fixture) {
			b.s.fail("accept", down)
			out, c := b.send(post)
			b.want("code", code(out), relay.CodeStoreUnavailable)
			b.want("retry", out.Answer.Error.RetryAfter > 0, true)
			b.want("answer", c.answer(), "")
		})
	})
	t.Run("finish", func(t *testing.T) {
		run(t, always("hello", ok), func(b *fixture) {
			b.s.fail("finish", down)
			out, c := b.send(post)
			b.want("code", code(out), relay.CodeStoreUnavailable)
			b.want("answer", c.answer(), "")
		})
	})
	t.Run("finish of a stream", func(t *testing.T) {
		run(t, func(l *local) {
			l.until("hello")
			l.Write("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab")
			time.Sleep(time.Second)
			l.Write("cd")
		}, func(b *fixture) {
			b.s.fail("finish", down)
			out, c := b.send(post)
			b.want("relay's answer", code(out), "")
			b.want("answer", strings.HasSuffix(c.answer(), "ab"), true)
			b.want("aborted", c.wasAborted(), true)
		})
	})
	t.Run("no word", func(t *testing.T) {
		run(t, always("hello", ok), func(b *fixture) {
			start := time.Now()
			out, c := b.send(post)
			b.want("code", code(out), relay.CodeStoreUnavailable)
			b.want("answer", c.answer(), "")
			b.want("waited", time.Since(start) <= 11*time.Second, true)
		}, func(b *fixture) { b.s.delay = time.Hour })
	})
}

func TestEarlyAnswer(t *testing.T) {
	const early = "HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig"
	size := 1 << 20
	run(t, func(l *local) {
		l.until("\r\n\r\n")
		l.Write(early)
	}, func(b *fixture) {
		c, done := b.begin(fmt.Sprintf("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n", size))
		time.Sleep(time.Millisecond)
		b.want("answer before the body", c.answer(), early)
		b.want("body state", b.event().Request.Body.State, relay.BodyReceiving)
		for range size >> 15 {
			c.in.write(make([]byte, 32<<10))
			time.Sleep(time.Millisecond)
		}
		out := <-done
		b.want("keep-alive", out.KeepAlive, false)
		b.want("aborted", c.wasAborted(), false)
		m := b.event().Request
		b.want("state", b.event().State, relay.StateDelivered)
		b.want("body state", m.Body.State, relay.BodyComplete)
		b.want("size", m.Body.Size, size)
		b.want("parts", m.Body.Parts, 4)
		b.want("stored", m.Body.Stored, size)
	})
}

// TestRequestIsWholeWithItsAnswer: the local server ends its response when it has the end of the request.
// Once the caller has the whole response, the record has the whole request.
func TestRequestIsWholeWithItsAnswer(t *testing.T) {
	run(t, func(l *local) {
		l.until("\r\n\r\nab")
		l.Write("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab")
		l.until("cd")
		l.Write("cd")
	}, func(b *fixture) {
		b.s.delay = 5 * time.Millisecond
		c, done := b.begin("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nab")
		time.Sleep(20 * time.Millisecond)
		c.in.write([]byte("cd"))
		for !strings.HasSuffix(c.answer(), "abcd") {
			time.Sleep(time.Millisecond)
		}
		b.want("body state", b.event().Request.Body.State, relay.BodyComplete)
		b.want("stored", string(b.event().Request.Body.Data), "abcd")
		<-done
		b.want("amended", len(b.s.amends), 1)
	})
}

func TestEarlyAnswerAndCallerStaysSilent(t *testing.T) {
	run(t, func(l *local) {
		l.until("\r\n\r\n")
		l.Write(ok)
	}, func(b *fixture) {
		start := time.Now()
		out, c := b.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc")
		b.want("answer", c.answer(), ok)
		b.want("waited", time.Since(start), 10*time.Second)
		b.want("keep-alive", out.KeepAlive, false)
		b.want("body state", b.event().Request.Body.State, relay.BodyAborted)
	})
}

func TestExpectRefused(t *testing.T) {
	const no = "HTTP/1.1 417 No\r\nContent-Length: 0\r\n\r\n"
	run(t, func(l *local) {
		l.until("\r\n\r\n")
		l.Write(no)
		l.ended()
	}, func(b *fixture) {
		c, done := b.begin("POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 10\r\n\r\n")
		time.Sleep(time.Millisecond)
		b.want("answer", c.answer(), no)
		c.in.finish(io.EOF)
		<-done
		b.want("body state", b.event().Request.Body.State, relay.BodyNotSent)
		b.want("state", b.event().State, relay.StateDelivered)
	})
}
