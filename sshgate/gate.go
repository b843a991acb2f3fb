// Package sshgate is the side door: it lets people in by their SSH key, takes
// their remote forwards as tunnels, and is a user interface for whoever opens a
// session.
//
// gliderlabs/ssh is the accept loop and the dispatcher of channels and global
// requests, nothing else. Login is done by callbacks of x/crypto in a fresh
// configuration for every connection; whoever came in is known only from what
// was put into ServerConn.Permissions after the signature had been verified.
package sshgate

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	gliderlabs "github.com/gliderlabs/ssh"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/crypto/ssh"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"relay"
	"relay/record"
)

// Options says what a Gate works with. HostKey, Accounts, Attach, Read, Replay and
// Site are required.
type Options struct {
	HostKey  ssh.Signer // see LoadHostKey
	NextKey  ssh.Signer // the host key that follows it, announced beforehand; nil = none. See LoadNextHostKey
	Accounts Accounts
	Attach   Attacher
	Read     Reader
	Replay   Replayer
	Limits   Limits // nil = none
	Site     relay.Site
	Version  string // shown by the command version; never in the handshake

	// PingInterval is how long a peer may be silent before it is pinged, PingTimeout
	// how long it then has before its tunnels are stale, StaleClose how long the
	// connection is kept after that. 0 = off.
	PingInterval, PingTimeout, StaleClose time.Duration

	// HandshakeTimeout bounds handshake and login together. 0 = 10 s.
	HandshakeTimeout time.Duration
	// IdleClose is how long a connection without forward and session is kept. 0 = 5 s.
	IdleClose time.Duration
	// TakeoverDrain is how long requests may go on, on a connection whose alias
	// was taken over. 0 = 10 s.
	TakeoverDrain time.Duration
	// EnrolTime is how long a proven key waits to be let in, and a prompt for a
	// token to be answered. 0 = 110 s, so that with the handshake it stays within
	// two minutes.
	EnrolTime time.Duration

	// MaxConnections, MaxPerSource and MaxPerAccount limit the number of connections;
	// 0 = no limit. A source is one IPv4 address or one IPv6 /64.
	MaxConnections, MaxPerSource, MaxPerAccount int
	// Trusted are proxies: many people come from their addresses, so that no limit per
	// source and no penalty holds there.
	Trusted []netip.Prefix
	// NoPenalties lets sources in however many logins of theirs failed.
	NoPenalties bool
	// PenaltyExempt are networks that never get a penalty: many people sit behind one
	// address there.
	PenaltyExempt []netip.Prefix

	Registry prometheus.Registerer // gets the figures of docs/metrics.md; nil = none

	Log *slog.Logger // nil = silent
}

// Gate is the SSH server. Its methods are safe for concurrent use.
type Gate struct {
	o       Options
	srv     *gliderlabs.Server
	buffers sync.Pool
	auditor *auditor

	limiter    *connLimiter
	penalties  *penalties
	enrolments *enrolments
	refused    *refused
	metrics    *metrics
	lookups    *semaphore.Weighted // taken by who asks the store, see beginLookup
	waiting    atomic.Int64        // for lookups
	rejecting  chan struct{}       // one for each connection that is told why it is rejected

	rejected, acceptErrors rate.Sometimes // for the log

	firstForward, feedRetry time.Duration // the constants, but in tests

	mu        sync.Mutex
	listeners map[net.Listener]struct{}
	conns     map[*conn]struct{}
	serving   bool
	stopping  bool
}

// New makes a Gate; Serve starts it.
func New(o Options) *Gate {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Limits == nil {
		o.Limits = boundless{}
	}
	o.HandshakeTimeout = orDefault(o.HandshakeTimeout, 10*time.Second)
	o.IdleClose = orDefault(o.IdleClose, 5*time.Second)
	o.TakeoverDrain = orDefault(o.TakeoverDrain, 10*time.Second)
	o.EnrolTime = orDefault(o.EnrolTime, 110*time.Second)
	g := &Gate{
		o:          o,
		limiter:    newConnLimiter(o.MaxConnections, o.MaxPerSource, o.MaxPerAccount),
		penalties:  newPenalties(),
		enrolments: newEnrolments(),
		refused:    newRefused(),
		lookups:    semaphore.NewWeighted(maxLookups),
		rejecting:  make(chan struct{}, maxRejecting),

		rejected:     rate.Sometimes{Interval: logInterval},
		acceptErrors: rate.Sometimes{Interval: logInterval},
		listeners:    map[net.Listener]struct{}{},
		conns:        map[*conn]struct{}{},
	}
	g.firstForward, g.feedRetry = firstForward, feedRetry
	g.metrics = newMetrics(g, o.Registry)
	g.buffers.New = func() any { return new([writePiece]byte) }
	g.auditor = newAuditor(g)
	g.srv = &gliderlabs.Server{
		HostSigners:              []gliderlabs.Signer{o.HostKey},
		Version:                  strings.TrimPrefix(serverVersion, "SSH-2.0-"),
		ConnCallback:             g.admit,
		ServerConfigCallback:     g.config,
		ConnectionFailedCallback: g.failed,
		ChannelHandlers:          map[string]gliderlabs.ChannelHandler{"default": g.channel},
		RequestHandlers:          map[string]gliderlabs.RequestHandler{"default": g.request},
	}
	return g
}

