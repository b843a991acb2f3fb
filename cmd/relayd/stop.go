package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sync/errgroup"
)

// Stop ends everything in order: nothing new is taken, what is under way finishes
// within the drain time, tunnels are told and closed, the store is flushed. The
// error says whether requests had to be cut.
func (a *app) Stop() error {
	ctx, cancel := a.drain()
	defer cancel()
	a.log.Info("stopping", "drain", a.cfg.Drain.String())
	a.gate.Announce()
	if a.acme != nil {
		a.acme.Stop()
	}
	var rooms errgroup.Group
	rooms.Go(func() error { return a.server.Shutdown(ctx) })
	rooms.Go(func() error { return a.delivery.Close(ctx) })
	overdue := rooms.Wait()

	// Tunnels are let go last: requests under way needed them.
	last, done := context.WithTimeout(context.WithoutCancel(ctx), a.farewell(ctx))
	defer done()
	if err := a.gate.Shutdown(last); err != nil {
		a.log.Warn("ssh connections were cut", "err", err)
	}
	_ = a.admin.Close()
	err := a.store.Close()
	if overdue != nil {
		a.log.Warn("stopped with requests cut", "err", overdue)
		return errors.Join(fmt.Errorf(drainRanOut, a.cfg.Drain.String()), err)
	}
	a.log.Info("stopped")
	return err
}

// drain is the time that requests under way have to finish.
func (a *app) drain() (context.Context, context.CancelFunc) {
	if a.cfg.Drain == unlimited {
		return context.WithCancel(context.Background())
	}
	return context.WithTimeout(context.Background(), time.Duration(a.cfg.Drain))
}

// farewell is what is left of the drain time for closing SSH connections, at least
// long enough to tell them.
func (a *app) farewell(ctx context.Context) time.Duration {
	left := 15 * time.Second
	if deadline, ok := ctx.Deadline(); ok {
		left = time.Until(deadline)
	}
	return max(left, time.Second)
}

// abandon closes what a failed Start left open.
func (a *app) abandon() {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	if a.server != nil {
		_ = a.server.Shutdown(now)
		_ = a.delivery.Close(now)
		_ = a.gate.Shutdown(now)
		_ = a.admin.Close()
	}
	if a.acme != nil {
		a.acme.Stop()
	}
	for _, ln := range []net.Listener{a.httpLn, a.httpsLn, a.sshLn, a.adminLn} {
		if ln != nil {
			_ = ln.Close()
		}
	}
	if a.store != nil {
		_ = a.store.Close()
	}
}
