package delivery_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"relay"
)

// TestDrainIsSeen: while a queue of 50 is delivered, a viewer gets falling counts of the queued attempts, down
// to 0: at least five counts, and at most one in 50 ms.
func TestDrainIsSeen(t *testing.T) {
	const waiting = 50
	run(t, nil, func(b *fixture) {
		ctx := context.Background()
		for i := range waiting {
			b.send(numbered(i))
		}
		sub, err := b.d.Subscribe(ctx, relay.System(), 7, "")
		must(t, err)
		defer sub.Close()
		k := &bodyRecorder{slow: 10 * time.Millisecond}
		tun, _ := b.attach(k.serve)
		begin := time.Now()
		n, err := b.d.Release(ctx, relay.System(), "hook")
		must(t, err)
		b.want("released", n, waiting)
		var counts []int
		for len(counts) == 0 || counts[len(counts)-1] > 0 {
			items, err := sub.Next(ctx)
			must(t, err)
			for _, item := range items {
				if item.Name != "tunnel" {
					continue
				}
				var a struct{ Queued int }
				must(t, json.Unmarshal(item.Data, &a))
				if len(counts) > 0 && a.Queued > counts[len(counts)-1] {
					t.Errorf("the count goes up: %v, %d", counts, a.Queued)
				}
				counts = append(counts, a.Queued)
			}
		}
		took := time.Since(begin)
		if most := int(took/(50*time.Millisecond)) + 2; len(counts) < 5 || len(counts) > most {
			t.Errorf("%d counts in %v: %v", len(counts), took, counts)
		}
		b.want("in order", len(k.list()), waiting*6-1)
		tun.cutAll()
	})
}
