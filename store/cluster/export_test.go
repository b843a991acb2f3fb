package cluster

import (
	"context"

	"relay"
)

// SweepSeen sweeps a node as if this node had seen that the heartbeat of the other one stays at the value beat.
func (s *Store) SweepSeen(ctx context.Context, id string, beat int64) error {
	return s.sweepNode(ctx, nodeRow{Node: relay.Node{ID: id, Name: id, Beat: beat}})
}
