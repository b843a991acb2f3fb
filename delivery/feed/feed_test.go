package feed

import (
	"testing"

	"relay"
)

// However many aliases come and go, the feed remembers of a bounded number that items
// were left out. Who was there before reads again, who had everything need not.
func TestFeedForgetsWhatItLeftOut(t *testing.T) {
	f := New(Options{})
	v := &viewer{f: f, all: true}
	for alias := range int64(3*missedAliases + 5) {
		f.Put(relay.Change{Kind: relay.ChangeEvent, Alias: alias})
		if alias == missedAliases-2 {
			if _, ok := f.since(f.id(f.seq-1), v); ok {
				t.Error("an item that was left out is not missed")
			}
		}
	}
	if len(f.missed) > missedAliases {
		t.Errorf("%d aliases are remembered", len(f.missed))
	}
	if _, ok := f.since(f.id(1), v); ok {
		t.Error("nobody can know what came since the first one")
	}
	if _, ok := f.since(f.id(f.seq), v); !ok {
		t.Error("one that had everything has to read again")
	}
}
