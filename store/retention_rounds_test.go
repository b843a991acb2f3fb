package store

import (
	"fmt"
	"testing"
	"time"

	"relay"
	"relay/store/cluster"
	"relay/store/schematest"
)

// Events are removed at most 5 s after the end of their retention, or a hundredth of the retention if
// that is longer, and never earlier. The test moves the clock and counts rounds of the removal loop,
// so that its result does not depend on the speed of the machine.
func TestRetentionIsNotLateByRounds(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"sqlite", "postgres"} {
		for span, late := range map[time.Duration]time.Duration{
			2 * time.Second: 5 * time.Second, time.Minute: 5 * time.Second, 20 * time.Minute: 12 * time.Second, time.Hour: 36 * time.Second,
		} {
			t.Run(fmt.Sprintf("%s/%v", engine, span), func(t *testing.T) {
				t.Parallel()
				o := Options{DataDir: t.TempDir(), Retention: span}
				if engine == "postgres" {
					o.URL = schematest.URL(t)
				}
				c := &testCluster{T: t, nodes: []*Store{openMigrated(t, o)}}
				if err := c.nodes[0].Serve(t.Context(), func([]relay.Change) {}); err != nil {
					t.Fatal(err)
				}
				came := time.Now().Add(time.Hour).Truncate(time.Millisecond) // the time is in the future, so that the loops of the server do not remove the event
				c.withAlias().add(1, 10, came, relay.StateDelivering)
				c.exec(`UPDATE attempts SET state = 2`)
				c.exec(`UPDATE events SET state = 2`)
				if err := c.nodes[0].Close(); err != nil {
					t.Fatal(err)
				}
				now := came
				o.Now = func() time.Time { return now }
				s := openMigrated(t, o)
				c.nodes[0] = s
				for _, l := range s.loops(cluster.RevisionMark{}) {
					if l.name != "events that are too old" {
						continue
					}
					// The first rounds, up to a moment before the end of the retention, find nothing.
					for now = came.Add(span - time.Millisecond - 8*l.every); c.count(`SELECT COUNT(*) FROM events`) == 1; now = now.Add(l.every) {
						if now.After(came.Add(span + late)) {
							t.Fatalf("not removed %v after its end", now.Sub(came)-span)
						}
						if err := l.round(t.Context(), s.db.Now()); err != nil {
							t.Fatal(err)
						}
					}
					if gone := now.Add(-l.every).Sub(came) - span; gone < 0 {
						t.Errorf("removed %v before its end", -gone)
					}
					return
				}
				t.Fatal("there is no such loop")
			})
		}
	}
}
