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

// dialer opens connections that fail when the server says nothing for a while. The
// driver cannot do that: it reacts to the end of a context by asking the server,
// over another connection, to cancel, and a frozen server answers neither.
type dialer struct {
	net.Dialer
	silence time.Duration
	dialed  func() // not nil: told of every new connection
	shared  bool   // by a pooler: others may get the session, so its settings are not ours
}

// DialContext is what the driver calls.
func (d *dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := d.Dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if d.dialed != nil {
		d.dialed()
	}
	return &impatientConn{Conn: c, silence: d.silence}, nil
}

// DialTimeout is there for the driver's interface.
func (d *dialer) DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return d.DialContext(ctx, network, address)
}

// impatientConn bounds each read and write, unless a deadline was set for it, as
// the driver does while it logs in. The driver reads only when it expects an answer.
type impatientConn struct {
	net.Conn
	silence time.Duration
	set     atomic.Bool
}

func (c *impatientConn) SetDeadline(t time.Time) error {
	c.set.Store(!t.IsZero())
	return c.Conn.SetDeadline(t)
}

func (c *impatientConn) Read(p []byte) (int, error) {
	if !c.set.Load() {
		if err := c.Conn.SetReadDeadline(time.Now().Add(c.silence)); err != nil {
			return 0, err
		}
	}
	return c.Conn.Read(p)
}

func (c *impatientConn) Write(p []byte) (int, error) {
	if !c.set.Load() {
		if err := c.Conn.SetWriteDeadline(time.Now().Add(c.silence)); err != nil {
			return 0, err
		}
	}
	return c.Conn.Write(p)
}

// settling makes connections with the settings that relayd relies on.
type settling struct {
	*pq.Connector
	settings string // the statement that makes them
	shared   bool   // by a pooler
}

// Connect is what the pool calls.
func (c settling) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, &awayError{err}
	}
	session, ok := conn.(driverConn)
	if !ok {
		return nil, errors.Join(errors.New("the driver lacks what the pool makes use of"), conn.Close())
	}
	rows, err := session.QueryContext(context.WithoutCancel(ctx), c.settings, nil) // silence bounds it
	if err == nil {
		err = rows.Close()
	}
	if err != nil {
		return nil, &awayError{errors.Join(err, conn.Close())}
	}
	return &postgresSession{driverConn: session, shared: c.shared}, nil
}

// openPool opens a handle whose connections give up after silence.
func openPool(ctx context.Context, dsn string, size int, silence time.Duration) (*sqlx.DB, error) {
	return openPoolBy(ctx, dsn, size, &dialer{silence: silence})
}

func openPoolBy(ctx context.Context, dsn string, size int, by *dialer) (*sqlx.DB, error) {
	connector, err := pq.NewConnector(dsn)
	if err != nil {
		return nil, err
	}
	connector.Dialer(by)
	wait := lockWait(by.silence)
	if by.shared || by.silence >= stillness {
		wait = 0
	}
	db := sqlx.NewDb(sql.OpenDB(settling{connector, sessionSettings(false, wait), by.shared}), "postgres")
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	db.SetConnMaxIdleTime(5 * time.Minute)
	if err := firstPing(ctx, db); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// firstPing makes sure that there is a server. One that is too busy to let us in at
// once, or starts, is asked for a while: nobody waits for it yet.
func firstPing(ctx context.Context, db *sqlx.DB) error {
	began := time.Now()
	for {
		err := db.PingContext(ctx)
		var network net.Error
		var e *pq.Error
		busy := errors.As(err, &network) && network.Timeout() || errors.As(err, &e) && e.Code == "57P03" // cannot_connect_now
		if !busy || ctx.Err() != nil || time.Since(began) > 2*patience {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryPause):
		}
	}
}
