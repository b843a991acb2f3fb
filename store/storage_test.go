package store_test

import (
	"context"
	"errors"
	"math"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"relay"
	"relay/relaytest"
	"relay/store"
	"relay/store/schematest"
)

// room asks Capacity for space for the given number of bytes, and checks that the code of the error is want;
// "" = no error. It waits for the eviction of older events.
func room(t testing.TB, s *store.Store, alias, need int64, want string) {
	t.Helper()
	code := ""
	e := s.Capacity(alias, need, 10*time.Second)
	if e != nil {
		code = e.Code
		if e.RetryAfter <= 0 {
			t.Error("no Retry-After")
		}
	}
	if code != want {
		t.Errorf("room for %d: %q, want %q", need, code, want)
	}
}

// The storage limit of an alias holds, also after a restart: the oldest events are evicted, and those
// that must stay are kept. If no event can be evicted, there is no space for a new one.
func TestStorageOfAlias(t *testing.T) {
	onEngines(t, func(t *testing.T, o store.Options) {
		o.MaxAliasStorage = 1 << 20
		s := mustServe(t, o)
		alias, now := withAlias(t, s), time.Now().Add(-time.Hour)
		body := strings.Repeat("0123456789abcdef", 6400) // 100 KiB
		const weight = 104 << 10
		var list []relay.ID
		add := func(state string) {
			t.Helper()
			now = now.Add(time.Millisecond)
			list = append(list, stored(t, s, eventAt(s, alias, now, state, body)))
		}
		room(t, s, alias, 2<<20, relay.CodeStorageFull) // more bytes than the limit allows
		for range 10 {
			room(t, s, alias, weight, "")
			add(relay.StateDelivering)
		}
		if _, _, err := s.CreateShare(t.Context(), system, list[1], relay.Share{}); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			room(t, s, alias, weight, "")
			add(relay.StateDelivering)
		}
		if there(t, s, list[0]) || !there(t, s, list[1]) || there(t, s, list[2]) || !there(t, s, list[14]) {
			t.Error("not the oldest went, or a shared one")
		}
		if st := s.Retention(); st.StoredBytes > 1<<20 || st.Evicted < 5 {
			t.Errorf("%+v", st)
		}

		counted := s.Retention().StoredBytes
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = mustServe(t, o)
		eventually(t, "the same is counted after a restart", func() bool { return s.Retention().StoredBytes == counted })

		for s.Capacity(alias, weight, 10*time.Second) == nil && len(list) < 40 {
			add(relay.StateQueued) // queued events evict all events that may be removed, until no space is left
		}
		room(t, s, alias, weight, relay.CodeStorageFull)
		if n := len(list); n < 20 || n > 26 || !there(t, s, list[1]) {
			t.Errorf("%d events until it was full", n)
		}
		if other, err := s.CreateAlias(t.Context(), system, "other", "alice"); err != nil {
			t.Fatal(err)
		} else {
			room(t, s, other.ID, weight, "")
		}
		if err := s.DeleteEvent(t.Context(), system, list[len(list)-1]); err != nil {
			t.Fatal(err)
		}
		room(t, s, alias, weight, "")
	})
}

