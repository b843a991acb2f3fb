package sshgate

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/record"
)

// askTime bounds one question to the store or the engine room.
const askTime = 5 * time.Second

// conn is one SSH connection, from the accept to the end of its last goroutine.
//
// Global requests and the starts of sessions go through jobs, one after another;
// what other rooms and timers do takes mu for a moment.
type conn struct {
	gate     *Gate
	sock     *socket
	remote   netip.AddrPort
	ctx      context.Context // ends with the connection
	cancel   context.CancelFunc
	peerCtx  context.Context // ends when a read has failed, at the latest with the connection
	finished chan struct{}   // closed when nothing of the connection runs any more
	slot     slot
	// penaltyExempt says that its source gets no penalty for it.
	penaltyExempt bool
	version       string // of the peer, as it said it; set before the handshake
	asOf          int64  // what auditor.rights was when the login asked whose key it is

	handshake *time.Timer
	idle      *time.Timer
	once      sync.Once
	wg        sync.WaitGroup

	// set by start, before anything else of the second half of the struct is used
	sc     *ssh.ServerConn
	who    relay.Actor
	visit  *visit // the connection is only there to have its key registered
	user   string
	client string
	log    *slog.Logger // changed once by start, with mu held
	jobs   *mailbox
	lazy   atomic.Bool
	wake   chan struct{} // to watch: a byte came while stale
	staled chan struct{} // to watch: somebody else has found the peer silent

	lookups   atomic.Int64 // questions of the login and of forwards to the store that have no answer yet
	answering atomic.Int64 // goroutines for channels that the peer has opened

	pings   atomic.Int64 // asked for since the last one was answered
	stale   atomic.Bool
	stateMu sync.Mutex // orders Stale and Online of the attachments

	mu       sync.Mutex
	started  bool
	dead     bool // the socket is closed: no new goroutines
	loggedIn bool
	fault    fault     // why nobody has logged in
	patience time.Time // when the time for the login is over
	received bool      // the one session of a visit was there
	leaving  bool
	forwards []*forward
	refused  []notice
	targets  map[string]relay.Target
	sessions map[*session]struct{}
	open     int           // channels to the local server that are in use
	alive    int           // those and the ones that the peer has not closed yet
	closedAt time.Time     // when the peer closed one last, or was first seen to leave too many
	counting bool          // too many are left, and countUnclosed looks after it
	asked    int           // opens without an answer, or answered too late and not closed yet
	drained  chan struct{} // made by leave, closed when open is 0
}

func newConn(g *Gate, tcp net.Conn) *conn {
	userTimeout := g.o.StaleClose
	if userTimeout > 0 {
		userTimeout += 10 * time.Second
	}
	var stall time.Duration
	if g.o.PingInterval > 0 {
		stall = g.o.PingInterval + g.o.PingTimeout
	}
	c := &conn{
		gate:     g,
		sock:     newSocket(tcp, stall, userTimeout),
		finished: make(chan struct{}),
		jobs:     newMailbox(),
		wake:     make(chan struct{}, 1),
		staled:   make(chan struct{}, 1),
		targets:  map[string]relay.Target{},
		sessions: map[*session]struct{}{},
	}
	if a, err := netip.ParseAddrPort(tcp.RemoteAddr().String()); err == nil {
		c.remote = netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.log = g.o.Log.With("remote", c.remote.String())
	c.sock.onClose = c.end
	c.sock.onHeard = c.heard
	var peerGone context.CancelFunc
	c.peerCtx, peerGone = context.WithCancel(c.ctx)
	c.sock.onLost = peerGone
	c.slot = slot{c: c, source: sourceOf(c.remote.Addr()), shared: g.shared(c.remote.Addr())}
	c.penaltyExempt = g.penaltyExempt(c.remote.Addr())
	return c
}

// tooSlow closes the socket itself: a deadline would be wiped by the next read.
func (c *conn) tooSlow() {
	c.mu.Lock()
	late := !c.loggedIn && !time.Now().Before(c.patience)
	log := c.log
	c.mu.Unlock()
	if late {
		log.Debug("ssh login took too long")
		c.blame(faultSlow)
		_ = c.sock.Close()
	}
}

// allow gives the rest of the login this much time, within what a login may take
// at most with a person in it.
func (c *conn) allow(d time.Duration) {
	o := &c.gate.o
	d = min(d, o.EnrolTime+o.HandshakeTimeout-time.Since(c.sock.start))
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.dead && !c.loggedIn {
		c.patience = time.Now().Add(d)
		c.handshake.Reset(d)
	}
}

// fault is why a connection has led to no login.
type fault int

const (
	faultSilent  fault = iota // not a byte came, as of a health check
	faultNothing              // something came, but no try to log in
	faultNone                 // nobody's
	faultOurs                 // the store could not answer, or there was no place
	faultRefused              // a login was refused
	faultSlow                 // the time for it ran out
)

// blame notes why there is no login so far: the last word counts, unless it was
// ours to blame.
func (c *conn) blame(f fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fault != faultOurs && !c.loggedIn {
		c.fault = f
	}
}

// entered is called when a login has succeeded.
func (c *conn) entered() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.loggedIn = true
	c.handshake.Stop()
	c.gate.limiter.loggedIn(&c.slot)
	c.gate.metrics.login()
	c.gate.penalties.forgive(c.slot.source)
	if !c.dead {
		c.idle = time.AfterFunc(c.gate.o.IdleClose, c.idleOut)
	}
}

