package spool

import (
	"errors"
	"testing"

	"relay"
)

// freshSteps returns the steps of n new events, whose bodies have the given size. The ids of the events are
// numbered; from is the first number.
func freshSteps(from, n, size int) (steps []*Step) {
	for i := range n {
		id := relay.ID{1, byte((from + i) >> 8), byte(from + i)}
		steps = append(steps, &Step{Kind: Accept, ID: id, Event: &relay.Event{
			ID: id, Request: relay.Message{Body: relay.Body{Data: make([]byte, size), Size: int64(size)}},
		}})
	}
	return steps
}

func endOf(st *Step, size int) *Step {
	return &Step{Kind: Finish, ID: st.ID, N: 1, Attempt: &relay.Attempt{
		N: 1, State: relay.StateDelivered, Response: relay.Message{Body: relay.Body{Data: make([]byte, size)}},
	}}
}

// A spool without space for an event of usual size is not ready, even before it has refused an event.
func TestSpoolIsNotReadyOnceRequestsAreTurnedAway(t *testing.T) {
	t.Parallel()
	p := spoolWithoutDatabase(t, t.TempDir(), 1<<20)
	if p.AdmitsTypical() != nil {
		t.Error("an unused spool admits nothing")
	}
	for n := 0; p.Admits(100) == nil; n++ {
		mustPut(t, p, freshSteps(n, 1, 1000))
	}
	if p.IntakeClosed.Load() {
		t.Fatal("the spool itself refused; nothing is tested")
	}
	if p.AdmitsTypical() == nil {
		t.Error("ready although requests are turned away")
	}
}

// When the spool is full for new events, there is still space for the ends of accepted events, but
// not for the steps of a refused event.
func TestSpoolKeepsRoomForEnds(t *testing.T) {
	t.Parallel()
	p := spoolWithoutDatabase(t, t.TempDir(), 1<<20)
	if p.Admits(1<<30) != nil || p.NearlyFull() {
		t.Error("a spool that is not in use keeps something out")
	}
	var in []*Step
	for n := 0; ; n++ {
		st := freshSteps(n, 1, 4000)
		refused, _, err := p.Put(st, errAway)
		if err == nil {
			in = append(in, st...)
			if !p.NearlyFull() {
				t.Fatal("a small spool takes requests that were forwarded already")
			}
			continue
		}
		if len(refused) != 1 || !errors.Is(err, errFull) || p.Admits(0) == nil || !p.IntakeClosed.Load() {
			t.Errorf("refused %d: %v", len(refused), err)
		}
		if _, _, err := p.Put([]*Step{endOf(st[0], 1)}, nil); err == nil {
			t.Error("the end of an event that was refused was taken")
		}
		break
	}
	if used := p.used.Load(); used > p.intakeLimit() || used < p.intakeLimit()*8/10 {
		t.Errorf("new events have %d of %d bytes", used, p.intakeLimit())
	}
	late := freshSteps(1000, 1, 1)[0]
	batch := []*Step{late, {Kind: Chunk, ID: in[0].ID, N: 1, Data: []byte("part of an answer")}}
	for _, st := range in {
		batch = append(batch, endOf(st, 500))
	}
	refused, _, err := p.Put(append(batch, endOf(late, 1)), nil)
	if !errors.Is(err, errFull) || len(refused) != 2 || refused[0] != late || refused[1].ID != late.ID {
		t.Errorf("refused %d, %v", len(refused), err)
	}
	for p.IntakeClosed.Load() {
		rows, err := p.Next(1, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		p.Advance(rows)
	}
	if p.Admits(100) != nil {
		t.Error("nothing is let in although there is room again")
	}
	mustPut(t, p, freshSteps(2000, 1, 100))
}
