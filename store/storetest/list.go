package storetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"relay"
	"relay/store"
)

func testList(t *testing.T, fresh func(testing.TB) store.Options) {
	b := setup(t, fresh)
	b.must(b.AddMember(t.Context(), b.bob, "other", "alice"))
	var ids []relay.ID // ids of the events of the two aliases that alice may see, oldest first
	for i := range 30 {
		alias, status := b.hooks, []int{200, 404, 500}[i%3]
		if i%5 == 0 {
			alias = b.other
		}
		ids = append(ids, b.capture(alias, fmt.Sprintf("/p%d/x%%00?n=%d", i%10, i), fmt.Sprintf("body-%02d", i), status))
	}
	t.Run("pages", func(t *testing.T) { b.with(t).pages(ids) })
	t.Run("filters", func(t *testing.T) { b.with(t).filters(ids) })
	t.Run("bad filters", func(t *testing.T) { b.with(t).badFilters() })
	t.Run("budget", func(t *testing.T) { b.with(t).budget(ids) })
	t.Run("summaries", func(t *testing.T) { b.with(t).summaries(ids) })
	t.Run("host refused", func(t *testing.T) { b.with(t).hostRefused() })
	t.Run("causes", func(t *testing.T) { b.with(t).causes() })
}

func (b *fixture) list(who relay.Actor, f relay.Filter) relay.Page {
	b.Helper()
	page, err := b.Events(b.Context(), who, f)
	b.must(err)
	return page
}

// walk returns the ids of all events that a filter selects. It follows the cursors to the last page.
func (b *fixture) walk(who relay.Actor, f relay.Filter) (ids []relay.ID) {
	b.Helper()
	for range 1000 {
		page := b.list(who, f)
		for _, e := range page.Events {
			ids = append(ids, e.ID)
		}
		if f.Cursor = page.Next; f.Cursor == "" {
			return ids
		}
	}
	b.Fatal("a list without end")
	return nil
}

