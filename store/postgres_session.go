package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/lib/pq"
)

// postgresSession is a connection that is dropped after the server refused a statement for
// a reason other than its rows. A session keeps the settings of role and database from its
// start: a timeout or a read-only mode that somebody has reverted since would stay.
//
// shared is set behind a pooler. There no statement is canceled when its context ends: the
// driver cancels over a separate connection, and pgbouncer 1.18 can crash when that is closed
// early. Statements have time limits of their own.
type postgresSession struct {
	driverConn
	shared bool
	stale  bool
}

// driverConn lists the interfaces of the driver's connections that the pool uses.
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

// markIfStale marks the session as stale if err calls for a new one. It returns err.
func (c *postgresSession) markIfStale(err error) error {
	var e *pq.Error
	if errors.As(err, &e) && !isRowError(e) && !retriable(err) && e.Code.Class() != "53" { // insufficient resources
		c.stale = true
	}
	return err
}

// BeginTx is what the pool calls.
func (c *postgresSession) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	tx, err := c.driverConn.BeginTx(c.uncanceled(ctx), o)
	return tx, c.markIfStale(err)
}

// ExecContext is what the pool calls.
func (c *postgresSession) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	res, err := c.driverConn.ExecContext(c.uncanceled(ctx), query, args)
	return res, c.markIfStale(err)
}

// QueryContext is what the pool calls.
func (c *postgresSession) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := c.driverConn.QueryContext(c.uncanceled(ctx), query, args)
	return rows, c.markIfStale(err)
}

func (c *postgresSession) uncanceled(ctx context.Context) context.Context {
	if c.shared {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

// IsValid is what the pool asks before it keeps a connection.
func (c *postgresSession) IsValid() bool { return !c.stale && c.driverConn.IsValid() }

// sessionSettings is the statement for the settings of a session (local: of a transaction).
// It turns synchronous_commit on where it is off; other values are stronger, or were chosen
// for replicas. With a wait it also sets lock_timeout to wait and statement_timeout to
// opTimeout, unless lower values are set: nobody reads the result after that, and abandoned
// sessions would pile up behind a lock. It sets idle_in_transaction_session_timeout, because
// after a network failure the server would keep an open transaction for hours, and the same
// rows, written again, would wait for it.
func sessionSettings(local bool, wait time.Duration) string {
	query := fmt.Sprintf(`SELECT CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', %t) END`, local)
	if wait <= 0 {
		return query
	}
	for _, limit := range []struct {
		name string
		most time.Duration
	}{{"lock_timeout", wait}, {"statement_timeout", opTimeout}, {"idle_in_transaction_session_timeout", 2 * opTimeout}} {
		query += fmt.Sprintf(`, CASE WHEN current_setting('%[1]s')::interval NOT BETWEEN '1ms' AND '%[2]dms' THEN set_config('%[1]s', '%[2]dms', %[3]t) END`,
			limit.name, limit.most.Milliseconds(), local)
	}
	return query
}

// lockWait is the lock_timeout of connections with this read timeout.
func lockWait(timeout time.Duration) time.Duration { return timeout * 9 / 10 }
