package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"relay"
	"relay/cli"
)

// Stop stops gracefully: it accepts no new work, lets running requests finish within the drain time, notifies
// and closes the tunnels, and flushes the store. It returns an error if requests were cut.
func (a *app) Stop() error {
	drain := relay.FormatDuration(a.cfg.Drain)
	a.tellStopping()
	// During the drain delay, /readyz answers 503 while everything still works. Balancers and other nodes
	// send new work elsewhere in this time. Without other nodes there is no such place, so the delay applies
	// only if it is set.
	a.server.Drain(true)
	a.store.Leaving()
	if a.cfg.drainDelayGiven || a.store.HasOtherNodes() {
		a.log.Info("draining", "drain_delay", a.cfg.DrainDelay.String())
		time.Sleep(a.cfg.DrainDelay)
	}
	ctx, cancel := context.WithCancel(context.Background()) // ends when running requests must be cut
	if a.cfg.Drain >= 0 {
		ctx, cancel = context.WithTimeout(context.Background(), a.cfg.Drain)
	} else {
		drain = off
	}
	defer cancel()
	a.log.Info("stopping", "drain", drain)
	a.moveClients(ctx)
	if a.systemd.present() { // systemd keeps the listeners open, and new callers wait there for the next relayd
		a.server.StopAccepting()
	}
	a.sshServer.Announce()
	steps := &stopSteps{log: a.log}
	cut := a.drainRequests(ctx, steps)
	end := steps.endOf(ctx)
	if a.acme != nil {
		steps.run("certificates", end, a.acme.Stop)
	}
	steps.run("access log", end, a.accessLog.close)
	steps.run("admin listener", end, func() { _ = a.admin.Close() })
	closed := make(chan error, 1)
	steps.run("store", end, func() { closed <- a.store.Close() })
	var err error
	select {
	case err = <-closed:
	default:
	}
	if len(steps.late) > 0 {
		err = errors.Join(err, fmt.Errorf("the stop was not in order: %s had not ended in time", strings.Join(steps.late, ", ")))
	}
	if cut != nil {
		a.log.Warn("stopped with requests cut", "err", cut)
		return errors.Join(fmt.Errorf("the time to stop in order ran out after %s: requests were cut and are recorded as interrupted", drain), err)
	}
	if err == nil {
		a.log.Info("stopped")
	}
	return err
}

// Limits for the rest of a stop, once the drain time is over (the ctx of drainRequests ends then). With the time
// for the last lines of the log, the rest takes less than five seconds, even if peers, pipes and the database do
// not respond.
const (
	stopGrace    = 3800 * time.Millisecond // limit for all steps
	requestGrace = 3 * time.Second         // limit for storing the requests that were cut
	sshGrace     = 500 * time.Millisecond  // time between the cut of requests and that of SSH connections
)

// drainRequests waits until the running requests end, or ctx does, and then closes the SSH connections. It
// returns an error if requests were cut.
//
// Tunnels are closed last, because running requests need them: within the rest of the drain time, but with at
// least a second for notifying their clients. Soon after the drain time they are closed in any case, because
// a request may be waiting only for its tunnel.
func (a *app) drainRequests(ctx context.Context, steps *stopSteps) error {
	ended := make(chan error, 1)
	go func() {
		var requests errgroup.Group
		requests.Go(func() error { return a.server.Shutdown(ctx) })
		requests.Go(func() error { return a.delivery.Close(ctx) })
		ended <- requests.Wait()
	}()
	late := make(chan struct{}) // closed sshGrace after the end of ctx
	defer context.AfterFunc(ctx, func() { time.AfterFunc(sshGrace, func() { close(late) }) })()
	var cut error
	left := 15 * time.Second
	select {
	case cut = <-ended:
		ended = nil
		if deadline, ok := ctx.Deadline(); ok {
			left = max(time.Until(deadline), time.Second)
		}
	case <-late:
		left = 0
	}
	last, done := context.WithTimeout(context.Background(), left)
	defer done()
	steps.run("ssh connections", time.Now().Add(left+stopGrace), func() {
		if err := a.sshServer.Shutdown(last); err != nil {
			a.log.Warn("ssh connections were cut", "err", err)
		}
	})
	if ended == nil {
		return cut
	}
	deadline, _ := ctx.Deadline() // only a deadline ends ctx before Stop returns
	select {
	case cut = <-ended:
		return cut
	case <-time.After(time.Until(deadline.Add(requestGrace))):
		steps.tooLate("requests")
		return errors.New("requests did not end")
	}
}

