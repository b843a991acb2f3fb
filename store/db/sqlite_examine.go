package db

import (
	"context"
	"errors"
	"strings"
	"time"

	"relay"
	"relay/store/file"
)

func (SQLite) examineDurability(s *DB, q Query) relay.Finding {
	q.Handle = s.Write // the pragmas of the writing connection count, because each connection has its own
	return examineSettings(q,
		durabilitySetting{`PRAGMA journal_mode`, "wal", "stop the server and start it again: it sets what it needs"},
		durabilitySetting{`PRAGMA synchronous`, "2", "this build opens the file with less; report it"})
}

func (SQLite) examineDisk(s *DB) relay.Finding {
	free, err := s.Disk.Free(s.Disk.Dir)
	if err != nil {
		return UnknownFinding(err)
	}
	least := "off"
	if s.Disk.Min > 0 {
		least = relay.FormatBytes(s.Disk.Min)
	}
	f := OKFinding("%s free in %s, min-free is %s", relay.FormatBytes(free), s.Disk.Dir, least)
	switch {
	case free < max(s.Disk.Min, minFreeSlack):
		f.Verdict, f.Fix = relay.VerdictFail, "free some space there, or set a shorter --retention, a lower --max-alias-storage or --min-free; callers get 503 until then"
	case free < 2*s.Disk.Min:
		f.Verdict, f.Fix = relay.VerdictWarn, "soon callers get 503; free some space there"
	}
	return f
}

// pagesLimit bounds the check of the pages of a SQLite file. During the check a running server
// cannot restart its write-ahead log, which therefore grows.
const pagesLimit = 30 * time.Second

// examinePages checks every page of a SQLite file. A damaged page is otherwise noticed only by
// a query that reads it, and later writes can spread the damage.
func (SQLite) examinePages(q Query) relay.Finding {
	var cancel context.CancelFunc
	q.Ctx, cancel = context.WithTimeout(q.Ctx, pagesLimit)
	defer cancel()
	var wrong []string
	err := q.All(&wrong, `PRAGMA quick_check(3)`)
	switch {
	case err != nil && errors.Is(q.Ctx.Err(), context.DeadlineExceeded):
		return relay.Findingf(relay.VerdictWarn, "when the server is stopped, run: sqlite3 "+databaseFile+" 'PRAGMA quick_check', in the data dir",
			"the file is too large to be looked at within %v; nothing wrong was found until then", pagesLimit)
	case err != nil && !file.Damaged(err):
		return UnknownFinding(err)
	case err != nil:
		wrong = []string{err.Error()}
	case len(wrong) == 1 && wrong[0] == "ok":
		return OKFinding("every page of the database is as it should be")
	}
	var list []string // without the lines that only name the file: *** in database main ***
	for line := range strings.Lines(strings.Join(wrong, "\n")) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "***") {
			list = append(list, line)
		}
	}
	return relay.Findingf(relay.VerdictFail, "stop the server, keep a copy of the data dir, look at the disk, and restore a backup (docs/backup.md)",
		"the database file is damaged: %s", strings.Join(list, "; "))
}
