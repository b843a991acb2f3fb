package retention

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"time"

	"relay/store/db"
	"relay/store/events"
	"relay/store/usage"
)

// maxRetentionInterval is the longest time between two checks of an alias. Each alias is checked often enough
// that an event is deleted at most max(5 s, retention/100) after it expired.
const maxRetentionInterval = time.Hour

// schedule holds the next time at which the events of each alias are checked.
type schedule map[int64]retentionRun

type retentionRun struct {
	span time.Duration
	next time.Time
}

// due reports whether an alias has to be checked now, and schedules its next check; span is the retention of
// the alias.
func (p schedule) due(now time.Time, alias int64, span time.Duration) bool {
	last, known := p[alias]
	if known && last.span == span && now.Before(last.next) {
		return false
	}
	p[alias] = retentionRun{span, now.Add(min(maxRetentionInterval, max(5*time.Second, span/100)*2/5))}
	return true
}

// forget drops the entries of removed aliases, whose checks are long overdue.
func (p schedule) forget(now time.Time) {
	maps.DeleteFunc(p, func(_ int64, last retentionRun) bool { return now.Sub(last.next) > maxRetentionInterval })
}

// Retain removes the events that are older at the time now than the retention of their alias, and returns
// their number. It checks every alias if the parameter all is true, and otherwise only those whose check is
// due.
func (r *Retention) Retain(ctx context.Context, now time.Time, all bool) (int, error) {
	r.retaining.Lock()
	defer r.retaining.Unlock()
	var aliases []struct {
		ID   int64
		Name string
		Span int64 // retention of the alias in µs; 0 = forever
	}
	if err := r.db.View(ctx, "read retention of aliases", func(q db.Query) error {
		return q.All(&aliases, `SELECT id, name, COALESCE(retention_us, ?) AS span FROM aliases ORDER BY id`, r.opt.Age.Microseconds())
	}); err != nil {
		return 0, err
	}
	if !all {
		r.schedule.forget(now)
	}
	total, first := r.dropDays(ctx, now)
	for _, a := range aliases {
		span := time.Duration(a.Span) * time.Microsecond
		if span <= 0 || !all && !r.schedule.due(now, a.ID, span) {
			continue
		}
		before := now.Add(-span)
		n, err := r.removeOldest(ctx, usage.Holder{ID: a.ID}, events.LowestID(before), now, nil, &r.counts.Expired)
		if n > 0 {
			r.log.Info("old events removed", "alias", a.Name, "events", n, "before", before.UTC().Format(time.RFC3339))
		}
		total += n
		if ctx.Err() != nil {
			return total, err
		}
		if err != nil && first == nil {
			first = fmt.Errorf("alias %s: %w", a.Name, err)
		}
	}
	if total > 0 {
		first = cmp.Or(first, r.vacuum(ctx))
	}
	return total, first
}
