package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"relay"
	"relay/cli"
)

// Stop stops gracefully: it accepts nothing new, lets running requests finish within the
// drain time, tells and closes the tunnels, and flushes the store. The error says whether
// requests had to be cut.
func (a *app) Stop() error {
	drain := relay.FormatDuration(a.cfg.Drain)
	a.tellStopping()
	// For the drain delay /readyz answers 503 before anything closes: a balancer that checks
	// it, and the other nodes, send new work elsewhere meanwhile. Without other nodes there is
	// nowhere to send it, so that the delay then only applies if it is set.
	a.server.Drain(true)
	a.store.Leaving()
	if a.cfg.drainDelayGiven || a.store.HasOtherNodes() {
		a.log.Info("draining", "drain_delay", a.cfg.DrainDelay.String())
		time.Sleep(a.cfg.DrainDelay)
	}
	ctx, cancel := context.WithCancel(context.Background()) // ends when running requests have to be cut
	if a.cfg.Drain >= 0 {
		ctx, cancel = context.WithTimeout(context.Background(), a.cfg.Drain)
	} else {
		drain = off
	}
	defer cancel()
	a.log.Info("stopping", "drain", drain)
	a.moveClients(ctx)
	if a.systemd.present() { // new callers wait for the next relayd
		a.server.StopAccepting()
	}
	a.sshServer.Announce()
	if a.acme != nil {
		a.acme.Stop()
	}
	var draining errgroup.Group
	draining.Go(func() error { return a.server.Shutdown(ctx) })
	draining.Go(func() error { return a.delivery.Close(ctx) })
	overdue := draining.Wait()
	a.accessLog.close()

	// Tunnels are closed last, because running requests need them, within the rest of the
	// drain time, but at least a second, so that their clients can be told.
	left := 15 * time.Second
	if deadline, ok := ctx.Deadline(); ok {
		left = max(time.Until(deadline), time.Second)
	}
	last, done := context.WithTimeout(context.Background(), left)
	defer done()
	if err := a.sshServer.Shutdown(last); err != nil {
		a.log.Warn("ssh connections were cut", "err", err)
	}
	_ = a.admin.Close()
	err := a.store.Close()
	if overdue != nil {
		a.log.Warn("stopped with requests cut", "err", overdue)
		return errors.Join(fmt.Errorf("the time to stop in order ran out after %s: requests were cut and are kept as interrupted", drain), err)
	}
	a.log.Info("stopped")
	return err
}

// moveClients sends the SSH clients to the other nodes, if there are any, while everything
// is still served. It takes at most two thirds of the drain time, so that requests under way
// can end after it.
func (a *app) moveClients(ctx context.Context) {
	if !a.store.HasOtherNodes() {
		return
	}
	most := 20 * time.Second
	if deadline, ok := ctx.Deadline(); ok {
		most = min(most, time.Until(deadline)*2/3)
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	a.sshServer.Move(ctx)
}

// abandon closes what a failed Start has opened.
func (a *app) abandon() {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	if a.server != nil {
		_ = a.server.Shutdown(now)
		_ = a.delivery.Close(now)
		_ = a.sshServer.Shutdown(now)
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
	a.accessLog.close()
	if a.store != nil {
		_ = a.store.Close()
	}
}

// greetingWait is how long the greeting waits for the lines of the log before it.
const greetingWait = 200 * time.Millisecond

func (c *program) serveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "serve", Short: "run the server in the foreground", Args: cli.Takes("", 0, 0),
		Long: `Runs the server until SIGTERM, SIGINT or SIGHUP, then stops gracefully: exit 0, or 1 when the
drain time ran out and requests were cut. A second signal ends it at once.`,
		Example: "  relayd serve --data-dir .relay",
	}
	return c.withSettings(cmd, true, func(ctx context.Context, cfg Config, list []*setting, _ []string) error {
		c.useOutputs(cfg)
		a := newApp(c, cfg)
		if err := a.Start(ctx); err != nil {
			if ctx.Err() != nil {
				return nil // stopped while it waited to serve
			}
			return err
		}
		greeting, err := a.firstStart(ctx, list)
		if err == nil {
			c.errs.drain(greetingWait) // on a terminal the greeting comes last
			fmt.Fprint(c.stdout, greeting)
			supervised, end := context.WithCancel(ctx)
			go a.superviseUntil(supervised)
			go a.limitHeap(supervised)
			go a.watchLevelSignal(supervised)
			select {
			case <-ctx.Done():
			case err = <-a.failed:
			}
			end()
		}
		if serr := a.Stop(); err == nil {
			err = serr
		}
		return err
	})
}
