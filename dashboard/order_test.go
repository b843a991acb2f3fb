package dashboard_test

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"relay"
)

// found returns the matches of the first group of pattern in a page, after the first occurrence of the text in
// the parameter from.
func found(t *testing.T, page, from, pattern string) (all []string) {
	t.Helper()
	_, part, there := strings.Cut(page, from)
	if !there {
		t.Errorf("the page lacks %q", from)
	}
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(part, -1) {
		all = append(all, m[1])
	}
	return all
}

// TestListsOfAnAccountAreSorted: lists of names are sorted by name, keys and tokens by the time of their
// addition, and the audit logs have the newest entry first.
func TestListsOfAnAccountAreSorted(t *testing.T) {
	t.Parallel()
	o := newAccountFixture(t)
	for _, name := range []string{"hook-c", "hook-a", "hook-b"} {
		o.alias("alice", name)
	}
	for _, name := range []string{"zoe", "aaron"} {
		_, err := o.CreateAccount(t.Context(), relay.System(), name, false)
		o.must(err)
	}
	for _, name := range []string{"zoe", "bob", "aaron"} {
		o.must(o.AddMember(t.Context(), o.actor("alice"), "hook-a", name))
	}
	added := []string{"c", "a", "b"}
	for _, name := range added {
		_, _, err := o.CreateToken(t.Context(), o.actor("alice"), relay.Token{Name: name, Scopes: relay.ScopeEventsRead})
		o.must(err)
		_, err = o.AddKey(t.Context(), o.actor("alice"), "", name, o.publicKey())
		o.must(err)
		o.must(o.SaveSearch(t.Context(), o.actor("alice"), "hook-a", relay.SavedSearch{Name: name, Words: "status:error"}))
	}
	aliases := []string{"hook-a", "hook-b", "hook-c"}
	for name, c := range map[string]struct {
		user, path, from, pattern string
		want                      []string
	}{
		"aliases":                 {"alice", "/", `class="cards aliases"`, `<tr data-alias="([^"]+)"`, aliases},
		"aliases in the sidebar":  {"alice", "/account", `id="side"`, `<li id="side-([^"]+)"`, aliases},
		"aliases of a token":      {"alice", "/account", `name="alias"`, `<option value="(hook-[^"]+)"`, aliases},
		"members":                 {"alice", "/aliases/hook-a/settings", "<h2>Members</h2>", `<li>\s*<span>([^<]+)</span>`, []string{"aaron", "bob", "zoe"}},
		"saved searches":          {"alice", "/aliases/hook-a", `id="list"`, `name="name" value="([abc])"`, []string{"a", "b", "c"}},
		"accounts":                {"root", "/admin", `<caption class="unseen">Accounts`, `data-user="([^"]+)"`, []string{"aaron", "alice", "bob", "root", "zoe"}},
		"keys, by their addition": {"alice", "/account", `id="keys-of"`, `<td data-label="Name">([abc])</td><td data-label="Fingerprint"`, added},
		"tokens, by theirs":       {"alice", "/account", `id="tokens-of"`, `<td data-label="Name">([abc])\s*</td><td data-label="May do"`, added},
	} {
		if got := found(t, o.get(c.user, c.path).want(200).body, c.from, c.pattern); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	for path, least := range map[string]int{"/account/audit": 10, "/admin/audit": 15} {
		at := found(t, o.get(map[bool]string{true: "root", false: "alice"}[path == "/admin/audit"], path).want(200).body, `class="cards log"`, `<time datetime="([^"]+)"`)
		if !falls(t, at) || len(at) < least {
			t.Errorf("%s: %d entries, not the newest first: %q", path, len(at), at)
		}
	}
}

// falls reports whether the times are in descending order.
func falls(t *testing.T, list []string) bool {
	t.Helper()
	var before time.Time
	for _, text := range list {
		at, err := time.Parse(time.RFC3339Nano, text)
		must(t, err)
		if !before.IsZero() && at.After(before) {
			return false
		}
		before = at
	}
	return true
}

// TestListsOfEventsAreSorted: events are sorted by their time, newest first, also after replays. Attempts are
// sorted newest first, shares by creation, and queued events by arrival.
func TestListsOfEventsAreSorted(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.online()
	var ids, queued []string
	for range 4 {
		ids = append(ids, r.send(post("/hook", "{}")).String())
	}
	for range 3 {
		r.replay(ids[0])
	}
	var shares []string
	for range 3 {
		page := r.submit("/events/"+ids[0]+"/shares", url.Values{"expires": {"1d"}}, 200)
		for _, id := range found(t, page, `id="shares"`, `data-share="([^"]+)"`) {
			if !slices.Contains(shares, id) {
				shares = append(shares, id)
			}
		}
	}
	page := r.get("/events/"+ids[0], 200)
	if got := found(t, page, `id="shares"`, `data-share="([^"]+)"`); !slices.Equal(got, shares) || len(shares) != 3 {
		t.Errorf("shares: %q, made as %q", got, shares)
	}
	if got := found(t, page, `class="strip"`, `<span class="who">\s*Attempt (\d+)`); !slices.Equal(got, []string{"4", "3", "2", "1"}) {
		t.Errorf("attempts: %q", got)
	}
	r.offline()
	for range 3 {
		queued = append(queued, r.send(post("/hook", "{}")).String())
	}
	page = r.get("/aliases/hook", 200)
	want := slices.Concat(ids, queued)
	slices.Reverse(want)
	if got := found(t, page, `id="rows"`, `<li[^>]* data-event-id="([^"]+)"`); !slices.Equal(got, want) {
		t.Errorf("events: %q, want %q", got, want)
	}
	if at := found(t, page, `id="rows"`, `<time datetime="([^"]+)" class="clock"`); len(at) != len(want) || !falls(t, at) {
		t.Errorf("times of the events: %q", at)
	}
	for i, id := range queued {
		contains(t, id, r.get("/events/"+id, 200), "position "+string(rune('1'+i)))
	}
}
