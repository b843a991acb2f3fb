// Package db opens the database of a store, SQLite or Postgres, and runs short reads and transactions on it.
// Only this package knows the engine: each difference is a method of the dialect. The package does not use
// the content of tables.
package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/jmoiron/sqlx"

	"relay/store/file"
)

// OpTimeout is the time limit of a single operation. It bounds the wait for a database that does not answer.
const OpTimeout = 4500 * time.Millisecond

// Options choose the database to open. store.Options explains the fields.
type Options struct {
	URL, DirectURL, DataDir string
	MinFree                 int64
	FreeSpace               func(dir string) (int64, error)
	Now                     func() time.Time
	MaxConns                int
	NoCreate                bool
	VFS                     string
	Log                     *slog.Logger
}

// DB is an open database. All methods are safe for concurrent use.
type DB struct {
	opt       Options
	log       *slog.Logger
	Dialect   Dialect
	Write     *sqlx.DB
	Read      *sqlx.DB
	readLogin *sqlx.DB // handle for credentials, so that long reads of events do not delay a login; the same as Read on Postgres
	Slow      *sqlx.DB // handle for migrations and long statements, without a pooler; the same as Write on SQLite
	Journal   *sqlx.DB // connection of the committer; on SQLite the same as Write
	viaPooler bool     // Write, Read and Journal use a pooler

	// Away returns the reason why the database is known not to answer; nil if it may answer. Finish runs in
	// each update before its commit, and returns a function that is called after the commit. The channel
	// from that function is closed once the changes are published. Set Away and Finish before the first
	// operation.
	Away   func() error
	Finish func(*Tx) (committed func() <-chan struct{}, err error)

	// commitMu keeps the published changes in the order of their commits. It is used if there is only one
	// writer (SQLite).
	commitMu     sync.Mutex
	prepared     map[*Statement]*sql.Stmt // statements for batches on SQLite, prepared before a transaction takes the only writing connection
	inserts      driverStatements
	checkpointer checkpointer
	Disk         disk
	Clock        Clock
}

// Open opens the database. On SQLite it creates an empty file; Migrate makes the schema. The caller
// closes the returned DB even after an error.
func Open(ctx context.Context, o Options) (s *DB, err error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s = &DB{opt: o, log: o.Log, Away: func() error { return nil }}
	s.Clock.start(o.Now)
	switch {
	case o.URL == "":
		err = s.openSQLite(ctx)
	case strings.HasPrefix(o.URL, "postgres://"), strings.HasPrefix(o.URL, "postgresql://"):
		err = s.openPostgres(ctx)
	default:
		err = errors.New("the database URL must start with postgres://; leave it empty for sqlite in the data dir")
	}
	if err == nil {
		err = s.checkSchema(ctx)
	}
	return s, err
}

// Close closes all handles.
func (s *DB) Close() error {
	err := s.inserts.close(s.Write)
	for _, db := range []*sqlx.DB{s.checkpointer.db, s.Read, s.readLogin, s.Write, s.Slow, s.Journal} {
		if db != nil {
			err = errors.Join(err, UnlessAway(db.Close())) // some fields may hold the same handle; closing it twice is harmless
		}
	}
	return err
}

// UnlessAway drops the error of closing a connection to an unreachable database.
func UnlessAway(err error) error {
	if Unavailable(err) != "" {
		return nil
	}
	return err
}

// Session returns a Query that runs statements over a handle of the database.
func (s *DB) Session(ctx context.Context, handle querier) Query {
	return Query{ctx, handle, s.Dialect, &s.Clock}
}

// View runs fn, which makes short reads. The context of its Query ends after OpTimeout.
func (s *DB) View(ctx context.Context, what string, fn func(Query) error) error {
	return s.viewOf(ctx, s.Read, what, fn)
}

// ViewLogin is View for reads of credentials.
func (s *DB) ViewLogin(ctx context.Context, what string, fn func(Query) error) error {
	return s.viewOf(ctx, s.readLogin, what, fn)
}

func (s *DB) viewOf(ctx context.Context, handle *sqlx.DB, what string, fn func(Query) error) error {
	if err := s.Away(); err != nil {
		return s.Fault(what, err)
	}
	ctx, cancel := context.WithTimeout(ctx, OpTimeout)
	defer cancel()
	return s.operationFault(what, fn(s.Session(ctx, handle)))
}

// Read is View for a read that returns a value.
func Read[T any](ctx context.Context, s *DB, what string, fn func(Query) (T, error)) (value T, err error) {
	err = s.View(ctx, what, func(q Query) error {
		value, err = fn(q)
		return err
	})
	return value, err
}

// Snapshot is View for a few quick queries that have to see the same state of the database. In View, the
// state may change from one statement to the next.
func (s *DB) Snapshot(ctx context.Context, what string, fn func(Query) error) error {
	return s.View(ctx, what, func(q Query) error {
		tx, err := s.Read.BeginTxx(q.Ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		q.Handle = tx
		return fn(q)
	})
}

// ReadRows is View for a read of rows; see RowsOf.
func ReadRows[T any](ctx context.Context, s *DB, what string, fields func(*T) []any, query string, args ...any) ([]T, error) {
	return Read(ctx, s, what, func(q Query) ([]T, error) { return RowsOf(q, fields, query, args...) })
}

// Ping returns nil when the database answers a query before ctx ends.
func (s *DB) Ping(ctx context.Context) error {
	var one int
	return s.Read.GetContext(ctx, &one, `SELECT 1`)
}

// Readers returns the number of connections for reads; 0 if the database could not be opened.
func (s *DB) Readers() int {
	if s.Read == nil {
		return 0
	}
	return s.Read.Stats().MaxOpenConnections
}

// Reconnect reopens the connection of the committer if it is broken. Otherwise the next steps would go to the
// spool only because of that connection.
func (s *DB) Reconnect(ctx context.Context) error {
	if !s.Dialect.Remote() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, OpTimeout)
	defer cancel()
	return s.Journal.PingContext(ctx)
}

// Describe names the engine and the location of the data, without secrets.
func (s *DB) Describe() string { return s.Dialect.name() + " " + s.place() }

// place returns the place of the data as text for users.
func (s *DB) place() string { return PlaceOf(s.opt.URL, s.opt.DataDir) }

// PlaceOf returns the place of the data of a store with the given address or data dir, as text for users.
func PlaceOf(address, dataDir string) string {
	if address == "" {
		return filepath.Join(dataDir, databaseFile)
	}
	u, err := url.Parse(address)
	if err != nil {
		return "postgres"
	}
	return u.Host + u.Path
}

// FileInode returns the inode of the file of SQLite in the data dir; "" with Postgres, or if it is not known.
func (s *DB) FileInode() string {
	if s.Dialect.SeveralNodes() {
		return ""
	}
	return file.Inode(filepath.Join(s.opt.DataDir, databaseFile))
}

// OpenLock opens a lock file in the data dir.
func (s *DB) OpenLock(name string) (*os.File, error) {
	f, err := file.Open(filepath.Join(s.opt.DataDir, name), os.O_RDWR)
	if err != nil {
		return nil, fmt.Errorf("open lock file: %w%s", err, s.openAdvice(err))
	}
	return f, nil
}
