package sshgate

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/netip"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/record"
)

// Times of the owner of a tunnel.
const (
	peerOpenWait  = 1800 * time.Millisecond // for the client's answer to a channel open: less than the other node waits
	peerIdleFor   = 2500 * time.Millisecond // a client that is silent for longer gets no request on an unused channel
	peerFirstWait = time.Second             // for the client to say why it could not dial
)

// isPeer reports whether the other side of a connection says that it is a node.
func (c *conn) isPeer() bool {
	return c.srv.o.Peers.Nodes != nil && strings.HasPrefix(c.version, peerVersion)
}

// peerIDKey is where the id of a node lies in the permissions of its connection.
type peerIDKey struct{}

// servePeer runs a connection that another node has made. It returns at its end.
func (srv *Server) servePeer(c *conn) {
	defer c.recovered("peer")
	defer c.sock.Close()
	nodes, refreshed := srv.o.Peers.Nodes, false
	check := func(meta ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		byID := func(n relay.Node) bool { return n.ID == meta.User() }
		if !refreshed && !slices.ContainsFunc(nodes.Peers(), byID) { // a node that has just started dials at once
			refreshed = true
			nodes.RefreshPeers(c.ctx)
		}
		for _, n := range nodes.Peers() {
			known, _, _, _, err := ssh.ParseAuthorizedKey([]byte(n.PeerKey))
			if byID(n) && err == nil && bytes.Equal(known.Marshal(), key.Marshal()) {
				return &ssh.Permissions{ExtraData: map[any]any{peerIDKey{}: n.ID}}, nil
			}
		}
		c.setResult(resultRefused)
		return nil, errRefused
	}
	config := &ssh.ServerConfig{
		Config:                  ssh.Config{Ciphers: ciphers(hasAES())},
		PublicKeyAuthAlgorithms: []string{ssh.KeyAlgoED25519},
		MaxAuthTries:            1,
		ServerVersion:           serverVersion,
		PublicKeyCallback:       check,
		VerifiedPublicKeyCallback: func(meta ssh.ConnMetadata, key ssh.PublicKey, _ *ssh.Permissions, _ string) (*ssh.Permissions, error) {
			return check(meta, key)
		},
	}
	config.AddHostKey(srv.o.Peers.Key)
	sc, channels, requests, err := ssh.NewServerConn(c.sock, config)
	if err != nil {
		c.log.Info("a connection between nodes was refused", "err", record.SafeTextMax(err.Error(), 300))
		return
	}
	node, _ := sc.Permissions.ExtraData[peerIDKey{}].(string)
	if node == "" || !srv.peers.admit(c, node) {
		return
	}
	defer srv.peers.leave(c)
	if !c.spawn(func() { srv.peers.globalRequests(c, requests) }) {
		return
	}
	c.spawn(func() { c.watchPeer() })
	for open := range channels {
		if open.ChannelType() != peerTunnel {
			_ = open.Reject(ssh.Prohibited, "")
			continue
		}
		if !c.spawn(func() { srv.peers.serveOpen(c, open) }) {
			return
		}
	}
}

// admit counts a connection of another node in.
func (p *peers) admit(c *conn, node string) bool {
	c.mu.Lock()
	c.loggedIn = true
	c.handshake.Stop()
	c.log = c.log.With("node", node)
	c.mu.Unlock()
	p.srv.limiter.loggedIn(&c.slot)
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, id := range p.served {
		if id == node {
			n++
		}
	}
	if n >= maxPeerConns {
		return false
	}
	p.served[c] = node
	return true
}

func (p *peers) leave(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.served, c)
}

// watchPeer closes a connection of another node on which nothing moves. Only its control
// connection is pinged, so that silence alone means nothing.
func (c *conn) watchPeer() {
	tick := time.NewTicker(peerPing)
	defer tick.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-tick.C:
			c.sock.checkWrite()
		}
	}
}

// globalRequests serves what the other node tells.
func (p *peers) globalRequests(c *conn, requests <-chan *ssh.Request) {
	for req := range requests {
		switch req.Type {
		case peerWake:
			var m struct{ Alias uint64 }
			if ssh.Unmarshal(req.Payload, &m) == nil {
				p.srv.o.Peers.Wake(int64(m.Alias))
			}
		case peerTakenOver:
			var m struct{ Tunnel, Reason string }
			if ssh.Unmarshal(req.Payload, &m) == nil {
				// A client that moves keeps its old connection until delivery here knows the new one.
				if f := p.tunnel(m.Tunnel); f != nil && !f.tunnel.c.isMoving() {
					f.tunnel.Close(record.SafeTextMax(m.Reason, 200))
				}
			}
		}
		_ = req.Reply(req.Type == peerAlive, nil)
	}
}

