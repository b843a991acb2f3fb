//go:build unix

package store_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"relay"
	"relay/relaytest"
	"relay/store"
	"relay/store/pgtest"
)

// spooling returns a served store with a spool, on its own Postgres. If durable is given, Postgres syncs its
// files, so that a test can kill it.
func spooling(t *testing.T, limit int64, durable ...bool) (*store.Store, *pgtest.Server, store.Options) {
	t.Helper()
	pg := pgtest.Start(t, pgtest.Options{Fsync: len(durable) > 0})
	o := store.Options{URL: pg.URL(t), DataDir: t.TempDir(), SpoolLimit: limit, Log: testLog(t)}
	return mustServe(t, o), pg, o
}

// ledger records the results that callers received.
type ledger struct {
	mu       sync.Mutex
	answered []relay.ID
	refused  int
	slowest  time.Duration
}

func (l *ledger) ask(s *store.Store, alias int64) error {
	began := time.Now()
	id, err := capture(s, alias)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.slowest = max(l.slowest, time.Since(began))
	if err != nil {
		l.refused++
		return err
	}
	l.answered = append(l.answered, id)
	return nil
}

// load sends events from several callers until the returned function is called.
func (l *ledger) load(s *store.Store, alias int64, callers int) (stop func()) {
	var wait sync.WaitGroup
	done := make(chan struct{})
	for range callers {
		wait.Go(func() {
			pace := time.NewTicker(5 * time.Millisecond)
			defer pace.Stop()
			for {
				select {
				case <-done:
					return
				case <-pace.C:
				}
				if err := l.ask(s, alias); err != nil {
					<-time.After(20 * time.Millisecond)
				}
			}
		})
	}
	return sync.OnceFunc(func() { close(done); wait.Wait() })
}