// start is called before the first use of an open connection; false means that it
// is of no use.
func (c *conn) start(sc *ssh.ServerConn) bool {
	c.once.Do(func() {
		who, ok := identity(sc.Permissions)
		if !ok {
			_ = c.sock.Close()
			return
		}
		c.visit = visiting(sc.Permissions)
		c.who, c.user, c.client = who, sc.User(), clientName(sc.ClientVersion())
		c.sc = sc
		c.mu.Lock()
		c.log = c.log.With("account", who.AccountName) // timers may be using it
		c.started = true
		c.mu.Unlock()
		c.gate.auditor.since(c.asOf)
		c.spawn(func() { c.jobs.run(c.ctx, c.overflow) })
		c.spawn(c.watch)
		if c.visit == nil {
			c.spawn(c.announceHostKeys)
		}
	})
	return c.sc != nil
}

// spawn runs f in a goroutine that the end of the connection waits for; false
// when the connection has ended.
func (c *conn) spawn(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return false
	}
	c.wg.Add(1)
	go func() {
		defer c.wg.Done()
		defer c.recovered("connection")
		f()
	}()
	return true
}

// recovered is deferred in everything that runs for the peer: a panic ends its
// connection and no other.
func (c *conn) recovered(where string) {
	if r := recover(); r != nil {
		c.log.Error("panic in the ssh gate", "where", where, "panic", r, "stack", string(debug.Stack()))
		_ = c.sock.Close()
	}
}

func (c *conn) overflow() {
	c.log.Warn("too many unanswered ssh requests")
	_ = c.sock.Close()
}

// end is called once, when the socket has been closed by anyone.
func (c *conn) end() {
	c.mu.Lock()
	c.dead = true
	if c.handshake != nil {
		c.handshake.Stop()
	}
	if c.idle != nil {
		c.idle.Stop()
	}
	forwards := c.forwards
	c.forwards = nil
	c.mu.Unlock()
	c.cancel()
	go func() {
		defer close(c.finished)
		defer c.gate.forget(c)
		defer c.recovered("end")
		for _, f := range forwards {
			f.detach(false)
		}
		c.wg.Wait()
	}()
}

// idleOut closes a connection that nobody uses for anything.
func (c *conn) idleOut() {
	c.mu.Lock()
	unused := len(c.forwards) == 0 && c.busy() == 0 && !c.leaving && !c.dead
	if unused && c.jobs.busy() {
		unused = false
		c.idle.Reset(time.Second)
	}
	log := c.log
	c.mu.Unlock()
	if unused {
		log.Debug("ssh connection without forward and session closed")
		_ = c.sock.Close()
	}
}

// used is called with mu held when forwards or sessions came or went.
func (c *conn) used() {
	if c.dead || c.idle == nil {
		return
	}
	if len(c.forwards) == 0 && c.busy() == 0 {
		c.idle.Reset(c.gate.o.IdleClose)
	} else {
		c.idle.Stop()
	}
}

// ask is the context of one question to another room.
func (c *conn) ask() (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.ctx, askTime)
}

// clientName is the software of the peer without protocol and comment, such as
// OpenSSH_9.2p1 (RFC 4253, section 4.2).
func clientName(version []byte) string {
	name := string(version)
	if len(name) > len("SSH-2.0-") {
		name = name[len("SSH-2.0-"):]
	}
	for i := range len(name) {
		if name[i] == ' ' {
			name = name[:i]
			break
		}
	}
	return record.SafeTextMax(name, 64)
}
