// Package node links this node with the other nodes of the store: it opens channels to their tunnels, and
// lets them open channels to those of this node. In this package, another relayd is called a node; a peer
// is the other end of any connection.
package node

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/budget"
	"relay/link"
)

// Nodes lists the nodes of the store. Package store implements it.
type Nodes interface {
	// NodeID returns the id of this node. It is another one after a rejoin.
	NodeID() string
	// Peers lists the other living nodes, from memory.
	Peers() []relay.Node
	// RefreshPeers reads again what Peers lists. It may wait, so that strangers cannot
	// cause many queries.
	RefreshPeers(context.Context)
}

// Tunnel is a tunnel of this node that other nodes use.
type Tunnel interface {
	// Open is as that of relay.Tunnel.
	Open(ctx context.Context, origin netip.AddrPort) (relay.Conn, error)
	// Heard returns the time since the last byte from the client.
	Heard() time.Duration
	// Owner returns the account that owns the alias.
	Owner() int64
	// Acquire takes one of the tunnel's slots for a request, as relay.Attachment.Acquire.
	Acquire(done <-chan struct{}) (release func(), err *relay.Error)
	// TakenOver ends the tunnel because the alias has a newer one.
	TakenOver(reason string)
}

// Options configure Links. All fields but Budget are required.
type Options struct {
	Nodes         Nodes
	Key           ssh.Signer // of this node, for logging in at other nodes and for being known by them
	ServerVersion string     // that other nodes are told
	// Reachable is told when the tunnels of another node become usable, and when they are
	// not any more. Wake is told when another node has changed the queue of an alias.
	Reachable func(node string, reachable bool)
	Wake      func(alias int64)

	Workers      *link.Workers
	Budget       *budget.Budget
	StallTimeout time.Duration                       // for a client that takes nothing of what a node that has gone left for it; of a node, slowNode times that
	Cut          func(log *slog.Logger, owner int64) // told of each channel for whose bytes there was no space
	Log          *slog.Logger
}

// ClientVersion is the version line of a node that connects to another node. The other node then shows
// the host key for nodes instead of that for users.
const ClientVersion = "SSH-2.0-relayd-peer"

const (
	pingEvery   = time.Second     // between two pings
	silentAfter = 3 * time.Second // without a byte: the other node is unreachable
	LoginTime   = 2 * time.Second // for a connection and its login
	redialEvery = time.Second     // between two tries, and the interval at which nodes come and go
	maxData     = 4               // connections for data to one node
	busyConn    = 16              // channels in use on each connection from which on another one is opened
	maxConns    = 2 * (1 + maxData)
	maxNotes    = 1024 // that wait to be told to a node
)

// Requests and channels between nodes, marshalled as RFC 4251 section 5 types in the order
// of the struct fields.
const (
	tunnelChannel    = "relay-tunnel@relay" // channel: one connection to the local server of a tunnel
	wakeRequest      = "wake-queue@relay"   // global
	takenOverRequest = "taken-over@relay"   // global
	endRequest       = "end@relay"          // channel, owner to ingress: what comes after the last byte
	halfCloseRequest = "half-close@relay"   // channel, ingress to owner: the EOF that follows is for the local server
	parkedRequest    = "parked@relay"       // channel, ingress to owner: no request uses the channel
)

// Payloads: openPayload is that of tunnelChannel, wakeQueue that of wakeRequest, takenOver that of
// takenOverRequest, parked that of parkedRequest.
type (
	openPayload struct {
		Node       string // meant
		Tunnel     string
		Origin     string
		OriginPort uint32
	}
	wakeQueue struct{ Alias uint64 }
	takenOver struct{ Tunnel, Reason string }
	parked    struct{ Sent uint64 } // bytes on the channel so far
)

// Reasons for refusing tunnelChannel channels, in addition to those of openCodes. The range is for
// private use (RFC 4254, section 5.1).
const (
	reasonNotMe  link.Reason = 0xfe000001 + iota // another node was meant
	reasonNone                                   // the tunnel is not here (any more)
	reasonSilent                                 // no byte comes from the client of the tunnel
	reasonSlow                                   // the client lives, but did not answer in time
)

// openCodes are the error codes of channels that the client of a tunnel refused, by the reason that
// one node reports to another.
var openCodes = map[link.Reason]string{
	link.ConnectFailed:    relay.CodeLocalRefused,
	link.Prohibited:       relay.CodeLocalUnresolvable,
	link.ResourceShortage: relay.CodeOverloaded,
}

// ending is the payload of endRequest.
type ending struct {
	Kind   uint32
	Code   string // of a endRefused
	Detail string
}

// Kinds of the end of a channel, as one node reports it to another.
const (
	endEOF      = iota // the local server has closed its side
	endBrokeOff        // the local server aborted its connection
	endLost            // the tunnel was lost
	endRefused         // no byte reached a local server, for the reason given
)

// Links holds the links to the other nodes, and the tunnels of this node that they use.
type Links struct {
	o       Options
	started sync.Once
	wg      sync.WaitGroup
	ctx     context.Context
	end     context.CancelFunc

	in, out atomic.Int64 // channels that were opened by and at other nodes since the start
	tunnels sync.Map     // string: Tunnel; those of this node that others can use, by id

	mu      sync.Mutex
	links   map[string]*nodeLink // by node id
	bridges map[*bridge]struct{}
	served  map[*link.Conn]servedNode // connections of other nodes
}

// servedNode identifies the node at the other end of a connection.
type servedNode struct {
	id   string
	addr netip.Addr
}

