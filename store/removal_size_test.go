package store

import (
	"strings"
	"testing"
	"time"

	"relay"
	"relay/store/events"
	"relay/store/pgtest"
)

// What a replay stored after an event was listed for removal is subtracted with that event.
func TestRemovalCountsWhatAReplayAdded(t *testing.T) {
	t.Parallel()
	for name, address := range map[string]string{"sqlite": "", "postgres": pgtest.URL(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := Open(t.Context(), Options{URL: address, DataDir: t.TempDir(), MaxAliasStorage: 1 << 40})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			if _, _, err := s.db.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := s.CreateAccount(t.Context(), relay.System(), "alice", false); err != nil {
				t.Fatal(err)
			}
			alias, err := s.CreateAlias(t.Context(), relay.System(), "hooks", "alice")
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Serve(t.Context(), func([]relay.Change) {}); err != nil {
				t.Fatal(err)
			}
			done := func(ticket *relay.Ticket) {
				t.Helper()
				<-ticket.Done()
				if err := ticket.Err(); err != nil {
					t.Fatal(err)
				}
			}
			now := time.Now()
			e := &relay.Event{
				ID: s.NewID(), AliasID: alias.ID, ReceivedAt: now, Method: "POST", Target: []byte("/"),
				Attempts: []relay.Attempt{{N: 1, Kind: relay.KindOriginal, State: relay.StateDelivering, ReceivedAt: now}},
			}
			done(s.Accept(e))
			end := func(n int) {
				t.Helper()
				body := []byte(strings.Repeat("x", 10_000))
				done(s.Finish(e.ID, &relay.Attempt{
					N: n, State: relay.StateDelivered, EndedAt: time.Now(), Status: 200, HasResponse: true,
					Response: relay.Message{Body: relay.Body{Data: body, Size: int64(len(body)), State: relay.BodyComplete}},
				}, ""))
			}
			end(1)
			list, err := s.removalCandidates(t.Context(), holder{id: alias.ID}, removalRange{before: events.LastID, now: s.db.Now()})
			if err != nil || len(list) != 1 {
				t.Fatal(list, err)
			}
			if _, err := s.BeginReplay(t.Context(), relay.System(), e.ID, true); err != nil {
				t.Fatal(err)
			}
			end(2)
			n, freed, _, err := s.remove(t.Context(), holder{id: alias.ID}, list, s.db.Now(), nil)
			if left := s.storage.total(); err != nil || n != 1 || left != 0 {
				t.Errorf("%d events of %d bytes were removed (%v), and %d bytes are still counted", n, freed, err, left)
			}
		})
	}
}
