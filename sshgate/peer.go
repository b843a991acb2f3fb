package sshgate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/record"
)

// Nodes is what is known of the nodes of the store. store satisfies it.
type Nodes interface {
	// NodeID returns the id of this node. It is another one after a rejoin.
	NodeID() string
	// Peers lists the other living nodes, from memory.
	Peers() []relay.Node
	// RefreshPeers reads again what Peers lists. It may wait, so that strangers cannot
	// cause many queries.
	RefreshPeers(context.Context)
}

// PeerOptions connect this node with the others.
type PeerOptions struct {
	Nodes Nodes      // nil = there are no other nodes
	Key   ssh.Signer // of this node, for logging in at other nodes and for being known by them
	// Reachable is told when the tunnels of another node become usable, and when they are
	// not any more. Wake is told when another node has changed the queue of an alias.
	Reachable func(node string, reachable bool)
	Wake      func(alias int64)
	// Connections returns how many connections an account has at the other nodes; nil = none.
	Connections func(account int64) int
}

// peerVersion is the version line of a node that connects to another node. It gets the
// node's own host key instead of that for users.
const peerVersion = "SSH-2.0-relayd-peer"

const (
	peerPing     = time.Second     // between two pings
	peerSilence  = 3 * time.Second // without a byte: the other node is unreachable
	peerDial     = 2 * time.Second // for a connection and its login
	peerRedial   = time.Second     // between two tries, and the interval at which nodes come and go
	maxPeerData  = 4               // connections for data to one node
	busyPeerConn = 16              // channels in use on each connection from which on another one is opened
	maxPeerConns = 2 * (1 + maxPeerData)
)

// Requests and channels between nodes, marshalled as RFC 4251 section 5 types in the order
// of the struct fields.
const (
	peerTunnel    = "relay-tunnel@relay" // channel: one connection to the local server of a tunnel
	peerAlive     = "ping@relay"         // global, want_reply
	peerWake      = "wake-queue@relay"   // global
	peerTakenOver = "taken-over@relay"   // global
	peerEnd       = "end@relay"          // channel, owner to ingress: what comes after the last byte
	peerHalfClose = "half-close@relay"   // channel, ingress to owner: the EOF that follows is for the local server
	peerParked    = "parked@relay"       // channel, ingress to owner: no request uses the channel
)

// peerOpen is the payload of peerTunnel.
type peerOpen struct {
	Node       string // meant
	Tunnel     string
	Origin     string
	OriginPort uint32
}

// Reasons of refused peerTunnel channels beside those of RFC 4254 section 5.1, which mean
// what they mean on the channel to the client. The range is for private use.
const (
	peerNotMe  ssh.RejectionReason = 0xfe000001 + iota // another node was meant
	peerNone                                           // the tunnel is not here (any more)
	peerSilent                                         // the client of the tunnel does not answer
)

// peerEnding is the payload of peerEnd.
type peerEnding struct {
	Kind   uint32
	Code   string // of a peerRefused
	Detail string
}

// Kinds of peerEnding.
const (
	peerEOF      = iota // the local server has closed its side
	peerBrokeOff        // the local server aborted its connection
	peerLost            // the tunnel was lost
	peerRefused         // no byte reached a local server, for the reason given
)

// peers holds the links to the other nodes, and what other nodes use of this one.
type peers struct {
	srv  *Server
	wake chan struct{}
	wg   sync.WaitGroup
	ctx  context.Context
	end  context.CancelFunc

	in, out atomic.Int64 // channels that were opened by and at other nodes since the start

	mu      sync.Mutex
	running bool
	links   map[string]*peerLink // by node id
	tunnels map[string]*forward  // of this node, by tunnel id
	bridges map[*bridge]struct{}
	served  map[*conn]string // connections of other nodes, with their node ids
}

func newPeers(srv *Server) *peers {
	p := &peers{
		srv: srv, wake: make(chan struct{}, 1), links: map[string]*peerLink{}, tunnels: map[string]*forward{},
		bridges: map[*bridge]struct{}{}, served: map[*conn]string{},
	}
	p.ctx, p.end = context.WithCancel(context.Background())
	return p
}

// start runs the links until stop.
func (p *peers) start() {
	if p.srv.o.Peers.Nodes == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running {
		p.running = true
		p.wg.Go(p.run)
	}
}

// stop closes all links. The channels of other nodes, whose clients have gone, get a moment
// for their last bytes.
func (p *peers) stop(ctx context.Context) {
	p.end()
	p.wg.Wait()
	ctx, cancel := context.WithTimeout(ctx, peerPing)
	defer cancel()
	p.mu.Lock()
	left := slices.Collect(maps.Keys(p.bridges))
	p.mu.Unlock()
	for _, b := range left {
		select {
		case <-b.done:
		case <-ctx.Done():
			return
		}
	}
}

