package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"relay"
	"relay/store/db"
	"relay/store/people"
)

// nodeRow is a row of the table nodes, and further values that the same query reads.
type nodeRow struct {
	relay.Node
	cut      string    // see membership.cut
	now      time.Time // clock of the database
	accounts string    // number of connections of each account, such as "12:3,15:20"; only read with the heartbeat
	renewed  int       // rows that the renewal changed, 0 or 1; only read with the heartbeat
	database int64     // schema of the database; only read with the heartbeat
}

const nodeColumns = `id, name, peer_addr, peer_key, version, schema_version, started_at, seen_at, beat, state, spool_steps, clock_offset_us, feed, unreachable`

// fields returns the destinations of nodeColumns and of the database time.
func (r *nodeRow) fields() []any {
	return []any{
		&r.ID, &r.Name, &r.PeerAddr, &r.PeerKey, &r.Version, &r.Schema, (*db.Time)(&r.Since), (*db.Time)(&r.LastSeenAt), &r.Beat, &r.State,
		&r.SpoolSteps, db.Period(&r.ClockOffset), &r.Feed, &r.cut, (*db.Time)(&r.now),
	}
}

// nodeRows reads the rows of all nodes.
func (s *Store) nodeRows(ctx context.Context) ([]nodeRow, error) {
	return db.ReadRows(ctx, s.db, "read nodes", func(r *nodeRow) []any { return append(r.fields(), &r.Tunnels) },
		`SELECT `+nodeColumns+`, `+s.db.Dialect.DatabaseTime()+`, (SELECT COUNT(*) FROM tunnels t WHERE t.node_id = nodes.id) FROM nodes ORDER BY name, id`)
}

// DrainNode asks the node with a name to send its clients to the other nodes and to accept no new ones; with on
// = false, the node is to serve again. The node learns this with its next heartbeat. If a drained node is
// started again, it serves. Errors: ErrNotFound if no living node has the name; code conflict if no other node
// serves.
func (s *Store) DrainNode(ctx context.Context, who relay.Actor, name string, on bool) error {
	nobodyElse := relay.Errorf(relay.CodeConflict, "no other node is serving, so the clients of %s could not connect to any node; start another node first", name)
	from, to, action := relay.NodeDraining, relay.NodeServing, "node.resume"
	if on {
		from, to, action = to, from, "node.drain"
	}
	nodes, err := s.Nodes(ctx) // dead nodes are marked in this list
	if err != nil {
		return err
	}
	id, others := "", 0
	for _, n := range nodes {
		switch {
		case n.Name == name && n.State != relay.NodeDead:
			id = n.ID
		case n.State == relay.NodeServing:
			others++
		}
	}
	switch {
	case id == "":
		return relay.ErrNotFound
	case on && others == 0:
		return nobodyElse
	}
	return s.db.Update(ctx, "drain a node", func(c *db.Tx) error {
		if on { // with this lock, one of two nodes that are drained at once continues to serve
			c.LockText("drain", "")
			var left int
			if err := c.Get(&left, `SELECT COUNT(*) FROM nodes WHERE id <> ? AND state = ?`, id, relay.NodeServing); err != nil {
				return err
			}
			if left == 0 {
				return nobodyElse
			}
		}
		n, err := c.Exec(`UPDATE nodes SET state = ? WHERE id = ? AND state = ?`, to, id, from)
		if err != nil || n == 0 { // with n = 0 the node has that state already
			return err
		}
		return people.Audit(c, who, 0, action, name, "")
	})
}

// NodeName returns the name of this node; "" before Serve.
func (s *Store) NodeName() string {
	m := &s.membership
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.name
}

