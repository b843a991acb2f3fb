package store

import (
	"cmp"
	"context"
	"strings"
	"time"

	"relay"
	"relay/store/cluster"
	"relay/store/db"
	"relay/store/events"
	"relay/store/partition"
	"relay/store/retention"
)

// examineLimit bounds one check, because counting the rows of a large store can take minutes.
const examineLimit = 2 * time.Minute

// Examine checks the store, whether or not a server is running, and changes nothing. A check that
// cannot be completed counts as failed.
func (s *Store) Examine(ctx context.Context) []relay.Finding {
	handle := s.db.ExamineHandle()
	list := []relay.Finding{s.examineSchema(ctx)}
	if list[0].Verdict == relay.VerdictFail {
		return list
	}
	examine := func(name string, check func(db.Query) relay.Finding) {
		limited, cancel := context.WithTimeout(ctx, examineLimit)
		defer cancel()
		f := check(s.db.Session(limited, handle))
		f.Check = name
		list = append(list, f)
	}
	examine("nodes", s.examineNodes)
	examine("durability", s.db.ExamineDurability)
	examine("partitions", func(q db.Query) relay.Finding { return partition.Examine(q, s.db.Now()) })
	examine("free space", s.db.ExamineDisk)
	examine("storage", s.examineStorage)
	examine("pages", s.db.ExaminePages)
	for _, c := range rowChecks() {
		examine(c.name, c.examine)
	}
	examine("under way", s.examineUnderWay)
	examine("clock", s.examineClock)
	return list
}

// hearsWithin is the time that a node has after its start to receive its first notice from Postgres.
const hearsWithin = 30 * time.Second

// examineNodes checks whether Postgres allows enough connections for all nodes, whether the nodes reach each
// other, and whether their clocks agree.
func (s *Store) examineNodes(q db.Query) relay.Finding {
	if !s.db.Dialect.SeveralNodes() {
		return db.OKFinding("one, with a lock in %s", s.opt.DataDir)
	}
	nodes, err := s.Nodes(q.Ctx)
	if err != nil {
		return db.UnknownFinding(err)
	}
	var living, farthest relay.Node
	var apart, deaf []string
	count := 0
	for _, n := range nodes {
		if n.State == relay.NodeDead {
			continue
		}
		count, living = count+1, n
		if len(n.UnreachableFrom) > 0 {
			apart = append(apart, n.Name+" cannot be reached from "+strings.Join(n.UnreachableFrom, " and "))
		}
		if n.Feed == "polling" && n.LastSeenAt.Sub(n.Since) > hearsWithin {
			deaf = append(deaf, n.Name)
		}
		if n.ClockOffset.Abs() > farthest.ClockOffset.Abs() {
			farthest = n
		}
	}
	var most, others int
	if err := q.Row(`SELECT SUM(CASE name WHEN 'max_connections' THEN setting::int ELSE -setting::int END),
			(SELECT COUNT(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND application_name <> 'relayd')
		FROM pg_settings WHERE name IN ('max_connections', 'superuser_reserved_connections')`).Scan(&most, &others); err != nil {
		return db.UnknownFinding(err)
	}
	each := cmp.Or(s.opt.MaxConns, db.DefaultConns)
	switch need := max(count, 1) * each; {
	case need+others > most:
		return relay.Findingf(relay.VerdictFail, "raise max_connections of postgres, lower --database-max-conns, or put a pooler in between",
			"%d nodes may use %d connections each, others use %d, and postgres has %d", max(count, 1), each, others, most)
	case len(apart) > 0:
		return relay.Findingf(relay.VerdictFail, "see whether the --peer-addr of each node can be reached from the others, which connect to its SSH listener",
			"%s: requests there for its tunnels are queued, and delivered late", strings.Join(apart, "; "))
	case len(deaf) > 0:
		return relay.Findingf(relay.VerdictWarn, "if --database-url leads through a pooler in transaction mode, set --database-direct-url (RELAY_DATABASE_DIRECT_URL) to Postgres itself",
			"%s gets no notices of Postgres: what other nodes change shows up later there", strings.Join(deaf, ", "))
	case farthest.ClockOffset.Abs() > cluster.MaxClockOffset:
		return relay.Findingf(relay.VerdictWarn, "have the time synchronised (chrony, systemd-timesyncd); the order of queues stays right meanwhile",
			"the clock of node %s differs from that of postgres by %s", farthest.Name, farthest.ClockOffset.Round(time.Millisecond))
	case count == 0:
		return db.OKFinding("no server runs; a node may use %d of the %d connections of postgres", each, most-others)
	case count == 1:
		return db.OKFinding("one, %s; it may use %d of the %d connections of postgres", living.Name, each, most-others)
	}
	return db.OKFinding("%d; they may use %d of the %d connections of postgres", count, count*each, most-others)
}

func (s *Store) examineSchema(ctx context.Context) relay.Finding {
	have, want, err := s.db.Schema(ctx)
	f := db.OKFinding("%s, schema %d", s.db.Describe(), have)
	switch {
	case err != nil:
		f = db.UnknownFinding(err)
	case have != want:
		f = relay.Findingf(relay.VerdictFail, "run relayd migrate, or start the server, which does it too",
			"%s has schema %d, this build wants %d", s.db.Describe(), have, want)
	}
	f.Check = "store"
	return f
}

