package db

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/pressly/goose/v3"

	"relay"
	"relay/migrations"
)

const (
	DefaultConns       = 12 // largest number of connections of one relayd
	otherConns         = 3  // connections for the heartbeat, notifications and the committer; included in DefaultConns
	migrationConns     = 3
	readTimeout        = 2 * time.Second  // longest wait for the answer to a statement
	journalReadTimeout = time.Second      // readTimeout of the committer, whose callers wait
	directReadTimeout  = 10 * time.Minute // readTimeout of a migration

	connectTimeout     = "2"  // seconds for connecting while a caller waits
	slowConnectTimeout = "10" // seconds for connecting while no caller waits
)

// Postgres is the dialect of Postgres.
type Postgres struct{}

// PostgresMicros is the SQL expression for the current time of Postgres in microseconds; see DatabaseTime.
const PostgresMicros = `(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000)::bigint`

func (Postgres) name() string         { return "postgres" }
func (Postgres) SeveralNodes() bool   { return true }
func (Postgres) Remote() bool         { return true }
func (Postgres) ForUpdate() string    { return ` FOR UPDATE` }
func (Postgres) ForShare() string     { return ` FOR SHARE` }
func (Postgres) SkipLocked() string   { return ` FOR UPDATE SKIP LOCKED` }
func (Postgres) DatabaseTime() string { return PostgresMicros }
func (Postgres) placeholders() int    { return sqlx.DOLLAR }
func (Postgres) hasSchema() string {
	return `SELECT 1 WHERE to_regclass('goose_db_version') IS NOT NULL`
}

func (Postgres) migrations() (goose.Dialect, fs.FS) {
	return goose.DialectPostgres, migrations.Postgres()
}

// wrapCommit marks an error of connecting, or of beginning or ending a transaction, as an error that
// no row caused; nil stays nil.
func (Postgres) wrapCommit(err error) error {
	if err == nil {
		return nil
	}
	return &connectionError{err}
}

func (Postgres) one(st *Statement, row []any) (string, []any) {
	return st.Postgres, st.Args([][]any{row})
}

func (Postgres) run(b *Batch, st *Statement, rows [][]any) error {
	_, err := b.Handle.ExecContext(b.Ctx, st.Postgres, st.Args(rows)...)
	return err
}

func (Postgres) insert(b *Batch, g *Group, rows [][][]any) (map[relay.ID]bool, error) {
	var args []any
	var parameters []string
	for i, st := range g.Inserts {
		args = append(args, st.arrays(rows[i])...)
	}
	for i := range args {
		parameters = append(parameters, "$"+strconv.Itoa(i+1))
	}
	var stored []relay.ID
	if err := sqlx.SelectContext(b.Ctx, b.Handle, &stored, `SELECT `+g.Function+`(`+strings.Join(parameters, ", ")+`)`, args...); err != nil {
		return nil, err
	}
	if len(stored) == len(rows[0]) {
		return nil, nil
	}
	there := make(map[relay.ID]bool)
	for _, row := range rows[0] {
		there[row[0].(relay.ID)] = true
	}
	for _, id := range stored {
		delete(there, id)
	}
	return there, nil
}

func (Postgres) examineDurability(_ *DB, q Query) relay.Finding {
	f := examineSettings(q,
		durabilitySetting{`SHOW fsync`, "on", "set fsync = on in postgresql.conf and restart postgres"},
		durabilitySetting{`SHOW full_page_writes`, "on", "set full_page_writes = on in postgresql.conf, unless the file system does it"})
	if f.Verdict != relay.VerdictOK {
		return f
	}
	var usual string
	if err := q.Get(&usual, `SELECT reset_val FROM pg_settings WHERE name = 'synchronous_commit'`); err != nil {
		return UnknownFinding(err)
	}
	if usual == "off" {
		return OKFinding("commits wait for the disk: relayd turns synchronous_commit on for itself, it is off otherwise")
	}
	return f
}

func (Postgres) examineDisk(*DB) relay.Finding {
	return OKFinding("the disk of postgres is not seen from here")
}

func (Postgres) examinePages(Query) relay.Finding {
	return OKFinding("postgres looks after its pages itself")
}

