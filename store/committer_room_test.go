package store

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"relay"
)

// narrowQueue is an idle committer with room for a few parts.
func narrowQueue(parts int) *committer {
	c := idle(100)
	c.parts = parts
	return c
}

// withRoom counts the parts that have room.
func (c *committer) withRoom() (n int) {
	for _, st := range c.chunks {
		if st.waiter == nil && !st.dead {
			n++
		}
	}
	return n
}

// What waits for the committer is never more than what is promised.
func TestQueueShares(t *testing.T) {
	t.Parallel()
	c := newCommitter(nil)
	if all := c.limit + int64(c.parts)*(relay.BodyPart+stepOverhead); all > queueBytes || all < queueBytes*9/10 {
		t.Errorf("the committer holds %d bytes, want about %d", all, queueBytes)
	}
	if c.parts < 4*chunkBatch {
		t.Errorf("room for %d parts is not enough to keep the writer busy", c.parts)
	}
}

// The large bodies of one alias, however many wait, take no room from other requests.
func TestRowsPassStalledChunks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := narrowQueue(2)
		var chunks []*step
		for range 3 * chunkBatch {
			chunks = append(chunks, c.give(stepChunk, 1, relay.BodyPart))
		}
		behind, other := c.give(stepAccept, 1, 1), c.give(stepAccept, 2, 90)
		if other.waiter != nil || behind.waiter != nil {
			t.Error("a row waits for the room of parts")
		}
		if _, rows := c.dequeue(); !slices.Equal(rows, []*step{other}) {
			t.Errorf("took %d rows, want the one of the other event", len(rows))
		}
		if stalled := c.give(stepAccept, 3, 100); stalled.waiter == nil {
			t.Error("rows have no bound")
		}
		if part := c.give(stepChunk, 4, 1); part.waiter == nil {
			t.Error("a part overtakes those that wait for room")
		}
		var rows []*step
		for len(rows) == 0 {
			if len(c.chunks) == 0 {
				t.Fatal("the row is not taken with the last part of its body")
			}
			if _, rows = c.dequeue(); len(rows) > 0 && slices.ContainsFunc(c.chunks, func(st *step) bool { return st.id == behind.id }) {
				t.Error("a row passed a part of its own event")
			}
		}
		if rows[0] != behind || slices.ContainsFunc(chunks, resolved) {
			t.Error("not the row that was behind, or a part was failed")
		}
	})
}

// A part waits much longer for room than a request: its sender only gets slower.
func TestChunkFindsRoomLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := narrowQueue(1)
		first, second, third := c.give(stepChunk, 1, 1), c.give(stepChunk, 2, 1), c.give(stepChunk, 3, 1)
		row := c.give(stepAccept, 3, 1)
		time.Sleep(5 * time.Second)
		if chunks, _ := c.dequeue(); !slices.Equal(chunks, []*step{first}) || resolved(second) {
			t.Fatal("the first part is not taken, or the second was failed")
		}
		time.Sleep(partWait - 5*time.Second + time.Millisecond)
		synctest.Wait()
		if resolved(second) || !resolved(third) || !errors.Is(third.ticket.Err(), errQueueFull) {
			t.Fatalf("second failed %t, third: %v", resolved(second), third.ticket.Err())
		}
		if third.data != nil {
			t.Error("the bytes of a part that was failed are held")
		}
		if fourth := c.give(stepChunk, 4, 1); fourth.waiter == nil {
			t.Error("room for two")
		}
		time.Sleep(time.Minute) // the room it has it keeps
		chunks, rows := c.dequeue()
		if !slices.Equal(chunks, []*step{second}) || !slices.Equal(rows, []*step{row}) {
			t.Fatalf("took %d parts and %d rows", len(chunks), len(rows))
		}
		if chunks, rows = c.dequeue(); len(chunks)+len(rows)+c.length() != c.busy {
			t.Error("something is left")
		}
	})
}

// Whatever comes and however slow the database is: parts are taken in the order in which
// they came, no row passes a part of its event, and no more than is allowed have room.
func TestQueueAtRandom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for seed := range uint64(20) {
			random := rand.New(rand.NewPCG(seed, 1))
			c := narrowQueue(1 + random.IntN(6))
			var given, taken []*step
			for len(given) < 300 || c.length() > c.busy {
				if len(given) < 300 && random.IntN(3) > 0 {
					kind := stepChunk
					if random.IntN(3) == 0 {
						kind = stepAccept
					}
					given = append(given, c.give(kind, byte(random.IntN(8)), int64(1+random.IntN(60))))
				} else {
					time.Sleep(time.Duration(random.IntN(2000)) * time.Millisecond)
					chunks, rows := c.dequeue()
					taken = append(append(taken, chunks...), rows...)
				}
				if n := c.withRoom(); n > c.parts || c.bytes > 100 || c.bytes < 0 {
					t.Fatalf("seed %d: %d parts of %d, %d bytes of 100 have room", seed, n, c.parts, c.bytes)
				}
			}
			checkOrder(t, seed, given, taken)
		}
	})
}

// checkOrder compares what was given with what was taken.
func checkOrder(t *testing.T, seed uint64, given, taken []*step) {
	t.Helper()
	var lastPart uint64
	row := map[relay.ID]uint64{}
	for _, st := range taken {
		if st.dead || st.waiter != nil {
			t.Fatalf("seed %d: a step without room was taken", seed)
		}
		if st.kind == stepChunk {
			if st.seq < lastPart {
				t.Fatalf("seed %d: part %d was taken behind %d", seed, st.seq, lastPart)
			}
			lastPart = st.seq
			continue
		}
		if st.seq < row[st.id] {
			t.Fatalf("seed %d: row %d was taken behind %d", seed, st.seq, row[st.id])
		}
		row[st.id] = st.seq
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
			if st.kind == stepChunk && later.kind != stepChunk && st.id == later.id && !st.dead && !later.dead && at[later] < at[st] {
				t.Fatalf("seed %d: row %d passed part %d of its event", seed, later.seq, st.seq)
			}
		}
	}
}

// When the database cannot be written, those without room fail with the others and leave
// nothing behind.
func TestLoseStalled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := narrowQueue(1)
		var all []*step
		for i := range byte(10) {
			all = append(all, c.give(stepChunk, i, relay.BodyPart), c.give(stepAccept, i, 90))
		}
		chunks, _ := c.dequeue()
		c.commit(t.Context(), chunks, func(context.Context, []*step) ([]relay.Change, error) {
			return nil, context.DeadlineExceeded
		})
		for i, st := range all {
			if !resolved(st) && st != all[1] { // taken, not handed to commit here
				t.Errorf("step %d waits for ever", i)
			}
		}
		time.Sleep(time.Minute) // no timer fires for what was resolved
		c.lost = nil
		if part, row := c.give(stepChunk, 1, 1), c.give(stepAccept, 2, 100); part.waiter != nil || row.waiter != nil {
			t.Error("no room, but nothing waits")
		}
	})
}

// A store that closes makes everything durable that waits, also what has no room yet.
func TestCloseStoresStalled(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), Options{DataDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if _, _, err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(t.Context(), func([]relay.Change) {}); err != nil {
		t.Fatal(err)
	}
	c := s.committer
	c.mu.Lock()
	c.parts = 1
	c.mu.Unlock()
	var tickets []*relay.Ticket
	for range 20 {
		id := s.NewID()
		for i := range 3 {
			tickets = append(tickets, s.Chunk(id, 0, i, make([]byte, 1000)))
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
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