// New returns Links without a connection.
func New(o Options) *Links {
	n := &Links{o: o, links: map[string]*nodeLink{}, bridges: map[*bridge]struct{}{}, served: map[*link.Conn]servedNode{}}
	n.ctx, n.end = context.WithCancel(context.Background())
	return n
}

// Start keeps a link to each living node from now on. Further calls do nothing.
func (n *Links) Start() { n.started.Do(func() { n.wg.Go(n.run) }) }

// Add lets other nodes use a tunnel of this node, by its id, and Remove ends that.
func (n *Links) Add(id string, t Tunnel) { n.tunnels.Store(id, t) }

// Remove ends the use of a tunnel: no more channels are opened to it. With orderly, unused channels
// are closed only once the other nodes know of the end, because a request may be on its way on a
// channel.
func (n *Links) Remove(id string, t Tunnel, orderly bool) {
	n.tunnels.Delete(id)
	closeIdle := func() { n.endBridges((*bridge).closeIdle, func(other Tunnel) bool { return other == t }) }
	if orderly {
		time.AfterFunc(learnTime, closeIdle)
	} else {
		closeIdle()
	}
}

// Lose ends all channels of other nodes to the tunnels that meant selects, because their client is
// silent.
func (n *Links) Lose(meant func(Tunnel) bool) { n.endBridges((*bridge).lose, meant) }

// Bridged returns the number of channels of other nodes to tunnels of this one, and the number of
// those that a request uses.
func (n *Links) Bridged() (all, busy int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for b := range n.bridges {
		if b.inUse() {
			busy++
		}
	}
	return len(n.bridges), busy
}

// Served returns the number of connections that other nodes have to this one.
func (n *Links) Served() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.served)
}

// Stop closes all links. The channels of other nodes, whose clients have gone, get a moment for their
// last bytes.
func (n *Links) Stop(ctx context.Context) {
	n.end()
	ctx, cancel := context.WithTimeout(ctx, pingEvery)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		n.wg.Wait()
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
	n.mu.Lock()
	left := slices.Collect(maps.Keys(n.bridges))
	n.mu.Unlock()
	for _, b := range left {
		select {
		case <-b.done:
		case <-ctx.Done():
			return
		}
	}
}

// run keeps a link to each living node until Stop. It also closes unused channels to tunnels whose
// client is silent: the next request then opens a new one, which shows whether the client is still
// there.
func (n *Links) run() {
	tick := time.NewTicker(redialEvery / 2)
	defer tick.Stop()
	for {
		n.follow(n.o.Nodes.Peers())
		n.endBridges((*bridge).closeIdle, func(t Tunnel) bool { return t.Heard() > idleFor })
		select {
		case <-tick.C:
		case <-n.ctx.Done():
			return
		}
	}
}

// follow makes links to new nodes, and ends the links, connections and channels of nodes that have
// ended.
func (n *Links) follow(nodes []relay.Node) {
	living := make(map[string]bool, len(nodes))
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, node := range nodes {
		living[node.ID] = true
		if n.links[node.ID] != nil || node.PeerAddr == "" {
			continue
		}
		l := &nodeLink{o: &n.o, node: node, notes: make(chan note, maxNotes)}
		l.ctx, l.end = context.WithCancel(n.ctx)
		if at, err := netip.ParseAddrPort(node.PeerAddr); err == nil {
			addr := at.Addr()
			l.addr.Store(&addr)
		}
		n.links[node.ID] = l
		n.wg.Go(l.run)
	}
	for id, l := range n.links {
		if !living[id] {
			l.end()
			delete(n.links, id)
		}
	}
	for c, from := range n.served {
		if !living[from.id] {
			go func() { _ = c.Close() }()
		}
	}
}

// Knows reports whether an address belongs to another node: it is the address at which the node is
// dialed, even if that is given as a host name, or the one from which its connections come.
func (n *Links) Knows(a netip.Addr) bool {
	a = a.Unmap()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, from := range n.served {
		if from.addr.Unmap() == a {
			return true
		}
	}
	for _, l := range n.links {
		if at := l.addr.Load(); at != nil && at.Unmap() == a {
			return true
		}
	}
	return false
}

// link returns the link to a node; nil if the node is not alive.
func (n *Links) link(node string) *nodeLink {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.links[node]
}

// Reached returns the number of other living nodes whose tunnels can be used, and the number of all
// other living nodes.
func (n *Links) Reached() (reached, all int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.links {
		if l.control.Load() != nil {
			reached++
		}
	}
	return reached, len(n.links)
}

// ReachesAll reports whether the tunnels of all other living nodes can be used. It includes nodes that
// this one has not tried to reach yet.
func (n *Links) ReachesAll() bool {
	return !slices.ContainsFunc(n.o.Nodes.Peers(), func(node relay.Node) bool {
		l := n.link(node.ID)
		return node.PeerAddr != "" && (l == nil || l.control.Load() == nil)
	})
}

// Forwarded returns the number of channels that this node has opened at other nodes, and that they
// have opened at this one, since the start.
func (n *Links) Forwarded() (out, in int64) { return n.out.Load(), n.in.Load() }

// Origin returns the address of a caller in the form that requests to open a channel use.
func Origin(origin netip.AddrPort) string {
	if addr := origin.Addr().Unmap(); addr.IsValid() {
		return addr.String()
	}
	return "0.0.0.0"
}

// ErrNoBuffer is the answer to a request while the buffer space is used up.
var ErrNoBuffer = relay.Errorf(relay.CodeOverloaded, "too many responses wait for slow readers; retry in a moment")
