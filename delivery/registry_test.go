package delivery

import (
	"testing"

	"relay"
)

// What is known about aliases and owners ends with them.
func TestRegistryForgets(t *testing.T) {
	var r registry
	r.init()
	d := &Delivery{}
	for id := int64(1); id <= 4; id++ {
		r.put(d, &relay.Alias{ID: id, Name: string(rune('a' + id)), Owner: (id + 1) / 2})
		r.account((id + 1) / 2)
	}
	r.remove(1)
	r.remove(1)
	if len(r.accounts) != 2 || len(r.ids) != 3 || len(r.labels) != 3 {
		t.Errorf("%d owners, %d ids, %d labels", len(r.accounts), len(r.ids), len(r.labels))
	}
	for id := range int64(5) {
		r.remove(id)
	}
	if len(r.accounts)+len(r.ids)+len(r.labels) > 0 {
		t.Errorf("%d owners, %d ids, %d labels are left", len(r.accounts), len(r.ids), len(r.labels))
	}
}

// However many aliases come and go, the feed remembers of a bounded number that items
// were left out. Who was there before reads again, who had everything need not.
func TestFeedForgetsWhatItLeftOut(t *testing.T) {
	f := newFeed(&Delivery{})
	v := &viewer{f: f, all: true}
	for alias := range int64(3*feedMissed + 5) {
		f.put(relay.Change{Kind: relay.ChangeEvent, Alias: alias})
		if alias == feedMissed-2 {
			if _, ok := f.since(f.id(f.seq-1), v); ok {
				t.Error("an item that was left out is not missed")
			}
		}
	}
	if len(f.missed) > feedMissed {
		t.Errorf("%d aliases are remembered", len(f.missed))
	}
	if _, ok := f.since(f.id(1), v); ok {
		t.Error("nobody can know what came since the first one")
	}
	if _, ok := f.since(f.id(f.seq), v); !ok {
		t.Error("one that had everything has to read again")
	}
}
