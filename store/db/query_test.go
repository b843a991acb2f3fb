package db

import (
	"context"
	"testing"

	"github.com/jmoiron/sqlx"

	"relay/relaytest"
	"relay/store/pgtest"
)

// TestUpdateEachOfManyRows: UpdateEach updates each of many rows, although a statement for all of them would have more
// arguments than SQLite or Postgres accepts. The transaction has no time limit, so that a stall of the disk does not
// fail the test.
func TestUpdateEachOfManyRows(t *testing.T) {
	t.Parallel()
	many := 33_000 // Postgres accepts 65,535 arguments, and each row needs two
	if relaytest.RaceEnabled() {
		many = 4000 // SQLite is some five times as slow with the race detector
	}
	for name, o := range map[string]Options{"sqlite": {DataDir: t.TempDir()}, "postgres": {URL: pgtest.URL(t), DataDir: t.TempDir()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openTest(t, o)
			q := s.Session(t.Context(), s.Slow)
			if _, err := q.Exec(`CREATE TABLE counts (id BIGINT PRIMARY KEY, n BIGINT)`); err != nil {
				t.Fatal(err)
			}
			if _, err := q.Exec(`INSERT INTO counts (id, n) WITH RECURSIVE r (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r WHERE i < ?) SELECT i, i FROM r`, many); err != nil {
				t.Fatal(err)
			}
			values := map[int64]int64{}
			for id := range int64(many) {
				values[id+1] = 2 * (id + 1)
			}
			begin := func(ctx context.Context) (*sqlx.Tx, func(), error) {
				tx, err := s.Slow.BeginTxx(ctx, nil)
				return tx, func() {}, err
			}
			if _, err := s.UpdateOnce(t.Context(), begin, func(c *Tx) error {
				UpdateEach(c, values, func(n int64) int64 { return n }, `counts SET n = n + v.value FROM v WHERE id = v.k`, `BIGINT`)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			var updated int
			if err := q.Get(&updated, `SELECT COUNT(*) FROM counts WHERE n = 3 * id`); err != nil || updated != many {
				t.Errorf("%d of %d rows are updated, %v", updated, many, err)
			}
		})
	}
}
