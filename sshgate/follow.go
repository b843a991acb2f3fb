package sshgate

import (
	"context"
	"strings"
	"time"

	"relay"
	"relay/record"
)

const (
	// firstForward is how long a session waits for a forward: the two come
	// through different goroutines of x/crypto.
	firstForward = 300 * time.Millisecond
	// noMore is how long it then waits for the next one.
	noMore = 25 * time.Millisecond
	// feedRetry is how long a session without the live feed waits until it asks for it.
	feedRetry = 5 * time.Second
)

// follow runs a live session: it stays until the peer leaves, says so, or the
// connection is given up. The end of stdin is not the end of the session.
func (s *session) follow() int {
	out := newOutputQueue()
	v := &plainView{s: s, out: out, shown: map[string]bool{}}
	defer s.print(out, v.dropped)()
	online, refused := s.c.subscribeNotices(s)
	feed := s.subscribe() // before anything is awaited: a request may come with the alias
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
func (s *session) print(out *outputQueue, dropped func(n int) string) (end func()) {
	written, to := make(chan struct{}), s.stdout()
	s.spawn("session output", func() {
		defer close(written)
		out.write(s.c.ctx, to, dropped)
	})
	return func() {
		out.end()
		limit := time.NewTimer(endTimeout)
		defer limit.Stop()
		select {
		case <-written:
		case <-limit.C:
			s.stuck = true
		}
	}
}

// live is the loop of a live session. A feed that ends, because the store could not
// answer, does not end it.
func (s *session) live(v *plainView, feed <-chan []relay.FeedItem) int {
	log := newFollower(s)
	var retry <-chan time.Time
	for {
		if feed == nil && retry == nil {
			retry = time.After(s.c.srv.feedRetry)
		}
		select {
		case <-s.notices.wake:
			for _, n := range s.notices.take() {
				v.tell(n)
			}
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
			if retry, feed = nil, s.subscribe(); feed != nil {
				v.missed()
			}
		case key := <-s.keys:
			switch {
			case key == "q":
				return exitOK
			case strings.EqualFold(key, "r"):
				s.release(v)
			}
		case <-s.ctx.Done():
			for _, n := range s.notices.take() {
				v.tell(n)
			}
			return s.exit(exitOK)
		}
	}
}

// gather waits for the forwards that were asked for together with the session. rest is
// what else happened meanwhile.
func (s *session) gather(online, refused []notice) (on, off, rest []notice) {
	last := time.NewTimer(s.c.srv.firstForward)
	defer last.Stop()
	quiet := time.NewTimer(noMore)
	defer quiet.Stop()
	for {
		select {
		case <-s.notices.wake:
			for _, n := range s.notices.take() {
				switch n.kind {
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
			if len(online)+len(refused) > 0 && !s.c.requests.busy() {
				return online, refused, rest
			}
			quiet.Reset(noMore)
		case <-last.C:
			if !s.c.requests.busy() {
				return online, refused, rest
			}
			last.Reset(noMore)
		case <-s.ctx.Done():
			return online, refused, rest
		}
	}
}

// subscribe opens the live feed; nil when it cannot be had.
func (s *session) subscribe() <-chan []relay.FeedItem {
	return s.feed(0)
}

// feed gives the live feed of one alias, or with 0 of all, until the session
// ends. It is closed when the feed ends before.
func (s *session) feed(alias int64) <-chan []relay.FeedItem {
	sub, err := s.c.srv.o.Attach.Subscribe(s.ctx, s.c.who, alias, "")
	if err != nil {
		s.c.log.Warn("subscribe to the live feed", "err", err)
		return nil
	}
	items := make(chan []relay.FeedItem)
	if !s.c.spawn(func() { pump(s.ctx, sub, items) }) {
		sub.Close()
		return nil
	}
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
func (s *session) release(v *plainView) {
	for _, f := range s.c.attached() {
		n, err := s.releaseOne(f.alias.Name)
		v.released(record.SafeText(f.alias.Name), n, err)
	}
}

func (s *session) releaseOne(name string) (int, error) {
	if err := s.c.srv.o.Limits.Replay(s.c.who); err != nil {
		return 0, err
	}
	ctx, cancel := s.c.ask()
	defer cancel()
	return s.c.srv.o.Replay.Release(ctx, s.c.who, name)
}

// status asks for the state of one alias.
func (s *session) status(a *relay.Alias) (relay.AliasStatus, bool) {
	ctx, cancel := s.c.ask()
	defer cancel()
	st, err := s.c.srv.o.Attach.Status(ctx, []relay.Alias{*a})
	if err != nil || len(st) != 1 {
		return relay.AliasStatus{}, false
	}
	return st[0], true
}
