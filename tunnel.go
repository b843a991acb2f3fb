package relay

import (
	"context"
	"net/netip"
	"time"
)

// TunnelState is the state of an alias' tunnel. Requests are queued in every state but
// online.
type TunnelState string

// The tunnel states.
const (
	TunnelNever   TunnelState = "never"
	TunnelOnline  TunnelState = "online"
	TunnelStale   TunnelState = "stale" // silent peer, connection kept
	TunnelOffline TunnelState = "offline"
)

// TunnelInfo describes an attached tunnel to people.
type TunnelInfo struct {
	Client     string // such as OpenSSH_9.2p1; already safe text
	Remote     netip.AddrPort
	User       string // account that attached it
	Since      time.Time
	Target     string // announced by relay up; "" for plain ssh
	HostHeader string // relay up --host-header; "" = the alias' setting
}

// RefusedForward describes a refused remote forward (ssh -R) to people.
type RefusedForward struct {
	At      time.Time // the last time
	Times   int       // how often it was refused, at least 1
	Bind    string    // bind address that ssh -R has sent; safe text
	Code    string
	Message string // why, and what to do; safe text
	Remote  netip.AddrPort
}

// Fill is the result of one read of a Channel.
type Fill struct {
	N   int
	Err error
}

// AliasRemoved is the reason of Tunnel.Close when the alias was removed.
const AliasRemoved = "the alias was removed"

// Channel is one connection to a local server. A read is started with Fill and can be
// abandoned, because x/crypto has no way to interrupt one.
type Channel interface {
	// Write sends p. (0, err) proves that no byte was sent; a nil error does not prove
	// that the peer has received p. Write may block while the peer's window is full;
	// Close unblocks it.
	Write(p []byte) (int, error)
	// Fill starts one read into buf. At most one may be outstanding. Who abandons an
	// outstanding Fill must not use buf again.
	Fill(buf []byte)
	// Filled delivers the result of the outstanding Fill. io.EOF means that the local
	// server has closed its side, io.ErrUnexpectedEOF that it broke the connection
	// off while the tunnel is alive, any other error that the tunnel is lost.
	Filled() <-chan Fill
	// Refusal is for an io.EOF before any byte. It waits up to wait for the peer's
	// CLOSE and returns what the client has said about a failed local dial
	// (local-refused, local-unresolvable, ...), or nil.
	Refusal(wait time.Duration) *Error
	// CloseWrite half-closes towards the local server; for upgraded connections only.
	CloseWrite() error
	// Close closes both directions. It never blocks and may be called more than once.
	Close() error
}

// Tunnel is a connection through which channels to a local server are opened. Package
// sshgate implements it. All methods are safe for concurrent use.
type Tunnel interface {
	// Open opens a channel with origin as its originator address. Errors are *Error
	// local-refused, local-unresolvable or overloaded, else ErrNotSent. Open returns
	// when ctx ends; a channel that is confirmed later is closed.
	Open(ctx context.Context, origin netip.AddrPort) (Channel, error)
	// Heard returns the time since the last byte from the peer.
	Heard() time.Duration
	// LazyDial tells whether the peer dials its local server at the first byte of a
	// channel (relay up). Then spare channels may be kept open. With plain ssh, idle
	// channels may be reused instead.
	LazyDial() bool
	// Info describes the tunnel.
	Info() TunnelInfo
	// Close ends the tunnel and writes reason to the sessions of its connection.
	// In-flight channels may finish within 10 s. With AliasRemoved, other aliases of
	// the same connection stay attached.
	Close(reason string)
}

// Attachment is the registration of a tunnel for an alias, returned by Attach. Its
// methods are safe for concurrent use, and do nothing after Detach or once a newer
// tunnel has taken over.
type Attachment interface {
	// Stale marks the peer as silent: no new request is sent to it, and in-flight
	// exchanges fail with tunnel-lost.
	Stale()
	// Online marks a stale tunnel as alive again; queued deliveries continue.
	Online()
	// Detach ends the registration. In-flight exchanges may finish on their channels
	// if graceful is set, and fail with tunnel-lost otherwise.
	Detach(graceful bool)
}

// Names of the global and channel requests between relayd and the bundled client.
// They are sent with want_reply false, except BrokeOffRequest, and marshalled as RFC
// 4251 section 5 types, in the order of the struct fields below.
const (
	HelloRequest      = "hello@relay"       // global, before tcpip-forward
	TargetRequest     = "target@relay"      // global, before its tcpip-forward
	DialFailedRequest = "dial-failed@relay" // channel, then CLOSE
	// BrokeOffRequest says that the local server of a channel broke its connection off.
	// It has no payload. The client sends CLOSE after any reply to it, so that the
	// server knows the meaning of the end before it sees the end.
	BrokeOffRequest = "broke-off@relay"
)

// HelloLazyDial is the bit of Hello.Flags of a client that dials its local server at
// the first byte of a channel.
const HelloLazyDial = 1 << 0

// Hello is the payload of HelloRequest.
type Hello struct {
	Protocol uint32 // 1
	Flags    uint32
	Version  string
}

// Target is the payload of TargetRequest: what the client will dial for the
// forward with that bind string, and its --host-header ("" = not given).
type Target struct {
	Bind       string
	URL        string
	HostHeader string
}

// DialFailed is the payload of DialFailedRequest: not one byte reached a local
// server. Reason is as in RFC 4254 section 5.1; Class is one of refused,
// unresolvable, timeout, other; Text is at most 256 bytes.
type DialFailed struct {
	Reason uint32
	Class  string
	Text   string
}
