package sshgate

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"net/netip"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/admission"
	"relay/record"
)

// Times of the owner of a tunnel.
const (
	peerOpenWait  = 1800 * time.Millisecond // for the client's answer to a channel open: less than the other node waits
	peerIdleFor   = 2500 * time.Millisecond // a client that is silent for longer gets no request on an unused channel
	peerFirstWait = time.Second             // for the client to say why it could not dial
	// For the other nodes to learn that a tunnel has gone and to close the channels that they do
	// not use: what is closed here may have a request on its way.
	peerLearns = 2 * time.Second
)

// peerConfig is the configuration of a connection that another node has made: that node
// logs in by its id and its key.
func (srv *Server) peerConfig(c *conn) *ssh.ServerConfig {
	nodes, refreshed := srv.o.Peers.Nodes, false
	config := &ssh.ServerConfig{
		Config:                  ssh.Config{Ciphers: ciphers(hasAES())},
		PublicKeyAuthAlgorithms: []string{ssh.KeyAlgoED25519},
		MaxAuthTries:            1,
		ServerVersion:           serverVersion,
		PublicKeyCallback: func(meta ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
			isThis := func(n relay.Node) bool { return n.ID == meta.User() }
			if !refreshed && !slices.ContainsFunc(nodes.Peers(), isThis) { // a node that has just started dials at once
				refreshed = true
				nodes.RefreshPeers(c.ctx)
			}
			for _, n := range nodes.Peers() {
				known, _, _, _, err := ssh.ParseAuthorizedKey([]byte(n.PeerKey))
				if isThis(n) && err == nil && bytes.Equal(known.Marshal(), key.Marshal()) {
					return &ssh.Permissions{}, nil
				}
			}
			c.setResult(resultRefused)
			return nil, errRefused
		},
	}
	config.AddHostKey(srv.o.Peers.Key)
	return config
}

// servePeer runs a connection that another node has made. It returns at its end.
func (p *peers) servePeer(c *conn) {
	defer c.recovered("peer")
	defer c.sock.Close()
	sc, channels, requests, err := ssh.NewServerConn(c.sock, p.srv.peerConfig(c))
	if err != nil {
		c.log.Info("a connection between nodes was refused", "err", record.SafeTextMax(err.Error(), 300))
		return
	}
	node := sc.User() // x/crypto has verified its key for this name
	c.mu.Lock()
	c.loggedIn = true
	c.sock.loggedIn.Store(true)
	c.handshake.Stop()
	c.log = c.log.With("node", node)
	c.mu.Unlock()
	c.slot.SetClass(admission.Node)
	p.mu.Lock()
	n := 0
	for _, id := range p.served {
		if id == node {
			n++
		}
	}
	if n < maxPeerConns {
		p.served[c] = node
	}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.served, c)
	}()
	if n >= maxPeerConns || !c.spawn(func() { p.globalRequests(requests) }) {
		go ssh.DiscardRequests(requests)
		_ = c.sock.Close()
	}
	for open := range channels { // to the last one: x/crypto waits until it is taken
		if open.ChannelType() != peerTunnel || !c.spawn(func() { p.serveOpen(c, open) }) {
			_ = open.Reject(ssh.Prohibited, "")
		}
	}
}

// globalRequests serves what the other node tells.
func (p *peers) globalRequests(requests <-chan *ssh.Request) {
	for req := range requests {
		var wake wakeQueue
		var taken takenOver
		switch {
		case req.Type == peerWake && ssh.Unmarshal(req.Payload, &wake) == nil:
			p.srv.o.Peers.Wake(int64(wake.Alias))
		case req.Type == peerTakenOver && ssh.Unmarshal(req.Payload, &taken) == nil:
			// A client that moves keeps its old connection until delivery here knows the new one.
			if f := p.tunnel(taken.Tunnel); f != nil && !f.c.isMoving() {
				f.Close(record.SafeTextMax(taken.Reason, 200))
			}
		}
		_ = req.Reply(req.Type == peerAlive, nil)
	}
}

// tunnel returns a tunnel of this node; nil = there is none of this id.
func (p *peers) tunnel(id string) *forward {
	f, _ := p.tunnels.Load(id)
	tunnel, _ := f.(*forward)
	return tunnel
}

// endBridges calls end for the channels of other nodes to the forwards that are meant.
func (p *peers) endBridges(end func(*bridge), meant func(*forward) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for b := range p.bridges {
		if meant(b.f) {
			go end(b)
		}
	}
}

