package sshgate

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"net"
	"net/netip"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/admission"
	"relay/link"
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
				nodes.RefreshPeers(c.Context())
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

// options says what another node may do on a connection that it has made.
func (p *peers) options(c *conn, o *link.Options) {
	o.Request = p.request
	o.Channel = func(open *link.Offer) {
		if open.Type() != peerTunnel || !c.Go("peer channel", func() { p.serveOpen(c, open) }) {
			_ = open.Reject(link.Prohibited, "")
		}
	}
}

// servePeer runs a connection that another node has made. It returns at its end.
func (p *peers) servePeer(c *conn) {
	defer c.Recovered("peer")
	defer c.Close()
	sc, err := c.Accept(c.Context(), p.srv.peerConfig(c))
	if err != nil {
		c.Log().Info("a connection between nodes was refused", "err", record.SafeTextMax(err.Error(), 300))
		return
	}
	node := sc.User() // x/crypto has verified its key for this name
	c.SetLog(c.Log().With("node", node))
	c.mu.Lock()
	c.loggedIn = true
	c.Sock.LoggedIn()
	c.handshake.Stop()
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
	if n < maxPeerConns {
		<-c.Context().Done()
	}
}

// request serves what the other node tells.
func (p *peers) request(req *link.Request) {
	var wake wakeQueue
	var taken takenOver
	switch {
	case req.Type == peerWake && link.Unmarshal(req.Payload, &wake) == nil:
		p.srv.o.Peers.Wake(int64(wake.Alias))
	case req.Type == peerTakenOver && link.Unmarshal(req.Payload, &taken) == nil:
		// A client that moves keeps its old connection until delivery here knows the new one.
		if f := p.tunnel(taken.Tunnel); f != nil && !f.c.isMoving() {
			f.Close(record.SafeTextMax(taken.Reason, 200))
		}
	}
	_ = req.Reply(req.Type == peerAlive, nil)
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
func (p *peers) serveOpen(c *conn, open *link.Offer) {
	var m peerOpen
	if link.Unmarshal(open.Payload(), &m) != nil {
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
	ctx, cancel := context.WithTimeout(c.Context(), peerOpenWait)
	defer cancel()
	asked := time.Now()
	local, err := f.open(ctx, netip.AddrPortFrom(addr, uint16(m.OriginPort)))
	if err != nil {
		heard := f.Heard() < time.Since(asked)
		_ = open.Reject(rejection(err, ctx.Err() != nil, heard))
		return
	}
	b := &bridge{
		srv: p.srv, f: f, local: local, busy: !addr.IsUnspecified(), done: make(chan struct{}),
		halfClosed: make(chan struct{}), upEnded: make(chan struct{}),
	}
	b.remote, err = open.Accept(link.ChannelOptions{Request: b.request, Budget: p.srv.o.Budget, Account: f.alias.Owner, Cut: b.cut})
	if err != nil {
		_ = local.Close()
		return
	}
	p.in.Add(1)
	p.mu.Lock()
	p.bridges[b] = struct{}{}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.bridges, b)
	}()
	defer b.close()
	c.Go("bridge", b.up)
	c.Go("bridge", b.down)
	<-b.remote.Ended()
	b.passRest()
}

// rejection is what another node is told of a channel that could not be opened: late tells
// that the client did not answer in time, heard that other bytes came from it meanwhile.
func rejection(err error, late, heard bool) (link.Reason, string) {
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

// bridge connects a channel of another node with one of a tunnel's client. While the client does
// not take what the other node sends, that waits in the other node's channel, which counts it.
type bridge struct {
	srv    *Server
	f      *forward
	remote *link.Channel
	local  relay.Conn

	done       chan struct{} // closed when the bridge ends
	halfClosed chan struct{} // closed when the other node has announced a half-close
	upEnded    chan struct{} // closed when the client has all that the other node sent
	half, end  sync.Once

	mu      sync.Mutex
	busy    bool   // it was opened for a request, or the bytes of one have come
	came    uint64 // bytes from the other node
	ended   uint64 // how many of them belong to requests that have ended
	release func() // gives the slot of the tunnel back; nil = it has none
	closed  bool
}

// request serves what the other node says of the channel.
func (b *bridge) request(_ *link.Channel, req *link.Request) {
	switch req.Type {
	case peerHalfClose:
		b.half.Do(func() { close(b.halfClosed) })
	case peerParked:
		// x/crypto gives requests and data to different goroutines, so the bytes of the next
		// request may have been read before this.
		var m parked
		if link.Unmarshal(req.Payload, &m) != nil {
			return
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.came <= m.Sent {
			b.ended = m.Sent
			b.unuse()
		}
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
		_, _ = b.remote.SendRequest(peerEnd, false, link.Marshal(e))
		if !b.remote.Writing() { // else it is lost with what the other node does not take
			_ = b.remote.CloseWrite()
		}
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
		if release, err = att.Acquire(b.remote.Ended()); err != nil && err.Code == relay.CodeOverloaded {
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

// cut is called when there is no space for what the client does not take.
func (b *bridge) cut() {
	b.srv.metrics.channelsCut.Inc()
	b.lose()
}

// pieces are buffers for what passes a bridge. None is held by a bridge where nothing passes.
var pieces = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// pass reads one piece of from, and gives it to take.
func (b *bridge) pass(from relay.Conn, take func(p []byte) error) error {
	select {
	case <-from.Ready():
	case <-b.done:
		return net.ErrClosed
	}
	piece := pieces.Get().(*[32 << 10]byte)
	defer pieces.Put(piece)
	n, err := from.Read(piece[:])
	if n > 0 {
		if failed := take(piece[:n]); failed != nil {
			return failed
		}
	}
	return err
}

// errNotTaken ends what the other node sends: the client takes no more of it.
var errNotTaken = errors.New("the client takes no more")

// up carries what the other node sends to the client.
func (b *bridge) up() {
	defer close(b.upEnded)
	err := error(nil)
	for err == nil {
		err = b.pass(b.remote, func(p []byte) error {
			if !b.use(len(p)) {
				return net.ErrClosed
			}
			if _, err := b.local.Write(p); err != nil {
				return errNotTaken
			}
			return nil
		})
	}
	switch err {
	case net.ErrClosed:
		return
	case errNotTaken: // down learns why
		_, _ = io.Copy(io.Discard, b.remote)
		return
	}
	select {
	case <-b.halfClosed:
	case <-b.remote.Ended():
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
	got, taken, err := false, true, error(nil)
	for err == nil {
		err = b.pass(b.local, func(p []byte) error {
			got = true
			if taken { // else the other node has gone, and passRest ends the bridge
				_, failed := b.remote.Write(p)
				taken = failed == nil
			}
			return nil
		})
	}
	if !over(b.done) {
		b.finish(b.ending(err, got))
	}
}

func (b *bridge) ending(err error, got bool) peerEnding {
	switch {
	case errors.Is(err, io.EOF):
		if !got {
			if why := b.local.End(peerFirstWait).Refusal; why != nil {
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

func over(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}
