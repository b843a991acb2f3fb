package cluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jmoiron/sqlx"

	"relay"
	"relay/store/db"
)

// Times of the membership. A node that sees no new heartbeat of another node for deadAfter declares that node
// dead. A node stops claiming earlier: claimTrust after the start of its last renewal.
const (
	beatInterval = time.Second
	beatTimeout  = time.Second            // time limit of one renewal
	earlyBeat    = 200 * time.Millisecond // shortest time between two requested renewals
	beatGap      = 2 * time.Second        // after a longer time without a renewal, the observation of other nodes starts again
	claimTrust   = 3 * time.Second
	deadAfter    = 4 * time.Second
	sweepJitter  = 300 * time.Millisecond // random delay, so that two nodes rarely sweep a dead node at the same time
	mostFormer   = 100                    // number of former ids that are kept; each id lasts for some seconds at least
)

// membership is the state of this relayd as one of the nodes of its store. On SQLite there is only this node,
// and no heartbeat.
type membership struct {
	db       *sqlx.DB      // the connection of the heartbeat; nil on SQLite
	observed chan struct{} // gets a signal when a renewal may have shown that a node is dead
	early    chan struct{} // gets a signal to renew before the next renewal is due

	swept       atomic.Int64 // dead nodes that this node swept
	interrupted atomic.Int64 // attempts of dead nodes that this node ended
	newer       atomic.Int64 // schema of the database if it is newer than this program's, else 0

	mu      sync.Mutex
	id      string
	former  []string // earlier ids of this node, oldest first; it got a new id with each rejoin, and attempts that it claimed under an earlier id can still end
	name    string
	schema  int64                // newest schema that this program knows
	cut     map[string]bool      // ids of nodes that this node cannot connect to
	state   string               // state of this node; an operator may change it in the row, see DrainNode
	leaving bool                 // this node is draining because its process stops
	renewed time.Time            // start of the last renewal that succeeded
	wall    time.Time            // start of the same renewal by the wall clock
	steady  time.Time            // start of the first renewal since the last gap or failure; zero if there was none
	failed  time.Time            // start of the last renewal that failed
	ended   chan struct{}        // closed at the end of the next renewal, whatever its result
	others  map[string]*nodeSeen // other nodes, by id

	drain func(on bool)

	toldAccounts string // connection counts that the database had after the last renewal

	// SetPeer, OnRejoin and SetConnections set these fields before Serve.
	peerAddr, peerKey string
	rejoined          func()
	connections       func() map[int64]int // number of connections of each account at this node
}

// nodeSeen holds the last observation of another node.
type nodeSeen struct {
	row         nodeRow
	still       time.Time       // when the heartbeat was first seen with its present value
	connections map[int64]int64 // values of row.accounts, by account
}

// NodeID returns the id of this node. It is "" before Serve, and changes when the node rejoins.
func (s *Store) NodeID() string {
	m := &s.membership
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.id
}

// Claimant returns the id under which this process currently writes. former are its earlier ids,
// separated by spaces.
func (s *Store) Claimant() (id, former string) {
	m := &s.membership
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.id, strings.Join(m.former, " ")
}

// Join makes this process a node. predecessor is the id of an earlier process of this data dir, which
// has ended; "" = unknown.
func (s *Store) Join(ctx context.Context, predecessor string) error {
	m := &s.membership
	gone := map[string]bool{predecessor: true}
	if s.db.Dialect.SeveralNodes() {
		db, err := s.db.OpenSingle(ctx, beatTimeout) // a connection of its own, so that nothing delays the heartbeat
		if err != nil {
			return err
		}
		m.db = db
		if err := s.watchNames(ctx, gone); err != nil {
			return err
		}
	}
	m.mu.Lock()
	m.state, m.name = relay.NodeServing, s.wantedName()
	m.observed, m.early = make(chan struct{}, 1), make(chan struct{}, 1)
	m.ended, m.others, m.cut = make(chan struct{}), map[string]*nodeSeen{}, map[string]bool{}
	m.mu.Unlock()
	if err := db.WhileBusy(ctx, func() error { return s.enter(ctx, gone) }); err != nil || !s.db.Dialect.SeveralNodes() {
		return err
	}
	_, err := s.beat(ctx) // the beat measures the clock before any time is stored
	return err
}

