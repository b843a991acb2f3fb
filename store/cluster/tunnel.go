package cluster

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"relay"
	"relay/store/db"
	"relay/store/events"
	"relay/store/people"
)

// tunnelSlice is the number of aliases that one transaction of StoreTunnels changes. SQLite has one
// writer, which must not be held for long.
const tunnelSlice = 200

const tunnelColumns = `alias_id, tunnel_id, node_id, account_id, user_name, since, client, remote_addr, target, host_header, lazy_dial, state, requests`

// tunnelFields returns the destinations of tunnelColumns.
func tunnelFields(r *relay.TunnelRecord) []any {
	return []any{
		&r.Alias, &r.ID, &r.Node, &r.Account, &r.User, (*db.Time)(&r.Since), &r.Client, (*db.AddrPort)(&r.Remote), &r.Target, &r.HostHeader,
		&r.LazyDial, &r.State, &r.Requests,
	}
}

// StoreTunnels stores changes of this node's tunnels, many in one transaction, and returns the tunnels
// of other nodes that the new tunnels replaced. There is at most one write for each alias. The order
// of takeovers is the order in which the rows are written. Writes for removed aliases are ignored. If
// a slice fails, the slices before it stay stored.
func (s *Store) StoreTunnels(ctx context.Context, writes []relay.TunnelWrite) (replaced []relay.TunnelRecord, err error) {
	writes = slices.Clone(writes)
	// All nodes lock the rows of aliases in the order of their ids.
	slices.SortFunc(writes, func(a, b relay.TunnelWrite) int { return int(a.Alias - b.Alias) })
	for some := range slices.Chunk(writes, tunnelSlice) {
		var from []relay.TunnelRecord
		if err := s.db.Update(ctx, "store tunnels", func(c *db.Tx) error {
			from, err = s.storeTunnels(c, some)
			return err
		}); err != nil {
			return replaced, err
		}
		replaced = append(replaced, from...)
	}
	return replaced, nil
}

func (s *Store) storeTunnels(c *db.Tx, writes []relay.TunnelWrite) (replaced []relay.TunnelRecord, err error) {
	node := s.NodeID()
	if err := c.Refer(`SELECT 1 FROM nodes WHERE id = ? AND state <> 'dead'`, node); err != nil { // a node that was declared dead cannot write before it has rejoined
		return nil, err
	}
	ids := make([]int64, len(writes))
	for i := range writes {
		ids[i] = writes[i].Alias
	}
	had, err := readTunnels(c.Query, ids, c.Dialect.ForUpdate())
	if err != nil {
		return nil, err
	}
	var attach, keep []relay.TunnelWrite
	var detach []any
	times := map[int64]time.Time{}
	for _, w := range writes {
		old, known := had[w.Alias]
		switch {
		case w.Op == relay.TunnelAttach:
			attach = append(attach, w)
			if known && old.Node != node {
				replaced = append(replaced, old)
			}
		case known && old.ID != w.ID:
			continue
		case w.Op == relay.TunnelKeep:
			keep = append(keep, w)
		case known:
			detach = append(detach, w.ID)
		}
		if !w.At.IsZero() {
			times[w.Alias] = w.At
		}
	}
	upsertTunnels(c, node, attach, ``)
	upsertTunnels(c, node, keep, ` WHERE tunnels.tunnel_id = excluded.tunnel_id`)
	if len(detach) > 0 {
		if _, err := c.ExecIn(`DELETE FROM tunnels WHERE tunnel_id IN (?)`, detach); err != nil {
			return nil, err
		}
	}
	setLastOnline(c, times)
	if len(ids) > maxAnnounced {
		ids = []int64{0}
	}
	for _, id := range ids {
		c.Announced = append(c.Announced, relay.Change{Kind: relay.ChangeTunnel, Alias: id})
	}
	if err := withholdReplaced(c, replaced); err != nil {
		return nil, err
	}
	return replaced, sweepReplaced(c, replaced)
}

// maxAnnounced is the largest number of aliases that are announced one by one; with more, one change
// announces all aliases.
const maxAnnounced = 100

