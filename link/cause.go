package link

import "log/slog"

// Cause is the reason why a connection has ended. The constants below are all causes: Conn.Close, which ends a
// connection, takes one of them, and Conn.Cause returns it. The first cause counts, except that a breach of rules and
// Revoked replace one that was only decided (see Conn.Close). The comment of each constant names the functions that end
// a connection by it, each with its file. Elsewhere a cause is only compared.
//
// Two ends have no cause: this process dies, or the TCP connection of a client is closed before its first line was
// read, because its source has a penalty, no slot of any kind is free or this process stops: then admit
// (sshgate/admit.go) lets gliderlabs close it, and nothing runs for it.
type Cause string

// The socket has failed.
const (
	// PeerClosed: the peer has closed its TCP connection, perhaps because its process ended: Read (link/socket.go)
	// got EOF.
	PeerClosed Cause = "peer-closed"
	// LineFailed: Read or Write (link/socket.go) has failed, for example by a reset, or because the kernel of the
	// peer acknowledged nothing for Options.UserTimeout: stale-close and 10 s for a connection that was accepted, 3 s
	// for one to another node; or in client by the deadline of the login.
	LineFailed Cause = "line-failed"
	// Stalled: the peer took no byte of a Write (link/socket.go) for Options.Stall: ping-interval and ping-timeout
	// for a connection that was accepted, 3 s for one to another node.
	Stalled Cause = "stalled"
)

// The peer said so, or broke a rule.
const (
	// Disconnected: the peer has sent a disconnect message, as OpenSSH does at its end, or a message that x/crypto
	// does not accept. x/crypto then closes the socket, and does not tell failure (link/conn.go) which of the two it
	// was.
	Disconnected Cause = "disconnected"
	// ForbiddenBytes: a client has sent extended data, or data after EOF, on a channel of a session or tunnel: guard
	// (link/guard.go).
	ForbiddenBytes Cause = "forbidden-bytes"
	// UnclosedChannels: the peer has left over 1,024 channels open that this side has closed, and has closed none of
	// them for 10 s: reserveOpen (link/open.go).
	UnclosedChannels Cause = "unclosed-channels"
	// Flooded: over 256 global requests and starts of sessions of a client wait for their answers, as post finds, or over
	// 256 channel opens, as offered of sshgate finds. Both call closeFlooded (sshgate/end.go).
	Flooded Cause = "flooded"
)

// The peer is silent.
const (
	// Silent: no byte of the peer arrived, although it was pinged. For a connection that was accepted, keepalive
	// (link/keepalive.go) waits for ping-interval and ping-timeout, or less if an open of a channel shows the silence
	// earlier, and then for stale-close. For one that was dialed, Watch (link/keepalive.go) waits for 3 s between
	// nodes, and 10 s in client.
	Silent Cause = "silent"
)

// Before the login.
const (
	// LoginFailed: the handshake or the login has failed, and no other cause was found before: no common algorithm,
	// no accepted key, a disconnect message instead of a further try, or in client a host key that is not accepted:
	// failure (link/conn.go). Or the login names no account: start (sshgate/conn.go). At the end that has dialed, also
	// a disconnect message that comes together with the success of the login.
	LoginFailed Cause = "login-failed"
	// LoginFlooded: the peer has sent over 256 KiB before its login: Read (link/socket.go).
	LoginFlooded Cause = "login-flooded"
	// LoginTimeout: the login was not complete within 10 s, or 120 s if it waits for a user, or 2 s for another node:
	// timedOut (sshgate/login/login.go).
	LoginTimeout Cause = "login-timeout"
	// LoginUndecided: the store did not answer, or the account has too many connections. hangUp
	// (sshgate/login/attempt.go) ends the connection without a refusal, because clients try again only then.
	LoginUndecided Cause = "login-undecided"
	// NoSlot: no slot is free for the connection: admit and admitNode (sshgate/admit.go), and Serve
	// (sshgate/node/serve.go) for another node.
	NoSlot Cause = "no-slot"
	// Evicted: a newer connection needed the slot, or file descriptors were short: Evicted (sshgate/end.go). Or too
	// many logins waited for their users, and this one for a token: EvictPrompt (sshgate/login/login.go). A
	// connection that has logged in keeps its slot.
	Evicted Cause = "evicted"
)

// After the login of a client.
const (
	// Idle: the connection had no forward and no session for 5 s: closeIdle (sshgate/end.go).
	Idle Cause = "idle"
	// Revoked: the key or the account of the login was removed. The revalidator hears of it and calls closeRevoked
	// (sshgate/end.go).
	Revoked Cause = "revoked"
	// NoAlias: the client may use none of its aliases any more. removeForward removes its last forward and calls
	// closeUnused (sshgate/end.go), for the revalidator, or for forward.Close after the alias was removed.
	NoAlias Cause = "no-alias"
	// TakenOver: a newer tunnel has taken over an alias of the connection, or a user has closed a tunnel of it; the
	// log line says which. Package registry or another node decides this, and forward.Close calls closeTakenOver
	// (sshgate/end.go), which lets running requests end for 10 s.
	TakenOver Cause = "taken-over"
)

// This process decides.
const (
	// Moved: this node sends its clients to other nodes. admit (sshgate/admit.go) refuses new clients, and move
	// (sshgate/move.go) ends the connections of the others.
	Moved Cause = "moved"
	// Stopped: this process stops. Shutdown (sshgate/server.go) ends all connections: those of clients after their
	// last request, or at the end of the time for it, and then those of other nodes.
	Stopped Cause = "stopped"
	// NodeEnded: the other node of the connection has ended: follow (sshgate/node/node.go).
	NodeEnded Cause = "node-ended"
	// GivenUp: this side has dialed, and waited too long or was told to stop waiting: for the login, handshake
	// (link/handshake.go), or for a channel of the API, openAPI (client/sshlink.go).
	GivenUp Cause = "given-up"
	// Unneeded: this side has dialed, and has no more use for the connection. In client, the API (Lose,
	// client/sshlink.go), a tunnel (run and shutDown, client/tunnel.go) or an enrolment (Enrol, client/dialer.go) has
	// ended. Between nodes, the link to the other node has ended or lost its control connection, or has enough
	// connections (run, hold and addData, sshgate/node/links.go).
	Unneeded Cause = "unneeded"
	// Panicked: a function of this process has panicked while it ran for the connection: panicked (link/conn.go).
	Panicked Cause = "panicked"
)

// Level returns the level at which the end of a connection without a tunnel is logged, after its login. Ends that a
// healthy peer never causes are warnings. Before the login, HandshakeFailed (sshgate/login/refused.go) logs
// the end of a connection of a client, and package node that of a connection of another node.
func (c Cause) Level() slog.Level {
	switch c {
	case ForbiddenBytes, UnclosedChannels, Flooded:
		return slog.LevelWarn
	case Silent, Revoked, NoAlias:
		return slog.LevelInfo
	}
	return slog.LevelDebug
}
