package store

import (
	"fmt"
	"strings"

	"relay"
	"relay/record"
	"relay/store/db"
	"relay/store/usage"
)

// nearlyFull is a percentage. If an alias or account uses this part of its limit or more, examineStorage checks
// whether any of its events can be removed.
const nearlyFull = 80

// storedBy holds the stored bytes of one alias, or of all aliases of an account.
type storedBy struct {
	usage.Holder
	name         string
	bytes, limit int64
}

// examineStorage compares the stored bytes with the limits and with the free space of the disk. An alias or
// account at its limit is not a fault while it has events that can be removed.
func (s *Store) examineStorage(q db.Query) relay.Finding {
	all, total, err := s.storedByAll(q)
	if err != nil {
		return db.UnknownFinding(err)
	}
	var full, filling []string
	for _, h := range all {
		if h.limit <= 0 || h.bytes < h.limit/100*nearlyFull {
			continue
		}
		mayGo, err := s.MayGo(q.Ctx, h.Holder)
		if err != nil {
			return db.UnknownFinding(err)
		}
		switch {
		case mayGo: // old events can be removed to make space
		case h.bytes >= h.limit/100*95:
			full = append(full, h.name)
		default:
			filling = append(filling, h.name)
		}
	}
	const fix = "deliver or cancel what is queued, revoke shares and unpin events there, or raise --max-alias-storage or --max-account-storage " +
		"(one account: relayd user set NAME max-account-storage=SIZE); relayd alias list --usage and relayd user list --usage count"
	switch {
	case len(full) > 0:
		return relay.Findingf(relay.VerdictFail, fix, "%s may store no more, and everything there is queued, shared or pinned: callers get 503 storage-full", strings.Join(someOf(full), ", "))
	case len(filling) > 0:
		return relay.Findingf(relay.VerdictWarn, fix, "%s has stored nearly all it may, and everything there is queued, shared or pinned: requests that do not fit get 503 storage-full", strings.Join(someOf(filling), ", "))
	}
	if f, bad := s.examineGrowth(all, total); bad {
		return f
	}
	return db.OKFinding("%s, %s; max-alias-storage %s, max-account-storage %s", record.Count(total.Events, "event", "events"), relay.FormatBytes(total.Bytes),
		limitText(s.opt.MaxAliasStorage), limitText(s.opt.MaxAccountStorage))
}

// examineGrowth returns a warning and true if the events of a SQLite store take more bytes than the disk has
// free, and the limits let the events grow by more than this free space.
func (s *Store) examineGrowth(all []storedBy, total relay.Usage) (relay.Finding, bool) {
	if s.db.Disk.Free == nil || s.db.Dialect.SeveralNodes() {
		return relay.Finding{}, false
	}
	free, err := s.db.Disk.Free(s.db.Disk.Dir)
	if err != nil {
		return db.UnknownFinding(err), true
	}
	free = max(0, free-s.db.Disk.Min)
	growth, unlimited := int64(0), false
	for _, h := range all {
		if !h.Account {
			growth, unlimited = growth+max(0, h.limit-h.bytes), unlimited || h.limit <= 0
		}
	}
	if free >= total.Bytes || !unlimited && growth <= free {
		return relay.Finding{}, false
	}
	more := relay.FormatBytes(growth)
	if unlimited {
		more = "any number of bytes"
	}
	return relay.Findingf(relay.VerdictWarn, "set a shorter --retention, a lower --max-alias-storage or --max-account-storage, or give "+s.db.Disk.Dir+" a larger disk",
		"events take %s, the limits allow %s more, and %s are free above min-free: then callers get 503 storage-full", relay.FormatBytes(total.Bytes), more, relay.FormatBytes(free)), true
}

// storedByAll returns the stored bytes of every alias and of every account that owns one, and their total.
func (s *Store) storedByAll(q db.Query) (all []storedBy, total relay.Usage, err error) {
	stored, err := s.Usage(q.Ctx, relay.System())
	if err != nil {
		return nil, total, err
	}
	type row struct {
		alias, owner int64
		name, user   string
		own          *int64
	}
	rows, err := db.RowsOf(q, func(r *row) []any { return []any{&r.alias, &r.name, &r.owner, &r.user, &r.own} },
		`SELECT al.id, al.name, al.owner_id, o.name, o.max_storage FROM aliases al JOIN accounts o ON o.id = al.owner_id ORDER BY al.owner_id`)
	accounts := map[int64]int{}
	for _, r := range rows {
		u := stored[r.alias]
		total.Events, total.Bytes = total.Events+u.Events, total.Bytes+u.Bytes
		limit := s.opt.MaxAccountStorage
		if r.own != nil {
			limit = *r.own
		}
		i, known := accounts[r.owner]
		if !known {
			i, accounts[r.owner] = len(all), len(all)
			all = append(all, storedBy{Holder: usage.Holder{Account: true, ID: r.owner}, name: "account " + r.user, limit: limit})
		}
		all[i].bytes += u.Bytes
		all = append(all, storedBy{usage.Holder{ID: r.alias}, "alias " + r.name, u.Bytes, s.opt.MaxAliasStorage})
	}
	return all, total, err
}

func limitText(limit int64) string {
	if limit <= 0 {
		return "off"
	}
	return relay.FormatBytes(limit)
}

// someOf returns the first few of many names, and a last entry with the number of the others.
func someOf(names []string) []string {
	const most = 3
	if n := len(names); n > most {
		names = append(names[:most:most], fmt.Sprintf("%d more", n-most))
	}
	return names
}
