package store

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"relay"
	"relay/relaytest"
	"relay/store/schematest"
)

// claimBed returns a queueModel with a new store, and the only alias in it. The tests use the model's helpers,
// not its random operations.
func claimBed(t *testing.T, o Options) (*queueModel, *relay.Alias) {
	m := &queueModel{T: t, o: o}
	m.serve()
	_, err := m.s.CreateAccount(t.Context(), relay.System(), "alice", false)
	m.must(err)
	alias, err := m.s.CreateAlias(t.Context(), relay.System(), "hooks", "alice")
	m.must(err)
	return m, alias
}

// A claim for a tunnel that is not in the store as a tunnel of this node is refused. If the
// claim comes together with the end of the previous attempt, that end is still stored.
func TestClaimIsFencedByTheTunnel(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]Options{"sqlite": {}, "postgres": {URL: schematest.URL(t)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o.DataDir = t.TempDir()
			m, alias := claimBed(t, o)
			first, second := m.accept(alias, relay.StateQueued), m.accept(alias, relay.StateQueued)
			next := relay.NextClaim{Alias: alias.ID, Auto: true, Tunnel: "tun_a"}
			maySoonClaim(t, m.s)
			if c, err := m.s.Next(next); c != nil || !errors.Is(err, relay.ErrFenced) {
				t.Fatalf("claimed %+v, %v for a tunnel that is not stored", c, err)
			}
			attach := func(id string) {
				_, err := m.s.StoreTunnels(t.Context(), []relay.TunnelWrite{{Op: relay.TunnelAttach, TunnelRecord: relay.TunnelRecord{
					TunnelInfo: relay.TunnelInfo{ID: id, Since: time.Now()}, Alias: alias.ID, State: relay.TunnelOnline,
				}}})
				m.must(err)
			}
			attach("tun_a")
			maySoonClaim(t, m.s)
			c, err := m.s.Next(next)
			if err != nil || c == nil || c.Event.ID != first {
				t.Fatalf("claimed %+v, %v", c, err)
			}
			attach("tun_b")
			maySoonClaim(t, m.s)
			ticket, claimed := m.s.FinishAndClaim(first, &relay.Attempt{N: 1, State: relay.StateDelivered, EndedAt: time.Now()}, "", next)
			m.must(wait(ticket))
			if c := claimed(); c != nil {
				t.Errorf("claimed %+v for the former tunnel", c)
			}
			m.check()
			next.Tunnel = "tun_b"
			maySoonClaim(t, m.s)
			if c, err := m.s.Next(next); err != nil || c == nil || c.Event.ID != second {
				t.Fatalf("claimed %+v, %v", c, err)
			}
		})
	}
}

// If the last heartbeat of a node is so old that the node may not claim attempts, BeginReplay renews it first.
func TestReplayAsksForARenewal(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64 // the clock jumps ahead by this time, as if the process had been frozen
	now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	m, alias := claimBed(t, Options{URL: schematest.URL(t), DataDir: t.TempDir(), Now: now})
	id := m.accept(alias, relay.StateQueued)
	for tries := 0; m.s.MayClaim() == nil; tries++ { // repeated, because the node may renew its heartbeat in the background
		if tries == 100 {
			t.Fatal("the node may claim without a renewal")
		}
		ahead.Add(int64(5 * time.Second))
	}
	_, err := m.s.BeginReplay(t.Context(), relay.System(), id, true)
	m.must(err)
	m.must(m.s.MayClaim())
}

// maySoonClaim waits until a node may claim attempts. A node that was not running for three seconds may not claim for a
// moment.
func maySoonClaim(t *testing.T, s *Store) {
	t.Helper()
	relaytest.Until(t, 15*time.Second, "the node to be allowed to claim", func() bool { return s.MayClaim() == nil })
}

func settle(t *testing.T, ticket *relay.Ticket) {
	t.Helper()
	if <-ticket.Done(); ticket.Err() != nil {
		t.Fatal(ticket.Err())
	}
}
