package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"
)

// postgresSession is a connection that is not kept once the server refused something for
// a reason that is no row's. The settings of role and database are those of when it began:
// a timeout or a read-only mode that somebody has taken back meanwhile would stay.
//
// shared is set behind a pooler. No statement is called off there when its context ends:
// the driver does that over a connection of its own, which pgbouncer 1.18 may not survive
// when it is closed early. Statements end by themselves soon enough.
type postgresSession struct {
	driverConn
	shared bool
	stale  bool
}

// driverConn is what the driver's connections can do, and the pool makes use of.
type driverConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.NamedValueChecker
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

// note looks at the outcome of a statement.
func (c *postgresSession) note(err error) error {
	var e *pq.Error
	if errors.As(err, &e) && !ofRow(e) && !retriable(err) && e.Code.Class() != "53" { // insufficient resources
		c.stale = true
	}
	return err
}

// BeginTx is what the pool calls.
func (c *postgresSession) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	tx, err := c.driverConn.BeginTx(c.lasting(ctx), o)
	return tx, c.note(err)
}

// ExecContext is what the pool calls.
func (c *postgresSession) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	res, err := c.driverConn.ExecContext(c.lasting(ctx), query, args)
	return res, c.note(err)
}

// QueryContext is what the pool calls.
func (c *postgresSession) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := c.driverConn.QueryContext(c.lasting(ctx), query, args)
	return rows, c.note(err)
}

func (c *postgresSession) lasting(ctx context.Context) context.Context {
	if c.shared {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

// IsValid is what the pool asks before it keeps a connection.
func (c *postgresSession) IsValid() bool { return !c.stale && c.driverConn.IsValid() }

// errShared is why a lock that belongs to a session holds nothing.
var errShared = errors.New(sharedReason + "; " + sharedFix)

const (
	sharedReason = "the way to postgres leads through a pooler that hands its connections on after each transaction, " +
		"so no lock would keep a second relayd from serving"
	sharedFix = "set --database-direct-url (RELAY_DATABASE_DIRECT_URL) to postgres itself, or to a pool with pool_mode = session"
)

// ownSession is nil when conn has a session of Postgres to itself, errShared when it has
// not: another connection then gets the backend that conn just had, or conn another one.
// Neither can be where sessions are whole. Other errors say that it could not be asked.
func ownSession(ctx context.Context, db *sqlx.DB, conn *sql.Conn) (err error) {
	const backend = `SELECT pg_backend_pid()`
	var before, after, other int
	if err := conn.QueryRowContext(ctx, backend).Scan(&before); err != nil {
		return err
	}
	for range lockSize - 1 { // transactions that stay open, until none has it by chance
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if err := tx.QueryRowContext(ctx, backend).Scan(&other); err != nil {
			return err
		}
		if other == before {
			return errShared
		}
		if err := conn.QueryRowContext(ctx, backend).Scan(&after); err != nil {
			return err
		}
		if after != before {
			return errShared
		}
	}
	return nil
}

// checkDirect fails with errShared where a migration could not be locked.
func (s *Store) checkDirect(ctx context.Context) error {
	if !s.d.bulk {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	conn, err := s.direct.Conn(ctx)
	if err != nil {
		return err
	}
	err = ownSession(ctx, s.direct, conn)
	return errors.Join(err, conn.Close())
}

// sessionSettings has a session (local: a transaction) wait for the disk where it was
// told not to: other values of synchronous_commit are stronger, or were chosen for
// replicas. With a wait given, the server gives up what waits for a lock that long, and
// any statement after patience, unless it has to do so earlier anyway: by then nobody is
// there for the answer, and sessions that were left alone would pile up behind a lock. It
// also ends transactions that nobody goes on with: when the line was cut it does not hear
// of that for hours, and what is written again would wait for them.
func sessionSettings(local bool, wait time.Duration) string {
	query := fmt.Sprintf(`SELECT CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', %t) END`, local)
	if wait <= 0 {
		return query
	}
	for _, limit := range []struct {
		name string
		most time.Duration
	}{{"lock_timeout", wait}, {"statement_timeout", patience}, {"idle_in_transaction_session_timeout", 2 * patience}} {
		query += fmt.Sprintf(`, CASE WHEN current_setting('%[1]s')::interval NOT BETWEEN '1ms' AND '%[2]dms' THEN set_config('%[1]s', '%[2]dms', %[3]t) END`,
			limit.name, limit.most.Milliseconds(), local)
	}
	return query
}

// lockWait is how long a statement waits for a lock, where nobody waits for the answer
// after silence.
func lockWait(silence time.Duration) time.Duration { return silence * 9 / 10 }