// openPostgres opens the pool, the connection of the committer, and a handle at the direct URL for
// statements that may take long.
func (s *DB) openPostgres(ctx context.Context) error {
	s.Dialect = Postgres{}
	dsn, err := postgresDSN(s.opt.URL, connectTimeout)
	if err != nil {
		return fmt.Errorf("database URL: %w", err)
	}
	direct, err := postgresDSN(cmp.Or(s.opt.DirectURL, s.opt.URL), connectTimeout)
	if err != nil {
		return fmt.Errorf("direct database URL: %w", err)
	}
	s.viaPooler = direct != dsn
	if s.Write, err = openPool(ctx, dsn, s.poolSize(), &dialer{readTimeout: readTimeout, shared: s.viaPooler}); err != nil {
		return fmt.Errorf("open postgres %s: %w", s.place(), err)
	}
	s.Read, s.readLogin = s.Write, s.Write
	if err := s.openJournal(ctx, dsn); err != nil {
		return fmt.Errorf("open postgres %s: %w", s.place(), err)
	}
	s.Slow, err = s.openDirect(ctx, 0)
	return err
}

// openDirect opens a handle at the direct URL for statements that may take long. These statements
// wait at most lockTimeout for a lock; 0 = without limit. Such statements are rare, but many may follow each other,
// as in a migration or a copy of a store. Therefore a connection stays open for the next statement, but only for
// a second.
func (s *DB) openDirect(ctx context.Context, lockTimeout time.Duration) (*sqlx.DB, error) {
	dsn, err := postgresDSN(cmp.Or(s.opt.DirectURL, s.opt.URL), slowConnectTimeout)
	if err != nil {
		return nil, err
	}
	db, err := openPool(ctx, dsn, migrationConns, &dialer{readTimeout: directReadTimeout, lockTimeout: lockTimeout})
	if err != nil {
		return nil, fmt.Errorf("open postgres by the direct URL: %w", err)
	}
	db.SetMaxIdleConns(1)
	db.SetConnMaxIdleTime(time.Second)
	return db, nil
}

// openJournal opens the connection of the committer. It has shorter timeouts than other connections,
// because callers wait. It stays open even if it is idle for long, because the journal takes a new
// connection as a sign that the database may have been unreachable.
func (s *DB) openJournal(ctx context.Context, dsn string) error {
	u, err := url.Parse(dsn)
	if err != nil {
		return err
	}
	q := u.Query()
	q.Set("connect_timeout", "1")
	u.RawQuery = q.Encode()
	if s.Journal, err = openPool(ctx, u.String(), 1, &dialer{readTimeout: journalReadTimeout, shared: s.viaPooler}); err != nil {
		return err
	}
	s.Journal.SetConnMaxIdleTime(0)
	return nil
}

// OpenSingle opens a handle of one connection. Its statements fail if there is no answer within the given time.
func (s *DB) OpenSingle(ctx context.Context, timeout time.Duration) (*sqlx.DB, error) {
	dsn, err := postgresDSN(s.opt.URL, "1")
	if err != nil {
		return nil, fmt.Errorf("database URL: %w", err)
	}
	return openPool(ctx, dsn, 1, &dialer{readTimeout: timeout, shared: s.viaPooler})
}

// ListenAddress returns the address of Postgres without a pooler, for a connection that receives notifications.
func (s *DB) ListenAddress() (string, error) {
	return postgresDSN(cmp.Or(s.opt.DirectURL, s.opt.URL), slowConnectTimeout)
}

// poolSize returns the number of connections of Write: the largest number of all connections minus otherConns,
// but at least two.
func (s *DB) poolSize() int { return max(cmp.Or(s.opt.MaxConns, DefaultConns)-otherConns, 2) }

// postgresDSN adds the parameters that the store needs to the address of a database. binary_parameters sends
// bytes unchanged, in one round trip and without named statements, which poolers do not support. connect is
// the connect timeout in seconds. It is in the address, because no context covers the pool's dials; a timeout
// that the address has already takes precedence.
func postgresDSN(address, connect string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", errors.New("not a valid address") // the error of package url would contain the password
	}
	q := u.Query()
	q.Set("binary_parameters", "yes")
	for name, value := range map[string]string{"connect_timeout": connect, "sslmode": "prefer", "application_name": "relayd"} {
		if !q.Has(name) {
			q.Set(name, value)
		}
	}
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// prepareTx gives a transaction the settings that relayd needs, if a session cannot keep them: behind
// a pooler each transaction may use another session.
func (s *DB) prepareTx(q Query, timeout time.Duration) error {
	if !s.viaPooler {
		return nil
	}
	_, err := q.Handle.ExecContext(q.Ctx, sessionSettings(true, lockWait(timeout), OpTimeout))
	return err
}
