package relay

import (
	"context"
	"net/netip"
	"time"
)

// TunnelState is the state of an alias' tunnel. Requests are queued in every state except online.
type TunnelState string

// The tunnel states.
const (
	TunnelNever   TunnelState = "never"
	TunnelOnline  TunnelState = "online"
	TunnelStale   TunnelState = "stale" // the peer is silent; the connection is kept
	TunnelOffline TunnelState = "offline"
	// TunnelClosing is the state of a TunnelRecord whose end was requested. The node of the tunnel
	// closes it.
	TunnelClosing TunnelState = "closing"
)

// TunnelInfo describes an attached tunnel for display.
type TunnelInfo struct {
	ID         string // random, new with each attachment
	Account    int64  // account that attached the tunnel
	Client     string // such as OpenSSH_9.2p1; unsafe characters are removed
	Remote     netip.AddrPort
	User       string // name of the account that attached the tunnel
	Since      time.Time
	Target     string // local URL that relay up has reported; "" for plain ssh
	HostHeader string // value of relay up --host-header; "" = the alias' setting applies
}

// TunnelRecord is the tunnel of an alias as stored. All nodes read it to find the node that has the
// tunnel. Times are by the clock of the node that attached the tunnel.
type TunnelRecord struct {
	TunnelInfo
	Alias     int64
	AliasName string // filled in by the method Tunnels only
	Owner     int64  // account that owns the alias, filled in by the registry
	Node      string // id of the node that has the tunnel, filled in by the store
	NodeName  string // filled in by the method Tunnels only; "" = the node is unknown
	LazyDial  bool
	State     TunnelState // online, stale or closing
	Requests  int64       // requests sent through the tunnel; the number is at most about a second old
}

// TunnelOp is the kind of change of a TunnelWrite.
type TunnelOp uint8

// The operations on tunnels.
const (
	TunnelAttach TunnelOp = iota // the tunnel replaces any other tunnel of its alias
	TunnelKeep                   // the record is written again, unless the alias has another tunnel
	TunnelDetach                 // the record is deleted, unless the alias has another tunnel
)

// TunnelWrite is one change of the tunnel of an alias by the node that has it.
type TunnelWrite struct {
	TunnelRecord
	Op TunnelOp
	At time.Time // time at which the tunnel was attached or lost, or changed its state
}

// RefusedForward describes a refused remote forward (ssh -R) for display.
type RefusedForward struct {
	At      time.Time // time of the last refusal
	Times   int       // number of refusals, at least 1
	Bind    string    // bind address that the SSH client sent; unsafe characters are removed
	Code    string
	Message string // reason and remedy; unsafe characters are removed
	Remote  netip.AddrPort
}

// AliasRemoved is the reason of Tunnel.Close if the alias was removed. TakenOver is the reason if a
// newer tunnel has the alias.
const (
	AliasRemoved = "the alias was removed"
	TakenOver    = "taken over by a newer connection"
)

// Tunnel is a connection through which channels to a local server are opened. Package
// sshgate implements it. All methods are safe for concurrent use.
type Tunnel interface {
	// Open opens a channel with origin as its originator address. Errors are an *Error with code
	// local-refused, local-unresolvable or overloaded, or else ErrNotSent. Open returns when ctx ends;
	// a channel that is confirmed later is closed.
	Open(ctx context.Context, origin netip.AddrPort) (Conn, error)
	// Heard returns the time since the last byte from the peer.
	Heard() time.Duration
	// LazyDial reports whether the peer dials its local server only at the first byte of a channel, as
	// relay up does. Channels may then be opened before a request needs them. With plain ssh,
	// idle channels may be reused instead.
	LazyDial() bool
	// Info describes the tunnel.
	Info() TunnelInfo
	// Close ends the tunnel and writes reason to the SSH sessions of its connection. Channels with a
	// request in progress get 10 s to finish. With AliasRemoved, the other aliases of the same
	// connection stay attached.
	Close(reason string)
}

