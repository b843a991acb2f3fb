package sshgate

import (
	"log/slog"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/sshgate/node"
)

// PeerOptions connect this node with the others.
type PeerOptions struct {
	Nodes node.Nodes // nil = there are no other nodes
	Key   ssh.Signer // of this node, for logging in at other nodes and for being known by them
	// Reachable is told when the tunnels of another node become usable, and when they are
	// not any more. Wake is told when another node has changed the queue of an alias.
	Reachable func(node string, reachable bool)
	Wake      func(alias int64)
	// Connections returns how many connections an account has at the other nodes; nil = none.
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

// ReachesAll reports whether the tunnels of all other living nodes can be used. It includes nodes that
// this one has not tried to reach yet.
func (srv *Server) ReachesAll() bool { return srv.o.Peers.Nodes == nil || srv.nodes.ReachesAll() }

// Forwarded returns the number of channels that this node has opened at other nodes, and that they
// have opened at this one, since the start.
func (srv *Server) Forwarded() (out, in int64) { return srv.nodes.Forwarded() }

// Owner implements node.Tunnel.
func (f *forward) Owner() int64 { return f.alias.Owner }

// Acquire implements node.Tunnel.
func (f *forward) Acquire(done <-chan struct{}) (release func(), err *relay.Error) {
	if att := f.attachment(); att != nil {
		return att.Acquire(done)
	}
	return func() {}, nil // it is being attached
}

// TakenOver implements node.Tunnel. It ends the forward, because another node has a newer tunnel of
// its alias. While the client itself moves to another node it does nothing: the old connection stays
// until the registry of this node has the new tunnel.
func (f *forward) TakenOver(reason string) {
	if !f.c.moving.Load() {
		f.Close(reason)
	}
}
