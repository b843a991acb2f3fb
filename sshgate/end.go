package sshgate

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"relay"
	"relay/cli"
	"relay/link"
	"relay/record"
	"relay/sshgate/login"
	"relay/sshgate/shell"
)

// This file ends the connections of clients: Evicted before their login, the other functions after it. link.Cause
// lists all that ends a connection. After Conn.Close, link calls logEnd (only after a login), closed, detachAll and Server.forget
// (admit.go), in this order.
// For a connection that admit.go refuses without a slot, none of these functions is called: gliderlabs only
// closes its TCP connection.

// closeReason is the reason for draining and closing a connection, and the exit code of its sessions.
type closeReason struct {
	cause    link.Cause
	details  []any // for the log line
	notice   shell.Notice
	exit     int  // exit code of the sessions
	graceful bool // whether requests on open channels may end first
}

// stopped is the reason for connections whose sessions were already told that the relay is stopping.
var stopped = closeReason{cause: link.Stopped, exit: cli.ExitUnreachable, graceful: true}

// drain ends the connection: it notifies the sessions, starts no new requests, and closes the socket. If why.graceful
// is set, it waits before the close until the requests on open channels have ended, or ctx ends. It returns false, and
// does nothing, if the connection has ended or an earlier call of drain is ending it.
func (c *conn) drain(ctx context.Context, why closeReason) bool {
	if c.Context().Err() != nil || !c.draining.CompareAndSwap(false, true) {
		return false
	}
	c.Decide(why.cause, why.details...)
	forwards := c.forwards.close()
	c.sessions.Refuse()
	drained := c.Drain()

	if why.notice != (shell.Notice{}) {
		c.notify(why.notice)
	}
	for _, f := range forwards {
		f.detach(why.graceful)
	}
	if why.graceful {
		select {
		case <-drained:
		case <-ctx.Done():
		case <-c.Context().Done():
		}
	}
	c.endSessions(why.exit)
	c.Close(why.cause)
	return true
}

// endSessions asks all sessions to end. It waits, for a second at most, for their last output and for the last
// notices to relay up.
func (c *conn) endSessions(exit int) {
	ends := c.sessions.Stop(exit)
	if q := c.notices.toClient(); q != nil {
		q.End()
		ends = append(ends, q.sent)
	}
	limit := time.After(time.Second)
	for _, ended := range ends {
		select {
		case <-ended:
		case <-c.Context().Done():
			return
		case <-limit:
			return
		}
	}
}

// logEnd logs the end of the connection after its login. The end of a tunnel has a line at level info, because its
// user asks for the reason, unless all connections end together: then the lines of the stop say so.
func (c *conn) logEnd(cause link.Cause, details []any) {
	level := cause.Level()
	if aliases := c.forwards.aliases(); len(aliases) > 0 {
		if cause != link.Stopped && cause != link.Moved {
			level = max(level, slog.LevelInfo)
		}
		details = append(details, "aliases", strings.Join(aliases, ","))
	}
	c.LogEnd(level, cause, append(details, "age", c.Sock.Age().Round(time.Second))...)
}

// closed is called once, when either side has closed the socket.
func (c *conn) closed() {
	c.login.End()
	c.usage.end()
}

// detachAll detaches all aliases of the connection.
func (c *conn) detachAll() {
	for _, f := range c.forwards.close() {
		f.detach(false)
	}
}

// closeIdle closes the connection if it has no forward and no session, and no request uses it.
func (c *conn) closeIdle() {
	busy := c.requests.waiting.Load() > 0 || c.InUse() > 0 // a request may still use a channel of a cancelled forward
	if !c.draining.Load() && !c.moving.Load() && c.usage.none(busy) {
		c.Sock.Linger() // otherwise, if the client is answering a ping, it would read a TCP reset instead of EOF
		c.Close(link.Idle)
	}
}

// Evicted implements admission.Conn.
func (c *conn) Evicted(reason string) {
	c.srv.metrics.drop(reason)
	c.login.SetResult(login.ResultUnavailable)
	c.Close(link.Evicted, "reason", reason)
}

// closeFlooded closes a connection whose peer sends many messages without reading the answers.
func (c *conn) closeFlooded(unanswered string) {
	c.Close(link.Flooded, "unanswered", unanswered)
}

// closeRevoked closes a connection whose key or account was removed. If the connection already drains, it no longer
// waits for the requests on its channels.
func (c *conn) closeRevoked() {
	why := closeReason{cause: link.Revoked, notice: shell.Notice{Kind: relay.NoticeRevoked, Message: shell.KeyRemovedText}, exit: cli.ExitRefused}
	c.Go("revoked login", func() {
		if !c.drain(c.Context(), why) {
			c.Decide(why.cause)
			c.endSessions(why.exit)
			c.Close(why.cause)
		}
	})
}

// closeTakenOver drains the connection after a newer tunnel has taken over one of its aliases, or a user has closed a
// tunnel of it.
func (c *conn) closeTakenOver(alias, reason string) {
	ctx, cancel := context.WithTimeout(c.Context(), c.srv.o.TakeoverDrain)
	defer cancel()
	c.drain(ctx, closeReason{
		cause:    link.TakenOver,
		details:  []any{"alias", alias, "reason", record.SafeText(reason)},
		notice:   shell.Notice{Kind: relay.NoticeSuperseded, Alias: alias, Message: record.SafeText(reason)},
		exit:     cli.ExitTaken,
		graceful: true,
	})
}

// closeUnused drains the connection after the client has lost the right to its last alias.
func (c *conn) closeUnused() {
	c.drain(c.Context(), closeReason{cause: link.NoAlias, exit: cli.ExitTaken})
}