// serveOpen opens a channel to the client of a tunnel for another node.
func (p *peers) serveOpen(c *conn, open ssh.NewChannel) {
	var m peerOpen
	if ssh.Unmarshal(open.ExtraData(), &m) != nil {
		_ = open.Reject(peerNotMe, "malformed")
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
	asked := time.Now()
	local, err := f.Open(ctx, netip.AddrPortFrom(addr, uint16(m.OriginPort)))
	if err != nil {
		heard := f.Heard() < time.Since(asked)
		_ = open.Reject(rejection(err, ctx.Err() != nil, heard))
		return
	}
	ch, reqs, err := open.Accept()
	if err != nil {
		_ = local.Close()
		return
	}
	p.in.Add(1)
	b := &bridge{
		srv: p.srv, f: f, remote: ch, local: local, busy: !addr.IsUnspecified(), done: make(chan struct{}),
		halfClosed: make(chan struct{}), gone: make(chan struct{}), upEnded: make(chan struct{}),
	}
	b.blocked = time.AfterFunc(time.Hour, b.reserve)
	b.blocked.Stop()
	p.mu.Lock()
	p.bridges[b] = struct{}{}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.bridges, b)
	}()
	defer b.close()
	c.spawn(b.up)
	c.spawn(b.down)
	b.requests(reqs)
	b.passRest()
}

// rejection is what another node is told of a channel that could not be opened: late tells
// that the client did not answer in time, heard that other bytes came from it meanwhile.
func rejection(err error, late, heard bool) (ssh.RejectionReason, string) {
	var e *relay.Error
	for reason, code := range openCodes {
		if errors.As(err, &e) && e.Code == code {
			return reason, e.Detail
		}
	}
	switch {
	case late && heard:
		return peerSlow, "the client does not answer in time"
	case late:
		return peerSilent, "the client does not answer"
	}
	return peerNone, "the tunnel is closing"
}

// bridge connects a channel of another node with one of a tunnel's client.
type bridge struct {
	srv    *Server
	f      *forward
	remote ssh.Channel
	local  relay.Channel

	done       chan struct{} // closed when the bridge ends
	halfClosed chan struct{} // closed when the other node has announced a half-close
	gone       chan struct{} // closed when the other node has closed its channel
	upEnded    chan struct{} // closed when the client has all that the other node sent
	half, end  sync.Once
	blocked    *time.Timer // runs reserve while a write waits for the client

	mu       sync.Mutex
	busy     bool   // it was opened for a request, or the bytes of one have come
	came     uint64 // bytes from the other node
	ended    uint64 // how many of them belong to requests that have ended
	release  func() // gives the slot of the tunnel back; nil = it has none
	reserved bool   // bytes are reserved in the budget
	closed   bool
}

// requests serves what the other node says of the channel, until it has closed it.
func (b *bridge) requests(reqs <-chan *ssh.Request) {
	for req := range reqs {
		switch req.Type {
		case peerHalfClose:
			b.half.Do(func() { close(b.halfClosed) })
		case peerParked:
			// x/crypto gives requests and data to different goroutines, so the bytes of the next
			// request may have been read before this.
			var m parked
			if ssh.Unmarshal(req.Payload, &m) != nil {
				break
			}
			b.mu.Lock()
			if b.came <= m.Sent {
				b.ended = m.Sent
				b.unuse()
			}
			b.mu.Unlock()
		}
		_ = req.Reply(false, nil)
	}
}

// passRest is called when the other node has closed its channel. The client gets what came
// before that, as it does at one node, where a write has reached it once it returns: a caller
// may have ended a connection right behind its last bytes, and a local server may answer before
// it reads. The request has no slot any more; a client that takes nothing is given up.
func (b *bridge) passRest() {
	b.mu.Lock()
	b.ended = math.MaxUint64
	b.unuse()
	b.mu.Unlock()
	close(b.gone)
	for came := uint64(0); ; {
		select {
		case <-b.upEnded:
			return
		case <-b.done:
			return
		case <-time.After(b.srv.o.StallTimeout):
		}
		b.mu.Lock()
		stuck := came == b.came
		came = b.came
		b.mu.Unlock()
		if stuck {
			return
		}
	}
}

// close ends both channels.
func (b *bridge) close() {
	b.mu.Lock()
	first := !b.closed
	b.closed = true
	b.unuse()
	b.mu.Unlock()
	if !first {
		return
	}
	close(b.done)
	b.unreserve() // from now on reserve does nothing
	_ = b.local.Close()
	_ = b.remote.Close()
}

