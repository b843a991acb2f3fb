package shell

import (
	"encoding/json"

	"relay"
	"relay/record"
)

// feed returns the live feed of one alias, or with 0 of all, until the session ends; nil when
// it cannot be had. The channel is closed when the feed ends before.
func (s *Shell) feed(alias int64) <-chan []relay.FeedItem {
	sub, err := s.Tunnels.Subscribe(s.Ctx, s.Who, alias, "")
	if err != nil {
		s.Log.Warn("subscribe to the live feed", "err", err)
		return nil
	}
	items := make(chan []relay.FeedItem)
	s.Session.Go("live feed", func() {
		defer close(items)
		defer sub.Close()
		for {
			batch, err := sub.Next(s.Ctx)
			if err != nil {
				return
			}
			select {
			case items <- batch:
			case <-s.Ctx.Done():
				return
			}
		}
	})
	return items
}

// memory is how many printed attempts a follower remembers.
const memory = 512

// follower picks the attempts that have ended out of feed items. It is used by one goroutine.
type follower struct {
	wants   func(alias int64) bool
	printed map[printedKey]bool
	told    bool // that something is missing, and nothing has ended since
}

type printedKey struct {
	event   string
	attempt int
}

func newFollower(wants func(alias int64) bool) *follower {
	return &follower{wants: wants, printed: map[printedKey]bool{}}
}

// take reads a batch. missed tells that something is missing before it, once until something
// has ended: without Postgres every change of another node says so.
func (f *follower) take(items []relay.FeedItem) (ended []record.AttemptMessage, missed bool) {
	for _, item := range items {
		switch {
		case item.Name == "resync":
			missed = true
		case item.Name == "attempt" && f.wants(item.Alias):
			var m record.AttemptMessage
			if json.Unmarshal(item.Data, &m) != nil || m.Event == nil || m.Attempt == nil || !hasEnded(m.Attempt.State) {
				continue
			}
			key := printedKey{m.EventID, m.Attempt.Number}
			if f.printed[key] {
				continue
			}
			if len(f.printed) >= memory {
				clear(f.printed)
			}
			f.printed[key] = true
			ended = append(ended, m)
		}
	}
	again := f.told && len(ended) == 0
	f.told = missed || again
	return ended, missed && !again
}

// hasEnded tells whether an attempt in this state is shown.
func hasEnded(state string) bool {
	return state == relay.StateDelivered || state == relay.StateFailed || state == relay.StateInterrupted
}
