package client

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"
)

// How a relay is dialed that could be reached before. A connect whose first packet
// was lost is repeated by the kernel after 1, 3 and 7 s, so a new one is begun every
// tryEvery: when the way is free again one of them gets through at once.
const (
	tryEvery    = 500 * time.Millisecond
	tryFor      = 4 * time.Second  // one of them
	reachWithin = 15 * time.Second // all of them, the greeting of the relay included
)

var errNoAnswer = errors.New("no answer")

// greeted is a connection on which the relay has begun to speak; what it said is
// still to be read.
type greeted struct {
	net.Conn
	r *bufio.Reader
}

func (g *greeted) Read(p []byte) (int, error) {
	if g.r.Buffered() > 0 {
		return g.r.Read(p)
	}
	return g.Conn.Read(p)
}

// attempt is how one of the tries ended.
type attempt struct {
	conn net.Conn
	err  error
}

// reacher runs overlapping tries of which one wins.
type reacher struct {
	d         *Dialer
	addr      string
	ended     chan attempt
	connected chan struct{} // gets one when a try has a connection; capacity 1
	wg        sync.WaitGroup
	open      int
	// dialing ends when one has a connection: a relay takes it ill when many are made
	// and left without a login.
	dialing     context.Context
	stopDialing context.CancelFunc
}

// reach dials until the relay greets on one connection. It gives up at the end of
// ctx, after reachWithin, and at once when the relay's machine refuses or there is
// no way to it: then only a pause or a change of the network helps.
func (d *Dialer) reach(ctx context.Context, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, reachWithin)
	r := &reacher{d: d, addr: addr, ended: make(chan attempt), connected: make(chan struct{}, 1)}
	r.dialing, r.stopDialing = context.WithCancel(ctx)
	conn, err := r.run(ctx)
	cancel()
	r.wg.Wait()
	return conn, err
}

func (r *reacher) run(ctx context.Context) (net.Conn, error) {
	tick := time.NewTicker(tryEvery)
	defer tick.Stop()
	again := tick.C
	r.start(ctx)
	for {
		select {
		case <-ctx.Done():
			return nil, errNoAnswer
		case a := <-r.ended:
			r.open--
			// A late packet that is refused, or a second way that leads nowhere, says
			// nothing about the tries that still run.
			if a.err == nil || r.open == 0 || errors.Is(a.err, syscall.ECONNREFUSED) {
				return a.conn, a.err
			}
		case <-r.connected:
			again = nil // another connection would not be greeted sooner
		case <-again:
			r.start(ctx)
		}
	}
}

func (r *reacher) start(ctx context.Context) {
	r.open++
	r.wg.Go(func() {
		conn, err := r.try(ctx)
		select {
		case r.ended <- attempt{conn, err}:
		case <-ctx.Done():
			if conn != nil {
				conn.Close()
			}
		}
	})
}

func (r *reacher) try(ctx context.Context) (net.Conn, error) {
	dialing, cancel := context.WithTimeout(r.dialing, tryFor)
	defer cancel()
	raw, err := r.d.open(dialing, r.addr)
	if err != nil {
		return nil, err
	}
	r.stopDialing()
	select {
	case r.connected <- struct{}{}:
	default:
	}
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	g := &greeted{Conn: raw, r: bufio.NewReader(raw)}
	_, err = g.r.Peek(1)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		raw.Close()
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return g, nil
}

// knock makes one connection and keeps it; false when that is not possible.
func (d *Dialer) knock(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, knockEvery)
	defer cancel()
	conn, err := d.open(ctx, d.where.String())
	if err != nil {
		return false
	}
	d.keep(conn)
	return true
}

// spareFor is how long a connection that was made to look may wait for its login;
// the relay itself waits 10 s.
const spareFor = 3 * time.Second

// keep holds a fresh connection ready for the next Dial.
func (d *Dialer) keep(conn net.Conn) {
	d.drop()
	d.spare, d.spareSince = conn, time.Now()
}

// take gives the connection that is held ready, or nil.
func (d *Dialer) take() net.Conn {
	conn := d.spare
	d.spare = nil
	if conn != nil && time.Since(d.spareSince) > spareFor {
		conn.Close()
		return nil
	}
	return conn
}

// drop closes the connection that is held ready.
func (d *Dialer) drop() {
	if d.spare != nil {
		d.spare.Close()
		d.spare = nil
	}
}
