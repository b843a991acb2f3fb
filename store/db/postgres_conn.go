package db

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"relay"
)

// dialer opens connections that fail when the server does not answer for a while. Contexts cannot do that:
// when a context ends, the driver asks the server over another connection to cancel the statement, and a
// frozen server does not answer there either.
type dialer struct {
	net.Dialer
	readTimeout time.Duration
	shared      bool          // a pooler shares the sessions with other clients, so session settings do not last
	lockTimeout time.Duration // lock_timeout of sessions with directReadTimeout; 0 = none
}

// DialContext is called by the driver.
func (d *dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := d.Dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &deadlineConn{Conn: c, readTimeout: d.readTimeout}, nil
}

// DialTimeout implements pq.Dialer.
func (d *dialer) DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return d.DialContext(ctx, network, address)
}

// deadlineConn sets a deadline for each read and write, unless the driver has set one
// itself, as it does during login. The driver reads only when it expects an answer.
type deadlineConn struct {
	net.Conn
	readTimeout time.Duration
	set         atomic.Bool
}

func (c *deadlineConn) SetDeadline(t time.Time) error {
	c.set.Store(!t.IsZero())
	return c.Conn.SetDeadline(t)
}

func (c *deadlineConn) Read(p []byte) (int, error) {
	if !c.set.Load() {
		if err := c.Conn.SetReadDeadline(time.Now().Add(c.readTimeout)); err != nil {
			return 0, err
		}
	}
	return c.Conn.Read(p)
}

func (c *deadlineConn) Write(p []byte) (int, error) {
	if !c.set.Load() {
		if err := c.Conn.SetWriteDeadline(time.Now().Add(c.readTimeout)); err != nil {
			return 0, err
		}
	}
	return c.Conn.Write(p)
}

// sessionConnector opens connections with the session settings that relayd needs.
type sessionConnector struct {
	*pq.Connector
	settings string // statement that sets the settings
	shared   bool   // the connection leads through a pooler
}

// Connect implements driver.Connector.
func (c sessionConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, &connectionError{err}
	}
	session, ok := conn.(driverConn)
	if !ok {
		return nil, errors.Join(errors.New("the driver lacks an interface that the pool uses"), conn.Close())
	}
	rows, err := session.QueryContext(context.WithoutCancel(ctx), c.settings, nil) // the dialer bounds the time of this statement
	if err == nil {
		err = rows.Close()
	}
	if err != nil {
		return nil, &connectionError{errors.Join(err, conn.Close())}
	}
	return &postgresSession{driverConn: session, shared: c.shared}, nil
}

// openPool opens a handle. The given dialer opens its connections, which fail when the server does not answer
// within the read timeout of the dialer.
func openPool(ctx context.Context, dsn string, size int, by *dialer) (*sqlx.DB, error) {
	connector, err := pq.NewConnector(dsn)
	if err != nil {
		return nil, err
	}
	connector.Dialer(by)
	wait, statement := lockWait(by.readTimeout), OpTimeout
	switch {
	case by.shared:
		wait, statement = 0, 0
	case by.readTimeout >= directReadTimeout:
		wait, statement = by.lockTimeout, 0
	}
	db := sqlx.NewDb(sql.OpenDB(sessionConnector{connector, sessionSettings(false, wait, statement), by.shared}), "postgres")
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	db.SetConnMaxIdleTime(5 * time.Minute)
	busy := func(err error) bool { // the server is starting, or too busy for a login
		return isTimeout(err) || SQLState(err) == "57P03" // cannot_connect_now
	}
	if err := tryAgain(ctx, 2*OpTimeout, busy, func() error { return db.PingContext(ctx) }); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// postgresSession is a connection that is dropped after the server refused a statement for a reason other than
// the values of a row. A session keeps the settings of role and database from its start, so it keeps a timeout
// or a read-only mode even after an operator has reverted the setting.
//
// shared is set behind a pooler. There, the end of a context does not cancel a statement: the driver
// cancels over a separate connection, and pgbouncer 1.18 can crash when that connection is closed early.
// Statements have their own time limits.
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

// markIfStale marks the session as stale if err requires a new one. It returns err.
func (c *postgresSession) markIfStale(err error) error {
	code := SQLState(err)
	if code != "" && !isRowError(code) && !Retriable(err) && code[:2] != "53" { // class 53: insufficient resources
		c.stale = true
	}
	return err
}

// BeginTx implements driver.ConnBeginTx.
func (c *postgresSession) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	tx, err := c.driverConn.BeginTx(c.uncanceled(ctx), o)
	return tx, c.markIfStale(err)
}