// run keeps a link to each living node, and closes idle channels of silent tunnels.
func (p *peers) run() {
	tick := time.NewTicker(peerRedial / 2)
	defer tick.Stop()
	for {
		p.follow(p.srv.o.Peers.Nodes.Peers())
		p.closeSilent()
		select {
		case <-tick.C:
		case <-p.ctx.Done():
			return
		}
	}
}

// follow makes links to new nodes and ends what belongs to nodes that have gone.
func (p *peers) follow(nodes []relay.Node) {
	living := make(map[string]bool, len(nodes))
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range nodes {
		living[n.ID] = true
		if p.links[n.ID] != nil || n.PeerAddr == "" {
			continue
		}
		l := &peerLink{p: p, node: n, queue: make(chan struct{}, 1), wakes: map[int64]bool{}, taken: map[string]string{}}
		l.ctx, l.end = context.WithCancel(p.ctx)
		p.links[n.ID] = l
		p.wg.Go(l.run)
	}
	for id, l := range p.links {
		if !living[id] {
			l.end()
			delete(p.links, id)
		}
	}
	for c, id := range p.served {
		if !living[id] {
			go func() { _ = c.sock.Close() }()
		}
	}
}

// link returns the link to a node; nil when the node does not live.
func (p *peers) link(node string) *peerLink {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.links[node]
}

// isPeerAddress reports whether other nodes connect from an address.
func (srv *Server) isPeerAddress(a netip.Addr) bool {
	if srv.o.Peers.Nodes == nil {
		return false
	}
	return slices.ContainsFunc(srv.o.Peers.Nodes.Peers(), func(n relay.Node) bool {
		at, err := netip.ParseAddrPort(n.PeerAddr)
		return err == nil && at.Addr().Unmap() == a.Unmap()
	})
}

// Reached returns the number of nodes whose tunnels can be used, of all other living ones.
func (srv *Server) Reached() (reached, all int) {
	p := srv.peers
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.links {
		if l.control.Load() != nil {
			reached++
		}
	}
	return reached, len(p.links)
}

// ReachesAll reports whether the tunnels of all other living nodes can be used. It knows of
// nodes that this one has not tried to reach yet.
func (srv *Server) ReachesAll() bool {
	if srv.o.Peers.Nodes == nil {
		return true
	}
	for _, n := range srv.o.Peers.Nodes.Peers() {
		if l := srv.peers.link(n.ID); n.PeerAddr != "" && (l == nil || l.control.Load() == nil) {
			return false
		}
	}
	return true
}

// Forwarded returns how many channels this node has opened at other nodes, and they at
// this one, since the start.
func (srv *Server) Forwarded() (out, in int64) { return srv.peers.out.Load(), srv.peers.in.Load() }

// peerLink is this node's side of the connections that it has made to another node: one
// for control, which carries no body, and up to maxPeerData for data.
type peerLink struct {
	p    *peers
	node relay.Node
	ctx  context.Context
	end  context.CancelFunc

	control atomic.Pointer[peerConn] // nil while the node is unreachable
	header  atomic.Bool              // connections begin with a PROXY header

	mu      sync.Mutex
	data    []*peerConn
	dialing bool
	queue   chan struct{} // wakes send
	wakes   map[int64]bool
	taken   map[string]string // reasons by tunnel id
}

// peerConn is one connection to another node.
type peerConn struct {
	ssh.Conn
	sock *socket
	used atomic.Int64 // channels in use
	gone chan struct{}
}

// run keeps the control connection.
func (l *peerLink) run() {
	defer l.close()
	// The first try may come before the other node knows this one.
	for failures := 0; l.ctx.Err() == nil; {
		begun := time.Now()
		pc, err := l.dial()
		if err == nil {
			l.control.Store(pc)
			l.p.srv.o.Log.Info("node reached", "node", l.node.Name, "addr", l.node.PeerAddr)
			l.p.srv.o.Peers.Reachable(l.node.ID, true)
			failures = 1
			err = l.hold(pc)
			l.control.Store(nil)
			l.closeData()
		}
		if l.ctx.Err() != nil {
			return
		}
		if failures++; failures == 2 {
			l.p.srv.o.Log.Warn("node cannot be reached; requests for its tunnels are queued", "node", l.node.Name, "addr", l.node.PeerAddr,
				"err", record.SafeTextMax(err.Error(), 300))
			l.p.srv.o.Peers.Reachable(l.node.ID, false)
		}
		pause := time.NewTimer(max(0, peerRedial-time.Since(begun)) + rand.N(peerRedial/10))
		select {
		case <-pause.C:
		case <-l.ctx.Done():
			pause.Stop()
		}
	}
}

