package store

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"relay"
	"relay/store/file"
)

// examineLimit bounds one check, because counting the rows of a large store can take minutes.
const examineLimit = 2 * time.Minute

// Examine checks the store, whether or not a server is running, and changes nothing. A check
// that cannot be completed counts as failed.
func (s *Store) Examine(ctx context.Context) []relay.Finding {
	db := s.direct
	if !s.d.isPostgres {
		db = s.read
	}
	list := []relay.Finding{s.examineSchema(ctx)}
	if list[0].Verdict == relay.VerdictFail {
		return list
	}
	examine := func(name string, check func(session) relay.Finding) {
		limited, cancel := context.WithTimeout(ctx, examineLimit)
		defer cancel()
		f := check(session{limited, db, &s.d, &s.clock})
		f.Check = name
		list = append(list, f)
	}
	examine("nodes", s.examineNodes)
	examine("durability", s.examineDurability)
	examine("partitions", s.examinePartitions)
	examine("free space", s.examineDisk)
	examine("pages", s.examinePages)
	for _, c := range rowChecks() {
		examine(c.name, c.examine)
	}
	examine("under way", s.examineUnderWay)
	examine("clock", examineClock)
	return list
}

func okFinding(format string, args ...any) relay.Finding {
	return relay.Findingf(relay.VerdictOK, "", format, args...)
}

func unknownFinding(err error) relay.Finding {
	return relay.Findingf(relay.VerdictFail, "see whether the database answers, then run relayd doctor again", "the check could not be done: %v", err)
}

// maxClockOffset is how much the clock of a node may differ from that of Postgres.
const maxClockOffset = 250 * time.Millisecond

// examineNodes looks at the nodes of Postgres: whether there are connections for all of
// them, whether they reach each other, and whether their clocks agree.
func (s *Store) examineNodes(q session) relay.Finding {
	if !s.d.isPostgres {
		return okFinding("one, with a lock in %s", s.opt.DataDir)
	}
	nodes, err := s.Nodes(q.ctx)
	if err != nil {
		return unknownFinding(err)
	}
	var living, farthest relay.Node
	var apart []string
	count := 0
	for _, n := range nodes {
		if n.State == relay.NodeDead {
			continue
		}
		count, living = count+1, n
		if len(n.UnreachableFrom) > 0 {
			apart = append(apart, n.Name+" cannot be reached from "+strings.Join(n.UnreachableFrom, " and "))
		}
		if n.ClockOffset.Abs() > farthest.ClockOffset.Abs() {
			farthest = n
		}
	}
	var most, others int
	if err := q.row(`SELECT SUM(CASE name WHEN 'max_connections' THEN setting::int ELSE -setting::int END),
			(SELECT COUNT(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND application_name <> 'relayd')
		FROM pg_settings WHERE name IN ('max_connections', 'superuser_reserved_connections')`).Scan(&most, &others); err != nil {
		return unknownFinding(err)
	}
	each := cmp.Or(s.opt.MaxConns, defaultConns)
	switch need := max(count, 1) * each; {
	case need+others > most:
		return relay.Findingf(relay.VerdictFail, "raise max_connections of postgres, lower --database-max-conns, or put a pooler in between",
			"%d nodes may use %d connections each, others use %d, and postgres has %d", max(count, 1), each, others, most)
	case len(apart) > 0:
		return relay.Findingf(relay.VerdictFail, "see whether the --peer-addr of each node can be reached from the others, which connect to its SSH listener",
			"%s: requests there for its tunnels are queued, and delivered late", strings.Join(apart, "; "))
	case farthest.ClockOffset.Abs() > maxClockOffset:
		return relay.Findingf(relay.VerdictWarn, "have the time synchronised (chrony, systemd-timesyncd); the order of queues stays right meanwhile",
			"the clock of node %s differs from that of postgres by %s", farthest.Name, farthest.ClockOffset.Round(time.Millisecond))
	case count == 0:
		return okFinding("no server runs; a node may use %d of the %d connections of postgres", each, most-others)
	case count == 1:
		return okFinding("one, %s; it may use %d of the %d connections of postgres", living.Name, each, most-others)
	}
	return okFinding("%d; they may use %d of the %d connections of postgres", count, count*each, most-others)
}

