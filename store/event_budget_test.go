package store

import (
	"testing"

	"relay"
)

// When the bodies of an event are too much together, those of the request, of the
// first attempt and of the last ones come, and the others without their bytes.
func TestBodiesWithinABudget(t *testing.T) {
	t.Parallel()
	s := figured(t, 1)
	const attempts, size, fit = 500, 100, 20
	var id relay.ID
	id[15] = 7
	if err := s.update(t.Context(), "", func(c *writeTx) error {
		_, err := c.exec(`WITH RECURSIVE k (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM k WHERE n < ?)
			INSERT INTO payloads (event_id, n, framing, codec, body, parts, stored, size, state)
			SELECT ?, n, 0, 0, zeroblob(?), 0, ?, ?, '' FROM k`, attempts, id, size, size, size)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	err := s.view(t.Context(), "", func(q session) error {
		rows, err := rowsOf(q, (*payload).fields, payloadQuery+`event_id = ? ORDER BY n`, id)
		if err != nil {
			return err
		}
		if err := q.fillBodies(id, rows, relay.InlineBody+1, fit*size+size/2); err != nil {
			return err
		}
		for n, p := range rows {
			whole := n < 2 || n > attempts-(fit-2)
			if whole != (len(p.Body.Data) == size) || !whole && len(p.Body.Data) > 0 {
				t.Errorf("body %d: %d bytes", n, len(p.Body.Data))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if budgetOf(relay.InlineBody+1) != bodyBudget || budgetOf(relay.InlineBody) < 1<<40 {
		t.Error("which reads have a budget")
	}
}