// hold pings the other node until the connection ends.
func (l *peerLink) hold(pc *peerConn) error {
	defer pc.Close()
	tick := time.NewTicker(peerPing)
	defer tick.Stop()
	for pinging := false; ; {
		if !pinging {
			pinging = true
			go func() { _, _, _ = pc.SendRequest(peerAlive, true, nil) }()
		}
		select {
		case <-l.ctx.Done():
			return l.ctx.Err()
		case <-pc.gone:
			return errors.New("connection lost")
		case <-l.queue:
			go l.send(pc)
		case <-tick.C:
			pinging = false
			if silent := pc.sock.silentFor(); silent > peerSilence {
				return fmt.Errorf("no byte for %v", silent.Round(time.Second/10))
			}
			l.checkData()
		}
	}
}

// send tells the other node what waits to be told.
func (l *peerLink) send(pc *peerConn) {
	l.mu.Lock()
	wakes, taken := l.wakes, l.taken
	l.wakes, l.taken = map[int64]bool{}, map[string]string{}
	l.mu.Unlock()
	for id, reason := range taken {
		_, _, _ = pc.SendRequest(peerTakenOver, false, ssh.Marshal(struct{ Tunnel, Reason string }{id, reason}))
	}
	for alias := range wakes {
		_, _, _ = pc.SendRequest(peerWake, false, ssh.Marshal(struct{ Alias uint64 }{uint64(alias)}))
	}
}

// tell queues something for send; false = the other node cannot be reached.
func (l *peerLink) tell(note func()) bool {
	if l.control.Load() == nil {
		return false
	}
	l.mu.Lock()
	note()
	l.mu.Unlock()
	select {
	case l.queue <- struct{}{}:
	default:
	}
	return true
}

func (l *peerLink) close() {
	l.closeData()
	l.p.srv.o.Peers.Reachable(l.node.ID, false)
}

func (l *peerLink) closeData() {
	l.mu.Lock()
	data := l.data
	l.data = nil
	l.mu.Unlock()
	for _, pc := range data {
		_ = pc.Close()
	}
}

// checkData ends data connections whose writes do not move, and forgets those that ended.
func (l *peerLink) checkData() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.data = slices.DeleteFunc(l.data, func(pc *peerConn) bool {
		pc.sock.checkWrite()
		return closedChan(pc.gone)
	})
}

func closedChan(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// conn returns the data connection with the fewest channels. With all busy it opens another
// one for those that follow.
func (l *peerLink) conn() (*peerConn, error) {
	if l.control.Load() == nil {
		return nil, relay.ErrNotSent
	}
	l.mu.Lock()
	var best *peerConn
	for _, pc := range l.data {
		if !closedChan(pc.gone) && (best == nil || pc.used.Load() < best.used.Load()) {
			best = pc
		}
	}
	more := best != nil && best.used.Load() >= busyPeerConn && len(l.data) < maxPeerData && !l.dialing
	l.dialing = l.dialing || more
	l.mu.Unlock()
	if more {
		go func() {
			_, _ = l.addData()
			l.mu.Lock()
			l.dialing = false
			l.mu.Unlock()
		}()
	}
	if best != nil {
		return best, nil
	}
	return l.addData()
}

func (l *peerLink) addData() (*peerConn, error) {
	pc, err := l.dial()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.control.Load() == nil || len(l.data) >= maxPeerData {
		_ = pc.Close()
		return nil, relay.ErrNotSent
	}
	l.data = append(l.data, pc)
	return pc, nil
}

// dial makes one connection and logs in. It accepts no other key than that of the node
// which is meant.
func (l *peerLink) dial() (*peerConn, error) {
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(l.node.PeerKey))
	if err != nil {
		return nil, fmt.Errorf("key of the node: %w", err)
	}
	ctx, cancel := context.WithTimeout(l.ctx, peerDial)
	defer cancel()
	tcp, err := (&net.Dialer{}).DialContext(ctx, "tcp", l.node.PeerAddr)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = tcp.Close() })
	defer stop()
	if l.header.Load() {
		if _, err := io.WriteString(tcp, "PROXY UNKNOWN\r\n"); err != nil {
			_ = tcp.Close()
			return nil, err
		}
	}
	pc := &peerConn{sock: newSocket(tcp, peerSilence, peerSilence), gone: make(chan struct{})}
	pc.sock.onHeard, pc.sock.onLost, pc.sock.onClose = func() {}, func() {}, func() {}
	c, channels, requests, err := ssh.NewClientConn(pc.sock, l.node.PeerAddr, &ssh.ClientConfig{
		User: l.p.srv.o.Peers.Nodes.NodeID(), ClientVersion: peerVersion,
		Auth:            []ssh.AuthMethod{ssh.PublicKeys(l.p.srv.o.Peers.Key)},
		HostKeyCallback: ssh.FixedHostKey(key), HostKeyAlgorithms: []string{key.Type()},
		Config: ssh.Config{Ciphers: ciphers(hasAES())},
	})
	if err != nil {
		_ = tcp.Close()
		switch {
		case pc.sock.heard.Load() > 0:
			l.header.Store(false) // a node that demands the header says nothing without one, and reads it where it is sent
		case ctx.Err() == nil: // closed without a word: perhaps a header is demanded of this address, or refused
			l.header.Store(!l.header.Load())
		}
		return nil, err
	}
	pc.Conn = c
	go ssh.DiscardRequests(requests)
	go func() {
		for open := range channels {
			_ = open.Reject(ssh.Prohibited, "")
		}
		close(pc.gone)
	}()
	return pc, nil
}

