package sshgate

import (
	"cmp"
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
	"golang.org/x/sync/singleflight"

	"relay"
	"relay/link"
	"relay/record"
	"relay/sockets"
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
	maxPeerNotes = 1024 // that wait to be told to a node
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

// peerOpen is the payload of peerTunnel, wakeQueue that of peerWake, takenOver that of
// peerTakenOver, parked that of peerParked.
type (
	peerOpen struct {
		Node       string // meant
		Tunnel     string
		Origin     string
		OriginPort uint32
	}
	wakeQueue struct{ Alias uint64 }
	takenOver struct{ Tunnel, Reason string }
	parked    struct{ Sent uint64 } // bytes on the channel so far
)

// Reasons of refused peerTunnel channels beside those of openCodes. The range is for private
// use (RFC 4254, section 5.1).
const (
	peerNotMe  link.Reason = 0xfe000001 + iota // another node was meant
	peerNone                                   // the tunnel is not here (any more)
	peerSilent                                 // no byte comes from the client of the tunnel
	peerSlow                                   // the client lives, but did not answer in time
)

// openCodes are the codes for which the client of a tunnel refuses a channel, by the reason
// that a node gives to another one.
var openCodes = map[link.Reason]string{
	link.ConnectFailed:    relay.CodeLocalRefused,
	link.Prohibited:       relay.CodeLocalUnresolvable,
	link.ResourceShortage: relay.CodeOverloaded,
}

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
	srv     *Server
	started sync.Once
	wg      sync.WaitGroup
	ctx     context.Context
	end     context.CancelFunc

	in, out atomic.Int64 // channels that were opened by and at other nodes since the start
	tunnels sync.Map     // string: *forward; those of this node that others can use, by id

	mu      sync.Mutex
	links   map[string]*peerLink // by node id
	bridges map[*bridge]struct{}
	served  map[*conn]string // connections of other nodes, with their node ids
}

func newPeers(srv *Server) *peers {
	p := &peers{
		srv: srv, links: map[string]*peerLink{}, bridges: map[*bridge]struct{}{}, served: map[*conn]string{},
	}
	p.ctx, p.end = context.WithCancel(context.Background())
	return p
}

// stop closes all links. The channels of other nodes, whose clients have gone, get a moment
// for their last bytes.
func (p *peers) stop(ctx context.Context) {
	p.end()
	ctx, cancel := context.WithTimeout(ctx, peerPing)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.wg.Wait()
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
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

// run keeps a link to each living node until stop. It closes unused channels of tunnels
// whose client is silent: the next request then opens a new one, which shows whether the
// client is still there.
func (p *peers) run() {
	tick := time.NewTicker(peerRedial / 2)
	defer tick.Stop()
	for {
		p.follow(p.srv.o.Peers.Nodes.Peers())
		p.endBridges((*bridge).closeIdle, func(f *forward) bool { return f.Heard() > peerIdleFor })
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
		l := &peerLink{srv: p.srv, node: n, notes: make(chan peerNote, maxPeerNotes)}
		l.ctx, l.end = context.WithCancel(p.ctx)
		if at, err := netip.ParseAddrPort(n.PeerAddr); err == nil {
			addr := at.Addr()
			l.addr.Store(&addr)
		}
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
			go func() { _ = c.Close() }()
		}
	}
}

// knows tells whether an address is one of another node: the address that the node is dialed
// at, also where that is a host name, or the one that its connections come from.
func (p *peers) knows(a netip.Addr) bool {
	a = a.Unmap()
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.served {
		if c.remote.Addr().Unmap() == a {
			return true
		}
	}
	for _, l := range p.links {
		if at := l.addr.Load(); at != nil && at.Unmap() == a {
			return true
		}
	}
	return false
}

// link returns the link to a node; nil when the node does not live.
func (p *peers) link(node string) *peerLink {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.links[node]
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
	return !slices.ContainsFunc(srv.o.Peers.Nodes.Peers(), func(n relay.Node) bool {
		l := srv.peers.link(n.ID)
		return n.PeerAddr != "" && (l == nil || l.control.Load() == nil)
	})
}

// Forwarded returns how many channels this node has opened at other nodes, and they at
// this one, since the start.
func (srv *Server) Forwarded() (out, in int64) { return srv.peers.out.Load(), srv.peers.in.Load() }

// peerLink is this node's side of the connections that it has made to another node: one
// for control, which carries no body, and up to maxPeerData for data.
type peerLink struct {
	srv  *Server
	node relay.Node
	ctx  context.Context
	end  context.CancelFunc

	control atomic.Pointer[link.Conn]  // nil while the node is unreachable
	addr    atomic.Pointer[netip.Addr] // where the node was dialed last, or is to be
	header  atomic.Bool                // connections begin with a PROXY header
	notes   chan peerNote              // waits to be told to the node

	dials singleflight.Group // of data connections
	mu    sync.Mutex
	data  []*link.Conn
}

// peerNote is a global request to another node.
type peerNote struct {
	kind    string
	payload []byte
}

