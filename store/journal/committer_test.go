package journal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lib/pq"

	"relay"
	"relay/store/db"
	"relay/store/spool"
)

// idle returns a committer without its goroutine, so that tests can inspect its queue.
func idle(limit int64) *committer {
	c := newCommitter(New(&db.DB{Dialect: db.SQLite{}}, &spool.Spool{}, nil, Options{Log: slog.New(slog.DiscardHandler)}))
	c.rows.limit, c.chunks.limit = limit, 64
	return c
}

func (c *committer) give(kind spool.Kind, id byte, size int64) *step {
	st := &step{Step: spool.Step{Kind: kind, ID: relay.ID{id}, Size: size, Attempt: &relay.Attempt{N: 1}}, ticket: relay.NewTicket()}
	if kind == spool.Accept {
		st.Event = &relay.Event{ID: st.ID}
	}
	c.enqueue(st)
	return st
}

func resolved(st *step) bool {
	select {
	case <-st.ticket.Done():
		return true
	default:
		return false
	}
}

// Steps wait for space for at most 2 s, and keep their order.
func TestQueueRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := idle(100)
		first := c.give(spool.Accept, 1, 90)
		second := c.give(spool.Accept, 2, 20)
		third := c.give(spool.Accept, 3, 5) // the third step fits, but does not overtake the second
		time.Sleep(time.Second)
		if second.waiter == nil || third.waiter == nil {
			t.Error("rows have no bound")
		}
		if _, rows := c.dequeue(); !slices.Equal(rows, []*step{first, second, third}) {
			t.Fatalf("took %d steps, want three in their order", len(rows))
		}
		fits, late := c.give(spool.Accept, 4, 90), c.give(spool.Accept, 5, 90)
		time.Sleep(spaceWait + time.Millisecond)
		synctest.Wait()
		if resolved(second) || resolved(third) || resolved(fits) {
			t.Fatal("a step that found room was failed")
		}
		if !resolved(late) || !errors.Is(late.ticket.Err(), errQueueFull) {
			t.Fatalf("a step without room: %v", late.ticket.Err())
		}
		if late.Event != nil || late.Attempt != nil {
			t.Error("the content of a step that was failed is held")
		}
		if _, rows := c.dequeue(); !slices.Equal(rows, []*step{fits}) {
			t.Fatalf("took %d steps, want the one that has room", len(rows))
		}
		if bytes := c.rows.in - c.rows.out; bytes != 0 || len(c.rows.steps) != 0 {
			t.Errorf("left behind: %d bytes, %d steps", bytes, len(c.rows.steps))
		}
	})
}

// A step larger than the whole queue is still taken.
func TestQueueLargeStep(t *testing.T) {
	t.Parallel()
	c := idle(100)
	large := c.give(spool.Accept, 1, 1000)
	if _, rows := c.dequeue(); !slices.Equal(rows, []*step{large}) {
		t.Fatal("a large step does not get through")
	}
}

// A row does not pass parts of its event that were enqueued before it. It does pass later parts, and
// rows of other events pass all parts.
func TestQueueChunks(t *testing.T) {
	t.Parallel()
	c := idle(1 << 20)
	early := c.give(spool.Accept, 9, 1)
	for range chunkBatch + 1 {
		c.give(spool.Chunk, 1, 1)
	}
	c.give(spool.Chunk, 9, 1)
	blocked, other := c.give(spool.Accept, 1, 1), c.give(spool.Accept, 2, 1)
	chunks, rows := c.dequeue()
	if len(chunks) != chunkBatch || !slices.Equal(rows, []*step{early, other}) {
		t.Fatalf("took %d chunks and %d rows", len(chunks), len(rows))
	}
	chunks, rows = c.dequeue()
	if len(chunks) != 2 || !slices.Equal(rows, []*step{blocked}) {
		t.Fatalf("then took %d chunks and %d rows", len(chunks), len(rows))
	}
}

// In a batch that fails only the faulty step fails, and the order of each event is kept.
func TestSplit(t *testing.T) {
	t.Parallel()
	c := idle(1 << 20)
	var steps []*step
	for i := range 10 {
		for _, kind := range []spool.Kind{spool.Accept, spool.Finish} {
			st := c.give(kind, byte(i), 1)
			st.N = i
			steps = append(steps, st)
		}
	}
	culprit := steps[7] // steps[7] is the end of event 3
	var written []string
	c.commit(context.Background(), steps, func(_ context.Context, batch []*step) ([]relay.Change, error) {
		if slices.Contains(batch, culprit) {
			return nil, fmt.Errorf("poison")
		}
		for _, st := range batch {
			written = append(written, fmt.Sprint(st.N, st.Kind))
		}
		return nil, nil
	})
	for i, st := range steps {
		if !resolved(st) || (st.ticket.Err() != nil) != (st == culprit) {
			t.Errorf("step %d: %v", i, st.ticket.Err())
		}
	}
	var want []string
	for _, st := range steps {
		if st != culprit {
			want = append(want, fmt.Sprint(st.N, st.Kind))
		}
	}
	if !slices.Equal(written, want) {
		t.Errorf("written %v, want %v", written, want)
	}
}

