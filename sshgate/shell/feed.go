package shell

import "relay"

// feed returns the live feed of all aliases of the account until the session ends; nil if the store does not answer.
// The channel is closed if the feed ends before the session.
func (s *Shell) feed() <-chan []relay.FeedItem {
	sub, err := s.Tunnels.Subscribe(s.Ctx, s.Who, 0, "")
	if err != nil {
		s.Log.Warn("cannot subscribe to the live feed", "err", err)
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
