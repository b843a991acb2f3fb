package store

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

// waiting makes connections whose commits wait for the disk, also where the server,
// the database or the role has synchronous_commit=off: what is told to a caller has to
// survive the server.
type waiting struct{ *pq.Connector }

// awaitDisk turns it on for a session (local: for a transaction) that has it off;
// other values are stronger, or were chosen for replicas.
const awaitDisk = `SELECT set_config('synchronous_commit', 'on', %t) WHERE current_setting('synchronous_commit') = 'off'`

// Connect is what the pool calls.
func (w waiting) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := w.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	session, ok := conn.(driver.QueryerContext)
	if !ok {
		return nil, errors.Join(errors.New("the driver cannot query"), conn.Close())
	}
	rows, err := session.QueryContext(ctx, fmt.Sprintf(awaitDisk, false), nil)
	if err == nil {
		err = rows.Close()
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
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
	db := sqlx.NewDb(sql.OpenDB(waiting{connector}), "postgres")
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