// enter adds the row of this node, with a new id. gone holds the ids of nodes that have ended; their names
// are free.
func (s *Store) enter(ctx context.Context, gone map[string]bool) error {
	m := &s.membership
	start, id, name, schema := time.Now(), "", "", int64(0)
	m.mu.Lock()
	before, state := m.id, m.state
	m.mu.Unlock()
	err := s.db.Update(ctx, "join the nodes", func(c *db.Tx) error {
		c.LockKey(joinLock)
		if !s.db.Dialect.SeveralNodes() { // the lock of the data dir proves that no other process serves
			c.Do(`DELETE FROM nodes`)
		}
		if err := c.Get(&schema, db.SchemaVersion); err != nil {
			return err
		}
		named := func(n *relay.Node) []any { return []any{&n.ID, &n.Name} }
		rows, err := db.RowsOf(c.Query, named, `SELECT id, name FROM nodes WHERE state <> ?`, relay.NodeDead)
		if err != nil {
			return err
		}
		taken := map[string]bool{}
		for _, r := range rows {
			taken[r.Name] = taken[r.Name] || !gone[r.ID]
		}
		name = m.name
		for n := 2; taken[name]; n++ {
			name = m.name + "-" + strconv.Itoa(n)
		}
		// Attempts keep this id, which contains the name of the node, so that the name is known after the node
		// is gone. The id has no spaces, because it is the first word of a notice.
		id = strings.Join(strings.Fields(name), "-") + "/" + rand.Text()
		if before != "" {
			c.Do(`UPDATE idempotency SET node = ? WHERE node = ? AND status = 0`, id, before)
		}
		c.Do(`INSERT INTO nodes (`+nodeColumns+`) VALUES (?, ?, ?, ?, ?, ?, `+c.Dialect.DatabaseTime()+`, `+c.Dialect.DatabaseTime()+`, 1, ?, 0, 0, '', '')`,
			id, name, m.peerAddr, m.peerKey, s.opt.Version, schema, state)
		// The rows of former nodes are deleted if their id contains the name: without a row, the name of an
		// attempt's node is read from the id.
		c.Do(`DELETE FROM node_names WHERE id NOT IN (SELECT id FROM nodes) AND substr(id, 1, length(name) + 1) = name || '/'`)
		c.Do(`INSERT INTO node_names (id, name) VALUES (?, ?)`, id, name)
		return nil
	})
	if err != nil {
		return err
	}
	if name != m.name {
		s.log.Warn("another node of this database has the same name; give each one its own --node-name", "node", m.name, "named_now", name)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if before != "" {
		m.former = append(m.former, before)
		m.former = m.former[max(0, len(m.former)-mostFormer):]
	}
	m.id, m.name, m.schema = id, name, schema
	s.noteOwner(id)
	m.renewed, m.wall, m.steady, m.toldAccounts = start, s.db.Clock.Wall(), start, ""
	return nil
}

// joinLock is the key of the lock under which nodes choose their names, one after another.
const joinLock = 0x6e6f6465

func (s *Store) wantedName() string {
	if s.opt.NodeName != "" {
		return s.opt.NodeName
	}
	name, _ := os.Hostname()
	return cmp.Or(name, "relayd")
}

// watchNames adds to the map gone the nodes that have the wanted name and whose heartbeat does not change. A
// relayd that was killed a moment ago leaves such a row, and the next relayd may use its name.
func (s *Store) watchNames(ctx context.Context, gone map[string]bool) error {
	first := map[string]int64{}
	for again := false; ; again = true {
		rows, err := s.nodeRows(ctx)
		if err != nil {
			return err
		}
		for _, r := range rows {
			beat, known := first[r.ID]
			switch {
			case r.Name != s.wantedName() || r.State == relay.NodeDead:
			case r.now.Sub(r.LastSeenAt) > 2*deadAfter, known && beat == r.Beat:
				gone[r.ID] = true
			case !gone[r.ID]:
				first[r.ID] = r.Beat
			}
		}
		if again || len(first) == 0 {
			return nil
		}
		if err := db.Pause(ctx, beatInterval*3/2); err != nil {
			return err
		}
	}
}

// NodeLoop renews the heartbeat each second. It renews earlier when RefreshPeers asks for it, when the
// connections of accounts at this node change, or when another node reports such a change.
func (s *Store) NodeLoop(ctx context.Context) {
	tick := time.NewTicker(beatInterval)
	defer tick.Stop()
	pause := time.NewTicker(earlyBeat)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-s.membership.early:
			select {
			case <-ctx.Done():
				return
			case <-pause.C:
			}
		case <-pause.C:
			if !s.membership.connectionsChanged() {
				continue
			}
		}
		renewed, err := s.beat(ctx)
		switch {
		case err != nil:
		case !renewed:
			s.rejoin(ctx)
		default:
			db.Signal(s.membership.observed)
		}
		s.roundsDone.Add(1)
	}
}