// The stored bytes that were counted by commits are equal to those that the next start counts.
func TestStorageCountsAlike(t *testing.T) {
	onEngines(t, func(t *testing.T, o store.Options) {
		o.MaxAliasStorage = 1 << 40
		s := mustServe(t, o)
		alias := withAlias(t, s)
		e := eventAt(s, alias, time.Now(), relay.StateDelivering, "some body")
		e.ForwardedLines = []byte("X-Forwarded-For: 203.0.113.9\r\n")
		id := stored(t, s, e)
		if _, err := s.BeginReplay(t.Context(), system, id, true); err != nil {
			t.Fatal(err)
		}
		again := answered(2, "another answer")
		again.SentHead, again.Interim = []byte("POST / HTTP/1.1\r\n\r\n"), [][]byte{[]byte("HTTP/1.1 103 Early Hints\r\n\r\n")}
		settled(t, s.Finish(id, again, ""))
		large := eventAt(s, alias, time.Now(), relay.StateDelivering, "")
		settled(t, s.Chunk(large.ID, 0, 0, make([]byte, relay.BodyPart)), s.Chunk(large.ID, 0, 1, make([]byte, 100)))
		large.Request.Body = relay.Body{Parts: 1, Stored: relay.BodyPart, Size: relay.BodyPart, State: relay.BodyReceiving}
		stored(t, s, large)
		whole := *large
		whole.Request.Body = relay.Body{Parts: 2, Stored: relay.BodyPart + 100, Size: relay.BodyPart + 100, State: relay.BodyComplete}
		settled(t, s.Amend(&whole))
		rejected := eventAt(s, alias, time.Now(), relay.StateRejected, "")
		rejected.Attempts = nil
		stored(t, s, rejected)
		gone := stored(t, s, eventAt(s, alias, time.Now(), relay.StateDelivering, "gone"))
		if err := s.DeleteEvent(t.Context(), system, gone); err != nil {
			t.Fatal(err)
		}
		counted := s.Retention().StoredBytes
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = mustServe(t, o)
		eventually(t, "all was counted", func() bool { return s.Retention().StoredBytes > 0 })
		if again := s.Retention().StoredBytes; again != counted || counted < relay.BodyPart {
			t.Errorf("counted %d by the commits, %d at the start", counted, again)
		}
	})
}

// After a canceled removal, the store's count of stored bytes equals the bytes that are still stored.
func TestStorageAfterARemovalThatEndsEarly(t *testing.T) {
	onEngines(t, func(t *testing.T, o store.Options) {
		o.MaxAliasStorage, o.Retention = 1<<40, time.Hour
		s := mustServe(t, o)
		alias, now := withAlias(t, s), time.Now().Add(-30*time.Minute)
		first := stored(t, s, eventAt(s, alias, now, relay.StateDelivering, "some body"))
		for range 50 {
			now = now.Add(time.Millisecond)
			stored(t, s, eventAt(s, alias, now, relay.StateDelivering, "some body"))
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			defer cancel()
			for ctx.Err() == nil { // waits until the first transaction of the removal has deleted an event, and then cancels the removal
				if _, err := s.Event(ctx, system, first, 0); errors.Is(err, relay.ErrNotFound) {
					return
				}
			}
		}()
		_, _ = s.Retain(ctx, now.Add(2*time.Hour))
		cancel()
		<-ended
		counted := s.Retention()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = mustServe(t, o)
		if again := s.Retention().StoredBytes; again != counted.StoredBytes || counted.Expired == 0 {
			t.Errorf("counted %d after %d were removed, %d at the start", counted.StoredBytes, counted.Expired, again)
		}
	})
}

// With less free space than min-free no new event is accepted, and Ready gives the reason. Running attempts
// can end, and events are accepted again when there is space.
func TestMinFree(t *testing.T) {
	t.Parallel()
	var free atomic.Int64
	free.Store(10 << 30)
	s := mustServe(t, store.Options{
		DataDir: t.TempDir(), MinFree: 1 << 30, FreeSpace: func(string) (int64, error) { return free.Load(), nil },
	})
	alias := withAlias(t, s)
	room(t, s, alias, 1, "")
	e := eventAt(s, alias, time.Now(), relay.StateDelivering, "under way")
	settled(t, s.Accept(e))
	free.Store(1<<30 - 1)
	eventually(t, "it is noticed", func() bool { return s.Ready(t.Context()) != nil })
	room(t, s, alias, 1, relay.CodeStorageFull)
	if err := s.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "less than min-free 1.0 GiB") || !strings.Contains(err.Error(), "--retention") {
		t.Errorf("the reason is %v", err)
	}
	settled(t, s.Finish(e.ID, answered(1, "late"), ""), s.Chunk(e.ID, 1, 0, []byte("x")))
	part := s.Chunk(s.NewID(), 0, 0, []byte("x"))
	<-part.Done()
	if !errors.Is(part.Err(), &relay.Error{Code: relay.CodeStorageFull}) {
		t.Errorf("a part of a new body: %v", part.Err())
	}
	free.Store(1 << 30)
	eventually(t, "it ends by itself", func() bool { return s.Capacity(alias, 1, 0) == nil && s.Ready(t.Context()) == nil })
}

