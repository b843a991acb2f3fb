package storetest

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"relay"
	"relay/store"
)

func testJournal(t *testing.T, fresh func(testing.TB) store.Options) {
	b := setup(t, fresh)
	t.Run("round trip", func(t *testing.T) { b.with(t).roundTrip() })
	t.Run("two batches", func(t *testing.T) { b.with(t).twoBatches() })
	t.Run("poison", func(t *testing.T) { b.with(t).poison() })
	t.Run("lost accept", func(t *testing.T) { b.with(t).lostAccept() })
	t.Run("answered", func(t *testing.T) { b.with(t).answered() })
	t.Run("rejected", func(t *testing.T) { b.with(t).rejected() })
	t.Run("amend", func(t *testing.T) { b.with(t).amend() })
	t.Run("receiving", func(t *testing.T) { b.with(t).receiving() })
	t.Run("one state", func(t *testing.T) { b.with(t).oneState() })
	t.Run("upgraded", func(t *testing.T) { b.with(t).upgraded() })
	t.Run("caller gone", func(t *testing.T) { b := setup(t, fresh); b.callersGone() })
	t.Run("snapshots", func(t *testing.T) { b := setup(t, fresh); b.snapshots() })
	t.Run("ids", func(t *testing.T) { b.with(t).ids() })
}

// with returns a copy of b, with the same store, that reports failures to the sub-test t.
func (b *fixture) with(t testing.TB) *fixture {
	return &fixture{
		TB: t, Store: b.Store, opt: b.opt, alice: b.alice, bob: b.bob, root: b.root, hooks: b.hooks, other: b.other, changed: b.changed,
	}
}

var sameBytes = cmp.Options{
	cmpopts.EquateEmpty(), cmpopts.EquateComparable(relay.ID{}), cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) }),
	cmpopts.IgnoreFields(relay.Event{}, "Remote"),
}

// roundTrip checks that every field of an event is read back as it was stored.
func (b *fixture) roundTrip() {
	e := b.newEvent(b.hooks, relay.StateDelivering, "/a?b=\xff", "\x00\xff body")
	e.Provider = relay.Provider{Name: "stripe", EventType: "invoice.paid", DeliveryID: "evt_1", SignedAt: e.ReceivedAt, Tolerance: 5 * time.Minute}
	e.ForwardedLines = []byte("X-Forwarded-For: 203.0.113.9\r\n")
	e.Request.Lines, e.Request.Framing = []byte("7\r\n0\r\n\r\n"), relay.FramingChunked
	a := ended(1, relay.StateDelivered, 201, "answer\x00")
	a.SentHead = []byte("POST / HTTP/1.1\r\nHost: localhost\r\n\r\n")
	accept, finish := b.Accept(e), b.Finish(e.ID, a, "")
	b.ok(accept)
	b.ok(finish)

	got := b.read(e.ID)
	want := *e
	want.State, want.Status, want.Latency, want.HasLatency, want.AttemptCount = relay.StateDelivered, 201, 10*time.Millisecond, true, 1
	want.Attempts = []relay.Attempt{*a}
	want.Attempts[0].Kind, want.Attempts[0].ReceivedAt = relay.KindOriginal, e.Attempts[0].ReceivedAt
	want.Attempts[0].Timing.Blocked = time.Microsecond // nanoseconds are not stored
	want.Request.Body.Stored, want.Attempts[0].Response.Body.Stored = want.Request.Body.Size, 7
	want.Attempts[0].Node = b.NodeName()
	if d := cmp.Diff(want, *got, sameBytes); d != "" {
		b.Errorf("stored event differs (-want +got):\n%s", d)
	}
	if got.Remote != e.Remote {
		b.Errorf("remote %v, want %v", got.Remote, e.Remote)
	}
	refs := []relay.AttemptRef{{Event: e.ID, N: 1}, {Event: e.ID, N: 2}}
	heads, err := b.AttemptHeads(b.Context(), e.AliasID, refs)
	b.must(err)
	head := heads[refs[0]]
	if head == nil || len(heads) != 1 {
		b.Fatalf("attempt heads: %v", heads)
	}
	if len(head.Response.Body.Data) != 0 || !bytes.Equal(head.Response.Head, a.Response.Head) || len(head.Interim) != 2 {
		b.Errorf("attempt head: %+v", head)
	}
}

