package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"syscall"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/pressly/goose/v3"

	"relay"
	"relay/migrations"
)

// dialect holds the differences between the SQL of the two engines. The rest is shared,
// written with ? as placeholders and rebound.
type dialect struct {
	name       string
	bind       int
	goose      goose.Dialect
	files      func() fs.FS
	hasSchema  string // returns a row when the version table exists
	forUpdate  string // suffix that locks the selected rows
	skipLocked string // the same, skipping rows that are locked
	micros     string // time of the database
	isPostgres bool
}

var sqliteDialect = dialect{
	name: "sqlite", bind: sqlx.QUESTION, goose: goose.DialectSQLite3, files: migrations.SQLite,
	hasSchema: `SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'goose_db_version'`,
	micros:    `CAST(unixepoch('now', 'subsec') * 1000000 AS INTEGER)`,
}

var postgresDialect = dialect{
	name: "postgres", bind: sqlx.DOLLAR, goose: goose.DialectPostgres, files: migrations.Postgres,
	hasSchema: `SELECT 1 WHERE to_regclass('goose_db_version') IS NOT NULL`,
	forUpdate: ` FOR UPDATE`, skipLocked: ` FOR UPDATE SKIP LOCKED`,
	micros:     postgresMicros,
	isPostgres: true,
}

const postgresMicros = `(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000)::bigint`

// opTimeout is how long a single operation may take. Nobody waits longer for a database that
// does not answer.
const opTimeout = 4500 * time.Millisecond

// querier is a database handle or a transaction.
type querier interface {
	sqlx.QueryerContext
	sqlx.ExecerContext
}

// session is a handle or transaction with the engine's placeholders.
type session struct {
	ctx context.Context
	q   querier
	d   *dialect
	*clock
}

func (s session) get(dest any, query string, args ...any) error {
	return sqlx.GetContext(s.ctx, s.q, dest, sqlx.Rebind(s.d.bind, query), args...)
}

func (s session) all(dest any, query string, args ...any) error {
	return sqlx.SelectContext(s.ctx, s.q, dest, sqlx.Rebind(s.d.bind, query), args...)
}

// allIn is all for a query with lists among its arguments, none of which is empty.
func (s session) allIn(dest any, query string, args ...any) error {
	query, args, err := sqlx.In(query, args...)
	if err != nil {
		return err
	}
	return s.all(dest, query, args...)
}

// row is the first row of a query; its Scan fails with sql.ErrNoRows where there is none.
func (s session) row(query string, args ...any) *sqlx.Row {
	return s.q.QueryRowxContext(s.ctx, sqlx.Rebind(s.d.bind, query), args...)
}

// rowOf reads one row. fields are where its columns go.
func rowOf[T any](q session, fields func(*T) []any, query string, args ...any) (value T, err error) {
	err = q.row(query, args...).Scan(fields(&value)...)
	return value, err
}

