package sshgate

import (
	"context"
	"slices"
	"sync"

	"relay"
	"relay/link"
	"relay/sshgate/shell"
)

// maxRefused is the largest number of refusals that are stored for later sessions.
const maxRefused = 32

// notices holds the messages for the sessions of a connection and for relay up.
type notices struct {
	mu        sync.Mutex
	refusals  []shell.Notice
	listeners map[*shell.Queue[shell.Notice]]bool
	client    *noticeSender // sends notices to relay up; nil until hello creates it
}

// subscribe returns the refusals that were stored until now, and a queue that gets all later notices until ctx
// ends.
func (l *notices) subscribe(ctx context.Context) (refused []shell.Notice, further *shell.Queue[shell.Notice]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.listeners == nil {
		l.listeners = map[*shell.Queue[shell.Notice]]bool{}
	}
	further = shell.NewQueue[shell.Notice]()
	l.listeners[further] = true
	context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.listeners, further)
	})
	return slices.Clone(l.refusals), further
}

// put gives a notice to all subscribers and to relay up, and stores a refusal for later subscribers.
func (l *notices) put(n shell.Notice) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n.Kind == relay.NoticeRefused && len(l.refusals) < maxRefused {
		l.refusals = append(l.refusals, n)
	}
	for further := range l.listeners {
		further.Put(n, 0)
	}
	if l.client != nil {
		l.client.Put(n, 0)
	}
}

// sender returns the sender of notices to relay up, and whether it was created by this call.
func (l *notices) sender() (q *noticeSender, isNew bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.client == nil {
		l.client, isNew = &noticeSender{Queue: shell.NewQueue[shell.Notice](), sent: make(chan struct{})}, true
	}
	return l.client, isNew
}

// toClient returns the sender of notices to relay up; nil for any other client.
func (l *notices) toClient() *noticeSender {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.client
}

// SubscribeNotices implements shell.Conn.
func (c *conn) SubscribeNotices(ctx context.Context) (online, refused []shell.Notice, further *shell.Queue[shell.Notice]) {
	c.forwards.attached(func(list []*forward) {
		for _, f := range list {
			online = append(online, f.online())
		}
		refused, further = c.notices.subscribe(ctx)
	})
	return online, refused, further
}

// notify gives a notice to every session and to relay up. Later sessions get the refusals, too.
func (c *conn) notify(n shell.Notice) {
	if n.Kind == relay.NoticeRefused {
		c.srv.metrics.forwardRefused(n.Code)
	}
	c.notices.put(n)
}

// noticeSender is the queue of notices of a connection to relay up.
type noticeSender struct {
	*shell.Queue[shell.Notice]
	sent chan struct{} // closed when the last notice has been sent
}

// sendNotices sends notices in order until the connection ends. After q.End, it sends the remaining notices and
// returns. It has its own goroutine, because a write to a stalled client blocks.
func (c *conn) sendNotices(q *noticeSender) {
	defer close(q.sent)
	for {
		waiting, _, ended := q.Take()
		for _, n := range waiting {
			m := relay.Notice{Kind: n.Kind, Alias: n.Alias, Code: n.Code, Message: n.Message}
			switch {
			case n.Kind == relay.NoticeStopping:
				m.RetryAfterMs = retryAfterMs
			case n.Kind == relay.NoticeOnline && c.srv.hasOtherNodes():
				m.RetryAfterMs = lossSpreadMs
			}
			if _, _, err := c.SendRequest(c.Context(), relay.NoticeRequest, false, link.Marshal(m)); err != nil {
				return
			}
		}
		if ended {
			return
		}
		select {
		case <-q.Wake:
		case <-c.Context().Done():
			return
		}
	}
}

// retryAfterMs is the time in milliseconds after which the clients of a stopping relay connect again.
const retryAfterMs = 250

// lossSpreadMs is the time in milliseconds over which the clients of a lost node spread their logins
// at the other nodes.
const lossSpreadMs = 2000
