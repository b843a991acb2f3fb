// Package server is the HTTP side of relayd: listeners and TLS, routing by host, the caller's side of
// an exchange, relay-made answers, health checks, and the handler of the admin listener.
//
// The package reads requests to aliases itself; these never reach net/http or a mux. If a request names
// the base host, its connection is passed to a net/http server at a request boundary, with the bytes
// that were already read. Without TLS such a connection ends after the answer.
package server

import (
	"cmp"
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
	"relay/admission"
	"relay/wire"
)

// Options configure a Server. A limit or timeout of 0 means none, unless its comment says otherwise.
type Options struct {
	Capture Capturer
	Base    http.Handler // handles the base site except /healthz and /readyz
	Site    relay.Site

	// HostKey is the SHA-256 fingerprint of the SSH host key, which is public, and the same for all nodes of
	// a relay. /healthz names it to a request with a nonce.
	HostKey string

	// RedirectPlain redirects plain HTTP on the base host to Site.Base, except health
	// checks. Set it when this server also has a TLS listener.
	RedirectPlain bool

	// TLSInFront says that a proxy in front of relayd ends TLS. A plain connection then counts as one
	// over TLS, in records and in forwarded header lines.
	TLSInFront bool

	// Challenge returns the answer to an HTTP-01 challenge for a host (in lower case) and a path. ok is
	// true only if the challenge is pending; otherwise the request is handled as usual. nil = there are
	// no challenges.
	Challenge func(host, path string) (answer string, ok bool)

	MaxHead   int // largest request head, in bytes; a larger one gets 431
	MaxTarget int // longest request-target, in bytes; a longer one gets 414

	HeadTimeout  time.Duration // longest time from the first byte of a head to its end, and of a TLS handshake
	IdleTimeout  time.Duration // longest wait for the first byte of a head; a connection that exceeds it is closed without an answer
	StallTimeout time.Duration // longest time in which no byte of a body arrives, or in which a caller reads nothing

	// MinRate is the smallest average number of body bytes a second that a caller must send, over the
	// time that the relay waits for them. It applies once the relay has waited for MinRateGrace. A
	// slower body fails with request-timeout, so that a body that arrives in drips cannot hold a slot
	// of its alias.
	MinRate      int64
	MinRateGrace time.Duration

	// MaxConns bounds the open connections of all listeners. At the bound, a new connection replaces the one
	// that has been idle longest; if none is idle, it is answered 503 overloaded, or closed on a TLS
	// listener. 0 = 20,000, or the number that Admission allows one protocol, whichever is less; negative =
	// no bound.
	MaxConns int
	// MaxConnsPerSource bounds the open connections of one IPv4 address or IPv6 /64, except loopback. 0
	// = a quarter of MaxConns, but no less than 2,000 (or MaxConns, if that is less); negative = no
	// bound.
	MaxConnsPerSource int
	// Admission counts the connections together with those of other protocols. nil = there are no other
	// protocols.
	Admission *admission.Limiter

	// Access is called at the end of each request, also of a refused one, to any host except the base host.
	// It must not block. nil = no calls.
	Access func(Access)

	// Registry gets the metrics of docs/metrics.md; nil = none.
	Registry prometheus.Registerer

	// Ready returns the degraded parts, and the reasons why no new events can be accepted. It is called
	// at most once a second, with a ctx that ends after four seconds. nil = always ready.
	Ready func(ctx context.Context) (degraded, reasons []string)

	Log *slog.Logger // nil = discarded
}