// Remote returns a tunnel that another node has.
func (srv *Server) Remote(rec relay.TunnelRecord) relay.RemoteTunnel {
	return &remoteTunnel{p: srv.peers, rec: rec}
}

// remoteTunnel is a tunnel of another node as relay.RemoteTunnel.
type remoteTunnel struct {
	p   *peers
	rec relay.TunnelRecord
}

// Node returns the id of the node.
func (t *remoteTunnel) Node() string { return t.rec.Node }

// Info describes the tunnel.
func (t *remoteTunnel) Info() relay.TunnelInfo { return t.rec.TunnelInfo }

// LazyDial tells whether the client of the tunnel dials at the first byte.
func (t *remoteTunnel) LazyDial() bool { return t.rec.LazyDial }

// Heard is the time since the last byte of the other node. That node itself closes unused
// channels of a tunnel whose client is silent: see closeSilent.
func (t *remoteTunnel) Heard() time.Duration {
	if l := t.p.link(t.rec.Node); l != nil {
		if pc := l.control.Load(); pc != nil {
			return pc.sock.silentFor()
		}
	}
	return time.Hour
}

// Wake asks the node to look at the queue of the alias.
func (t *remoteTunnel) Wake() bool {
	l := t.p.link(t.rec.Node)
	return l != nil && l.tell(func() { l.wakes[t.rec.Alias] = true })
}

// Close asks the node to close the tunnel. Every node learns by itself that an alias was
// removed.
func (t *remoteTunnel) Close(reason string) {
	if reason == relay.AliasRemoved {
		return
	}
	if l := t.p.link(t.rec.Node); l != nil {
		l.tell(func() { l.taken[t.rec.ID] = reason })
	}
}

// Open opens a channel through the other node.
func (t *remoteTunnel) Open(ctx context.Context, origin netip.AddrPort) (relay.Channel, error) {
	l := t.p.link(t.rec.Node)
	if l == nil {
		return nil, relay.ErrTunnelMoved
	}
	if !t.p.srv.o.Budget.Fits(t.rec.Owner, pausedBytes) {
		return nil, errNoBuffer
	}
	pc, err := l.conn()
	if err != nil {
		return nil, relay.ErrNotSent
	}
	addr, text := origin.Addr().Unmap(), "0.0.0.0"
	if addr.IsValid() {
		text = addr.String()
	}
	payload := ssh.Marshal(peerOpen{Node: t.rec.Node, Tunnel: t.rec.ID, Origin: text, OriginPort: uint32(origin.Port())})
	result, over := make(chan opened, 1), &atomic.Bool{}
	go func() {
		ch, reqs, err := pc.OpenChannel(peerTunnel, payload)
		if !over.Swap(true) {
			result <- opened{ch, reqs, err}
		} else if err == nil {
			go ssh.DiscardRequests(reqs)
			_ = ch.Close()
		}
	}()
	select {
	case r := <-result:
		return t.use(pc, r)
	case <-ctx.Done():
		if over.Swap(true) { // the answer was faster
			return t.use(pc, <-result)
		}
		return nil, relay.ErrNotSent
	}
}

func (t *remoteTunnel) use(pc *peerConn, r opened) (relay.Channel, error) {
	var refused *ssh.OpenChannelError
	switch {
	case r.err == nil:
		t.p.out.Add(1)
		return t.p.newPeerChannel(pc, r.ch, r.reqs, t), nil
	case !errors.As(r.err, &refused):
		return nil, relay.ErrNotSent
	case refused.Reason == peerNotMe, refused.Reason == peerNone:
		return nil, relay.ErrTunnelMoved
	case refused.Reason == peerSilent:
		return nil, relay.ErrTunnelSilent
	}
	return nil, openRefusal(refused)
}