// closeIdle closes the channel unless a request uses it.
func (b *bridge) closeIdle() {
	b.mu.Lock()
	busy := b.busy
	b.mu.Unlock()
	if !busy {
		b.lose()
	}
}

// lose ends the channel as one of a lost tunnel: a request on it fails with tunnel-lost, as
// those of this node do.
func (b *bridge) lose() { b.finish(peerEnding{Kind: peerLost}) }

// finish says how the channel ends, and ends it. An orderly end leaves it to the other node
// to close the channel.
func (b *bridge) finish(e peerEnding) {
	b.end.Do(func() {
		_, _ = b.remote.SendRequest(peerEnd, false, ssh.Marshal(e))
		_ = b.remote.CloseWrite()
	})
	if e.Kind != peerEOF {
		_ = b.remote.Close()
	}
}

// use takes a slot of the tunnel for a request, unless it has one, when n bytes have come.
func (b *bridge) use(n int) bool {
	b.mu.Lock()
	b.came += uint64(n)
	late, taken, closed := b.came <= b.ended, b.release != nil, b.closed
	b.busy = b.busy || !late
	b.mu.Unlock()
	if late || taken || closed {
		return !closed
	}
	release := func() {}
	if att := b.f.attachment(); att != nil { // else it is being attached
		var err *relay.Error
		// A request whose node closes the channel while it waits has ended there, and is not sent.
		if release, err = att.Acquire(b.gone); err != nil && err.Code == relay.CodeOverloaded {
			b.finish(peerEnding{Kind: peerRefused, Code: err.Code, Detail: err.Detail})
			return false
		} else if err != nil {
			b.lose()
			return false
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || !b.busy {
		release()
		return !b.closed
	}
	b.release = release
	return true
}

// unuse gives the slot back. The caller holds mu.
func (b *bridge) unuse() {
	b.busy = false
	if b.release != nil {
		b.release()
		b.release = nil
	}
}

// reserve counts the bytes that the other node may have sent and the client does not take.
func (b *bridge) reserve() {
	b.mu.Lock()
	ok := b.closed || b.reserved || b.srv.o.Budget.Reserve(b.f.alias.Owner, pausedBytes)
	b.reserved = b.reserved || ok && !b.closed
	b.mu.Unlock()
	if !ok {
		b.srv.metrics.channelsCut.Inc()
		b.lose()
	}
}

func (b *bridge) unreserve() {
	b.blocked.Stop()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.reserved {
		b.reserved = false
		b.srv.o.Budget.Release(b.f.alias.Owner, pausedBytes)
	}
}

// up carries what the other node sends to the client.
func (b *bridge) up() {
	defer close(b.upEnded)
	piece := b.srv.buffers.Get().(*[writePiece]byte)
	defer b.srv.buffers.Put(piece)
	for {
		n, err := b.remote.Read(piece[:])
		if n > 0 {
			if !b.use(n) {
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
	case <-b.gone:
	case <-b.done:
		return
	}
	select {
	case <-b.halfClosed:
		_ = b.local.CloseWrite()
	default:
	}
}

// down carries what the client sends to the other node.
func (b *bridge) down() {
	buf, got, taken := make([]byte, aheadPiece), false, true
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
			if taken { // else the other node has gone, and passRest ends the bridge
				_, err := b.remote.Write(buf[:f.N])
				taken = err == nil
			}
			if f.N == len(buf) && len(buf) < writePiece {
				buf = make([]byte, writePiece)
			}
		}
		if f.Err != nil {
			b.finish(b.ending(f.Err, got))
			return
		}
	}
}

func (b *bridge) ending(err error, got bool) peerEnding {
	switch {
	case errors.Is(err, io.EOF):
		if !got {
			if why := b.local.Refusal(peerFirstWait); why != nil {
				return peerEnding{Kind: peerRefused, Code: why.Code, Detail: why.Detail}
			}
		}
		return peerEnding{Kind: peerEOF}
	case errors.Is(err, io.ErrUnexpectedEOF):
		return peerEnding{Kind: peerBrokeOff}
	}
	return peerEnding{Kind: peerLost}
}

// recovered is deferred in goroutines that serve no connection of a user.
func (srv *Server) recovered(where string) {
	if r := recover(); r != nil {
		srv.o.Log.Error("panic in the ssh server", "where", where, "panic", r, "stack", string(debug.Stack()))
	}
}
