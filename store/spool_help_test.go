package store

import (
	"log/slog"
	"testing"

	"relay"
	"relay/store/spool"
)

// spoolWithoutDatabase opens a spool that nothing drains.
func spoolWithoutDatabase(t testing.TB, dir string, limit int64) *spool.Spool {
	t.Helper()
	p := spool.New(spool.Options{
		Dir: dir, Database: "nowhere", Limit: limit, Log: slog.New(slog.DiscardHandler),
		Claimant: func() (string, string) { return "node_a/1", "node_a/1" },
	})
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func mustPut(t testing.TB, p *spool.Spool, steps []*step) {
	t.Helper()
	var kept []*spool.Step
	for _, st := range steps {
		kept = append(kept, &st.Step)
	}
	if _, _, err := p.Put(kept, errAway); err != nil {
		t.Fatal(err)
	}
}

// freshStep is a new event with a body of a size.
func freshStep(size int) *step {
	id := relay.ID{1}
	return &step{Step: spool.Step{Kind: spool.Accept, ID: id, Event: &relay.Event{
		ID: id, Request: relay.Message{Body: relay.Body{Data: make([]byte, size), Size: int64(size)}},
	}}}
}