// twoBatches is roundTrip with Accept and Finish in separate batches. A second, different end is
// refused; the same end is accepted again.
func (b *fixture) twoBatches() {
	e := b.newEvent(b.hooks, relay.StateDelivering, "/two", "x")
	b.ok(b.Accept(e))
	b.wantEvent(e.ID, relay.StateDelivering, relay.StateDelivering)
	a := ended(1, relay.StateFailed, 0, "")
	b.ok(b.Finish(e.ID, a, ""))
	got := b.wantEvent(e.ID, relay.StateFailed, relay.StateFailed)
	if got.Error == nil || got.Error.Code != relay.CodeLocalRefused || got.Status != 0 {
		b.Errorf("failed event: error %+v, status %d", got.Error, got.Status)
	}
	b.ok(b.Finish(e.ID, a, ""))
	b.want(relay.ErrFenced.Code, b.done(b.Finish(e.ID, ended(1, relay.StateDelivered, 200, ""), "")))
	b.want(relay.ErrFenced.Code, b.done(b.Requeue(e.ID, 1)))
	b.wantEvent(e.ID, relay.StateFailed, relay.StateFailed)
}

// poison checks that no input of a caller makes a batch fail, and that a row that cannot be stored
// fails alone.
func (b *fixture) poison() {
	var good []*relay.Ticket
	nasty := b.newEvent(b.hooks, relay.StateDelivering, "/\x00\xff", "\x00")
	nasty.Method, nasty.Host, nasty.Provider.Name = "P\x00ST", "h\xffst", "\x00"
	nasty.Request.Head = bytes.Repeat([]byte("\x00\xff"), 1<<19)
	impossible := b.newEvent(b.hooks, "no such state", "/", "")
	clash := b.newEvent(b.hooks, relay.StateDelivering, "/clash", "")
	clash.Attempts[0].State = "no such state"
	var bad []*relay.Ticket
	for i := range 40 {
		good = append(good, b.Accept(b.newEvent(b.hooks, relay.StateDelivering, "/good", "x")))
		if i == 20 {
			good = append(good, b.Accept(nasty))
			bad = append(bad, b.Accept(impossible), b.Accept(clash))
		}
	}
	for _, t := range good {
		b.ok(t)
	}
	for _, t := range bad {
		if b.done(t) == nil {
			b.Error("an impossible event was stored")
		}
	}
	got := b.read(nasty.ID)
	if !bytes.Equal(got.Request.Head, nasty.Request.Head) || string(got.Target) != "/\x00\xff" || strings.Contains(got.Method, "\x00") {
		b.Error("a nasty event came back changed")
	}
}

// lostAccept checks that a Finish fails if its Accept failed, and that steps of an unknown event fail.
func (b *fixture) lostAccept() {
	e := b.newEvent(b.hooks, "no such state", "/", "")
	a, f := b.Accept(e), b.Finish(e.ID, ended(1, relay.StateDelivered, 200, ""), "")
	if b.done(a) == nil || b.done(f) == nil {
		b.Error("an impossible event or its end was stored")
	}
	unknown := b.NewID()
	b.want(relay.CodeNotFound, b.done(b.Finish(unknown, ended(1, relay.StateDelivered, 200, ""), "")))
	b.want(relay.CodeNotFound, b.done(b.Requeue(unknown, 1)))
	b.want(relay.CodeNotFound, b.done(b.Amend(&relay.Event{ID: unknown, Request: message("x", "")})))
}

// answered checks an event that the relay itself answered: it can be replayed, and is found by the
// name of the challenge.
func (b *fixture) answered() {
	ctx := b.Context()
	e := b.newEvent(b.hooks, relay.StateDelivering, "/answered", "")
	a := ended(1, relay.StateAnswered, 200, "challenge")
	a.Handshake = "slack"
	b.ok(b.Accept(e))
	b.ok(b.Finish(e.ID, a, ""))
	missed := b.newEvent(b.hooks, relay.StateQueued, "/missed", "")
	missed.MissedHandshake = "meta"
	b.ok(b.Accept(missed))
	got := b.wantEvent(e.ID, relay.StateAnswered, relay.StateAnswered)
	if got.Handshake != "slack" || got.Blocker != "" || got.Attempts[0].Status != 200 || string(got.Attempts[0].Response.Body.Data) != "challenge" {
		b.Errorf("answered event: %+v", got)
	}
	if got := b.wantEvent(missed.ID, relay.StateQueued, relay.StateQueued); got.MissedHandshake != "meta" || got.Handshake != "" {
		b.Errorf("event of a missed challenge: %+v", got)
	}
	for _, f := range []relay.Filter{{Handshake: "slack"}, {State: relay.StateAnswered}} {
		page, err := b.Events(ctx, b.alice, f)
		b.must(err)
		if len(page.Events) != 1 || page.Events[0].ID != e.ID || page.Events[0].Handshake != "slack" {
			b.Errorf("list by %+v: %+v", f, page.Events)
		}
	}
	for _, name := range []string{"meta", "x"} {
		page, err := b.Events(ctx, b.alice, relay.Filter{Handshake: name})
		b.must(err)
		if len(page.Events) != 0 {
			b.Errorf("list by %s: %+v", name, page.Events)
		}
	}
	c, err := b.BeginReplay(ctx, b.alice, e.ID, true)
	b.must(err)
	b.ok(b.Finish(e.ID, ended(c.N, relay.StateDelivered, 201, ""), ""))
	if got := b.wantEvent(e.ID, relay.StateDelivered, relay.StateAnswered, relay.StateDelivered); got.Handshake != "slack" || got.Status != 201 {
		b.Errorf("replayed event: %+v", got)
	}
}

