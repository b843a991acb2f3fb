package relay

import (
	"context"
	"net/netip"
	"time"
)

// TunnelState is the state of an alias' tunnel. Everything but online queues.
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

// RefusedForward is a remote forward that was asked for and not let in, for people.
type RefusedForward struct {
	At      time.Time // the last time
	Times   int       // how often it was asked for, at least 1
	Bind    string    // what ssh -R was given as address; safe text
	Code    string
	Message string // why, and what to do; safe text
	Remote  netip.AddrPort
}

// Fill is the result of one read of a Channel.
type Fill struct {
	N   int
	Err error
}

// AliasRemoved is the reason of Tunnel.Close for an alias that is no more.
const AliasRemoved = "the alias was removed"

// Channel is one connection to a local server. Reads are asked for and can be
// abandoned: x/crypto gives no way to interrupt one.
type Channel interface {
	// Write sends p. (0, err) proves that not one byte left us; a nil error
	// proves nothing. It may block while the peer's window is full; Close
	// releases it.
	Write(p []byte) (int, error)
	// Fill asks for one read into buf. At most one may be outstanding. Whoever
	// walks away from an outstanding Fill gives buf up for good.
	Fill(buf []byte)
	// Filled delivers the result of the outstanding Fill. After io.EOF the
	// local server has ended its side in order; io.ErrUnexpectedEOF is one that
	// broke off behind a tunnel that lives, any other error a tunnel that broke.
	Filled() <-chan Fill
	// Refusal is asked after io.EOF without a byte: it waits up to wait for the
	// peer's CLOSE and gives what the client said about a failed local dial
	// (local-refused, local-unresolvable, ...), or nil.
	Refusal(wait time.Duration) *Error
	// CloseWrite half-closes towards the local server; for upgraded connections only.
	CloseWrite() error
	// Close ends both directions. It never blocks; more than one call is fine.
	Close() error
}

// Tunnel is a live way to a local server. Implemented by sshgate, and in memory
// by tests. All methods are safe for concurrent use.
type Tunnel interface {
	// Open makes a channel; origin is told to the peer as the originator. Errors:
	// *Error of local-refused, local-unresolvable or overloaded, else ErrNotSent.
	// It gives up when ctx ends; a channel that arrives later is closed.
	Open(ctx context.Context, origin netip.AddrPort) (Channel, error)
	// Heard is the time since the last byte of the peer.
	Heard() time.Duration
	// LazyDial: the peer dials its local server at the first byte (relay up), so
	// spare channels may be kept open; with plain ssh idle channels may be reused.
	LazyDial() bool
	// Info describes the tunnel.
	Info() TunnelInfo
	// Close drops the tunnel because of reason, which sessions of the connection
	// are told; in-flight channels may finish within 10 s. For AliasRemoved other
	// aliases of the same connection stay.
	Close(reason string)
}

// Attachment is a tunnel's hold on an alias, given by Attach. Methods are safe for
// concurrent use and no-ops after Detach or once a newer tunnel took over.
type Attachment interface {
	// Stale marks the peer as silent: nothing new is sent, in-flight exchanges fail
	// as tunnel-lost.
	Stale()
	// Online marks a stale tunnel as alive again; the queue goes on.
	Online()
	// Detach ends the hold; in-flight exchanges fail as tunnel-lost unless
	// graceful is set, then they may finish on their channels.
	Detach(graceful bool)
}

// Names of the global and channel requests between relayd and the bundled client.
// They are sent with want_reply false, but for BrokeOffRequest, and marshalled as
// RFC 4251 section 5 types, in the order of the struct fields below.
const (
	HelloRequest      = "hello@relay"       // global, before tcpip-forward
	TargetRequest     = "target@relay"      // global, before its tcpip-forward
	DialFailedRequest = "dial-failed@relay" // channel, then CLOSE
	// BrokeOffRequest says of a channel that the local server did not end its answer in
	// order. It has no payload; CLOSE follows its reply, whatever that is, so that nobody
	// can see the end before its meaning.
	BrokeOffRequest = "broke-off@relay"
)

// HelloLazyDial is the bit of Hello.Flags by which a client says that it dials its
// local server at the first byte of a channel.
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
