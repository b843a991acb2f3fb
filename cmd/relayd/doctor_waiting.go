package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"relay"
	"relay/store"
)

// Names of files that hold events while Postgres is away, and of those that were put
// aside because they could not be read or stored; docs/security.md tells people too.
const (
	spoolFiles  = "spool-*"
	spoolBroken = ".damaged"
)

// nearlyFull is the share of a limit, in percent, from which on it is time to act.
const nearlyFull = 80

// checkSpool is about events on the disk of this machine that a Postgres does not have
// yet. There is nothing to say where none are and none can be.
func checkSpool(cfg Config) []store.Finding {
	const check = "spool"
	dir := string(cfg.DataDir)
	files, _ := filepath.Glob(filepath.Join(dir, spoolFiles))
	var bytes int64
	waiting, broken := 0, 0
	for _, f := range files {
		if strings.HasSuffix(f, spoolBroken) {
			broken++
		} else if info, err := os.Stat(f); err == nil { // it may just have been stored
			waiting, bytes = waiting+1, bytes+info.Size()
		}
	}
	var list []store.Finding
	if broken > 0 {
		list = append(list, finding(check, store.VerdictWarn, "keep them elsewhere with the log of that time, which says why, and report it with the version of relayd",
			"%s of the spool in %s could not be read or stored", many(broken, "file", "files"), dir))
	}
	size := Size(bytes)
	switch limit := cfg.SpoolLimit.Limit(); {
	case waiting > 0 && cfg.DatabaseURL == "":
		return append(list, finding(check, store.VerdictFail, "start relayd with the --database-url that they were meant for; leave the files there until then",
			"%s of events in %s wait for a postgres, and the store is SQLite now", size.about(), dir))
	case waiting > 0 && limit > 0 && bytes >= limit*3/4:
		return append(list, finding(check, store.VerdictFail, "bring postgres back, or raise --spool-limit if the disk has room; leave the files there",
			"%s of events wait for postgres in %s, and new ones find no room: callers get 503", size.about(), dir))
	case waiting > 0:
		return append(list, finding(check, store.VerdictWarn,
			"bring postgres back; a server that runs stores them by itself, and so does the next start with this data dir; leave the files there",
			"%s of events wait for postgres in %s", size.about(), dir))
	case cfg.DatabaseURL != "" && len(list) == 0:
		return []store.Finding{passed(check, "nothing waits for postgres in %s", dir)}
	}
	return list
}

// about is a size as people say it.
func (s Size) about() string {
	for _, u := range sizeUnits[:4] { // the binary ones
		if int64(s) >= u.bytes {
			return fmt.Sprintf("%.1f %s", float64(s)/float64(u.bytes), u.name)
		}
	}
	return fmt.Sprintf("%d bytes", int64(s))
}

// queues is what checkQueues asks a store for.
type queues interface {
	Aliases(ctx context.Context, who relay.Actor) ([]relay.Alias, error)
	AllQueueStats(ctx context.Context) (map[int64]relay.QueueStats, error)
}

// checkQueues is about what waits for tunnels: an alias whose queue is full turns its
// callers away, however well everything else is.
func checkQueues(ctx context.Context, s queues, cfg Config) store.Finding {
	const check = "queues"
	aliases, err := s.Aliases(ctx, relay.System())
	var stats map[int64]relay.QueueStats
	if err == nil {
		stats, err = s.AllQueueStats(ctx)
	}
	if err != nil {
		return finding(check, store.VerdictFail, "see whether the database answers, then run relayd doctor again", "the check could not be done: %s", plain(err))
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
		percent := max(share(int64(q.Queued), int64(cfg.QueueLimit.Limit())), share(q.QueuedBytes, cfg.QueueBytes.Limit()))
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
		return finding(check, store.VerdictFail, fix, "the queue of %s is full: callers get 503 queue-full", some(full))
	case len(filling) > 0:
		return finding(check, store.VerdictWarn, fix, "the queue of %s is nearly full; then callers get 503 queue-full", some(filling))
	case waiting > 0:
		return passed(check, "%s waiting at %s, the oldest since %s", many(waiting, "attempt", "attempts"), many(at, "alias", "aliases"), when(oldest))
	}
	return passed(check, "nothing waits for a tunnel")
}

// share is how many percent of a limit are used; 0 where there is none.
func share(used, limit int64) int64 {
	if limit <= 0 {
		return 0
	}
	return int64(float64(used) / float64(limit) * 100)
}

// many counts things.
func many(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

// some names a few of many.
func some(names []string) string {
	const most = 3
	slices.Sort(names)
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