// rejected checks that rejected and incomplete events keep their state and cannot be replayed.
func (b *fixture) rejected() {
	e := b.newEvent(b.hooks, "", "/r", "")
	e.State, e.Error = relay.StateRejected, &relay.Fault{Code: relay.CodeRequestMalformed, Message: "two lengths"}
	b.ok(b.Accept(e))
	got := b.wantEvent(e.ID, relay.StateRejected)
	if got.Blocker != relay.BlockedRejected || got.Error == nil || got.Error.Code != relay.CodeRequestMalformed {
		b.Errorf("rejected event: %+v", got)
	}
	gone := b.newEvent(b.hooks, relay.StateDelivering, "/i", "")
	b.ok(b.Accept(gone))
	b.ok(b.Finish(gone.ID, ended(1, relay.StateFailed, 0, ""), relay.StateIncomplete))
	got = b.wantEvent(gone.ID, relay.StateIncomplete, relay.StateFailed)
	if got.Blocker != relay.BlockedIncomplete {
		b.Errorf("incomplete event: %+v", got)
	}
	for _, id := range []relay.ID{e.ID, gone.ID} {
		_, err := b.BeginReplay(b.Context(), b.alice, id, true)
		b.want(relay.CodeEventNotReplayable, err)
	}
}

// amend checks a request that was answered before its whole body had arrived. The rest of the body is stored
// later, and until then the event cannot be replayed.
func (b *fixture) amend() {
	for _, wait := range []bool{true, false} {
		e := b.newEvent(b.hooks, relay.StateDelivering, "/am", "first")
		e.Request.Body.State = relay.BodyReceiving
		e.Signature = &relay.Signature{Provider: "stripe", Verdict: "unchecked", Reason: "body-incomplete"}
		accept := b.Accept(e)
		finish := b.Finish(e.ID, ended(1, relay.StateDelivered, 413, ""), "")
		if wait {
			b.ok(accept)
			b.ok(finish)
			if got := b.read(e.ID); got.Blocker != relay.BlockedBody || got.State != relay.StateDelivered {
				b.Errorf("before amend: %+v", got)
			}
		}
		b.ok(b.Amend(&relay.Event{
			ID: e.ID, Request: message("POST /am HTTP/1.1\r\n\r\n", "first and second"),
			Signature: &relay.Signature{Provider: "stripe", Verdict: "valid", Reason: "ok"},
		}))
		got := b.wantEvent(e.ID, relay.StateDelivered, relay.StateDelivered)
		if got.Signature == nil || got.Signature.Verdict != "valid" {
			b.Errorf("after amend the signature is %+v", got.Signature)
		}
		if got.Blocker != "" || string(got.Request.Body.Data) != "first and second" || got.Request.Body.Size != 16 {
			b.Errorf("after amend: %+v", got)
		}
	}
}