// run keeps the control connection.
func (l *peerLink) run() {
	log, reachable := l.srv.o.Log.With("node", l.node.Name, "addr", l.node.PeerAddr), l.srv.o.Peers.Reachable
	defer reachable(l.node.ID, false)
	// The first try may come before the other node knows this one.
	for failures := 0; l.ctx.Err() == nil; {
		begun := time.Now()
		pc, err := l.dial()
		if err == nil {
			l.control.Store(pc)
			log.Info("node reached")
			reachable(l.node.ID, true)
			failures = 1
			err = l.hold(pc)
			l.control.Store(nil)
			l.mu.Lock()
			for _, pc := range l.data {
				_ = pc.Close()
			}
			l.data = nil
			l.mu.Unlock()
		}
		if l.ctx.Err() != nil {
			return
		}
		if failures++; failures == 2 {
			log.Warn("node cannot be reached; requests for its tunnels are queued", "err", record.SafeTextMax(err.Error(), 300))
			reachable(l.node.ID, false)
		}
		select {
		case <-time.After(max(0, peerRedial-time.Since(begun)) + rand.N(peerRedial/10)):
		case <-l.ctx.Done():
		}
	}
}

// hold pings the other node, and tells it what waits to be told, until the connection ends.
func (l *peerLink) hold(pc *link.Conn) error {
	defer pc.Close()
	pc.Go("notes", func() { // a write waits where the socket is stuck
		for {
			select {
			case n := <-l.notes:
				_, _, _ = pc.SendRequest(pc.Context(), n.kind, false, n.payload)
			case <-pc.Context().Done():
				return
			}
		}
	})
	if err := pc.Watch(l.ctx, peerPing, peerPing, int(peerSilence/peerPing)); err != nil {
		return err
	}
	return l.ctx.Err()
}

// tell queues something for the other node; false = it cannot be reached.
func (l *peerLink) tell(kind string, payload any) bool {
	if l.control.Load() == nil {
		return false
	}
	select {
	case l.notes <- peerNote{kind, link.Marshal(payload)}:
		return true
	default:
		return false
	}
}

