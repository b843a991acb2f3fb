package storetest

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"relay"
	"relay/store"
)

func testMarks(t *testing.T, fresh func(testing.TB) store.Options) {
	b := setup(t, fresh)
	b.must(b.AddMember(t.Context(), b.bob, "other", "alice"))
	t.Run("filters", func(t *testing.T) { b.with(t).markFilters() })
	t.Run("sent", func(t *testing.T) { b.with(t).sent() })
	t.Run("rights", func(t *testing.T) { b.with(t).markRights() })
	t.Run("bounds", func(t *testing.T) { b.with(t).markBounds() })
	t.Run("searches", func(t *testing.T) { b.with(t).savedSearches() })
}

func (b *fixture) mark(who relay.Actor, id relay.ID, m relay.Mark) error {
	return b.MarkEvent(b.Context(), who, id, func(to *relay.Mark) { *to = m })
}

// markFilters checks that marks are read back, and select events of a list.
func (b *fixture) markFilters() {
	var ids []relay.ID
	marks := []relay.Mark{{}, {Pinned: true}, {Label: "bug-17", Note: "two\nlines"}, {Pinned: true, Label: "bug-18"}, {Label: "other"}}
	for i := range 10 {
		ids = append(ids, b.capture(b.hooks, fmt.Sprintf("/mark/%d", i), "body", 200))
		b.must(b.mark(b.alice, ids[i], marks[i%5]))
		if got := b.read(ids[i]).Mark; got != marks[i%5] {
			b.Errorf("event %d has %+v", i, got)
		}
	}
	yes, no := true, false
	for name, c := range map[string]struct {
		f    relay.Filter
		fits func(m relay.Mark) bool
	}{
		"pinned":       {relay.Filter{Pinned: &yes}, func(m relay.Mark) bool { return m.Pinned }},
		"not pinned":   {relay.Filter{Pinned: &no, Path: "/mark/"}, func(m relay.Mark) bool { return !m.Pinned }},
		"label":        {relay.Filter{Label: "bug-17"}, func(m relay.Mark) bool { return m.Label == "bug-17" }},
		"labels":       {relay.Filter{Label: "bug-*", Limit: 1}, func(m relay.Mark) bool { return strings.HasPrefix(m.Label, "bug-") }},
		"any label":    {relay.Filter{Label: "*"}, func(m relay.Mark) bool { return m.Label != "" }},
		"both, a text": {relay.Filter{Label: "bug-*", Pinned: &yes, Texts: []relay.TextFilter{{Text: "body"}}}, func(m relay.Mark) bool { return m.Label == "bug-18" }},
	} {
		for _, alias := range []string{"", "hooks"} {
			c.f.Alias = alias
			b.same(name+" of "+alias, b.walk(b.alice, c.f), newest(ids, func(i int) bool { return c.fits(marks[i%5]) }))
		}
		b.same(name+", system", b.walk(system, c.f), newest(ids, func(i int) bool { return c.fits(marks[i%5]) }))
		if fits, err := b.Matches(b.Context(), b.alice, ids[3], c.f); err != nil || fits != c.fits(marks[3]) {
			b.Errorf("%s: an event by itself: %v, %v", name, fits, err)
		}
	}
	b.same("a stranger's", b.walk(b.root, relay.Filter{Pinned: &yes}), nil)
	rows, err := b.Summaries(b.Context(), ids[3:4])
	b.must(err)
	if rows[0].Mark != marks[3] {
		b.Errorf("the feed gets %+v", rows[0].Mark)
	}
}

// markRights checks that only the owner of the alias can set marks, and that members see them.
func (b *fixture) markRights() {
	id := b.capture(b.other, "/of-bob", "", 200)
	b.want(relay.CodeForbidden, b.mark(b.alice, id, relay.Mark{Pinned: true}))
	b.want(relay.CodeNotFound, b.mark(b.root, id, relay.Mark{Pinned: true}))
	b.must(b.mark(b.bob, id, relay.Mark{Pinned: true, Label: "x"}))
	e, err := b.Event(b.Context(), b.alice, id, 0)
	b.must(err)
	if !e.Mark.Pinned || e.Mark.Label != "x" {
		b.Errorf("a member sees %+v", e.Mark)
	}
	reader := b.bob
	reader.Kind, reader.Scopes = relay.ActorToken, relay.ScopeEventsRead
	b.want(relay.CodeForbidden, b.mark(reader, id, relay.Mark{}))
	log, err := b.Audit(b.Context(), b.bob, 5)
	b.must(err)
	if last := log[0]; last.Action != "event.mark" || last.Target != id.String() || !strings.Contains(last.Detail, "pinned, label x") {
		b.Errorf("audit has %+v", last)
	}
	b.must(b.DeleteEvent(b.Context(), b.bob, id))
	b.want(relay.CodeNotFound, b.mark(b.bob, id, relay.Mark{Pinned: true}))
	yes := true
	b.same("after the deletion", b.walk(b.bob, relay.Filter{Pinned: &yes}), nil)
}

func (b *fixture) markBounds() {
	id := b.capture(b.hooks, "/bounds", "", 200)
	for _, m := range []relay.Mark{
		{Label: strings.Repeat("x", 61)}, {Label: "two\nlines"}, {Label: "any*"}, {Label: "a\x00b"}, {Note: strings.Repeat("x", 2001)},
	} {
		b.want(relay.CodeValidationFailed, b.mark(b.alice, id, m))
	}
	b.must(b.mark(b.alice, id, relay.Mark{Label: strings.Repeat("ü", 60), Note: strings.Repeat("ü", 2000)}))
}

// savedSearches checks that each account has its own searches for an alias.
func (b *fixture) savedSearches() {
	save := func(who relay.Actor, name, words string) error {
		return b.SaveSearch(b.Context(), who, "other", relay.SavedSearch{Name: name, Words: words})
	}
	b.must(save(b.alice, "failed", "status:error"))
	b.must(save(b.alice, "a", "type:invoice.*"))
	b.must(save(b.alice, "failed", "status:5xx"))
	b.must(save(b.bob, "mine", "x"))
	b.want(relay.CodeNotFound, save(b.root, "x", "y"))
	b.want(relay.CodeValidationFailed, save(b.alice, "", "y"))
	b.want(relay.CodeValidationFailed, save(b.alice, "x", "stauts:5xx"))
	list, err := b.SavedSearches(b.Context(), b.alice, "other")
	b.must(err)
	if d := cmp.Diff([]relay.SavedSearch{{Name: "a", Words: "type:invoice.*"}, {Name: "failed", Words: "status:5xx"}}, list); d != "" {
		b.Error(d)
	}
	b.must(save(b.alice, "a", ""))
	for i := range 49 {
		b.must(save(b.alice, fmt.Sprint("n", i), "x"))
	}
	b.want(relay.CodeConflict, save(b.alice, "one too many", "x"))
	b.must(b.RemoveMember(b.Context(), b.bob, "other", "alice"))
	if _, err := b.SavedSearches(b.Context(), b.alice, "other"); !errors.Is(err, relay.ErrNotFound) {
		b.Errorf("somebody who is no member any more: %v", err)
	}
	b.must(b.AddMember(b.Context(), b.bob, "other", "alice"))
	if list, err := b.SavedSearches(b.Context(), b.alice, "other"); err != nil || len(list) > 0 {
		b.Errorf("a new member has %v, %v", list, err)
	}
}
