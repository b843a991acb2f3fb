package sshgate

import (
	"sync"

	"golang.org/x/crypto/ssh"

	"relay"
)

// notice is one thing that happened to a connection. Texts are safe to print.
type notice struct {
	kind    string // a kind of relay.Notice
	alias   string
	target  string       // online: what relay up announced
	of      *relay.Alias // online
	code    string       // refused
	message string
}

// maxRefused is how many refusals are kept for a session that comes later.
const maxRefused = 32

// notify gives a notice to every session, and keeps refusals for later ones.
func (c *conn) notify(n notice) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notifyLocked(n)
}

// notifyLocked is notify with mu held.
func (c *conn) notifyLocked(n notice) {
	if n.kind == relay.NoticeRefused {
		c.srv.metrics.forwardRefused(n.code)
		if len(c.refusals) < maxRefused {
			c.refusals = append(c.refusals, n)
		}
	}
	for s := range c.sessions {
		s.notices.put(n)
	}
	if c.clientNotices != nil {
		c.clientNotices.put(n)
	}
}

// noticeSender sends the notices of a connection to the bundled client.
type noticeSender struct {
	notices
	sent chan struct{} // closed when the last notice has been sent
}

// startNotices makes the bundled client hear notices from now on. mu is held.
func (c *conn) startNotices() *noticeSender {
	c.clientNotices = &noticeSender{notices: notices{opened: true, wake: make(chan struct{}, 1)}, sent: make(chan struct{})}
	return c.clientNotices
}

// sendNotices sends notices in their order until the connection ends, or until all are sent
// after end. It has its own goroutine because a write to a stalled peer blocks.
func (c *conn) sendNotices(q *noticeSender) {
	defer close(q.sent)
	for {
		waiting, ended := q.takeAll()
		for _, n := range waiting {
			m := relay.Notice{Kind: n.kind, Alias: n.alias, Code: n.code, Message: n.message}
			switch {
			case n.kind == relay.NoticeStopping:
				m.RetryAfterMs = retryAfterMs
			case n.kind == relay.NoticeOnline && c.srv.hasOtherNodes():
				m.RetryAfterMs = lossSpreadMs
			}
			if _, _, err := c.sc.SendRequest(relay.NoticeRequest, false, ssh.Marshal(m)); err != nil {
				return
			}
		}
		if ended {
			return
		}
		select {
		case <-q.wake:
		case <-c.ctx.Done():
			return
		}
	}
}

// retryAfterMs is how long a client waits before it connects again to a relay that stops.
const retryAfterMs = 250

// lossSpreadMs is the time over which the clients of a lost node come to the others.
const lossSpreadMs = 2000

// subscribeNotices makes s hear notices from now on and gives what it missed: what is
// online and what was refused.
func (c *conn) subscribeNotices(s *session) (online, refused []notice) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.forwards {
		if f.att != nil { // the others are told when they are
			online = append(online, f.online())
		}
	}
	s.notices.open()
	return online, append(refused, c.refusals...)
}

// maxNotices is how many notices wait for a session at most.
const maxNotices = 256

// notices wait for one session.
type notices struct {
	mu      sync.Mutex
	opened  bool
	ended   bool
	waiting []notice
	wake    chan struct{}
}

// open lets notices in.
func (q *notices) open() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.opened = true
}

// put adds a notice and never blocks.
func (q *notices) put(n notice) {
	q.mu.Lock()
	if q.opened && len(q.waiting) < maxNotices {
		q.waiting = append(q.waiting, n)
	}
	q.mu.Unlock()
	q.notify()
}

func (q *notices) notify() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take gives all that wait.
func (q *notices) take() []notice {
	all, _ := q.takeAll()
	return all
}

// takeAll gives all that wait, and whether they are the last ones.
func (q *notices) takeAll() (all []notice, ended bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	all, q.waiting = q.waiting, nil
	return all, q.ended
}

// end says that no more notices follow.
func (q *notices) end() {
	q.mu.Lock()
	q.ended, q.opened = true, false
	q.mu.Unlock()
	q.notify()
}
