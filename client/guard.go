package client

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"
)

// guard decides when the connection of a tunnel is dead. It looks at the clock as
// watch does; and when the network has changed, this machine was asleep or the peer
// has been silent for a while, it makes the connection prove itself against a fresh
// one. TCP alone would notice late: after a gap of 7 s it sends again after 12 s.
func (t *tunnel) guard(ctx context.Context) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	var w watch
	m := t.conn.wire
	for {
		var why *Error
		select {
		case <-ctx.Done():
			return nil
		case why = <-t.up.changed:
		case <-tick.C:
			now := time.Now()
			err := w.look(time.Duration(now.UnixNano()), now.Sub(m.made), m.silence())
			if err != nil && !errors.Is(err, errAsleep) {
				return err
			}
			if now.Sub(m.made) >= w.pardon && m.silence() > silentAfter {
				why = silent(m.silence())
			}
		}
		if why == nil {
			continue
		}
		if err := t.prove(ctx, why); err != nil {
			return err
		}
	}
}

// proof is one suspicion being looked into.
type proof struct {
	t     *tunnel
	why   *Error
	reads int64 // of the wire, at the start
	fresh net.Conn
	until time.Time // with a fresh connection: the old one is dead from then on
}

// prove asks the peer for a byte and dials a fresh connection beside. It gives nil
// once the old one is heard, and the reason why it has to go when only the fresh one
// is; that one is kept for the next Dial.
func (t *tunnel) prove(ctx context.Context, why *Error) error {
	p := &proof{t: t, why: why, reads: t.conn.wire.reads.Load()}
	select {
	case t.pingNow <- struct{}{}:
	default: // it is asked already
	}
	return p.run(ctx)
}

func (p *proof) run(ctx context.Context) error {
	looking, cancel := context.WithCancel(ctx)
	found := make(chan attempt, 1)
	look := func() {
		go func() {
			conn, err := p.t.up.Dialer.reach(looking, p.t.conn.Addr)
			found <- attempt{conn, err}
		}()
	}
	look()
	err := p.wait(ctx, found, look)
	cancel()
	if p.fresh == nil {
		if a := <-found; a.conn != nil {
			a.conn.Close()
		}
	}
	return err
}

// wait hears both connections. When it ends without a fresh one, one look is still
// under way or its outcome waits in found.
func (p *proof) wait(ctx context.Context, found chan attempt, look func()) error {
	tick := time.NewTicker(proofLook)
	defer tick.Stop()
	m := p.t.conn.wire
	for {
		select {
		case <-ctx.Done():
			p.close()
			return nil
		case a := <-found:
			if a.err == nil {
				p.fresh, p.until = a.conn, time.Now().Add(proofWithin)
				continue
			}
			found <- a // for run, should this be the end
			if errors.Is(a.err, syscall.ECONNREFUSED) {
				return unreachable(p.t.conn.Addr, a.err)
			}
			if m.reads.Load() != p.reads {
				return nil
			}
			if d := m.silence(); d > silentAfter+graceAfter {
				return silent(d)
			}
			if !wait(ctx, tryEvery) {
				return nil
			}
			<-found
			look()
		case now := <-tick.C:
			switch {
			case m.reads.Load() != p.reads:
				p.close()
				return nil
			case p.fresh != nil && now.After(p.until):
				p.t.up.Dialer.keep(p.fresh)
				return p.why
			case p.fresh == nil && m.silence() > silentAfter+graceAfter:
				return silent(m.silence())
			}
		}
	}
}

func (p *proof) close() {
	if p.fresh != nil {
		p.fresh.Close()
	}
}