// A store on a full disk is not ready, even if min-free is off and no event has failed yet.
func TestFullDiskWithoutMinFree(t *testing.T) {
	t.Parallel()
	s := mustServe(t, store.Options{DataDir: t.TempDir(), FreeSpace: func(string) (int64, error) { return 4 << 10, nil }})
	alias := withAlias(t, s)
	room(t, s, alias, 1, relay.CodeStorageFull)
	if err := s.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "4.0 KiB free") {
		t.Errorf("the reason is %v", err)
	}
}

// The free space is read from the file system if the option FreeSpace is nil.
func TestFreeSpace(t *testing.T) {
	t.Parallel()
	s := mustServe(t, store.Options{DataDir: t.TempDir(), MinFree: math.MaxInt64})
	if err := s.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "free in ") {
		t.Errorf("got %v", err)
	}
}

// If a disk fills up while it is written, callers get storage-full, no acknowledged event is missing,
// and with free space the store continues without a restart.
func TestDiskFull(t *testing.T) {
	dir := t.TempDir()
	if runtime.GOOS != "linux" {
		t.Skip("a small file system of its own needs Linux")
	}
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", dir).CombinedOutput(); err != nil {
		t.Fatalf("this test fills a small file system of its own, and mounting one needs root: %s", out)
	}
	t.Cleanup(func() { _ = exec.Command("umount", dir).Run() })
	s := mustServe(t, store.Options{DataDir: dir})
	t.Cleanup(func() { _ = s.Close() }) // the store is closed before the file system is unmounted
	alias, at := withAlias(t, s), time.Now().Add(-time.Hour)
	body := strings.Repeat("0123456789abcdef", 8<<10)
	var kept []relay.ID
	var err error
	for range 1000 {
		e := eventAt(s, alias, at, relay.StateDelivering, body)
		accept, finish := s.Accept(e), s.Finish(e.ID, answered(1, "ok"), "")
		<-accept.Done()
		<-finish.Done()
		if err = errors.Join(accept.Err(), finish.Err()); err != nil {
			break
		}
		kept = append(kept, e.ID)
	}
	if !errors.Is(err, &relay.Error{Code: relay.CodeStorageFull}) {
		t.Fatalf("after %d events: %v", len(kept), err)
	}
	if err := s.Ready(t.Context()); err == nil {
		t.Error("ready with a full disk")
	}
	for _, id := range kept {
		if !there(t, s, id) {
			t.Errorf("%s is missing", id)
		}
	}
	if out, err := exec.Command("mount", "-o", "remount,size=64m", dir).CombinedOutput(); err != nil {
		t.Fatalf("remount: %s", out)
	}
	eventually(t, "it goes on", func() bool { _, err := capture(s, alias); return err == nil && s.Ready(t.Context()) == nil })
	t.Logf("%d events were kept until the disk was full", len(kept))
}

// While another process locks the database file, an event is refused after 2 s, which is how long a transaction waits for
// the lock. The transaction of a loop may be in front of it. Afterwards the store works without a restart.
func TestDatabaseBusy(t *testing.T) {
	t.Parallel()
	o := store.Options{DataDir: t.TempDir()}
	s := mustServe(t, o)
	alias := withAlias(t, s)
	conn, err := database(t, o).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := conn.ExecContext(t.Context(), `BEGIN IMMEDIATE`); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	ticket := s.Accept(eventAt(s, alias, time.Now(), relay.StateQueued, "some body"))
	<-ticket.Done()
	if took := time.Since(began); took > relaytest.Limit(3*time.Second, began) {
		t.Errorf("it took %v", took)
	}
	if err := ticket.Err(); !errors.Is(err, &relay.Error{Code: relay.CodeStoreUnavailable}) {
		t.Errorf("got %v", err)
	}
	if _, err := conn.ExecContext(t.Context(), `ROLLBACK`); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it goes on", func() bool { _, err := capture(s, alias); return err == nil })
}

