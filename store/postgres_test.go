package store_test

import (
	"strings"
	"testing"
	"time"

	"relay"
	"relay/store"
	"relay/store/schematest"
)

// engines returns the options of an empty store on each engine.
func engines(t testing.TB) map[string]store.Options {
	return map[string]store.Options{
		"sqlite": {DataDir: t.TempDir()}, "postgres": {URL: schematest.URL(t), DataDir: t.TempDir()},
	}
}

// eventually polls until ok returns true.
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

// mayClaim waits until a node may claim. A node that was suspended, or without its database, for three
// seconds may not claim for a moment.
func mayClaim(t *testing.T, s *store.Store) {
	t.Helper()
	eventually(t, "the node may claim", func() bool { return s.MayClaim() == nil })
}

// capture enqueues one event and its end, and waits until both are stored.
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

func TestPostgresPartitions(t *testing.T) {
	t.Parallel()
	s, db := servedWithDays(t, store.Options{})
	id, err := capture(s, withAlias(t, s))
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"events", "attempts", "payloads", "body_chunks"} {
		var days int
		if err := db.QueryRow(`SELECT count(*) FROM pg_inherits WHERE inhparent = to_regclass($1)`, table).Scan(&days); err != nil || days < 6 {
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

// A commit waits for the disk on every connection that writes, even if the server is configured
// otherwise; doctor then reports no fault.
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
			if f.Check == "durability" && (f.Verdict == relay.VerdictOK) != strings.Contains(f.Reason, "wait for the disk") {
				t.Errorf("%s: %+v", name, f)
			}
		}
	}
}
