package delivery_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"relay"
)

func names(items []relay.FeedItem) string {
	var out []string
	for _, i := range items {
		out = append(out, i.Name)
	}
	return strings.Join(out, " ")
}

// TestFeedOfATokenOfOneAlias: a token of one alias gets items of that alias, and a token of another alias
// gets none of them.
func TestFeedOfATokenOfOneAlias(t *testing.T) {
	run(t, always("hello", ok), func(b *fixture) {
		own, _ := b.d.Subscribe(context.Background(), relay.Actor{Account: 1, Kind: relay.ActorToken, Alias: 7}, 0, "")
		of8, err := b.d.Subscribe(context.Background(), relay.Actor{Account: 1, Kind: relay.ActorToken, Alias: 8}, 0, "")
		b.want("error", err, nil)
		b.send(post)
		b.hold.Stale()
		items, err := own.Next(context.Background())
		b.want("its own alias", words(len(items) > 0, err), words(true, nil))
		short, cancel := timeout(time.Second)
		items, err = of8.Next(short)
		cancel()
		b.want("another alias", words(names(items), err), words("", context.DeadlineExceeded))
	}, func(b *fixture) {
		b.s.aliases[8] = &relay.Alias{ID: 8, Name: "other", Owner: 1, Settings: relay.DefaultSettings()}
	})
}

func TestFeed(t *testing.T) {
	run(t, always("hello", ok), func(b *fixture) {
		ctx := context.Background()
		b.send(post)
		synctest.Wait()
		b.want("nobody looks: nothing read", b.s.num(&b.s.reads), 0)
		sub, err := b.d.Subscribe(ctx, relay.Actor{Account: 1, Kind: relay.ActorUser}, 0, "")
		b.want("error", err, nil)
		other, _ := b.d.Subscribe(ctx, relay.Actor{Account: 2, Kind: relay.ActorUser}, 0, "")
		_, err = b.d.Subscribe(ctx, relay.Actor{Account: 2, Kind: relay.ActorUser}, 7, "")
		b.want("foreign alias", relay.AsError(err).Code, relay.CodeNotFound)
		b.send(post)
		// In this time, the feed reads and encodes the changes in one or two rounds.
		time.Sleep(200 * time.Millisecond)
		items, err := sub.Next(ctx)
		b.want("error", err, nil)
		items = items[max(0, len(items)-2):]
		b.want("items", names(items), "event attempt")
		b.want("json", json.Valid(items[0].Data) && json.Valid(items[1].Data), true)
		b.hold.Stale()
		tunnel, _ := sub.Next(ctx)
		b.want("items", names(tunnel), "tunnel")
		b.want("state", strings.Contains(string(tunnel[0].Data), `"state":"stale"`), true)
		short, cancel := timeout(time.Second)
		_, err = other.Next(short)
		cancel()
		b.want("others see nothing", err, context.DeadlineExceeded)
		again, _ := b.d.Subscribe(ctx, relay.Actor{Account: 1}, 7, items[0].ID)
		got, _ := again.Next(ctx)
		b.want("came back", names(got), "resync")
		b.want("and has all", got[0].ID, tunnel[0].ID)
		foreign, _ := b.d.Subscribe(ctx, relay.Actor{Account: 1}, 7, "zz-4")
		got, _ = foreign.Next(ctx)
		b.want("foreign id", names(got), "resync")
		b.s.invalid = true
		b.d.Publish([]relay.Change{{Kind: relay.ChangeAccount, Account: 1}})
		_, err = sub.Next(ctx)
		b.want("revoked", relay.AsError(err).Code, relay.CodeNotFound)
		for _, s := range []relay.Subscription{sub, other, again, foreign} {
			s.Close()
		}
	})
}

func TestSlowViewerReadsAgain(t *testing.T) {
	run(t, always("hello", ok), func(b *fixture) {
		ctx := context.Background()
		sub, _ := b.d.Subscribe(ctx, relay.Actor{Account: 1}, 0, "")
		for range 150 {
			b.send(post)
			time.Sleep(60 * time.Millisecond)
		}
		items, _ := sub.Next(ctx)
		b.want("items", names(items), "resync")
		b.send(post)
		time.Sleep(200 * time.Millisecond)
		items, _ = sub.Next(ctx)
		items = items[max(0, len(items)-2):]
		b.want("items", names(items), "event attempt")
		sub.Close()
		b.send(post)
		late, _ := b.d.Subscribe(ctx, relay.Actor{Account: 1}, 0, items[1].ID)
		items, _ = late.Next(ctx)
		b.want("what nobody saw was not kept", names(items), "resync")
		late.Close()
	})
}

