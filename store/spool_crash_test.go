//go:build unix

package store_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"relay"
	"relay/store"
	"relay/store/pgtest"
)

// TestSpoolChild is the process that TestSpoolKilledProcess kills.
func TestSpoolChild(t *testing.T) {
	url := os.Getenv("RELAY_SPOOL_URL")
	if url == "" {
		return
	}
	alias, err := strconv.ParseInt(os.Getenv("RELAY_SPOOL_ALIAS"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	s := mustServe(t, store.Options{URL: url, DataDir: os.Getenv("RELAY_SPOOL_DIR"), SpoolLimit: 64 << 20})
	var line sync.Mutex
	for range 8 {
		go func() {
			for {
				id, err := capture(s, alias)
				line.Lock()
				fmt.Println(id, err)
				line.Unlock()
				<-time.After(2 * time.Millisecond)
			}
		}()
	}
	select {}
}

// The relay is killed while Postgres is unavailable, and again while it stores its spool: no
// acknowledged event is missing.
func TestSpoolKilledProcess(t *testing.T) {
	t.Parallel()
	s, pg, o := spooling(t, 64<<20, true)
	alias := withAlias(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	var l ledger
	for round := range 2 {
		child := exec.Command(os.Args[0], "-test.run=^TestSpoolChild$")
		child.Env = append(os.Environ(), "RELAY_SPOOL_URL="+o.URL, "RELAY_SPOOL_DIR="+o.DataDir, fmt.Sprint("RELAY_SPOOL_ALIAS=", alias))
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		stopped := make(chan struct{})
		n, behind := 0, 0 // number of all lines, and of the lines since Postgres stopped
		for ; lines.Scan(); n++ {
			word, rest, _ := strings.Cut(lines.Text(), " ")
			id, err := relay.ParseID(word)
			if err != nil {
				t.Fatal(lines.Text())
			}
			if rest == "<nil>" {
				l.answered = append(l.answered, id)
			} else if l.refused++; l.refused < 5 {
				t.Error(lines.Text())
			}
			if n == 300 {
				go func() { defer close(stopped); pg.Stop() }()
			}
			select {
			case <-stopped:
				behind++
			default:
			}
			if behind == 500+100*round {
				if err := child.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		_ = child.Wait() // the error says that the child was killed
		if n <= 300 {
			t.Fatalf("the relay ended by itself after %d events", n)
		}
		<-stopped
		if len(spoolFiles(t, o.DataDir)) == 0 {
			t.Error("nothing waits in the spool")
		}
		if err := pg.Restart(); err != nil {
			t.Fatal(err)
		}
	}
	s = mustServe(t, o)
	if missing := l.missing(t, s); missing > 0 || l.refused > 0 {
		t.Errorf("of %d answered %d are missing, %d were refused", len(l.answered), missing, l.refused)
	}
	t.Logf("answered %d", len(l.answered))
	if left := spoolFiles(t, o.DataDir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// twoNodes serves one database with two nodes. The connection of the first node can be cut.
func twoNodes(t *testing.T) (first, second *store.Store, line *cable, o store.Options) {
	t.Helper()
	pg := pgtest.Start(t, pgtest.Options{})
	direct := pg.URL(t) // each call of URL returns the address of a new schema
	address, line := overCable(t, direct)
	o = store.Options{URL: address, DataDir: t.TempDir(), SpoolLimit: 64 << 20, Log: testLog(t), NodeName: "first"}
	first = mustServe(t, o)
	second = mustServe(t, store.Options{URL: direct, DataDir: t.TempDir(), Log: testLog(t), NodeName: "second"})
	return first, second, line, o
}

// A node loses its connection to the database for so long that it is declared dead. When the connection is back,
// it stores its spool, with the ends of its attempts, and rejoins without a restart.
func TestSpoolOfADeadNode(t *testing.T) {
	t.Parallel()
	first, second, line, o := twoNodes(t)
	alias := withAlias(t, first)
	var l ledger
	for range 20 {
		if err := l.ask(first, alias); err != nil {
			t.Fatal(err)
		}
	}
	under := &relay.Event{
		ID: first.NewID(), AliasID: alias, ReceivedAt: time.Now(), State: relay.StateDelivering,
		Attempts: []relay.Attempt{{N: 1, State: relay.StateDelivering, ReceivedAt: time.Now()}},
	}
	kept(t, first.Accept(under))
	before := first.NodeID()
	line.mu.Lock()
	line.pull()
	line.mu.Unlock()
	for range 20 {
		if err := l.ask(first, alias); err != nil {
			t.Fatal(err)
		}
	}
	kept(t, first.Finish(under.ID, &relay.Attempt{N: 1, State: relay.StateDelivered, EndedAt: time.Now(), HasResponse: true, Status: 200}, ""))
	l.answered = append(l.answered, under.ID)
	eventually(t, "the second node has interrupted what the first one had under way", func() bool {
		e, err := second.Event(t.Context(), relay.System(), under.ID, 0)
		return err == nil && e.State == relay.StateInterrupted
	})
	if err := first.MayClaim(); err == nil {
		t.Error("a node without a database may claim")
	}
	line.plug()
	eventually(t, "the first one has stored its spool", func() bool { return len(spoolFiles(t, o.DataDir)) == 0 })
	eventually(t, "the first one is a node again", func() bool { return first.NodeID() != before && first.MayClaim() == nil })
	if missing := l.missing(t, second); missing > 0 {
		t.Errorf("of %d answered %d are missing", len(l.answered), missing)
	}
	if e, err := second.Event(t.Context(), relay.System(), under.ID, 0); err != nil || e.State != relay.StateDelivered {
		t.Errorf("what its caller had answered: %+v, %v", e, err)
	}
	for _, s := range []*store.Store{first, second} {
		if _, err := capture(s, alias); err != nil {
			t.Error(err)
		}
	}
}

// An event was acknowledged as queued by a node that was without Postgres and declared dead. When that node has
// stored its spool, the event is in the queue, unless it was replayed in the meantime.
func TestSpoolQueuedBeforeASweep(t *testing.T) {
	t.Parallel()
	first, second, line, o := twoNodes(t)
	alias := withAlias(t, first)
	event := func() relay.ID {
		e := &relay.Event{
			ID: first.NewID(), AliasID: alias, ReceivedAt: time.Now(), State: relay.StateDelivering, Method: "POST", Target: []byte("/"),
			Attempts: []relay.Attempt{{N: 1, State: relay.StateDelivering, ReceivedAt: time.Now()}},
		}
		kept(t, first.Accept(e))
		return e.ID
	}
	told, replayed := event(), event()
	line.mu.Lock()
	line.pull()
	line.mu.Unlock()
	for _, id := range []relay.ID{told, replayed} {
		kept(t, first.Requeue(id, 1))
	}
	eventually(t, "they are interrupted", func() bool {
		a, err := second.Event(t.Context(), relay.System(), told, 0)
		b, berr := second.Event(t.Context(), relay.System(), replayed, 0)
		return err == nil && berr == nil && a.State == relay.StateInterrupted && b.State == relay.StateInterrupted
	})
	c, err := second.BeginReplay(t.Context(), relay.System(), replayed, true)
	if err != nil {
		t.Fatal(err)
	}
	kept(t, second.Finish(replayed, &relay.Attempt{N: c.N, State: relay.StateDelivered, EndedAt: time.Now()}, ""))
	line.plug()
	eventually(t, "the first one has stored its spool", func() bool { return len(spoolFiles(t, o.DataDir)) == 0 })
	if e, err := second.Event(t.Context(), relay.System(), told, 0); err != nil || e.State != relay.StateQueued || e.Error != nil {
		t.Errorf("what the caller was told is queued: %+v, %v", e, err)
	}
	if e, err := second.Event(t.Context(), relay.System(), replayed, 0); err != nil || e.State != relay.StateDelivered {
		t.Errorf("what was replayed meanwhile: %+v, %v", e, err)
	}
	mayClaim(t, second)
	c, err = second.Next(relay.NextClaim{Alias: alias, Auto: true})
	if err != nil || c == nil || c.Event.ID != told || c.N != 1 {
		t.Errorf("out of the queue comes %+v, %v", c, err)
	}
}

// The spool of an earlier run is stored even if the spool is now switched off.
func TestSpoolLeftAndOff(t *testing.T) {
	t.Parallel()
	s, pg, o := spooling(t, 64<<20)
	alias := withAlias(t, s)
	var l ledger
	pg.Stop()
	for range 20 {
		if err := l.ask(s, alias); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	o.SpoolLimit = 0
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
	if left := spoolFiles(t, o.DataDir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if err := l.ask(s, alias); err != nil {
		t.Error(err)
	}
}

// While Postgres is unavailable and the disk of the spool fails, the relay is not ready; it becomes
// ready without a restart when the disk works again.
func TestSpoolWithoutADisk(t *testing.T) {
	t.Parallel()
	s, pg, o := spooling(t, 64<<20)
	alias := withAlias(t, s)
	away := o.DataDir + ".away"
	if err := os.Rename(o.DataDir, away); err != nil {
		t.Fatal(err)
	}
	pg.Stop()
	if degraded, err := s.Health(t.Context()); err == nil {
		t.Errorf("ready without a disk for the spool: degraded %v", degraded)
	}
	var l ledger
	if err := l.ask(s, alias); relay.AsError(err).Code != relay.CodeStoreUnavailable {
		t.Errorf("an event: %v", err)
	}
	if err := os.Rename(away, o.DataDir); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the relay is ready", func() bool { _, err := s.Health(t.Context()); return err == nil })
	if err := l.ask(s, alias); err != nil {
		t.Error(err)
	}
	if err := pg.Restart(); err != nil {
		t.Fatal(err)
	}
	backInService(t, s)
	if missing := l.missing(t, s); missing > 0 {
		t.Errorf("of %d answered %d are missing", len(l.answered), missing)
	}
}
