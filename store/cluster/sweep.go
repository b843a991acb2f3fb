package cluster

import (
	"context"
	mathrand "math/rand/v2"
	"strings"
	"time"

	"relay"
	"relay/store/db"
	"relay/store/events"
)

// SweepLoop sweeps dead nodes after each renewal, in its own goroutine, so that it does not delay the
// next renewal.
func (s *Store) SweepLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.membership.observed:
		}
		for _, node := range s.membership.dead() {
			if db.Pause(ctx, mathrand.N(sweepJitter)) != nil {
				return
			}
			if err := s.sweepNode(ctx, node); err != nil && ctx.Err() == nil && s.db.Away() == nil {
				s.log.Warn("a dead node cannot be swept yet; tried again each second", "node", node.Name, "err", err)
			}
		}
	}
}

// EndDeadNodes runs at the start of this node. It ends the attempts in progress and the tunnels of
// nodes that have ended. predecessor is the id of the node that used this data dir before, or "".
func (s *Store) EndDeadNodes(ctx context.Context, predecessor string) error {
	swept := 0
	for _, step := range []func() error{
		func() error { return s.sweepPredecessor(ctx, predecessor) },
		func() error {
			n, err := s.Sweep(ctx)
			swept += n
			return err
		},
		func() error { return s.clearTunnels(ctx) },
	} {
		if err := db.WhileBusy(ctx, step); err != nil {
			return err
		}
	}
	if swept > 0 {
		s.log.Warn("marked attempts as interrupted: relayd stopped during delivery", "attempts", swept)
	}
	return nil
}

// sweepPredecessor sweeps the node of the earlier process of this data dir, without waiting for deadAfter.
func (s *Store) sweepPredecessor(ctx context.Context, id string) error {
	if id == "" {
		return nil
	}
	if err := s.db.Execute(ctx, "call the predecessor dead", `UPDATE nodes SET state = 'dead' WHERE id = ?`, id); err != nil {
		return err
	}
	name, random, _ := strings.Cut(id, "/")
	if len(random) < 20 { // an id from an earlier version contains no name
		name = ""
	}
	return s.sweepNode(ctx, nodeRow{Node: relay.Node{ID: id, Name: name}})
}

// sweepNode ends the tunnels and the attempts in progress that a dead node has left. It removes the
// row of the node last, so that another node continues if this one fails.
func (s *Store) sweepNode(ctx context.Context, node nodeRow) error {
	m := &s.membership
	ours := false
	err := s.db.Update(ctx, "call a node dead", func(c *db.Tx) (err error) {
		ours, err = lockDead(c, node.ID, node.Beat)
		return err
	})
	if err != nil || !ours {
		return err
	}
	s.log.Warn("a node is dead: its tunnels are offline, and its attempts in progress are marked interrupted", "node", node.Name)
	for total, n := 0, 1; ; total += n {
		if n == 0 {
			m.swept.Add(1)
			s.log.Info("the attempts of a dead node are marked interrupted", "node", node.Name, "interrupted_attempts", total)
			return nil
		}
		err := s.db.Update(ctx, "sweep a dead node", func(c *db.Tx) (err error) {
			if ours, err = lockDead(c, node.ID, node.Beat); err != nil || !ours {
				return err
			}
			if n, err = events.InterruptSome(c, `claim_node = ?`, node.ID); err == nil && n == 0 {
				c.Do(`DELETE FROM nodes WHERE id = ?`, node.ID)
			}
			c.Announced = c.Changes
			return err
		})
		if err != nil || !ours {
			return err
		}
		m.interrupted.Add(int64(n))
	}
}

// lockDead locks the row of a node that is dead, or whose heartbeat still has the observed value. It marks
// the node as dead and detaches its tunnels. It returns false if the node lives, is gone, or is being swept
// by another node. A node that finds its own row marked as dead rejoins.
func lockDead(c *db.Tx, id string, beat int64) (bool, error) {
	rows, err := db.RowsOf(c.Query, func(n *relay.Node) []any { return []any{&n.State, (*db.Time)(&n.LastSeenAt)} },
		`SELECT state, seen_at FROM nodes WHERE id = ? AND (beat = ? OR state = 'dead')`+c.Dialect.SkipLocked(), id, beat)
	if err != nil || len(rows) == 0 {
		return false, err
	}
	if rows[0].State != relay.NodeDead {
		c.Do(`UPDATE nodes SET state = 'dead' WHERE id = ?`, id)
	}
	aliases, err := dropTunnels(c, `node_id = ?`, id)
	if err != nil {
		return true, err
	}
	seen := make(map[int64]time.Time, len(aliases))
	for _, alias := range aliases {
		seen[alias] = rows[0].LastSeenAt
	}
	return true, withholdSince(c, seen)
}

// Sweep ends every attempt whose node has no row in nodes, and returns the number of these attempts.
// Earlier versions left such attempts, or a node claimed them at the moment when it was swept.
func (s *Store) Sweep(ctx context.Context) (int, error) {
	total := 0
	for {
		n := 0
		err := s.db.Update(ctx, "sweep interrupted attempts", func(c *db.Tx) (err error) {
			n, err = events.InterruptSome(c, `NOT EXISTS (SELECT 1 FROM nodes WHERE id = attempts.claim_node)`)
			return err
		})
		if total += n; err != nil || n == 0 {
			return total, err
		}
	}
}
