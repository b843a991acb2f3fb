package retention

import (
	"bytes"
	"context"
	"slices"
	"time"

	"relay"
	"relay/store/db"
	"relay/store/events"
	"relay/store/usage"
)

// removalCandidate is an event that may be removed, with its size.
type removalCandidate struct {
	ID       relay.ID `db:"id"`
	Alias    int64    `db:"alias_id"`
	Attempts int      `db:"attempts"`
	Payloads int      `db:"payloads"`
	Bytes    int64    `db:"bytes"`  // as counted in the storage of its alias
	Inline   int64    `db:"inline"` // part of Bytes: the bodies in the table payloads
	Parts    int      `db:"parts"`
}

// cost returns the number of rows for which the event counts in the budget of a transaction. Parts of bodies are
// not counted, because they are deleted separately.
func (d *removalCandidate) cost() int {
	return 1 + d.Attempts + d.Payloads + int(d.Inline/rowPerBytes)
}

// heldEvents is a condition for events that retention must keep: an attempt is queued or being delivered, a
// user has pinned the event, or a share can still be used. Its parameter is the current time.
const heldEvents = `(e.state IN (0, 1) OR EXISTS (SELECT 1 FROM queue w WHERE w.event_id = e.id)
	OR EXISTS (SELECT 1 FROM attempts a WHERE a.event_id = e.id AND a.state = 1)
	OR EXISTS (SELECT 1 FROM event_marks em WHERE em.event_id = e.id AND em.pinned = 1)
	OR EXISTS (SELECT 1 FROM shares sh WHERE sh.event_id = e.id AND (sh.expires_at = 0 OR sh.expires_at > ?)))`

// removable returns a condition for events that need not be kept at the time now; a zero now means all events.
func removable(now time.Time) (string, []any) {
	if now.IsZero() {
		return `1 = 1`, nil
	}
	return `NOT ` + heldEvents, []any{db.Micros(now)}
}

// removalRange selects events to remove: those whose ids are greater than the field after and less than the
// field before, and that are removable at the time now.
type removalRange struct {
	after, before relay.ID
	now           time.Time
}

// removalCandidates returns the oldest events of an alias, or of all aliases of an account, in a range.
func (r *Retention) removalCandidates(ctx context.Context, of usage.Holder, in removalRange) (list []removalCandidate, err error) {
	if of.Account {
		return r.accountCandidates(ctx, of.ID, in)
	}
	err = r.db.View(ctx, "look for events to remove", func(q db.Query) error {
		if list, err = candidatesOf(q, of.ID, in, removalMaxRows); err != nil || len(list) == 0 {
			return err
		}
		return loadSizes(q, list)
	})
	return list, err
}

// candidatesOf returns the oldest events of an alias in a range, without their sizes.
func candidatesOf(q db.Query, alias int64, in removalRange, limit int) (list []removalCandidate, err error) {
	where, args := removable(in.now)
	err = q.All(&list, `SELECT e.id, e.alias_id, e.attempts FROM events e WHERE e.alias_id = ? AND e.id > ? AND e.id < ? AND `+where+`
		ORDER BY e.id LIMIT ?`, append(append([]any{alias, in.after, in.before}, args...), limit)...)
	return list, err
}

// loadSizes fills in the sizes of the payloads of events.
func loadSizes(q db.Query, list []removalCandidate) error {
	ids := make([]relay.ID, len(list))
	for i := range list {
		ids[i] = list[i].ID
	}
	var weights []removalCandidate
	if err := q.AllIn(&weights, `SELECT event_id AS id, COUNT(*) AS payloads, CAST(SUM(`+events.PayloadBytes+`) AS BIGINT) AS bytes,
		CAST(SUM(CASE WHEN parts = 0 THEN stored ELSE 0 END) AS BIGINT) AS inline, SUM(parts) AS parts
		FROM payloads WHERE event_id IN (?) GROUP BY event_id`, ids); err != nil {
		return err
	}
	for _, w := range weights {
		i := slices.Index(ids, w.ID)
		w.Attempts, w.Alias = list[i].Attempts, list[i].Alias
		list[i] = w
	}
	return nil
}

// accountCandidates returns the oldest removable events in a range, of all aliases of an account; see
// removalCandidates.
func (r *Retention) accountCandidates(ctx context.Context, account int64, in removalRange) (list []removalCandidate, err error) {
	err = r.db.View(ctx, "look for events to remove", func(q db.Query) error {
		list = nil
		var aliases []int64
		if err := q.All(&aliases, `SELECT id FROM aliases WHERE owner_id = ?`, account); err != nil || len(aliases) == 0 {
			return err
		}
		each := max(removalMinRows, 2*removalMaxRows/len(aliases))
		last := events.LastID // list has all removable events with ids up to last
		for _, alias := range aliases {
			some, err := candidatesOf(q, alias, in, each)
			if err != nil {
				return err
			}
			if len(some) == each && bytes.Compare(some[each-1].ID[:], last[:]) < 0 {
				last = some[each-1].ID
			}
			list = append(list, some...)
		}
		slices.SortFunc(list, func(a, b removalCandidate) int { return bytes.Compare(a.ID[:], b.ID[:]) })
		n := 0
		for n < min(len(list), removalMaxRows) && bytes.Compare(list[n].ID[:], last[:]) <= 0 {
			n++
		}
		list = list[:n]
		if n == 0 {
			return nil
		}
		return loadSizes(q, list)
	})
	return list, err
}

// MayGo reports whether an alias or account has an event that need not be kept.
func (r *Retention) MayGo(ctx context.Context, of usage.Holder) (bool, error) {
	list, err := r.removalCandidates(ctx, of, removalRange{before: events.LastID, now: r.db.Now()})
	return len(list) > 0, err
}