// Server answers on the listeners given to Serve and ServeTLS until Shutdown. All
// methods are safe for concurrent use.
type Server struct {
	opt       Options
	hosts     hosts
	limits    wire.Limits
	ready     *readiness
	log       *slog.Logger
	front     *admission.Front
	answerLog *logLimiter // limits the log lines about relay-made answers
	acceptLog *logLimiter // limits the log lines about failed accepts
	rejectLog *logLimiter // limits the log lines about connections that get no slot

	rejectSlots       chan struct{} // one element for each running answerOverloaded
	rejectReadTimeout time.Duration // longest wait for the first bytes of a request; tests set a longer one

	met *metrics

	ctx         context.Context // context of captures and base requests; ends when the drain time is over
	cancel      context.CancelFunc
	reads       context.Context // context of GET and HEAD on the base site (streams, long polls); ends soon after a stop has begun
	cancelReads context.CancelFunc

	base      *http.Server
	handoff   *handoff
	baseOnce  sync.Once
	idleNew   sync.Map     // keys are the net.Conns that were handed over and have had no request
	baseConns atomic.Int64 // connections that net/http owns

	refused, evicted atomic.Int64 // number of refused and of evicted connections since the start

	starting atomic.Bool // see Starting
	draining atomic.Bool // see Drain
	stopping atomic.Bool
	wg       sync.WaitGroup // goroutines of connections

	mu        sync.Mutex
	listeners map[net.Listener]struct{}
	conns     map[*conn]struct{}
	busy      int // captures in progress
	closed    bool
	drained   chan struct{} // closed once a stop has begun and busy is 0
}

// New returns a Server. It does nothing before Serve.
func New(o Options) *Server {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Admission == nil {
		o.Admission = admission.NewLimiter(admission.FileLimit())
	}
	s := &Server{
		opt:       o,
		hosts:     newHosts(o.Site),
		limits:    wire.Limits{Head: o.MaxHead, Target: o.MaxTarget},
		ready:     &readiness{ask: o.Ready},
		log:       o.Log,
		front:     o.Admission.Front(httpLimits(o.MaxConns, o.MaxConnsPerSource, o.Admission.MostOfOne())),
		answerLog: newLogLimiter(logPerSecond, time.Second),
		acceptLog: newLogLimiter(1, logInterval),
		rejectLog: newLogLimiter(1, logInterval),

		rejectSlots: make(chan struct{}, maxRejectors), rejectReadTimeout: time.Second,

		handoff:   newHandoff(),
		listeners: map[net.Listener]struct{}{},
		conns:     map[*conn]struct{}{},
		drained:   make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.reads, s.cancelReads = context.WithCancel(s.ctx)
	s.met = newMetrics(s, o.Registry)
	s.base = s.newBase()
	return s
}

// Times of a stop that no setting changes.
const (
	streamGrace = 250 * time.Millisecond // from the beginning of a stop to the end of streams and long polls
	lingerGrace = 250 * time.Millisecond // time for unfinished heads and lingering closes after the last request
	cutGrace    = 2 * time.Second        // time for captures to record that they were cut
	connGrace   = 800 * time.Millisecond // longest wait for the goroutines of connections to end; more than lingerGrace, which some of them take

	handoverGrace = 500 * time.Millisecond // time for connections that were accepted just before a handover to get their first answer
)

// errOverdue is the error of Shutdown if requests had to be cut.
var errOverdue = errors.New("requests were still running when the time to stop ran out; they were cut")

// Shutdown stops gracefully: new requests are answered 503 stopping, idle connections are closed, and
// running requests may finish until ctx ends. Requests that are still running then are cut, and
// Shutdown returns errOverdue. The listeners stay open until the last request has finished. Shutdown
// returns within cutGrace and connGrace after the end of ctx. A second call waits for the end of the
// first one.
func (s *Server) Shutdown(ctx context.Context) error {
	s.beginStop()
	var err error
	select {
	case <-s.drained:
	case <-ctx.Done():
		s.mu.Lock()
		if s.busy > 0 {
			// With busy at 0, no request is cut: the last one ended at the same time as ctx.
			err = errOverdue
		}
		s.mu.Unlock()
		s.cancel()
		// This waits for captures to record that they were cut.
		select {
		case <-s.drained:
		case <-time.After(cutGrace):
		}
	}
	s.mu.Lock()
	s.closed = true
	s.closeListeners()
	s.mu.Unlock()
	s.idleNew.Range(func(c, _ any) bool {
		// Otherwise Shutdown of net/http waits five seconds for connections without a request.
		_ = c.(net.Conn).Close()
		return true
	})
	if s.base.Shutdown(ctx) != nil {
		err = errOverdue
		_ = s.base.Close()
	}
	s.handoff.Close()
	s.closeRemaining(err != nil)
	if !s.awaitConns() {
		s.log.Warn("connections did not end although they were closed", "connections", s.Stats().Connections)
	}
	s.cancel()
	return err
}

// awaitConns waits for the goroutines of the connections, and reports whether all have ended. It waits for at
// most connGrace, because one may be waiting for something other than its closed socket.
func (s *Server) awaitConns() bool {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.wg.Wait()
	}()
	select {
	case <-ended:
		return true
	case <-time.After(connGrace):
		return false
	}
}

