package store_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"relay/store"
)

// The metrics exist from the start, and captured events change those of the journal.
func TestMetrics(t *testing.T) {
	onEngines(t, func(t *testing.T, o store.Options) {
		s := mustOpen(t, o)
		reg := prometheus.NewRegistry()
		s.Register(reg)
		shown := func() map[string]float64 {
			t.Helper()
			list, err := reg.Gather()
			if err != nil {
				t.Fatal(err)
			}
			out := map[string]float64{}
			for _, family := range list {
				for _, m := range family.GetMetric() {
					name := family.GetName()
					for _, l := range m.GetLabel() {
						name += " " + l.GetValue()
					}
					out[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
				}
			}
			return out
		}
		if got := shown(); got["relay_store_up"] != 0 {
			t.Errorf("up before it serves: %v", got)
		}
		if _, _, err := s.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.Serve(t.Context(), deaf); err != nil {
			t.Fatal(err)
		}
		alias := withAlias(t, s)
		for range 3 {
			if _, err := capture(s, alias); err != nil {
				t.Fatal(err)
			}
		}
		got := shown()
		if got["relay_store_up"] != 1 || got["relay_store_steps_total"] != 6 || got["relay_store_commit_seconds"] < 3 ||
			got["relay_store_commit_seconds"] != got["relay_store_batch_steps"] || got["relay_store_failed_steps_total"] != 0 {
			t.Errorf("%v", got)
		}
		spool, hasDisk := got["relay_store_spool_limit_bytes"], o.URL == ""
		if _, there := got["relay_store_min_free_bytes"]; there != hasDisk || spool != float64(o.SpoolLimit) {
			t.Errorf("spool limit %v, min-free there: %t", spool, there)
		}
		if got["relay_store_disk_free_bytes"] <= 0 { // with Postgres, this is the disk of the spool
			t.Errorf("free space: %v", got["relay_store_disk_free_bytes"])
		}
		for _, name := range []string{
			"relay_store_queued_steps", "relay_store_spool_bytes", "relay_store_spool_refused_steps_total",
			"relay_store_retention_events_total age", "relay_store_retention_events_total size",
		} {
			if v, there := got[name]; !there || v != 0 {
				t.Errorf("%s is %v, %v", name, v, there)
			}
		}
		if _, there := got["relay_store_retries_total"]; !there { // if the machine stands still for a second, a commit is tried again
			t.Error("the tries are not counted")
		}
	})
}
