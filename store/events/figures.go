package events

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"relay"
	"relay/store/db"
	"relay/store/people"
)

// Bounds of one call of Figures.
const (
	figuresBudget = 250 * time.Millisecond
	figuresSlice  = 2048    // largest number of events that one query reads
	figuresRows   = 200_000 // a call stops counting after about this many events
	figuresMost   = 200     // largest number of buckets
	figuresTypes  = 200     // largest number of event types; events of further types are counted without a type
)

// Figures counts the events of an alias that the actor may see, from the time since to the time until, in equal
// buckets. It reads the ids newest first and stops when its time budget is used up. In that case Partial is set,
// and From is the time back to which the events were counted.
func (s *Store) Figures(ctx context.Context, who relay.Actor, alias string, since, until time.Time, buckets int) (relay.Figures, error) {
	if buckets < 1 || buckets > figuresMost || !since.Before(time.Now()) || !since.Before(until) {
		return relay.Figures{}, listError("since", nil, "must lie in the past, with 1 to 200 buckets")
	}
	release, err := s.heavyReads.acquire(ctx, who)
	if err != nil {
		return relay.Figures{}, err
	}
	defer release()
	c := newCounting(since, until, buckets)
	err = s.db.View(ctx, "count events", func(q db.Query) error {
		a, err := people.FindAlias(q, who, alias)
		if err != nil {
			return err
		}
		return c.walk(q, a.ID)
	})
	if err != nil {
		return relay.Figures{}, err
	}
	return c.figures(), nil
}

// counting is the state of one call of Figures.
type counting struct {
	out       relay.Figures
	width     time.Duration
	latencies [][]time.Duration // latencies of each bucket
	all       []time.Duration   // latencies of all buckets
	types     map[string]*typeCount
	rows      int
	budget    time.Duration
	slice     int
}

func newCounting(since, now time.Time, buckets int) *counting {
	c := &counting{
		out:       relay.Figures{From: since, To: now, Buckets: make([]relay.Bucket, buckets)},
		width:     max(now.Sub(since)/time.Duration(buckets), 1),
		latencies: make([][]time.Duration, buckets), types: map[string]*typeCount{},
		budget: figuresBudget, slice: figuresSlice,
	}
	c.out.Total.States = map[string]int{}
	for i := range c.out.Buckets {
		c.out.Buckets[i].From = since.Add(time.Duration(i) * c.width)
	}
	return c
}

type figureRow struct {
	ID      relay.ID       `db:"id"`
	State   int            `db:"state"`
	Status  int            `db:"status"`
	Latency *time.Duration `db:"latency"`
	Type    string         `db:"provider_type"`
}

type typeCount struct {
	bucket    relay.Bucket
	latencies []time.Duration
}

// walk counts the events in slices. A slice is a range of the index on alias and id.
func (c *counting) walk(q db.Query, alias int64) error {
	before, floor, began := LastID, LowestID(c.out.From), time.Now()
	for {
		var rows []figureRow
		if err := q.All(&rows, `SELECT id, state, status, latency_us * 1000 AS latency, provider_type FROM events WHERE alias_id = ? AND id >= ? AND id < ?
			ORDER BY id DESC LIMIT ?`, alias, floor, before, c.slice); err != nil {
			return err
		}
		for i := range rows {
			c.count(&rows[i])
		}
		if c.rows += len(rows); len(rows) < c.slice {
			return nil
		}
		before = rows[len(rows)-1].ID
		if time.Since(began) > c.budget || c.rows >= figuresRows {
			c.out.From, c.out.Partial = before.Time(), true
			return nil
		}
	}
}

// count adds a row to its bucket, and to the total. The time in an id may be a little after the arrival of
// the event, and thus after the end of the last bucket; such a row counts in the last bucket.
func (c *counting) count(r *figureRow) {
	i := min(max(int(r.ID.Time().Sub(c.out.Buckets[0].From)/c.width), 0), len(c.latencies)-1)
	r.addTo(&c.out.Buckets[i], &c.latencies[i])
	r.addTo(&c.out.Total, &c.all)
	t := c.types[r.Type]
	if t == nil && r.Type != "" && len(c.types) < figuresTypes {
		t = &typeCount{}
		c.types[r.Type] = t
	}
	if t != nil {
		r.addTo(&t.bucket, &t.latencies)
	}
}

func (r *figureRow) addTo(b *relay.Bucket, latencies *[]time.Duration) {
	state := StateName(int(r.State))
	b.Events++
	if relay.IsError(state, r.Status) {
		b.Errors++
	}
	b.Classes[min(max(r.Status/100, 0), 9)]++
	if b.States == nil {
		b.States = map[string]int{}
	}
	b.States[state]++
	if r.Latency != nil {
		*latencies = append(*latencies, *r.Latency)
	}
}

func (c *counting) figures() relay.Figures {
	for i := range c.out.Buckets {
		c.out.Buckets[i].Latency = LatencyOf(c.latencies[i])
	}
	c.out.Total.From, c.out.Total.Latency = c.out.From, LatencyOf(c.all)
	for name, t := range c.types {
		c.out.Types = append(c.out.Types, relay.FigureType{Type: name, Events: t.bucket.Events, Errors: t.bucket.Errors, Latency: LatencyOf(t.latencies)})
	}
	slices.SortFunc(c.out.Types, func(a, b relay.FigureType) int { return cmp.Or(b.Events-a.Events, strings.Compare(a.Type, b.Type)) })
	return c.out
}

// LatencyOf returns quantiles of measured times. Each quantile is one of the measured times.
func LatencyOf(measured []time.Duration) relay.Latency {
	n := len(measured)
	if n == 0 {
		return relay.Latency{}
	}
	slices.Sort(measured)
	rank := func(percent int) time.Duration { return measured[(n*percent+99)/100-1] }
	return relay.Latency{N: n, P50: rank(50), P95: rank(95), P99: rank(99), Max: measured[n-1]}
}
