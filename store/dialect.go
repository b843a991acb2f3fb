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

// dialect is where the two engines differ in words; the rest of the SQL is shared,
// written with ? and rebound.
type dialect struct {
	name       string
	bind       int
	goose      goose.Dialect
	files      func() fs.FS
	hasSchema  string // gives a row when the version table exists
	forUpdate  string // suffix that locks the rows read
	skipLocked string // the same, but for those that somebody else has
	contains   string // bytes column (%s) contains the ? bytes
	commit     int    // committers
	bulk       bool   // multi-row statements pay
}

var sqliteDialect = dialect{
	name: "sqlite", bind: sqlx.QUESTION, goose: goose.DialectSQLite3, files: migrations.SQLite,
	hasSchema: `SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'goose_db_version'`,
	contains:  `instr(%s, ?) > 0`,
	commit:    1,
}

var postgresDialect = dialect{
	name: "postgres", bind: sqlx.DOLLAR, goose: goose.DialectPostgres, files: migrations.Postgres,
	hasSchema: `SELECT 1 WHERE to_regclass('goose_db_version') IS NOT NULL`,
	forUpdate: ` FOR UPDATE`, skipLocked: ` FOR UPDATE SKIP LOCKED`,
	contains: `position(?::bytea IN %s) > 0`,
	commit:   2, bulk: true,
}

// patience is how long a single operation may take; nobody waits longer for a
// database that is gone.
const patience = 5 * time.Second

// querier is a handle or a transaction.
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

// exec gives the number of rows that changed.
func (s session) exec(query string, args ...any) (int64, error) {
	res, err := s.q.ExecContext(s.ctx, sqlx.Rebind(s.d.bind, query), args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// view runs short reads.
func (s *Store) view(ctx context.Context, what string, fn func(session) error) error {
	if err := s.reachable(); err != nil {
		return s.fault(what, err)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return s.fault(what, fn(session{ctx, s.read, &s.d, &s.clock}))
}

// change is one operation under way.
type change struct {
	session
	tell []relay.Change // published after the commit
	note []relay.Change // of tell: what other processes must hear of too
}

// publish tells this process after the commit.
func (c *change) publish(changes ...relay.Change) { c.tell = append(c.tell, changes...) }

// announce tells every process after the commit.
func (c *change) announce(changes ...relay.Change) {
	c.publish(changes...)
	c.note = append(c.note, changes...)
}

// update runs one operation in a transaction and publishes after its commit. A
// caller who leaves does not cut it short: a canceled statement would cost the
// connection. fn may run more than once, when the engine asks for a retry.
func (s *Store) update(ctx context.Context, what string, fn func(*change) error) error {
	return s.updateBy(ctx, what, s.begin, fn)
}

// beginner begins a transaction; end is called behind its end.
type beginner func(context.Context) (tx *sqlx.Tx, end func(), err error)

func (s *Store) begin(ctx context.Context) (*sqlx.Tx, func(), error) {
	tx, err := s.write.BeginTxx(ctx, nil)
	return tx, func() {}, err
}

func (s *Store) updateBy(ctx context.Context, what string, begin beginner, fn func(*change) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.fenced.Load() {
		return s.fault(what, errFencedServer)
	}
	if err := s.reachable(); err != nil {
		return s.fault(what, err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
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
	<-published
	return nil
}

func (s *Store) attemptUpdate(ctx context.Context, begin beginner, fn func(*change) error) (<-chan struct{}, error) {
	if s.d.commit == 1 {
		s.order.Lock()
		defer s.order.Unlock()
	}
	tx, end, err := begin(ctx)
	if err != nil {
		return nil, s.outside(err)
	}
	defer end()
	defer func() { _ = rollback(tx) }() // of an operation that panics: end must find the connection free
	c := &change{session: session{ctx, tx, &s.d, &s.clock}}
	if err = s.prepareTx(c.session, silence); err == nil {
		err = fn(c)
	}
	if err == nil {
		err = s.writeRevisions(c)
	}
	if err != nil {
		return nil, errors.Join(err, rollback(tx))
	}
	if err := tx.Commit(); err != nil {
		return nil, s.outside(err)
	}
	s.mover.grown()
	return s.out.put(c.tell), nil
}

func rollback(tx *sqlx.Tx) error {
	if err := tx.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) && !errors.Is(err, driver.ErrBadConn) {
		return err
	}
	return nil
}

// fault turns an error of the database into one that fronts understand: no row is
// ErrNotFound, a database that cannot be used store-unavailable; what the store
// itself decided passes as it is.
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

var errFencedServer = &relay.Error{
	Code: relay.CodeStoreUnavailable, RetryAfter: 5 * time.Second,
	Detail: "another relayd took over this database; this one writes nothing more",
}

// unavailable gives the code for an error that is not the statement's fault, or "".
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
	if away := (*awayError)(nil); errors.As(err, &away) {
		return relay.CodeStoreUnavailable
	}
	return ""
}
