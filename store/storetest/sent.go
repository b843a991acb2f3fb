package storetest

import (
	"errors"
	"reflect"
	"strings"

	"relay"
)

// sent checks that the field Sent of an event is read back, whether the end of its attempt is stored together
// with the event or later. The filter origin selects events with and without Sent.
func (b *fixture) sent() {
	want := []*relay.Sent{
		nil,
		{Actor: "user:alice"},
		nil,
		{Actor: "token:ci", MadeFrom: "evt_1", Changes: []string{"method", "header:x-a", `body:/a"b`}, SignedBy: "sec_1"},
	}
	var ids []relay.ID
	for i, s := range want {
		e := b.newEvent(b.hooks, relay.StateDelivering, "/sent", "body")
		if e.Sent = s; i == 3 {
			e.Request.Body.Data = []byte(strings.Repeat("x", relay.InlineBody))
			e.Request.Body.Size, e.Request.Body.Stored = relay.InlineBody, relay.InlineBody
		}
		ids = append(ids, e.ID)
		accepted := b.Accept(e)
		if i < 2 {
			b.ok(accepted)
		}
		b.ok(b.Finish(e.ID, ended(1, relay.StateDelivered, 200, "x"), ""))
		b.ok(accepted)
		if got := b.read(e.ID).Sent; !reflect.DeepEqual(got, s) {
			b.Errorf("event %d: %+v, want %+v", i, got, s)
		}
	}
	rows, err := b.Summaries(b.Context(), ids)
	b.must(err)
	for i := range rows {
		if !reflect.DeepEqual(rows[i].Sent, want[i]) {
			b.Errorf("the feed gets %+v, want %+v", rows[i].Sent, want[i])
		}
	}
	for origin, sent := range map[string]bool{relay.OriginSend: true, relay.OriginCaller: false} {
		f := relay.Filter{Alias: "hooks", Path: "/sent", Origin: origin}
		b.same("origin "+origin, b.walk(b.alice, f), newest(ids, func(i int) bool { return want[i] != nil == sent }))
	}
	b.counts(relay.Filter{Alias: "hooks", Path: "/sent", Origin: relay.OriginSend})
}

// counts checks that CountEvents counts as many events as lists return, but at most the given number.
func (b *fixture) counts(f relay.Filter) {
	all := len(b.walk(b.alice, f))
	for most, want := range map[int]int{all: all, all + 10: all, all - 1: all - 1} {
		if n, more, err := b.CountEvents(b.Context(), b.alice, f, most); err != nil || n != want || more != (most < all) {
			b.Errorf("%d events, at most %d: counted %d, %v, %v", all, most, n, more, err)
		}
	}
	f.Texts = []relay.TextFilter{{Text: "x"}}
	if n, more, err := b.CountEvents(b.Context(), b.alice, f, 9); n != 0 || !more || err != nil {
		b.Errorf("a search is counted: %d, %v, %v", n, more, err)
	}
	if _, _, err := b.CountEvents(b.Context(), relay.Actor{Account: 1 << 40}, relay.Filter{Alias: f.Alias}, 9); !errors.Is(err, relay.ErrNotFound) {
		b.Errorf("a stranger counts: %v", err)
	}
}
