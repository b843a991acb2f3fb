// Package server is the front door: listeners and TLS, which host goes where, the
// caller's side of an exchange, answers that no local server sent, health, and the
// handler of the admin listener.
//
// Requests to aliases are read by this package and never reach net/http or a mux.
// A connection whose request names the base host is handed to a net/http server,
// with the bytes read so far, at a request boundary.
package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"relay"
	"relay/wire"
)

// Options are what a Server is made of. Limits and timeouts of 0 are off, unless
// they say otherwise.
type Options struct {
	Capture Capturer
	Base    http.Handler // the base site without /healthz and /readyz
	Site    relay.Site

	// RedirectPlain sends plain HTTP on the base host to Site.Base, health checks
	// apart; to be set when this server also has a TLS listener.
	RedirectPlain bool

	// Challenge answers a CA that asks a host (in lower case) for a path on plain
	// HTTP; ok only for a challenge that is pending. Nothing else is ever taken from
	// an alias. nil = none.
	Challenge func(host, path string) (answer string, ok bool)

	MaxHead   int // bytes of a request head; 431
	MaxTarget int // bytes of a request-target; 414

	HeadTimeout  time.Duration // from the first byte of a head to its end; also for a TLS handshake
	IdleTimeout  time.Duration // before that first byte; then closed silently
	StallTimeout time.Duration // a body that does not move, a caller that does not read

	// MaxConns is how many connections there may be at once on all listeners. Where
	// there are as many, the one that has been idle longest is closed for the sake of
	// the next one, and when none is idle, the next one is answered 503 overloaded, or
	// closed on a TLS listener. 0 = what the limit of open files leaves after 512 for
	// other uses, at most 20,000; negative = no bound.
	MaxConns int
	// MaxConnsPerSource is the same for one IPv4 address or IPv6 /64; loopback has no
	// such bound. 0 = a quarter of MaxConns, but no less than 2,000 or all of these;
	// negative = no bound.
	MaxConnsPerSource int

	// Registry is given the metrics of docs/metrics.md; nil = none are shown.
	Registry prometheus.Registerer

	// Ready tells what is wrong: parts that work in a lesser way, and reasons why
	// new events cannot be taken. It is asked at most once a second; its ctx ends
	// after four seconds. nil = always ready.
	Ready func(ctx context.Context) (degraded, reasons []string)

	Log *slog.Logger // nil = discarded
}

// Server answers on the listeners given to Serve and ServeTLS until Shutdown. All
// methods are safe for concurrent use.
type Server struct {
	opt        Options
	hosts      hosts
	limits     wire.Limits
	ready      *readiness
	log        *slog.Logger
	crowd      *crowd
	usher      *usher
	told       lines // of the log, for answers of our own
	acceptTold lines // the same for connections that the system had no room for
	met        *metrics

	ctx    context.Context // of captures and base requests: ends when the server stops for good
	cancel context.CancelFunc
	reads  context.Context // of safe base requests (streams, long polls): ends soon after a stop began
	unread context.CancelFunc

	base     *http.Server
	handoff  *handoff
	baseOnce sync.Once
	newborn  sync.Map // handed connections that have not sent a request yet

	stopping atomic.Bool
	wg       sync.WaitGroup // connections

	mu        sync.Mutex
	listeners map[net.Listener]struct{}
	conns     map[*conn]struct{}
	busy      int // captures under way
	closed    bool
	drained   chan struct{} // closed when stopping and busy is 0
}

// New makes a Server; it does nothing before Serve.
func New(o Options) *Server {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		opt:        o,
		hosts:      newHosts(o.Site),
		limits:     wire.Limits{Head: o.MaxHead, Target: o.MaxTarget},
		ready:      newReadiness(o.Ready),
		log:        o.Log,
		crowd:      newCrowd(o.MaxConns, o.MaxConnsPerSource),
		usher:      newUsher(),
		told:       lines{most: toldPerSecond, per: time.Second},
		acceptTold: lines{most: 1, per: toldPause},
		handoff:    newHandoff(),
		listeners:  map[net.Listener]struct{}{},
		conns:      map[*conn]struct{}{},
		drained:    make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.reads, s.unread = context.WithCancel(s.ctx)
	s.met = newMetrics(s, o.Registry)
	s.base = s.newBase()
	return s
}

// Stop times that are no settings.
const (
	streamGrace = 250 * time.Millisecond // for streams and long polls after a stop began
	hasteGrace  = 250 * time.Millisecond // for unfinished heads and lingering closes once all is drained
	cutGrace    = 2 * time.Second        // for captures to write down that they were cut
)

// errOverdue is what Shutdown gives when requests had to be cut.
var errOverdue = errors.New("requests were still running when the time to stop ran out; they were cut")

// Shutdown stops in order: requests not begun are answered 503 stopping, idle
// connections are closed, running requests finish until ctx ends; then they are
// cut, and the error says so. Listeners answer until the last request is done. A
// second call waits for the same end.
func (s *Server) Shutdown(ctx context.Context) error {
	s.beginStop()
	var err error
	select {
	case <-s.drained:
	case <-ctx.Done():
		err = errOverdue
		s.cancel()
		s.awaitCut()
	}
	s.closeListeners()
	s.closeNewborn()
	if s.base.Shutdown(ctx) != nil {
		err = errOverdue
		_ = s.base.Close()
	}
	s.handoff.Close()
	s.hasten(err != nil)
	s.wg.Wait()
	s.cancel()
	return err
}

// beginStop turns new requests away and lets go of what is idle.
func (s *Server) beginStop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping.Swap(true) { // under mu: end looks at it too, and drained is closed once
		return
	}
	time.AfterFunc(streamGrace, s.unread)
	if s.busy == 0 {
		close(s.drained)
	}
	for c := range s.conns {
		if c.phase.Load() == phaseIdle {
			_ = c.raw.Close()
		}
	}
}

// awaitCut gives captures whose context has ended a moment to return.
func (s *Server) awaitCut() {
	t := time.NewTimer(cutGrace)
	defer t.Stop()
	select {
	case <-s.drained:
	case <-t.C:
	}
}

// hasten ends what is still connected: unfinished heads and lingering closes get a
// short moment, captures that have not even noticed that they were cut are broken
// off, everything else is closed.
func (s *Server) hasten(cut bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		switch c.phase.Load() {
		case phaseHead, phaseLinger:
			if !cut {
				_ = c.raw.SetReadDeadline(time.Now().Add(hasteGrace))
				continue
			}
		case phaseBusy:
			if cut { // nobody may take what has come so far for the whole
				c.Abort()
				continue
			}
		}
		_ = c.raw.Close()
	}
}

func (s *Server) closeListeners() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for ln := range s.listeners {
		_ = ln.Close()
	}
}

// begin takes a place for one capture; false when the server is stopping.
func (s *Server) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping.Load() {
		return false
	}
	s.busy++
	return true
}

// end gives the place back.
func (s *Server) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy--
	if s.busy == 0 && s.stopping.Load() {
		close(s.drained)
	}
}