// attached makes a tunnel of this node usable for the others; detached ends that, and
// closes the channels of it that no request uses.
func (p *peers) attached(f *forward) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tunnels[f.tunnel.info.ID] = f
}

func (p *peers) detached(f *forward) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.tunnels, f.tunnel.info.ID)
	for b := range p.bridges {
		if b.f == f {
			go b.closeIdle()
		}
	}
}

func (p *peers) tunnel(id string) *forward {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tunnels[id]
}

// lost ends the channels of other nodes to a connection whose peer is silent: requests on
// them fail with tunnel-lost, as those of this node do.
func (p *peers) lost(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for b := range p.bridges {
		if b.f.tunnel.c == c {
			go b.finish(peerEnding{Kind: peerLost})
		}
	}
}

// closeSilent closes unused channels of tunnels whose client is silent: the next request
// then opens a new one, which shows whether the client is still there.
func (p *peers) closeSilent() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for b := range p.bridges {
		if b.f.tunnel.Heard() > peerIdleFor {
			go b.closeIdle()
		}
	}
}

// serveOpen opens a channel to the client of a tunnel for another node.
func (p *peers) serveOpen(c *conn, open ssh.NewChannel) {
	var m peerOpen
	if ssh.Unmarshal(open.ExtraData(), &m) != nil {
		_ = open.Reject(ssh.ConnectionFailed, "malformed")
		return
	}
	f := p.tunnel(m.Tunnel)
	switch {
	case m.Node != p.srv.o.Peers.Nodes.NodeID():
		_ = open.Reject(peerNotMe, "another node was meant")
		return
	case f == nil:
		_ = open.Reject(peerNone, "no such tunnel")
		return
	}
	addr, _ := netip.ParseAddr(m.Origin)
	ctx, cancel := context.WithTimeout(c.ctx, peerOpenWait)
	defer cancel()
	local, err := f.tunnel.Open(ctx, netip.AddrPortFrom(addr, uint16(m.OriginPort)))
	if err != nil {
		reason, text := rejection(err)
		if reason == peerNone && ctx.Err() != nil {
			reason = peerSilent
		}
		_ = open.Reject(reason, text)
		return
	}
	ch, reqs, err := open.Accept()
	if err != nil {
		_ = local.Close()
		return
	}
	p.in.Add(1)
	b := &bridge{p: p, c: c, f: f, remote: ch, local: local, asked: !addr.IsUnspecified(), done: make(chan struct{}), halfClosed: make(chan struct{})}
	b.blocked = time.AfterFunc(time.Hour, b.reserve)
	b.blocked.Stop()
	b.run(reqs)
}

// rejection is the reason for which a channel open of another node is refused.
func rejection(err error) (ssh.RejectionReason, string) {
	var e *relay.Error
	if errors.As(err, &e) {
		switch e.Code {
		case relay.CodeLocalRefused:
			return ssh.ConnectionFailed, e.Detail
		case relay.CodeLocalUnresolvable:
			return ssh.Prohibited, e.Detail
		case relay.CodeOverloaded:
			return ssh.ResourceShortage, e.Detail
		}
	}
	return peerNone, "the tunnel is closing"
}

// bridge connects a channel of another node with one of a tunnel's client.
type bridge struct {
	p      *peers
	c      *conn // of the other node
	f      *forward
	remote ssh.Channel
	local  relay.Channel

	done       chan struct{} // closed when the other node has closed its channel, or the bridge ends
	halfClosed chan struct{} // closed when the other node has announced a half-close
	once       sync.Once
	endOnce    sync.Once
	blocked    *time.Timer // runs reserve while a write waits for the client

	mu       sync.Mutex
	inUse    bool   // the bytes of a request have come
	asked    bool   // it was opened for a request, whose bytes are to come
	release  func() // gives the slot of the tunnel back; nil = it has none
	reserved bool   // bytes are reserved in the budget
	closed   bool
}

// run carries bytes both ways until the channel of the other node is closed.
func (b *bridge) run(reqs <-chan *ssh.Request) {
	b.p.mu.Lock()
	b.p.bridges[b] = struct{}{}
	b.p.mu.Unlock()
	defer b.forget()
	b.c.spawn(b.up)
	b.c.spawn(b.down)
	for req := range reqs {
		switch req.Type {
		case peerHalfClose:
			b.once.Do(func() { close(b.halfClosed) })
		case peerParked:
			b.unuse()
		}
		_ = req.Reply(false, nil)
	}
	b.close()
}

func (b *bridge) forget() {
	b.close()
	b.p.mu.Lock()
	delete(b.p.bridges, b)
	b.p.mu.Unlock()
}

// close ends both channels.
func (b *bridge) close() {
	b.mu.Lock()
	first := !b.closed
	b.closed = true
	b.mu.Unlock()
	if !first {
		return
	}
	close(b.done)
	b.unuse()
	_ = b.local.Close()
	_ = b.remote.Close()
}

