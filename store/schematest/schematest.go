// Package schematest gives tests databases of Postgres that have the schema already.
package schematest

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"relay/store/db"
	"relay/store/partition"
	"relay/store/pgtest"
)

// URL returns the address of a database for the test, with the schema of this version and the partitions of the
// days around now, as a server leaves them that has started and stopped. pgtest.URL is for tests of the
// migrations and of the partitions themselves.
func URL(t testing.TB) string {
	t.Helper()
	return pgtest.Copy(t, makeSchema)
}

func makeSchema(address string) (err error) {
	ctx := context.Background()
	d, err := db.Open(ctx, db.Options{URL: address})
	defer func() { err = errors.Join(err, d.Close()) }()
	if err != nil {
		return err
	}
	if _, _, err := d.Migrate(ctx); err != nil {
		return err
	}
	return partition.Make(ctx, d, slog.New(slog.DiscardHandler), time.Now())
}
