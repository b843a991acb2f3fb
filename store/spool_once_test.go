package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"relay"
)

// spooled gives a served store and a spool of its own that holds steps, in the name of
// an earlier run of it, and whose drainer is not running.
func spooled(t *testing.T, s *Store, steps []*step) (*spool, *drainer) {
	t.Helper()
	p := spoolWithoutDatabase(t, t.TempDir(), s.boot, 8<<20)
	p.claimant = claimant{s.spoolID, s.boot}
	mustPut(t, p, steps)
	return p, draining(s, p)
}

func draining(s *Store, p *spool) *drainer {
	return &drainer{s: s, p: p, limit: drainSteps, aliases: map[int64]bool{}, foreignEvents: map[relay.ID]bool{}}
}

// rounds runs a drainer until the spool is empty.
func rounds(t *testing.T, d *drainer) {
	t.Helper()
	for range 200 {
		done, err := d.round(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if done {
			return
		}
	}
	t.Fatal("the spool does not get empty")
}

// takeOut claims what comes next out of the queue of an alias and ends it; nil when
// nothing waits.
func takeOut(t *testing.T, s *Store, alias int64) *relay.Claim {
	t.Helper()
	c, err := s.Next(t.Context(), alias, true)
	if err != nil {
		t.Fatal(err)
	}
	if c != nil {
		settle(t, s.Finish(c.Event.ID, &relay.Attempt{N: c.N, State: relay.StateDelivered, EndedAt: time.Now()}, ""))
	}
	return c
}

// What reached the database and is read from a file once more, because the relay was
// killed before it noted that or could not remove the file, is not stored again: what
// was removed, canceled or delivered meanwhile stays so.
func TestSpoolStoredOnce(t *testing.T) {
	t.Parallel()
	s, alias := servedOnPostgres(t)
	steps, queue := arrivals(s, alias, 12)
	p, d := spooled(t, s, steps)
	some, from, to, err := p.peek(drainSteps, drainBytes)
	if err != nil || len(some) != len(steps) {
		t.Fatal(len(some), err)
	}
	if _, err := d.write(t.Context(), drainBatch{some, from, to}); err != nil {
		t.Fatal(err)
	}
	if err := p.close(); err != nil { // before anything is noted in the file
		t.Fatal(err)
	}
	ctx, who := t.Context(), relay.System()
	for _, id := range queue[:4] {
		if err := s.DeleteEvent(ctx, who, id); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Cancel(ctx, who, queue[4]); err != nil {
		t.Fatal(err)
	}
	if c := takeOut(t, s, alias); c == nil || c.Event.ID != queue[5] {
		t.Fatal(c)
	}

	again := spoolWithoutDatabase(t, p.dir, 9, 8<<20)
	if err := again.loadLeftSegments(s.spoolID); err != nil || !again.active() {
		t.Fatal(err)
	}
	if err := s.drain(ctx, again, func(context.Context) bool { return true }); err != nil {
		t.Fatal(err)
	}
	for _, id := range queue[:4] {
		if e, err := s.Event(ctx, who, id, 0); !errors.Is(err, relay.ErrNotFound) {
			t.Errorf("a removed event is there again: %+v, %v", e, err)
		}
	}
	for i, id := range queue[4:6] {
		want := []string{relay.StateCanceled, relay.StateDelivered}[i]
		if e, err := s.Event(ctx, who, id, 0); err != nil || e.State != want || e.AttemptCount != 1 {
			t.Errorf("was %s: %+v, %v", want, e, err)
		}
	}
	for i, id := range queue[6:] {
		if c := takeOut(t, s, alias); c == nil || c.Event.ID != id {
			t.Fatalf("%d comes out of the queue as %+v", i, c)
		}
	}
	if _, err := os.Stat(filepath.Join(p.dir, spoolRefused)); err == nil {
		t.Error("something was kept aside")
	}
	var offsets int
	if err := s.read.Get(&offsets, `SELECT COUNT(*) FROM meta WHERE name LIKE 'spool/%'`); err != nil || offsets > 0 {
		t.Errorf("%d offsets are left, %v", offsets, err)
	}
	if left := leftSegments(p.dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// A database that refuses everything for a while, as one whose tables are just being
// restored, gets all of it later; nothing is kept aside but what it refuses for itself.
func TestSpoolRefusedForAWhile(t *testing.T) {
	t.Parallel()
	s, alias := servedOnPostgres(t)
	steps, queue := arrivals(s, alias, 10)
	p, d := spooled(t, s, steps)
	if _, err := s.write.Exec(`ALTER TABLE payloads RENAME TO elsewhere`); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if done, err := d.round(t.Context()); done || err == nil {
			t.Fatalf("stored without a table: %v", err)
		}
	}
	refused := filepath.Join(p.dir, spoolRefused)
	if _, err := os.Stat(refused); err == nil {
		t.Error("steps were kept aside that a whole database takes")
	}
	if _, err := s.write.Exec(`ALTER TABLE elsewhere RENAME TO payloads`); err != nil {
		t.Fatal(err)
	}
	odd := freshSteps(0, 1, 10)[0]
	odd.id = s.NewID()
	odd.event.ID, odd.event.AliasID, odd.event.HTTPMinor = odd.id, alias, 1<<20 // no smallint
	more, behind := arrivals(s, alias, 5)
	mustPut(t, p, slices.Insert(more, 3, odd))
	queue = append(queue, behind...)
	rounds(t, d)
	for i, id := range queue {
		if c := takeOut(t, s, alias); c == nil || c.Event.ID != id {
			t.Fatalf("%d comes out of the queue as %+v", i, c)
		}
	}
	kept, err := os.ReadFile(refused)
	if err != nil {
		t.Fatal(err)
	}
	content, size, err := readRecord(kept)
	if st, perr := parseStep(content); err != nil || perr != nil || st.id != odd.id || size != len(kept) {
		t.Errorf("kept aside: %d of %d bytes, %v, %v", size, len(kept), err, perr)
	}
}

// A batch that is too large for a slow database is halved until the database takes it.
func TestSpoolOfASlowDatabase(t *testing.T) {
	t.Parallel()
	s, alias := servedOnPostgres(t)
	steps, _ := arrivals(s, alias, 12)
	_, d := spooled(t, s, steps)
	tx, err := s.read.Beginx()
	if err == nil {
		_, err = tx.Exec(`LOCK TABLE attempts IN EXCLUSIVE MODE`)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.round(t.Context()); err == nil || unavailable(err) == "" {
		t.Errorf("a database that does not answer: %v", err)
	}
	if d.limit > len(steps)/2 {
		t.Errorf("still %d of %d steps at once", d.limit, len(steps))
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	rounds(t, d)
}

// Events of an alias that is not in the database, or is another one there, are not
// stored: they would be somebody else's, or nobody's for ever.
func TestSpoolOfAnotherDatabase(t *testing.T) {
	t.Parallel()
	s, alias := servedOnPostgres(t)
	steps, _ := arrivals(s, alias, 5)
	removed, renamed := steps[0].event, steps[2].event
	removed.AliasID, renamed.Alias = alias+1000, "theirs"
	p, d := spooled(t, s, steps)
	rounds(t, d)
	for _, e := range []*relay.Event{removed, renamed} {
		var n int
		if err := s.read.Get(&n, `SELECT COUNT(*) FROM events WHERE id = $1`, e.ID); err != nil || n > 0 {
			t.Errorf("stored %d, %v", n, err)
		}
	}
	kept, err := os.ReadFile(filepath.Join(p.dir, spoolRefused))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for ; len(kept) > 0; n++ {
		_, size, err := readRecord(kept)
		if err != nil || size == 0 {
			t.Fatal(err)
		}
		kept = kept[size:]
	}
	if n != 4 { // each with the step that put it back
		t.Errorf("%d steps were kept aside", n)
	}
}

// What was stored before its alias was removed is gone with it: read once more, it is
// neither stored nor kept aside.
func TestSpoolStoredBeforeAnAliasWasRemoved(t *testing.T) {
	t.Parallel()
	s, alias := servedOnPostgres(t)
	steps, _ := arrivals(s, alias, 6)
	p, d := spooled(t, s, steps)
	some, from, to, err := p.peek(drainSteps, drainBytes)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.write(t.Context(), drainBatch{some, from, to}); err != nil {
		t.Fatal(err)
	}
	if err := s.RemoveAlias(t.Context(), relay.System(), "hooks"); err != nil {
		t.Fatal(err)
	}
	if err := s.deleteRemovedAliases(t.Context()); err != nil {
		t.Fatal(err)
	}
	rounds(t, draining(s, p))
	if _, err := os.Stat(filepath.Join(p.dir, spoolRefused)); err == nil {
		t.Error("events of the removed alias were kept aside")
	}
	var n int
	if err := s.read.Get(&n, `SELECT COUNT(*) FROM events`); err != nil || n > 0 {
		t.Errorf("%d events of the removed alias are there, %v", n, err)
	}
}

// The offsets of files that were removed stay until the removal is durable: after a loss of
// power such a file may be there again, and must not be stored twice.
func TestSpoolOffsetsOutliveTheirFiles(t *testing.T) {
	t.Parallel()
	s, alias := servedOnPostgres(t)
	steps, _ := arrivals(s, alias, 4)
	p, d := spooled(t, s, steps)
	rounds(t, d)
	offsets := func() (n int) {
		if err := s.read.Get(&n, `SELECT COUNT(*) FROM meta WHERE name LIKE 'spool/%'`); err != nil {
			t.Fatal(err)
		}
		return n
	}
	p.disk = newLossyDisk(-1)
	d.removeOffsets(t.Context())
	if left := leftSegments(p.dir); len(left) > 0 || offsets() == 0 {
		t.Errorf("before the removal is durable: %d offsets, files %v", offsets(), left)
	}
	p.disk = realDisk{}
	d.removeOffsets(t.Context())
	if n := offsets(); n > 0 {
		t.Errorf("%d offsets are left", n)
	}
}
