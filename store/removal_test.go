package store

import (
	"context"
	"errors"
	"testing"
)

// Deletes don't wait for the disk; whatever becomes of them, the commits of the
// journal behind them do.
func TestDeletesLeaveTheWriterDurable(t *testing.T) {
	t.Parallel()
	const normal, full = 1, 2
	s := figured(t, 1)
	mine := errors.New("mine")
	for name, fn := range map[string]func(*testing.T, *writeTx, context.CancelFunc) error{
		"done":  func(*testing.T, *writeTx, context.CancelFunc) error { return nil },
		"fails": func(*testing.T, *writeTx, context.CancelFunc) error { return mine },
		"fails in a statement": func(_ *testing.T, c *writeTx, _ context.CancelFunc) error {
			if _, err := c.exec(`DELETE FROM audit`); err != nil {
				return err
			}
			_, err := c.exec(`DELETE FROM nowhere`)
			return err
		},
		"the engine rolls back": func(_ *testing.T, c *writeTx, _ context.CancelFunc) error {
			_, err := c.exec(`ROLLBACK`)
			return err
		},
		"its caller leaves": func(_ *testing.T, _ *writeTx, leave context.CancelFunc) error { leave(); return nil },
		"panics": func(_ *testing.T, c *writeTx, _ context.CancelFunc) error {
			_, _ = c.exec(`DELETE FROM audit`)
			panic(mine)
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			during, behind := 0, 0
			func() {
				defer func() { _ = recover() }()
				_ = s.pacedUpdate(ctx, "", func(c *writeTx, _ int) error {
					if err := c.get(&during, `PRAGMA synchronous`); err != nil {
						t.Error(err)
					}
					return fn(t, c, leave)
				})
			}()
			// There is one writer, so this is the connection of the next commit.
			if err := s.write.Get(&behind, `PRAGMA synchronous`); err != nil {
				t.Fatal(err)
			}
			if during != normal || behind != full {
				t.Errorf("synchronous is %d during it and %d behind it", during, behind)
			}
			if err := s.update(t.Context(), "", func(c *writeTx) error {
				_, err := c.exec(`INSERT INTO meta (name, value) VALUES ('x', '') ON CONFLICT DO NOTHING`)
				return errors.Join(err, c.get(&behind, `PRAGMA synchronous`))
			}); err != nil || behind != full {
				t.Errorf("the next commit: %v, synchronous %d", err, behind)
			}
		})
	}
}
