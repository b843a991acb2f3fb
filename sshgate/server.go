// Package sshgate is the SSH server: it authenticates users by their SSH key, accepts their remote forwards
// as tunnels, and serves sessions as a text interface.
//
// gliderlabs/ssh runs only the accept loop; package link makes the handshakes. Login uses callbacks of x/crypto in a
// new configuration for every connection. The identity of a connection comes only from the permissions that are set
// after the signature of the client was verified.
package sshgate

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	gliderlabs "github.com/gliderlabs/ssh"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/crypto/ssh"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"relay"
	"relay/admission"
	"relay/budget"
	"relay/link"
	"relay/sshgate/login"
	"relay/sshgate/node"
	"relay/sshgate/session"
	"relay/sshgate/shell"
)

// Options configure a Server. HostKeys, Accounts, Attach, Limits, Site and API are required.
type Options struct {
	// HostKeys are all announced to clients. The first key of each type is in use. The others are future host
	// keys, which clients should know before they are used.
	HostKeys []ssh.Signer
	Accounts Accounts
	Attach   Attacher
	Limits   shell.Limits
	Site     relay.Site
	Version  string // the command version shows it; the handshake never does

	// API returns the HTTP server for one channel with the subsystem relay-api, or for one command. Its
	// handler acts for the given account.
	API func(who relay.Actor) *http.Server
	// StallTimeout is how long output of an API channel or a command waits for a peer that reads nothing, and how
	// long an API channel waits for the whole body of a request; 0 = 30 s. See node.Options for its use between
	// nodes.
	StallTimeout time.Duration

	// PingInterval is the silence after which a peer is pinged. After a further silence of PingTimeout its
	// tunnels become stale, and after a further silence of StaleClose its connection is closed. 0 = off.
	PingInterval, PingTimeout, StaleClose time.Duration

	// HandshakeTimeout bounds handshake and login together. 0 = 10 s.
	HandshakeTimeout time.Duration
	// IdleClose is how long a connection without forward and session stays open. 0 = 5 s.
	IdleClose time.Duration
	// TakeoverDrain is how long requests may continue on a connection whose alias was taken over. 0 = 10 s.
	TakeoverDrain time.Duration
	// DrainTime is how long requests may continue on a connection that is sent to another node; negative = no
	// limit.
	DrainTime time.Duration
	// EnrolTime is how long a proven key waits for its approval, and a prompt for its answer. 0 = 110 s,
	// so that the handshake and the wait together take less than two minutes.
	EnrolTime time.Duration

	// MaxConnections, MaxPerSource and MaxPerAccount limit the number of connections;
	// 0 = no limit. A source is one IPv4 address or one IPv6 /64.
	MaxConnections, MaxPerSource, MaxPerAccount int
	// MaxUnauthenticated limits the connections that have not logged in yet (0 = 1,024), and MaxPrompts the
	// logins that wait for a user (0 = 256).
	MaxUnauthenticated, MaxPrompts int
	// Admission is shared with the servers of other protocols, whose connections count too; nil = this server has one
	// of its own.
	Admission *admission.Limiter
	// Budget bounds the unread bytes of tunnel channels; nil = no bound.
	Budget *budget.Budget
	// Trusted are the networks of proxies. Many users share the address of a proxy, so neither limits per source
	// nor penalties apply to it.
	Trusted []netip.Prefix
	// NoClaim means that the forward of a name that is no alias yet is refused instead of creating the alias.
	NoClaim bool
	// NoPenalties: failed logins never lead to a penalty.
	NoPenalties bool
	// PenaltyExempt are networks whose addresses never get a penalty, for example because many users share one of
	// them.
	PenaltyExempt []netip.Prefix

	Now func() time.Time // clock for penalties; nil = time.Now

	// Peers connects this node with the other nodes of the store.
	Peers PeerOptions

	Registry prometheus.Registerer // for the metrics of docs/metrics.md; nil = none

	Log *slog.Logger // nil = silent
}