// readTunnels reads the tunnels of aliases, by alias.
func readTunnels(q db.Query, aliases []int64, lock string) (map[int64]relay.TunnelRecord, error) {
	in, args := db.ColumnIn(`alias_id`, aliases)
	rows, err := db.RowsOf(q, tunnelFields, `SELECT `+tunnelColumns+` FROM tunnels WHERE `+in+` ORDER BY alias_id`+lock, args...)
	out := make(map[int64]relay.TunnelRecord, len(rows))
	for _, r := range rows {
		out[r.Alias] = r
	}
	return out, err
}

// upsertTunnels writes records. The parameter where is a condition on the rows that may be replaced.
func upsertTunnels(c *db.Tx, node string, list []relay.TunnelWrite, where string) {
	if len(list) == 0 {
		return
	}
	const row = `, (CAST(? AS BIGINT), CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS TEXT),
		CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS INTEGER), CAST(? AS TEXT))`
	args := make([]any, 0, 12*len(list))
	for i := range list {
		r, remote := &list[i].TunnelRecord, ""
		if r.Remote.IsValid() {
			remote = r.Remote.String()
		}
		args = append(args, r.Alias, r.ID, node, r.Account, db.StorableText(r.User), db.Micros(r.Since), db.StorableText(r.Client), remote,
			db.StorableText(r.Target), db.StorableText(r.HostHeader), db.BoolToInt(r.LazyDial), string(r.State))
	}
	columns := strings.TrimSuffix(tunnelColumns, ", requests")
	c.Do(`WITH v (`+columns+`) AS (VALUES `+strings.Repeat(row, len(list))[1:]+`)
		INSERT INTO tunnels (`+columns+`) SELECT `+columns+` FROM v WHERE EXISTS (SELECT 1 FROM aliases WHERE id = v.alias_id)
		ON CONFLICT (alias_id) DO UPDATE SET
			requests = CASE WHEN tunnels.tunnel_id = excluded.tunnel_id THEN tunnels.requests ELSE 0 END,
			state = CASE WHEN tunnels.tunnel_id = excluded.tunnel_id AND tunnels.state = 'closing' THEN 'closing' ELSE excluded.state END,
			tunnel_id = excluded.tunnel_id, node_id = excluded.node_id, account_id = excluded.account_id, user_name = excluded.user_name,
			since = excluded.since, client = excluded.client, remote_addr = excluded.remote_addr, target = excluded.target,
			host_header = excluded.host_header, lazy_dial = excluded.lazy_dial`+where, args...)
}

// sweepReplaced ends the attempts that the former nodes of tunnels have claimed from the queues of
// their aliases, because this node now delivers from these queues.
func sweepReplaced(c *db.Tx, replaced []relay.TunnelRecord) error {
	if len(replaced) == 0 {
		return nil
	}
	former := make(map[int64]string, len(replaced))
	aliases := make([]int64, len(replaced))
	for i, r := range replaced {
		former[r.Alias], aliases[i] = r.Node, r.Alias
	}
	var ids []relay.ID
	if err := c.AllIn(&ids, `SELECT event_id FROM queue WHERE alias_id IN (?) AND claim_node <> ''`, aliases); err != nil || len(ids) == 0 {
		return err
	}
	var rows []events.AttemptRow
	if err := c.AllIn(&rows, `SELECT `+events.AttemptRowColumns+` FROM attempts WHERE state = 1 AND from_queue = 1 AND event_id IN (?)`, ids); err != nil {
		return err
	}
	rows = slices.DeleteFunc(rows, func(r events.AttemptRow) bool { return r.ClaimNode != former[r.AliasID] })
	return events.InterruptAll(c, rows, takenOverFault)
}

var takenOverFault = relay.Fault{
	Code: relay.StateInterrupted, Message: "the tunnel was taken over by a newer connection at another node while this attempt was under way",
}

// AddRequests adds request counts to the records of the tunnels that carried the requests, by tunnel id.
func (s *Store) AddRequests(ctx context.Context, counts map[string]int64) error {
	if len(counts) == 0 {
		return nil
	}
	return s.db.Update(ctx, "count requests of tunnels", func(c *db.Tx) error {
		db.UpdateEach(c, counts, func(n int64) int64 { return n }, `tunnels SET requests = requests + v.value FROM v WHERE tunnel_id = v.k`, `TEXT`)
		return nil
	})
}

