package main

import (
	"context"
	"fmt"
	"math"
	"net"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"relay"
	"relay/cli"
	"relay/record"
	"relay/server"
)

// openListener returns a listener for the address addr: the listener that systemd has kept open under this name
// since the previous relayd stopped, if it has the same address, else a new one. It returns nil if addr is "",
// which means off.
func (a *app) openListener(name, addr string, listeners map[string]net.Listener) (net.Listener, error) {
	if ln := listeners[name]; ln != nil {
		if addr != "" && sameAddress(ln.Addr(), addr) {
			a.inherited = true
			return ln, nil
		}
		a.log.Warn("a listener from systemd is not used", "listener", name, "addr", ln.Addr().String(), "err", "it listens on another address than the setting says")
		_ = ln.Close()
		_ = a.systemd.notify("FDSTOREREMOVE=1\nFDNAME=" + name)
	}
	if addr == "" {
		return nil, nil
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	if a.systemd.present() {
		if err := a.systemd.keep(name, ln); err != nil {
			a.log.Warn("a listener cannot be left with systemd; callers are refused while the service restarts", "listener", name, "err", err)
		}
	}
	return ln, nil
}

// sameAddress reports whether a listener has the address of a setting; port 0 matches any port.
func sameAddress(have net.Addr, addr string) bool {
	listens, ok := have.(*net.TCPAddr)
	want, err := net.ResolveTCPAddr("tcp", addr)
	if !ok || err != nil {
		return false
	}
	sameIP := listens.IP.Equal(want.IP) || listens.IP.IsUnspecified() && (want.IP == nil || want.IP.IsUnspecified())
	return sameIP && (want.Port == 0 || want.Port == listens.Port)
}

// Memory that the heap may hold in addition to the bytes of --buffer-limit: for caches, requests in progress
// and the pages of the store, and 64 KiB for each connection (an idle tunnel holds 46 KiB).
const baseHeap, connectionHeap = 112 << 20, 64 << 10

// collectAt is the heap size at which the garbage collector runs, unless more memory is in use: see
// garbagePercent.
const collectAt = 96 << 20

// limitHeap sets the memory limit and the start of the garbage collector, until ctx ends. By default, the
// collector runs when the heap is twice as large as the memory in use. Buffers of --buffer-limit would need
// twice their size, and the few MiB of a relay without buffers would be collected many times a second.
// GOMEMLIMIT and GOGC take precedence.
func (a *app) limitHeap(ctx context.Context) {
	buffers := a.cfg.BufferLimit
	limit, percent := buffers != 0 && debug.SetMemoryLimit(-1) == math.MaxInt64, os.Getenv("GOGC") == ""
	for again := true; again; again = cli.Wait(ctx, time.Second) {
		if limit {
			connections := a.server.Stats().Connections + a.sshServer.Stats().Connections
			debug.SetMemoryLimit(buffers + baseHeap + int64(connections)*connectionHeap)
		}
		if percent {
			inUse := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
			metrics.Read(inUse)
			debug.SetGCPercent(garbagePercent(inUse[0].Value.Uint64()))
		}
	}
	if limit {
		debug.SetMemoryLimit(math.MaxInt64)
	}
	if percent {
		debug.SetGCPercent(100)
	}
}

// garbagePercent returns the value of GOGC for a number of bytes in use: the allowed garbage in percent of
// these bytes. It is at least 100, which is Go's default, and more while the heap is smaller than collectAt.
func garbagePercent(inUse uint64) int {
	return max(100, int(collectAt*100/max(inUse, 4<<20))-100)
}

// statusInterval is the interval at which systemd gets the status if there is no watchdog.
const statusInterval = 10 * time.Second

// superviseUntil tells systemd that the relay serves, and then reports the status until ctx ends.
func (a *app) superviseUntil(ctx context.Context) {
	if !a.systemd.present() {
		return
	}
	const ready = "READY=1\n"
	told := a.tell(ready + a.status())
	rounds := int64(0)
	interval := statusInterval
	if a.systemd.watchdog > 0 {
		interval = min(interval, a.systemd.watchdog/3)
	}
	for cli.Wait(ctx, interval) {
		state := a.status()
		// A failed round of the store's loop also counts as a sign of life. A restart helps if the process hangs,
		// but not if a disk is full or Postgres is down, and a restart would cut every tunnel.
		if now := a.store.Rounds(); now != rounds {
			rounds, state = now, "WATCHDOG=1\n"+state
		}
		if !told { // without the line READY=1, systemd ends the process after TimeoutStartSec
			state = ready + state
		}
		told = a.tell(state) || told
	}
}

// status returns the line that `systemctl status` shows.
func (a *app) status() string {
	spool := "spool empty"
	if n := a.store.Stats().SpoolBytes; n > 0 {
		spool = fmt.Sprintf("%d KiB in the spool", (n+1023)/1024)
	}
	return fmt.Sprintf("STATUS=%s, %s", record.Count(a.delivery.Stats().Tunnels, "tunnel", "tunnels"), spool)
}

// stoppingWait is the longest time that a stop waits until systemd has its message.
const stoppingWait = 100 * time.Millisecond

// tellStopping tells systemd that a stop has begun and how long the stop may take. It waits only stoppingWait
// for systemd to read the message, and leaves a longer wait to a goroutine, because the stop must not wait
// for a reader.
func (a *app) tellStopping() {
	limit := a.cfg.Drain
	if limit < 0 { // the drain time is off, but systemd needs a limit
		limit = 30 * 24 * time.Hour
	}
	told := make(chan struct{})
	go func() {
		defer close(told)
		a.tell(fmt.Sprintf("STOPPING=1\nSTATUS=stopping\nEXTEND_TIMEOUT_USEC=%d", (limit + a.cfg.DrainDelay + stopMargin).Microseconds()))
	}()
	select {
	case <-told:
	case <-time.After(stoppingWait):
	}
}

// stopMargin is the longest time that a stop takes in addition to the drain time.
const stopMargin = 20 * time.Second

// tell sends a state to systemd, and reports whether that succeeded.
func (a *app) tell(state string) bool {
	err := a.systemd.notify(state)
	if err != nil {
		a.log.Debug("systemd could not be notified", "err", err)
	}
	return err == nil
}

// ready returns the degraded parts, and the reasons why new events cannot be accepted: the store refuses
// them, or tunnels are not served yet.
func (a *app) ready(ctx context.Context) (degraded, reasons []string) {
	spooling, err := a.store.Health(ctx)
	if err != nil {
		reasons = append(reasons, err.Error())
	}
	if spooling {
		degraded = append(degraded, "store")
	}
	if a.store.NewerSchema() > 0 {
		degraded = append(degraded, "schema")
	}
	if a.program.errs.blocked() || a.program.out.blocked() || a.accessLog.blocked() {
		degraded = append(degraded, "log")
	}
	switch {
	case err != nil:
	case !a.started.Load():
		reasons = append(reasons, "not serving yet")
	case !a.connected.Load() && time.Since(a.startedAt) < connectTime && !a.sshServer.ReachesAll():
		reasons = append(reasons, "connecting to the other nodes")
	default:
		a.connected.Store(true)
	}
	return degraded, reasons
}

// connectTime bounds how long a new node is not ready because it has not reached the other nodes yet. A ready
// node that cannot reach the others queues requests for their tunnels.
const connectTime = 5 * time.Second

// stats returns the counts of /debug/stats.
func (a *app) stats() server.Stats {
	d, s := a.delivery.Stats(), a.store.Stats()
	peers, _ := a.sshServer.Reached()
	out, in := a.sshServer.Forwarded()
	return server.Stats{
		Peers: peers, ForwardedOut: out, ForwardedIn: in,
		Tunnels: d.Tunnels, Channels: d.Channels, Queued: d.Queued,
		SpoolBytes: s.SpoolBytes, Committed: s.Committed, Version: relay.ThisBuild().Version, Node: a.store.NodeName(),
		HTTP: a.server.Stats(), SSH: a.sshServer.Stats(), Limits: a.limits.Stats(),
	}
}
