package delivery_test

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"relay"
)

// TestBrokenAnswersAreRecordedAlike: for each fault of a response, a replay and a queued delivery have the
// same record as the original.
func TestBrokenAnswersAreRecordedAlike(t *testing.T) {
	const chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	for name, pieces := range map[string][]string{
		"no answer":                    {},
		"half a head":                  {"HTTP/1.1 200 OK\r\nContent-"},
		"no HTTP":                      {"SSH-2.0-OpenSSH\r\n"},
		"two lengths":                  {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok"},
		"interim, then no HTTP":        {"HTTP/1.1 103 Early Hints\r\n\r\n", "what"},
		"too many interim":             {strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 17)},
		"bad chunk at once":            {chunked + "zz\r\n"},
		"bad chunk later":              {chunked + "2\r\nok\r\n", "zz\r\n"},
		"bad chunk behind the head":    {chunked, "zz\r\n"},
		"bad trailer":                  {chunked + "2\r\nok\r\n", "0\r\nno colon\r\n\r\n"},
		"length, cut":                  {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok"},
		"length, cut at the head":      {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"},
		"chunks, cut":                  {chunked + "2\r\nok\r\n"},
		"chunks, cut in the line":      {chunked + "2\r\nok\r\n", "5"},
		"chunks, cut behind the chunk": {chunked + "2\r\nok", "\r"},
		"more than its length":         {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokmore"},
		"whole":                        {ok},
	} {
		t.Run(name, func(t *testing.T) {
			serve := func(l *local) {
				l.until("hello")
				for _, piece := range pieces {
					l.Write(piece)
					time.Sleep(50 * time.Millisecond)
				}
			}
			shown := func(a *relay.Attempt) string {
				fault := ""
				if a.Error != nil {
					fault = a.Error.Code + ": " + a.Error.Message
				}
				return words(a.State, fault, a.HasResponse, a.Status, a.ResponseState, a.Interim, string(a.Response.Head),
					string(a.Response.Lines), string(a.Response.Body.Data), a.Response.Body.State, a.Connection, *a.Identical)
			}
			var want string
			run(t, serve, func(b *fixture) {
				b.send(post)
				want = shown(&b.event().Attempts[0])
				e, n, err := b.d.Replay(context.Background(), relay.System(), b.event().ID, time.Minute)
				if err != nil {
					t.Fatal(err)
				}
				b.want("replay", shown(e.Attempt(n)), want)
			})
			run(t, nil, func(b *fixture) {
				b.send(post)
				tun := &memTunnel{serve: serve}
				b.d.Attach(b.a, tun)
				time.Sleep(5 * time.Second)
				b.want("queued", shown(&b.event().Attempts[0]), want)
				tun.cutAll()
				tun.wg.Wait()
			}, func(b *fixture) { b.a.Settings.AutoDeliver = true })
		})
	}
}

// TestRefusedHeadIsShown: the error of an attempt quotes the refused head of the response, for an original
// and for a replay.
func TestRefusedHeadIsShown(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n"
	run(t, always("hello", head+"ok"), func(b *fixture) {
		b.send(post)
		e, _, err := b.d.Replay(context.Background(), relay.System(), b.event().ID, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range b.event().Attempts {
			b.want("code", a.Error.Code, relay.CodeLocalMalformed)
			if !strings.Contains(a.Error.Message, `Content-Length: 2\r\nContent-Length: 3\r\n`) {
				t.Errorf("attempt %d: %s", a.N, a.Error.Message)
			}
		}
		_ = e
	})
}

// TestBrokenOffAnswers: a response that breaks off after its head is recorded as truncated, and one that
// breaks off before it as missing. Originals, replays and queued deliveries have the same record. The caller
// gets a reset, or an error if no byte was sent yet.
func TestBrokenOffAnswers(t *testing.T) {
	const chunked, begun = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "2\r\nok\r\n"
	heads := map[string][]string{
		"nothing": nil, "half a head": {"HTTP/1.1 200 OK\r\nContent-"}, "interim": {"HTTP/1.1 102 Processing\r\n\r\n"},
		"head": {chunked}, "head and a chunk": {chunked, begun}, "head and a chunk at once": {chunked + begun},
	}
	ends := map[string]struct {
		code string
		do   func(*local)
	}{
		"bad chunk":   {relay.CodeLocalMalformed, func(l *local) { l.Write("zz\r\n\r\n") }},
		"bad trailer": {relay.CodeLocalMalformed, func(l *local) { l.Write("0\r\nno colon\r\n\r\n") }},
		"reset":       {relay.CodeLocalClosed, (*local).Break},
		"early end":   {relay.CodeLocalClosed, (*local).Close},
	}
	const apart = 50 * time.Millisecond
	for headName, pieces := range heads {
		for endName, end := range ends {
			seen, bad := strings.HasPrefix(headName, "head"), end.code == relay.CodeLocalMalformed
			if headName == "half a head" && bad {
				// After half a head, the broken line of the body would be read as a line of that head.
				continue
			}
			for when, delay := range map[string]time.Duration{"within the commit": time.Second, "after it": 0} {
				for _, gap := range []time.Duration{apart, 0} {
					t.Run(words(headName, endName, when, gap), func(t *testing.T) {
						serve := func(l *local) {
							l.until("hello")
							for _, piece := range pieces {
								l.Write(piece)
								time.Sleep(gap)
							}
							end.do(l)
							l.ended()
						}
						want := words(relay.StateFailed, end.code, false, 0, "", "")
						if seen {
							body := map[bool]string{true: "ok"}[headName != "head"]
							want = words(relay.StateDelivered, end.code, true, 200, relay.ResponseTruncated, body)
						}
						check := func(b *fixture, what string, a *relay.Attempt) {
							b.t.Helper()
							b.want(what, words(a.State, a.Error.Code, a.HasResponse, a.Status, a.ResponseState, string(a.Response.Body.Data)), want)
						}
						slow := func(b *fixture) { b.s.delay = delay }
						run(t, serve, func(b *fixture) {
							out, c := b.send(post)
							check(b, "original", &b.event().Attempts[0])
							shown := strings.TrimPrefix(c.answer(), "HTTP/1.1 102 Processing\r\n\r\n")
							switch {
							case !seen, bad && shown == "":
								b.want("answer", words(code(out), shown, c.wasAborted()), words(end.code, "", false))
							default:
								b.want("answer", words(code(out), strings.HasPrefix(shown, chunked), c.wasAborted()), words("", true, true))
							}
							if bad && seen && delay == 0 && gap > 0 && shown == "" {
								t.Error("nothing was passed on of an answer whose event was stored")
							}
							e, n, err := b.d.Replay(context.Background(), relay.System(), b.event().ID, time.Minute)
							if err != nil {
								t.Fatal(err)
							}
							check(b, "replay", e.Attempt(n))
						}, slow)
						run(t, nil, func(b *fixture) {
							b.send(post)
							b.tun = &memTunnel{serve: serve}
							b.d.Attach(b.a, b.tun)
							time.Sleep(10 * time.Second)
							check(b, "queued", &b.event().Attempts[0])
						}, slow, func(b *fixture) { b.a.Settings.AutoDeliver = true })
					})
				}
			}
		}
	}
}

// TestBrokenOffBeforeTheRequestWasWhole: a response that breaks off after its head while the caller still
// sends is recorded as truncated, and the body of the request as aborted.
func TestBrokenOffBeforeTheRequestWasWhole(t *testing.T) {
	for name, end := range map[string]string{"bad chunk": "zz\r\n", "early end": ""} {
		for _, gap := range []time.Duration{0, 50 * time.Millisecond} {
			t.Run(words(name, gap), func(t *testing.T) {
				run(t, func(l *local) {
					l.until("hello")
					l.Write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
					time.Sleep(gap)
					l.Write(end)
				}, func(b *fixture) {
					c, done := b.begin(strings.Replace(post, "Length: 5", "Length: 50", 1))
					time.Sleep(time.Second)
					c.become(relay.CallerReset)
					c.in.finish(io.ErrUnexpectedEOF)
					<-done
					time.Sleep(time.Second)
					e := b.event()
					a := e.Attempts[0]
					b.want("record", words(e.State, a.HasResponse, a.ResponseState, e.Request.Body.State),
						words(relay.StateDelivered, true, relay.ResponseTruncated, relay.BodyAborted))
				})
			})
		}
	}
}
