package cluster

import (
	"log/slog"
	"testing"
	"time"

	"relay"
	"relay/store/db"
)

// beats feeds a membership with renewals. Renewal i starts seconds[i] after base, and reads the heartbeat
// other[i] of the other node; a negative heartbeat means that the other node has no row.
func beats(m *membership, base time.Time, seconds []float64, other []int64) {
	for i, at := range seconds {
		start := base.Add(time.Duration(at * float64(time.Second)))
		rows := []nodeRow{{Node: relay.Node{ID: "me"}}}
		if other[i] >= 0 {
			rows = append(rows, nodeRow{Node: relay.Node{ID: "other", State: relay.NodeServing, Beat: other[i]}})
		}
		m.observe(rows, start, start.Add(10*time.Millisecond))
	}
}

// TestDeadNodes: a node declares another one dead only if it has renewed its own heartbeat without a gap for
// four seconds, in which the heartbeat of the other node did not change. After ten seconds without the database
// no node is declared dead.
func TestDeadNodes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		seconds []float64
		other   []int64
		dead    bool
	}{
		"stands still for four seconds": {[]float64{1, 2, 3, 4, 5, 6}, []int64{7, 7, 7, 7, 7, 7}, true},
		"stands still for three":        {[]float64{1, 2, 3, 4}, []int64{7, 7, 7, 7}, false},
		"moves":                         {[]float64{1, 2, 3, 4, 5, 6, 7}, []int64{7, 7, 7, 8, 8, 8, 8}, false},
		"moves back after a failover":   {[]float64{1, 2, 3, 4, 5, 6, 7}, []int64{7, 7, 7, 5, 5, 5, 5}, false},
		"database away for ten seconds": {[]float64{1, 2, 12, 13, 14, 15}, []int64{7, 8, 8, 8, 8, 8}, false},
		"then it does not come back":    {[]float64{1, 2, 12, 13, 14, 15, 16}, []int64{7, 8, 8, 8, 8, 8, 8}, true},
		"comes and goes every 2 s":      {[]float64{1, 2, 4.5, 5.5, 8, 9, 11.5, 12.5}, []int64{7, 7, 7, 7, 7, 7, 7, 7}, false},
		"first seen late":               {[]float64{1, 2, 3, 4, 5, 6}, []int64{-1, -1, -1, 7, 7, 7}, false},
		"gone":                          {[]float64{1, 2, 3, 4, 5, 6}, []int64{7, 7, 7, 7, 7, -1}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base := time.Now()
			m := &membership{id: "me", renewed: base, steady: base, others: map[string]*nodeSeen{}}
			beats(m, base, c.seconds, c.other)
			if got := len(m.dead()) == 1; got != c.dead {
				t.Errorf("dead: %v, want %v", got, c.dead)
			}
		})
	}
}

// Measure changes the offset of the clock only if the measured offset differs by more than the uncertainty of
// the measurement.
func TestClockOffset(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var clock db.Clock
	for _, c := range []struct{ measured, took, want time.Duration }{
		{2 * time.Millisecond, 4 * time.Millisecond, 0},
		{time.Hour, 4 * time.Millisecond, time.Hour - 2*time.Millisecond},
		{time.Hour + time.Second, 3 * time.Second, time.Hour - 2*time.Millisecond},
		{time.Hour + time.Second, 0, time.Hour + time.Second},
	} {
		clock.Measure(now.Add(c.measured), now, c.took)
		if got := time.Duration(clock.Offset.Load()); got != c.want {
			t.Errorf("offset %v after one of %v was measured in %v, want %v", got, c.measured, c.took, c.want)
		}
	}
}

// A node may claim attempts for three seconds after the start of its last renewal. Both the monotonic and the
// wall clock count, because the monotonic clock stands still while a machine sleeps.
func TestTrustEnds(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, c := range []struct {
		mono, wall time.Duration // time since the renewal
		want       bool
	}{
		{0, 0, true},
		{2 * time.Second, 2 * time.Second, true},
		{claimTrust, claimTrust, false},
		{claimTrust, 0, false},
		{0, claimTrust, false},
		{0, -time.Hour, true}, // the wall clock was set back
	} {
		m := membership{renewed: now, wall: now.Round(0)}
		if got := m.trusted(now.Add(c.mono), now.Round(0).Add(c.wall)); got != c.want {
			t.Errorf("trusted %v after %v, by the wall clock %v", got, c.mono, c.wall)
		}
	}
}

// openCluster opens a database for a node that does not serve.
func openCluster(t *testing.T, dir string) *Store {
	t.Helper()
	d, err := db.Open(t.Context(), db.Options{DataDir: dir})
	t.Cleanup(func() { _ = d.Close() })
	if err == nil {
		_, _, err = d.Migrate(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	s := New(d, Options{Log: slog.New(slog.DiscardHandler), DataDir: dir, Heard: func(relay.ChangeKind, int64, string) bool { return false }})
	d.Finish = s.FinishUpdate
	t.Cleanup(func() { _ = s.CloseNode() })
	return s
}

// If other processes make more changes than one statement reads, one poll reads all of them, because a
// revoked key must not wait for the next poll.
func TestManyRevisionsAreReadAtOnce(t *testing.T) {
	t.Parallel()
	s := openCluster(t, t.TempDir())
	const n = 2*revisionPage + 1
	for first := 0; first < n; first += 100 { // not all in one transaction, because it has a time limit of a few seconds
		if err := s.db.Update(t.Context(), "", func(c *db.Tx) error {
			for i := first; i < min(first+100, n); i++ {
				c.Announce(relay.Change{Kind: relay.ChangeAlias, Alias: int64(i + 1)})
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if last := s.PollRevisions(t.Context(), RevisionMark{}); last.ID != n {
		t.Errorf("read up to revision %d of %d", last.ID, n)
	}
}