// conn returns the data connection with the fewest channels, while the node can be reached. If
// all are busy, it opens another one for later calls. If there is none, it opens one, and all
// calls that come meanwhile wait for that one.
func (l *peerLink) conn(ctx context.Context) (*link.Conn, error) {
	if l.control.Load() == nil {
		return nil, relay.ErrNotSent
	}
	l.mu.Lock()
	l.data = slices.DeleteFunc(l.data, func(pc *link.Conn) bool { return pc.Context().Err() != nil })
	var best *link.Conn
	n := len(l.data)
	if n > 0 {
		best = slices.MinFunc(l.data, func(a, b *link.Conn) int { return cmp.Compare(a.InUse(), b.InUse()) })
	}
	l.mu.Unlock()
	if best == nil {
		select {
		case dialed := <-l.dials.DoChan("", l.addData):
			if dialed.Err != nil {
				return nil, dialed.Err
			}
			return dialed.Val.(*link.Conn), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if best.InUse() >= busyPeerConn && n < maxPeerData {
		l.dials.DoChan("", l.addData)
	}
	return best, nil
}

// addData opens one more data connection. One call of it runs at a time.
func (l *peerLink) addData() (any, error) {
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
func (l *peerLink) dial() (*link.Conn, error) {
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
	addr := sockets.AddrOf(tcp.RemoteAddr()).Addr()
	l.addr.Store(&addr)
	if l.header.Load() {
		if _, err := io.WriteString(tcp, "PROXY UNKNOWN\r\n"); err != nil {
			_ = tcp.Close()
			return nil, err
		}
	}
	pc := link.New(tcp, link.Options{Workers: l.srv.work, Log: l.srv.o.Log, Stall: peerSilence, UserTimeout: peerSilence, Unbounded: true})
	err = pc.Connect(ctx, l.node.PeerAddr, &ssh.ClientConfig{
		User: l.srv.o.Peers.Nodes.NodeID(), ClientVersion: peerVersion,
		Auth:            []ssh.AuthMethod{ssh.PublicKeys(l.srv.o.Peers.Key)},
		HostKeyCallback: ssh.FixedHostKey(key), HostKeyAlgorithms: []string{key.Type()},
		Config: ssh.Config{Ciphers: ciphers(hasAES())},
	})
	if err == nil {
		return pc, nil
	}
	switch {
	case pc.Sock.Heard() > 0:
		l.header.Store(false) // a node that demands the header says nothing without one, and reads it where it is sent
	case ctx.Err() == nil: // closed without a word: perhaps a header is demanded of this address, or refused
		l.header.Store(!l.header.Load())
	}
	return nil, err
}

// Remote returns a tunnel that another node has.
func (srv *Server) Remote(rec relay.TunnelRecord) relay.RemoteTunnel {
	return &remoteTunnel{srv: srv, rec: rec}
}

// remoteTunnel is a tunnel of another node as relay.RemoteTunnel.
type remoteTunnel struct {
	srv *Server
	rec relay.TunnelRecord
}

func (t *remoteTunnel) link() *peerLink { return t.srv.peers.link(t.rec.Node) }

// Node returns the id of the node.
func (t *remoteTunnel) Node() string { return t.rec.Node }

// Info describes the tunnel.
func (t *remoteTunnel) Info() relay.TunnelInfo { return t.rec.TunnelInfo }

// LazyDial tells whether the client of the tunnel dials at the first byte.
func (t *remoteTunnel) LazyDial() bool { return t.rec.LazyDial }

// Heard is the time since the last byte of the other node. That node itself closes unused
// channels of a tunnel whose client is silent: see peers.run.
func (t *remoteTunnel) Heard() time.Duration {
	if l := t.link(); l != nil {
		if pc := l.control.Load(); pc != nil {
			return pc.Sock.SilentFor()
		}
	}
	return time.Hour
}

// Wake asks the node to look at the queue of the alias.
func (t *remoteTunnel) Wake() bool {
	l := t.link()
	return l != nil && l.tell(peerWake, wakeQueue{uint64(t.rec.Alias)})
}

// Close asks the node to close the tunnel. Every node learns by itself that an alias was
// removed.
func (t *remoteTunnel) Close(reason string) {
	if l := t.link(); l != nil && reason != relay.AliasRemoved {
		l.tell(peerTakenOver, takenOver{t.rec.ID, reason})
	}
}

// Open opens a channel through the other node.
func (t *remoteTunnel) Open(ctx context.Context, origin netip.AddrPort) (relay.Channel, error) {
	ch, err := t.open(ctx, origin)
	if err != nil {
		return nil, err
	}
	return filledPeer{newFilled(ch, t.srv.work), ch}, nil
}

func (t *remoteTunnel) open(ctx context.Context, origin netip.AddrPort) (*peerChannel, error) {
	l := t.link()
	if l == nil {
		return nil, relay.ErrTunnelMoved
	}
	if !t.srv.o.Budget.Fits(t.rec.Owner, link.PausedBytes) {
		return nil, errNoBuffer
	}
	pc, err := l.conn(ctx)
	if err != nil {
		return nil, relay.ErrNotSent
	}
	payload := link.Marshal(peerOpen{Node: t.rec.Node, Tunnel: t.rec.ID, Origin: originAddr(origin), OriginPort: uint32(origin.Port())})
	ch, err := pc.OpenChannel(ctx, peerTunnel, payload, link.ChannelOptions{
		Request: peerEnded, EOF: link.EOFLost, Explains: true,
		Budget: t.srv.o.Budget, Account: t.rec.Owner,
		Cut: func() { t.srv.channelCut(t.srv.o.Log, t.rec.Owner) },
	})
	var refused *link.RefusedError
	switch {
	case err == nil:
		t.srv.peers.out.Add(1)
		return &peerChannel{Channel: ch}, nil
	case !errors.As(err, &refused):
		return nil, relay.ErrNotSent
	case refused.Reason == peerSilent:
		return nil, relay.ErrTunnelSilent
	case refused.Reason == peerSlow:
		return nil, relay.ErrTunnelSlow
	}
	if code := openCodes[refused.Reason]; code != "" {
		return nil, relay.Errorf(code, "%s", record.SafeTextMax(refused.Text, 512))
	}
	return nil, relay.ErrTunnelMoved
}

// peerEnded takes how the other node says that a channel ends. It says so before it sends EOF: an
// EOF without that is the end of the connection between the nodes.
func peerEnded(ch *link.Channel, req *link.Request) {
	var e peerEnding
	if req.Type != peerEnd || link.Unmarshal(req.Payload, &e) != nil {
		return
	}
	end := relay.ConnEnd{How: relay.ConnLost}
	switch e.Kind {
	case peerEOF, peerRefused:
		end.How = relay.ConnEOF
	case peerBrokeOff:
		end.How = relay.ConnBrokeOff
	}
	for _, code := range openCodes {
		if e.Kind == peerRefused && e.Code == code {
			end = relay.ConnEnd{How: relay.ConnRefused, Refusal: relay.Errorf(code, "%s", record.SafeTextMax(e.Detail, 512))}
		}
	}
	ch.Say(end)
}

// peerChannel is a channel through another node as relay.Conn.
type peerChannel struct {
	*link.Channel
	sent atomic.Uint64 // bytes, for Parked
}

// Write implements relay.Conn.
func (h *peerChannel) Write(p []byte) (int, error) {
	n, err := h.Channel.Write(p)
	h.sent.Add(uint64(n))
	return n, err
}

// CloseWrite implements relay.Conn.
func (h *peerChannel) CloseWrite() error {
	if _, err := h.SendRequest(peerHalfClose, false, nil); err != nil {
		return err
	}
	return h.Channel.CloseWrite()
}

// Parked tells the other node that no request uses the channel for now, so that it does not
// count as one of the tunnel's. It does not wait for the socket: the number of bytes tells to
// which requests it refers.
func (h *peerChannel) Parked() { h.Tell(peerParked, link.Marshal(parked{h.sent.Load()})) }
