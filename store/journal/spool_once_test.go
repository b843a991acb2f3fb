package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"relay"
	"relay/relaytest"
	"relay/store/db"
	"relay/store/file"
	"relay/store/spool"
)

// spooled returns a new spool that holds the given steps, and a drainer from it to the store s. The drainer
// does not run by itself: the test calls its rounds.
func spooled(t *testing.T, s *fixture, steps []*step) (*spool.Spool, *drainer) {
	t.Helper()
	p := spoolWithoutDatabase(t, t.TempDir(), 8<<20)
	p.Claimant = s.Claimant
	if len(steps) > 0 {
		mustPut(t, p, steps)
	}
	return p, newDrainer(s.Journal, p)
}

// writeNext writes the next steps to the database, as many as the parameter limit says, but does not note in
// the spool that they are stored, like a process that was killed before it could.
func writeNext(t *testing.T, d *drainer, limit int) {
	t.Helper()
	rows, err := d.p.Next(limit, drainBytes)
	if err != nil || len(rows) == 0 {
		t.Fatal(len(rows), err)
	}
	var steps []*step
	for i := range rows {
		st, err := rows[i].Step()
		if err != nil {
			t.Fatal(err)
		}
		steps = append(steps, &step{Step: *st, spooled: rows[i].Seq})
	}
	if err := d.write(t.Context(), rows, steps, nil); err != nil {
		t.Fatal(err)
	}
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

// takeOut claims the next attempt of the queue of an alias and ends it; it returns nil if the queue is empty.
func takeOut(t *testing.T, s *fixture, alias int64) *relay.Claim {
	t.Helper()
	relaytest.Until(t, 15*time.Second, "the node to be allowed to claim", func() bool { return s.MayClaim() == nil })
	c, err := s.Next(relay.NextClaim{Alias: alias, Auto: true})
	if err != nil {
		t.Fatal(err)
	}
	if c != nil {
		settle(t, s.Finish(c.Event.ID, &relay.Attempt{N: c.N, State: relay.StateDelivered, EndedAt: time.Now()}, ""))
	}
	return c
}

// A step that is in the database may be read from the spool file again, because relayd was killed before it
// noted the step. The step is not stored again: events that were removed, canceled or delivered in the
// meantime stay so.
func TestSpoolStoredOnce(t *testing.T) {
	t.Parallel()
	s, alias := servedOnPostgres(t)
	steps, queue := arrivals(s, alias, 12)
	p, d := spooled(t, s, steps)
	writeNext(t, d, drainSteps)
	if err := p.Close(); err != nil { // the spool is closed before it notes any step as done
		t.Fatal(err)
	}
	ctx, who := t.Context(), relay.System()
	for _, id := range queue[:4] {
		s.forget(t, `id = ?`, id)
	}
	if err := s.Cancel(ctx, who, queue[4]); err != nil {
		t.Fatal(err)
	}
	if c := takeOut(t, s, alias); c == nil || c.Event.ID != queue[5] {
		t.Fatal(c)
	}

	again := spoolWithoutDatabase(t, p.Dir, 8<<20)
	if err := again.LoadLeft(); err != nil || !again.Active.Load() || again.Undrained.Load() == 0 {
		t.Fatal(err)
	}
	if err := s.drain(ctx, again); err != nil {
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
	if _, err := os.Stat(filepath.Join(p.Dir, spool.RefusedFile)); err == nil {
		t.Error("something was kept aside")
	}
	var marks int
	if err := s.db.Read.Get(&marks, `SELECT COUNT(*) FROM spool_marks`); err != nil || marks > 0 {
		t.Errorf("%d marks are left, %v", marks, err)
	}
	if spool.Left(p.Dir) {
		t.Error("the file is left")
	}
}

// If a database refuses every step for a while, for example while its tables are being restored, it gets all of
// them later. A step is quarantined only if the database refuses it because of its data, even when it is alone
// in a batch.
func TestSpoolRefusedForAWhile(t *testing.T) {
	t.Parallel()
	s, alias := servedOnPostgres(t)
	steps, queue := arrivals(s, alias, 10)
	p, d := spooled(t, s, steps)
	if _, err := s.db.Write.Exec(`ALTER TABLE payloads RENAME TO elsewhere`); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if done, err := d.round(t.Context()); done || err == nil {
			t.Fatalf("stored without a table: %v", err)
		}
	}
	refused := filepath.Join(p.Dir, spool.RefusedFile)
	if _, err := os.Stat(refused); err == nil {
		t.Error("steps were kept aside that a whole database takes")
	}
	if _, err := s.db.Write.Exec(`ALTER TABLE elsewhere RENAME TO payloads`); err != nil {
		t.Fatal(err)
	}
	odd := freshStep(10)
	odd.ID = s.NewID()
	odd.Event.ID, odd.Event.AliasID, odd.Event.HTTPMinor = odd.ID, alias, 1<<20 // the number is too large for the type smallint
	more, behind := arrivals(s, alias, 5)
	mustPut(t, p, slices.Insert(more, 3, odd))
	queue = append(queue, behind...)
	rounds(t, d)
	for i, id := range queue {
		if c := takeOut(t, s, alias); c == nil || c.Event.ID != id {
			t.Fatalf("%d comes out of the queue as %+v", i, c)
		}
	}
	if kept := refusedSteps(t, p.Dir); len(kept) != 1 || kept[0].Event != odd.ID.String() || kept[0].Kind != "accept" || kept[0].Request.HTTPMinor != 1<<20 {
		t.Errorf("kept aside: %+v", kept)
	}
}

// refusedSteps reads the steps that were quarantined.
func refusedSteps(t *testing.T, dir string) (list []spool.Refused) {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, spool.RefusedFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := json.NewDecoder(f); ; {
		var st spool.Refused
		if err := lines.Decode(&st); err == io.EOF {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		list = append(list, st)
	}
}

// A batch that is too large for a slow database is halved until the database takes it.
func TestSpoolOfASlowDatabase(t *testing.T) {
	t.Parallel()
	s, alias := servedOnPostgres(t)
	steps, _ := arrivals(s, alias, 12)
	_, d := spooled(t, s, steps)
	tx, err := s.db.Read.Beginx()
	if err == nil {
		_, err = tx.Exec(`LOCK TABLE attempts IN EXCLUSIVE MODE`)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.round(t.Context()); err == nil || db.Unavailable(err) == "" {
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

// Events are not stored if their alias is missing in the database, or has another name there. Such events
// would belong to another account, or to none.
func TestSpoolOfAnotherDatabase(t *testing.T) {
	t.Parallel()
	s, alias := servedOnPostgres(t)
	steps, _ := arrivals(s, alias, 5)
	removed, renamed := steps[0].Event, steps[2].Event
	removed.AliasID, renamed.Alias = alias+1000, "theirs"
	p, d := spooled(t, s, steps)
	rounds(t, d)
	for _, e := range []*relay.Event{removed, renamed} {
		var n int
		if err := s.db.Read.Get(&n, `SELECT COUNT(*) FROM events WHERE id = $1`, e.ID); err != nil || n > 0 {
			t.Errorf("stored %d, %v", n, err)
		}
	}
	kept := refusedSteps(t, p.Dir)
	if len(kept) != 4 || kept[0].Event != removed.ID.String() || kept[1].Kind != "requeue" { // both events are listed, each with the step that put it back into the queue
		t.Errorf("kept aside: %+v", kept)
	}
}

// Events that were stored before their alias was removed are deleted with it. When they are read again
// from the spool, they are neither stored nor quarantined.
func TestSpoolStoredBeforeAnAliasWasRemoved(t *testing.T) {
	t.Parallel()
	s, alias := servedOnPostgres(t)
	steps, _ := arrivals(s, alias, 6)
	p, d := spooled(t, s, steps)
	writeNext(t, d, drainSteps)
	if err := s.RemoveAlias(t.Context(), relay.System(), "hooks"); err != nil {
		t.Fatal(err)
	}
	s.forget(t, `alias_id = ?`, alias)
	rounds(t, newDrainer(s.Journal, p))
	if _, err := os.Stat(filepath.Join(p.Dir, spool.RefusedFile)); err == nil {
		t.Error("events of the removed alias were kept aside")
	}
	var n int
	if err := s.db.Read.Get(&n, `SELECT COUNT(*) FROM events`); err != nil || n > 0 {
		t.Errorf("%d events of the removed alias are there, %v", n, err)
	}
}

// A spool has the steps of two runs of relayd. relayd is killed, or the result of a commit is lost, when a
// part of the steps is in the database. When the steps are written again, none is stored twice, the steps of
// an event keep their order, and the queue has the order of arrival.
func TestSpoolWrittenAgain(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 7, 50} {
		t.Run(fmt.Sprint("after ", limit), func(t *testing.T) {
			t.Parallel()
			s, alias := servedOnPostgres(t)
			steps, want := arrivals(s, alias, 30)
			later, behind := arrivals(s, alias, 30)
			for _, st := range later {
				if e := st.Event; e != nil {
					e.ReceivedAt = e.ReceivedAt.Add(time.Hour)
					e.Attempts[0].ReceivedAt = e.ReceivedAt
				}
			}
			p, d := spooled(t, s, nil)
			earlier := s.opt.SpoolID + "/0"
			p.Claimant = func() (string, string) { return earlier, earlier } // the first half was written by an earlier run of relayd
			mustPut(t, p, steps)
			p.Claimant = s.Claimant
			mustPut(t, p, later)
			want = append(want, behind...)
			writeNext(t, d, limit)
			writeNext(t, d, limit/2+1)
			rounds(t, newDrainer(s.Journal, p))
			for i, id := range want {
				if c := takeOut(t, s, alias); c == nil || c.Event.ID != id || len(c.Event.Attempts) != 1 {
					t.Fatalf("%d comes out of the queue as %+v", i, c)
				}
			}
			if c := takeOut(t, s, alias); c != nil {
				t.Errorf("one more: %+v", c)
			}
			page, err := s.Events(t.Context(), relay.System(), relay.Filter{State: relay.StateDelivered, Limit: 200})
			if err != nil || len(page.Events) != len(want)+len(want)/2 {
				t.Errorf("%d delivered, %v", len(page.Events), err)
			}
		})
	}
}

// A step whose bytes changed on the disk is quarantined, and the other steps are stored.
func TestSpoolDamagedStepIsKeptAside(t *testing.T) {
	t.Parallel()
	s, alias := servedOnPostgres(t)
	steps, _ := arrivals(s, alias, 2)
	part := &step{Step: spool.Step{Kind: spool.Chunk, ID: relay.ID{7}, N: 1, Data: []byte("part")}}
	p, d := spooled(t, s, append(steps[:2:2], part, part))
	db, err := file.OpenSQLite(t.Context(), filepath.Join(p.Dir, "spool.db"), 1, []string{file.BusyTimeout}, "")
	if err != nil {
		t.Fatal(err)
	}
	db.MustExec(`UPDATE steps SET data = X'0102' WHERE seq = 3`)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	rounds(t, d)
	if kept := refusedSteps(t, p.Dir); len(kept) != 1 || !bytes.Equal(kept[0].Data, []byte{1, 2}) {
		t.Errorf("kept aside: %+v", kept)
	}
	if c := takeOut(t, s, alias); c == nil || c.Event.ID != steps[0].ID {
		t.Errorf("out of the queue comes %+v", c)
	}
}
