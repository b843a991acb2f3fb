package sshgate

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	gliderlabs "github.com/gliderlabs/ssh"
	"golang.org/x/crypto/ssh"

	"relay"
	"relay/record"
	"relay/sshgate/admission"
)

// admit decides about a new TCP connection before the first byte is exchanged.
// gliderlabs closes it when the result is nil.
func (srv *Server) admit(ctx gliderlabs.Context, tcp net.Conn) net.Conn {
	c := newConn(srv, tcp)
	srv.metrics.accepted.Add(1)
	if !c.penaltyExempt {
		if left := srv.penalties.Left(c.slot.Source); left > 0 {
			srv.reject(c, admission.ReasonPenalty, fmt.Sprintf("too many failed logins from your address; try again in %d s", seconds(left)))
			return nil
		}
	}
	srv.mu.Lock()
	if srv.stopping {
		srv.mu.Unlock()
		return nil
	}
	evicted, reason := srv.limiter.Acquire(&c.slot)
	if reason != "" && evicted == nil {
		srv.mu.Unlock()
		text := "too many connections; try again in a moment"
		if reason == admission.ReasonSource {
			text = "too many connections from your address; close some of them"
		}
		srv.reject(c, reason, text)
		return nil
	}
	srv.conns[c] = struct{}{}
	ctx.SetValue(connKey{}, c)
	c.loginDeadline = time.Now().Add(srv.o.HandshakeTimeout)
	c.handshake = time.AfterFunc(srv.o.HandshakeTimeout, c.loginTimedOut)
	srv.mu.Unlock()
	if evicted != nil {
		srv.metrics.drop(reason)
		srv.o.Log.Debug("ssh connection evicted", "remote", evicted.Conn.remote.String(), "reason", reason)
		evicted.Conn.setResult(resultUnavailable)
		_ = evicted.Conn.sock.Close()
	}
	// Here and not in config: gliderlabs holds a lock there that every login needs.
	c.version = c.sock.exchange(serverVersion)
	if c.version != "" {
		c.setResult(resultNoAttempt)
	}
	if srv.o.Peers.Nodes != nil && strings.HasPrefix(c.version, peerVersion) {
		c.peer.Store(true)
		srv.peers.servePeer(c)
		return nil
	}
	if srv.moving.Load() && srv.hasOtherNodes() { // they are taken if none serves
		c.setResult(resultUnavailable)
		_, _ = c.sock.Conn.Write(disconnectPacket("relay: this node takes no clients just now; connect again"))
		_ = c.sock.Close()
		return nil
	}
	return c.sock
}

// seconds rounds up to whole seconds.
func seconds(d time.Duration) int { return int(math.Ceil(d.Seconds())) }

// Bounds of the time and memory that a rejected connection may cost.
const (
	maxRejecting = 64 // at the same time; others are closed at once
	rejectTime   = 2 * time.Second
)

// reject tells the client why its connection is closed, by a disconnect message in
// place of the key exchange (RFC 4253, section 11.1): OpenSSH, PuTTY and libraries
// show its text. The caller closes the connection.
func (srv *Server) reject(c *conn, reason, text string) {
	defer c.cancel()
	srv.metrics.drop(reason)
	srv.rejected.Do(func() {
		srv.o.Log.Warn("ssh connections rejected", "reason", reason, "remote", c.remote.String(), "text", text)
	})
	srv.o.Log.Debug("ssh connection rejected", "remote", c.remote.String(), "reason", reason)
	if !srv.rejecting.TryAcquire(1) {
		return
	}
	defer srv.rejecting.Release(1)
	tcp := c.sock.Conn
	end := time.Now().Add(rejectTime)
	_ = tcp.SetWriteDeadline(end)
	if _, err := tcp.Write(append([]byte(serverVersion+"\r\n"), disconnectPacket("relay: "+text)...)); err != nil {
		return
	}
	_ = relay.HalfClose(tcp)
	_ = relay.Discard(tcp, lingerBytes, func(int64) time.Time { return end })
}

// disconnectTooMany is SSH_DISCONNECT_TOO_MANY_CONNECTIONS (RFC 4253, section 11.1).
const disconnectTooMany = 12

// disconnectPacket encodes a disconnect message as a binary packet before the first
// key exchange (RFC 4253, section 6): no cipher, no MAC, padded to 8 bytes.
func disconnectPacket(text string) []byte {
	payload := ssh.Marshal(struct {
		Reason   uint32 `sshtype:"1"`
		Text     string
		Language string
	}{disconnectTooMany, text, ""})
	padding := 8 - (5+len(payload))%8
	if padding < 4 {
		padding += 8
	}
	packet := ssh.Marshal(struct {
		Length  uint32
		Padding byte
		Rest    []byte `ssh:"rest"`
	}{uint32(1 + len(payload) + padding), byte(padding), payload})
	return append(packet, make([]byte, padding)...)
}

// shared tells whether an address stands for many people, for the machine itself, or for
// another node.
func (srv *Server) shared(a netip.Addr) bool {
	return !a.IsValid() || a.IsLoopback() || relay.ContainsAddr(srv.o.Trusted, a) ||
		srv.o.Peers.Nodes != nil && slices.ContainsFunc(srv.o.Peers.Nodes.Peers(), func(n relay.Node) bool {
			at, err := netip.ParseAddrPort(n.PeerAddr)
			return err == nil && at.Addr().Unmap() == a.Unmap()
		})
}

// forget removes a connection that has ended. Its source gets a penalty where the
// connection led to no login.
func (srv *Server) forget(c *conn) {
	srv.mu.Lock()
	delete(srv.conns, c)
	stopping := srv.stopping
	srv.mu.Unlock()
	defer srv.limiter.Release(&c.slot) // last: the penalty is there once the connection is not counted any more
	c.mu.Lock()
	in, result := c.loggedIn, c.result
	c.mu.Unlock()
	if in {
		return
	}
	if result == resultRefused {
		srv.metrics.refused.Add(1)
	}
	srv.metrics.logins.WithLabelValues(loginResults[result].name).Inc()
	cost := loginResults[result].penalty
	if cost == 0 || stopping || c.penaltyExempt {
		return
	}
	if left := srv.penalties.Add(c.slot.Source, cost); left > 0 {
		srv.o.Log.Info("ssh source kept out after failed logins", "source", c.slot.Source.String(), "seconds", seconds(left))
	}
}

// retryListener survives errors of Accept: gliderlabs would end with any error that
// net does not call temporary, such as ENOBUFS and ENOMEM, and relayd with it.
type retryListener struct {
	net.Listener
	srv *Server
}

// Accept returns an error only when the listener is closed.
func (l *retryListener) Accept() (net.Conn, error) {
	return relay.Accept(l.Listener, func(err error, _ time.Duration) {
		l.srv.acceptErrors.Do(func() {
			l.srv.o.Log.Warn("ssh connections cannot be accepted for the moment", "err", record.SafeTextMax(err.Error(), 300))
		})
	})
}
