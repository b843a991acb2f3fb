package shell

import (
	"context"
	"strings"
	"time"

	"relay"
	"relay/record"
)

const (
	// FirstForward is the default of Config.FirstForward.
	FirstForward = 300 * time.Millisecond
	// noMore is how long a session then waits for the next one.
	noMore = 25 * time.Millisecond
	// FeedRetry is the default of Config.FeedRetry.
	FeedRetry = 5 * time.Second
)

// follow runs a live session: it stays until the peer leaves, says so, or the
// connection is given up. The end of stdin is not the end of the session.
func (s *Shell) follow() int {
	out := newOutputQueue()
	v := &plainView{s: s, out: out, shown: map[string]bool{}}
	defer s.print(out, v.dropped)()
	online, refused := s.Session.SubscribeNotices()
	feed := s.feed(0) // before anything is awaited: a request may come with the alias
	online, refused, rest := s.gather(online, refused)
	if exit, ok := v.begin(online, refused); !ok {
		return exit
	}
	for _, n := range rest {
		v.tell(n)
	}
	return s.live(v, feed)
}

// print writes lines to stdout until what it gives is called, which waits a moment for
// a peer that does not read.
func (s *Shell) print(out *outputQueue, dropped func(n int) string) (end func()) {
	written := make(chan struct{})
	s.Session.Go("session output", func() {
		defer close(written)
		out.write(s.Stdout, dropped)
	})
	return func() {
		out.end()
		limit := time.NewTimer(endTimeout)
		defer limit.Stop()
		select {
		case <-written:
		case <-limit.C:
			s.OutputStuck = true
		}
	}
}

// live is the loop of a live session. A feed that ends, because the store could not
// answer, does not end it.
func (s *Shell) live(v *plainView, feed <-chan []relay.FeedItem) int {
	log := newFollower(s)
	var retry <-chan time.Time
	for {
		if feed == nil && retry == nil {
			retry = time.After(s.FeedRetry)
		}
		select {
		case <-s.Notices.Wake:
			v.tellAll()
		case items, ok := <-feed:
			if !ok {
				feed = nil
				continue
			}
			requests, missed := log.take(items)
			for _, r := range requests {
				v.request(r)
			}
			if missed {
				v.missed()
			}
		case <-retry:
			if retry, feed = nil, s.feed(0); feed != nil {
				v.missed()
			}
		case key := <-s.Keys:
			switch {
			case key == "q":
				return ExitOK
			case strings.EqualFold(key, "r"):
				s.release(v)
			}
		case <-s.Ctx.Done():
			v.tellAll()
			return s.Session.Exit(ExitOK)
		}
	}
}

// gather waits for the forwards that were asked for together with the session. rest is
// what else happened meanwhile.
func (s *Shell) gather(online, refused []Notice) (on, off, rest []Notice) {
	last := time.NewTimer(s.FirstForward)
	defer last.Stop()
	quiet := time.NewTimer(noMore)
	defer quiet.Stop()
	for {
		select {
		case <-s.Notices.Wake:
			for _, n := range s.Notices.all() {
				switch n.Kind {
				case relay.NoticeOnline:
					online = append(online, n)
				case relay.NoticeRefused:
					refused = append(refused, n)
				default:
					rest = append(rest, n)
				}
			}
			quiet.Reset(noMore)
		case <-quiet.C:
			if len(online)+len(refused) > 0 && !s.Session.RequestsPending() {
				return online, refused, rest
			}
			quiet.Reset(noMore)
		case <-last.C:
			if !s.Session.RequestsPending() {
				return online, refused, rest
			}
			last.Reset(noMore)
		case <-s.Ctx.Done():
			return online, refused, rest
		}
	}
}

// feed returns the live feed of one alias, or with 0 of all, until the session ends; nil when
// it cannot be had. The channel is closed when the feed ends before.
func (s *Shell) feed(alias int64) <-chan []relay.FeedItem {
	sub, err := s.Tunnels.Subscribe(s.Ctx, s.Who, alias, "")
	if err != nil {
		s.Log.Warn("subscribe to the live feed", "err", err)
		return nil
	}
	items := make(chan []relay.FeedItem)
	s.Session.Go("live feed", func() { pump(s.Ctx, sub, items) })
	return items
}

func pump(ctx context.Context, sub relay.Subscription, items chan<- []relay.FeedItem) {
	defer close(items)
	defer sub.Close()
	for {
		batch, err := sub.Next(ctx)
		if err != nil {
			return
		}
		select {
		case items <- batch:
		case <-ctx.Done():
			return
		}
	}
}

// release delivers what was queued while the aliases of this connection were offline.
func (s *Shell) release(v *plainView) {
	for _, alias := range s.Session.Attached() {
		n, err := s.releaseOne(alias)
		v.released(record.SafeText(alias), n, err)
	}
}

func (s *Shell) releaseOne(name string) (int, error) {
	if err := s.Limits.Replay(s.Who); err != nil {
		return 0, err
	}
	ctx, cancel := s.ask()
	defer cancel()
	return s.Replay.Release(ctx, s.Who, name)
}

// status asks for the state of one alias.
func (s *Shell) status(a *relay.Alias) (relay.AliasStatus, bool) {
	ctx, cancel := s.ask()
	defer cancel()
	st, err := s.Tunnels.Status(ctx, []relay.Alias{*a})
	if err != nil || len(st) != 1 {
		return relay.AliasStatus{}, false
	}
	return st[0], true
}
