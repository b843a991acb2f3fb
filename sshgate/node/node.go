// Package node links this node with the other nodes of the store: it opens channels to their tunnels, and
// lets them open channels to the tunnels of this node. In this package, another relayd is called a node; a
// peer is the other end of any connection.
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
	// NodeID returns the id of this node. The id changes when a node that was declared dead rejoins.
	NodeID() string
	// Peers lists the other living nodes, without a query to the database.
	Peers() []relay.Node
	// RefreshPeers updates the list of Peers. The call may wait before it asks the store, because any connection that
	// claims to come from a node can cause such a call, and the store must not get many queries.
	RefreshPeers(context.Context)
}

// Tunnel is a tunnel of this node that other nodes use.
type Tunnel interface {
	// Open is like Open of relay.Tunnel.
	Open(ctx context.Context, origin netip.AddrPort) (relay.Conn, error)
	// Heard returns the time since the last byte from the client.
	Heard() time.Duration
	// Owner returns the account that owns the alias.
	Owner() int64
	// Acquire takes one of the tunnel's slots for a request, like relay.Attachment.Acquire.
	Acquire(done <-chan struct{}) (release func(), err *relay.Error)
	// TakenOver ends the tunnel because its alias has a newer tunnel.
	TakenOver(reason string)
}

// Options configure Links. All fields but Budget are required.
type Options struct {
	Nodes         Nodes
	Key           ssh.Signer // with this key the node logs in at other nodes, and proves to them which node it is
	ServerVersion string     // version line for other nodes
	// Reachable is called when the tunnels of another node become usable, and when they become unusable. Wake
	// is called when another node has changed the queue of an alias.
	Reachable func(node string, reachable bool)
	Wake      func(alias int64)

	Workers *link.Workers
	Budget  *budget.Budget
	// StallTimeout is how long a client may read nothing while it gets the last bytes of a channel that the other node
	// has closed. In the other direction, the other node may read nothing for slowNode times as long.
	StallTimeout time.Duration
	Cut          func(log *slog.Logger, owner int64) // called for each channel that was closed because the budget has no space for its bytes
	Log          *slog.Logger
}

// ClientVersion is the version line of a node that connects to another node. With this version line, the
// other node uses the host key for nodes, and not the one for users.
const ClientVersion = "SSH-2.0-relayd-peer"

const (
	pingEvery   = time.Second     // time between two pings
	silentAfter = 3 * time.Second // silence after which the other node is unreachable
	LoginTime   = 2 * time.Second // time limit for connecting and logging in
	redialEvery = time.Second     // time between two dials; the list of nodes is read twice as often
	maxData     = 4               // largest number of data connections to one node
	busyConn    = 16              // when each data connection has this many channels in use, another one is opened
	maxConns    = 2 * (1 + maxData)
	maxNotes    = 1024 // largest number of messages that wait to be sent to a node
)

// Requests and channels between nodes. Their payloads have the types of RFC 4251, section 5, in the order of
// the struct fields.
const (
	tunnelChannel    = "relay-tunnel@relay" // channel type: one connection to the local server of a tunnel
	wakeRequest      = "wake-queue@relay"   // global request
	takenOverRequest = "taken-over@relay"   // global request
	endRequest       = "end@relay"          // channel request of the tunnel's node: how the channel ends after the last byte
	halfCloseRequest = "half-close@relay"   // channel request of the caller's node: the EOF that follows is for the local server
	parkedRequest    = "parked@relay"       // channel request of the caller's node: no request uses the channel for now
)

// Payloads: openPayload of tunnelChannel, wakeQueue of wakeRequest, takenOver of takenOverRequest, parked of
// parkedRequest.
type (
	openPayload struct {
		Node       string // id of the intended node
		Tunnel     string
		Origin     string
		OriginPort uint32
	}
	wakeQueue struct{ Alias uint64 }
	takenOver struct{ Tunnel, Reason string }
	parked    struct{ Sent uint64 } // number of bytes that the caller's node has sent on the channel so far
)

// Reasons for refusing tunnelChannel channels, in addition to those of openCodes. The range is for
// private use (RFC 4254, section 5.1).
const (
	reasonNotMe  link.Reason = 0xfe000001 + iota // the request was meant for another node
	reasonNone                                   // this node does not have the tunnel (any more)
	reasonSilent                                 // the client of the tunnel sends no byte
	reasonSlow                                   // the client is alive, but did not answer in time
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
	Code   string // error code, for endRefused
	Detail string
}