// RemoteTunnel is a tunnel of another node. Package sshgate implements it. Open fails with
// ErrTunnelMoved if the other node does not have the tunnel (any more). It fails with ErrTunnelSilent
// if the client of the tunnel does not answer there, and with ErrTunnelSlow if the client is alive but
// does not answer in time.
type RemoteTunnel interface {
	Tunnel
	// Node returns the id of the other node.
	Node() string
	// Wake asks the other node to deliver from the queue of the alias. It does not wait, and returns
	// false if the other node cannot be reached.
	Wake() bool
}

// Attachment is the registration of a tunnel for an alias, returned by Attach. Its methods are safe for
// concurrent use. After Detach, or once a newer tunnel has taken over, the methods do not affect the alias any
// more, only exchanges that still run on this tunnel.
type Attachment interface {
	// Stale marks the peer as silent: no new request is sent to it, and exchanges in progress fail
	// with tunnel-lost.
	Stale()
	// Online marks a stale tunnel as alive again; queued deliveries continue.
	Online()
	// Acquire takes a slot of the tunnel for a request that another node passes on, and returns the function
	// that releases the slot. While all slots are in use it waits, until done is closed.
	Acquire(done <-chan struct{}) (release func(), err *Error)
	// Detach ends the registration. Exchanges in progress may finish on their channels if graceful is
	// set, and fail with tunnel-lost otherwise.
	Detach(graceful bool)
}

// Names of the global and channel requests between relayd and the bundled client. They are sent with
// want_reply false, except BrokeOffRequest, and encoded as RFC 4251 section 5 types, in the order of
// the struct fields below.
const (
	HelloRequest      = "hello@relay"       // global request of the client, sent before the first tcpip-forward
	TargetRequest     = "target@relay"      // global request of the client, sent before the tcpip-forward that it describes
	NoticeRequest     = "notice@relay"      // global request of relayd, sent after hello@relay
	DialFailedRequest = "dial-failed@relay" // channel request of the client, sent before CLOSE
	// BrokeOffRequest reports that the local server of a channel aborted its
	// connection. It has no payload. The client sends CLOSE only after the reply, so
	// that relayd knows why the channel ends before it ends.
	BrokeOffRequest = "broke-off@relay"
)

// Bits of Hello.Flags.
const (
	// HelloLazyDial: the client dials its local server only at the first byte of a channel.
	HelloLazyDial = 1 << iota
	// HelloMoves: the client connects again, to another node, when it gets NoticeMoving.
	HelloMoves
)

// Hello is the payload of HelloRequest.
type Hello struct {
	Protocol uint32 // always 1
	Flags    uint32
	Version  string
}

// Target is the payload of TargetRequest: the URL that the client will dial for the forward with that
// bind string, and the value of its --host-header ("" = not given).
type Target struct {
	Bind       string
	URL        string
	HostHeader string
}

// Notice is the payload of NoticeRequest. It reports one event of the connection or of one of its
// forwards. A client ignores unknown kinds.
type Notice struct {
	Kind    string // one of the constants below
	Alias   string // "" = the whole connection
	Code    string // error code of the API, if the notice reports a refusal
	Message string // safe to print
	// RetryAfterMs in NoticeStopping is the time that the client waits before it connects again. In NoticeOnline
	// it is the upper bound of a random wait after a later loss of the connection, because all clients of a lost
	// node would otherwise connect again at the same time.
	RetryAfterMs uint32
}

// Kinds of Notice.
const (
	NoticeOnline     = "online"
	NoticeRefused    = "refused"
	NoticeStale      = "stale"
	NoticeOffline    = "offline"
	NoticeSuperseded = "superseded"
	NoticeStopping   = "stopping"
	// NoticeMoving: this node of the relay accepts no more clients. The client connects once more with the
	// same address, which leads to another node. The client keeps the old connection until the relay ends it,
	// so that its requests continue and the alias is never offline.
	NoticeMoving  = "moving"
	NoticeRevoked = "revoked" // the right to the alias or, without an alias, the login was revoked
)

// DialFailed is the payload of DialFailedRequest. It proves that no byte of the channel
// reached a local server. Reason is as in RFC 4254 section 5.1; Class is one of refused,
// unresolvable, timeout, other; Text is at most 256 bytes.
type DialFailed struct {
	Reason uint32
	Class  string
	Text   string
}
