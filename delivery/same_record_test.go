package delivery_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"relay"
)

// TestBrokenAnswersAreRecordedAlike: a replay and a queued delivery are recorded like their original
// for every fault of a response, so that a record does not depend on a waiting caller.
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

// TestRefusedHeadIsShown: the record of originals and replays has the head of a refused response.
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
