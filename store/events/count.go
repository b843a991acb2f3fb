package events

import (
	"context"

	"relay"
	"relay/store/db"
)

// countRows is the largest number of events that CountEvents reads, from the newest of the alias on.
const countRows = 5000

// CountEvents counts, among the newest events of an alias, those that a filter selects. It stops at the number
// most. The result more is true if there may be others. CountEvents reads no bodies: for a filter that searches
// text or JSON it counts nothing.
func (s *Store) CountEvents(ctx context.Context, who relay.Actor, f relay.Filter, most int) (n int, more bool, err error) {
	if len(f.Texts)+len(f.JSON) > 0 {
		return 0, true, nil
	}
	release, err := s.heavyReads.acquire(ctx, who)
	if err != nil {
		return 0, false, err
	}
	defer release()
	f.Cursor = ""
	err = s.db.View(ctx, "count events", func(q db.Query) error {
		l, err := newListing(q, who, f)
		if err != nil {
			return err
		}
		l.slice = countRows
		bound, older, err := l.bound()
		if err != nil {
			return err
		}
		in, args := db.ColumnIn(`e.alias_id`, l.aliases)
		args = append(append([]any{l.before, bound}, args...), l.args...)
		err = q.Get(&n, `SELECT COUNT(*) FROM (SELECT 1 AS one FROM events e JOIN aliases al ON al.id = e.alias_id`+marksJoin+`
			WHERE e.id < ? AND e.id >= ? AND `+in+l.where+` LIMIT ?) x`, append(args, most+1)...)
		n, more = min(n, most), older || n > most
		return err
	})
	return n, more, err
}