// stopSteps runs the steps of a stop. A step that does not end in time is reported by name and left running,
// and the next step starts.
type stopSteps struct {
	log  *slog.Logger
	late []string
}

// endOf returns the time limit of the last step: stopGrace after the drain time. If earlier steps have used
// up this time, the last step still gets some.
func (s *stopSteps) endOf(ctx context.Context) time.Time {
	const least = stopGrace - requestGrace
	end := time.Now().Add(stopGrace)
	if deadline, ok := ctx.Deadline(); ok && ctx.Err() != nil {
		end = deadline.Add(stopGrace)
	}
	if soon := time.Now().Add(least); end.Before(soon) {
		return soon
	}
	return end
}

// run runs a step and waits until it ends or the time limit is over.
func (s *stopSteps) run(name string, until time.Time, step func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		step()
	}()
	select {
	case <-ended:
	case <-time.After(time.Until(until)):
		s.tooLate(name)
	}
}

func (s *stopSteps) tooLate(name string) {
	s.late = append(s.late, name)
	s.log.Warn("a step of the shutdown does not end; the shutdown continues without it", "step", name)
}

// moveClients sends the SSH clients to the other nodes, if there are any, while everything still works. It
// takes at most two thirds of the drain time, because the requests in progress need the rest.
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

// abandon closes everything that a failed Start has opened, within stopGrace.
func (a *app) abandon() {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	steps, end := &stopSteps{log: a.log}, time.Now().Add(stopGrace)
	if a.server != nil {
		steps.run("requests", end, func() {
			_ = a.server.Shutdown(now)
			_ = a.delivery.Close(now)
		})
		steps.run("ssh connections", end, func() { _ = a.sshServer.Shutdown(now) })
		_ = a.admin.Close()
	}
	if a.acme != nil {
		steps.run("certificates", end, a.acme.Stop)
	}
	for _, ln := range []net.Listener{a.httpLn, a.httpsLn, a.sshLn, a.adminLn} {
		if ln != nil {
			_ = ln.Close()
		}
	}
	steps.run("access log", end, a.accessLog.close)
	if a.store != nil {
		steps.run("store", end, func() { _ = a.store.Close() })
	}
}

// startWithin starts the relay and creates its first account. served reports whether Start succeeded. If ctx
// ends before the relay is ready, greeting is nil. When ctx ends, startWithin waits at most stopGrace, because
// calls to a database that does not answer take seconds.
func (a *app) startWithin(ctx context.Context, list []*setting) (greeting *summary, served bool, err error) {
	type result struct {
		greeting *summary
		served   bool
		err      error
	}
	started := make(chan result, 1)
	go func() {
		if err := a.Start(ctx); err != nil {
			started <- result{err: err}
			return
		}
		greeting, err := a.firstStart(ctx, list)
		started <- result{greeting, true, err}
	}()
	var r result
	select {
	case r = <-started:
	case <-ctx.Done():
		select {
		case r = <-started:
		case <-time.After(stopGrace):
			return nil, false, errors.New("stopped during the start, which had not ended in time: the database does not answer")
		}
	}
	if r.err != nil && ctx.Err() != nil {
		r.greeting, r.err = nil, nil // a stop during the start is not an error
	}
	return r.greeting, r.served, r.err
}

// greetingWait bounds the time that the greeting waits for earlier lines of the log.
const greetingWait = 200 * time.Millisecond

func (c *program) serveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "serve", Short: "run the server in the foreground", Args: cli.Takes("", 0, 0),
		Long: `Runs the server until SIGTERM, SIGINT or SIGHUP, then stops gracefully: exit 0, or 1 when the
drain time ran out and requests were cut. A second signal ends it at once.

Each flag is also an environment variable (--http-addr is RELAY_HTTP_ADDR) and a key of the
file of --config. relayd config prints the values in force.`,
		Example: "  relayd serve --data-dir .relay",
	}
	return c.withSettings(cmd, true, func(ctx context.Context, cfg Config, list []*setting, _ []string) error {
		c.useOutputs(cfg)
		a := newApp(c, cfg)
		a.settings = list
		greeting, served, err := a.startWithin(ctx, list)
		if !served {
			return err
		}
		if err == nil {
			c.errs.drain(greetingWait) // wait, so that on a terminal the greeting comes after the log lines
			if greeting != nil {
				fmt.Fprint(c.stdout, greeting)
			}
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
