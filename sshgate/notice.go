package sshgate

import (
	"golang.org/x/crypto/ssh"

	"relay"
	"relay/sshgate/shell"
)

// maxRefused is how many refusals are kept for a session that comes later.
const maxRefused = 32

// notify gives a notice to every session, and keeps refusals for later ones.
func (c *conn) notify(n shell.Notice) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notifyLocked(n)
}

// notifyLocked is notify with mu held.
func (c *conn) notifyLocked(n shell.Notice) {
	if n.Kind == relay.NoticeRefused {
		c.srv.metrics.forwardRefused(n.Code)
		if len(c.refusals) < maxRefused {
			c.refusals = append(c.refusals, n)
		}
	}
	for s := range c.sessions {
		s.notices.Put(n)
	}
	if c.clientNotices != nil {
		c.clientNotices.Put(n)
	}
}

// noticeSender sends the notices of a connection to the bundled client.
type noticeSender struct {
	*shell.Notices
	sent chan struct{} // closed when the last notice has been sent
}

// startNotices makes the bundled client hear notices from now on. mu is held.
func (c *conn) startNotices() *noticeSender {
	c.clientNotices = &noticeSender{Notices: shell.NewNotices(true), sent: make(chan struct{})}
	return c.clientNotices
}

// sendNotices sends notices in their order until the connection ends, or until all are sent
// after end. It has its own goroutine because a write to a stalled peer blocks.
func (c *conn) sendNotices(q *noticeSender) {
	defer close(q.sent)
	for {
		waiting, ended := q.Take()
		for _, n := range waiting {
			m := relay.Notice{Kind: n.Kind, Alias: n.Alias, Code: n.Code, Message: n.Message}
			switch {
			case n.Kind == relay.NoticeStopping:
				m.RetryAfterMs = retryAfterMs
			case n.Kind == relay.NoticeOnline && c.srv.hasOtherNodes():
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
		case <-q.Wake:
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
func (c *conn) subscribeNotices(s *session) (online, refused []shell.Notice) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.forwards {
		if f.att != nil { // the others are told when they are
			online = append(online, f.online())
		}
	}
	s.notices.Open()
	return online, append(refused, c.refusals...)
}
