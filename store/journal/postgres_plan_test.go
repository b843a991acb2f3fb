package journal

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"relay"
	"relay/store/plantest"
	"relay/store/schematest"
	"relay/store/spool"
)

// TestOldestQueuedByIndex: a claim reads the beginning of an alias' queue by the index, even before
// Postgres has statistics of the table. It must not read and sort the whole queue.
func TestOldestQueuedByIndex(t *testing.T) {
	t.Parallel()
	s, p := storeWithPlans(t)
	for _, query := range []string{
		`ALTER TABLE queue SET (autovacuum_enabled = false)`,
		`INSERT INTO queue (event_id, n, alias_id, received_at, kind, released, bytes)
			SELECT gen_random_uuid(), 1, i % 20, i, 0, 1, 100 FROM generate_series(1, 10000) i`,
	} {
		if _, err := s.db.Write.Exec(query); err != nil {
			t.Fatal(err)
		}
	}
	var first []relay.ID
	p.Planned(t, "oldest of two aliases", func() error {
		args := oldestOnPostgres.Args([][]any{{int64(3), int64(0)}, {int64(4), int64(1)}})
		return s.db.Write.Select(&first, `SELECT event_id FROM (`+oldestOnPostgres.Postgres+`) q`, args...)
	})
	for _, plan := range p.Seen() {
		if len(first) != 2 || !strings.Contains(plan, "Index Scan using queue_pkey") || strings.Contains(plan, "Sort") {
			t.Errorf("found %d, by the plan\n%s", len(first), plan)
		}
	}
}

// TestClaimedReadByKey: claimed rows are updated and read by their keys, even before Postgres has statistics
// of the tables.
func TestClaimedReadByKey(t *testing.T) {
	t.Parallel()
	s, p := storeWithPlans(t)
	plantest.Fill(t, s.db)
	// Delete only the statistics of this schema, because tests in other schemas of the server need their own.
	if _, err := s.db.Write.Exec(`DELETE FROM pg_statistic WHERE starelid IN (
		SELECT inhrelid FROM pg_inherits JOIN pg_class ON oid = inhrelid WHERE relnamespace = current_schema()::regnamespace)`); err != nil {
		t.Fatal(err)
	}
	p.Planned(t, "claimed", func() error { return claimTwice(t.Context(), s) })
	claims := 0
	for query, plan := range p.Seen() {
		if !strings.Contains(query, "claim_node = ") || !strings.Contains(query, "LATERAL (SELECT * FROM payloads") {
			continue
		}
		claims++
		for _, table := range []string{"events", "payloads", "attempts"} {
			if !regexp.MustCompile(`Index Scan using ` + table + `_[0-9]+_pkey`).MatchString(plan) {
				t.Errorf("%s is not read by its key: %s\n%s", table, query, plan)
			}
		}
	}
	if claims == 0 {
		t.Error("no claim was seen")
	}
}

// claimTwice claims attempts of two aliases in one transaction. A second transaction ends them and
// claims the next attempts of the aliases.
func claimTwice(ctx context.Context, s *fixture) error {
	first := []*step{
		{Step: spool.Step{Kind: claimStep, ID: relay.ID{1}}, claim: &queueClaim{NextClaim: relay.NextClaim{Alias: 4, Auto: true}}},
		{Step: spool.Step{Kind: claimStep, ID: relay.ID{2}}, claim: &queueClaim{NextClaim: relay.NextClaim{Alias: 2, Auto: true}}},
	}
	s.db.Journal = s.db.Write
	here := &writeTarget{db: s.db.Write, node: "here"}
	if _, err := s.writeStepsAs(ctx, here, first); err != nil {
		return err
	}
	var ends []*step
	for _, st := range first {
		got := st.claim.got
		if st.err != nil || got == nil {
			return fmt.Errorf("nothing was claimed for alias %d: %w", st.claim.Alias, st.err)
		}
		ends = append(ends, &step{Step: spool.Step{Kind: spool.Finish, ID: got.Event.ID, N: got.N, Attempt: &relay.Attempt{N: got.N, State: relay.StateDelivered}}, claim: &queueClaim{NextClaim: st.claim.NextClaim}})
	}
	if _, err := s.writeStepsAs(ctx, here, ends); err != nil {
		return err
	}
	if ends[0].err != nil || ends[0].claim.got == nil {
		return fmt.Errorf("nothing was claimed with the end: %w", ends[0].err)
	}
	return nil
}

// storeWithPlans returns a store that does not serve and has twenty aliases, and a planner that records the
// plans of its statements.
func storeWithPlans(t *testing.T) (*fixture, *plantest.Planner) {
	t.Helper()
	s := open(t, schematest.URL(t))
	if _, err := s.CreateAccount(t.Context(), relay.System(), "alice", false); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if _, err := s.CreateAlias(t.Context(), relay.System(), fmt.Sprint("a", i), "alice"); err != nil {
			t.Fatal(err)
		}
	}
	return s, plantest.Attach(t, s.db)
}
