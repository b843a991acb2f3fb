package store_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"relay"
	"relay/store"
)

// A backup that is made while events arrive is undamaged, contains the events that were acknowledged before
// it began, and can be served. A second backup does not replace it.
func TestBackup(t *testing.T) {
	t.Parallel()
	o := store.Options{DataDir: t.TempDir()}
	s := mustServe(t, o)
	alias := withAlias(t, s)
	before, err := capture(s, alias)
	if err != nil {
		t.Fatal(err)
	}
	waiting := stored(t, s, eventAt(s, alias, time.Now(), relay.StateQueued, "waiting"))
	underWay := eventAt(s, alias, time.Now(), relay.StateDelivering, "under way")
	settled(t, s.Accept(underWay))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	var written atomic.Int64
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if _, err := capture(s, alias); err != nil {
				t.Error(err)
				return
			}
			written.Add(1)
		}
	}()
	eventually(t, "events come in", func() bool { return written.Load() > 50 })
	beside := mustOpen(t, store.Options{DataDir: o.DataDir, NoCreate: true})
	file := filepath.Join(t.TempDir(), "relay.db")
	if err := beside.Backup(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	stop()
	<-done
	if err := beside.Backup(t.Context(), file); err == nil || !strings.Contains(err.Error(), "is there already") {
		t.Errorf("a second one: %v", err)
	}
	if list, err := os.ReadDir(filepath.Dir(file)); err != nil || len(list) != 1 {
		t.Errorf("beside the backup there is %v, %v", list, err)
	}

	restored := store.Options{DataDir: filepath.Join(t.TempDir(), "restored")}
	if err := os.Mkdir(restored.DataDir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file, filepath.Join(restored.DataDir, "relay.db")); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(restored.DataDir, "relay.db"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	var whole string
	if err := database(t, restored).QueryRow(`PRAGMA integrity_check`).Scan(&whole); err != nil || whole != "ok" {
		t.Fatalf("the backup is %s, %v", whole, err)
	}
	r := mustServe(t, restored)
	for id, want := range map[relay.ID]string{
		before: relay.StateDelivered, waiting: relay.StateQueued, underWay.ID: relay.StateInterrupted,
	} {
		if e, err := r.Event(t.Context(), system, id, 0); err != nil || e.State != want {
			t.Errorf("%s: %v, want %s", id, err, want)
		}
	}
	if _, err := capture(r, alias); err != nil {
		t.Error(err)
	}
	for _, f := range r.Examine(t.Context()) {
		if f.Verdict != relay.VerdictOK {
			t.Errorf("%+v", f)
		}
	}
}

func TestBackupOfPostgres(t *testing.T) {
	t.Parallel()
	s := mustServe(t, engines(t)["postgres"])
	file := filepath.Join(t.TempDir(), "x")
	if err := s.Backup(t.Context(), file); !errors.Is(err, store.ErrUsePgDump) || !strings.Contains(err.Error(), "pg_dump") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("a file was made")
	}
}

// Each of several faults is reported by its own check of Examine, with a reason and advice, and by no other
// check.
func TestExamine(t *testing.T) {
	onEngines(t, func(t *testing.T, o store.Options) {
		s := mustServe(t, o)
		alias, old := withAlias(t, s), time.Now().Add(-73*time.Hour)
		id := stored(t, s, eventAt(s, alias, old, relay.StateDelivering, "x"))
		beside := mustOpen(t, store.Options{URL: o.URL, DataDir: o.DataDir, NoCreate: true})
		db := database(t, o)
		exec := func(query string, args ...any) {
			t.Helper()
			if _, err := db.Exec(query, args...); err != nil {
				t.Fatal(err)
			}
		}
		want := func(bad ...string) {
			t.Helper()
			got := map[string]relay.Finding{}
			for _, f := range beside.Examine(t.Context()) {
				// The durability check is left out, because a test server may be configured not to wait
				// for the disk.
				if f.Verdict != relay.VerdictOK && f.Check != "durability" {
					if got[f.Check] = f; f.Fix == "" || f.Reason == "" {
						t.Errorf("%+v says not what to do", f)
					}
				}
			}
			for _, name := range bad {
				if _, ok := got[name]; !ok {
					t.Errorf("%s found nothing", name)
				}
				delete(got, name)
			}
			if len(got) > 0 {
				t.Errorf("found more: %+v", got)
			}
		}
		want()
		exec(`UPDATE events SET attempts = 7`)
		want("attempt counts")
		exec(`UPDATE events SET attempts = 1, state = 3`)
		want("event states")
		exec(`UPDATE events SET state = 2`)
		settled(t, s.Chunk(idAt(s, time.Now()), 0, 0, []byte("x")))
		ahead := eventAt(s, alias, time.Now().Add(time.Hour), relay.StateDelivering, "x")
		settled(t, s.Accept(ahead))
		want("clock")
		if err := s.Close(); err != nil { // a running server would soon end the claims of the node "other", which does not exist
			t.Fatal(err)
		}
		exec(`UPDATE attempts SET claim_node = 'other' WHERE state = 1`)
		want("clock", "under way")
		exec(`UPDATE events SET state = 2`)
		exec(`UPDATE attempts SET state = 2`)
		want("clock")
		leftOver, literal := idAt(s, old), "'%x'"
		if o.URL == "" {
			literal = "x'%x'"
		}
		exec(`UPDATE body_chunks SET event_id = ` + fmt.Sprintf(literal, leftOver[:])) // a server would delete this chunk at its start
		want("clock", "left-over bytes")
		if !there(t, beside, id) {
			t.Error("it is not read-only")
		}
	})
}