func (s *Store) examineSchema(ctx context.Context) relay.Finding {
	have, want, err := s.Schema(ctx)
	f := okFinding("%s, schema %d", s.Describe(), have)
	switch {
	case err != nil:
		f = unknownFinding(err)
	case have != want:
		f = relay.Findingf(relay.VerdictFail, "run relayd migrate, or start the server, which does it too",
			"%s has schema %d, this build wants %d", s.Describe(), have, want)
	}
	f.Check = "store"
	return f
}

// examineDurability checks the settings that make a commit survive a power loss.
func (s *Store) examineDurability(q session) relay.Finding {
	type setting struct{ query, want, fix string }
	settings := []setting{
		{`PRAGMA journal_mode`, "wal", "stop the server and start it again: it sets what it needs"},
		{`PRAGMA synchronous`, "2", "this build opens the file with less; report it"},
	}
	if s.d.isPostgres {
		settings = []setting{
			{`SHOW fsync`, "on", "set fsync = on in postgresql.conf and restart postgres"},
			{`SHOW full_page_writes`, "on", "set full_page_writes = on in postgresql.conf, unless the file system does it"},
		}
	} else {
		q.q = s.write // a pragma applies to one connection: ask the one that writes
	}
	for _, set := range settings {
		var got string
		if err := q.get(&got, set.query); err != nil {
			return unknownFinding(err)
		}
		if got != set.want {
			return relay.Findingf(relay.VerdictFail, set.fix, "%s is %s, not %s: a power loss may lose events that were answered", set.query, got, set.want)
		}
	}
	if s.d.isPostgres {
		var usual string
		if err := q.get(&usual, `SELECT reset_val FROM pg_settings WHERE name = 'synchronous_commit'`); err != nil {
			return unknownFinding(err)
		}
		if usual == "off" {
			return okFinding("commits wait for the disk: relayd turns synchronous_commit on for itself, it is off otherwise")
		}
	}
	return okFinding("commits wait for the disk")
}

func (s *Store) examineDisk(session) relay.Finding {
	if s.d.isPostgres {
		return okFinding("the disk of postgres is not seen from here")
	}
	free, err := s.disk.free(s.disk.dir)
	if err != nil {
		return unknownFinding(err)
	}
	least := "off"
	if s.disk.min > 0 {
		least = relay.FormatBytes(s.disk.min)
	}
	f := okFinding("%s free in %s, min-free is %s", relay.FormatBytes(free), s.disk.dir, least)
	switch {
	case free < max(s.disk.min, minFreeSlack):
		f.Verdict, f.Fix = relay.VerdictFail, "free some space there, or set a shorter --retention, a lower --max-alias-storage or --min-free; callers get 503 until then"
	case free < 2*s.disk.min:
		f.Verdict, f.Fix = relay.VerdictWarn, "soon callers get 503; free some space there"
	}
	return f
}

// pagesLimit bounds the check of the pages of a SQLite file. During the check a running server
// cannot restart its write-ahead log, which therefore grows.
const pagesLimit = 30 * time.Second

// examinePages checks every page of a SQLite file. A damaged page is otherwise noticed only by
// a query that reads it, and later writes can spread the damage.
func (s *Store) examinePages(q session) relay.Finding {
	if s.d.isPostgres {
		return okFinding("postgres looks after its pages itself")
	}
	var cancel context.CancelFunc
	q.ctx, cancel = context.WithTimeout(q.ctx, pagesLimit)
	defer cancel()
	var wrong []string
	err := q.all(&wrong, `PRAGMA quick_check(3)`)
	switch {
	case err != nil && errors.Is(q.ctx.Err(), context.DeadlineExceeded):
		return relay.Findingf(relay.VerdictWarn, "when the server is stopped, run: sqlite3 "+databaseFile+" 'PRAGMA quick_check', in the data dir",
			"the file is too large to be looked at within %v; nothing wrong was found until then", pagesLimit)
	case err != nil && !file.Damaged(err):
		return unknownFinding(err)
	case err != nil:
		wrong = []string{err.Error()}
	case len(wrong) == 1 && wrong[0] == "ok":
		return okFinding("every page of the database is as it should be")
	}
	var list []string // one row may be several lines, the first of which names the file
	for line := range strings.Lines(strings.Join(wrong, "\n")) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "***") {
			list = append(list, line)
		}
	}
	return relay.Findingf(relay.VerdictFail, "stop the server, keep a copy of the data dir, look at the disk, and restore a backup (docs/operations.md)",
		"the database file is damaged: %s", strings.Join(list, "; "))
}

