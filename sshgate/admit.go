package sshgate

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"strings"
	"time"

	gliderlabs "github.com/gliderlabs/ssh"

	"relay/admission"
	"relay/link"
	"relay/record"
	"relay/sockets"
	"relay/sshgate/login"
	"relay/sshgate/node"
)

// serve decides about a TCP connection and makes the handshake with a client. It returns nil, so gliderlabs makes no
// handshake, and its goroutine ends.
func (srv *Server) serve(_ gliderlabs.Context, accepted net.Conn) net.Conn {
	tcp := accepted.(*acceptedConn)
	if c := newConn(srv, tcp.Conn); srv.admit(c) {
		tcp.admitted = true
		c.serve()
	}
	return nil
}

// acceptedConn is a TCP connection as gliderlabs sees it, which closes it when serve returns.
type acceptedConn struct {
	net.Conn
	admitted bool // package link closes the connection at its end; only the goroutine of serve uses the field
}

// Close implements net.Conn.
func (a *acceptedConn) Close() error {
	if a.admitted {
		return nil
	}
	return a.Conn.Close()
}

// admit exchanges the version lines of a new connection and decides whether the connection gets a handshake for
// clients. ok is false if admit has refused the connection, or has served it as a connection of another node.
func (srv *Server) admit(c *conn) (ok bool) {
	srv.metrics.accepted.Add(1)
	if !c.penaltyExempt {
		if left := srv.penalties.Left(c.slot.Source); left > 0 {
			srv.reject(c, admission.ReasonPenalty, fmt.Sprintf("too many failed logins from your address; try again in %d s", seconds(left)))
			return false
		}
	}
	full, ok := srv.takeSlot(c)
	if !ok {
		return false
	}
	version := c.Sock.ExchangeVersions(serverVersion)
	c.login.SetVersion(version)
	switch ofNode := srv.o.Peers.Nodes != nil && strings.HasPrefix(version, node.ClientVersion); {
	case full != "" && !ofNode:
		c.login.SetResult(login.ResultUnavailable)
		srv.refuseFull(c, full)
		c.Close(link.NoSlot)
		return false
	case version != "":
		c.login.SetResult(login.ResultNoAttempt)
		if ofNode {
			srv.admitNode(c, full != "")
			return false
		}
	}
	if srv.moving.Load() && srv.hasOtherNodes() { // during Move, new clients must go to another node; if there is none, this node accepts them
		c.login.SetResult(login.ResultUnavailable)
		_, _ = c.Sock.Conn.Write(disconnectPacket("relay: this node takes no clients just now; connect again"))
		c.Close(link.Moved)
		return false
	}
	c.login.SetCiphers(c.Sock.PeerCiphers(kexInitWait))
	return true
}

// kexInitWait is how long admit waits for the list of the ciphers that a client supports.
const kexInitWait = 500 * time.Millisecond

// takeSlot reserves a slot for a new connection. If all slots for clients are taken, the result full is the name of the
// limit that was reached, and the connection gets a slot for nodes until its version line shows whether the peer is a
// node. ok is false if the server is stopping, or if there is no slot at all; in the second case, takeSlot has called
// reject.
func (srv *Server) takeSlot(c *conn) (full string, ok bool) {
	srv.mu.Lock()
	if srv.stopping {
		srv.mu.Unlock()
		return "", false
	}
	timeout := srv.o.HandshakeTimeout
	evicted, reason := srv.front.Acquire(&c.slot, admission.Unknown)
	if reason != "" && evicted == nil {
		if full, timeout = reason, node.LoginTime; srv.o.Peers.Nodes != nil {
			evicted, ok = srv.front.AcquireForNode(&c.slot, true)
		}
		if !ok {
			srv.mu.Unlock()
			srv.reject(c, reason, fullTexts[reason])
			return full, false
		}
	}
	srv.conns[c] = struct{}{}
	c.login.Begin(timeout)
	srv.mu.Unlock()
	evict(evicted, reason)
	return full, true
}

// fullTexts are the messages to clients that get no slot, by the limit that was reached.
var fullTexts = map[string]string{
	admission.ReasonTotal:           "too many connections; try again in a moment",
	admission.ReasonUnauthenticated: "too many connections; try again in a moment",
	admission.ReasonFiles:           "too many connections; try again in a moment",
	admission.ReasonSource:          "too many connections from your address; close some of them",
}

// evict ends a connection that has lost its slot to a newer connection; s may be nil.
func evict(s *admission.Slot, reason string) {
	if s != nil {
		s.Conn.Evicted(reason)
	}
}

// admitNode runs a connection that claims to come from another node. Only a login with the key of that node proves the
// claim. Until this login, the connection has one of the few slots for nodes, and only node.LoginTime to log in.
// hasSlot means that takeSlot has already reserved this slot.
func (srv *Server) admitNode(c *conn, hasSlot bool) {
	if !hasSlot {
		evicted, ok := srv.front.AcquireForNode(&c.slot, false)
		evict(evicted, admission.ReasonUnauthenticated)
		if !ok {
			srv.metrics.drop(admission.ReasonUnauthenticated)
			c.login.SetResult(login.ResultUnavailable)
			c.Close(link.NoSlot)
			return
		}
		c.login.Extend(node.LoginTime)
	}
	c.ofNode.Store(true)
	srv.nodes.Serve(c.Conn, c.remote.Addr(), func() { c.login.SetResult(login.ResultRefused) }, c.nodeLoggedIn)
}

