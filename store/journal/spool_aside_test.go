package journal

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/store/spool"
)

// A drained step that cannot be applied is quarantined before it counts as done. Examples are an event with
// missing parts, an event of a removed alias, and the end of an attempt that was never stored. A step that
// cannot be quarantined stays in the spool.
func TestStepsWithoutEffectAreKeptAside(t *testing.T) {
	t.Parallel()
	s, alias := servedOnPostgres(t)
	at := time.Now().Round(0)
	event := func(alias int64, parts int) *step {
		e := &relay.Event{
			ID: s.NewID(), AliasID: alias, ReceivedAt: at, State: relay.StateQueued, Method: "POST", Target: []byte("/lost"),
			Request:  relay.Message{Body: relay.Body{Parts: parts, Stored: int64(parts), Size: int64(parts), State: relay.BodyComplete}},
			Attempts: []relay.Attempt{{N: 1, Kind: relay.KindOriginal, State: relay.StateQueued, ReceivedAt: at}},
		}
		return &step{Step: spool.Step{Kind: spool.Accept, ID: e.ID, Event: e}}
	}
	end := &step{Step: spool.Step{Kind: spool.Finish, ID: s.NewID(), N: 1, Attempt: &relay.Attempt{
		N: 1, State: relay.StateDelivered, StartedAt: at, EndedAt: at, HasResponse: true, Status: 200,
		Response: relay.Message{Body: relay.Body{Parts: 2, Stored: 2, Size: 2, State: relay.BodyComplete}},
	}}}
	for name, st := range map[string]*step{"parts are gone": event(alias, 2), "alias is gone": event(alias+1000, 0), "end with parts that are gone": end} {
		p, d := spooled(t, s, []*step{st})
		file := filepath.Join(p.Dir, spool.RefusedFile)
		if err := os.Mkdir(file, 0o700); err != nil { // no step can be quarantined while a folder is in place of the file
			t.Fatal(err)
		}
		if _, err := d.round(t.Context()); err == nil || p.Waiting.Load() != 1 {
			t.Errorf("%s: the step left the spool though it could not be kept aside: %v", name, err)
		}
		var marks int
		if err := s.db.Read.Get(&marks, `SELECT COUNT(*) FROM spool_marks WHERE step > 0`); err != nil || marks != 0 {
			t.Errorf("%s: a mark says that the step is done (%v)", name, err)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(file); err == nil {
			t.Fatal("still there")
		}
		rounds(t, d)
		text, err := os.ReadFile(file)
		if err != nil || strings.Count(string(text), "\n") != 1 || !strings.Contains(string(text), st.ID.String()) {
			t.Errorf("%s: kept aside %q, %v", name, text, err)
		}
		d.removeMarks(t.Context())
	}
}

// A drain removes only the rows of spool_marks that it has changed. Rows whose names have the same prefix may
// belong to a copy of the data dir that is served elsewhere.
func TestMarksOfACopyStay(t *testing.T) {
	t.Parallel()
	s, alias := servedOnPostgres(t)
	if err := s.db.Execute(t.Context(), "", `INSERT INTO spool_marks (spool, step) VALUES (?, 7)`, s.opt.SpoolID+"/copy/1"); err != nil {
		t.Fatal(err)
	}
	steps, _ := arrivals(s, alias, 2)
	p, _ := spooled(t, s, steps)
	if err := s.drain(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	var left []string
	if err := s.db.Read.Select(&left, `SELECT spool FROM spool_marks`); err != nil || len(left) != 1 || left[0] != s.opt.SpoolID+"/copy/1" {
		t.Errorf("%q are left (%v)", left, err)
	}
}

// If a spool file cannot be removed, its steps do not count as waiting, and later steps are drained until the
// spool is empty.
func TestSpoolFileThatStays(t *testing.T) {
	t.Parallel()
	s, alias := servedOnPostgres(t)
	steps, _ := arrivals(s, alias, 2)
	p, d := spooled(t, s, steps)
	for p.Waiting.Load() > 0 {
		if _, err := d.round(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	blocked := filepath.Join(p.Dir, "spool.db-shm")
	_ = os.Remove(blocked)
	if err := os.MkdirAll(filepath.Join(blocked, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if empty, err := p.MarkEmpty(); !empty || err == nil {
		t.Fatalf("empty %v, %v", empty, err)
	}
	if err := os.RemoveAll(blocked); err != nil {
		t.Fatal(err)
	}
	more, _ := arrivals(s, alias, 2)
	mustPut(t, p, more)
	if n := p.Waiting.Load(); n != int64(len(more)) {
		t.Errorf("%d steps wait, not %d", n, len(more))
	}
	rounds(t, d)
	if p.Active.Load() {
		t.Error("the spool never becomes empty")
	}
}