// closeIdle closes the channel unless a request uses it.
func (b *bridge) closeIdle() {
	b.mu.Lock()
	idle := !b.inUse && !b.asked
	b.mu.Unlock()
	if idle {
		b.finish(peerEnding{Kind: peerLost})
	}
}

// finish says how the channel ends, and ends it. An orderly end leaves it to the other node
// to close the channel.
func (b *bridge) finish(e peerEnding) {
	b.endOnce.Do(func() {
		_, _ = b.remote.SendRequest(peerEnd, false, ssh.Marshal(e))
		_ = b.remote.CloseWrite()
	})
	if e.Kind != peerEOF {
		_ = b.remote.Close()
	}
}

// use takes a slot of the tunnel for a request whose first bytes have come.
func (b *bridge) use() bool {
	b.mu.Lock()
	if b.inUse || b.closed {
		defer b.mu.Unlock()
		return !b.closed
	}
	b.inUse = true
	b.mu.Unlock()
	release, err := b.f.acquire(b.done)
	if err != nil {
		if err.Code == relay.CodeOverloaded {
			b.finish(peerEnding{Kind: peerRefused, Code: err.Code, Detail: err.Detail})
		} else {
			b.finish(peerEnding{Kind: peerLost})
		}
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || !b.inUse {
		release()
		return !b.closed
	}
	b.release = release
	return true
}

func (b *bridge) unuse() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inUse, b.asked = false, false
	if b.release != nil {
		b.release()
		b.release = nil
	}
}

// reserve counts the bytes that the other node may have sent and the client does not take.
func (b *bridge) reserve() {
	b.mu.Lock()
	ok := b.closed || b.reserved || b.p.srv.o.Budget.Reserve(b.f.tunnel.owner, pausedBytes)
	b.reserved = b.reserved || ok && !b.closed
	b.mu.Unlock()
	if !ok {
		b.p.srv.metrics.channelsCut.Inc()
		b.finish(peerEnding{Kind: peerLost})
	}
}

func (b *bridge) unreserve() {
	b.blocked.Stop()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.reserved {
		b.reserved = false
		b.p.srv.o.Budget.Release(b.f.tunnel.owner, pausedBytes)
	}
}

// up carries what the other node sends to the client.
func (b *bridge) up() {
	defer b.unreserve()
	piece := b.p.srv.buffers.Get().(*[writePiece]byte)
	defer b.p.srv.buffers.Put(piece)
	for {
		n, err := b.remote.Read(piece[:])
		if n > 0 {
			if !b.use() {
				return
			}
			b.blocked.Reset(pauseAfter)
			_, werr := b.local.Write(piece[:n])
			b.unreserve()
			if werr != nil { // down learns why
				_, _ = io.Copy(io.Discard, b.remote)
				return
			}
		}
		if err != nil {
			break
		}
	}
	select {
	case <-b.halfClosed:
		_ = b.local.CloseWrite()
	case <-b.done:
	}
}

// down carries what the client sends to the other node.
func (b *bridge) down() {
	buf, got := make([]byte, aheadPiece), false
	for {
		b.local.Fill(buf)
		var f relay.Fill
		select {
		case f = <-b.local.Filled():
		case <-b.done:
			return
		}
		if f.N > 0 {
			got = true
			if _, err := b.remote.Write(buf[:f.N]); err != nil {
				b.close()
				return
			}
			if f.N == len(buf) && len(buf) < writePiece {
				buf = make([]byte, writePiece)
			}
		}
		if f.Err == nil {
			continue
		}
		b.finish(b.ending(f.Err, got))
		return
	}
}

func (b *bridge) ending(err error, got bool) peerEnding {
	switch {
	case errors.Is(err, io.EOF) && !got:
		if why := b.local.Refusal(peerFirstWait); why != nil {
			return peerEnding{Kind: peerRefused, Code: why.Code, Detail: why.Detail}
		}
		return peerEnding{Kind: peerEOF}
	case errors.Is(err, io.EOF):
		return peerEnding{Kind: peerEOF}
	case errors.Is(err, io.ErrUnexpectedEOF):
		return peerEnding{Kind: peerBrokeOff}
	}
	return peerEnding{Kind: peerLost}
}

// acquire takes one of the slots of the tunnel.
func (f *forward) acquire(done <-chan struct{}) (func(), *relay.Error) {
	f.tunnel.c.mu.Lock()
	att := f.att
	f.tunnel.c.mu.Unlock()
	if att == nil {
		return func() {}, nil // it is being attached
	}
	return att.Acquire(done)
}

// recovered is deferred in goroutines that serve no connection of a user.
func (srv *Server) recovered(where string) {
	if r := recover(); r != nil {
		srv.o.Log.Error("panic in the ssh server", "where", where, "panic", r, "stack", string(debug.Stack()))
	}
}