// rowsOf reads rows. fields are where the columns of one go.
func rowsOf[T any](q session, fields func(*T) []any, query string, args ...any) ([]T, error) {
	rows, err := q.q.QueryContext(q.ctx, sqlx.Rebind(q.d.bind, query), args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	list := []T{}
	for rows.Next() {
		var value T
		if err := rows.Scan(fields(&value)...); err != nil {
			return nil, err
		}
		list = append(list, value)
	}
	return list, rows.Err()
}

// exists reports whether a query returns a row.
func (s session) exists(query string, args ...any) (bool, error) {
	var rows []int
	err := s.all(&rows, query, args...)
	return len(rows) > 0, err
}

// exec returns the number of rows that changed.
func (s session) exec(query string, args ...any) (int64, error) {
	res, err := s.q.ExecContext(s.ctx, sqlx.Rebind(s.d.bind, query), args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// requireRow executes a statement that has to change a row; missed is the error if it changes none.
func (s session) requireRow(missed error, query string, args ...any) error {
	n, err := s.exec(query, args...)
	if err == nil && n == 0 {
		err = missed
	}
	return err
}

// execIn is exec for a statement with lists among its arguments, none of which is empty.
func (s session) execIn(query string, args ...any) (int64, error) {
	query, args, err := sqlx.In(query, args...)
	if err != nil {
		return 0, err
	}
	return s.exec(query, args...)
}

// view runs short reads.
func (s *Store) view(ctx context.Context, what string, fn func(session) error) error {
	return s.viewOf(ctx, s.read, what, fn)
}

// viewOf is view by a handle.
func (s *Store) viewOf(ctx context.Context, db *sqlx.DB, what string, fn func(session) error) error {
	if err := s.reachable(); err != nil {
		return s.fault(what, err)
	}
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	return s.fault(what, fn(session{ctx, db, &s.d, &s.clock}))
}

// read is view for a read that returns a value.
func read[T any](ctx context.Context, s *Store, what string, fn func(session) (T, error)) (value T, err error) {
	err = s.view(ctx, what, func(q session) error {
		value, err = fn(q)
		return err
	})
	return value, err
}

// snapshot is view for a few quick queries that have to see one state of the database: each
// statement sees one of its own otherwise.
func (s *Store) snapshot(ctx context.Context, what string, fn func(session) error) error {
	return s.view(ctx, what, func(q session) error {
		tx, err := s.read.BeginTxx(q.ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		q.q = tx
		return fn(q)
	})
}

// readRows is view for a read of rows; see rowsOf.
func readRows[T any](ctx context.Context, s *Store, what string, fields func(*T) []any, query string, args ...any) ([]T, error) {
	return read(ctx, s, what, func(q session) ([]T, error) { return rowsOf(q, fields, query, args...) })
}

// writeTx is a running operation: its transaction and what to publish after the commit.
type writeTx struct {
	session
	localEvents   []relay.Change  // published in this process after the commit
	clusterEvents []relay.Change  // those of localEvents that other processes have to learn of too
	revision      revisionMark    // the newest one that it has written
	freed         map[int64]int64 // bytes that it removes from the storage of aliases
	err           error           // of the first do that failed
}

// do executes a statement of which only the success matters. After one that failed it does
// nothing, and the transaction is rolled back with that error.
func (c *writeTx) do(query string, args ...any) {
	if c.err == nil {
		_, c.err = c.exec(query, args...)
	}
}

// publish adds changes for this process.
func (c *writeTx) publish(changes ...relay.Change) { c.localEvents = append(c.localEvents, changes...) }

// announce adds changes for every process.
func (c *writeTx) announce(changes ...relay.Change) {
	c.publish(changes...)
	c.clusterEvents = append(c.clusterEvents, changes...)
}

// update runs one operation in a transaction and publishes after its commit. The end of ctx
// does not cancel it: a canceled statement would cost the connection. fn may run more than
// once, when the engine asks for a retry.
func (s *Store) update(ctx context.Context, what string, fn func(*writeTx) error) error {
	return s.updateBy(ctx, what, s.begin, fn)
}

// updateIf is update for an operation that the actor may do only if may is nil.
func (s *Store) updateIf(ctx context.Context, may error, what string, fn func(*writeTx) error) error {
	if may != nil {
		return may
	}
	return s.update(ctx, what, fn)
}

// execute is update for one statement.
func (s *Store) execute(ctx context.Context, what, query string, args ...any) error {
	return s.update(ctx, what, func(c *writeTx) error {
		c.do(query, args...)
		return nil
	})
}

// beginner begins a transaction; end has to be called after its end.
type beginner func(context.Context) (tx *sqlx.Tx, end func(), err error)

func (s *Store) begin(ctx context.Context) (*sqlx.Tx, func(), error) {
	tx, err := s.write.BeginTxx(ctx, nil)
	return tx, func() {}, err
}

func (s *Store) updateBy(ctx context.Context, what string, begin beginner, fn func(*writeTx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.reachable(); err != nil {
		return s.fault(what, err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), opTimeout)
	defer cancel()
	var published <-chan struct{}
	var err error
	for range 3 {
		if published, err = s.attemptUpdate(ctx, begin, fn); !retriable(err) {
			break
		}
	}
	if err != nil {
		return s.fault(what, err)
	}
	select { // the change is committed: a feed that is slow must not make it look as if it failed
	case <-published:
	case <-ctx.Done():
	}
	return nil
}

func (s *Store) attemptUpdate(ctx context.Context, begin beginner, fn func(*writeTx) error) (<-chan struct{}, error) {
	if !s.d.isPostgres {
		s.commitMu.Lock()
		defer s.commitMu.Unlock()
	}
	tx, end, err := begin(ctx)
	if err != nil {
		return nil, s.asConnectionError(err)
	}
	defer end()
	defer func() { _ = rollback(tx) }() // if fn panics, so that end finds the connection free
	c := &writeTx{session: session{ctx, tx, &s.d, &s.clock}}
	if err = s.prepareTx(c.session, readTimeout); err == nil {
		if err = fn(c); c.err != nil {
			err = c.err // the first one that failed
		}
	}
	if err == nil {
		s.tellFreed(c)
		err = s.writeRevisions(c)
	}
	if err != nil {
		return nil, errors.Join(err, rollback(tx))
	}
	if err := tx.Commit(); err != nil {
		return nil, s.asConnectionError(err)
	}
	signal(s.checkpointer.wake)
	for alias, bytes := range c.freed {
		s.storage.change(alias, -bytes, 0)
	}
	if s.d.isPostgres {
		s.noteRevision(c.revision)
	}
	s.tellNodes(c.localEvents)
	if len(c.clusterEvents) > 0 && s.d.isPostgres && s.HasOtherNodes() {
		s.notices.tellRevised()
	}
	return s.outbox.put(c.localEvents), nil
}

func rollback(tx *sqlx.Tx) error {
	if err := tx.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) && !errors.Is(err, driver.ErrBadConn) {
		return err
	}
	return nil
}

// fault converts an error of the database for callers of the store: no row becomes
// ErrNotFound, an unusable database store-unavailable or storage-full. Errors that the store
// itself made are returned unchanged.
func (s *Store) fault(what string, err error) error {
	if err == nil {
		return nil
	}
	var own *relay.Error
	switch {
	case errors.As(err, &own):
		return own
	case errors.Is(err, sql.ErrNoRows):
		return relay.ErrNotFound
	}
	if code := unavailable(err); code != "" {
		e := &relay.Error{
			Code: code, RetryAfter: 2 * time.Second, Detail: "the relay cannot reach its storage; try again in a moment",
			Cause: fmt.Errorf("%s: %w", what, err),
		}
		if code == relay.CodeStorageFull || s.diskFull(err) {
			e.Code, e.RetryAfter, e.Detail = relay.CodeStorageFull, 30*time.Second, "the relay's disk is full; try again later"
		}
		return e
	}
	return fmt.Errorf("%s: %w", what, err)
}

// unavailable returns the relay code of an error that the statement did not cause, or "".
func unavailable(err error) string {
	var network net.Error
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return relay.CodeStorageFull
	case errors.Is(err, driver.ErrBadConn), errors.Is(err, sql.ErrConnDone), errors.Is(err, sql.ErrTxDone),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.As(err, &network):
		return relay.CodeStoreUnavailable
	}
	if code := sqliteUnavailable(err); code != "" {
		return code
	}
	if code := postgresUnavailable(err); code != "" {
		return code
	}
	if away := (*connectionError)(nil); errors.As(err, &away) {
		return relay.CodeStoreUnavailable
	}
	return ""
}
