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

// The relay is killed while Postgres is away, and again while it stores what it had
// kept: nothing that it had answered is missing.
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
		n, behind := 0, 0 // lines in all, and since Postgres is gone
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
		_ = child.Wait() // killed
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

// A server that lost the database to a standby while it had events in its spool
// still stores them, with their ends; it takes nothing new.
func TestSpoolFenced(t *testing.T) {
	t.Parallel()
	first, pg, o := spooling(t, 64<<20)
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
	pg.Stop()
	for range 20 {
		if err := l.ask(first, alias); err != nil {
			t.Fatal(err)
		}
	}
	kept(t, first.Finish(under.ID, &relay.Attempt{N: 1, State: relay.StateDelivered, EndedAt: time.Now(), HasResponse: true, Status: 200}, ""))
	l.answered = append(l.answered, under.ID)
	first.Hold() // as if this process did not run for a moment
	if err := pg.Restart(); err != nil {
		t.Fatal(err)
	}
	second := mustServe(t, store.Options{URL: o.URL, DataDir: t.TempDir(), Log: testLog(t)})
	if e, err := second.Event(t.Context(), relay.System(), under.ID, 0); err != nil || e.State != relay.StateInterrupted {
		t.Errorf("after the takeover: %+v, %v", e, err)
	}
	first.GoOn()
	eventually(t, "the first one has stored its spool", func() bool { return len(spoolFiles(t, o.DataDir)) == 0 })
	if missing := l.missing(t, second); missing > 0 {
		t.Errorf("of %d answered %d are missing", len(l.answered), missing)
	}
	if _, err := capture(first, alias); err == nil {
		t.Error("a fenced server takes events")
	}
	if _, err := capture(second, alias); err != nil {
		t.Error(err)
	}
}