// Kinds of the end of a channel, as one node reports it to another.
const (
	endEOF      = iota // the local server has closed its side
	endBrokeOff        // the local server aborted its connection
	endLost            // the tunnel was lost
	endRefused         // no byte reached a local server; Code has the reason
)

// Links holds the links to the other nodes, and the tunnels of this node that they use.
type Links struct {
	o       Options
	started sync.Once
	wg      sync.WaitGroup
	ctx     context.Context
	end     context.CancelFunc

	in, out atomic.Int64 // numbers of channels: in counts those that other nodes opened here, out those that this node opened there
	tunnels sync.Map     // string: Tunnel; the tunnels of this node that others can use, by id

	mu      sync.Mutex
	links   map[string]*nodeLink // the links, by node id
	bridges map[*bridge]struct{}
	served  map[*link.Conn]servedNode // connections from other nodes
}

// servedNode identifies the node at the other end of a connection.
type servedNode struct {
	id   string
	addr netip.Addr
}

// New returns Links without connections.
func New(o Options) *Links {
	n := &Links{o: o, links: map[string]*nodeLink{}, bridges: map[*bridge]struct{}{}, served: map[*link.Conn]servedNode{}}
	n.ctx, n.end = context.WithCancel(context.Background())
	return n
}

// Start begins to keep a link to each living node. Further calls do nothing.
func (n *Links) Start() { n.started.Do(func() { n.wg.Go(n.run) }) }

// Add makes a tunnel of this node usable for other nodes, by its id. Remove ends that.
func (n *Links) Add(id string, t Tunnel) { n.tunnels.Store(id, t) }

// Remove ends the use of a tunnel: no more channels are opened to it. If orderly is set, unused channels are
// closed only after the other nodes know of the end, because a request may be on its way on such a channel.
func (n *Links) Remove(id string, t Tunnel, orderly bool) {
	n.tunnels.Delete(id)
	closeIdle := func() { n.endBridges((*bridge).closeIdle, func(other Tunnel) bool { return other == t }) }
	if orderly {
		time.AfterFunc(learnTime, closeIdle)
	} else {
		closeIdle()
	}
}

// Lose ends all channels of other nodes to each tunnel for which the function meant returns true. It is called when a
// client is silent.
func (n *Links) Lose(meant func(Tunnel) bool) { n.endBridges((*bridge).lose, meant) }

// Bridged returns the number of channels of other nodes to tunnels of this node, and how many of them carry a request.
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

// Served returns the number of connections from other nodes.
func (n *Links) Served() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.served)
}

// Stop closes all links. If the client of a tunnel has gone, the channels of other nodes to the tunnel get up to
// pingEvery for their last bytes.
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

// run keeps a link to each living node until Stop. It also closes unused channels to tunnels whose client is
// silent: the next request then opens a new channel, which shows whether the client still answers.
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

// follow adds links to new nodes, and ends the links, connections and channels of nodes that have ended.
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
			go c.Close(link.NodeEnded)
		}
	}
}

// Knows reports whether a is the address of another node: this node dials the other node at a, or has connections
// that come from a.
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

// ReachesAll reports whether the tunnels of all other living nodes can be used. Nodes that this node has not
// tried to reach yet count as not usable.
func (n *Links) ReachesAll() bool {
	return !slices.ContainsFunc(n.o.Nodes.Peers(), func(node relay.Node) bool {
		l := n.link(node.ID)
		return node.PeerAddr != "" && (l == nil || l.control.Load() == nil)
	})
}

// Forwarded returns the numbers of channels since the start: those that this node opened at other nodes, and
// those that other nodes opened here.
func (n *Links) Forwarded() (out, in int64) { return n.out.Load(), n.in.Load() }

// Origin returns the address of a caller as the text that a channel open carries; 0.0.0.0 = unknown.
func Origin(origin netip.AddrPort) string {
	if addr := origin.Addr().Unmap(); addr.IsValid() {
		return addr.String()
	}
	return "0.0.0.0"
}

// ErrNoBuffer is the answer to a request while the buffer space is used up.
var ErrNoBuffer = relay.Errorf(relay.CodeOverloaded, "too many responses wait for slow readers; retry in a moment")