// seconds rounds a duration up to whole seconds.
func seconds(d time.Duration) int { return int(math.Ceil(d.Seconds())) }

// Bounds of the time and memory that a rejected connection may cost.
const (
	maxRejecting = 64 // connections that are rejected at the same time; further ones are closed without a message
	rejectTime   = 2 * time.Second
)

// reject sends text to the client of a connection without a slot, and counts reason in the metrics. It does not close
// the connection.
func (srv *Server) reject(c *conn, reason, text string) {
	srv.sayRejected(c, reason, text, serverVersion+"\r\n")
}

// refuseFull is like reject, for a connection that has exchanged version lines.
func (srv *Server) refuseFull(c *conn, reason string) {
	srv.sayRejected(c, reason, fullTexts[reason], "")
}

// sayRejected sends a disconnect message in place of the key exchange (RFC 4253, section 11.1). OpenSSH, PuTTY
// and libraries show the text of the message. The parameter before is sent first: it is the version line of
// relayd, or "" if that line was sent already.
func (srv *Server) sayRejected(c *conn, reason, text, before string) {
	srv.metrics.drop(reason)
	srv.rejected.Do(func() {
		srv.o.Log.Warn("ssh connections rejected", "reason", reason, "from", c.remote.String(), "text", text)
	})
	srv.o.Log.Debug("ssh connection rejected", "from", c.remote.String(), "reason", reason)
	if !srv.rejecting.TryAcquire(1) {
		return
	}
	defer srv.rejecting.Release(1)
	tcp := c.Sock.Conn
	end := time.Now().Add(rejectTime)
	_ = tcp.SetWriteDeadline(end)
	if _, err := tcp.Write(append([]byte(before), disconnectPacket("relay: "+text)...)); err != nil {
		return
	}
	_ = sockets.HalfClose(tcp)
	_ = sockets.Discard(tcp, link.LingerBytes, func(int64) time.Time { return end })
}

// disconnectTooMany is SSH_DISCONNECT_TOO_MANY_CONNECTIONS (RFC 4253, section 11.1).
const disconnectTooMany = 12

// disconnectPacket encodes a disconnect message as a binary packet before the first
// key exchange (RFC 4253, section 6): no cipher, no MAC, padded to 8 bytes.
func disconnectPacket(text string) []byte {
	payload := link.Marshal(struct {
		Reason   uint32 `sshtype:"1"`
		Text     string
		Language string
	}{disconnectTooMany, text, ""})
	padding := 8 - (5+len(payload))%8
	if padding < 4 {
		padding += 8
	}
	packet := link.Marshal(struct {
		Length  uint32
		Padding byte
		Rest    []byte `ssh:"rest"`
	}{uint32(1 + len(payload) + padding), byte(padding), payload})
	return append(packet, make([]byte, padding)...)
}

// shared reports whether many clients may have this address: it is unknown, a loopback address, or that of a trusted
// proxy.
func (srv *Server) shared(a netip.Addr) bool {
	return !a.IsValid() || a.IsLoopback() || sockets.ContainsAddr(srv.o.Trusted, a)
}

// forget removes a connection that has ended. If no login succeeded, its source may get a penalty.
func (srv *Server) forget(c *conn) {
	srv.mu.Lock()
	delete(srv.conns, c)
	stopping := srv.stopping
	srv.mu.Unlock()
	// The slot is released last, because the penalty must count before the slot is free.
	defer c.slot.Release()
	loggedIn, result := c.login.Outcome()
	if loggedIn {
		return
	}
	if result == login.ResultRefused {
		srv.metrics.refused.Add(1)
	}
	srv.metrics.logins.WithLabelValues(result.Name()).Inc()
	cost := result.Penalty()
	if cost == 0 || stopping || c.penaltyExempt {
		return
	}
	if left := srv.penalties.Add(c.slot.Source, cost); left > 0 {
		srv.o.Log.Info("ssh source rejected after failed logins", "source", c.slot.Source.String(), "seconds", seconds(left))
	}
}

// retryListener retries Accept after an error. Otherwise gliderlabs, and with it relayd, would end at any
// error that net does not call temporary, such as ENOBUFS and ENOMEM.
type retryListener struct {
	net.Listener
	srv *Server
}

// Accept returns an error only when the listener is closed.
func (l *retryListener) Accept() (net.Conn, error) {
	tcp, err := sockets.Accept(l.Listener, func(err error, _ time.Duration) {
		l.srv.front.Shed(err)
		l.srv.acceptErrors.Do(func() {
			l.srv.o.Log.Warn("ssh connections cannot be accepted at the moment", "err", record.SafeTextMax(err.Error(), 300))
		})
	})
	if err != nil {
		return nil, err
	}
	return &acceptedConn{Conn: tcp}, nil
}
