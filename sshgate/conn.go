package sshgate

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/admission"
	"relay/record"
	"relay/sockets"
	"relay/sshgate/shell"
)

// askTime bounds one call of the store or of delivery.
const askTime = 5 * time.Second

// conn is one SSH connection, from the accept to the end of its last goroutine, or of those that
// x/crypto gives back.
//
// Global requests and the starts of sessions go through post, one after another;
// calls from other packages and timers take mu for a moment.
type conn struct {
	srv      *Server
	sock     *socket
	remote   netip.AddrPort
	ctx      context.Context // ends with the connection
	cancel   context.CancelFunc
	peerCtx  context.Context // ends when a read has failed, at the latest with the connection
	finished chan struct{}   // closed when the connection has ended and holds nothing any more
	slot     admission.Slot
	// penaltyExempt says that its source gets no penalty for it.
	penaltyExempt bool
	version       string      // of the peer, as it said it; set before the handshake
	peer          atomic.Bool // it is that of another node
	rightsVersion int64       // revalidator.version when the login asked whose key it is

	handshake *time.Timer
	idle      *time.Timer
	once      sync.Once
	calls     calls

	// set by start, before anything else of the second half of the struct is used
	sc       *ssh.ServerConn
	who      relay.Actor
	enrolled []string // not nil: the connection is only there to have its key registered, and says this
	user     string
	client   string
	log      *slog.Logger // changed once by start, with mu held
	requests atomic.Int64 // jobs that wait or run, see post
	lazy     atomic.Bool
	pulse    pulse

	evicted   chan struct{}             // closed when the login has waited for a person and is evicted
	lookups   atomic.Int64              // questions of the login and of forwards to the store that have no answer yet
	enrolment atomic.Pointer[enrolment] // that the login waits for
	answering atomic.Int64              // goroutines for channels that the peer has opened

	pings   atomic.Int64 // asked for since the last one was answered
	stale   atomic.Bool
	stateMu sync.Mutex // orders Stale and Online of the attachments

	mu              sync.Mutex
	started         bool
	lastRequest     chan struct{} // closed when the job that was posted last has ended
	dead            bool          // the socket is closed: no new goroutines
	loggedIn        bool
	result          loginResult // why nobody has logged in
	tried           refusal     // what was tried meanwhile, for the operator
	loginDeadline   time.Time   // when the time for the login is over
	draining        bool
	moves           bool          // the client follows NoticeMoving
	moving          chan struct{} // made by move, has an element once the last forward has gone to another node
	forwards        []*forward
	namedWaiting    int // forwards with a name that were asked for and are not looked at yet
	purpose         purpose
	refusals        []shell.Notice
	clientNotices   *noticeSender // made by hello
	targets         map[string]relay.Target
	sessions        map[*session]struct{}
	open            int           // channels to the local server that are in use
	alive           int           // those and the ones that the peer has not closed yet
	closedAt        time.Time     // when the peer closed one last, or was first seen to leave too many
	opening         int           // opens that a request waits for
	unansweredOpens int           // opens without an answer, or answered too late and not closed yet
	drained         chan struct{} // made by leave, closed when open is 0
}

