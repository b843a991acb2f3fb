package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"relay"
	"relay/record"
	"relay/store/spool"
)

// nearlyFull is the percentage of a limit at which doctor warns.
const nearlyFull = 80

// checkSpool reports events in the spool that are not in Postgres yet. It reports nothing
// with SQLite and an empty spool.
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

// queues is what checkQueues asks a store for.
type queues interface {
	Aliases(ctx context.Context, who relay.Actor) ([]relay.Alias, error)
	AllQueueStats(ctx context.Context) (map[int64]relay.QueueStats, error)
}

// checkQueues reports queued requests: callers of an alias whose queue is full get 503.
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
	for _, a := range aliases {
		q := stats[a.ID]
		if q.Queued == 0 {
			continue
		}
		waiting, at = waiting+q.Queued, at+1
		if oldest.IsZero() || q.OldestQueuedAt.Before(oldest) {
			oldest = q.OldestQueuedAt
		}
		percent := max(percent(int64(q.Queued), int64(cfg.QueueLimit)), percent(q.QueuedBytes, cfg.QueueBytes))
		switch {
		case percent >= 100:
			full = append(full, a.Name)
		case percent >= nearlyFull:
			filling = append(filling, a.Name)
		}
	}
	const fix = "open the tunnel of the alias and release what waits (`ssh HOST replay-queued ALIAS`, or the dashboard), cancel or delete what nobody needs, or raise --queue-limit and --queue-bytes"
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

// percent is how many percent of a limit are used; 0 where there is none.
func percent(used, limit int64) int64 {
	if limit <= 0 {
		return 0
	}
	return int64(float64(used) / float64(limit) * 100)
}

// joinMax names a few of many.
func joinMax(names []string) string {
	const most = 3
	slices.Sort(names)
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
