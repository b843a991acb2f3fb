package sshgate

import (
	"context"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/sshgate/shell"
)

// A list that is followed shows only live events that fit, also by what only their bodies
// tell.
func TestFollowedListIsFiltered(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	a := b.store.alias("a", 1)
	listed := b.store.event(1, a).ID.String()
	c := b.mustDial(b.alice)
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	out := &output{}
	s.Stdout = out
	if err := s.Start("events a -f path:/hook needle"); err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, "subscription and list", func() bool { return b.store.subscribers() == 1 && contains(out, listed) })
	live := func(n byte, target, body string) string {
		e := b.store.event(n, a)
		b.store.mu.Lock()
		e.Target, e.Request.Body.Data = []byte(target), []byte(body)
		b.store.mu.Unlock()
		b.store.publish(attemptEnded(t, b, e)...)
		return e.ID.String()
	}
	for n, miss := range []string{live(2, "/other", "needle"), live(3, "/hook", "nothing")} {
		defer func() {
			if contains(out, miss) {
				t.Errorf("event %d does not fit, but is shown", n)
			}
		}()
	}
	hit := live(4, "/hook", "the Needle")
	eventually(t, 30*time.Second, "the event that fits", func() bool { return contains(out, hit) })
	_ = s.Close()
}

// slowSearch finds nothing at first: the time of the search was up before it came to an event.
type slowSearch struct{ shell.Reader }

func (r slowSearch) Events(ctx context.Context, who relay.Actor, f relay.Filter) (relay.Page, error) {
	if f.Cursor == "" {
		return relay.Page{Next: "further back"}, nil
	}
	f.Cursor = ""
	return r.Reader.Events(ctx, who, f)
}

// A search that takes longer than one page of it may was shown as if nothing had been found.
func TestEventsOfASlowSearch(t *testing.T) {
	t.Parallel()
	b := newFixture(t, func(o *Options) { o.Read = slowSearch{o.Read} })
	id := b.store.event(1, b.store.alias("a", 1)).ID.String()
	for _, command := range []string{"events a needle", "events a --json"} {
		if out, _, code := runs(t, b.mustDial(b.alice), command); code != 0 || !strings.Contains(out, id) {
			t.Errorf("%s: %d, %q", command, code, out)
		}
	}
}

func TestDiffCommand(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	a := b.store.alias("a", 1)
	one, two := b.store.event(1, a), b.store.event(2, a)
	b.store.mu.Lock()
	two.Target = []byte("/changed")
	b.store.mu.Unlock()
	c := b.mustDial(b.alice)
	if out, _, code := runs(t, c, "diff "+one.ID.String()+" "+two.ID.String()); code != 0 || !strings.HasPrefix(out, "different method or path, same body\nrequest "+one.ID.String()) || !strings.Contains(out, "/changed") {
		t.Errorf("%d: %s", code, out)
	}
	if out, _, code := runs(t, c, "diff "+one.ID.String()+" "+two.ID.String()+" --json"); code != 0 || !strings.HasPrefix(out, `{"left":"`+one.ID.String()+`"`) {
		t.Errorf("%d: %s", code, out)
	}
	for line, want := range map[string]int{
		"diff " + one.ID.String(): shell.ExitUsage, "diff x y": shell.ExitNotFound, "diff " + one.ID.String() + "/9 " + two.ID.String(): shell.ExitNotFound,
		"diff " + one.ID.String() + " " + two.ID.String() + " --part body": shell.ExitUsage,
	} {
		if out, _, code := runs(t, c, line); code != want {
			t.Errorf("%s: %d, want %d: %s", line, code, want, out)
		}
	}
}