// rowCheck is a query that counts what is wrong. ok is said of 0, and bad of another number.
type rowCheck struct {
	name, query, ok, bad, fix string
	args                      []any
}

func (c rowCheck) examine(q session) relay.Finding {
	var n int64
	if err := q.get(&n, c.query, c.args...); err != nil {
		return unknownFinding(err)
	}
	if n == 0 {
		return okFinding("%s", c.ok)
	}
	return relay.Findingf(relay.VerdictFail, c.fix, c.bad, n)
}

const reportIt = "events of before are shown wrongly, nothing else suffers; keep a backup and report it with the version of relayd"

func rowChecks() []rowCheck {
	old := lowestID(time.Now().Add(-3 * orphanAge)) // the event of newer bytes may come, or the next sweep delete them
	return []rowCheck{
		{
			"attempt counts", `SELECT (SELECT COUNT(*) FROM events e WHERE e.attempts <> (SELECT COUNT(*) FROM attempts a WHERE a.event_id = e.id))
			+ (SELECT COUNT(*) FROM attempts a WHERE NOT EXISTS (SELECT 1 FROM events e WHERE e.id = a.event_id))`,
			"every event has the attempts that it counts", "%d times an event does not have the attempts that it counts, or an attempt has no event", reportIt, nil,
		},
		{
			"event states", `SELECT COUNT(*) FROM events e JOIN attempts a ON a.event_id = e.id AND a.n = e.attempts WHERE e.state < 6 AND e.state <> a.state`,
			"every event has the state of its last attempt", "%d events do not have the state of their last attempt", reportIt, nil,
		},
		{ // a part without an event may be about to be deleted
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

// examineUnderWay checks that each attempt under way belongs to a living node.
func (s *Store) examineUnderWay(q session) relay.Finding {
	nodes, err := s.Nodes(q.ctx)
	if err != nil {
		return unknownFinding(err)
	}
	living := []string{""}
	for _, n := range nodes {
		if n.State != relay.NodeDead {
			living = append(living, n.ID)
		}
	}
	in, args := columnIn(`claim_node`, living)
	var lost int64
	if err := q.get(&lost, `SELECT COUNT(*) FROM attempts WHERE state = 1 AND NOT (`+in+`)`, args...); err != nil {
		return unknownFinding(err)
	}
	verdict := relay.VerdictFail
	switch served := len(living) > 1; {
	case lost == 0 && served:
		return okFinding("a server runs, and has all that is under way")
	case lost == 0:
		return okFinding("no server runs, and nothing is under way")
	case !served:
		verdict = relay.VerdictWarn // as expected after a kill, or in a backup
	}
	return relay.Findingf(verdict, "start a server: it marks them interrupted, or queues them again", "%d attempts are under way and no server has them", lost)
}

// served reports whether a server has the lock of the data dir.
func (s *Store) served() (bool, error) {
	if s.lock != nil {
		return true, nil
	}
	f, err := os.OpenFile(filepath.Join(s.opt.DataDir, serveLock), os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	taken := file.Lock(f, false) != nil
	return taken, file.Unlock(f)
}

// examineClock compares the newest event with the clock.
func examineClock(q session) relay.Finding {
	var last []relay.ID
	if err := q.all(&last, `SELECT id FROM events ORDER BY id DESC LIMIT 1`); err != nil {
		return unknownFinding(err)
	}
	if len(last) == 0 {
		return okFinding("there are no events yet")
	}
	ahead := time.Until(last[0].Time())
	if ahead < time.Minute {
		return okFinding("the newest event is of %s", last[0].Time().Format(time.RFC3339))
	}
	return relay.Findingf(relay.VerdictWarn, "have the time synchronised (chrony, systemd-timesyncd); order stays right meanwhile, ages are off by as much",
		"the newest event is %s ahead of the clock: the clock was wrong then, or is now", ahead.Round(time.Second))
}
