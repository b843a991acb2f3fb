package events

import (
	"net/http/httptest"
	"testing"

	"relay"
	"relay/budget"
	"relay/store/db"
)

// If heads and bodies of an event together exceed the budget, the request, the first attempt and the
// newest attempts have their bytes. The other attempts are returned without them.
func TestBodiesWithinABudget(t *testing.T) {
	t.Parallel()
	s := openEvents(t, 1)
	const attempts, size = 100, 1 << 20
	var id relay.ID
	id[15] = 7
	insert := func(from, to, head, body int) {
		t.Helper()
		if err := s.db.Update(t.Context(), "", func(c *db.Tx) error {
			_, err := c.Exec(`WITH RECURSIVE k (n) AS (SELECT ? UNION ALL SELECT n + 1 FROM k WHERE n < ?)
				INSERT INTO payloads (event_id, n, head, framing, codec, body, parts, stored, size, state)
				SELECT ?, n, zeroblob(?), 0, 0, zeroblob(?), 0, ?, ?, '' FROM k`, from, to, id, head, body, body, body)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	for n := 0; n < attempts; n += 10 { // a slow disk may not take all of them within the time for one operation
		insert(n, n+9, 10, size)
	}
	insert(attempts, attempts, 5<<20, 10) // a large head takes the place of bodies
	numbers := append([]int{0}, pageOf(attempts, 30)...)
	if len(numbers) != 1+1+relay.ShownAttempts+1 {
		t.Fatalf("read with the event: %v", numbers)
	}
	for _, most := range []int{size, size + 1, 64 << 10, 0} {
		err := s.db.View(t.Context(), "", func(q db.Query) error {
			list, err := readMessages(q, id, numbers, most)
			if err != nil {
				return err
			}
			if err := readBodies(q, id, list); err != nil {
				return err
			}
			left := messageBudget
			for i, p := range list {
				if p.n != numbers[i] {
					t.Fatalf("order %v: %d is message %d", numbers, i, p.n)
				}
				head, body := 10, min(size, most)
				if p.n == attempts {
					head, body = 5<<20, min(10, most)
				}
				if left -= head; len(p.Head) != head {
					t.Errorf("head of %d: %d bytes", p.n, len(p.Head))
				}
				if body > left {
					body = 0
				}
				if left -= body; len(p.Body.Data) != body {
					t.Errorf("body of %d: %d bytes, want %d", p.n, len(p.Body.Data), body)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	insert(attempts+1, attempts+1, messageBudget, 0)
	if err := s.db.View(t.Context(), "", func(q db.Query) error {
		list, err := readMessages(q, id, []int{0, attempts + 1, attempts}, 0)
		if err == nil && (len(list[0].Head) != 10 || !list[1].HeadOmitted || len(list[1].Head) > 0 || len(list[2].Head) != 5<<20) {
			t.Errorf("heads of %d, %d and %d bytes", len(list[0].Head), len(list[1].Head), len(list[2].Head))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// TestReadsReserveWhatTheyHold: a read reserves memory for all bytes that it holds. With a small budget
// it reads fewer bytes.
func TestReadsReserveWhatTheyHold(t *testing.T) {
	t.Parallel()
	const size, part = 1<<20 - 5, 256 << 10
	for _, tt := range []struct {
		name        string
		limit       int64
		bodies, fit int
	}{
		{"all", 512 << 20, 10, 10},
		{"16 MiB together", 512 << 20, 20, 16},
		{"half of what an account may hold", 64 << 20, 10, 8},
		{"a body, however small the budget is", 1 << 20, 10, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := openEvents(t, 1)
			id, numbers := relay.ID{15: 7}, []int{}
			if err := s.db.Update(t.Context(), "", func(c *db.Tx) error {
				for n := range tt.bodies {
					numbers = append(numbers, n)
					if _, err := c.Exec(`INSERT INTO payloads (event_id, n, head, framing, codec, body, parts, stored, size, state)
						VALUES (?, ?, x'', 0, 0, NULL, 4, ?, ?, '')`, id, n, size, size); err != nil {
						return err
					}
					for i := range 4 {
						if _, err := c.Exec(`INSERT INTO body_chunks (event_id, n, i, data) VALUES (?, ?, ?, zeroblob(?))`, id, n, i, min(part, size-i*part)); err != nil {
							return err
						}
					}
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			reserved := budget.New(tt.limit)
			w := &budget.Writer{ResponseWriter: httptest.NewRecorder(), Budget: reserved, Account: 1}
			err := s.db.View(w.WithReads(t.Context()), "", func(q db.Query) error {
				list, err := readMessages(q, id, numbers, 1<<20)
				if err == nil {
					err = readBodies(q, id, list)
				}
				var fit, room int64
				for _, p := range list {
					if len(p.Body.Data) == size {
						fit++
					}
					room += int64(cap(p.Body.Data))
				}
				if fit != int64(tt.fit) || room != fit*size {
					t.Errorf("%d bodies in %d bytes, want %d", fit, room, tt.fit)
				}
				if got, want := reserved.Stats().Used, min(budget.ReadCopies*fit*size, reserved.Share()); got != want {
					t.Errorf("reserved: %d, want %d", got, want)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}
