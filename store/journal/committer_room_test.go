package journal

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"relay"
	"relay/store/spool"
)

// narrowQueue returns a committer without its goroutine, with space for the given number of parts.
func narrowQueue(parts int) *committer {
	c := idle(100)
	c.chunks.limit = int64(parts)
	return c
}

// The limits of both lanes together are at most queueBytes, and at least nine tenths of it.
func TestQueueShares(t *testing.T) {
	t.Parallel()
	c := newCommitter(nil)
	if all := c.rows.limit + c.chunks.limit*(relay.BodyPart+stepOverhead); all > queueBytes || all < queueBytes*9/10 {
		t.Errorf("the committer holds %d bytes, want about %d", all, queueBytes)
	}
	if c.chunks.limit < 4*chunkBatch {
		t.Errorf("room for %d parts is not enough to keep the writer busy", c.chunks.limit)
	}
}

// Waiting parts of one large body take no space from the rows of other events.
func TestRowsPassStalledChunks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := narrowQueue(2)
		var chunks []*step
		for range 3 * chunkBatch {
			chunks = append(chunks, c.give(spool.Chunk, 1, relay.BodyPart))
		}
		behind, other := c.give(spool.Accept, 1, 1), c.give(spool.Accept, 2, 90)
		if other.waiter != nil || behind.waiter != nil {
			t.Error("a row waits for the room of parts")
		}
		if _, rows := c.dequeue(); !slices.Equal(rows, []*step{other}) {
			t.Errorf("took %d rows, want the one of the other event", len(rows))
		}
		if stalled := c.give(spool.Accept, 3, 100); stalled.waiter == nil {
			t.Error("rows have no bound")
		}
		if part := c.give(spool.Chunk, 4, 1); part.waiter == nil {
			t.Error("a part overtakes those that wait for room")
		}
		var rows []*step
		for !slices.Contains(rows, behind) {
			if len(c.chunks.steps) == 0 {
				t.Fatal("the row is not taken with the last part of its body")
			}
			if _, rows = c.dequeue(); slices.Contains(rows, behind) && slices.ContainsFunc(c.chunks.steps, func(st *step) bool { return st.ID == behind.ID }) {
				t.Error("a row passed a part of its own event")
			}
		}
		if slices.ContainsFunc(chunks, resolved) {
			t.Error("a part was failed")
		}
	})
}

// A part of a body waits much longer for space than a new request, because the wait only slows down its sender.
func TestChunkFindsRoomLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := narrowQueue(1)
		var first []*step
		for range chunkBatch {
			first = append(first, c.give(spool.Chunk, 1, 1))
		}
		second, third := c.give(spool.Chunk, 2, 1), c.give(spool.Chunk, 3, 1)
		row := c.give(spool.Accept, 3, 1)
		time.Sleep(5 * time.Second)
		if chunks, _ := c.dequeue(); !slices.Equal(chunks, first) || resolved(second) {
			t.Fatal("the first parts are not taken, or the second was failed")
		}
		time.Sleep(partWait - 5*time.Second + time.Millisecond)
		synctest.Wait()
		if resolved(second) || !resolved(third) || !errors.Is(third.ticket.Err(), errQueueFull) {
			t.Fatalf("second failed %t, third: %v", resolved(second), third.ticket.Err())
		}
		if third.Data != nil {
			t.Error("the bytes of a part that was failed are held")
		}
		time.Sleep(time.Minute) // the step second keeps its space while it waits
		chunks, rows := c.dequeue()
		if !slices.Equal(chunks, []*step{second}) || !slices.Equal(rows, []*step{row}) {
			t.Fatalf("took %d parts and %d rows", len(chunks), len(rows))
		}
		if chunks, rows = c.dequeue(); len(chunks)+len(rows)+c.length() != c.busy {
			t.Error("something is left")
		}
	})
}

