package node

import (
	"bytes"
	"errors"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/link"
	"relay/record"
	"relay/waits"
)

// Times at the node that has the tunnel.
const (
	openWait  = 1800 * time.Millisecond // wait for the client's answer to a channel open; the other node waits longer for the answer of this node
	idleFor   = 2500 * time.Millisecond // after a longer silence of the client, the unused channels of its tunnel are closed
	firstWait = time.Second             // wait for the report of a failed dial, after the client has closed a channel without a byte
	// learnTime is how long the other nodes may take to learn that a tunnel has ended, and to close their unused
	// channels. This node closes these channels only after learnTime, because a request may be on its way on one of
	// them.
	learnTime = 2 * time.Second
)

// config returns the configuration of a connection from another node: a node logs in with its id and its key.
func (n *Links) config(c *link.Conn, refused func()) *ssh.ServerConfig {
	nodes, refreshed := n.o.Nodes, false
	config := &ssh.ServerConfig{
		Config:                  ssh.Config{Ciphers: link.Ciphers(nil)},
		PublicKeyAuthAlgorithms: []string{ssh.KeyAlgoED25519},
		MaxAuthTries:            1,
		ServerVersion:           n.o.ServerVersion,
		PublicKeyCallback: func(meta ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
			isThis := func(n relay.Node) bool { return n.ID == meta.User() }
			if !refreshed && !slices.ContainsFunc(nodes.Peers(), isThis) { // a new node may dial before the list has it
				refreshed = true
				nodes.RefreshPeers(c.Context())
			}
			for _, n := range nodes.Peers() {
				known, _, _, _, err := ssh.ParseAuthorizedKey([]byte(n.PeerKey))
				if isThis(n) && err == nil && bytes.Equal(known.Marshal(), key.Marshal()) {
					return &ssh.Permissions{}, nil
				}
			}
			refused()
			return nil, errRefused
		},
	}
	config.AddHostKey(n.o.Key)
	return config
}

var errRefused = errors.New("no node has this key")

// Handlers returns the handlers for the requests and channels of another node.
func (n *Links) Handlers() link.Handlers {
	return link.Handlers{Request: n.request, Channel: n.offered}
}

// Serve runs a connection from another node, and returns at its end. It calls the function refused if the key is
// not that of a node, otherwise the function loggedIn.
func (n *Links) Serve(c *link.Conn, from netip.Addr, refused, loggedIn func()) {
	defer c.Recovered("node")
	var id string
	handlers := n.Handlers()
	handlers.LoggedIn = func(meta ssh.ConnMetadata, _ *ssh.Permissions) {
		id = meta.User() // x/crypto has verified the key for this id
		c.SetLog(c.Log().With("node", id))
		loggedIn()
	}
	if err := c.Accept(c.Context(), n.config(c, refused), handlers); err != nil {
		c.Log().Info("a connection between nodes was refused", "err", record.SafeTextMax(err.Error(), 300))
		return
	}
	if !n.addServed(c, servedNode{id, from}) {
		c.Close(link.NoSlot)
		return
	}
	<-c.Context().Done()
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.served, c)
}

// addServed adds a connection from another node. It returns false if that node has too many connections.
func (n *Links) addServed(c *link.Conn, from servedNode) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	same := 0
	for _, other := range n.served {
		if other.id == from.id {
			same++
		}
	}
	if same >= maxConns {
		return false
	}
	n.served[c] = from
	return true
}

// offered handles a channel that another node opens.
func (n *Links) offered(open *link.Offer) {
	if open.Type() != tunnelChannel || !open.Conn().Go("channel of a node", func() { n.serveOpen(open) }) {
		_ = open.Reject(link.Prohibited, "")
	}
}

// request handles a global request of another node.
func (n *Links) request(req *link.Request) {
	var wake wakeQueue
	var taken takenOver
	switch {
	case req.Type == wakeRequest && link.Unmarshal(req.Payload, &wake) == nil:
		n.o.Wake(int64(wake.Alias))
	case req.Type == takenOverRequest && link.Unmarshal(req.Payload, &taken) == nil:
		if t := n.tunnel(taken.Tunnel); t != nil {
			t.TakenOver(record.SafeTextMax(taken.Reason, 200))
		}
	}
	_ = req.Reply(false, nil) // a ping gets this reply, too
}

// tunnel returns the tunnel of this node with an id; nil = none.
func (n *Links) tunnel(id string) Tunnel {
	t, _ := n.tunnels.Load(id)
	tunnel, _ := t.(Tunnel)
	return tunnel
}

// endBridges calls the function end for each channel of another node to a tunnel for which the function meant returns
// true.
func (n *Links) endBridges(end func(*bridge), meant func(Tunnel) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for b := range n.bridges {
		if meant(b.tunnel) {
			go end(b)
		}
	}
}

// serveOpen opens a channel to the client of a tunnel for another node.
func (n *Links) serveOpen(open *link.Offer) {
	var m openPayload
	if link.Unmarshal(open.Payload(), &m) != nil {
		_ = open.Reject(reasonNotMe, "malformed")
		return
	}
	t, c := n.tunnel(m.Tunnel), open.Conn()
	switch {
	case m.Node != n.o.Nodes.NodeID():
		_ = open.Reject(reasonNotMe, "another node was meant")
		return
	case t == nil:
		_ = open.Reject(reasonNone, "no such tunnel")
		return
	}
	addr, _ := netip.ParseAddr(m.Origin)
	ctx, cancel := waits.WithTimeout(c.Context(), openWait)
	defer cancel()
	asked := time.Now()
	local, err := t.Open(ctx, netip.AddrPortFrom(addr, uint16(m.OriginPort)))
	if err != nil {
		heard := t.Heard() < time.Since(asked)
		_ = open.Reject(rejection(err, ctx.Err() != nil, heard))
		return
	}
	b := &bridge{
		o: &n.o, tunnel: t, local: local, busy: !addr.IsUnspecified(), done: make(chan struct{}),
		halfClosed: make(chan struct{}), upEnded: make(chan struct{}), downEnded: make(chan struct{}),
	}
	b.remote, err = open.Accept(link.ChannelOptions{Request: b.request, Budget: n.o.Budget, Account: t.Owner(), Cut: b.cut})
	if err != nil {
		_ = local.Close()
		return
	}
	n.in.Add(1)
	n.mu.Lock()
	n.bridges[b] = struct{}{}
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.bridges, b)
	}()
	defer b.close()
	c.Go("bridge", b.up)
	c.Go("bridge", b.down)
	var gone <-chan struct{}
	if ch, ok := local.(*link.Channel); ok {
		gone = ch.Ended()
	}
	select {
	case <-b.remote.Ended():
		b.passRest()
	case <-gone:
		b.awaitOtherNode()
	}
}

// rejection returns the reason and the text for a channel that could not be opened. late means that the
// client did not answer in time, and heard means that it sent other bytes in that time.
func rejection(err error, late, heard bool) (link.Reason, string) {
	var e *relay.Error
	for reason, code := range openCodes {
		if errors.As(err, &e) && e.Code == code {
			return reason, e.Detail
		}
	}
	switch {
	case late && heard:
		return reasonSlow, "the client does not answer in time"
	case late:
		return reasonSilent, "the client does not answer"
	}
	return reasonNone, "the tunnel is closing"
}