// TestFeedIsBoundedInBytes: when more than 1 MiB of items wait for a viewer, the feed drops them, and the viewer
// gets one resync item instead.
func TestFeedIsBoundedInBytes(t *testing.T) {
	huge := "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Big: " + strings.Repeat("x", 100<<10) + "\r\n\r\nok"
	reg := prometheus.NewRegistry()
	run(t, always("hello", huge), func(b *fixture) {
		ctx := context.Background()
		reads, _ := b.d.Subscribe(ctx, relay.Actor{Account: 1}, 0, "")
		waits, _ := b.d.Subscribe(ctx, relay.Actor{Account: 1}, 0, "")
		for i := range 100 {
			b.send(post)
			time.Sleep(200 * time.Millisecond)
			_, err := reads.Next(ctx)
			b.want("error", err, nil)
			if i == 1 {
				// An event has one item at its end, and an earlier one if its request is stored while
				// its attempt is being delivered.
				items, _ := waits.Next(ctx)
				b.want("a few items wait", strings.ReplaceAll(names(items), "event event", "event"), "event attempt event attempt")
			}
		}
		items, _ := waits.Next(ctx)
		b.want("more than 1 MiB waits for nobody", names(items), "resync")
		b.want("bytes that wait", shown(t, reg)["feed_bytes"], 0.)
		b.send(post)
		time.Sleep(time.Second)
		b.want("bytes that wait for two", shown(t, reg)["feed_bytes"] > 2*100<<10, true)
		reads.Close()
		waits.Close()
	}, func(b *fixture) { b.opt.Registry = reg })
}

func TestFeedGoesOnAfterItsStart(t *testing.T) {
	run(t, always("hello", ok), func(b *fixture) {
		ctx := context.Background()
		cut, _ := b.d.Subscribe(ctx, relay.Actor{Account: 1}, 7, "")
		start := cut.Start()
		cut.Close()
		goesOn := func() string {
			again, _ := b.d.Subscribe(ctx, relay.Actor{Account: 1}, 7, start)
			defer again.Close()
			b.want("start of a viewer that goes on", again.Start(), "")
			short, cancel := timeout(time.Second)
			defer cancel()
			items, _ := again.Next(short)
			return names(items)
		}
		b.want("nothing came", goesOn(), "")
		// While this request runs, there is no viewer, so its change reaches none.
		b.send(post)
		time.Sleep(time.Second)
		b.want("something came", goesOn(), "resync")
	})
}

func TestRoundOfTheFeedIsBoundedInBytes(t *testing.T) {
	huge := "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Big: " + strings.Repeat("x", 100<<10) + "\r\n\r\nok"
	run(t, always("hello", huge), func(b *fixture) {
		sub, _ := b.d.Subscribe(context.Background(), relay.Actor{Account: 1}, 0, "")
		defer sub.Close()
		// After the change of this request the feed pauses for 50 ms, and then reads all later changes
		// in one round. The request takes no time, so that the pause has not ended when the next
		// requests come.
		b.send(post)
		synctest.Wait()
		before := b.s.num(&b.s.heads)
		var all []<-chan relay.Outcome
		for range 60 {
			_, done := b.begin(post)
			all = append(all, done)
		}
		for _, done := range all {
			<-done
		}
		time.Sleep(200 * time.Millisecond)
		b.want("not all were read", b.s.num(&b.s.heads)-before < 50, true)
		items, _ := sub.Next(context.Background())
		b.want("told", names(items), "resync")
	})
}

func TestViewersOfAnAccountAreBounded(t *testing.T) {
	run(t, nil, func(b *fixture) {
		ctx := context.Background()
		var all []relay.Subscription
		for range 256 {
			sub, err := b.d.Subscribe(ctx, relay.Actor{Account: 1, Kind: relay.ActorUser}, 0, "")
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, sub)
		}
		_, err := b.d.Subscribe(ctx, relay.Actor{Account: 1, Kind: relay.ActorUser}, 0, "")
		b.want("one more", relay.AsError(err).Code, relay.CodeRateLimited)
		other, err := b.d.Subscribe(ctx, relay.Actor{Account: 2, Kind: relay.ActorUser}, 0, "")
		b.want("of another account", err, nil)
		other.Close()
		for _, sub := range all {
			sub.Close()
		}
	})
}

