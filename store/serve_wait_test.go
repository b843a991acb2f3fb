package store

import (
	"testing"

	"relay/store/schematest"
)

// While a store is opened, statements may take long, because no caller waits; once it serves, they may not: see
// db.Started.
func TestServingDoesNotWaitLong(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t, 1, Options{URL: schematest.URL(t)})
	if _, err := c.nodes[0].db.Write.ExecContext(t.Context(), `SELECT pg_sleep(3.5)`); err == nil {
		t.Error("a statement of a serving store has waited for 3.5 s")
	}
}
