// Package sshgate is the SSH server: it authenticates users by their SSH key, accepts their remote
// forwards as tunnels, and serves sessions as a text interface.
//
// gliderlabs/ssh is only the accept loop; package link makes the handshakes. Login uses callbacks of x/crypto
// in a new configuration for every connection. The identity of a connection comes only from the permissions
// that are filled after the signature was verified.
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
	// HostKeys are all announced to clients. The first one of each type is in use; the others
	// follow it later. See LoadHostKey and LoadNextHostKey.
	HostKeys []ssh.Signer
	Accounts Accounts
	Attach   Attacher
	Limits   shell.Limits
	Site     relay.Site
	Version  string // shown by the command version; never in the handshake

	// API makes the HTTP server of one channel with the subsystem relay-api, or of one command:
	// the handler, which acts for the given account, and its limits and timeouts.
	API func(who relay.Actor) *http.Server
	// StallTimeout is how long such a channel waits for a peer that takes none of an answer,
	// and for the whole body of a request. 0 = 30 s.
	StallTimeout time.Duration

	// PingInterval is how long a peer may be silent before it is pinged, PingTimeout
	// how long it then has before its tunnels are stale, StaleClose how long the
	// connection is kept after that. 0 = off.
	PingInterval, PingTimeout, StaleClose time.Duration

	// HandshakeTimeout bounds handshake and login together. 0 = 10 s.
	HandshakeTimeout time.Duration
	// IdleClose is how long a connection without forward and session is kept. 0 = 5 s.
	IdleClose time.Duration
	// TakeoverDrain is how long requests may continue, on a connection whose alias
	// was taken over. 0 = 10 s.
	TakeoverDrain time.Duration
	// DrainTime is how long requests may continue, on a connection that is sent to another
	// node; negative = no limit.
	DrainTime time.Duration
	// EnrolTime is how long a proven key waits to be accepted, and a prompt for a
	// token to be answered. 0 = 110 s, so that with the handshake it stays within
	// two minutes.
	EnrolTime time.Duration

	// MaxConnections, MaxPerSource and MaxPerAccount limit the number of connections;
	// 0 = no limit. A source is one IPv4 address or one IPv6 /64.
	MaxConnections, MaxPerSource, MaxPerAccount int
	// MaxUnauthenticated is how many connections may not have logged in yet, 0 = 1,024;
	// MaxPrompts how many logins may wait for a person, 0 = 256.
	MaxUnauthenticated, MaxPrompts int
	// Admission counts the connections together with those of other protocols. nil = there are none.
	Admission *admission.Limiter
	// Budget bounds the unread bytes of tunnel channels; nil = no bound.
	Budget *budget.Budget
	// Trusted are proxies: many people come from their addresses, so that no limit per
	// source and no penalty holds there.
	Trusted []netip.Prefix
	// NoClaim says that a forward of a free name does not create the alias.
	NoClaim bool
	// NoPenalties lets sources in however many logins of theirs failed.
	NoPenalties bool
	// PenaltyExempt are networks that never get a penalty: many people sit behind one
	// address there.
	PenaltyExempt []netip.Prefix

	Now func() time.Time // the clock of penalties; nil = time.Now

	// Peers connects this node with the other nodes of the store.
	Peers PeerOptions

	Registry prometheus.Registerer // gets the figures of docs/metrics.md; nil = none

	Log *slog.Logger // nil = silent
}

// Server is the SSH server. Its methods are safe for concurrent use.
type Server struct {
	o           Options
	acceptor    *gliderlabs.Server
	work        *link.Workers // runs what a channel does
	revalidator *revalidator

	front     *admission.Front
	penalties *admission.Penalties
	metrics   *metrics
	nodes     *node.Links
	logins    *login.Logins
	rejecting *semaphore.Weighted // taken by each connection that is told why it is rejected

	rejected, acceptErrors rate.Sometimes // for the log

	sessions session.Config
	moving   atomic.Bool   // see Move
	moveWait time.Duration // the constant, but in tests

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
	// It reaches neither a handshake nor a handler, because serve leaves it no connection. It would generate a key
	// and set the handler itself, without a lock, in each call of Serve.
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

// serverVersion is our version string in the version exchange. It contains no build number.
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

// Announce stops accepting and tells every session that the relay is stopping; tunnels continue. Call
// Shutdown afterwards.
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

// Shutdown stops accepting, notifies every session, lets requests on open channels end, and closes
// each connection when it has none left. When ctx ends first, it closes the remaining connections at
// once and returns the error of ctx. It returns when all connections are closed and have released
// their aliases, but at the latest closeTime after the end of ctx. Further calls wait for the same
// end.
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
			_ = c.Close()
		}
	})
	defer stopCutting()
	awaitAll(late, conns)
	srv.nodes.Stop(ctx)
	left := srv.all() // of other nodes: their channels have ended with those of the clients
	for _, c := range left {
		_ = c.Close()
	}
	awaitAll(late, left)
	srv.work.Close()
	return ctx.Err()
}

// closeTime is the longest time for which Shutdown continues after the end of its ctx.
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

// AccountConnections returns the number of connections of accounts at this node. Accounts that are far
// from the limit are left out.
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

// request gets every global request, one at a time and in order, and queues it after those before it.
// Replies carry no id, so even a refusal keeps its place.
func (c *conn) request(req *link.Request) {
	n := len(req.Type) + len(req.Payload)
	if c.enrolled != nil || n > maxRequest && n > len(hostKeysProve)+len(c.srv.hostKeyList()) {
		req.Type, req.Payload = "", nil // a request that waits to be refused takes no memory
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

// maxRequest is the largest total length of type and payload of a global request, except for a request
// to prove all host keys. x/crypto accepts packets of 256 KiB, and maxQueuedRequests may wait.
const maxRequest = 1 << 10

// maxAnswering is the largest number of channel opens of a peer that are being handled, including
// running sessions, because a peer that does not read keeps each of them waiting.
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
		go run() // the connection has ended, and the library says so
	}
}

// refuseChannel rejects a channel, and tells the client what it may open instead.
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
	// Attach makes t the tunnel of the alias at once. A tunnel that had it before
	// is told Close("taken over by a newer connection").
	Attach(a *relay.Alias, t relay.Tunnel) relay.Attachment
}

// Accounts finds accounts and their aliases. Package store implements it.
type Accounts interface {
	shell.Accounts
	login.Accounts
	// ClaimAlias gives an alias that the actor may attach: its own, one it is a
	// member of, or a free valid name, which it claims when claiming is on.
	// ErrNotFound in the same words for foreign and for unknown with claiming off;
	// validation-failed for invalid and reserved names; conflict for a full quota.
	ClaimAlias(ctx context.Context, who relay.Actor, name string) (*relay.Alias, error)
	// NoteRefusedForward keeps for the dashboard that a remote forward was refused to an
	// account, and NoteAllowedForward forgets those of a bind address. They never block.
	NoteRefusedForward(account int64, x relay.RefusedForward)
	NoteAllowedForward(account int64, bind string)
	// Revoked gives those of the rights that do not stand any more.
	Revoked(ctx context.Context, rights []relay.Right) ([]relay.Right, error)
}

// soonAfter returns a context that ends at the time d after the end of ctx. It bounds the waits of a
// stop.
func soonAfter(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	late, cancel := context.WithCancel(context.Background())
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(d, cancel) })
	return late, func() {
		stop()
		cancel()
	}
}