// If an operator command removes bytes while the server runs, the server no longer counts them.
func TestStorageOfAnAliasThatACommandRemoves(t *testing.T) {
	onEngines(t, func(t *testing.T, o store.Options) {
		o.MaxAliasStorage = 1 << 20
		s := mustServe(t, o)
		alias := withAlias(t, s)
		other, err := s.CreateAlias(t.Context(), system, "other", "alice")
		if err != nil {
			t.Fatal(err)
		}
		stored(t, s, eventAt(s, other.ID, time.Now(), relay.StateDelivering, "stays"))
		before := s.Retention().StoredBytes
		for range 3 {
			stored(t, s, eventAt(s, alias, time.Now(), relay.StateQueued, strings.Repeat("x", 1000)))
		}
		if err := besides(t, o).RemoveAlias(t.Context(), system, "hooks"); err != nil {
			t.Fatal(err)
		}
		eventually(t, "only what the other alias has is counted", func() bool { return s.Retention().StoredBytes == before })
	})
}

// The server no longer counts the bytes that an interrupted command has removed.
func TestStorageOfAnAliasThatACommandRemovesInPart(t *testing.T) {
	onEngines(t, func(t *testing.T, o store.Options) {
		o.MaxAliasStorage = 1 << 30
		s := mustServe(t, o)
		alias := withAlias(t, s)
		first := eventAt(s, alias, time.Now(), relay.StateQueued, "some body")
		settled(t, s.Accept(first))
		size := s.Retention().StoredBytes
		var tickets []*relay.Ticket
		for range 300 {
			tickets = append(tickets, s.Accept(eventAt(s, alias, time.Now(), relay.StateQueued, "some body")))
		}
		settled(t, tickets...)
		db, command := database(t, o), besides(t, o)
		left := func() (n int64) {
			t.Helper()
			if err := db.QueryRow(`SELECT count(*) FROM events`).Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- command.RemoveAlias(ctx, system, "hooks") }()
		eventually(t, "it has removed some events", func() bool { return left() <= 300 })
		cancel()
		t.Log(<-ended)
		eventually(t, "only what is left is counted", func() bool { return s.Retention().StoredBytes == left()*size })
	})
}

// The storage limit of an alias holds over all nodes: each node counts the bytes that the others store and
// remove, whichever node started first.
func TestStorageCountsOtherNodes(t *testing.T) {
	t.Parallel()
	o := store.Options{URL: schematest.URL(t), DataDir: t.TempDir(), MaxAliasStorage: 1 << 20}
	a := mustServe(t, o)
	alias := withAlias(t, a)
	body := strings.Repeat("0123456789abcdef", 6400) // 100 KiB
	now := time.Now().Add(-time.Hour)
	add := func(s *store.Store) relay.ID {
		now = now.Add(time.Millisecond)
		return stored(t, s, eventAt(s, alias, now, relay.StateQueued, body))
	}
	add(a)
	db := database(t, o)
	eventually(t, "the first node has told it", func() bool { // a node that starts before the first node has reported its bytes may count them twice
		var n int
		err := db.QueryRow(`SELECT count(*) FROM revisions WHERE kind = 'storage'`).Scan(&n)
		return err == nil && n == 1
	})
	o.DataDir = t.TempDir()
	b := mustServe(t, o)
	alike := func(want int64) {
		t.Helper()
		var at, bt int64
		isAlike := func() bool {
			at, bt = a.Retention().StoredBytes, b.Retention().StoredBytes
			return at == bt && at > want*(100<<10) && at < (want+1)*(100<<10)
		}
		defer func() {
			if t.Failed() {
				t.Errorf("the nodes count %d and %d bytes, not %d bodies each", at, bt, want)
			}
		}()
		eventually(t, "both nodes count alike", isAlike)
	}
	alike(1)
	last := add(b)
	add(a)
	add(b)
	alike(4)
	if err := a.DeleteEvent(t.Context(), system, last); err != nil {
		t.Fatal(err)
	}
	alike(3)
	for range 7 {
		add(b)
	}
	alike(10)
	room(t, a, alias, 100<<10, relay.CodeStorageFull) // node b stored nearly all that the alias may have, and queued events stay
}
