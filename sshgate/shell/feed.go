package shell

import (
	"relay"
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