// Server is the SSH server. Its methods are safe for concurrent use.
type Server struct {
	o           Options
	acceptor    *gliderlabs.Server
	work        *link.Workers // goroutines that run the functions of connections and channels
	revalidator *revalidator

	front     *admission.Front
	penalties *admission.Penalties
	metrics   *metrics
	nodes     *node.Links
	logins    *login.Logins
	rejecting *semaphore.Weighted // limits the connections that are told why they are rejected

	rejected, acceptErrors rate.Sometimes // limit the log lines about rejected connections and about errors of Accept

	sessions session.Config
	moving   atomic.Bool   // whether Move is in effect
	moveWait time.Duration // only tests change this value

	mu        sync.Mutex
	listeners map[net.Listener]struct{}
	conns     map[*conn]struct{}
	stopping  bool
}

// New returns a Server; Serve starts it.
func New(o Options) *Server {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	o.HandshakeTimeout = cmp.Or(o.HandshakeTimeout, 10*time.Second)
	o.IdleClose = cmp.Or(o.IdleClose, 5*time.Second)
	o.TakeoverDrain = cmp.Or(o.TakeoverDrain, 10*time.Second)
	o.EnrolTime = cmp.Or(o.EnrolTime, 110*time.Second)
	o.MaxUnauthenticated = cmp.Or(o.MaxUnauthenticated, 1024)
	if o.Admission == nil {
		o.Admission = admission.NewLimiter(admission.FileLimit())
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.StallTimeout = cmp.Or(o.StallTimeout, 30*time.Second)
	srv := &Server{
		o: o,
		front: o.Admission.Front(admission.Limits{
			Total: o.MaxConnections, PerSource: o.MaxPerSource, PerAccount: o.MaxPerAccount,
			Unknown: o.MaxUnauthenticated, Prompts: o.MaxPrompts, Elsewhere: o.Peers.Connections,
		}),
		penalties: admission.NewPenalties(o.Now),
		rejecting: semaphore.NewWeighted(maxRejecting),
		work:      link.NewWorkers(),

		rejected:     rate.Sometimes{Interval: login.LogInterval},
		acceptErrors: rate.Sometimes{Interval: login.LogInterval},
		listeners:    map[net.Listener]struct{}{},
		conns:        map[*conn]struct{}{},
	}
	srv.nodes = srv.newNodes()
	srv.logins = srv.newLogins()
	srv.moveWait = moveWait
	srv.sessions = session.Config{
		Shell: shell.Config{
			Accounts: o.Accounts, Tunnels: o.Attach, Limits: o.Limits, Site: o.Site, Version: o.Version,
			NoClaim: o.NoClaim, FirstForward: shell.FirstForward, FeedRetry: shell.FeedRetry,
		},
		API: o.API, Budget: o.Budget, StallTimeout: o.StallTimeout,
	}
	srv.metrics = newMetrics(srv, o.Registry)
	srv.revalidator = &revalidator{srv: srv, due: scope{}}
	srv.revalidator.ctx, srv.revalidator.cancel = context.WithCancel(context.Background())
	// The acceptor never uses its handler and key, because serve takes each connection. Handler and key are
	// set here, because each call of Serve would set missing ones without a lock.
	srv.acceptor = &gliderlabs.Server{
		ConnCallback: srv.serve, Handler: func(gliderlabs.Session) {}, HostSigners: []gliderlabs.Signer{o.HostKeys[0]},
	}
	return srv
}

func (srv *Server) newLogins() *login.Logins {
	o := &srv.o
	return login.New(login.Options{
		Accounts: o.Accounts, Status: func(ctx context.Context, aliases []relay.Alias) ([]relay.AliasStatus, error) {
			return o.Attach.Status(ctx, aliases)
		}, Create: o.Limits.Create, Site: o.Site, NoClaim: o.NoClaim,
		HandshakeTimeout: o.HandshakeTimeout, EnrolTime: o.EnrolTime,
		RightsVersion: func() int64 { return srv.revalidator.version.Load() },
		Enrolled:      func(how string) { srv.metrics.enrolls.WithLabelValues(how).Inc() }, Log: o.Log,
	})
}

// serverVersion is the version line of relayd. It contains no build number.
const serverVersion = "SSH-2.0-relayd"

// Serve accepts connections on the listener until Shutdown, and then returns nil. It
// closes the listener. It may be called for several listeners.
func (srv *Server) Serve(inner net.Listener) error {
	ln := &retryListener{inner, srv}
	srv.mu.Lock()
	if srv.stopping {
		srv.mu.Unlock()
		return errors.Join(net.ErrClosed, ln.Close())
	}
	srv.listeners[ln] = struct{}{}
	if srv.o.Peers.Nodes != nil {
		srv.nodes.Start()
	}
	srv.mu.Unlock()

	err := srv.acceptor.Serve(ln)

	srv.mu.Lock()
	defer srv.mu.Unlock()
	delete(srv.listeners, ln)
	if srv.stopping {
		return nil
	}
	return err
}

// Announce stops accepting connections and tells every session that the relay is stopping. Tunnels continue.
// Call Shutdown afterwards.
func (srv *Server) Announce() {
	srv.mu.Lock()
	told := srv.stopping
	srv.stopping = true
	for ln := range srv.listeners {
		_ = ln.Close()
	}
	srv.mu.Unlock()
	if told {
		return
	}
	for _, c := range srv.all() {
		c.notify(shell.Notice{Kind: relay.NoticeStopping, Message: shell.StoppingText})
	}
}

// Shutdown stops accepting, notifies every session, lets requests on open channels end, and closes each
// connection after its last request. When ctx ends first, Shutdown closes the remaining connections at once
// and returns the error of ctx. It returns when all connections are closed and have released their aliases,
// but at the latest closeTime after the end of ctx. Further calls wait for the same end.
func (srv *Server) Shutdown(ctx context.Context) error {
	srv.Announce()
	conns := srv.users()
	for _, c := range conns {
		c.Go("drain", func() { c.drain(ctx, stopped) })
	}
	late, cancel := soonAfter(ctx, closeTime)
	defer cancel()
	srv.revalidator.stop(late)
	stopCutting := context.AfterFunc(ctx, func() {
		for _, c := range conns {
			c.Close(link.Stopped)
		}
	})
	defer stopCutting()
	awaitAll(late, conns)
	srv.nodes.Stop(ctx)
	left := srv.all() // connections of other nodes; their channels have ended with those of the clients
	for _, c := range left {
		c.Close(link.Stopped)
	}
	awaitAll(late, left)
	srv.work.Close()
	return ctx.Err()
}

// closeTime is the longest time that Shutdown takes after the end of its ctx.
const closeTime = link.EndTime + 500*time.Millisecond

// awaitAll waits until connections have ended, at most until ctx ends.
func awaitAll(ctx context.Context, conns []*conn) {
	for _, c := range conns {
		select {
		case <-c.Done():
		case <-ctx.Done():
			return
		}
	}
}

// AccountConnections returns the number of connections of accounts at this node. It leaves out accounts that
// are far below the limit.
func (srv *Server) AccountConnections() map[int64]int { return srv.front.AccountsToTell() }

// all returns a snapshot of the connections.
func (srv *Server) all() []*conn {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	return slices.Collect(maps.Keys(srv.conns))
}

// users returns a snapshot of the connections of users, without those of other nodes.
func (srv *Server) users() []*conn {
	return slices.DeleteFunc(srv.all(), func(c *conn) bool { return c.ofNode.Load() })
}

// request gets every global request, one at a time and in order, and queues it after the earlier requests.
// Replies carry no id, so even a refusal is sent in turn.
func (c *conn) request(req *link.Request) {
	n := len(req.Type) + len(req.Payload)
	if c.enrolled != nil || n > maxRequest && n > len(hostKeysProve)+len(c.srv.hostKeyList()) {
		req.Type, req.Payload = "", nil // a request that will be refused takes no memory while it waits
	}
	served := []string{"tcpip-forward", "cancel-tcpip-forward", relay.HelloRequest, relay.TargetRequest}
	if !req.WantReply && !slices.Contains(served, req.Type) {
		return
	}
	var asked *forward
	if req.Type == "tcpip-forward" {
		asked = c.askForward(req.Payload)
	}
	c.post(func() {
		ok, payload, then := false, []byte(nil), func() {}
		switch req.Type {
		case "tcpip-forward":
			ok, payload, then = c.forward(asked)
		case "cancel-tcpip-forward":
			ok = c.cancelForward(req.Payload)
		case relay.HelloRequest:
			ok = c.hello(req.Payload)
		case relay.TargetRequest:
			ok = c.target(req.Payload)
		case hostKeysProve:
			ok, payload = c.srv.proveHostKeys(c.meta, req.Payload)
		}
		_ = req.Reply(ok, payload)
		then()
	})
}

// maxRequest is the largest total length of type and payload of a global request, in bytes. Only the request
// for proofs of all host keys may be longer. x/crypto would accept packets of 256 KiB, and maxQueuedRequests
// requests may wait in memory.
const maxRequest = 1 << 10

// maxAnswering is the largest number of channel opens of a peer that are being handled, including running
// sessions. It is bounded because a peer that does not read makes the answer to each open wait.
const maxAnswering = 256

// offered gets every channel open, and handles it in a goroutine.
func (c *conn) offered(open *link.Offer) {
	if c.answering.Add(1) > maxAnswering {
		c.closeFlooded("channels")
		return
	}
	answer := func() { c.refuseChannel(open) }
	if open.Type() == "session" {
		answer = c.sessions.Offered(open, c.who, c.enrolled)
	}
	run := func() {
		defer c.answering.Add(-1)
		defer c.Recovered("channel")
		answer()
	}
	if !c.Go("channel", run) {
		go run() // the connection has ended, so the calls of x/crypto in run fail at once
	}
}

// refuseChannel rejects a channel, and tells the client which channels it may open.
func (c *conn) refuseChannel(open *link.Offer) {
	switch kind := open.Type(); {
	case c.enrolled != nil:
		_ = open.Reject(link.Prohibited, "a connection of "+login.EnrolUser+"@ registers a key and does nothing else; connect without "+login.EnrolUser+"@")
	case kind == "direct-tcpip":
		_ = open.Reject(link.Prohibited, "this relay does not connect to other hosts; it takes -R forwards only")
	case kind == "tun@openssh.com" || kind == "direct-streamlocal@openssh.com":
		_ = open.Reject(link.Prohibited, "this relay takes -R forwards and sessions only")
	default:
		_ = open.Reject(link.UnknownType, "this relay takes -R forwards and sessions only")
	}
}

// Attacher attaches tunnels to aliases. Package delivery implements it.
type Attacher interface {
	shell.Tunnels
	// Attach makes t the tunnel of the alias at once. It calls Close("taken over by a newer connection") of
	// the former tunnel.
	Attach(a *relay.Alias, t relay.Tunnel) relay.Attachment
}

// Accounts finds accounts and their aliases. Package store implements it.
type Accounts interface {
	shell.Accounts
	login.Accounts
	// ClaimAlias returns an alias that the actor may attach: one that it owns or is a member of, or an
	// unowned valid name, which it claims if claiming is on. The error is ErrNotFound, with the same text for
	// an alias of another account and, with claiming off, for an unknown name; validation-failed for invalid
	// and reserved names; conflict at the limit of aliases.
	ClaimAlias(ctx context.Context, who relay.Actor, name string) (*relay.Alias, error)
	// NoteRefusedForward stores for the dashboard that a forward was refused to an account.
	// NoteAllowedForward deletes the refusals of a bind address. They never block.
	NoteRefusedForward(account int64, x relay.RefusedForward)
	NoteAllowedForward(account int64, bind string)
	// Revoked returns those of the given rights that are no longer valid.
	Revoked(ctx context.Context, rights []relay.Right) ([]relay.Right, error)
}

// soonAfter returns a context that ends when ctx has ended and the duration d has passed since. It limits how long
// Shutdown waits.
func soonAfter(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	late, cancel := context.WithCancel(context.Background())
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(d, cancel) })
	return late, func() {
		stop()
		cancel()
	}
}
