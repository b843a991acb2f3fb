package delivery_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"relay"
)

func names(items []relay.FeedItem) string {
	var out []string
	for _, i := range items {
		out = append(out, i.Name)
	}
	return strings.Join(out, " ")
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
		time.Sleep(200 * time.Millisecond) // one round or two
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
		b.want("resumed", names(got), "attempt tunnel")
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

func TestFeedEndsWithTheRelay(t *testing.T) {
	run(t, nil, func(b *fixture) {
		sub, _ := b.d.Subscribe(context.Background(), relay.System(), 0, "")
		defer sub.Close()
		b.close()
		_, err := sub.Next(context.Background())
		b.want("error", relay.AsError(err).Code, relay.CodeStopping)
	})
}
