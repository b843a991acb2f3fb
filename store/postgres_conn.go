package store

import (
	"context"
	"database/sql"
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
	db := sqlx.NewDb(sql.OpenDB(connector), "postgres")
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	db.SetConnMaxIdleTime(5 * time.Minute)
	if err := db.PingContext(ctx); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}
