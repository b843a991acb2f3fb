package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"relay"
	"relay/record"
	"relay/sshgate"
	"relay/store"
	"relay/store/spool"

	"golang.org/x/crypto/ssh"
)

// checkStore checks the store and its content.
func (x *examination) checkStore(ctx context.Context) {
	x.served = true
	postgres := beginPostgres(ctx, x.cfg)
	s, err := x.openStore(ctx, x.cfg, true)
	x.add(postgres()...)
	if err != nil {
		x.add(finding("store", relay.VerdictFail, storeFix(x.cfg, err), "%s", userMessage(err)))
		return
	}
	defer s.Close()
	list := s.Examine(ctx)
	x.add(list...)
	if list[0].Verdict == relay.VerdictFail {
		return // without tables there is nothing to check
	}
	nodes, err := s.Nodes(ctx)
	versions := map[string]bool{}
	for _, n := range nodes {
		if n.State != relay.NodeDead {
			versions[n.Version] = true
		}
	}
	x.versions, x.served = len(versions), err != nil || len(versions) > 0
	if x.cfg.DatabaseURL != "" && len(hostKeyFiles(x.cfg)) == 0 {
		x.checkSharedKey(ctx, s)
	}
	if x.cfg.DatabaseURL != "" && x.cfg.TLS == "acme" {
		x.add(checkSharedCertificate(ctx, s, x.cfg))
	}
	x.add(checkQueues(ctx, s, x.cfg))
	x.add(checkOwnerless(ctx, s)...)
	x.add(checkSecretKeys(ctx, s, x.cfg)...)
}

// oldestPostgres is the first major version of Postgres that has all features that relayd uses.
const oldestPostgres = 14

// postgresServer holds facts about a Postgres server and the role of relayd there.
type postgresServer struct {
	version                   int // the Postgres setting server_version_num, such as 150004
	replica, readOnly, create bool
	schema, role              string // schema is "" if no schema of the search path exists
}