// logInterval is the shortest time between two lines about the same trouble of
// connections that have not logged in.
const logInterval = 10 * time.Second

func orDefault(d, otherwise time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return otherwise
}

// Serve accepts connections on the listener until Shutdown, and then returns nil. It
// closes the listener. It may be called for several listeners.
func (g *Gate) Serve(inner net.Listener) error {
	ln := &retryListener{Listener: inner, g: g, closed: make(chan struct{})}
	g.mu.Lock()
	if g.stopping {
		g.mu.Unlock()
		return errors.Join(net.ErrClosed, ln.Close())
	}
	g.listeners[ln] = struct{}{}
	if !g.serving {
		g.serving = true
		go g.auditor.run()
	}
	g.mu.Unlock()

	err := g.srv.Serve(ln)

	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.listeners, ln)
	if g.stopping {
		return nil
	}
	return err
}

// Announce stops accepting and tells every session that the relay is stopping;
// tunnels go on. Shutdown is to follow.
func (g *Gate) Announce() {
	g.mu.Lock()
	told := g.stopping
	g.stopping = true
	for ln := range g.listeners {
		_ = ln.Close()
	}
	g.mu.Unlock()
	if told {
		return
	}
	for _, c := range g.all() {
		c.tell(stopping())
	}
}

// Shutdown stops accepting, tells every session, lets requests on open channels
// end, and closes each connection when it has none left. When ctx ends first, the
// rest is closed at once and the error of ctx is given. It returns when all
// connections are closed and their holds on aliases are given up. Further calls
// wait likewise.
func (g *Gate) Shutdown(ctx context.Context) error {
	g.Announce()
	conns := g.all()
	for _, c := range conns {
		c.spawn(func() { c.leave(ctx, stopped()) })
	}
	g.mu.Lock()
	serving := g.serving
	g.mu.Unlock()
	if serving {
		g.auditor.stop()
	}
	for _, c := range conns {
		select {
		case <-c.finished:
		case <-ctx.Done():
			_ = c.sock.Close()
		}
	}
	for _, c := range conns {
		<-c.finished
	}
	return ctx.Err()
}

// all is a snapshot of the connections.
func (g *Gate) all() []*conn {
	g.mu.Lock()
	defer g.mu.Unlock()
	conns := make([]*conn, 0, len(g.conns))
	for c := range g.conns {
		conns = append(conns, c)
	}
	return conns
}

type connKey struct{}

func connOf(ctx gliderlabs.Context) *conn {
	c, _ := ctx.Value(connKey{}).(*conn)
	return c
}

// failed is told about connections that never logged in.
func (g *Gate) failed(_ net.Conn, err error) {
	g.o.Log.Debug("ssh connection ended before login", "err", record.SafeTextMax(err.Error(), 300))
}

// request gets every global request, one at a time and in order. It must not
// block: x/crypto reads nothing more while 16 requests wait.
func (g *Gate) request(ctx gliderlabs.Context, _ *gliderlabs.Server, req *ssh.Request) (bool, []byte) {
	c := connOf(ctx)
	sc, _ := ctx.Value(gliderlabs.ContextKeyConn).(*ssh.ServerConn)
	if c == nil || sc == nil {
		return false, nil
	}
	defer c.recovered("request")
	if !c.start(sc) || c.visit != nil {
		return false, nil
	}
	own := *req
	// The reply is ours to give, in order but not now.
	req.WantReply = false
	if own.Type == hostKeysProve {
		c.jobs.post(func() { _ = own.Reply(g.proveHostKeys(sc.SessionID(), own.Payload)) })
		return false, nil
	}
	c.request(&own)
	return false, nil
}

// maxAnswering is how many opens of channels, sessions that run included, a peer may
// have in work: one that does not read keeps each of them.
const maxAnswering = 256

// channel gets every channel open, each in a goroutine of its own.
func (g *Gate) channel(_ *gliderlabs.Server, sc *ssh.ServerConn, open ssh.NewChannel, ctx gliderlabs.Context) {
	c := connOf(ctx)
	if c == nil || !c.start(sc) {
		_ = open.Reject(ssh.ConnectionFailed, "the connection is closing")
		return
	}
	defer c.recovered("channel")
	if c.answering.Add(1) > maxAnswering {
		c.log.Warn("too many unanswered ssh channels")
		_ = c.sock.Close()
		return
	}
	defer c.answering.Add(-1)
	if c.visit != nil {
		c.receive(c.visit, open)
		return
	}
	switch open.ChannelType() {
	case "session":
		c.session(open)
	case "direct-tcpip":
		_ = open.Reject(ssh.Prohibited, "this relay does not connect to other hosts; it takes -R forwards only")
	case "tun@openssh.com", "direct-streamlocal@openssh.com":
		_ = open.Reject(ssh.Prohibited, "this relay takes -R forwards and sessions only")
	default:
		_ = open.Reject(ssh.UnknownChannelType, "this relay takes -R forwards and sessions only")
	}
}
