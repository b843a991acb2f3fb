package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"
)

// dialer opens connections that fail when the server does not answer for a while. The driver
// cannot do that: when a context ends, it asks the server over another connection to cancel
// the statement, and a frozen server answers neither.
type dialer struct {
	net.Dialer
	readTimeout time.Duration
	shared      bool // through a pooler: sessions are shared with others, so session settings do not last
}

// DialContext is called by the driver.
func (d *dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := d.Dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &deadlineConn{Conn: c, readTimeout: d.readTimeout}, nil
}

// DialTimeout is part of the interface of the driver.
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
	settings string // the statement that sets them
	shared   bool   // through a pooler
}

// Connect is called by the pool.
func (c sessionConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, &connectionError{err}
	}
	session, ok := conn.(driverConn)
	if !ok {
		return nil, errors.Join(errors.New("the driver lacks an interface that the pool uses"), conn.Close())
	}
	rows, err := session.QueryContext(context.WithoutCancel(ctx), c.settings, nil) // the dialer bounds its time
	if err == nil {
		err = rows.Close()
	}
	if err != nil {
		return nil, &connectionError{errors.Join(err, conn.Close())}
	}
	return &postgresSession{driverConn: session, shared: c.shared}, nil
}

// openPool opens a handle by a dialer, whose connections fail when the server does not answer for
// its read timeout.
func openPool(ctx context.Context, dsn string, size int, by *dialer) (*sqlx.DB, error) {
	connector, err := pq.NewConnector(dsn)
	if err != nil {
		return nil, err
	}
	connector.Dialer(by)
	wait := lockWait(by.readTimeout)
	if by.shared || by.readTimeout >= directReadTimeout {
		wait = 0
	}
	db := sqlx.NewDb(sql.OpenDB(sessionConnector{connector, sessionSettings(false, wait), by.shared}), "postgres")
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	db.SetConnMaxIdleTime(5 * time.Minute)
	if err := firstPing(ctx, db); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// firstPing checks that the server can be reached. It retries for a while when the server is
// starting or too busy for a login: no caller waits at this time.
func firstPing(ctx context.Context, db *sqlx.DB) error {
	began := time.Now()
	for {
		err := db.PingContext(ctx)
		var network net.Error
		var e *pq.Error
		busy := errors.As(err, &network) && network.Timeout() || errors.As(err, &e) && e.Code == "57P03" // cannot_connect_now
		if !busy || ctx.Err() != nil || time.Since(began) > 2*opTimeout {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryPause):
		}
	}
}