// ExecContext implements driver.ExecerContext.
func (c *postgresSession) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	res, err := c.driverConn.ExecContext(c.uncanceled(ctx), query, args)
	return res, c.markIfStale(err)
}

// QueryContext implements driver.QueryerContext.
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

// IsValid implements driver.Validator: it reports whether the pool may keep the connection.
func (c *postgresSession) IsValid() bool { return !c.stale && c.driverConn.IsValid() }

// sessionSettings returns the statement for the settings of a session or, if local is true, of a transaction.
//
// It turns synchronous_commit on if it is off; other values are stronger, or were chosen for replicas. It
// sets lock_timeout to the parameter wait, and statement_timeout to the parameter statement, because abandoned
// sessions otherwise pile up behind a lock. A parameter of 0 changes nothing, and a lower value that is set
// already stays.
//
// It also sets idle_in_transaction_session_timeout. Otherwise, after a network failure, the server keeps an
// open transaction for hours, and a repeated write of the same rows has to wait for it.
func sessionSettings(local bool, wait, statement time.Duration) string {
	query := fmt.Sprintf(`SELECT CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', %t) END`, local)
	for _, limit := range []struct {
		name string
		most time.Duration
	}{{"lock_timeout", wait}, {"statement_timeout", statement}, {"idle_in_transaction_session_timeout", 2 * statement}} {
		if limit.most == 0 {
			continue
		}
		query += fmt.Sprintf(`, CASE WHEN current_setting('%[1]s')::interval NOT BETWEEN '1ms' AND '%[2]dms' THEN set_config('%[1]s', '%[2]dms', %[3]t) END`,
			limit.name, limit.most.Milliseconds(), local)
	}
	return query
}

// lockWait returns the lock_timeout of connections with the given read timeout.
func lockWait(timeout time.Duration) time.Duration { return timeout * 9 / 10 }

// postgresUnavailable returns the relay code of an error that means that the server cannot write now, and ""
// for an error that the values of a row caused. Few errors are caused by a row. All others are temporary, or
// end when an administrator acts, such as a lock, a timeout, a revoked privilege, or a replica that is being
// promoted. An event that got its response must not be dropped because of such an error.
func postgresUnavailable(err error) string {
	switch code := SQLState(err); {
	case code == "", isRowError(code):
		return ""
	case code == "53100": // disk_full
		return relay.CodeStorageFull
	}
	return relay.CodeStoreUnavailable
}

// SQLState returns the code of an error of Postgres, or "" for other errors.
func SQLState(err error) string {
	var e *pq.Error
	if errors.As(err, &e) {
		return string(e.Code)
	}
	return ""
}

// isRowError reports whether the values of a row caused an error with this code.
func isRowError(code string) bool {
	if code == "23514" { // no table has a check constraint: the row met a partition that was just being attached
		return false
	}
	switch code[:2] {
	case "21", "22", "23": // cardinality_violation, data_exception, integrity_constraint_violation
		return true
	}
	return false
}

// Retriable reports whether the engine asks for the same transaction to be run again.
func Retriable(err error) bool {
	code := SQLState(err)
	return code == "40001" || code == "40P01" // serialization failure, deadlock
}

// IsLocked reports whether a statement gave up waiting for a lock of another session.
func IsLocked(err error) bool {
	switch SQLState(err) {
	case "55P03", "57014", "40P01": // lock_not_available, query_canceled by statement_timeout, deadlock_detected
		return true
	}
	return false
}

// connectionError marks an error of connecting, or of beginning or ending a transaction. No row caused
// it, whatever its code.
type connectionError struct{ cause error }

func (e *connectionError) Error() string { return e.cause.Error() }

func (e *connectionError) Unwrap() error { return e.cause }
