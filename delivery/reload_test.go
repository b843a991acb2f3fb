package delivery_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"relay"
)

// TestAllAliasesAreReadAgain: after a change that names no alias, a removed alias is unknown and a new one is known.
func TestAllAliasesAreReadAgain(t *testing.T) {
	run(t, nil, func(b *fixture) {
		b.s.mu.Lock()
		delete(b.s.aliases, 7)
		b.s.aliases[8] = &relay.Alias{ID: 8, Name: "new", Owner: 1, Settings: relay.DefaultSettings()}
		b.s.mu.Unlock()
		b.d.Publish([]relay.Change{{Kind: relay.ChangeAlias}})
		if _, ok := b.d.Alias("hook"); ok {
			t.Error("an alias that is gone is still there")
		}
		if _, ok := b.d.Alias("new"); !ok {
			t.Error("a new alias is not there")
		}
	})
}

// TestViewersOfAnyAccountAreCheckedAgain: after a change that names no account, a viewer whose credential is no
// longer valid ends.
func TestViewersOfAnyAccountAreCheckedAgain(t *testing.T) {
	run(t, nil, func(b *fixture) {
		sub, err := b.d.Subscribe(context.Background(), relay.Actor{Account: 1, Kind: relay.ActorUser}, 7, "")
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Close()
		b.s.mu.Lock()
		b.s.invalid = true
		b.s.mu.Unlock()
		b.d.Publish([]relay.Change{{Kind: relay.ChangeAccount}})
		ctx, cancel := timeout(5 * time.Second)
		defer cancel()
		_, err = sub.Next(ctx)
		b.want("error", err, relay.ErrNotFound)
	})
}

// TestViewersStayWhileTheStoreIsAway: a viewer stays while the store cannot check its credential, and ends
// when the store says that the credential is invalid.
func TestViewersStayWhileTheStoreIsAway(t *testing.T) {
	run(t, nil, func(b *fixture) {
		sub, err := b.d.Subscribe(context.Background(), relay.Actor{Account: 1, Kind: relay.ActorUser}, 7, "")
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Close()
		b.s.fail("valid", errors.New("away"))
		b.d.Publish([]relay.Change{{Kind: relay.ChangeAccount}})
		next := func() error {
			ctx, cancel := timeout(5 * time.Second)
			defer cancel()
			for {
				if _, err := sub.Next(ctx); err != nil {
					return err
				}
			}
		}
		b.want("error while the store is away", next(), context.DeadlineExceeded)
		b.s.mu.Lock()
		b.s.invalid = true
		b.s.mu.Unlock()
		b.s.fail("valid", nil)
		b.want("error after that", next(), relay.ErrNotFound)
	})
}

// TestUnknownNamesAreReadRarely: FindAlias finds an alias that was just created. It reads at most 20 names a
// second, and no name that is not allowed for an alias.
func TestUnknownNamesAreReadRarely(t *testing.T) {
	run(t, nil, func(b *fixture) {
		const most = 20 // reads a second; in the bubble the clock stands still during these calls
		add := func(id int64, name string) {
			b.s.mu.Lock()
			defer b.s.mu.Unlock()
			b.s.aliases[id] = &relay.Alias{ID: id, Name: name, Owner: 1, Settings: relay.DefaultSettings()}
		}
		add(8, "new")
		if a, ok := b.d.FindAlias("new"); !ok || a.ID != 8 {
			t.Error("a new alias is not found")
		}
		for range most - 2 {
			if _, ok := b.d.FindAlias("nobody"); ok {
				t.Error("found an alias that is not there")
			}
		}
		// No alias can have these names, so they are not read.
		for _, name := range []string{"www", "wpad", "xn--p1ai", "a_b", "-a", strings.Repeat("a", 64)} {
			if _, ok := b.d.FindAlias(name); ok {
				t.Errorf("found %s", name)
			}
		}
		add(9, "last")
		add(10, "later")
		for name, want := range map[string]bool{"last": true, "new": true, "hook": true} {
			if _, ok := b.d.FindAlias(name); ok != want {
				t.Errorf("%s is found: %v", name, ok)
			}
		}
		if _, ok := b.d.FindAlias("later"); ok {
			t.Errorf("more than %d names were read", most)
		}
		time.Sleep(time.Second)
		if _, ok := b.d.FindAlias("later"); !ok {
			t.Error("no name is read a second later")
		}
	})
}

// TestSettingsDoNotWaitForACount: a change of settings is in force at once, even while the store counts a
// queue and does not answer.
func TestSettingsDoNotWaitForACount(t *testing.T) {
	run(t, nil, func(b *fixture) {
		b.s.mu.Lock()
		b.s.slowCounts = true
		b.s.mu.Unlock()
		b.d.Publish([]relay.Change{{Kind: relay.ChangeQueue, Alias: 7}})
		// The store is counting the queue.
		synctest.Wait()
		b.s.change(7, func(s *relay.Settings) { s.OfflineStatus = 299 })
		a, _ := b.d.Alias("hook")
		b.want("status", a.Settings.OfflineStatus, 299)
	})
}

// TestQueueOfAnAliasThatIsNew: if the queue of an unknown alias changes, it is counted once the alias is
// known.
func TestQueueOfAnAliasThatIsNew(t *testing.T) {
	run(t, nil, func(b *fixture) {
		b.s.mu.Lock()
		b.s.aliases[8] = &relay.Alias{ID: 8, Name: "new", Owner: 1, Settings: relay.DefaultSettings()}
		id := relay.ID{1}
		b.s.events[id] = &relay.Event{ID: id, AliasID: 8, Attempts: []relay.Attempt{{N: 1, State: relay.StateQueued}}}
		b.s.mu.Unlock()
		b.d.Publish([]relay.Change{{Kind: relay.ChangeQueue, Alias: 8}})
		synctest.Wait()
		b.d.Publish([]relay.Change{{Kind: relay.ChangeAlias, Alias: 8}})
		time.Sleep(5 * time.Second)
		b.want("queued", b.d.Stats().Queued, 1)
	})
}