func (b *fixture) same(what string, got, want []relay.ID) {
	b.Helper()
	if d := cmp.Diff(fmt.Sprint(want), fmt.Sprint(got)); d != "" {
		b.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// newest returns the ids for whose indexes the function fits returns true, newest first.
func newest(ids []relay.ID, fits func(i int) bool) (out []relay.ID) {
	for i := len(ids) - 1; i >= 0; i-- {
		if fits(i) {
			out = append(out, ids[i])
		}
	}
	return out
}

// pages checks that pages follow one another without a gap or a repeated event, even if events arrive
// meanwhile.
func (b *fixture) pages(ids []relay.ID) {
	all := newest(ids, func(int) bool { return true })
	for _, limit := range []int{1, 7, 30, 200} {
		b.same(fmt.Sprint("limit ", limit), b.walk(b.alice, relay.Filter{Limit: limit}), all)
	}
	page := b.list(b.alice, relay.Filter{Limit: 10})
	fresh := b.capture(b.hooks, "/new", "", 200)
	b.same("rest", b.walk(b.alice, relay.Filter{Limit: 10, Cursor: page.Next}), all[10:])
	b.must(b.DeleteEvent(b.Context(), b.alice, fresh))
	if e := page.Events[0]; e.Alias != "hooks" || e.State != relay.StateDelivered || e.Request.Body.Size != 7 || !e.HasLatency || e.AttemptCount != 1 {
		b.Errorf("row: %+v", e)
	}
	whole := b.list(b.alice, relay.Filter{Limit: 200})
	if oldest := b.read(ids[0]).ReceivedAt; whole.Next != "" || !whole.SearchedBackTo.Equal(oldest) {
		b.Errorf("searched back to %v, want %v; next %q", whole.SearchedBackTo, oldest, whole.Next)
	}
	b.same("system", b.walk(system, relay.Filter{Limit: 3}), all)
	b.same("nobody's", b.walk(b.root, relay.Filter{}), nil)
}

func (b *fixture) filters(ids []relay.ID) {
	tenth := b.read(ids[10]).ReceivedAt
	for name, c := range map[string]struct {
		f    relay.Filter
		fits func(i int) bool
	}{
		"alias":        {relay.Filter{Alias: "other"}, func(i int) bool { return i%5 == 0 }},
		"method":       {relay.Filter{Method: "POST"}, func(int) bool { return true }},
		"any case":     {relay.Filter{Method: "post"}, func(int) bool { return true }},
		"no method":    {relay.Filter{Method: "GET"}, func(int) bool { return false }},
		"status":       {relay.Filter{Status: "404"}, func(i int) bool { return i%3 == 1 }},
		"status class": {relay.Filter{Status: "5xx", Limit: 2}, func(i int) bool { return i%3 == 2 }},
		"path":         {relay.Filter{Path: "/p3/"}, func(i int) bool { return i%10 == 3 }},
		"state":        {relay.Filter{State: relay.StateDelivered}, func(int) bool { return true }},
		"no state":     {relay.Filter{State: relay.StateQueued}, func(int) bool { return false }},
		"since":        {relay.Filter{Since: tenth}, func(i int) bool { return i >= 10 }},
		"until":        {relay.Filter{Until: tenth}, func(i int) bool { return i < 10 }},
		"text in body": {relay.Filter{Texts: []relay.TextFilter{{Text: "body-17"}}}, func(i int) bool { return i == 17 }},
		"text in path": {relay.Filter{Texts: []relay.TextFilter{{Text: "x%00?n=1"}}}, func(i int) bool { return i == 1 || i >= 10 && i < 20 }},
		"text in head": {relay.Filter{Texts: []relay.TextFilter{{Text: "Host: other"}}, Limit: 4}, func(i int) bool { return i%5 == 0 }},
		"response":     {relay.Filter{Texts: []relay.TextFilter{{Text: "HTTP/1.1 404"}}}, func(i int) bool { return i%3 == 1 }},
		"all at once": {
			relay.Filter{Alias: "hooks", Status: "2xx", Path: "/p", Texts: []relay.TextFilter{{Text: "body-"}}, Since: tenth, Limit: 1},
			func(i int) bool { return i%5 != 0 && i%3 == 0 && i >= 10 },
		},
	} {
		b.same(name, b.walk(b.alice, c.f), newest(ids, c.fits))
		for _, i := range []int{0, 1, 17, 29} {
			if fits, err := b.Matches(b.Context(), b.alice, ids[i], c.f); err != nil || fits != c.fits(i) {
				b.Errorf("%s: event %d by itself: %v, %v", name, i, fits, err)
			}
			if fits, err := b.Matches(b.Context(), b.root, ids[i], c.f); fits {
				b.Errorf("%s: event %d fits for a stranger, %v", name, i, err)
			}
		}
	}
}

func (b *fixture) badFilters() {
	for _, f := range []relay.Filter{{Status: "2x"}, {Status: "abc"}, {State: "asleep"}, {Cursor: "page2"}} {
		_, err := b.Events(b.Context(), b.alice, f)
		b.want(relay.CodeValidationFailed, err)
	}
	for _, alias := range []string{"nobodys", "a\x00b"} {
		_, err := b.Events(b.Context(), b.alice, relay.Filter{Alias: alias})
		b.want(relay.CodeNotFound, err)
	}
	_, err := b.Events(b.Context(), b.root, relay.Filter{Alias: "hooks"})
	b.want(relay.CodeNotFound, err)
}

// budget checks that a list whose time budget is used up returns a cursor that makes progress, so that
// no list is endless.
func (b *fixture) budget(ids []relay.ID) {
	f := relay.Filter{Texts: []relay.TextFilter{{Text: "body-02"}}, Limit: 1, Budget: time.Nanosecond}
	first := b.list(b.alice, f)
	if first.Next == "" || first.SearchedBackTo.IsZero() {
		b.Errorf("a list without budget has cursor %q, searched back to %v", first.Next, first.SearchedBackTo)
	}
	b.same("in small steps", b.walk(b.alice, f), []relay.ID{ids[2]})
}

func (b *fixture) summaries(ids []relay.ID) {
	asked := []relay.ID{ids[3], b.NewID(), ids[1]}
	rows, err := b.Summaries(b.Context(), asked)
	b.must(err)
	if len(rows) != 2 || rows[0].ID != ids[3] || rows[1].ID != ids[1] || rows[0].Alias != "hooks" {
		b.Errorf("summaries %+v", rows)
	}
	rows, err = b.Summaries(b.Context(), nil)
	if err != nil || len(rows) != 0 {
		b.Errorf("no summaries: %v, %v", rows, err)
	}
}

// hostRefused checks that, of the attempts that have ended, the one with the highest number decides whether
// the local server has refused the Host header, in lists, summaries and the whole event alike.
func (b *fixture) hostRefused() {
	const page = "Blocked request. This host (\"hooks.example.com\") is not allowed."
	replayed := func(id relay.ID, status int, body string) {
		b.Helper()
		c, err := b.BeginReplay(b.Context(), b.alice, id, true)
		b.must(err)
		b.ok(b.Finish(id, ended(c.N, relay.StateDelivered, status, body), ""))
	}
	for name, later := range map[string]bool{"in one batch": false, "ended later": true} {
		e := b.newEvent(b.hooks, relay.StateDelivering, "/"+name, "")
		accept := b.Accept(e)
		if later {
			b.ok(accept)
			b.checkRefusedBy(e.ID, "")
		}
		b.ok(b.Finish(e.ID, ended(1, relay.StateDelivered, 403, page), ""))
		b.ok(accept)
		b.checkRefusedBy(e.ID, "Vite")
		replayed(e.ID, 403, "no")
		b.checkRefusedBy(e.ID, "")
		slow, err := b.BeginReplay(b.Context(), b.alice, e.ID, true)
		b.must(err)
		replayed(e.ID, 403, page)
		b.checkRefusedBy(e.ID, "Vite")
		b.ok(b.Finish(e.ID, ended(slow.N, relay.StateDelivered, 200, "ok"), "")) // an earlier attempt ends last
		b.checkRefusedBy(e.ID, "Vite")
		replayed(e.ID, 200, "ok")
		b.checkRefusedBy(e.ID, "")
		again, err := b.BeginReplay(b.Context(), b.alice, e.ID, true)
		b.must(err)
		replayed(e.ID, 200, "ok")
		b.ok(b.Finish(e.ID, ended(again.N, relay.StateDelivered, 403, page), "")) // an earlier attempt ends last again
		b.checkRefusedBy(e.ID, "")
		b.redirectedHosts(name, later)
	}
}

// redirectedHosts checks HostRefusedBy of events whose local server redirects the request.
func (b *fixture) redirectedHosts(name string, later bool) {
	for location, want := range map[string]string{
		"https://HOOKS.localhost/r-" + name[:2] + "?a=%20": "redirect to https",
		"https://hooks.localhost/other":                    "",
		"https://shop.localhost/r-" + name[:2] + "?a=%20":  "",
	} {
		e := b.newEvent(b.hooks, relay.StateDelivering, "/r-"+name[:2]+"?a=%20", "")
		e.Host = "hooks.localhost:8443"
		accept := b.Accept(e)
		if later {
			b.ok(accept)
		}
		end := ended(1, relay.StateDelivered, 301, "")
		end.Response.Head = []byte("HTTP/1.1 301 X\r\nLocation: " + location + "\r\n\r\n")
		b.ok(b.Finish(e.ID, end, ""))
		b.ok(accept)
		b.checkRefusedBy(e.ID, want)
	}
}

// checkRefusedBy checks HostRefusedBy of an event in its summary, in a list and in the whole event. The event
// must be the newest one.
func (b *fixture) checkRefusedBy(id relay.ID, want string) {
	b.Helper()
	rows, err := b.Summaries(b.Context(), []relay.ID{id})
	b.must(err)
	list := b.list(b.alice, relay.Filter{Alias: "hooks", Limit: 1})
	if whole := b.read(id); rows[0].HostRefusedBy != want || list.Events[0].HostRefusedBy != want || whole.HostRefusedBy != want {
		b.Errorf("summary %q, list %q, event %q, want %q", rows[0].HostRefusedBy, list.Events[0].HostRefusedBy, whole.HostRefusedBy, want)
	}
}

// causes checks that the error text of the last response is the same in lists, summaries and attempts
// of the feed, even for a response that is stored in parts.
func (b *fixture) causes() {
	e := b.newEvent(b.hooks, relay.StateDelivering, "/cause", "")
	b.ok(b.Accept(e))
	check := func(n int, want string) {
		b.Helper()
		rows, err := b.Summaries(b.Context(), []relay.ID{e.ID})
		b.must(err)
		ref := relay.AttemptRef{Event: e.ID, N: n}
		heads, err := b.AttemptHeads(b.Context(), e.AliasID, []relay.AttemptRef{ref})
		b.must(err)
		list := b.list(b.alice, relay.Filter{Alias: "hooks", Limit: 1})
		for where, got := range map[string]string{"summary": rows[0].Cause, "list": list.Events[0].Cause, "attempt": heads[ref].Cause} {
			if got != want {
				b.Errorf("%s: %q, want %q", where, got, want)
			}
		}
	}
	b.ok(b.Finish(e.ID, ended(1, relay.StateDelivered, 500, `{"error":"no user"}`), ""))
	check(1, "no user")
	replay := func(end func(n int) *relay.Attempt) int {
		b.Helper()
		c, err := b.BeginReplay(b.Context(), b.alice, e.ID, true)
		b.must(err)
		b.ok(b.Finish(e.ID, end(c.N), ""))
		return c.N
	}
	check(replay(func(n int) *relay.Attempt { return ended(n, relay.StateDelivered, 200, `{"error":"none"}`) }), "")
	check(replay(func(n int) *relay.Attempt {
		body := []byte("<!doctype html><title>Large page</title>" + strings.Repeat("x", relay.BodyPart))
		a := ended(n, relay.StateDelivered, 500, "")
		a.Response.Body = relay.Body{Parts: b.chunks(e.ID, n, body), Stored: int64(len(body)), Size: int64(len(body)), State: relay.BodyComplete}
		return a
	}), "Large page")
	check(replay(func(n int) *relay.Attempt { return ended(n, relay.StateFailed, 0, "") }), "")
}
