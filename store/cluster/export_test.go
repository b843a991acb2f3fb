package cluster

import (
	"context"

	"relay"
)

// SweepSeen sweeps a node whose heartbeat was seen to stand still at the value beat.
func (s *Store) SweepSeen(ctx context.Context, id string, beat int64) error {
	return s.sweepNode(ctx, nodeRow{Node: relay.Node{ID: id, Name: id, Beat: beat}})
}