// missing counts the acknowledged events that are not in the database, or whose attempt has not ended there.
func (l *ledger) missing(t *testing.T, s *store.Store) (n int) {
	t.Helper()
	var list []relay.Event
	err := afterOutage(t, func() (err error) {
		list, err = s.Summaries(t.Context(), l.answered)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	n = len(l.answered)
	for _, e := range list {
		if e.State == relay.StateDelivered && e.AttemptCount == 1 && e.Status == 200 {
			n--
		} else {
			t.Logf("%s: %+v", e.ID, e)
		}
	}
	return n
}

// backInService waits until the spool is drained and the node may claim. It returns the time until the spool
// was drained.
func backInService(t *testing.T, s *store.Store) time.Duration {
	t.Helper()
	began := time.Now()
	eventually(t, "the spool is drained", func() bool {
		degraded, err := s.Health(t.Context())
		return err == nil && !degraded && s.Stats().SpoolBytes == 0
	})
	took := time.Since(began)
	mayClaim(t, s)
	return took
}

// afterOutage calls do, and calls it again while it returns store-unavailable: the first call after an outage may fail
// on a session from before the outage. It returns the last error.
func afterOutage(t *testing.T, do func() error) (err error) {
	t.Helper()
	eventually(t, "the store is available", func() bool {
		err = do()
		return !errors.Is(err, &relay.Error{Code: relay.CodeStoreUnavailable})
	})
	return err
}

// Postgres is killed under load and restarted: no caller is refused, no acknowledged event is missing,
// and the spool is empty soon after.
func TestSpoolKilled(t *testing.T) {
	t.Parallel()
	s, pg, o := spooling(t, 256<<20, true)
	alias := withAlias(t, s)
	var l ledger
	stop := l.load(s, alias, 8)
	defer stop()
	eventually(t, "some are stored", func() bool { return s.Stats().Committed > 200 })
	kill(t, pg)
	eventually(t, "events go to the spool", func() bool { return s.Stats().SpoolBytes > 1<<20 })
	if degraded, err := s.Health(t.Context()); !degraded || err != nil {
		t.Errorf("while postgres is away: degraded %v, %v", degraded, err)
	}
	began := time.Now()
	if _, err := s.Event(t.Context(), relay.System(), relay.ID{}, 0); relay.AsError(err).Code != relay.CodeStoreUnavailable || time.Since(began) > relaytest.Limit(5*time.Second, began) {
		t.Errorf("a read says %v after %v", err, time.Since(began))
	}
	if _, err := s.Next(relay.NextClaim{Alias: alias, Auto: true}); relay.AsError(err).Code != relay.CodeStoreUnavailable {
		t.Errorf("a claim says %v", err)
	}
	for _, path := range spoolFiles(t, o.DataDir) {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	if err := pg.Restart(); err != nil {
		t.Fatal(err)
	}
	took := backInService(t, s)
	limit, slowest := relaytest.Limit(5*time.Second, began), relaytest.Limit(3*time.Second, began)
	stop()
	backInService(t, s)
	if missing := l.missing(t, s); missing > 0 || l.refused > 0 {
		t.Errorf("of %d answered %d are missing, %d were refused", len(l.answered), missing, l.refused)
	}
	if took > limit || l.slowest > slowest {
		t.Errorf("back after %v, slowest caller %v", took, l.slowest)
	}
	if left := spoolFiles(t, o.DataDir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	t.Logf("answered %d, back after %v, slowest caller %v", len(l.answered), took, l.slowest)
}

// If Postgres freezes under load for a while, no caller is refused or waits longer than 3 s, and memory stays
// bounded.
func TestSpoolFrozen(t *testing.T) { // not parallel, because it measures the memory of the process
	s, pg, _ := spooling(t, 256<<20)
	alias := withAlias(t, s)
	var l ledger
	stop := l.load(s, alias, 8)
	defer stop()
	eventually(t, "some are stored", func() bool { return s.Stats().Committed > 200 })
	before := heap()
	began := time.Now()
	thaw := freeze(t, pg)
	eventually(t, "events go to the spool", func() bool { return s.Stats().SpoolBytes > 1<<20 })
	frozen := 2 * time.Second
	if os.Getenv("RELAY_LONG") != "" {
		frozen = 20 * time.Second
	}
	<-time.After(frozen)
	grown := heap() - before
	thaw()
	took := backInService(t, s)
	limit, slowest := relaytest.Limit(5*time.Second, began), relaytest.Limit(3*time.Second, began)
	stop()
	backInService(t, s)
	if missing := l.missing(t, s); missing > 0 || l.refused > 0 {
		t.Errorf("of %d answered %d are missing, %d were refused", len(l.answered), missing, l.refused)
	}
	if took > limit || l.slowest > slowest || grown > 128<<20 {
		t.Errorf("back after %v, slowest caller %v, grown by %d MiB", took, l.slowest, grown>>20)
	}
	t.Logf("answered %d, back after %v, slowest caller %v, grown by %d KiB", len(l.answered), took, l.slowest, grown>>10)
}

// A full spool refuses events at once with a reason, and accepts events again when it has room.
func TestSpoolFull(t *testing.T) {
	t.Parallel()
	s, pg, _ := spooling(t, 1<<20)
	alias := withAlias(t, s)
	var l ledger
	pg.Stop()
	var err error
	for err == nil {
		err = l.ask(s, alias)
	}
	if e := relay.AsError(err); e.Code != relay.CodeStoreUnavailable || e.RetryAfter <= 0 || len(l.answered) == 0 {
		t.Errorf("full after %d: %v", len(l.answered), err)
	}
	if err := s.Ready(t.Context()); err == nil {
		t.Error("ready with a full spool")
	}
	if st := s.Stats(); st.SpoolFull == 0 || st.SpoolBytes > 1<<20 {
		t.Errorf("%+v", st)
	}
	if err := pg.Restart(); err != nil {
		t.Fatal(err)
	}
	backInService(t, s)
	if err := l.ask(s, alias); err != nil {
		t.Error(err)
	}
	if missing := l.missing(t, s); missing > 0 {
		t.Errorf("of %d answered %d are missing", len(l.answered), missing)
	}
	eventually(t, "what was refused in the middle has an end", func() bool {
		page, err := s.Events(t.Context(), relay.System(), relay.Filter{State: relay.StateDelivering, Limit: 10})
		return err == nil && len(page.Events) == 0
	})
}

// A large body whose parts are stored before and during an outage is complete. The attempt of its event is put
// back into the queue during the outage, and is claimed and ended after the outage.
func TestSpoolKinds(t *testing.T) {
	t.Parallel()
	s, pg, _ := spooling(t, 64<<20)
	alias := withAlias(t, s)
	const parts = 6
	var want []byte
	e := &relay.Event{
		ID: s.NewID(), AliasID: alias, ReceivedAt: time.Now(), State: relay.StateDelivering, Method: "POST", Target: []byte("/large"),
		Request: relay.Message{Head: []byte("POST /large HTTP/1.1\r\n\r\n"), Body: relay.Body{
			Parts: parts, Stored: parts * relay.BodyPart, Size: parts * relay.BodyPart, State: relay.BodyComplete,
		}},
		Attempts: []relay.Attempt{{N: 1, Kind: relay.KindOriginal, State: relay.StateDelivering, ReceivedAt: time.Now()}},
	}
	for i := range parts {
		if i == parts/2 {
			pg.Stop()
		}
		data := bytes.Repeat([]byte{byte('a' + i)}, relay.BodyPart)
		want = append(want, data...)
		kept(t, s.Chunk(e.ID, 0, i, data))
	}
	kept(t, s.Accept(e))
	kept(t, s.Requeue(e.ID, 1))
	if err := pg.Restart(); err != nil {
		t.Fatal(err)
	}
	backInService(t, s)
	var got *relay.Event
	read := func() error {
		return afterOutage(t, func() (err error) {
			got, err = s.Event(t.Context(), relay.System(), e.ID, len(want))
			return err
		})
	}
	err := read()
	if err != nil || got.State != relay.StateQueued || !bytes.Equal(got.Request.Body.Data, want) {
		t.Fatalf("%+v, %v", got, err)
	}
	var c *relay.Claim
	err = afterOutage(t, func() (err error) {
		c, err = s.Next(relay.NextClaim{Alias: alias, Auto: true})
		return err
	})
	if err != nil || c == nil || c.Event.ID != e.ID {
		t.Fatalf("claim: %+v, %v", c, err)
	}
	pg.Stop()
	kept(t, s.Finish(e.ID, &relay.Attempt{N: 1, State: relay.StateDelivered, EndedAt: time.Now(), HasResponse: true, Status: 201}, ""))
	if err := pg.Restart(); err != nil {
		t.Fatal(err)
	}
	backInService(t, s)
	err = read()
	if err != nil || got.State != relay.StateDelivered || got.Status != 201 {
		t.Errorf("%+v, %v", got, err)
	}
}

// The spool of an earlier process is stored at the next start, before the start ends the attempts of
// that process. While Postgres is still unavailable, the start is refused and no step is lost.
func TestSpoolLeft(t *testing.T) {
	t.Parallel()
	s, pg, o := spooling(t, 64<<20)
	alias := withAlias(t, s)
	var l ledger
	pg.Stop()
	for range 50 {
		if err := l.ask(s, alias); err != nil {
			t.Fatal(err)
		}
	}
	under := &relay.Event{
		ID: s.NewID(), AliasID: alias, ReceivedAt: time.Now(), State: relay.StateDelivering,
		Attempts: []relay.Attempt{{N: 1, State: relay.StateDelivering, ReceivedAt: time.Now()}},
	}
	kept(t, s.Accept(under))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Open(t.Context(), o); err == nil || !strings.Contains(err.Error(), "spool") {
		t.Errorf("opened without a database: %v", err)
	}
	if err := pg.Restart(); err != nil {
		t.Fatal(err)
	}
	s = mustServe(t, o)
	if missing := l.missing(t, s); missing > 0 {
		t.Errorf("of %d answered %d are missing", len(l.answered), missing)
	}
	if e, err := s.Event(t.Context(), relay.System(), under.ID, 0); err != nil || e.State != relay.StateInterrupted {
		t.Errorf("what was under way: %+v, %v", e, err)
	}
	if left := spoolFiles(t, o.DataDir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func spoolFiles(t *testing.T, dir string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, "spool*"))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
