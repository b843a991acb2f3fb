package store

import (
	"context"
	"errors"
	"time"

	"relay/store/convert"
	"relay/store/db"
	"relay/store/partition"
)

// CopiedTable is a table of a SQLite store that was copied, with the number and hash of its rows.
type CopiedTable = convert.Table

// CopySQLite copies the SQLite store of the data dir into the Postgres database of s, and compares all rows.
// The database must be empty or contain a part of the same copy. No server may use the data dir during the
// copy. The SQLite file is not changed. report is called repeatedly with each table and its progress.
func (s *Store) CopySQLite(ctx context.Context, report func(CopiedTable)) ([]*CopiedTable, error) {
	return s.copySQLite(ctx, convert.Options{Report: report})
}

func (s *Store) copySQLite(ctx context.Context, o convert.Options) ([]*CopiedTable, error) {
	if !s.db.Dialect.SeveralNodes() {
		return nil, errors.New("the store is copied into a Postgres")
	}
	if err := s.LockDataDir(); err != nil {
		return nil, err
	}
	if _, _, err := s.db.Migrate(ctx); err != nil {
		return nil, err
	}
	o.Source, o.Target = db.PlaceOf("", s.opt.DataDir), s.db
	o.MakeDay = func(ctx context.Context, day time.Time) error {
		err := db.WhileBusy(ctx, func() error { return partition.MakeDay(ctx, s.db, partition.Day(day)) })
		if db.SQLState(err) == "42P07" { // duplicate_table: an earlier call has made the table
			return nil
		}
		return err
	}
	return convert.Run(ctx, o)
}

// errUnfinished is the error of Migrate for a database that has only a part of a SQLite store, because
// CopySQLite was interrupted.
var errUnfinished = errors.New("this database has a part of a SQLite store: the copy into it is not complete; run the same `relayd migrate-store` again to continue it, or drop the database")

// Migrate brings the schema to the version of this program and returns the versions before and after; both
// are equal if there was nothing to do. Several processes may call it at once: one of them applies and
// reports each migration.
func (s *Store) Migrate(ctx context.Context) (from, to int64, err error) {
	unfinished, err := convert.Unfinished(ctx, s.db)
	if unfinished {
		err = errUnfinished
	}
	if err != nil {
		return 0, 0, err
	}
	return s.db.Migrate(ctx)
}
