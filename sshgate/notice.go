package sshgate

import (
	"sync"

	"relay"
)

// noticeKind is what a session can be told about its connection.
type noticeKind string

const (
	noticeOnline     noticeKind = "online"
	noticeRefused    noticeKind = "refused"
	noticeStale      noticeKind = "stale"
	noticeOffline    noticeKind = "offline"
	noticeSuperseded noticeKind = "superseded"
	noticeStopping   noticeKind = "stopping"
	noticeRevoked    noticeKind = "revoked" // with an alias: of that one only
)

// notice is one thing that happened to a connection. Texts are safe to print.
type notice struct {
	kind    noticeKind
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
	if n.kind == noticeRefused {
		c.srv.metrics.forwardRefused(n.code)
		if len(c.refusals) < maxRefused {
			c.refusals = append(c.refusals, n)
		}
	}
	for s := range c.sessions {
		s.notices.put(n)
	}
}

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
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take gives all that wait.
func (q *notices) take() []notice {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := q.waiting
	q.waiting = nil
	return all
}
