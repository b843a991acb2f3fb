//go:build linux || darwin

package store_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"relay"
	"relay/store"
	"relay/store/powertest"
)

// The power is lost after each of several steps of a store on SQLite. Afterwards the store has all events, ends
// of attempts and parts of bodies that it confirmed. This also holds after removals, which need not be durable,
// and after failed syncs.
func TestConfirmedOutlivesPowerLoss(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 1))
	disk := powertest.New(t, 0)
	o := store.Options{DataDir: t.TempDir(), VFS: disk.Name}
	s := mustServe(t, o)
	alias := withAlias(t, s)
	confirmed, refused := map[relay.ID]string{}, 0
	// done waits for a step and reports whether it was confirmed.
	done := func(ticket *relay.Ticket) bool {
		select {
		case <-ticket.Done():
		case <-time.After(time.Minute):
			t.Fatal("a ticket was never resolved")
		}
		if ticket.Err() != nil {
			refused++
		}
		return ticket.Err() == nil
	}
	part := bytes.Repeat([]byte("0123456789abcdef"), relay.BodyPart/16)
	var last *relay.Event
	steps := []struct {
		name string
		do   func()
	}{
		{"accept", func() {
			last = eventAt(s, alias, time.Now(), relay.StateDelivering, "body")
			if done(s.Accept(last)) {
				confirmed[last.ID] = relay.StateInterrupted // the state that the next start gives to a running attempt
			}
		}},
		{"end", func() {
			if done(s.Finish(last.ID, answered(1, "ok"), "")) {
				confirmed[last.ID] = relay.StateDelivered
			}
		}},
		{"queue", func() {
			if e := eventAt(s, alias, time.Now(), relay.StateQueued, "queued"); done(s.Accept(e)) {
				confirmed[e.ID] = relay.StateQueued
			}
		}},
		{"large", func() {
			e := eventAt(s, alias, time.Now(), relay.StateQueued, "")
			for i := range 2 {
				if !done(s.Chunk(e.ID, 0, i, part)) {
					return
				}
			}
			e.Request.Body = relay.Body{Parts: 2, Stored: 2 * relay.BodyPart, Size: 2 * relay.BodyPart, State: relay.BodyComplete}
			if done(s.Accept(e)) {
				confirmed[e.ID] = relay.StateQueued
			}
		}},
		{"remove", func() {
			for id, state := range confirmed {
				if state == relay.StateDelivered {
					delete(confirmed, id) // a removal need not be durable, so the event may be there again
					if err := s.DeleteEvent(t.Context(), system, id); err != nil {
						t.Logf("removal: %v", err)
					}
					return
				}
			}
		}},
	}
	for round := range 4 {
		for i, step := range steps {
			if round == 2 { // the next sync fails; if it is that of the step, the step must not be confirmed
				disk.FailNext()
			}
			step.do()
			after := disk.LosePower(t, rng, (round+i)%3 == 1, (round+i)%3 == 2)
			t.Run(fmt.Sprint(round, " ", step.name), func(t *testing.T) { wantConfirmed(t, after, confirmed, part) })
		}
	}
	for range 100 { // repeated until a step fails, because a loop of the store may make the sync that fails
		if refused > 0 {
			return
		}
		disk.FailNext()
		steps[0].do()
	}
	t.Error("no step was refused by a failed sync")
}

// wantConfirmed starts a store with the surviving files of the disk, and checks that it has the
// confirmed events.
func wantConfirmed(t *testing.T, dir string, confirmed map[relay.ID]string, part []byte) {
	t.Helper()
	s := mustServe(t, store.Options{DataDir: dir})
	for id, state := range confirmed {
		e, err := s.Event(t.Context(), system, id, 1<<20)
		if err != nil {
			t.Errorf("%s, %s: %v", id, state, err)
			continue
		}
		want := []byte("body")
		switch {
		case e.Request.Body.Parts > 0:
			want = append(bytes.Clone(part), part...)
		case state == relay.StateQueued:
			want = []byte("queued")
		}
		if e.State != state || !bytes.Equal(e.Request.Body.Data, want) || state == relay.StateDelivered && string(e.Attempts[0].Response.Body.Data) != "ok" {
			t.Errorf("%s is %s with %d bytes, want %s with %d", id, e.State, len(e.Request.Body.Data), state, len(want))
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