// Drain makes /readyz answer 503 while everything is still served, so that balancers send new
// connections elsewhere before Shutdown closes the listeners. With on = false it ends this state.
func (s *Server) Drain(on bool) { s.draining.Store(on) }

// Starting tells the server whether relayd is still starting. During the start every request gets 503,
// except health checks and challenges: a caller must not be told that an alias does not exist only
// because it is not loaded yet.
func (s *Server) Starting(on bool) { s.starting.Store(on) }

// StopAccepting closes the listeners, and waits at most handoverGrace until each accepted connection
// has sent its first request and received its answer. Use it if the next process takes over the
// listening sockets: new connections wait in these sockets and are not answered 503 stopping. Call
// Shutdown afterwards.
func (s *Server) StopAccepting() {
	s.mu.Lock()
	s.closeListeners()
	s.mu.Unlock()
	deadline := time.Now().Add(handoverGrace)
	for !s.allAnswered() && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
}

// allAnswered reports whether no accept loop runs and no connection waits for its first
// request or has sent only a part of a head.
func (s *Server) allAnswered() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if p := c.phase.Load(); p == phaseNew || p == phaseHead {
			return false
		}
	}
	return len(s.listeners) == 0
}

// beginStop closes idle connections. From then on, new requests are refused.
func (s *Server) beginStop() {
	// mu is held until the end, so that either beginStop or endRequest closes drained, but not both.
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping.Swap(true) {
		return
	}
	time.AfterFunc(streamGrace, s.cancelReads)
	if s.busy == 0 {
		close(s.drained)
	}
	for c := range s.conns {
		if c.phase.Load() == phaseIdle {
			_ = c.sock.Close()
		}
	}
}

// closeRemaining closes the remaining connections. Unfinished heads and lingering closes first get
// lingerGrace, unless cut is set, because then the time of the stop is already over. A capture that has not
// returned is aborted, so that its caller cannot mistake a partial response for a complete one.
func (s *Server) closeRemaining(cut bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		switch phase := c.phase.Load(); {
		case phase == phaseHead && !cut:
			_ = c.sock.SetReadDeadline(time.Now().Add(lingerGrace))
		case phase == phaseLinger && !cut:
			time.AfterFunc(lingerGrace, func() { _ = c.sock.Close() })
		case phase == phaseBusy && cut:
			c.Abort()
		default:
			_ = c.sock.Close()
		}
	}
}

// closeListeners closes the listeners. The calling function holds s.mu.
func (s *Server) closeListeners() {
	for ln := range s.listeners {
		_ = ln.Close()
	}
}

// beginRequest counts one capture as running. It returns false if the server is stopping.
func (s *Server) beginRequest() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping.Load() {
		return false
	}
	s.busy++
	return true
}

// endRequest counts one capture less as running. When a stop has begun, it closes drained with the last one.
func (s *Server) endRequest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy--
	if s.busy == 0 && s.stopping.Load() {
		close(s.drained)
	}
}

// Capturer records and answers the requests to aliases. Package delivery implements it.
type Capturer interface {
	// Alias looks up a lower-case label. It reads memory only, so that unknown labels
	// cost no query.
	Alias(label string) (*relay.Alias, bool)
	// FindAlias is like Alias, for a request whose head is complete: FindAlias may also read the alias from
	// the store, a bounded number of times a second.
	FindAlias(label string) (*relay.Alias, bool)
	// Capture handles one request completely: it stores the event, delivers or queues it, and has the
	// response sent. ctx ends when the drain time is over.
	Capture(ctx context.Context, in *relay.Inbound) relay.Outcome
	// Reject tries to store a refused request of a known alias as an event. The server calls it after the answer
	// has been written. Reject must return soon, because the connection keeps its slot until then.
	Reject(in *relay.Inbound, why *relay.Error)
}