// With random steps and a slow database, parts are taken in the order of arrival, and no row passes a part of
// its event. Every step is taken or has failed.
func TestQueueAtRandom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for seed := range uint64(20) {
			random := rand.New(rand.NewPCG(seed, 1))
			c := narrowQueue(1 + random.IntN(6))
			var given, taken []*step
			for len(given) < 300 || c.length() > c.busy {
				if len(given) < 300 && random.IntN(3) > 0 {
					kind := spool.Chunk
					if random.IntN(3) == 0 {
						kind = spool.Accept
					}
					given = append(given, c.give(kind, byte(random.IntN(8)), int64(1+random.IntN(60))))
				} else {
					time.Sleep(time.Duration(random.IntN(2000)) * time.Millisecond)
					chunks, rows := c.dequeue()
					taken = append(append(taken, chunks...), rows...)
				}
				if bytes, parts := c.rows.in-c.rows.out, c.chunks.in-c.chunks.out; bytes < 0 || parts < 0 {
					t.Fatalf("seed %d: %d bytes and %d parts are left", seed, bytes, parts)
				}
			}
			checkOrder(t, seed, given, taken)
		}
	})
}

// checkOrder checks that parts were taken in the order of arrival, that no row passed a part of its event,
// and that exactly the steps that did not fail were taken.
func checkOrder(t *testing.T, seed uint64, given, taken []*step) {
	t.Helper()
	var lastPart uint64
	row := map[relay.ID]uint64{}
	for _, st := range taken {
		if st.dead || st.waiter != nil {
			t.Fatalf("seed %d: a step that failed, or may still fail, was taken", seed)
		}
		if st.Kind == spool.Chunk {
			if st.seq < lastPart {
				t.Fatalf("seed %d: part %d was taken behind %d", seed, st.seq, lastPart)
			}
			lastPart = st.seq
			continue
		}
		if st.seq < row[st.ID] {
			t.Fatalf("seed %d: row %d was taken behind %d", seed, st.seq, row[st.ID])
		}
		row[st.ID] = st.seq
	}
	at := map[*step]int{}
	for i, st := range taken {
		at[st] = i
	}
	for i, st := range given {
		if _, ok := at[st]; ok == st.dead {
			t.Fatalf("seed %d: step %d taken %t, failed %t", seed, st.seq, ok, st.dead)
		}
		for _, later := range given[i+1:] {
			if st.Kind == spool.Chunk && later.Kind != spool.Chunk && st.ID == later.ID && !st.dead && !later.dead && at[later] < at[st] {
				t.Fatalf("seed %d: row %d passed part %d of its event", seed, later.seq, st.seq)
			}
		}
	}
}

// When the database cannot be written, steps that wait for space fail together with the others and
// leave no memory reserved.
func TestLoseStalled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := narrowQueue(1)
		var all []*step
		for i := range byte(10) {
			all = append(all, c.give(spool.Chunk, i, relay.BodyPart), c.give(spool.Accept, i, 90))
		}
		chunks, rows := c.dequeue()
		c.commit(t.Context(), chunks, func(context.Context, []*step) ([]relay.Change, error) {
			return nil, context.DeadlineExceeded
		})
		for i, st := range all {
			if !resolved(st) && !slices.Contains(rows, st) { // rows were dequeued, but this test does not commit them
				t.Errorf("step %d waits for ever", i)
			}
		}
		time.Sleep(time.Minute) // no timer fires for a resolved step
		c.away = nil
		if part, row := c.give(spool.Chunk, 1, 1), c.give(spool.Accept, 2, 100); part.waiter != nil || row.waiter != nil {
			t.Error("no room, but nothing waits")
		}
	})
}

// Closing a store makes all waiting steps durable, including those that have no space yet.
func TestCloseStoresStalled(t *testing.T) {
	t.Parallel()
	s, _ := served(t, "")
	c := s.committer.Load()
	c.mu.Lock()
	c.chunks.limit = 1
	c.mu.Unlock()
	var tickets []*relay.Ticket
	for range 20 {
		id := s.NewID()
		for i := range 3 {
			tickets = append(tickets, s.Chunk(id, 0, i, make([]byte, 1000)))
		}
	}
	s.StopJournal()
	s.wait.Wait()
	for i, ticket := range tickets {
		select {
		case <-ticket.Done():
			if ticket.Err() != nil {
				t.Errorf("part %d: %v", i, ticket.Err())
			}
		default:
			t.Fatalf("part %d waits for ever", i)
		}
	}
}
