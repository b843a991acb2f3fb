package events

import (
	"log/slog"
	"testing"
	"time"

	"relay"
	"relay/store/db"
	"relay/store/people"
)

// openEvents opens a store of n events on SQLite, one each minute, of the alias 1 of the account alice.
func openEvents(t *testing.T, n int) *Store {
	t.Helper()
	d, err := db.Open(t.Context(), db.Options{DataDir: t.TempDir()})
	t.Cleanup(func() { _ = d.Close() })
	if err == nil {
		_, _, err = d.Migrate(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	p := people.New(d, people.Options{Log: slog.New(slog.DiscardHandler)})
	if _, err := p.CreateAccount(t.Context(), relay.System(), "alice", false); err != nil {
		t.Fatal(err)
	}
	al, err := p.CreateAlias(t.Context(), relay.System(), "hooks", "alice")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	if err := d.Update(t.Context(), "insert", func(c *db.Tx) error {
		for i := range n {
			at := now.Add(-time.Duration(i) * time.Minute)
			id := LowestID(at)
			id[15] = 1
			c.Do(`INSERT INTO events (`+figureColumns+`) VALUES (?, ?, ?, ?, '', 0, 'POST', x'', 1, '', '', '', '', 0, 0, ?, '', '', 200, ?, 1, 1, '', 0)`,
				id, al.ID, db.Micros(at), db.Micros(at), Delivered, i)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return New(d, slog.New(slog.DiscardHandler), nil, 0)
}

// If counting takes too long, only the newest events are counted, and the result contains the time back to
// which they were counted. The number of the other events is not estimated.
func TestFiguresStopAtTheirBudget(t *testing.T) {
	t.Parallel()
	s := openEvents(t, 100)
	now := time.Now().UTC()
	for _, c := range []struct {
		budget time.Duration
		slice  int
		events int
	}{{time.Hour, 7, 100}, {time.Hour, 100, 100}, {0, 10, 10}, {0, 200, 100}} {
		count := newCounting(now.Add(-2*time.Hour), now, 12)
		count.budget, count.slice = c.budget, c.slice
		if err := s.db.View(t.Context(), "count", func(q db.Query) error { return count.walk(q, 1) }); err != nil {
			t.Fatal(err)
		}
		f := count.figures()
		if f.Total.Events != c.events || f.Total.N != c.events || f.Partial != (c.events < 100) {
			t.Errorf("budget %v, slices of %d: %d events, partial %v", c.budget, c.slice, f.Total.Events, f.Partial)
		}
		if f.Partial && now.Sub(f.From).Round(time.Minute) != time.Duration(c.events-1)*time.Minute {
			t.Errorf("counted back to %v before now", now.Sub(f.From))
		}
	}
}

func TestQuantilesAreMeasuredValues(t *testing.T) {
	t.Parallel()
	of := func(n int) (list []time.Duration) {
		for i := range n {
			list = append(list, time.Duration(n-i))
		}
		return list
	}
	for n, want := range map[int]relay.Latency{
		0: {}, 1: {N: 1, P50: 1, P95: 1, P99: 1, Max: 1}, 2: {N: 2, P50: 1, P95: 2, P99: 2, Max: 2},
		20: {N: 20, P50: 10, P95: 19, P99: 20, Max: 20}, 100: {N: 100, P50: 50, P95: 95, P99: 99, Max: 100},
	} {
		if got := LatencyOf(of(n)); got != want {
			t.Errorf("%d values: %+v, want %+v", n, got, want)
		}
	}
}

// figureColumns are the columns of events that these tests insert. Columns that are added later have defaults.
const figureColumns = `id, alias_id, received_at, asked_at, remote, tls, method, target, http_minor, host,
	provider_name, provider_type, provider_delivery, signed_at, tolerance_us,
	state, error_code, error_message, status, latency_us, attempts, ended_n, blocker, req_size`
