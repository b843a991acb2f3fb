package store_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"relay"
	"relay/store"
)

// Doctor warns the operator before the disk is full: when the events take more bytes than the disk has free,
// and the limits of the aliases let them grow by more than this free space.
func TestExamineGrowth(t *testing.T) {
	t.Parallel()
	const limit, minFree = 1 << 20, 1 << 10
	var free atomic.Int64
	free.Store(1 << 30)
	o := store.Options{
		DataDir: t.TempDir(), MaxAliasStorage: limit, MinFree: minFree,
		FreeSpace: func(string) (int64, error) { return free.Load(), nil },
	}
	s := mustServe(t, o)
	stored(t, s, eventAt(s, withAlias(t, s), time.Now(), relay.StateDelivering, strings.Repeat("x", 100<<10)))
	usage := s.Retention().StoredBytes
	if usage < 100<<10 || usage > 110<<10 {
		t.Fatalf("%d bytes are stored", usage)
	}
	for name, c := range map[string]struct {
		limit, free   int64
		verdict, says string
	}{
		"much is free":                 {limit, limit + minFree, relay.VerdictOK, "1 event"},
		"less than the limits allow":   {limit, usage - 1 + minFree, relay.VerdictWarn, "the limits allow"},
		"less, but more than is there": {limit, usage + minFree, relay.VerdictOK, "1 event"},
		"all that may come fits":       {usage + 1<<10, usage - 1 + minFree, relay.VerdictOK, "1 event"},
		"no limit":                     {0, usage - 1 + minFree, relay.VerdictWarn, "any number of bytes"},
		"nothing but min-free":         {limit, minFree / 2, relay.VerdictWarn, "0 bytes are free above min-free"},
	} {
		free.Store(c.free)
		o.MaxAliasStorage = c.limit
		o.NoCreate = true
		f := relay.Finding{}
		for _, found := range mustOpen(t, o).Examine(t.Context()) {
			if found.Check == "storage" {
				f = found
			}
		}
		if f.Verdict != c.verdict || !strings.Contains(f.Reason, c.says) || (f.Verdict == relay.VerdictWarn) != strings.Contains(f.Fix, "--retention") {
			t.Errorf("%s: %+v", name, f)
		}
	}
}
