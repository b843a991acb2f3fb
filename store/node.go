package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"relay"
)

type nodeRow struct {
	ID         string `db:"id"`
	Name       string `db:"name"`
	PeerAddr   string `db:"peer_addr"`
	PeerKey    string `db:"peer_key"`
	Version    string `db:"version"`
	Schema     int64  `db:"schema_version"`
	StartedAt  int64  `db:"started_at"`
	SeenAt     int64  `db:"seen_at"`
	Beat       int64  `db:"beat"`
	State      string `db:"state"`
	SpoolSteps int64  `db:"spool_steps"`
	Offset     int64  `db:"clock_offset_us"`
	Feed       string `db:"feed"`
	Cut        string `db:"unreachable"` // see membership.cut
	Database   int64  `db:"schema_now"`  // of the beat: schema of the database
	Now        int64  `db:"now_us"`      // clock of the database
	Renewed    int    `db:"renewed"`     // of the beat: rows that it raised, 0 or 1
	Tunnels    int    `db:"tunnels"`
	Accounts   string `db:"accounts"` // of the beat: connections of accounts, such as "12:3,15:20"
}

const nodeColumns = `id, name, peer_addr, peer_key, version, schema_version, started_at, seen_at, beat, state, spool_steps, clock_offset_us, feed, unreachable`

func (r *nodeRow) node() relay.Node {
	return relay.Node{
		ID: r.ID, Name: r.Name, PeerAddr: r.PeerAddr, PeerKey: r.PeerKey, Version: r.Version, Schema: r.Schema, State: r.State,
		Since: fromMicros(r.StartedAt), LastSeenAt: fromMicros(r.SeenAt), Tunnels: r.Tunnels, SpoolSteps: r.SpoolSteps,
		ClockOffset: time.Duration(r.Offset) * time.Microsecond, Feed: r.Feed,
	}
}

// nodeRows reads the rows of all nodes.
func (s *Store) nodeRows(ctx context.Context) (rows []nodeRow, err error) {
	err = s.view(ctx, "read nodes", func(q session) error {
		return q.all(&rows, `SELECT `+nodeColumns+`, `+q.d.micros+` AS now_us, (SELECT COUNT(*) FROM tunnels t WHERE t.node_id = nodes.id) AS tunnels
			FROM nodes ORDER BY name, id`)
	})
	return rows, err
}

// DrainNode asks the node of that name to send its clients to the other nodes and to take no
// new ones; with on false, to serve again. The node learns it with its next beat. Its next
// start serves. ErrNotFound means that no living node has the name; with the code conflict no other node
// serves.
func (s *Store) DrainNode(ctx context.Context, who relay.Actor, name string, on bool) error {
	from, to, action := relay.NodeDraining, relay.NodeServing, "node.resume"
	if on {
		from, to, action = to, from, "node.drain"
	}
	nodes, err := s.Nodes(ctx) // those that do not live are marked
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
		return relay.Errorf(relay.CodeConflict, "no other node serves, so that the clients of %s could go nowhere", name)
	}
	return s.update(ctx, "drain a node", func(c *writeTx) error {
		n, err := c.exec(`UPDATE nodes SET state = ? WHERE id = ? AND state = ?`, to, id, from)
		if err != nil || n == 0 { // it is in that state already
			return err
		}
		return c.audit(who, 0, action, name, "")
	})
}

// NodeName is the name of this node; "" before Serve.
func (s *Store) NodeName() string {
	m := &s.membership
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.name
}

// Nodes lists the nodes of the store. A process that serves calls those dead whose beat it
// saw standing still. An operator command, which has seen no beats, goes by the time of the
// last one.
func (s *Store) Nodes(ctx context.Context) ([]relay.Node, error) {
	rows, err := s.nodeRows(ctx)
	if err != nil {
		return nil, err
	}
	m := &s.membership
	list := make([]relay.Node, len(rows))
	for i := range rows {
		list[i] = rows[i].node()
		if !s.d.isPostgres {
			serving, err := s.served() // it has no beat
			if err != nil {
				return nil, fmt.Errorf("look for a server: %w", err)
			}
			if list[i].LastSeenAt = s.now(); !serving {
				list[i].State, list[i].LastSeenAt = relay.NodeDead, fromMicros(rows[i].SeenAt)
			}
		}
		m.mu.Lock()
		seen, joined := m.others[rows[i].ID], m.id != ""
		switch {
		case rows[i].ID == m.id:
			list[i].Self, list[i].State, list[i].ClockOffset = true, m.state, time.Duration(s.clock.offset.Load())
		case !s.d.isPostgres:
		case joined && seen != nil && m.stillFor(seen) >= deadAfter, !joined && rows[i].Now-rows[i].SeenAt > (deadAfter+beatInterval).Microseconds():
			list[i].State = relay.NodeDead
		}
		m.mu.Unlock()
	}
	markUnreachable(rows, list)
	return list, nil
}

// markUnreachable sets the state of nodes that serve and that other living nodes have no
// connection to. rows and list are the same nodes.
func markUnreachable(rows []nodeRow, list []relay.Node) {
	for i := range list {
		if list[i].State != relay.NodeServing {
			continue
		}
		for j, r := range rows {
			if list[j].State != relay.NodeDead && slices.Contains(strings.Split(r.Cut, "\n"), list[i].ID) {
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

// SetConnections sets what returns the number of SSH connections that accounts have at this
// node, for the limit of an account over all nodes. Accounts that are not in it count as 0.
// Call it before Serve.
func (s *Store) SetConnections(f func() map[int64]int) { s.membership.connections = f }

// ConnectionsElsewhere returns from memory how many SSH connections an account has at the other
// living nodes. It is at most a second old, as long as notices arrive: a node that writes a
// change tells the others to read it.
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

// connectionsChanged reports whether the last renewal wrote other connections than there are
// now. After one that failed it waits for the next.
func (m *membership) connectionsChanged() bool {
	now := m.countConnections()
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.steady.IsZero() && now != m.toldAccounts
}

// countConnections returns what the next renewal writes: "ACCOUNT:CONNECTIONS", by account.
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

// parseCounts reads numbers by id, such as "12:3,15:20". It leaves out what it cannot read.
func parseCounts(text string) map[int64]int64 {
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