const beatSQL = `WITH mine AS (UPDATE nodes SET beat = beat + 1, seen_at = ` + db.PostgresMicros + `, state = CASE WHEN ? = 1 THEN 'draining' ELSE state END, spool_steps = ?, clock_offset_us = ?, feed = ?, unreachable = ?, accounts = COALESCE(CAST(? AS TEXT), accounts)
		WHERE id = ? AND state <> 'dead' RETURNING 1)
	SELECT ` + nodeColumns + `, ` + db.PostgresMicros + `, accounts, (SELECT COUNT(*) FROM mine),
		(` + db.SchemaVersion + `) FROM nodes`

// beat renews the heartbeat of this node and observes those of the other nodes. renewed is false if the other
// nodes have declared this one dead.
func (s *Store) beat(ctx context.Context) (renewed bool, err error) {
	m := &s.membership
	accounts := m.countConnections()
	m.mu.Lock()
	for id := range m.cut {
		if m.others[id] == nil {
			delete(m.cut, id)
		}
	}
	cut := strings.Join(slices.Sorted(maps.Keys(m.cut)), "\n")
	feed := map[bool]string{true: "listening", false: "polling"}[s.notices.listening.Load()]
	args := []any{db.BoolToInt(m.leaving), s.opt.SpoolSteps(), s.db.Clock.Offset.Load() / 1000, feed, cut, nil, m.id}
	changed := accounts != m.toldAccounts
	if changed {
		args[5] = accounts // otherwise args[5] stays nil, so that Postgres need not rewrite the long text
	}
	m.mu.Unlock()
	start, wall := time.Now(), s.db.Clock.Wall()
	rows, err := db.RowsOf(s.db.Session(ctx, m.db), func(r *nodeRow) []any {
		return append(r.fields(), &r.accounts, &r.renewed, &r.database)
	}, beatSQL, args...)
	end := time.Now()

	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.ended)
	m.ended = make(chan struct{})
	if err != nil {
		m.failed, m.steady = start, time.Time{}
		return false, err
	}
	if len(rows) == 0 || rows[0].renewed == 0 {
		return false, nil
	}
	m.wall = wall
	m.observe(rows, start, end)
	if changed {
		m.toldAccounts = accounts
		if m.living() > 0 {
			s.notices.tellRevised()
		}
	}
	if now := rows[0].database; now > m.schema && m.newer.CompareAndSwap(0, now) {
		s.log.Warn("a newer relayd has changed the schema of the database; this one continues with the schema that it knows: upgrade relayd on this node too",
			"schema", now, "known_schema", m.schema)
	}
	if s.opt.CorrectClock {
		before := time.Duration(s.db.Clock.Offset.Load())
		s.db.Clock.Measure(rows[0].now, wall, end.Sub(start))
		if off := time.Duration(s.db.Clock.Offset.Load()); off.Abs() > MaxClockOffset && before.Abs() <= MaxClockOffset {
			s.log.Warn("the clock of this node differs from that of postgres; times follow postgres: synchronize the clock of this node", "offset", off.Round(time.Millisecond))
		}
	}
	return true, nil
}

// observe notes the result of a renewal that ran from start to end.
func (m *membership) observe(rows []nodeRow, start, end time.Time) {
	if m.steady.IsZero() || start.Sub(m.renewed) > beatGap {
		m.steady = start
	}
	m.renewed = start
	now := make(map[string]*nodeSeen, len(rows))
	for _, r := range rows {
		seen := m.others[r.ID]
		switch {
		case r.ID == m.id:
			known := r.State == relay.NodeServing || r.State == relay.NodeDraining
			if known && r.State != m.state && !m.leaving { // an operator has changed the state
				m.state = r.State
				if m.drain != nil {
					m.drain(r.State == relay.NodeDraining)
				}
			}
			// The connection counts in the row differ from those that this node wrote last if the answer to a
			// renewal was lost, or a failover lost a renewal. The next renewal writes the value again.
			m.toldAccounts = r.accounts
			continue
		case seen == nil || seen.row.accounts != r.accounts:
			seen = &nodeSeen{row: r, still: end, connections: ParseCounts(r.accounts)}
		case seen.row.Beat != r.Beat:
			seen.row, seen.still = r, end
		default:
			seen.row = r
		}
		now[r.ID] = seen
	}
	m.others = now
}

