package client

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"
)

// Liveness of a tunnel connection. The relay uses spare channels only while it
// heard from us within 2.5 s, so we ping every 2 s; a peer that sends not one byte
// for silentAfter is suspected, and given up graceAfter later.
const (
	pingEvery   = 2 * time.Second
	watchEvery  = time.Second
	silentAfter = 5 * time.Second
	graceAfter  = 5 * time.Second
	clockJump   = 5 * time.Second
	// proofWithin is how long a suspected connection may stay silent once a fresh one
	// was greeted: the way is free and the relay answers, so that one is dead.
	proofWithin = 300 * time.Millisecond
	proofLook   = 50 * time.Millisecond
)

var errAsleep = Errorf(ExitUnreachable, "this machine was asleep")

const keepaliveRequest = "keepalive@openssh.com"

// meter counts when the peer was last heard. Bytes count, not answers: on a slow
// line an answer waits behind the data of others.
type meter struct {
	net.Conn
	made  time.Time
	heard atomic.Int64 // since made, monotonic
	reads atomic.Int64 // how often something was heard
}

func newMeter(c net.Conn) *meter { return &meter{Conn: c, made: time.Now()} }

func (m *meter) Read(p []byte) (int, error) {
	n, err := m.Conn.Read(p)
	if n > 0 {
		m.heard.Store(int64(time.Since(m.made)))
		m.reads.Add(1)
	}
	return n, err
}

// silence is how long ago the last byte came.
func (m *meter) silence() time.Duration {
	return time.Since(m.made) - time.Duration(m.heard.Load())
}

// ping sends keepalives until ctx or the connection ends. Any answer will do.
func ping(ctx context.Context, conn ssh.Conn) { pingOr(ctx, conn, nil) }

// pingOr is ping that also sends one when it is asked to by now.
func pingOr(ctx context.Context, conn ssh.Conn, now <-chan struct{}) {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-now:
		case <-tick.C:
		}
		if _, _, err := conn.SendRequest(keepaliveRequest, true, nil); err != nil {
			return
		}
	}
}

// watch decides by the clock when a connection is dead.
type watch struct {
	wall, mono time.Duration // of the last look, on clocks that start anywhere
	pardon     time.Duration // mono until which silence is not held against the peer
	seen       bool
}

// look is called about every watchEvery with both clocks and the silence of the
// peer; it gives the reason why the connection has to go, or nil.
func (w *watch) look(wall, mono, silence time.Duration) error {
	wallStep, monoStep := wall-w.wall, mono-w.mono
	first := !w.seen
	w.wall, w.mono, w.seen = wall, mono, true
	switch {
	case first:
		return nil
	case wallStep-monoStep > clockJump:
		return errAsleep
	case monoStep > 3*watchEvery:
		// We were stopped, not the peer: what it sent meanwhile still waits in the
		// socket, so it gets the time to show itself.
		w.pardon = mono + graceAfter
	}
	if silence > silentAfter+graceAfter && mono >= w.pardon {
		return silent(silence)
	}
	return nil
}

func silent(d time.Duration) *Error {
	return Errorf(ExitUnreachable, "the relay has been silent for %d s", int(d.Seconds()))
}

// watchConn looks until ctx ends or the connection is found dead; then it closes
// the socket and gives the reason.
func watchConn(ctx context.Context, m *meter) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	var w watch
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			now := time.Now()
			wall := time.Duration(now.UnixNano())
			if err := w.look(wall, now.Sub(m.made), m.silence()); err != nil {
				m.Close()
				return err
			}
		}
	}
}
