package events

import (
	"context"
	"strings"
	"time"

	"relay"
	"relay/store/db"
	"relay/store/people"
)

// Bounds of one call of AliasHealth.
const (
	healthAliases = 200    // largest number of aliases
	healthRows    = 10_000 // largest number of events of all aliases together
	healthOfEach  = 1000   // largest number of events of one alias
)

// AliasHealth counts the newest events of aliases that the actor may see, from the time since to now, in equal
// parts. One query reads a bounded number of events of all these aliases. Aliases that the actor may not see,
// and those beyond the first 200, are left out.
func (s *Store) AliasHealth(ctx context.Context, who relay.Actor, aliases []int64, since time.Time, parts int) (map[int64]relay.AliasHealth, error) {
	release, err := s.heavyReads.acquire(ctx, who)
	if err != nil {
		return nil, err
	}
	defer release()
	return db.Read(ctx, s.db, "read health", func(q db.Query) (map[int64]relay.AliasHealth, error) {
		in, args := db.ColumnIn(`al.id`, aliases[:min(len(aliases), healthAliases)])
		may, more := people.AliasAccess(who)
		var ids []int64
		if err := q.All(&ids, `SELECT al.id FROM aliases al WHERE `+in+` AND `+may, append(args, more...)...); err != nil || len(ids) == 0 {
			return nil, err
		}
		each, floor := min(healthRows/len(ids), healthOfEach), LowestID(since)
		args = args[:0]
		for _, id := range ids {
			args = append(args, id, floor, each+1)
		}
		const newest = ` UNION ALL SELECT * FROM (SELECT alias_id, id, state, status FROM events WHERE alias_id = ? AND id >= ? ORDER BY id DESC LIMIT ?) x`
		var rows []healthRow
		if err := q.All(&rows, strings.Repeat(newest, len(ids))[len(` UNION ALL `):], args...); err != nil {
			return nil, err
		}
		return healthOf(rows, each, since, time.Since(since), parts), nil
	})
}

type healthRow struct {
	Alias  int64    `db:"alias_id"`
	ID     relay.ID `db:"id"`
	State  int      `db:"state"`
	Status int      `db:"status"`
}

// healthOf counts rows. For each alias, rows holds the newest events: as many as the parameter each says, plus
// one more if there are older ones.
func healthOf(rows []healthRow, each int, since time.Time, span time.Duration, parts int) map[int64]relay.AliasHealth {
	out, newest := map[int64]relay.AliasHealth{}, map[int64]relay.ID{}
	for i := range rows {
		r := &rows[i]
		h, known := out[r.Alias]
		if !known {
			h.Parts = make([]relay.AliasHealthPart, parts)
		}
		state := StateName(int(r.State))
		if !known || less(newest[r.Alias], r.ID) {
			newest[r.Alias], h.LastState, h.LastStatus = r.ID, state, r.Status
		}
		if h.Events == each {
			h.Partial = true
			continue
		}
		part := &h.Parts[min(max(int(r.ID.Time().Sub(since)*time.Duration(parts)/span), 0), parts-1)]
		h.Events++
		part.Events++
		if relay.IsError(state, r.Status) {
			h.Errors++
			part.Errors++
		}
		out[r.Alias] = h
	}
	return out
}