// NodeReachable notes whether this node has a connection to another one. Call it after Serve.
func (s *Store) NodeReachable(id string, reachable bool) {
	m := &s.membership
	m.mu.Lock()
	defer m.mu.Unlock()
	if reachable {
		delete(m.cut, id)
	} else {
		m.cut[id] = true
	}
}

// NewerSchema returns the schema of the database if a newer program has changed it since this one
// started, else 0. Schemas change in such a way that the previous version can continue with them.
func (s *Store) NewerSchema() int64 { return s.membership.newer.Load() }

// dead lists the nodes that are marked dead already, and those that this node may declare dead: their heartbeat
// has not changed for deadAfter, while this node renewed its own without a gap. Both times are measured with
// the monotonic clock of this process, because the clock of the database may jump at a failover.
func (m *membership) dead() (list []nodeRow) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, seen := range m.others {
		if seen.row.State == relay.NodeDead || m.stillFor(seen) >= deadAfter-beatInterval/10 { // ticks are not exact, so a tenth less is enough
			list = append(list, seen.row)
		}
	}
	return list
}

// stillFor returns the time for which this node has seen no new heartbeat of a node.
func (m *membership) stillFor(seen *nodeSeen) time.Duration {
	from := seen.still
	if m.steady.After(from) {
		from = m.steady
	}
	return m.renewed.Sub(from)
}

// rejoin makes this process a node again after other nodes have declared it dead, because it was frozen or
// had no connection to the database.
func (s *Store) rejoin(ctx context.Context) {
	m := &s.membership
	if err := s.enter(ctx, nil); err != nil {
		if ctx.Err() == nil && s.db.Away() == nil {
			s.log.Warn("this node cannot rejoin yet; tried again each second", "err", err)
		}
		return
	}
	s.log.Warn("other nodes declared this node dead (no heartbeat); it rejoined as a new node", "node", m.name)
	if m.rejoined != nil {
		s.opt.Go(m.rejoined)
	}
}

// SetPeer sets the address at which the other nodes reach this node, and its public key for them, in the
// format of authorized_keys. Call it before Serve.
func (s *Store) SetPeer(addr, key string) {
	s.membership.peerAddr, s.membership.peerKey = addr, key
}

// OnRejoin sets the function that is called after this node has rejoined with a new id. The tunnels of its
// former id were detached, so the function has to store them again. Call OnRejoin before Serve.
func (s *Store) OnRejoin(f func()) { s.membership.rejoined = f }

// OnDrain sets the function that is called when an operator drains this node, and when the node is to
// serve again. It must return at once.
func (s *Store) OnDrain(f func(on bool)) {
	m := &s.membership
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drain = f
}

// LeaveNodes removes this node, and the tunnels that are still attached to it.
func (s *Store) LeaveNodes() error {
	id := s.NodeID()
	if id == "" || s.db.Away() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), beatTimeout)
	defer cancel()
	return db.UnlessAway(s.db.Update(ctx, "leave the nodes", func(c *db.Tx) error {
		NoteSeen(c)
		c.Do(`SELECT id FROM nodes WHERE id = ?`+c.Dialect.ForUpdate(), id)
		_, err := dropTunnels(c, `node_id = ?`, id)
		c.Do(`DELETE FROM nodes WHERE id = ?`, id)
		return err
	}))
}

// errNotRenewed is the error of a claim by a node that may have been declared dead.
var errNotRenewed = &relay.Error{
	Code: relay.CodeStoreUnavailable, RetryAfter: time.Second, Detail: "this relay has not reached its database for a moment; try again",
}