// beginPostgres begins to ask the database of the settings for its version and for the rights of the role. It returns a
// function that waits for the answer and judges it. If the database does not answer, the function returns nothing, because
// checkStore reports that error.
func beginPostgres(ctx context.Context, cfg Config) (finish func() []relay.Finding) {
	if cfg.DatabaseURL == "" {
		return func() []relay.Finding { return nil }
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	answer := make(chan *postgresServer, 1)
	go func() { answer <- askPostgres(ctx, cfg) }() // in a goroutine, because the driver never returns from a frozen server
	return func() []relay.Finding {
		defer cancel()
		select {
		case p := <-answer:
			if p != nil {
				return []relay.Finding{p.judge()}
			}
		case <-ctx.Done():
		}
		return nil
	}
}

// askPostgres asks the database of the settings about its version and rights; nil = no answer.
func askPostgres(ctx context.Context, cfg Config) *postgresServer {
	address, _ := connectionURL(cmp.Or(cfg.DatabaseDirectURL, cfg.DatabaseURL))
	db, err := sql.Open("postgres", address)
	if err != nil {
		return nil
	}
	defer db.Close()
	var p postgresServer
	err = db.QueryRowContext(ctx, `SELECT current_setting('server_version_num')::int, pg_is_in_recovery(), current_setting('transaction_read_only')::bool, coalesce(current_schema(), ''), current_user,
		coalesce(has_schema_privilege(current_schema(), 'CREATE'), false)`).Scan(&p.version, &p.replica, &p.readOnly, &p.schema, &p.role, &p.create)
	if err != nil {
		return nil
	}
	return &p
}

// judge returns a finding: whether relayd can work with the server.
func (p postgresServer) judge() relay.Finding {
	const check = "postgres"
	version := fmt.Sprintf("%d.%d", p.version/10000, p.version%10000)
	switch {
	case p.version/10000 < oldestPostgres:
		return finding(check, relay.VerdictFail, fmt.Sprintf("move the database to Postgres %d or newer", oldestPostgres), "it is version %s", version)
	case p.replica:
		return finding(check, relay.VerdictFail, "give --database-url the address of the primary", "it is a replica, which takes no events")
	case p.readOnly: // some providers set this when the disk is full
		return finding(check, relay.VerdictFail, "see whether its disk is full, which some providers answer with this setting. Then, in psql: SET default_transaction_read_only = off; and ALTER DATABASE … RESET default_transaction_read_only, or ALTER ROLE "+p.role+" RESET …; it may also stand in postgresql.conf or in the options of --database-url",
			"it lets role %s only read: default_transaction_read_only is on", p.role)
	case p.schema == "":
		return finding(check, relay.VerdictFail, "as the owner of the database: CREATE SCHEMA … AUTHORIZATION "+p.role, "there is no schema for role %s in it", p.role)
	case !p.create: // since version 15, not every role may create tables in public
		return finding(check, relay.VerdictFail, "as the owner of the database: ALTER SCHEMA "+p.schema+" OWNER TO "+p.role,
			"role %s may not make tables in schema %s", p.role, p.schema)
	}
	return passed(check, "version %s; role %s may make tables in schema %s", version, p.role, p.schema)
}

// storeFix returns the advice for an error of opening the store.
func storeFix(cfg Config, err error) string {
	_, inside := os.Stat(filepath.Join(cfg.DataDir, databaseFile))
	switch {
	case cfg.DatabaseURL != "" && strings.Contains(err.Error(), "SSL is not enabled on the server"):
		return "turn on TLS in that Postgres, or, where nobody can listen on the way to it, add sslmode=disable to --database-url"
	case cfg.DatabaseURL != "":
		return "make sure that the database of --database-url answers and lets relayd in"
	case errors.Is(err, fs.ErrPermission), errors.Is(inside, fs.ErrPermission):
		return "run relayd doctor as the user that runs relayd; if that is you: chown -R USER " + quote(cfg.DataDir)
	case inside == nil:
		return "do as the reason says, then run relayd doctor again"
	}
	return "start relayd serve once, or pass the --data-dir or --database-url of the server"
}

// checkOwnerless reports aliases whose account was removed: they continue to accept and queue requests,
// but no user can read them.
func checkOwnerless(ctx context.Context, s *store.Store) []relay.Finding {
	const check = "owners"
	list, err := s.UnownedAliases(ctx, relay.System())
	if err != nil {
		return []relay.Finding{finding(check, relay.VerdictFail, "run relayd doctor again", "%s", userMessage(err))}
	}
	if len(list) == 0 {
		return nil
	}
	names := mapSlice(list, func(a relay.Alias) string { return a.Name })
	return []relay.Finding{finding(check, relay.VerdictWarn, "`relayd alias transfer ALIAS --user NAME`, or `relayd alias rm ALIAS`",
		"%s without an owner still take requests: %s", record.Count(len(list), "alias", "aliases"), joinMax(names))}
}

// checkSharedKey checks the host key that all nodes share in the database.
func (x *examination) checkSharedKey(ctx context.Context, s *store.Store) {
	const check, fix = "host key", "set --ssh-host-key to the same key file on each node"
	text, _, err := s.SharedFile(ctx, sshgate.HostKeyFile)
	if errors.Is(err, fs.ErrNotExist) {
		x.add(finding(check, relay.VerdictWarn, "start relayd serve once", "there is none in the database yet"))
		return
	}
	if err != nil {
		x.add(finding(check, relay.VerdictFail, "run relayd doctor again", "%s", userMessage(err)))
		return
	}
	key, err := ssh.ParsePrivateKey(text)
	if err != nil {
		x.add(finding(check, relay.VerdictFail, fix, "that of the database cannot be used: %v", err))
		return
	}
	print := ssh.FingerprintSHA256(key.PublicKey())
	x.hostKeys = append(x.hostKeys, print)
	x.add(passed(check, "%s, in the database: anyone who reads a backup of it has the key; --ssh-host-key keeps it in a file instead", print))
}

// nearlyFull is the percentage of a limit at which doctor warns.
const nearlyFull = 80

// checkSpool reports events in the spool that are not in Postgres yet, unreadable spool files, and a spool
// that is nearly full. If the store is SQLite now, it reports only files that are left from Postgres.
func checkSpool(cfg Config) []relay.Finding {
	const check = "spool"
	dir := cfg.DataDir
	left, err := spool.ReadLeft(dir)
	var list []relay.Finding
	if err != nil {
		list = append(list, finding(check, relay.VerdictFail, "let the user that runs relayd read and write every file in the data dir", "the spool in %s cannot be read: %s", dir, err))
	}
	if broken := len(left.Aside); broken > 0 {
		list = append(list, finding(check, relay.VerdictWarn, "keep them elsewhere with the log of that time, which says why, and report it with the version of relayd",
			"%s of the spool in %s could not be read or stored", record.Count(broken, "file", "files"), dir))
	}
	size, waiting := relay.FormatBytes(left.Bytes), left.Bytes > 0
	switch limit := cfg.SpoolLimit; {
	case waiting && cfg.DatabaseURL == "":
		return append(list, finding(check, relay.VerdictFail, "start relayd with the --database-url that they were meant for; leave the files there until then",
			"%s of events in %s wait for a postgres, and the store is SQLite now", size, dir))
	case waiting && limit > 0 && left.Bytes >= spool.Intake(limit):
		return append(list, finding(check, relay.VerdictFail, "bring postgres back, or raise --spool-limit if the disk has space; leave the files there",
			"%s of events wait for postgres in %s, and the spool is full: callers get 503", size, dir))
	case waiting:
		return append(list, finding(check, relay.VerdictWarn,
			"bring postgres back; a server that runs stores them by itself, and so does the next start with this data dir; leave the files there",
			"%s of events wait for postgres in %s", size, dir))
	case cfg.DatabaseURL != "" && len(list) == 0:
		return []relay.Finding{passed(check, "nothing waits for postgres in %s", dir)}
	}
	return list
}

// queues is the part of a store that checkQueues uses.
type queues interface {
	Aliases(ctx context.Context, who relay.Actor) ([]relay.Alias, error)
	AllQueueStats(ctx context.Context) (map[int64]relay.QueueStats, error)
}

// checkQueues reports queues that are full or nearly full, because callers of an alias with a full queue get
// 503.
func checkQueues(ctx context.Context, s queues, cfg Config) relay.Finding {
	const check = "queues"
	aliases, err := s.Aliases(ctx, relay.System())
	var stats map[int64]relay.QueueStats
	if err == nil {
		stats, err = s.AllQueueStats(ctx)
	}
	if err != nil {
		return finding(check, relay.VerdictFail, "see whether the database answers, then run relayd doctor again", "the check could not be done: %s", userMessage(err))
	}
	var waiting, at int
	var oldest time.Time
	var full, filling []string
	accounts := map[int64]accountQueue{}
	for _, a := range aliases {
		q := stats[a.ID]
		if q.Queued == 0 {
			continue
		}
		waiting, at = waiting+q.Queued, at+1
		if oldest.IsZero() || q.OldestQueuedAt.Before(oldest) {
			oldest = q.OldestQueuedAt
		}
		of := accountQueue{name: a.OwnerName, queued: accounts[a.Owner].queued + int64(q.Queued), limit: int64(cfg.MaxAccountQueue)}
		if a.OwnerMaxQueue != nil {
			of.limit = *a.OwnerMaxQueue
		}
		accounts[a.Owner] = of
		full, filling = judgeQueue(a.Name, max(percent(int64(q.Queued), int64(cfg.QueueLimit)), percent(q.QueuedBytes, cfg.QueueBytes)), full, filling)
	}
	for _, id := range slices.Sorted(maps.Keys(accounts)) {
		of := accounts[id]
		full, filling = judgeQueue("account "+of.name, percent(of.queued, of.limit), full, filling)
	}
	const fix = "open the tunnel of the alias and release what waits (`ssh HOST replay-queued ALIAS`, or the dashboard), cancel or delete what nobody needs, or raise --queue-limit and --queue-bytes; " +
		"of an account: --max-account-queue, or relayd user set NAME max-account-queue=COUNT"
	switch {
	case len(full) > 0:
		return finding(check, relay.VerdictFail, fix, "the queue of %s is full: callers get 503 queue-full", joinMax(full))
	case len(filling) > 0:
		return finding(check, relay.VerdictWarn, fix, "the queue of %s is nearly full; then callers get 503 queue-full", joinMax(filling))
	case waiting > 0:
		return passed(check, "%s waiting at %s, the oldest since %s", record.Count(waiting, "attempt", "attempts"), record.Count(at, "alias", "aliases"), when(oldest))
	}
	return passed(check, "nothing waits for a tunnel")
}

// accountQueue counts the queued attempts of all aliases of an account; a limit of 0 means no limit.
type accountQueue struct {
	name          string
	queued, limit int64
}

// judgeQueue adds a name to the list full if its queue is full, or to the list filling if the queue is nearly
// full. It returns both lists.
func judgeQueue(name string, percent int64, full, filling []string) ([]string, []string) {
	switch {
	case percent >= 100:
		full = append(full, name)
	case percent >= nearlyFull:
		filling = append(filling, name)
	}
	return full, filling
}

// percent returns the used part of a limit in percent; 0 without a limit.
func percent(used, limit int64) int64 {
	if limit <= 0 {
		return 0
	}
	return int64(float64(used) / float64(limit) * 100)
}

// joinMax joins names into a text, and shortens a long list.
func joinMax(names []string) string {
	const most = 3
	slices.Sort(names)
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
