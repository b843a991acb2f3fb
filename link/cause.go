package link

import "log/slog"

// Cause is the reason why a connection has ended. The constants below are all causes: Conn.Close, which ends a
// connection, takes one of them, the first cause counts, and Conn.Cause returns it. The comment of each
// constant names the functions that find it, in this package, in sshgate and its inner packages, and in
// client. Wherever a constant is used, a connection ends by it.
type Cause string

// The socket has failed.
const (
	// PeerClosed: the peer has closed its TCP connection, perhaps because its process ended. Read of the socket
	// got EOF, and failure finds it when x/crypto closes the socket.
	PeerClosed Cause = "peer-closed"
	// LineFailed: a Read or Write of the socket has failed, for example by a reset, or because the kernel of the
	// peer acknowledged nothing for Options.UserTimeout (stale-close and 10 s; 3 s between nodes), or in client by
	// the deadline of the login. Found by failure, as PeerClosed.
	LineFailed Cause = "line-failed"
	// Stalled: the peer took no byte of a Write for Options.Stall (ping-interval and ping-timeout; 3 s between
	// nodes). Found by Write of the sender.
	Stalled Cause = "stalled"
)

// The peer said so, or broke a rule.
const (
	// Disconnected: the peer has sent a disconnect message, as OpenSSH does at its end, or a message that x/crypto
	// does not accept. x/crypto then closes the socket, and does not tell failure which of the two it was.
	Disconnected Cause = "disconnected"
	// ForbiddenBytes: a client has sent extended data, or data after EOF, on a channel of a session or tunnel. Found
	// by guard.
	ForbiddenBytes Cause = "forbidden-bytes"
	// UnclosedChannels: the peer has left over 1,024 channels open that this side has closed, and has closed none of
	// them for 10 s. Found by reserveOpen.
	UnclosedChannels Cause = "unclosed-channels"
	// Flooded: over 256 global requests or 256 channel opens of a client wait for their answers. Found by post and
	// by offered, which call closeFlooded.
	Flooded Cause = "flooded"
)

// The peer is silent.
const (
	// Silent: no byte of the peer arrived, although it was pinged. At the end that has accepted the connection, the
	// limit is ping-interval, ping-timeout and stale-close together (keepalive); at the end that has dialed, it is 3 s
	// between nodes, and 10 s in client (Watch).
	Silent Cause = "silent"
)

// Before the login.
const (
	// LoginFailed: the handshake or the login has failed, and no other cause was found before: no common algorithm,
	// no accepted key, a disconnect message instead of a further try (failure), or a login that names no account
	// (start).
	LoginFailed Cause = "login-failed"
	// LoginFlooded: the peer has sent over 256 KiB before its login. Found by Read of the socket.
	LoginFlooded Cause = "login-flooded"
	// LoginTimeout: the login was not complete within 10 s, or 120 s if it waits for a user, or 2 s for another node.
	// Found by timedOut.
	LoginTimeout Cause = "login-timeout"
	// LoginUndecided: the store did not answer, or the account has too many connections. hangUp ends the
	// connection without a refusal, because clients try again only then.
	LoginUndecided Cause = "login-undecided"
	// NoSlot: no slot is free for the connection: admit for a client, admitNode and Serve for another node. A
	// connection that may not even send its version line, because its source has a penalty, no slot of any kind is
	// free or this process stops, has no cause: nothing runs for it, and admit only lets the TCP connection close.
	NoSlot Cause = "no-slot"
	// Evicted: a newer connection needed the slot, or file descriptors were short (Evicted), or too many logins
	// waited for their users (EvictPrompt). A connection that has logged in keeps its slot.
	Evicted Cause = "evicted"
)

// After the login of a client.
const (
	// Idle: the connection had no forward and no session for 5 s. Found by closeIdle.
	Idle Cause = "idle"
	// Revoked: the key or the account of the login was removed. Publish hears of it, and closeRevoked ends the
	// connection.
	Revoked Cause = "revoked"
	// NoAlias: the client may use none of its aliases any more. removeForward finds it for the last forward, and
	// closeUnused ends the connection.
	NoAlias Cause = "no-alias"
	// TakenOver: a newer tunnel has taken over an alias of the connection, or a user has closed a tunnel of it.
	// closeTakenOver lets running requests end for 10 s.
	TakenOver Cause = "taken-over"
)

// This process decides.
const (
	// Moved: this node sends its clients to other nodes. admit refuses new clients, and move ends the connections
	// of the others.
	Moved Cause = "moved"
	// Stopped: this process stops. Shutdown ends all connections: those of clients after their last request, or at
	// the end of the time for it, and then those of other nodes.
	Stopped Cause = "stopped"
	// NodeEnded: the other node of the connection has ended. Found by follow.
	NodeEnded Cause = "node-ended"
	// GivenUp: this side has dialed, and waited too long or was told to stop waiting: for the login (handshake), or
	// for a channel of the API (openAPI).
	GivenUp Cause = "given-up"
	// Unneeded: this side has dialed, and has no more use for the connection: in client, the API (Lose), a tunnel
	// (run, shutDown) or an enrolment (Enrol) has ended; between nodes, the link to the other node has ended or
	// lost its control connection (run, hold), or has enough connections (addData).
	Unneeded Cause = "unneeded"
	// Panicked: a function of this process has panicked while it ran for the connection. Found by panicked.
	Panicked Cause = "panicked"
)

// logLevel returns the level at which the end of a connection is logged; ok is false for a cause that is not
// logged. Ends that a healthy peer never causes are warnings. Panicked has a line of its own with the stack.
func (c Cause) logLevel() (level slog.Level, ok bool) {
	switch c {
	case ForbiddenBytes, UnclosedChannels, Flooded:
		return slog.LevelWarn, true
	case Silent, Revoked:
		return slog.LevelInfo, true
	case LoginFlooded, LoginTimeout, Evicted, Idle:
		return slog.LevelDebug, true
	}
	return 0, false
}
