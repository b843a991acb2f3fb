package store_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"relay"
	"relay/relaytest"
	"relay/store"
)

// Many events are removed while another goroutine writes. No transaction of the removal keeps the only
// connection that writes to SQLite for long, and the free pages are returned to the file system. A removal with long
// transactions has some in each of three tries; a transaction that waits for the disk or the CPU, because other programs
// use them, is seldom.
func TestRetentionHoldsTheWriterBriefly(t *testing.T) {
	for try := 1; ; try++ {
		longest, limit := removeBesideWrites(t)
		if longest <= limit {
			return
		}
		if try == 3 {
			t.Fatalf("the writer was held for %v, more than %v", longest, limit)
		}
	}
}

// removeBesideWrites removes many events while another goroutine writes. It returns the longest time for which a
// transaction of the removal held the writer, and the limit of this time.
func removeBesideWrites(t *testing.T) (longest, limit time.Duration) {
	t.Helper()
	o := store.Options{DataDir: t.TempDir(), Retention: 1000 * time.Hour}
	s := mustServe(t, o)
	alias, now := withAlias(t, s), time.Now()
	events := 800
	if os.Getenv("RELAY_LONG") != "" { // 20,000 events take minutes under the race detector
		events = 20_000
	}
	body := string(bytes.Repeat([]byte("0123456789abcdef"), 128))
	var tickets []*relay.Ticket
	for i := range events {
		e := eventAt(s, alias, now.Add(-time.Hour), relay.StateDelivering, body)
		if i%200 == 0 {
			e = eventAt(s, alias, now.Add(-time.Hour), relay.StateDelivering, string(bytes.Repeat([]byte("x"), 250<<10)))
		}
		tickets = append(tickets, s.Accept(e), s.Finish(e.ID, answered(1, body), ""))
		if len(tickets) > 4000 {
			settled(t, tickets...)
			tickets = nil
		}
	}
	settled(t, tickets...)
	before := size(t, o)
	ctx, stop := context.WithCancel(t.Context())
	var slowest, writes atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			began := time.Now()
			if _, err := capture(s, alias); err != nil {
				t.Error(err)
				return
			}
			slowest.Store(max(slowest.Load(), int64(time.Since(began))))
			writes.Add(1)
		}
	}()
	eventually(t, "some captures alone", func() bool { return writes.Load() > 200 })
	alone := time.Duration(slowest.Swap(0))
	writes.Store(0)
	began := time.Now()
	n, err := s.Retain(t.Context(), now.Add(999*time.Hour+59*time.Minute))
	took := time.Since(began)
	stop()
	<-done
	if err != nil || n != events {
		t.Fatalf("removed %d of %d, %v", n, events, err)
	}
	st := s.Retention()
	t.Logf("%d events in %v, longest hold of the writer %v; meanwhile %d captures, the slowest took %v (%v without retention); file %d -> %d MiB",
		n, took, st.LongestHold, writes.Load(), time.Duration(slowest.Load()), alone, before>>20, size(t, o)>>20)
	limit = max(relaytest.Limit(20*time.Millisecond, began), 3*alone)
	db := database(t, o)
	if free, pages := count(t, db, `PRAGMA freelist_count`), count(t, db, `PRAGMA page_count`); free > 1024+pages/50 {
		t.Errorf("%d of %d pages are free and were not given back", free, pages)
	}
	return st.LongestHold, limit
}

func size(t testing.TB, o store.Options) int64 {
	t.Helper()
	info, err := os.Stat(filepath.Join(o.DataDir, "relay.db"))
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}
