package sshgate

import (
	"log/slog"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/sshgate/node"
)

// PeerOptions connect this node with the other nodes.
type PeerOptions struct {
	Nodes node.Nodes // nil = there are no other nodes
	Key   ssh.Signer // with this key the node logs in at other nodes, and proves to them which node it is
	// Reachable is called when the tunnels of another node become usable, and when they become unusable. Wake
	// is called when another node has changed the queue of an alias.
	Reachable func(node string, reachable bool)
	Wake      func(alias int64)
	// Connections returns the number of connections of an account at the other nodes; nil = there are no other
	// nodes.
	Connections func(account int64) int
}

func (srv *Server) newNodes() *node.Links {
	o := &srv.o
	return node.New(node.Options{
		Nodes: o.Peers.Nodes, Key: o.Peers.Key, ServerVersion: serverVersion, Reachable: o.Peers.Reachable, Wake: o.Peers.Wake,
		Workers: srv.work, Budget: o.Budget, StallTimeout: o.StallTimeout, Cut: srv.channelCut, Log: o.Log,
	})
}

// channelCut logs and counts a channel that was closed because its bytes found no buffer space.
func (srv *Server) channelCut(log *slog.Logger, owner int64) {
	log.Warn("channel closed: no buffer space for bytes that its receiver does not read", "account_id", owner)
	srv.metrics.channelsCut.Inc()
}

// Remote returns the RemoteTunnel for a tunnel of another node.
func (srv *Server) Remote(rec relay.TunnelRecord) relay.RemoteTunnel {
	return srv.nodes.Remote(rec)
}

// Reached returns the number of other living nodes whose tunnels can be used, and the number of all
// other living nodes.
func (srv *Server) Reached() (reached, all int) { return srv.nodes.Reached() }

// ReachesAll reports whether the tunnels of all other living nodes can be used. Nodes that this node has not
// tried to reach yet count as not usable.
func (srv *Server) ReachesAll() bool { return srv.o.Peers.Nodes == nil || srv.nodes.ReachesAll() }

// Forwarded returns the numbers of channels since the start: those that this node opened at other nodes, and
// those that other nodes opened here.
func (srv *Server) Forwarded() (out, in int64) { return srv.nodes.Forwarded() }

// Owner implements node.Tunnel.
func (f *forward) Owner() int64 { return f.alias.Owner }

// Acquire implements node.Tunnel.
func (f *forward) Acquire(done <-chan struct{}) (release func(), err *relay.Error) {
	if att := f.attachment(); att != nil {
		return att.Acquire(done)
	}
	return func() {}, nil // the limit of requests belongs to the attachment, which does not exist yet
}

// TakenOver implements node.Tunnel. It ends the forward, because another node has a newer tunnel of its
// alias. It does nothing while the client moves to another node: the old connection stays until this node
// knows the new tunnel.
func (f *forward) TakenOver(reason string) {
	if !f.c.moving.Load() {
		f.Close(reason)
	}
}