// AnnounceQueues tells the other nodes that the queues of aliases have changed.
func (s *Store) AnnounceQueues(ctx context.Context, aliases []int64) error {
	return s.db.Update(ctx, "announce queues", func(c *db.Tx) error {
		for _, id := range aliases {
			c.Announced = append(c.Announced, relay.Change{Kind: relay.ChangeQueue, Alias: id})
		}
		return nil
	})
}

// TunnelsOf returns the tunnels of the aliases, by alias. Aliases without a tunnel are left out.
func (s *Store) TunnelsOf(ctx context.Context, aliases []int64) (map[int64]relay.TunnelRecord, error) {
	out := make(map[int64]relay.TunnelRecord, len(aliases))
	for some := range slices.Chunk(aliases, 1000) {
		if err := s.db.View(ctx, "read tunnels", func(q db.Query) error {
			part, err := readTunnels(q, some, "")
			maps.Copy(out, part)
			return err
		}); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// LastOnline returns the times at which the tunnels of aliases last changed their state. Aliases that
// never had a tunnel are left out.
func (s *Store) LastOnline(ctx context.Context, aliases []int64) (map[int64]time.Time, error) {
	type row struct {
		alias int64
		at    time.Time
	}
	out := make(map[int64]time.Time, len(aliases))
	for some := range slices.Chunk(aliases, people.AliasSlice) {
		in, args := db.ColumnIn(`id`, some)
		rows, err := db.ReadRows(ctx, s.db, "read times of tunnels", func(r *row) []any { return []any{&r.alias, (*db.Time)(&r.at)} },
			`SELECT id, last_online_at FROM aliases WHERE `+in+` AND last_online_at > 0`, args...)
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			out[r.alias] = r.at
		}
	}
	return out, nil
}

// dropTunnels deletes the tunnels that an SQL condition selects, and returns their aliases, which are offline
// from then on.
func dropTunnels(c *db.Tx, where string, args ...any) ([]int64, error) {
	var ids []int64
	if err := c.All(&ids, `DELETE FROM tunnels WHERE `+where+` RETURNING alias_id`, args...); err != nil || len(ids) == 0 {
		return nil, err
	}
	lost := make(map[int64]time.Time, len(ids))
	for _, id := range ids {
		lost[id] = c.Now()
	}
	setLastOnline(c, lost)
	c.Announce(relay.Change{Kind: relay.ChangeTunnel})
	return ids, nil
}

// withholdSince removes the mark Released of events that other nodes have queued for the node of an alias'
// tunnel, although that node was already dead. The events stay in the queue, like events that arrived while the
// alias was offline. Events that a user has released keep the mark. seen holds the time of the node's last heartbeat,
// by alias.
func withholdSince(c *db.Tx, seen map[int64]time.Time) error {
	for aliases := range slices.Chunk(slices.Sorted(maps.Keys(seen)), 1000) {
		args := make([]any, 0, 2*len(aliases))
		for _, id := range aliases {
			args = append(args, id, db.Micros(seen[id].Add(-beatInterval))) // one interval earlier, because the node may have refused these requests after its last heartbeat
		}
		var rows []events.AttemptRow
		if err := c.All(&rows, `WITH v (k, since) AS (VALUES `+strings.Repeat(`, (CAST(? AS BIGINT), CAST(? AS BIGINT))`, len(aliases))[1:]+`)
			UPDATE queue SET released = 0 FROM v WHERE alias_id = v.k AND received_at >= v.since AND kind = 0 AND released = 1 AND by_user = 0 AND claim_node = ''
			RETURNING event_id, n, alias_id`, args...); err != nil {
			return err
		}
		for _, r := range rows {
			c.Publish(relay.Change{Kind: relay.ChangeQueue, Alias: r.AliasID}, relay.Change{Kind: relay.ChangeAttempt, Alias: r.AliasID, Event: r.EventID, N: r.N})
		}
	}
	return nil
}

// withholdReplaced is withholdSince for tunnels that were taken over from other nodes.
func withholdReplaced(c *db.Tx, replaced []relay.TunnelRecord) error {
	if len(replaced) == 0 {
		return nil
	}
	type row struct {
		id   string
		seen time.Time
	}
	rows, err := db.RowsOf(c.Query, func(r *row) []any { return []any{&r.id, (*db.Time)(&r.seen)} }, `SELECT id, seen_at FROM nodes`)
	if err != nil {
		return err
	}
	seen := map[int64]time.Time{}
	for _, t := range replaced {
		for _, r := range rows {
			if r.id == t.Node {
				seen[t.Alias] = r.seen
			}
		}
	}
	return withholdSince(c, seen)
}

func setLastOnline(c *db.Tx, times map[int64]time.Time) {
	db.UpdateEach(c, times, db.Micros, `aliases SET last_online_at = v.value FROM v WHERE id = v.k`, `BIGINT`)
}

// AllTunnels reads every tunnel of every node, for the registry, in the order of their aliases' ids.
func (s *Store) AllTunnels(ctx context.Context) (list []relay.TunnelRecord, err error) {
	for after := int64(0); ; after = list[len(list)-1].Alias {
		some, err := db.ReadRows(ctx, s.db, "read tunnels", tunnelFields,
			`SELECT `+tunnelColumns+` FROM tunnels WHERE alias_id > ? ORDER BY alias_id LIMIT ?`, after, people.AliasSlice)
		if err != nil {
			return nil, err
		}
		list = append(list, some...)
		if len(some) < people.AliasSlice {
			return list, nil
		}
	}
}

const tunnelQuery = `SELECT t.alias_id, t.tunnel_id, t.node_id, t.account_id, t.user_name, t.since, t.client, t.remote_addr, t.target,
	t.host_header, t.lazy_dial, t.state, t.requests, al.name AS alias, COALESCE(nd.name, '') AS node_name
	FROM tunnels t JOIN aliases al ON al.id = t.alias_id LEFT JOIN nodes nd ON nd.id = t.node_id WHERE `

// tunnelAccess returns a condition on t (tunnels) and al (aliases). It holds if the actor may see and
// close the tunnel, because the tunnel or its alias belongs to the actor's account. For admins it always holds.
func tunnelAccess(who relay.Actor) (string, []any) {
	if who.Kind == relay.ActorSystem || who.Admin && who.Alias == 0 && who.Kind != relay.ActorShare {
		return `1 = 1`, nil
	}
	may, args := people.AliasAccess(who)
	return `(` + may + `) AND (al.owner_id = ? OR t.account_id = ?)`, append(args, who.Account, who.Account)
}

// Tunnels lists the tunnels of all nodes that the actor may see, sorted by alias.
func (s *Store) Tunnels(ctx context.Context, who relay.Actor) (list []relay.TunnelRecord, err error) {
	if err := people.Allow(who, relay.ScopeAliasesRead); err != nil {
		return nil, err
	}
	may, args := tunnelAccess(who)
	return db.ReadRows(ctx, s.db, "list tunnels", namedTunnelFields, tunnelQuery+may+` ORDER BY al.name`, args...)
}

// namedTunnelFields returns the destinations of the columns of tunnelQuery.
func namedTunnelFields(r *relay.TunnelRecord) []any {
	return append(tunnelFields(r), &r.AliasName, &r.NodeName)
}

// CloseTunnel asks the node of a tunnel to close it, which the node does within a second. The error is
// ErrNotFound if there is no such tunnel, or if the tunnel was closed already.
func (s *Store) CloseTunnel(ctx context.Context, who relay.Actor, id string) error {
	if err := people.Allow(who, relay.ScopeAliasesWrite); err != nil {
		return err
	}
	return s.db.Update(ctx, "close tunnel", func(c *db.Tx) error {
		may, args := tunnelAccess(who)
		r, err := db.RowOf(c.Query, namedTunnelFields, tunnelQuery+`t.tunnel_id = ? AND t.state <> 'closing' AND `+may, append([]any{db.StorableText(id)}, args...)...)
		if err != nil {
			return err
		}
		c.Do(`UPDATE tunnels SET state = 'closing' WHERE tunnel_id = ?`, r.ID)
		c.Announce(relay.Change{Kind: relay.ChangeTunnel, Alias: r.Alias})
		return people.AuditOfAlias(c, who, r.Alias, "tunnel.close", r.AliasName, r.ID)
	})
}

// clearTunnels deletes the tunnels of nodes that have ended, such as those of the previous process on
// this data dir.
func (s *Store) clearTunnels(ctx context.Context) error {
	return s.db.Update(ctx, "delete tunnels of ended nodes", func(c *db.Tx) error {
		_, err := dropTunnels(c, `node_id NOT IN (SELECT id FROM nodes)`)
		return err
	})
}