// Nodes lists the nodes of the store. In a serving process a node counts as dead if the process has seen no
// new heartbeat of it. An operator command observes no heartbeats and uses the stored time of the last one.
func (s *Store) Nodes(ctx context.Context) ([]relay.Node, error) {
	rows, err := s.nodeRows(ctx)
	if err != nil {
		return nil, err
	}
	m := &s.membership
	list := make([]relay.Node, len(rows))
	for i := range rows {
		list[i] = rows[i].Node
		if !s.db.Dialect.SeveralNodes() {
			serving, err := s.Served() // a SQLite server has no heartbeat, so its lock is checked
			if err != nil {
				return nil, fmt.Errorf("look for a server: %w", err)
			}
			if list[i].LastSeenAt = s.db.Now(); !serving {
				list[i].State, list[i].LastSeenAt = relay.NodeDead, rows[i].LastSeenAt
			}
		}
		m.mu.Lock()
		seen, joined := m.others[rows[i].ID], m.id != ""
		switch {
		case rows[i].ID == m.id:
			list[i].Self, list[i].State, list[i].ClockOffset = true, m.state, time.Duration(s.db.Clock.Offset.Load())
		case !s.db.Dialect.SeveralNodes():
		case joined && seen != nil && m.stillFor(seen) >= deadAfter, !joined && rows[i].now.Sub(rows[i].LastSeenAt) > deadAfter+beatInterval:
			list[i].State = relay.NodeDead
		}
		m.mu.Unlock()
	}
	markUnreachable(rows, list)
	return list, nil
}

// markUnreachable gives the state NodeUnreachable to serving nodes that other living nodes cannot connect to.
// rows and list describe the same nodes in the same order.
func markUnreachable(rows []nodeRow, list []relay.Node) {
	for i := range list {
		if list[i].State != relay.NodeServing {
			continue
		}
		for j, r := range rows {
			if list[j].State != relay.NodeDead && slices.Contains(strings.Split(r.cut, "\n"), list[i].ID) {
				list[i].UnreachableFrom = append(list[i].UnreachableFrom, list[j].Name)
			}
		}
	}
	for i := range list {
		if len(list[i].UnreachableFrom) > 0 {
			list[i].State = relay.NodeUnreachable
		}
	}
}

// SetConnections sets the function that returns the number of SSH connections of each account at this node.
// They count for the limit of an account over all nodes. Accounts that f leaves out have none. Call it before
// Serve.
func (s *Store) SetConnections(f func() map[int64]int) { s.membership.connections = f }

// ConnectionsElsewhere returns, from memory, the number of SSH connections of an account at the other
// living nodes. The number is at most a second old as long as notices arrive, because a node that
// writes a change notifies the others.
func (s *Store) ConnectionsElsewhere(account int64) (n int) {
	m := &s.membership
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, seen := range m.others {
		if seen.row.State != relay.NodeDead && m.stillFor(seen) < deadAfter {
			n += int(max(seen.connections[account], 0))
		}
	}
	return n
}

// connectionsChanged reports whether the connections have changed since the last renewal wrote them.
// After a failed renewal it returns false, because the next regular renewal writes them.
func (m *membership) connectionsChanged() bool {
	now := m.countConnections()
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.steady.IsZero() && now != m.toldAccounts
}

// countConnections returns the text that the next renewal writes: "ACCOUNT:CONNECTIONS", ordered by account.
func (m *membership) countConnections() string {
	if m.connections == nil {
		return ""
	}
	byAccount := m.connections()
	var entries []string
	for _, account := range slices.Sorted(maps.Keys(byAccount)) {
		entries = append(entries, strconv.FormatInt(account, 10)+":"+strconv.Itoa(byAccount[account]))
	}
	return strings.Join(entries, ",")
}

// ParseCounts reads counts by id, such as "12:3,15:20". It leaves out entries that it cannot parse.
func ParseCounts(text string) map[int64]int64 {
	byID := map[int64]int64{}
	for entry := range strings.SplitSeq(text, ",") {
		id, count, _ := strings.Cut(entry, ":")
		k, err := strconv.ParseInt(id, 10, 64)
		n, countErr := strconv.ParseInt(count, 10, 64)
		if err == nil && countErr == nil {
			byID[k] = n
		}
	}
	return byID
}