// MayClaim returns nil while the other nodes cannot have declared this node dead, so that it may claim
// attempts. It answers from memory. Because this process may be frozen for any time after this check, the
// transaction of a claim checks in addition that this node still has the tunnel.
func (s *Store) MayClaim() error {
	m := &s.membership
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.db != nil && !m.trusted(time.Now(), s.db.Clock.Wall()) {
		return errNotRenewed
	}
	return nil
}

// trusted reports whether the last renewal was less than claimTrust ago. The monotonic clock may stop while a
// machine sleeps, and the wall clock may be set, so the longer time of the two clocks counts.
func (m *membership) trusted(mono, wall time.Time) bool {
	return mono.Sub(m.renewed) < claimTrust && wall.Round(0).Sub(m.wall.Round(0)) < claimTrust
}

// AwaitRenewal returns at once while this node may claim, or if its last renewal failed. Otherwise the
// process was probably frozen, and AwaitRenewal waits for the next renewal, but at most some seconds. After a
// successful renewal the node knows which of its tunnels were taken over.
func (s *Store) AwaitRenewal() {
	m := &s.membership
	for range 2 {
		m.mu.Lock()
		ok, ended := m.db == nil || m.trusted(time.Now(), s.db.Clock.Wall()) || m.failed.After(m.renewed), m.ended
		m.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-ended:
		case <-time.After(2 * beatTimeout):
			return
		}
	}
}

// Peers lists the other living nodes as of the last renewal, from memory. While Postgres is down the list
// stays unchanged.
func (s *Store) Peers() []relay.Node {
	m := &s.membership
	m.mu.Lock()
	defer m.mu.Unlock()
	list := make([]relay.Node, 0, len(m.others))
	for _, seen := range m.others {
		if seen.row.State != relay.NodeDead {
			list = append(list, seen.row.Node)
		}
	}
	return list
}

// RefreshPeers reads the other nodes again, with the next renewal, which begins within earlyBeat. It returns
// when that renewal has succeeded or failed.
func (s *Store) RefreshPeers(ctx context.Context) {
	m := &s.membership
	m.mu.Lock()
	ended := m.ended
	m.mu.Unlock()
	if m.db == nil {
		return
	}
	db.Signal(m.early)
	select {
	case <-ended:
	case <-ctx.Done():
	}
}

// Leaving shows this node as draining from the next heartbeat on, because its process is stopping.
func (s *Store) Leaving() {
	m := &s.membership
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state, m.leaving = relay.NodeDraining, true
}

// HasOtherNodes reports, from memory, whether other nodes serve this store.
func (s *Store) HasOtherNodes() bool {
	m := &s.membership
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.living() > 0
}

// living counts the other nodes that serve. The caller holds mu.
func (m *membership) living() (n int) {
	for _, seen := range m.others {
		if seen.row.State == relay.NodeServing && m.stillFor(seen) < deadAfter {
			n++
		}
	}
	return n
}

// figures returns the number of living nodes, including this one, and the time since the last renewal. Both
// are 0 before Serve, and the time is 0 on SQLite.
func (m *membership) figures() (nodes int, age time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.id == "" {
		return 0, 0
	}
	if m.db != nil {
		age = time.Since(m.renewed)
	}
	return m.living() + 1, age
}

// SteadyFor reports whether this node has renewed its heartbeat without a gap for the given time. On SQLite
// it returns true, because there is no other node.
func (s *Store) SteadyFor(d time.Duration) bool {
	m := &s.membership
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.db == nil || !m.steady.IsZero() && m.renewed.Sub(m.steady) >= d
}

// RoundDone counts a round of the loop that reads changes by other processes.
func (s *Store) RoundDone() { s.roundsDone.Add(1) }

// Rounds returns the number of rounds of the loop that renews the heartbeat of this node, or on SQLite of the
// loop that reads changes by other processes. Failed rounds count too, so the number stops growing only if the
// process hangs. A round begins each second, and takes a few seconds while Postgres does not answer.
func (s *Store) Rounds() int64 { return s.roundsDone.Load() }

// MaxClockOffset is the largest accepted difference between the clock of a node and that of Postgres.
const MaxClockOffset = 250 * time.Millisecond

// NoteSeen stores the current time, so that the next start can recognise a clock that is ahead.
func NoteSeen(c *db.Tx) {
	c.Do(`INSERT INTO meta (name, value) VALUES ('last_seen_us', ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value`,
		strconv.FormatInt(db.Micros(c.Now()), 10))
}