// When the database cannot be written, all waiting steps fail at once, and so do new ones until it is
// available again.
func TestLose(t *testing.T) {
	t.Parallel()
	c := idle(1 << 20)
	batch, waiting := c.give(spool.Accept, 1, 1), c.give(spool.Chunk, 2, 1)
	_, rows := c.dequeue()
	c.chunks.steps = []*step{waiting}
	c.commit(context.Background(), rows, func(context.Context, []*step) ([]relay.Change, error) {
		return nil, context.DeadlineExceeded
	})
	later := c.give(spool.Finish, 3, 1)
	for _, st := range []*step{batch, waiting, later} {
		if e := relay.AsError(st.ticket.Err()); !resolved(st) || e.Code != relay.CodeStoreUnavailable || e.RetryAfter == 0 {
			t.Errorf("step %d: %v", st.ID[0], st.ticket.Err())
		}
	}
	if c.whyAway() == nil {
		t.Error("not away")
	}
}

// While Postgres does not answer, a caller without a spool waits less than 5 s, even behind parts of
// bodies that were taken together with its step. No caller is refused after a single try on a slow machine.
func TestNobodyWaitsTwice(t *testing.T) {
	t.Parallel()
	silent := func(took time.Duration, tries *int) func(context.Context, []*step) ([]relay.Change, error) {
		return func(context.Context, []*step) ([]relay.Change, error) {
			*tries++
			time.Sleep(took)
			return nil, context.DeadlineExceeded
		}
	}
	synctest.Test(t, func(t *testing.T) {
		c := idle(1 << 20)
		c.j.db.Dialect = db.Postgres{}
		c.give(spool.Chunk, 1, 1)
		row := c.give(spool.Finish, 2, 1)
		chunks, rows := c.dequeue()
		began, tries := time.Now(), 0
		c.commit(t.Context(), chunks, silent(time.Second, &tries))
		c.commit(t.Context(), rows, silent(time.Second, &tries))
		took := time.Since(began)
		if e := relay.AsError(row.ticket.Err()); !resolved(row) || e.Code != relay.CodeStoreUnavailable || took >= db.OpTimeout || tries < 2 {
			t.Errorf("%v after %v and %d tries", row.ticket.Err(), took, tries)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		c := idle(1 << 20)
		c.j.db.Dialect = db.Postgres{}
		c.give(spool.Accept, 1, 1)
		_, rows := c.dequeue()
		tries := 0
		c.commit(t.Context(), rows, silent(2*commitLimit, &tries))
		if tries != 2 {
			t.Errorf("tried %d times", tries)
		}
	})
}

// errExamined is an error that calls the function tell whenever errors.Is examines it.
type errExamined struct{ tell func() }

func (e errExamined) Error() string   { return "input/output error of the test" }
func (e errExamined) Unwrap() error   { return syscall.ENOSPC }
func (e errExamined) Is(_ error) bool { e.tell(); return false }

// The error for many waiting steps is not made for each of them, and never while the lock is held, because
// making it may read the free space of a disk that hangs.
func TestFailAllMakesOneRefusal(t *testing.T) {
	t.Parallel()
	c := idle(1 << 20)
	list, examined, locked := make([]*step, 100), 0, 0
	for i := range list {
		list[i] = c.give(spool.Finish, byte(i), 1)
	}
	c.failAll(nil, errExamined{func() {
		if examined++; !c.mu.TryLock() {
			locked++
			return
		}
		c.mu.Unlock()
	}})
	later := c.give(spool.Finish, 200, 1)
	for _, st := range append(list, later) {
		if e := relay.AsError(st.ticket.Err()); !resolved(st) || e.Code != relay.CodeStorageFull {
			t.Fatalf("step %d: %v", st.ID[0], st.ticket.Err())
		}
	}
	if examined == 0 || examined >= len(list) || locked > 0 {
		t.Errorf("the cause was examined %d times for %d steps, %d times with the lock held", examined, len(list), locked)
	}
}

// A batch that the database asks to run again is repeated a limited number of times, because its callers wait.
func TestDeadlocksWithoutEnd(t *testing.T) {
	t.Parallel()
	c := idle(1 << 20)
	st := &step{Step: spool.Step{Kind: spool.Requeue, ID: relay.ID{1}, N: 1}, ticket: relay.NewTicket()}
	began, tries := time.Now(), 0
	go c.commit(context.Background(), []*step{st}, func(context.Context, []*step) ([]relay.Change, error) {
		if tries++; time.Since(began) > 30*time.Second {
			return nil, nil // the test has failed; without an error, commit ends
		}
		return nil, &pq.Error{Code: "40P01"}
	})
	<-st.ticket.Done()
	if err := st.ticket.Err(); relay.AsError(err).Code != relay.CodeStoreUnavailable || tries < 2 {
		t.Errorf("after %d tries in %v: %v", tries, time.Since(began), err)
	}
}