// receiving checks a request whose last part was never stored. After a while the request is shown as aborted,
// and no longer as being received.
func (b *fixture) receiving() {
	for ago, want := range map[time.Duration]string{0: relay.BodyReceiving, 2 * time.Minute: relay.BodyAborted} {
		e := b.newEvent(b.hooks, relay.StateDelivering, "/lost-part", "first")
		e.Request.Body.State = relay.BodyReceiving
		b.ok(b.Accept(e))
		m := message("POST /lost-part HTTP/1.1\r\n\r\n", "")
		m.Body = relay.Body{Parts: 2, Stored: relay.BodyPart + 1, Size: relay.BodyPart + 1, State: relay.BodyComplete}
		b.want(relay.CodeStoreUnavailable, b.done(b.Amend(&relay.Event{ID: e.ID, Request: m})))
		if got := b.read(e.ID).Request.Body.State; got != relay.BodyReceiving {
			b.Errorf("during the attempt the request is %s", got)
		}
		a := ended(1, relay.StateDelivered, 200, "")
		a.EndedAt = a.EndedAt.Add(-ago)
		b.ok(b.Finish(e.ID, a, ""))
		got := b.wantEvent(e.ID, relay.StateDelivered, relay.StateDelivered)
		if r := got.Request.Body; r.State != want || string(r.Data) != "first" || got.Blocker != relay.BlockedBody {
			b.Errorf("%v after the answer: request %+v, blocker %q", ago, r, got.Blocker)
		}
	}
}

// oneState checks that the row of an event and its attempts are read from the same state, while replays
// change them.
func (b *fixture) oneState() {
	id := b.capture(b.hooks, "/one", "body", 500)
	done := make(chan error, 1)
	go func() {
		for range 30 {
			c, err := b.BeginReplay(b.Context(), b.alice, id, true)
			if err != nil {
				done <- err
				return
			}
			t := b.Finish(id, ended(c.N, relay.StateDelivered, 200, "x"), "")
			<-t.Done()
		}
		done <- nil
	}()
	for {
		e := b.read(id)
		if last := e.Attempts[len(e.Attempts)-1]; e.AttemptCount != last.N || e.State != last.State {
			b.Errorf("event is %s with %d attempts, the last of %d is %s", e.State, e.AttemptCount, len(e.Attempts), last.State)
			b.must(<-done)
			return
		}
		select {
		case err := <-done:
			b.must(err)
			return
		default:
		}
	}
}

// upgraded checks that the end of an upgraded attempt can be stored twice: at the upgrade, and when the
// connection ends. The event cannot be replayed.
func (b *fixture) upgraded() {
	e := b.newEvent(b.hooks, relay.StateDelivering, "/ws", "")
	b.ok(b.Accept(e))
	a := ended(1, relay.StateDelivered, 101, "")
	a.ResponseState = relay.ResponseUpgraded
	b.ok(b.Finish(e.ID, a, ""))
	later := *a
	later.EndedAt = later.EndedAt.Add(time.Second)
	later.Response = message("HTTP/1.1 101 X\r\n\r\n", "frames")
	b.ok(b.Finish(e.ID, &later, ""))
	got := b.wantEvent(e.ID, relay.StateDelivered, relay.StateDelivered)
	if got.Blocker != relay.BlockedUpgraded || string(got.Attempts[0].Response.Body.Data) != "frames" {
		b.Errorf("upgraded event: %+v", got)
	}
}

// ids checks that each new id is greater than the one before.
func (b *fixture) ids() {
	last := b.NewID()
	for range 10_000 {
		id := b.NewID()
		if bytes.Compare(id[:], last[:]) <= 0 {
			b.Fatalf("%s came after %s", id, last)
		}
		last = id
	}
}

// callersGone checks that the store keeps the fact that a caller did not get the whole response, whether it is
// stored with the end of the attempt or later, and that it is published to viewers. CallerGone fails for an
// unknown attempt.
func (b *fixture) callersGone() {
	for _, late := range []bool{false, true} {
		e := b.newEvent(b.hooks, relay.StateDelivering, "/gone", "body")
		b.ok(b.Accept(e))
		end := ended(1, relay.StateDelivered, 200, "x")
		end.CallerGone = !late
		b.ok(b.Finish(e.ID, end, ""))
		if late {
			if b.read(e.ID).Attempts[0].CallerGone {
				b.Error("gone before it was said")
			}
			b.mu.Lock()
			b.changes = nil
			b.mu.Unlock()
			b.ok(b.CallerGone(e.ID, 1))
			b.heard("caller gone", func(c relay.Change) bool { return c.Kind == relay.ChangeAttempt && c.Event == e.ID && c.N == 1 })
		}
		got := b.read(e.ID)
		if a := got.Attempts[0]; !a.CallerGone || a.State != relay.StateDelivered || a.Status != 200 || string(a.Response.Body.Data) != "x" {
			b.Errorf("late %v: %+v", late, a)
		}
	}
	if t := b.CallerGone(b.NewID(), 1); b.done(t) == nil {
		b.Error("an attempt that is not there has a caller who left")
	}
}