func newConn(srv *Server, tcp net.Conn) *conn {
	userTimeout := srv.o.StaleClose
	if userTimeout > 0 {
		userTimeout += 10 * time.Second
	}
	var stall time.Duration
	if srv.o.PingInterval > 0 {
		stall = srv.o.PingInterval + srv.o.PingTimeout
	}
	c := &conn{
		srv:      srv,
		remote:   sockets.AddrOf(tcp.RemoteAddr()),
		sock:     newSocket(tcp, stall, userTimeout),
		finished: make(chan struct{}),
		calls:    calls{left: &srv.leftCalls},
		evicted:  make(chan struct{}),
		targets:  map[string]relay.Target{},
		sessions: map[*session]struct{}{},
		purpose:  purpose{first: make(chan struct{})},
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.log = srv.o.Log.With("remote", c.remote.String())
	c.sock.onClose = c.end
	c.sock.onHeard = c.noteByte
	c.sock.onFlood = c.loginTooLong
	var peerGone context.CancelFunc
	c.peerCtx, peerGone = context.WithCancel(c.ctx)
	c.sock.onLost = peerGone
	c.slot = admission.Slot{Conn: c, Silent: c.silent, Source: sockets.SourceOf(c.remote.Addr()), OfNode: srv.peers.knows(c.remote.Addr())}
	c.slot.Shared = c.slot.OfNode || srv.shared(c.remote.Addr())
	c.penaltyExempt = srv.o.NoPenalties || c.slot.Shared || sockets.ContainsAddr(srv.o.PenaltyExempt, c.remote.Addr())
	return c
}

// silent returns the time since the peer was heard; 0 while the login waits for this server.
func (c *conn) silent() time.Duration {
	if c.lookups.Load() > 0 {
		return 0
	}
	return c.sock.silentFor()
}

// loginProgress is how long ago a client may have been heard whose login still makes progress.
const loginProgress = 2 * time.Second

// loginTimedOut closes the socket itself: gliderlabs removes deadlines at every read. A
// client that went on until the end, or whose question the store has not answered, was slow
// because this node or its line is busy: that costs its source nothing.
func (c *conn) loginTimedOut() {
	c.mu.Lock()
	late := !c.loggedIn && !time.Now().Before(c.loginDeadline)
	log, refused := c.log, c.result == resultRefused
	c.mu.Unlock()
	if !late {
		return
	}
	log.Debug("ssh login took too long")
	switch {
	case refused: // a client could wait after its refused keys and go on with nothing, at no cost
	case c.silent() < loginProgress:
		c.setResult(resultUnavailable)
	default:
		c.setResult(resultTimeout)
	}
	_ = c.sock.Close()
}

// loginTooLong notes that the peer has sent more than maxLoginBytes before its login.
func (c *conn) loginTooLong() {
	c.srv.o.Log.Debug("ssh client sent too much before its login", "remote", c.remote.String())
	c.setResult(resultRefused)
}

// extendLogin gives the rest of the login this much time. The whole login takes at most
// EnrolTime and HandshakeTimeout together.
func (c *conn) extendLogin(d time.Duration) {
	o := &c.srv.o
	d = min(d, o.EnrolTime+o.HandshakeTimeout-time.Since(c.sock.start))
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.dead && !c.loggedIn {
		c.loginDeadline = time.Now().Add(d)
		c.handshake.Reset(d)
	}
}

// setResult notes why there is no login so far. The last call counts, unless the
// reason was on our side.
func (c *conn) setResult(f loginResult) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.result != resultUnavailable && !c.loggedIn {
		c.result = f
	}
}

// loginSucceeded is called when a login has succeeded.
func (c *conn) loginSucceeded() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.loggedIn = true
	c.sock.loggedIn.Store(true)
	c.handshake.Stop()
	c.slot.SetClass(admission.LoggedIn)
	c.srv.metrics.logins.WithLabelValues(loginOK).Inc()
	c.srv.penalties.Forgive(c.slot.Source)
	if !c.dead {
		c.idle = time.AfterFunc(c.srv.o.IdleClose, c.closeIdle)
	}
}

// start is called before the first use of an open connection; false means that it
// is of no use.
func (c *conn) start(sc *ssh.ServerConn) bool {
	c.once.Do(func() {
		if sc.Permissions == nil { // no signature was verified
			_ = c.sock.Close()
			return
		}
		who, ok := sc.Permissions.ExtraData[actorKey{}].(relay.Actor)
		if !ok {
			_ = c.sock.Close()
			return
		}
		c.enrolled, _ = sc.Permissions.ExtraData[enrolledKey{}].([]string)
		c.who, c.user, c.client = who, sc.User(), clientName(sc.ClientVersion())
		c.sc = sc
		c.mu.Lock()
		c.log = c.log.With("account", who.AccountName) // timers may be using it
		c.started = true
		c.pulse.timer = time.AfterFunc(c.keepalivePause(0, 0), func() { c.spawn(c.keepalive) })
		if c.dead {
			c.pulse.timer.Stop()
		}
		c.mu.Unlock()
		c.srv.revalidator.recheckIfChanged(c, c.rightsVersion)
		if c.enrolled == nil {
			c.spawn(c.announceHostKeys)
		}
	})
	return c.sc != nil
}

