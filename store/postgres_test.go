package store_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/store"
	"relay/store/pgtest"
)

// engines gives an empty store on each engine.
func engines(t testing.TB) map[string]store.Options {
	return map[string]store.Options{
		"sqlite": {DataDir: t.TempDir()}, "postgres": {URL: pgtest.URL(t), DataDir: t.TempDir()},
	}
}

// eventually polls until ok holds.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		<-tick.C
	}
}

// capture hands over one event and its end and waits for both.
func capture(s *store.Store, alias int64) (relay.ID, error) {
	e := &relay.Event{
		ID: s.NewID(), AliasID: alias, ReceivedAt: time.Now(), State: relay.StateDelivering, Method: "POST", Target: []byte("/"),
		Request:  relay.Message{Body: relay.Body{State: relay.BodyComplete}},
		Attempts: []relay.Attempt{{N: 1, Kind: relay.KindOriginal, State: relay.StateDelivering, ReceivedAt: time.Now()}},
	}
	accept := s.Accept(e)
	finish := s.Finish(e.ID, &relay.Attempt{N: 1, State: relay.StateDelivered, EndedAt: time.Now(), Status: 200, HasResponse: true}, "")
	<-accept.Done()
	<-finish.Done()
	if err := accept.Err(); err != nil {
		return e.ID, err
	}
	return e.ID, finish.Err()
}

func withAlias(t testing.TB, s *store.Store) int64 {
	t.Helper()
	_, err := s.CreateAccount(t.Context(), relay.System(), "alice", false)
	if err != nil {
		t.Fatal(err)
	}
	a, err := s.CreateAlias(t.Context(), relay.System(), "hooks", "alice")
	if err != nil {
		t.Fatal(err)
	}
	return a.ID
}

// A second server waits until the first one ends, then ends what that left.
func TestPostgresStandby(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	first := mustServe(t, store.Options{URL: url, DataDir: t.TempDir()})
	alias := withAlias(t, first)
	e := &relay.Event{
		ID: first.NewID(), AliasID: alias, ReceivedAt: time.Now(), State: relay.StateDelivering,
		Attempts: []relay.Attempt{{N: 1, State: relay.StateDelivering, ReceivedAt: time.Now()}},
	}
	ticket := first.Accept(e)
	<-ticket.Done()
	if err := ticket.Err(); err != nil {
		t.Fatal(err)
	}

	second := mustOpen(t, store.Options{URL: url, DataDir: t.TempDir()})
	ctx, cancel := context.WithCancel(t.Context())
	gaveUp := make(chan error, 1)
	go func() { gaveUp <- second.Serve(ctx, deaf) }()
	eventually(t, "the second one waits", second.Standby)
	if err := second.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "standby") {
		t.Errorf("a standby is ready: %v", err)
	}
	cancel()
	if err := <-gaveUp; err == nil || second.Standby() {
		t.Errorf("standby ended with %v", err)
	}

	served := make(chan error, 1)
	go func() { served <- second.Serve(t.Context(), deaf) }()
	eventually(t, "the second one waits again", second.Standby)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-served; err != nil {
		t.Fatal(err)
	}
	got, err := second.Event(t.Context(), relay.System(), e.ID, 0)
	if err != nil || got.State != relay.StateInterrupted {
		t.Errorf("after the takeover: %+v, %v", got, err)
	}
}

// A server whose lock connection dies while another one waits writes nothing more.
func TestPostgresFenced(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	first := mustServe(t, store.Options{URL: url, DataDir: t.TempDir()})
	alias := withAlias(t, first)
	second := mustOpen(t, store.Options{URL: url, DataDir: t.TempDir()})
	served := make(chan error, 1)
	go func() { served <- second.Serve(t.Context(), deaf) }()
	eventually(t, "the second one waits", second.Standby)
	db, err := sql.Open("postgres", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	// Again and again, as the first one takes its lock back when it can.
	eventually(t, "the second one serves", func() bool {
		_, err := db.Exec(`SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 2
			AND classid::bigint = 1919249505 AND objid::bigint = (hashtext(current_schema())::bigint & 4294967295)`)
		if err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-served:
			if err != nil {
				t.Fatal(err)
			}
			return true
		default:
			return false
		}
	})
	eventually(t, "the first one is fenced", func() bool {
		_, err := capture(first, alias)
		return err != nil
	})
	if err := first.Ready(t.Context()); err == nil {
		t.Error("a fenced server is ready")
	}
	if _, err := first.CreateAlias(t.Context(), relay.System(), "more", "alice"); err == nil {
		t.Error("a fenced server makes aliases")
	}
	if _, err := capture(second, alias); err != nil {
		t.Error(err)
	}
}

func TestPostgresPartitions(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	s := mustServe(t, store.Options{URL: url, DataDir: t.TempDir()})
	id, err := capture(s, withAlias(t, s))
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("postgres", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	for _, table := range []string{"events", "attempts", "payloads", "body_chunks"} {
		var days int
		if err := db.QueryRow(`SELECT count(*) FROM pg_inherits WHERE inhparent = to_regclass($1)`, table).Scan(&days); err != nil || days < 8 {
			t.Errorf("%s has %d partitions, %v", table, days, err)
		}
	}
	var name string
	if err := db.QueryRow(`SELECT tableoid::regclass::text FROM events`).Scan(&name); err != nil || name != "events_"+id.Time().Format("20060102") {
		t.Errorf("today's event is in %s, %v", name, err)
	}
	if !strings.HasPrefix(s.Describe(), "postgres ") || strings.Contains(s.Describe(), "relay@") {
		t.Error(s.Describe())
	}
}

// A commit waits for the disk also where the server was told that none should, on
// every connection that writes; doctor does not mind.
func TestPostgresWaitsForTheDisk(t *testing.T) {
	t.Parallel()
	o := engines(t)["postgres"]
	o.URL += "&synchronous_commit=off"
	pooled := o
	pooled.DirectURL = o.URL + "&application_name=direct"
	for name, o := range map[string]store.Options{"direct": o, "pooled": pooled} {
		s := mustOpen(t, o)
		for _, value := range s.CommitSettings(t.Context()) {
			if value != "on" {
				t.Errorf("%s: a session has synchronous_commit %s", name, value)
			}
		}
		if _, _, err := s.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, f := range s.Examine(t.Context()) {
			if f.Check == "durability" && (f.Verdict == store.VerdictOK) != strings.Contains(f.Reason, "wait for the disk") {
				t.Errorf("%s: %+v", name, f)
			}
		}
	}
}
