package delivery_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/compose"
)

// outgoing returns a new event of the alias of a fixture.
func (b *fixture) outgoing(raw string) relay.Outgoing {
	b.t.Helper()
	r, err := compose.Parse([]byte(raw))
	if err != nil {
		b.t.Fatal(err)
	}
	return relay.Outgoing{Alias: b.a, Request: r.Message(), Sent: relay.Sent{Actor: "user:alice"}}
}

func (b *fixture) sendNew(raw string) (*relay.Event, error) {
	return b.d.Send(context.Background(), relay.System(), b.outgoing(raw), time.Minute)
}

func TestSend(t *testing.T) {
	large := "POST /large HTTP/1.1\r\nHost: h\r\nContent-Length: 600005\r\n\r\n" + strings.Repeat("x", 600_000) + "hello"
	for name, raw := range map[string]string{
		"small": post, "large": large, "chunked": "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
	} {
		got := ""
		run(t, func(l *local) {
			if l.n(len(raw)) {
				got = string(l.got)
				l.Write(ok)
			}
		}, func(b *fixture) {
			e, err := b.sendNew(raw)
			b.want(name+": error", err, nil)
			a := e.Attempt(1)
			b.want(name+": attempt", words(a.Kind, a.State, a.Status, a.Actor, *a.Identical), "original delivered 200  true")
			b.want(name+": event", words(e.State, e.Sent.Actor, b.event().Sent.Actor, len(b.event().Attempts)), "delivered user:alice user:alice 1")
			if got != raw {
				b.t.Errorf("%s: %d bytes arrived, want %d", name, len(got), len(raw))
			}
		})
	}
}

// TestSendIsStoredFirst: a new event is stored when the local server gets its request. If it cannot be
// stored, no channel is opened.
func TestSendIsStoredFirst(t *testing.T) {
	stored := false
	var b *fixture
	serve := func(l *local) {
		l.until("hello")
		stored = b.event() != nil
		l.Write(ok)
	}
	run(t, serve, func(f *fixture) {
		b = f
		_, err := b.sendNew(post)
		b.want("error", err, nil)
		b.want("stored", stored, true)
	})
	run(t, always("hello", ok), func(b *fixture) {
		b.s.fail("accept", &relay.Error{Code: relay.CodeStoreUnavailable})
		_, err := b.sendNew(post)
		b.want("code", relay.AsError(err).Code, relay.CodeStoreUnavailable)
		b.want("channels", len(b.tun.origins), 0)
	})
}

// TestSendIsNeverQueued: Send for an offline or paused alias returns alias-offline and stores nothing. If the
// open of a channel fails, the attempt fails, and is not sent later.
func TestSendIsNeverQueued(t *testing.T) {
	run(t, nil, func(b *fixture) {
		_, err := b.sendNew(post)
		b.want("code", relay.AsError(err).Code, relay.CodeAliasOffline)
		b.want("events", b.s.states(), "")
	})
	run(t, always("hello", ok), func(b *fixture) {
		b.s.change(7, func(s *relay.Settings) { s.Paused = true })
		_, err := b.sendNew(post)
		b.want("code", relay.AsError(err).Code, relay.CodeAliasOffline)
		b.s.change(7, func(s *relay.Settings) { s.Paused = false })
		b.tun.set(func() { b.tun.heard, b.tun.hang = time.Minute, true })
		e, err := b.sendNew(post)
		b.want("error", err, nil)
		b.want("state", words(e.State, e.Attempt(1).Error.Code), "failed alias-offline")
		b.tun.set(func() { b.tun.heard, b.tun.hang = 0, false })
		time.Sleep(time.Minute)
		b.want("afterwards", words(b.event().State, len(b.event().Attempts)), "failed 1")
	})
}

// TestSendOutlivesWho: after the wait of Send has ended, the attempt still runs, and is delivered.
func TestSendOutlivesWho(t *testing.T) {
	run(t, func(l *local) {
		l.until("hello")
		time.Sleep(5 * time.Second)
		l.Write(ok)
	}, func(b *fixture) {
		e, err := b.d.Send(context.Background(), relay.System(), b.outgoing(post), time.Second)
		b.want("still running", words(e.State, err), "delivering <nil>")
		time.Sleep(10 * time.Second)
		b.want("ended", b.event().State, relay.StateDelivered)
	})
}
