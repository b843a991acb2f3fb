package sshgate

import (
	"context"
	"slices"
	"time"

	"relay"
	"relay/cli"
	"relay/link"
	"relay/sshgate/shell"
)

// Bounds of a move of all clients to other nodes. The clients move in groups, called slices, because the other nodes
// should not get all logins at once.
const (
	moveInterval = 250 * time.Millisecond // time between two slices
	maxSlices    = 40
	minSlice     = 20              // smallest number of connections in a slice
	moveWait     = 5 * time.Second // time for a client to connect to another node
)

// Move sends the clients of this node to the other nodes, in slices, and refuses new clients until Stay. It returns
// when the connections of all clients have ended or are being drained, or at the end of ctx.
func (srv *Server) Move(ctx context.Context) {
	srv.moving.Store(true)
	tick := time.NewTicker(moveInterval)
	defer tick.Stop()
	for size := minSlice; ; {
		var waiting []*conn // clients that were not asked to move yet
		left := 0           // number of clients that have not left this node
		for _, c := range srv.users() {
			if c.started.Load() && c.Context().Err() == nil && !c.draining.Load() {
				left++
				if !c.moving.Load() {
					waiting = append(waiting, c)
				}
			}
		}
		if left == 0 {
			return
		}
		size = max(size, (len(waiting)+maxSlices-1)/maxSlices)
		for _, c := range waiting[:min(size, len(waiting))] {
			c.Go("move", c.move)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Stay ends the effect of Move: new clients are accepted again.
func (srv *Server) Stay() { srv.moving.Store(false) }

// hasOtherNodes reports whether there are other nodes that accept clients.
func (srv *Server) hasOtherNodes() bool {
	return srv.o.Peers.Nodes != nil &&
		slices.ContainsFunc(srv.o.Peers.Nodes.Peers(), func(n relay.Node) bool { return n.State == relay.NodeServing })
}

// move sends the client to another node and ends the connection. A client that supports moving keeps the connection
// until its aliases are online at the other node; a client of plain ssh gets a message and is disconnected.
func (c *conn) move() {
	if c.moving.Swap(true) {
		return
	}
	waits := c.announced.follows() && c.forwards.holds(func(*relay.Alias) bool { return true })
	c.notify(shell.Notice{
		Kind:    relay.NoticeMoving,
		Message: "this node of the relay takes no more clients; connect again now: " + c.srv.o.Site.SSHAddr + " leads to another one",
	})
	if waits {
		select {
		case <-c.moved:
		case <-time.After(c.srv.moveWait):
		case <-c.Context().Done():
		}
	}
	ctx := c.Context()
	if d := c.srv.o.DrainTime; d >= 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	c.drain(ctx, closeReason{cause: link.Moved, exit: cli.ExitUnreachable, graceful: true})
}

// forwardMoved ends the forward of a client that moves, after its alias has come online at another
// node. The requests on its channels continue.
func (c *conn) forwardMoved(f *forward) {
	taken, last := c.takeForward(f.is)
	if taken == nil {
		return
	}
	f.detach(true)
	if last {
		select {
		case c.moved <- struct{}{}:
		default: // c.moved has an element already: an earlier forward was the last one, and the client has added f since
		}
	}
}
