package db

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"relay/store/file"
)

// Schema returns the version of the schema in the database (have; 0 if the database is empty) and the version
// that this program needs (want). It changes nothing.
func (s *DB) Schema(ctx context.Context) (have, want int64, err error) {
	p, err := s.provider(s.Slow)
	if err != nil {
		return 0, 0, err
	}
	for _, src := range p.ListSources() {
		want = max(want, src.Version)
	}
	var tables []int
	if err := s.Slow.SelectContext(ctx, &tables, s.Dialect.hasSchema()); err != nil {
		return 0, want, s.Fault("look for schema", err)
	}
	if len(tables) == 0 {
		return 0, want, nil
	}
	err = s.Slow.GetContext(ctx, &have, SchemaVersion)
	return have, want, s.Fault("read schema version", err)
}

// SchemaVersion is a query for the version of the schema.
const SchemaVersion = `SELECT COALESCE(MAX(version_id), 0) FROM goose_db_version WHERE is_applied`

// Migrate brings the schema to the version of this program and returns the versions before and after; both
// are equal if there was nothing to do. Several processes may call it at once: one of them applies and
// reports each migration.
func (s *DB) Migrate(ctx context.Context) (from, to int64, err error) {
	if !s.Dialect.SeveralNodes() { // goose does not lock SQLite itself
		f, err := s.OpenLock("migrate.lock")
		if err != nil {
			return 0, 0, err
		}
		defer func() { err = errors.Join(err, file.Unlock(f)) }()
		if err := file.Lock(f, true); err != nil {
			return 0, 0, fmt.Errorf("wait for another migration: %w", err)
		}
	}
	from, to, err = s.Schema(ctx)
	if err != nil || from == to {
		return from, to, err
	}
	if err := s.checkSchema(ctx); err != nil {
		return from, from, err
	}
	db := s.Slow
	if s.Dialect.SeveralNodes() {
		if db, err = s.openDirect(ctx, TableWait); err != nil {
			return from, from, err
		}
		defer func() { err = errors.Join(err, db.Close()) }()
	}
	p, err := s.provider(db)
	if err != nil {
		return from, from, err
	}
	applied, err := s.up(ctx, p)
	if err != nil {
		return from, from, fmt.Errorf("migrate: %w", err)
	}
	if !applied { // another process applied the migrations while this process waited for the lock
		return to, to, nil
	}
	return from, to, nil
}

// up applies the migrations, and reports whether it applied one. A migration waits while another session,
// such as a backup, uses the table, and later statements on that table wait behind the migration. Therefore
// each try gives up after TableWait, and up tries again for up to migrationWait.
func (s *DB) up(ctx context.Context, p *goose.Provider) (applied bool, err error) {
	for began := time.Now(); ; {
		done, err := p.Up(ctx)
		partial, _ := errors.AsType[*goose.PartialError](err)
		applied = applied || len(done) > 0 || partial != nil && len(partial.Applied) > 0
		if SQLState(err) != "55P03" || time.Since(began) > migrationWait { // lock_not_available
			return applied, err
		}
		s.log.Warn("a migration waits for a table that another session uses, such as a backup; it is tried again", "every", migrationPause, "err", err)
		if Pause(ctx, migrationPause) != nil {
			return applied, err
		}
	}
}

const (
	TableWait      = 300 * time.Millisecond // longest wait for a table lock, because other statements wait behind it
	migrationPause = 3 * time.Second        // ten times TableWait, so that other statements wait for at most a tenth of the time
	migrationWait  = 10 * time.Minute       // longest wait for a table that another session uses
)

// provider returns a goose provider, which reads and applies the migrations of the database. On Postgres a row
// with a lease of 30 s prevents two processes from migrating at once; this also works through a pooler.
func (s *DB) provider(db *sqlx.DB) (*goose.Provider, error) {
	options := []goose.ProviderOption{goose.WithDisableGlobalRegistry(true)}
	if s.Dialect.SeveralNodes() {
		locker, err := lock.NewPostgresTableLocker(lock.WithTableName("migration_lock"), lock.WithTableLockTimeout(time.Second, 120),
			lock.WithTableUnlockTimeout(time.Second, 10), lock.WithTableLogger(s.log))
		if err != nil {
			return nil, fmt.Errorf("make migration lock: %w", err)
		}
		options = append(options, goose.WithLocker(locker))
	}
	engine, files := s.Dialect.migrations()
	p, err := goose.NewProvider(engine, db.DB, files, options...)
	if errors.Is(err, goose.ErrNoMigrations) {
		return nil, errors.New("this program was built without its migrations")
	}
	return p, err
}

// checkSchema returns an error for a schema that this program does not know.
func (s *DB) checkSchema(ctx context.Context) error {
	have, want, err := s.Schema(ctx)
	if err != nil {
		return err
	}
	if have > want {
		return fmt.Errorf("the database schema is version %d, made by a newer relayd; this one knows %d: run the newer program", have, want)
	}
	if have == 0 && s.opt.NoCreate {
		return fmt.Errorf("no relay data in %s; start relayd serve there first", s.place())
	}
	return nil
}
