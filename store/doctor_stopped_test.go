package store_test

import (
	"testing"
	"time"

	"relay"
	"relay/store"
)

// TestExamineAfterAKill: what a killed server left under way, or a backup holds, is put
// right by the next start. It is worth a warning, and no reason for relayd doctor to fail
// before that start, as whoever restores a backup runs it.
func TestExamineAfterAKill(t *testing.T) {
	onEngines(t, func(t *testing.T, o store.Options) {
		s := mustServe(t, o)
		alias := withAlias(t, s)
		settled(t, s.Accept(eventAt(s, alias, time.Now(), relay.StateDelivering, "x")))
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		beside := mustOpen(t, store.Options{URL: o.URL, DataDir: o.DataDir, NoCreate: true})
		found := false
		for _, f := range beside.Examine(t.Context()) {
			if f.Check == "under way" {
				found = true
				if f.Verdict != relay.VerdictWarn || f.Fix == "" {
					t.Errorf("got %+v", f)
				}
			}
		}
		if !found {
			t.Error("it is not looked at")
		}
	})
}
