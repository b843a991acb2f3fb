package cluster

import (
	"context"

	"relay"
)

// SweepSeen sweeps the node with the given id, as if this node had seen no heartbeat of it after the one with
// the number beat.
func (s *Store) SweepSeen(ctx context.Context, id string, beat int64) error {
	return s.sweepNode(ctx, nodeRow{Node: relay.Node{ID: id, Name: id, Beat: beat}})
}