// TestFeedReadsAttemptsTogether: the feed reads changed attempts in few calls, and none for changes that lead
// to a resync item. Each event is followed by its own attempt.
func TestFeedReadsAttemptsTogether(t *testing.T) {
	run(t, nil, func(b *fixture) {
		sub, err := b.d.Subscribe(context.Background(), relay.System(), 0, "")
		must(t, err)
		defer sub.Close()
		const many = 150
		for range many {
			b.send(post)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		var changes []relay.Change
		b.s.mu.Lock()
		for _, id := range b.s.order {
			changes = append(changes, relay.Change{Kind: relay.ChangeAttempt, Alias: b.a.ID, Event: id, N: 1})
		}
		b.s.mu.Unlock()
		b.want("events", len(changes), many)
		// These are the items of the requests above.
		_, err = sub.Next(context.Background())
		must(t, err)
		before := b.s.num(&b.s.headReads)
		b.d.Publish(changes)
		items, err := sub.Next(context.Background())
		must(t, err)
		// The 300 items are more than may wait for a viewer.
		b.want("items", names(items), "resync")
		b.want("reads of what no viewer gets", b.s.num(&b.s.headReads)-before, 0)
		b.d.Publish(changes[:50])
		items, err = sub.Next(context.Background())
		must(t, err)
		b.want("items", len(items), 100)
		b.want("reads", b.s.num(&b.s.headReads)-before, 7)
		for i := 0; i < len(items); i += 2 {
			var pair [2]string
			for k := range pair {
				var value struct{ ID, EventID string }
				must(t, json.Unmarshal(items[i+k].Data, &value))
				pair[k] = value.ID + value.EventID
			}
			b.want("event and attempt", pair[0], pair[1])
		}
	})
}

// TestViewerThatCannotKeepUpReadsAgainTwiceASecond: during a flood of changes, a viewer gets at most two
// resync items a second.
func TestViewerThatCannotKeepUpReadsAgainTwiceASecond(t *testing.T) {
	run(t, nil, func(b *fixture) {
		sub, err := b.d.Subscribe(context.Background(), relay.System(), 0, "")
		must(t, err)
		defer sub.Close()
		var changes []relay.Change
		for n := range 250 {
			changes = append(changes, relay.Change{Kind: relay.ChangeAttempt, Alias: b.a.ID, Event: relay.ID{byte(n)}, N: 1})
		}
		// This is no multiple of half a second, so that the flood ends between two resync items.
		const flood = 5200 * time.Millisecond
		go func() {
			for range flood / (25 * time.Millisecond) {
				b.d.Publish(changes)
				time.Sleep(25 * time.Millisecond)
			}
		}()
		resyncs := 0
		for {
			ctx, cancel := timeout(2 * time.Second)
			items, err := sub.Next(ctx)
			cancel()
			if err != nil {
				break
			}
			b.want("items", names(items), "resync")
			resyncs++
		}
		// One comes at once, one every half second, and one for the changes after the last of these.
		b.want("resync items", resyncs, 12)
	})
}

func TestFeedEndsWithTheRelay(t *testing.T) {
	run(t, nil, func(b *fixture) {
		sub, _ := b.d.Subscribe(context.Background(), relay.System(), 0, "")
		defer sub.Close()
		b.close()
		_, err := sub.Next(context.Background())
		b.want("error", relay.AsError(err).Code, relay.CodeStopping)
	})
}

// TestResyncHasTheIDOfTheLastItemItStandsFor: after 200 requests, the only waiting item is a resync with the
// last id of the feed.
func TestResyncHasTheIDOfTheLastItemItStandsFor(t *testing.T) {
	run(t, always("hello", ok), func(b *fixture) {
		ctx := context.Background()
		sub, _ := b.d.Subscribe(ctx, relay.Actor{Account: 1}, 0, "")
		defer sub.Close()
		for range 200 {
			b.send(post)
			time.Sleep(60 * time.Millisecond)
		}
		time.Sleep(time.Second)
		items, _ := sub.Next(ctx)
		b.want("items", names(items), "resync")
		b.want("item", string(items[0].SSE), "id: "+b.d.FeedID()+"\nevent: resync\ndata: {}\n\n")
	})
}

// rightsStore is a store that calls two functions, each once: during after it has read the aliases of an actor,
// and checked after it has checked a credential.
type rightsStore struct {
	*memStore
	during, checked func()
}

func (s *rightsStore) StillValid(ctx context.Context, who relay.Actor) error {
	err := s.memStore.StillValid(ctx, who)
	if f := s.checked; f != nil {
		s.checked = nil
		f()
	}
	return err
}

func (s *rightsStore) Aliases(ctx context.Context, who relay.Actor) ([]relay.Alias, error) {
	list, err := s.memStore.Aliases(ctx, who)
	if f := s.during; f != nil {
		s.during = nil
		f()
	}
	return list, err
}

// TestRightsLostWhileSubscribing: a viewer whose account loses the alias during Subscribe gets no items, and
// ErrNotFound from Next.
func TestRightsLostWhileSubscribing(t *testing.T) {
	s := &rightsStore{}
	run(t, always("hello", ok), func(b *fixture) {
		s.during = func() {
			b.s.mu.Lock()
			sold := *b.a
			sold.Owner = 2
			b.s.aliases[7] = &sold
			b.s.mu.Unlock()
			b.d.Publish([]relay.Change{{Kind: relay.ChangeAlias, Alias: 7}})
			time.Sleep(time.Second)
		}
		sub, err := b.d.Subscribe(context.Background(), relay.Actor{Account: 1, Kind: relay.ActorUser}, 7, "")
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Close()
		time.Sleep(time.Second)
		b.send(post)
		ctx, cancel := timeout(time.Second)
		defer cancel()
		items, err := sub.Next(ctx)
		b.want("items", names(items), "")
		b.want("error", err, relay.ErrNotFound)
	}, func(b *fixture) { s.memStore, b.opt.Store = b.s, s })
}

// TestSubscribeWithRevokedCredential: Subscribe with a revoked credential returns ErrNotFound.
func TestSubscribeWithRevokedCredential(t *testing.T) {
	run(t, always("hello", ok), func(b *fixture) {
		b.s.invalid = true
		b.d.Publish([]relay.Change{{Kind: relay.ChangeAccount, Account: 1}})
		time.Sleep(time.Second)
		_, err := b.d.Subscribe(context.Background(), relay.Actor{Account: 1, Kind: relay.ActorUser}, 7, "")
		b.want("error", err, relay.ErrNotFound)
	})
}

// TestCredentialRevokedWhileSubscribing: a viewer whose credential is revoked during Subscribe gets
// ErrNotFound from Next.
func TestCredentialRevokedWhileSubscribing(t *testing.T) {
	for _, when := range []string{"behind its check", "behind its aliases"} {
		s := &rightsStore{}
		run(t, always("hello", ok), func(b *fixture) {
			revoke := func() {
				b.s.invalid = true
				b.d.Publish([]relay.Change{{Kind: relay.ChangeAccount, Account: 1}})
				time.Sleep(time.Second)
			}
			if s.checked = revoke; when == "behind its aliases" {
				s.checked, s.during = nil, revoke
			}
			sub, err := b.d.Subscribe(context.Background(), relay.Actor{Account: 1, Kind: relay.ActorUser}, 0, "")
			if err != nil {
				// Subscribe may have noticed already that the credential was revoked. Then there is no viewer.
				return
			}
			defer sub.Close()
			ctx, cancel := timeout(3 * time.Second)
			defer cancel()
			_, err = sub.Next(ctx)
			b.want(when, err, relay.ErrNotFound)
		}, func(b *fixture) { s.memStore, b.opt.Store = b.s, s })
	}
}

// TestTokenOfOneAliasSeesNoOther: a token that is limited to one alias gets only items of that alias, also
// after another alias was created or changed.
func TestTokenOfOneAliasSeesNoOther(t *testing.T) {
	run(t, nil, func(b *fixture) {
		sub, err := b.d.Subscribe(context.Background(), relay.Actor{Account: 1, Kind: relay.ActorToken, Alias: 7}, 0, "")
		b.want("error", err, nil)
		defer sub.Close()
		// The first newAlias publishes that the alias was created, the second one that it was changed.
		for range 2 {
			b.newAlias(8, 1, "other")
			time.Sleep(time.Second)
			in, _ := b.inbound(post)
			in.Alias, _ = b.d.Alias("other")
			b.want("answer", code(b.d.Capture(context.Background(), in)), "202")
			b.send(post)
			ctx, cancel := timeout(3 * time.Second)
			items, err := sub.Next(ctx)
			cancel()
			b.want("error", err, nil)
			for _, i := range items {
				b.want("alias of "+i.Name, i.Alias, int64(7))
			}
		}
	})
}

// heldStore holds reads of the heads of attempts until hold is closed.
type heldStore struct {
	*memStore
	hold chan struct{}
	held atomic.Int64
}

func (s *heldStore) AttemptHeads(ctx context.Context, alias int64, refs []relay.AttemptRef) (map[relay.AttemptRef]*relay.Attempt, error) {
	s.held.Add(1)
	defer s.held.Add(-1)
	select {
	case <-s.hold:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return s.memStore.AttemptHeads(ctx, alias, refs)
}

// TestSlowItemsOfAnAliasDelayNoOther: while the reads of one owner's aliases are held, an item of another
// owner's alias arrives within 200 ms. The items of one alias keep their order.
func TestSlowItemsOfAnAliasDelayNoOther(t *testing.T) {
	huge := "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Big: " + strings.Repeat("x", 100<<10) + "\r\n\r\nok"
	s := &heldStore{}
	run(t, always("hello", huge), func(b *fixture) {
		ctx := context.Background()
		s.hold = make(chan struct{})
		b.newAlias(8, 2, "other")
		slow, err := b.d.Subscribe(ctx, relay.Actor{Account: 1, Kind: relay.ActorUser}, 7, "")
		b.want("error", err, nil)
		defer slow.Close()
		quick, err := b.d.Subscribe(ctx, relay.Actor{Account: 2, Kind: relay.ActorUser}, 8, "")
		b.want("error", err, nil)
		defer quick.Close()
		for range 10 {
			b.send(post)
			time.Sleep(100 * time.Millisecond)
		}
		const slowAliases = 12 // aliases of one owner. The feed reads items for at most feed.accountRounds of them at once.
		for id := range int64(slowAliases) {
			b.newAlias(100+id, 1, fmt.Sprint("slow", id))
			others, err := b.d.Subscribe(ctx, relay.Actor{Account: 1, Kind: relay.ActorUser}, 100+id, "")
			b.want("error", err, nil)
			defer others.Close()
			b.d.Publish([]relay.Change{{Kind: relay.ChangeAttempt, Alias: 100 + id, Event: b.s.NewID(), N: 1}})
		}
		time.Sleep(100 * time.Millisecond)
		b.want("reads that are held", s.held.Load(), int64(4))
		in, _ := b.inbound(post)
		in.Alias, _ = b.d.Alias("other")
		b.want("answer", code(b.d.Capture(ctx, in)), "202")
		began := time.Now()
		items, err := quick.Next(ctx)
		b.want("error", err, nil)
		b.want("item", items[0].Name, "event")
		b.want("soon", time.Since(began) <= 200*time.Millisecond, true)
		close(s.hold)
		last := ""
		for ended := 0; ended < 10; {
			short, cancel := timeout(3 * time.Second)
			items, err := slow.Next(short)
			cancel()
			if err != nil {
				b.want("error", err, nil)
				break
			}
			for _, i := range items {
				if i.Name == "resync" {
					ended = 10
				}
				if i.Name == "attempt" {
					ended++
				}
				b.want("order", i.ID > last || len(i.ID) > len(last), true)
				last = i.ID
			}
		}
	}, func(b *fixture) { s.memStore, b.opt.Store = b.s, s })
}

// newAlias makes another alias in the store, and publishes the change.
func (b *fixture) newAlias(id, owner int64, name string) {
	b.s.mu.Lock()
	b.s.aliases[id] = &relay.Alias{ID: id, Name: name, Owner: owner, Settings: relay.DefaultSettings()}
	b.s.mu.Unlock()
	b.d.Publish([]relay.Change{{Kind: relay.ChangeAlias, Alias: id}})
}

// TestEventsOfAnAliasThatWasGained: a viewer of all aliases gets the events of an alias that was just
// created. It does so even if the rights cannot be read at first; if the event is published before the alias,
// the viewer gets a resync item.
func TestEventsOfAnAliasThatWasGained(t *testing.T) {
	eventsOf := func(b *fixture, sub relay.Subscription) (all []string) {
		for {
			ctx, cancel := timeout(3 * time.Second)
			items, err := sub.Next(ctx)
			cancel()
			if err != nil {
				b.want("error", err, context.DeadlineExceeded)
				return all
			}
			for _, i := range items {
				all = append(all, i.Name)
			}
		}
	}
	post := func(b *fixture, name string) {
		in, _ := b.inbound(post)
		in.Alias, _ = b.d.Alias(name)
		b.want("answer", code(b.d.Capture(context.Background(), in)), "202")
	}
	subscribe := func(b *fixture) relay.Subscription {
		sub, err := b.d.Subscribe(context.Background(), relay.Actor{Account: 1, Kind: relay.ActorUser}, 0, "")
		b.want("error", err, nil)
		return sub
	}
	t.Run("at once", func(t *testing.T) {
		run(t, nil, func(b *fixture) {
			sub := subscribe(b)
			defer sub.Close()
			b.newAlias(8, 1, "other")
			post(b, "other")
			got := eventsOf(b, sub)
			slices.Sort(got)
			b.want("items", slices.Compact(got), "[event tunnel]")
		})
	})
	t.Run("rights not read", func(t *testing.T) {
		run(t, nil, func(b *fixture) {
			sub := subscribe(b)
			defer sub.Close()
			b.s.fail("aliases", errors.New("away"))
			b.newAlias(8, 1, "other")
			post(b, "other")
			time.Sleep(500 * time.Millisecond)
			b.s.fail("aliases", nil)
			got := eventsOf(b, sub)
			slices.Sort(got)
			b.want("items", slices.Compact(got), "[event tunnel]")
		})
	})
	t.Run("event before the alias", func(t *testing.T) {
		run(t, nil, func(b *fixture) {
			sub := subscribe(b)
			defer sub.Close()
			b.d.Publish([]relay.Change{{Kind: relay.ChangeEvent, Alias: 8, Event: b.s.NewID()}})
			b.newAlias(8, 1, "other")
			got := eventsOf(b, sub)
			b.want("first item", got[:min(1, len(got))], "[resync]")
		})
	})
}

// TestRightsOfAllViewersAreReadTogether: a change of an alias makes one read of rights for 41 viewers, and
// only viewers of the new owner get later items.
func TestRightsOfAllViewersAreReadTogether(t *testing.T) {
	run(t, nil, func(b *fixture) {
		ctx := context.Background()
		subs := map[int64][]relay.Subscription{}
		for i := range 40 {
			account := int64(1 + i%4)
			sub, err := b.d.Subscribe(ctx, relay.Actor{Account: account, Kind: relay.ActorUser}, 0, "")
			b.want("error", err, nil)
			defer sub.Close()
			subs[account] = append(subs[account], sub)
		}
		one, err := b.d.Subscribe(ctx, relay.Actor{Account: 1, Kind: relay.ActorUser}, 7, "")
		b.want("error", err, nil)
		defer one.Close()
		time.Sleep(time.Second)
		before := b.s.num(&b.s.rightsReads)
		b.s.mu.Lock()
		given := *b.a
		given.Owner = 2
		b.s.aliases[7] = &given
		b.s.mu.Unlock()
		b.d.Publish([]relay.Change{{Kind: relay.ChangeAlias, Alias: 7}})
		time.Sleep(time.Second)
		b.want("reads", b.s.num(&b.s.rightsReads)-before, 1)
		_, err = one.Next(ctx)
		b.want("viewer of the alias, of its owner before", err, relay.ErrNotFound)
		b.send(post)
		for account, want := range map[int64]bool{1: false, 2: true, 3: false, 4: false} {
			for _, sub := range subs[account] {
				short, cancel := timeout(3 * time.Second)
				_, err := sub.Next(short)
				cancel()
				b.want(fmt.Sprint("items of account ", account), err == nil, want)
			}
		}
	})
}
