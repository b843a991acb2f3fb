package store

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"relay"
	"relay/store/pgtest"
	"relay/store/spool"
)

// claimBed makes a store with one alias, as a model that is not run.
func claimBed(t *testing.T, o Options) (*queueModel, *relay.Alias) {
	m := &queueModel{T: t, o: o}
	m.serve()
	_, err := m.s.CreateAccount(t.Context(), relay.System(), "alice", false)
	m.must(err)
	alias, err := m.s.CreateAlias(t.Context(), relay.System(), "hooks", "alice")
	m.must(err)
	return m, alias
}

// A claim for a tunnel that the store does not know as one of this node is refused, alone or
// with the end of the attempt before, which is stored.
func TestClaimIsFencedByTheTunnel(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]Options{"sqlite": {}, "postgres": {URL: pgtest.URL(t)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o.DataDir = t.TempDir()
			m, alias := claimBed(t, o)
			first, second := m.accept(alias, relay.StateQueued), m.accept(alias, relay.StateQueued)
			next := relay.NextClaim{Alias: alias.ID, Auto: true, Tunnel: "tun_a"}
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
			c, err := m.s.Next(next)
			if err != nil || c == nil || c.Event.ID != first {
				t.Fatalf("claimed %+v, %v", c, err)
			}
			attach("tun_b")
			ticket, claimed := m.s.FinishAndClaim(first, &relay.Attempt{N: 1, State: relay.StateDelivered, EndedAt: time.Now()}, "", next)
			m.must(wait(ticket))
			if c := claimed(); c != nil {
				t.Errorf("claimed %+v for the former tunnel", c)
			}
			m.check()
			next.Tunnel = "tun_b"
			if c, err := m.s.Next(next); err != nil || c == nil || c.Event.ID != second {
				t.Fatalf("claimed %+v, %v", c, err)
			}
		})
	}
}

// A replay in the second after Postgres was away was queued: the node had not renewed its
// right to claim yet.
func TestReplayAsksForARenewal(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64 // the clock, which jumps as if the process had been frozen
	now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	m, alias := claimBed(t, Options{URL: pgtest.URL(t), DataDir: t.TempDir(), Now: now})
	id := m.accept(alias, relay.StateQueued)
	for tries := 0; m.s.MayClaim() == nil; tries++ { // the next renewal may come at any time
		if tries == 100 {
			t.Fatal("the node may claim without a renewal")
		}
		ahead.Add(int64(5 * time.Second))
	}
	_, err := m.s.BeginReplay(t.Context(), relay.System(), id, true)
	m.must(err)
	m.must(m.s.MayClaim())
}

// A batch of new events is one statement on Postgres. When some of them are in the database,
// because the answer to their commit was lost, the rest of the batch is still stored.
func TestNewEventsAreWrittenTwice(t *testing.T) {
	t.Parallel()
	m, alias := claimBed(t, Options{URL: pgtest.URL(t), DataDir: t.TempDir()})
	now := time.Now()
	steps := func() []*step {
		e := &relay.Event{
			ID: m.s.NewID(), AliasID: alias.ID, ReceivedAt: now, State: relay.StateDelivering,
			Request:  relay.Message{Head: []byte("POST / HTTP/1.1\r\n\r\n"), Body: relay.Body{State: relay.BodyComplete}},
			Attempts: []relay.Attempt{{N: 1, State: relay.StateDelivering, ReceivedAt: now, StartedAt: now}},
		}
		a := &relay.Attempt{N: 1, State: relay.StateDelivered, StartedAt: now, EndedAt: now, HasResponse: true, Status: 200}
		a.Response.Body = relay.Body{Data: []byte("answer"), Size: 6, State: relay.BodyComplete}
		return []*step{{Step: spool.Step{Kind: spool.Accept, ID: e.ID, Event: e}}, {Step: spool.Step{Kind: spool.Finish, ID: e.ID, N: 1, Attempt: a}}}
	}
	first, second := steps(), steps()
	batch := slices.Concat(first, second)
	for _, list := range [][]*step{first[:1], batch, batch} {
		changes, err := m.s.writeSteps(t.Context(), list)
		m.must(err)
		if len(changes) < len(list) {
			t.Errorf("%d changes after %d steps", len(changes), len(list))
		}
		for _, st := range list {
			m.must(st.err)
		}
	}
	for _, st := range []*step{first[0], second[0]} {
		e, err := m.s.Event(t.Context(), relay.System(), st.ID, relay.InlineBody)
		m.must(err)
		if e.State != relay.StateDelivered || len(e.Attempts) != 1 || string(e.Attempts[0].Response.Body.Data) != "answer" {
			t.Errorf("%s: state %s, attempts %+v", st.ID, e.State, e.Attempts)
		}
	}
}

// A batch whose commit was not answered is written again: a claim of it is found, an event
// that has gone out of the queue meanwhile is not queued once more.
func TestBatchIsWrittenTwice(t *testing.T) {
	t.Parallel()
	m, alias := claimBed(t, Options{URL: pgtest.URL(t), DataDir: t.TempDir()})
	write := func(steps ...*step) {
		t.Helper()
		_, err := m.s.writeSteps(t.Context(), steps)
		m.must(err)
	}
	accept := func() *step {
		e := &relay.Event{
			ID: m.s.NewID(), AliasID: alias.ID, ReceivedAt: time.Now(), State: relay.StateQueued,
			Request:  relay.Message{Body: relay.Body{State: relay.BodyComplete}},
			Attempts: []relay.Attempt{{N: 1, State: relay.StateQueued, ReceivedAt: time.Now()}},
		}
		return &step{Step: spool.Step{Kind: spool.Accept, ID: e.ID, Event: e}}
	}
	next := relay.NextClaim{Alias: alias.ID, Auto: true}
	first, second := accept(), accept()
	write(first, second)
	claim := &step{Step: spool.Step{Kind: claimStep, ID: relay.ID{1}}, claim: &queueClaim{NextClaim: next}}
	for range 2 {
		write(claim)
		if got := claim.claim.got; got == nil || got.Event.ID != first.ID || got.Event.State != relay.StateDelivering || claim.err != nil {
			t.Fatalf("claimed %+v, %v", got, claim.err)
		}
	}
	end := &step{Step: spool.Step{Kind: spool.Finish, ID: first.ID, N: 1, Attempt: &relay.Attempt{N: 1, State: relay.StateDelivered, EndedAt: time.Now()}}, claim: &queueClaim{NextClaim: next}}
	for range 2 {
		write(end)
		if got := end.claim.got; got == nil || got.Event.ID != second.ID || end.err != nil {
			t.Fatalf("claimed %+v with the end, %v", got, end.err)
		}
	}
	write(first, second)
	m.check()
	if n := m.count(`1 = 1`); n != 1 {
		t.Errorf("%d attempts are in the queue, want the one under way", n)
	}
}

func settle(t *testing.T, ticket *relay.Ticket) {
	t.Helper()
	if <-ticket.Done(); ticket.Err() != nil {
		t.Fatal(ticket.Err())
	}
}