// spawn runs f in a goroutine that the end of the connection waits for, if it does not take
// long; false when the connection has ended.
func (c *conn) spawn(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return false
	}
	c.calls.begin()
	c.srv.work.Go(func() {
		defer c.calls.done()
		defer c.recovered("connection")
		f()
	})
	return true
}

// recovered is deferred in everything that runs for the peer: a panic ends its
// connection and no other.
func (c *conn) recovered(where string) {
	if r := recover(); r != nil {
		c.log.Error("panic in the ssh server", "where", where, "panic", r, "stack", string(debug.Stack()))
		_ = c.sock.Close()
	}
}

// end is called once, when the socket has been closed by anyone.
func (c *conn) end() {
	c.mu.Lock()
	c.dead = true
	c.calls.end() // under mu, so that spawn sees both
	c.cancel()    // first: keepalive starts its timer again as long as the context has not ended
	for _, timer := range []*time.Timer{c.handshake, c.idle, c.pulse.timer} {
		if timer != nil {
			timer.Stop()
		}
	}
	forwards := c.forwards
	c.forwards = nil
	c.mu.Unlock()
	go func() {
		defer close(c.finished)
		defer c.srv.forget(c)
		defer c.recovered("end")
		for _, f := range forwards {
			f.detach(false)
		}
		c.calls.wait(endGrace)
	}()
}

// closeIdle closes a connection that nobody uses for anything.
func (c *conn) closeIdle() {
	c.mu.Lock()
	unused := len(c.forwards) == 0 && c.activeSessions() == 0 && !c.draining && c.moving == nil && !c.dead
	if unused && (c.requests.Load() > 0 || c.open+c.opening > 0) { // a request to a canceled forward may be under way
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

// updateIdleTimer is called with mu held when forwards or sessions came or went.
func (c *conn) updateIdleTimer() {
	if c.dead || c.idle == nil {
		return
	}
	if len(c.forwards) == 0 && c.activeSessions() == 0 {
		c.idle.Reset(c.srv.o.IdleClose)
	} else {
		c.idle.Stop()
	}
}

// clientName is the software of the peer without protocol and comment, such as
// OpenSSH_9.2p1 (RFC 4253, section 4.2).
func clientName(version []byte) string {
	name := string(version)
	if len(name) > len("SSH-2.0-") {
		name = name[len("SSH-2.0-"):]
	}
	name, _, _ = strings.Cut(name, " ")
	return record.SafeTextMax(name, 64)
}

// maxQueuedRequests is how many global requests may wait for their answer. OpenSSH sends
// one for each -R, all at once.
const maxQueuedRequests = 256

// post runs a job after those that were posted before it, and never blocks. More than
// maxQueuedRequests end the connection.
func (c *conn) post(job func()) {
	if c.requests.Add(1) > maxQueuedRequests {
		c.log.Warn("too many unanswered ssh requests")
		_ = c.sock.Close()
		return
	}
	done := make(chan struct{})
	c.mu.Lock()
	before := c.lastRequest
	c.lastRequest = done
	c.mu.Unlock()
	run := func() {
		defer close(done)
		defer c.requests.Add(-1)
		if before != nil {
			select {
			case <-before:
			case <-c.ctx.Done(): // the job before may be left in x/crypto
			}
		}
		if c.ctx.Err() == nil {
			job()
		}
	}
	if !c.spawn(run) { // the connection has ended, and with it the jobs before this one
		c.requests.Add(-1)
		close(done)
	}
}
