package storetest

import (
	"testing"
	"time"

	"relay"
	"relay/store"
)

func testFigures(t *testing.T, fresh func(testing.TB) store.Options) {
	b := setup(t, fresh)
	ctx := t.Context()
	since := time.Now().Add(-time.Hour)
	count := func(who relay.Actor, buckets int) relay.Figures {
		t.Helper()
		f, err := b.Figures(ctx, who, "hooks", since, time.Now().UTC(), buckets)
		b.must(err)
		return f
	}
	if f := count(b.alice, 4); len(f.Buckets) != 4 || f.Total.Events != 0 || f.Total.Latency != (relay.Latency{}) || f.Partial {
		t.Errorf("nothing yet: %+v", f)
	}
	b.capture(b.hooks, "/ok", "", 200)
	if f := count(b.alice, 4); f.Total.Events != 1 || f.Total.Errors != 0 || f.Total.N != 1 || f.Total.P50 != f.Total.Max || f.Total.P50 <= 0 {
		t.Errorf("one: %+v", f.Total)
	}
	b.capture(b.hooks, "/bad", "", 500)
	b.capture(b.hooks, "/teapot", "", 418)
	b.capture(b.hooks, "/waits", "", 0)
	b.capture(b.other, "/not-mine", "", 500)
	failed := b.newEvent(b.hooks, relay.StateDelivering, "/failed", "")
	b.ok(b.Accept(failed))
	b.ok(b.Finish(failed.ID, ended(1, relay.StateFailed, 0, ""), ""))
	f := count(b.alice, 60)
	if f.Total.Events != 5 || f.Total.Errors != 3 || !f.From.Equal(since) {
		t.Errorf("counted %+v", f.Total)
	}
	last := f.Buckets[58].Events + f.Buckets[59].Events
	if last != 5 || f.Buckets[0].Events != 0 || !f.Buckets[0].From.Equal(since) {
		t.Errorf("the newest buckets hold %d events", last)
	}
	for _, who := range []relay.Actor{b.bob, b.root, {}} {
		_, err := b.Figures(ctx, who, "hooks", since, time.Now().UTC(), 4)
		b.want(relay.CodeNotFound, err)
	}
	for buckets, from := range map[int]time.Time{0: since, 201: since, 4: time.Now().Add(time.Hour)} {
		_, err := b.Figures(ctx, b.alice, "hooks", from, time.Now().UTC(), buckets)
		b.want(relay.CodeValidationFailed, err)
	}
	b.must(b.AddMember(ctx, b.alice, "hooks", "bob"))
	if f := count(b.bob, 1); f.Total.Events != 5 {
		t.Errorf("a member counts %d events", f.Total.Events)
	}
}

func testHealth(t *testing.T, fresh func(testing.TB) store.Options) {
	b := setup(t, fresh)
	ctx, since := t.Context(), time.Now().Add(-time.Hour)
	both := []int64{b.hooks.ID, b.other.ID}
	read := func(who relay.Actor, aliases []int64) map[int64]relay.AliasHealth {
		t.Helper()
		got, err := b.AliasHealth(ctx, who, aliases, since, 4)
		b.must(err)
		return got
	}
	if got := read(b.alice, both); len(got) != 0 {
		t.Errorf("nothing yet: %+v", got)
	}
	b.capture(b.hooks, "/bad", "", 500)
	b.capture(b.hooks, "/ok", "", 200)
	b.capture(b.other, "/not-mine", "", 500)
	h := read(b.alice, both)[b.hooks.ID]
	if h.Events != 2 || h.Errors != 1 || h.Failing() || h.LastStatus != 200 || h.Partial || len(h.Parts) != 4 || h.Parts[3] != (relay.AliasHealthPart{Events: 2, Errors: 1}) {
		t.Errorf("two: %+v", h)
	}
	b.capture(b.hooks, "/teapot", "", 418)
	if h = read(b.alice, both)[b.hooks.ID]; !h.Failing() || h.Errors != 2 {
		t.Errorf("the newest failed: %+v", h)
	}
	for name, got := range map[string]map[int64]relay.AliasHealth{
		"of others": read(b.alice, []int64{b.other.ID}), "of a stranger": read(b.root, both), "of nobody": read(relay.Actor{}, both), "of none": read(b.alice, nil),
	} {
		if len(got) != 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
