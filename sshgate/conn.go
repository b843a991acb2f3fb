package sshgate

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/admission"
	"relay/link"
	"relay/sockets"
	"relay/sshgate/login"
	"relay/sshgate/node"
	"relay/sshgate/session"
	"relay/sshgate/shell"
)

// askTime is the longest time for one call of the store or of delivery.
const askTime = 5 * time.Second

// conn is one SSH connection, from the accept to the end of its last goroutine.
//
// Global requests and the starts of sessions run one after another, through post.
type conn struct {
	*link.Conn
	srv    *Server
	remote netip.AddrPort
	slot   admission.Slot
	// penaltyExempt: the source of the connection gets no penalty.
	penaltyExempt bool
	login         *login.Login
	ofNode        atomic.Bool // the peer is another node

	// The method start sets these fields before anything uses them.
	meta     ssh.ConnMetadata
	who      relay.Actor
	enrolled []string // if not nil, the connection only registers a key, and its sessions print these lines
	user     string

	// These types guard their own fields. If two of their mutexes are locked together, that of forwards is
	// locked first.
	forwards  forwardSet
	requests  requestQueue
	announced announced
	notices   notices
	usage     usage
	sessions  *session.Sessions
	answering atomic.Int64 // number of goroutines for channels that the client has opened

	started  atomic.Bool // the account of the login is known
	draining atomic.Bool
	moving   atomic.Bool
	moved    chan struct{} // gets an element when the aliases of all forwards here are online at the node to which the client moves
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
		srv:    srv,
		remote: sockets.AddrOf(tcp.RemoteAddr()),
		moved:  make(chan struct{}, 1),
	}
	peerCtx, peerGone := context.WithCancel(context.Background())
	options := link.Options{
		Workers: srv.work, Log: srv.o.Log.With("from", c.remote.String()), Stall: stall, UserTimeout: userTimeout,
		Keepalive: link.Keepalive{
			Interval: srv.o.PingInterval, Timeout: srv.o.PingTimeout, Close: srv.o.StaleClose, Stale: c.wentStale, Back: c.cameBack,
		},
		Flood: func() { c.login.Flooded() }, Lost: peerGone, LogEnd: c.logEnd,
		Closed: func() {
			peerGone()
			c.closed()
		},
		Ended: c.detachAll, Gone: func() { srv.forget(c) },
	}
	c.Conn = link.New(tcp, options)
	c.sessions = session.New(session.Options{Config: &srv.sessions, Conn: c.Conn, Remote: c.remote, Gate: c, Post: c.post, Used: c.usage.add, OnBegin: func(who relay.Actor, command bool) { c.login.Began(who, command) }})
	c.login = srv.logins.Login(c.Conn, c, c.remote, peerCtx)
	c.slot = admission.Slot{Conn: c, Silent: c.login.Silent, Source: sockets.SourceOf(c.remote.Addr()), OfNode: srv.nodes.Knows(c.remote.Addr())}
	c.slot.Shared = c.slot.OfNode || srv.shared(c.remote.Addr())
	c.penaltyExempt = srv.o.NoPenalties || c.slot.Shared || sockets.ContainsAddr(srv.o.PenaltyExempt, c.remote.Addr())
	return c
}

// ReserveAccount implements login.Slot.
func (c *conn) ReserveAccount(account int64) bool {
	return c.srv.front.ReserveAccount(&c.slot, account)
}

// BeginPrompt implements login.Slot.
func (c *conn) BeginPrompt() bool {
	evicted, ok := c.srv.front.BeginPrompt(&c.slot)
	if evicted != nil {
		c.srv.metrics.drop(admission.ReasonUnauthenticated)
		evicted.Conn.(*conn).login.EvictPrompt()
	}
	return ok
}

// EndPrompt implements login.Slot.
func (c *conn) EndPrompt() { c.slot.SetClass(admission.Unknown) }

// LoggedIn implements login.Slot.
func (c *conn) LoggedIn() {
	c.slot.SetClass(admission.LoggedIn)
	c.srv.metrics.logins.WithLabelValues(loginOK).Inc()
	c.srv.penalties.Forgive(c.slot.Source)
	c.usage.begin(c.srv.o.IdleClose, c.closeIdle)
}

// nodeLoggedIn is called when the peer has proven that it is another node.
func (c *conn) nodeLoggedIn() {
	c.login.Succeed()
	c.slot.SetClass(admission.Node)
}

// serve runs the handshake with a client and serves the connection until its end.
func (c *conn) serve() {
	config := c.login.Config()
	config.ServerVersion = serverVersion
	for _, key := range slices.Backward(c.srv.o.HostKeys) { // AddHostKey replaces a key of the same type, so the first key of each type is added last
		config.AddHostKey(key)
	}
	// The context has no deadline: the timer of c.login closes the connection, which ends the handshake. The
	// error of Accept then says more than the error of a context would.
	if err := c.Accept(context.Background(), config, link.Handlers{LoggedIn: c.start, Channel: c.offered, Request: c.request}); err != nil {
		c.srv.logins.HandshakeFailed(c.remote, c.Cause(), err)
	}
}

// start is called when the client has logged in, before its first channel or request.
func (c *conn) start(meta ssh.ConnMetadata, p *ssh.Permissions) {
	who, enrolled, ok := login.Identity(p)
	if !ok {
		c.Close(link.LoginFailed)
		return
	}
	client := login.ClientName(meta.ClientVersion())
	c.who, c.enrolled, c.user, c.meta = who, enrolled, meta.User(), meta
	c.announced.setClient(client)
	c.SetLog(c.Log().With("account", who.AccountName))
	c.started.Store(true)
	c.sessions.LoggedIn(client)
	c.srv.revalidator.recheckIfChanged(c, c.login.RightsVersion())
	if c.enrolled == nil {
		c.Go("host keys", c.announceHostKeys)
	}
}

// wentStale marks every tunnel of the connection as stale and notifies the client.
func (c *conn) wentStale() {
	for _, f := range c.attached() {
		f.att.Stale()
		c.notify(shell.Notice{Kind: relay.NoticeStale, Alias: f.alias.Name})
	}
	c.srv.nodes.Lose(func(t node.Tunnel) bool { return t.(*forward).c == c })
}

// cameBack marks every tunnel of the connection as online again after wentStale, and notifies the client.
func (c *conn) cameBack() {
	for _, f := range c.attached() {
		f.att.Online()
		c.notify(f.online())
	}
}