// rowCheck is a query that counts faulty rows. The text of the finding is the field ok if there are none, and
// the field bad otherwise.
type rowCheck struct {
	name, query, ok, bad, fix string
	args                      []any
}

func (c rowCheck) examine(q db.Query) relay.Finding {
	var n int64
	if err := q.Get(&n, c.query, c.args...); err != nil {
		return db.UnknownFinding(err)
	}
	if n == 0 {
		return db.OKFinding("%s", c.ok)
	}
	return relay.Findingf(relay.VerdictFail, c.fix, c.bad, n)
}

const reportIt = "events of before are shown wrongly, nothing else suffers; keep a backup and report it with the version of relayd"

func rowChecks() []rowCheck {
	old := events.LowestID(time.Now().Add(-3 * retention.OrphanAge)) // bytes with a younger id may belong to an event that is yet to be stored
	return []rowCheck{
		{
			"attempt counts", `SELECT (SELECT COUNT(*) FROM events e WHERE e.attempts <> (SELECT COUNT(*) FROM attempts a WHERE a.event_id = e.id))
			+ (SELECT COUNT(*) FROM attempts a WHERE NOT EXISTS (SELECT 1 FROM events e WHERE e.id = a.event_id))`,
			"every event has the attempts that it counts", "%d times an event does not have the attempts that it counts, or an attempt has no event", reportIt, nil,
		},
		{
			"event states", `SELECT COUNT(*) FROM events e JOIN attempts a ON a.event_id = e.id AND a.n = e.attempts WHERE e.state NOT IN (6, 7) AND e.state <> a.state`,
			"every event has the state of its last attempt", "%d events do not have the state of their last attempt", reportIt, nil,
		},
		{ // parts of bodies without an event are not counted, because SweepOrphans may be about to delete them
			"stored bytes", `SELECT (SELECT COUNT(*) FROM events e WHERE NOT EXISTS (SELECT 1 FROM payloads p WHERE p.event_id = e.id AND p.n = 0))
			+ (SELECT COUNT(*) FROM attempts a WHERE a.has_response = 1 AND NOT EXISTS (SELECT 1 FROM payloads p WHERE p.event_id = a.event_id AND p.n = a.n))
			+ (SELECT COUNT(*) FROM payloads p WHERE p.parts > (SELECT COUNT(*) FROM body_chunks c WHERE c.event_id = p.event_id AND c.n = p.n)
				AND p.parts > 0 AND EXISTS (SELECT 1 FROM events e WHERE e.id = p.event_id))`,
			"every event has the bytes of its requests and responses", "the bytes of %d requests or responses are not there, or not all of them",
			"these cannot be shown whole or replayed, nothing else suffers; a backup may have them. Report it with the version of relayd", nil,
		},
		{
			"left-over bytes", `SELECT (SELECT COUNT(*) FROM body_chunks c WHERE c.event_id < ? AND NOT EXISTS (SELECT 1 FROM events e WHERE e.id = c.event_id))
			+ (SELECT COUNT(*) FROM payloads p WHERE p.event_id < ? AND NOT EXISTS (SELECT 1 FROM events e WHERE e.id = p.event_id))`,
			"no bytes are left over", "%d rows of bytes belong to no event", "start the server, or leave it running: it sweeps them within two days",
			[]any{old, old},
		},
	}
}

// examineUnderWay checks that each attempt in progress belongs to a living node.
func (s *Store) examineUnderWay(q db.Query) relay.Finding {
	nodes, err := s.Nodes(q.Ctx)
	if err != nil {
		return db.UnknownFinding(err)
	}
	living := []string{""}
	for _, n := range nodes {
		if n.State != relay.NodeDead {
			living = append(living, n.ID)
		}
	}
	in, args := db.ColumnIn(`claim_node`, living)
	var lost int64
	if err := q.Get(&lost, `SELECT COUNT(*) FROM attempts WHERE state = 1 AND NOT (`+in+`)`, args...); err != nil {
		return db.UnknownFinding(err)
	}
	verdict := relay.VerdictFail
	switch served := len(living) > 1; {
	case lost == 0 && served:
		return db.OKFinding("a server runs and has every attempt in progress")
	case lost == 0:
		return db.OKFinding("no server runs, and no attempt is in progress")
	case !served:
		verdict = relay.VerdictWarn // such attempts are normal after a kill and in a backup
	}
	return relay.Findingf(verdict, "start a server: it marks them interrupted, or queues them again", "%d attempts are in progress, but no server runs them", lost)
}

// examineClock compares the clock with the newest time in the database (lastSeen). It cannot tell a clock that
// is ahead from a relay that was stopped for long, so the finding gives the age of the newest entry.
func (s *Store) examineClock(q db.Query) relay.Finding {
	seen, err := lastSeen(q)
	if err != nil {
		return db.UnknownFinding(err)
	}
	if seen == 0 {
		return db.OKFinding("the store has no entry yet")
	}
	last, now := db.FromMicros(seen), s.db.Now()
	if ahead := last.Sub(now); ahead > maxClockDrift {
		return relay.Findingf(relay.VerdictWarn, "have the time synchronised (chrony, systemd-timesyncd); order stays right meanwhile, ages are off by as much",
			"the newest entry of the store is %s ahead of the clock: the clock was wrong then, or is now", ahead.Round(time.Second))
	}
	return db.OKFinding("it is %s, and the newest entry of the store is %s old", now.UTC().Format(time.RFC3339), max(0, now.Sub(last)).Round(time.Second))
}
