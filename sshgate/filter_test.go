package sshgate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"relay"
)

// The commands about events take the filters by flags and as typed words.
func TestFiltersOfCommands(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]relay.Filter{
		`events a`:              {Alias: "a"},
		`events a status:5xx`:   {Alias: "a", Status: "5xx"},
		`events a --status 5xx`: {Alias: "a", Status: "5xx"},
		`events a -n 5 --type=invoice.* data.id=x "Exact text" 'other text' word`: {
			Alias: "a", Type: "invoice.*", JSON: []relay.FieldFilter{{Path: []string{"data", "id"}, Value: "x"}},
			Texts: []relay.TextFilter{{Text: "Exact text", Exact: true}, {Text: "other text", Exact: true}, {Text: "word"}},
		},
		`events --json a --json=data.id=x`:   {Alias: "a", JSON: []relay.FieldFilter{{Path: []string{"data", "id"}, Value: "x"}}},
		`wait a --path "/a b" --method post`: {Alias: "a", Path: "/a b", Method: "POST"},
		`events a path:"/a b"`:               {Alias: "a", Path: "/a b"},
	} {
		got, err := filterOfLine(line)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if got, want := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); got != want {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
	for line, want := range map[string]string{
		`events a --stauts 5xx`:            "did you mean --status?",
		`events a stauts:5xx`:              "did you mean status?",
		`events a --status 5x`:             "did you mean 5xx?",
		`events a --status 404 status:500`: "more than once",
		`events a alias:b`:                 "the alias is given twice",
		`events a --alias b`:               "has no flag",
	} {
		if _, err := filterOfLine(line); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", line, err, want)
		}
	}
}

func filterOfLine(line string) (relay.Filter, error) {
	words, raw, err := splitWords(line)
	if err != nil {
		return relay.Filter{}, err
	}
	c, err := find(words[0])
	if err != nil {
		return relay.Filter{}, err
	}
	k := &call{raw: raw, flags: map[string]string{}, filterFlags: map[string][]string{}}
	if err := k.parse(c, words[1:]); err != nil {
		return relay.Filter{}, err
	}
	return k.filter(k.words[0])
}

// A list that is followed shows only live events that fit, also by what only their bodies
// tell.
func TestFollowedListIsFiltered(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	a := b.store.alias("a", 1)
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
	eventually(t, 30*time.Second, "subscription", func() bool { return b.store.subscribers() == 1 })
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
		"diff " + one.ID.String(): exitUsage, "diff x y": exitNotFound, "diff " + one.ID.String() + "/9 " + two.ID.String(): exitNotFound,
		"diff " + one.ID.String() + " " + two.ID.String() + " --part body": exitUsage,
	} {
		if out, _, code := runs(t, c, line); code != want {
			t.Errorf("%s: %d, want %d: %s", line, code, want, out)
		}
	}
}
