package sshgate

import (
	"context"
	"time"

	"relay"
	"relay/sshgate/shell"
)

// closeReason says why a connection is drained and closed.
type closeReason struct {
	notice   shell.Notice
	exit     int  // of its sessions
	graceful bool // requests on open channels may end first
}

func stoppingNotice() shell.Notice {
	return shell.Notice{Kind: relay.NoticeStopping, Message: shell.StoppingText}
}

// stoppedReason ends a connection whose sessions were already told that the relay stops.
func stoppedReason() closeReason { return closeReason{exit: shell.ExitUnreachable, graceful: true} }

func revokedReason(message string) closeReason {
	return closeReason{notice: shell.Notice{Kind: relay.NoticeRevoked, Message: message}, exit: shell.ExitRefused}
}

// drain ends the connection: it notifies the sessions, starts no new requests, lets
// those on open channels end until ctx does, then closes the socket. Only the first
// call does something.
func (c *conn) drain(ctx context.Context, why closeReason) {
	c.mu.Lock()
	if c.draining || c.dead {
		c.mu.Unlock()
		return
	}
	c.draining = true
	c.drained = make(chan struct{})
	c.checkDrained()
	forwards := c.forwards
	c.forwards = nil
	c.mu.Unlock()

	if why.notice != (shell.Notice{}) {
		c.notify(why.notice)
	}
	for _, f := range forwards {
		f.detach(why.graceful)
	}
	if why.graceful {
		select {
		case <-c.drained:
		case <-ctx.Done():
		case <-c.ctx.Done():
		}
	}
	c.endSessions(why.exit)
	_ = c.sock.Close()
}

// checkDrained closes drained when no channel is in use. mu is held. An open that
// was under way can still add one after that; it is cut like any late request.
func (c *conn) checkDrained() {
	if !c.draining || c.open > 0 {
		return
	}
	select {
	case <-c.drained:
	default:
		close(c.drained)
	}
}

// endSessions asks all sessions to end and waits a moment for their last output and for the
// last notices to the bundled client.
func (c *conn) endSessions(exit int) {
	c.mu.Lock()
	sessions := make([]*session, 0, len(c.sessions))
	for s := range c.sessions {
		sessions = append(sessions, s)
	}
	toClient := c.clientNotices
	c.mu.Unlock()
	limit := time.NewTimer(time.Second)
	defer limit.Stop()
	for _, s := range sessions {
		s.Stop(exit)
	}
	if toClient != nil {
		toClient.End()
		select {
		case <-toClient.sent:
		case <-limit.C:
			return
		}
	}
	for _, s := range sessions {
		select {
		case <-s.over:
		case <-c.ctx.Done():
			return
		case <-limit.C:
			return
		}
	}
}
