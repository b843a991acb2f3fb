package link

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"runtime/debug"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"
)

// Options configure a connection. Workers is required.
type Options struct {
	Workers *Workers
	Log     *slog.Logger // nil = no log
	// Stall is the time after which a connection ends if its peer reads nothing. UserTimeout is the
	// time after which it ends if the peer's kernel acknowledges nothing. 0 = no limit.
	Stall, UserTimeout time.Duration
	Keepalive          Keepalive
	// Unbounded: the peer may leave any number of channels unanswered or open.
	Unbounded bool

	// Flood is called before a connection is closed because its peer has sent too much before the
	// login; nil = there is no such limit.
	Flood func()
	// Lost is called once, when a read of the socket has failed, so that no more bytes will arrive.
	Lost func()
	// LogEnd logs the end of a connection that has logged in, with details, which are attributes as those of
	// slog.Logger.Info. nil = the end is logged at the level of its cause.
	LogEnd func(cause Cause, details []any)
	// Closed is called once, when either side has closed the connection, and must not block or write to it: the
	// goroutine that calls it may be the writer of the socket. Then Ended
	// is called, which may block. At last Gone is called, when no goroutine runs for the connection,
	// except calls into x/crypto that do not return.
	Closed, Ended, Gone func()
}

// Conn is one SSH connection, from before its handshake until its last goroutine has ended. Its methods
// may be called concurrently; the comments of those that need the handshake say so. Cause lists what ends
// a connection.
type Conn struct {
	Sock   *Socket
	o      Options
	work   *Workers
	logger atomic.Pointer[slog.Logger]
	ctx    context.Context // ends together with the connection
	cancel context.CancelFunc
	done   chan struct{} // closed when no goroutine runs for the connection; see Done
	calls  calls

	ssh      ssh.Conn     // the connection of x/crypto, set by Use
	shaking  atomic.Value // x/crypto's connection during the handshake of a server; endReader needs it
	channels channels
	pings    atomic.Int64       // pings that were requested since the last one was answered
	barriers chan chan struct{} // serve closes each of these Go channels when it has handled all SSH channels and requests that arrived earlier
	pulse    pulse
}

// New makes a connection over a TCP connection, and closes the latter when the connection ends.
func New(tcp net.Conn, o Options) *Conn {
	nothing := func() {}
	for _, f := range []*func(){&o.Lost, &o.Closed, &o.Ended, &o.Gone, &o.Keepalive.Stale, &o.Keepalive.Back} {
		if *f == nil {
			*f = nothing
		}
	}
	logger := cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	o.Log = nil // SetLog replaces it, and a logger with its attributes takes 300 bytes of each connection
	c := &Conn{Sock: newSocket(tcp, o.Stall, o.UserTimeout), o: o, work: o.Workers, done: make(chan struct{}), barriers: make(chan chan struct{}), calls: calls{left: &o.Workers.left}}
	if c.o.LogEnd == nil {
		c.o.LogEnd = func(cause Cause, details []any) { c.LogEnd(cause.Level(), cause, details...) }
	}
	c.logger.Store(logger)
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.Sock.onHeard, c.Sock.onLost, c.Sock.onClose, c.Sock.onFlood = c.noteByte, o.Lost, c.end, o.Flood
	return c
}

// Use gives c the connection of x/crypto after a successful handshake over the socket of c. Use is
// called before any method that needs the handshake.
func (c *Conn) Use(conn ssh.Conn) {
	c.ssh = conn
	c.Sock.LoggedIn()
	c.startKeepalive()
}

// Context returns a context that ends at once when the connection ends.
func (c *Conn) Context() context.Context { return c.ctx }

// Done returns a channel that is closed after the end of the connection, when Options.Ended has
// returned and no goroutine runs for the connection any more, at the latest EndTime after that return.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Close ends the connection by a cause, and does not wait. Only the first call has an effect. The log line of the
// end has details, which are attributes as those of slog.Logger.Info. Who tells the peer of the end before Close calls
// Decide first, because the peer may then end the connection itself. A breach of rules and Revoked replace a cause that
// was decided.
func (c *Conn) Close(cause Cause, details ...any) { c.Sock.Close(cause, details...) }

// Decide records a cause and details for the end of the connection, whichever side ends it. Only the first call has an effect.
func (c *Conn) Decide(cause Cause, details ...any) { c.Sock.Decide(cause, details...) }

// CloseSent closes the connection like Close, but returns once all written bytes were sent, at the
// latest after flushTime.
func (c *Conn) CloseSent(cause Cause) {
	c.Sock.Close(cause)
	c.Sock.out.Wait()
}

// Cause returns why the connection has ended, or was decided to end; "" = neither.
func (c *Conn) Cause() Cause {
	if why := c.Sock.why.Load(); why != nil {
		return why.cause
	}
	return ""
}

// library is the socket as x/crypto sees it.
type library struct {
	*Socket
	conn *Conn
}

// Close implements net.Conn. x/crypto calls it when the handshake has failed, and after the end of a connection.
func (l library) Close() error {
	l.conn.Close(l.conn.failure())
	return nil
}

// failure returns the cause of an end for which x/crypto, and no other code, has found a reason.
func (c *Conn) failure() Cause {
	if broken, ok := c.Sock.broken.Load().(Cause); ok {
		return broken
	}
	if !c.Sock.loggedIn.Load() {
		return LoginFailed
	}
	return Disconnected
}

// ServerVersion returns the version line of the server. It needs the handshake.
func (c *Conn) ServerVersion() string { return string(c.ssh.ServerVersion()) }

// SetLog replaces the logger of the connection.
func (c *Conn) SetLog(l *slog.Logger) { c.logger.Store(l) }

// Log returns the logger of the connection.
func (c *Conn) Log() *slog.Logger { return c.logger.Load() }

// Go runs f in a goroutine. The end of the connection waits for it, but only for a limited time. A
// panic ends the connection, and is logged with the text in where. Go returns false, without running f,
// if the connection has ended.
func (c *Conn) Go(where string, f func()) bool {
	if !c.calls.begin() {
		return false
	}
	c.work.Go(func() {
		defer c.calls.done()
		defer c.Recovered(where)
		f()
	})
	return true
}

// Run does the same as Go, but runs f in the goroutine of its caller.
func (c *Conn) Run(where string, f func()) bool {
	if !c.calls.begin() {
		return false
	}
	defer c.calls.done()
	defer c.Recovered(where)
	f()
	return true
}

// Recovered is deferred in each function that runs for the connection. It turns a panic into the end
// of this connection only.
func (c *Conn) Recovered(where string) {
	if v := recover(); v != nil {
		c.panicked(where, v)
	}
}

func (c *Conn) panicked(where string, v any) {
	c.Log().Error("panic in an ssh connection", "where", where, "panic", v, "stack", string(debug.Stack()))
	c.Close(Panicked)
}

// end ends the work for the connection. It is called once, when the socket was closed from either
// side.
func (c *Conn) end(cause Cause, details []any) {
	if c.Sock.loggedIn.Load() {
		c.o.LogEnd(cause, details)
	}
	c.calls.end()
	// The context ends before stopKeepalive is called, because resetKeepalive starts the timer again
	// until the context has ended.
	c.cancel()
	c.stopKeepalive()
	c.o.Closed()
	go func() {
		defer close(c.done)
		defer c.o.Gone()
		defer func() { time.AfterFunc(endReaderAfter, c.endReader) }()
		defer c.Recovered("end")
		c.o.Ended()
		c.calls.wait(EndTime)
	}()
}

// LogEnd writes the log line of the end of the connection.
func (c *Conn) LogEnd(level slog.Level, cause Cause, details ...any) {
	c.Log().With("cause", cause).Log(c.ctx, level, "ssh connection ended", details...)
}

// endReaderAfter is the time between the end of a connection and the call of endReader. If the mux of x/crypto
// still runs at the end of the connection, it has read the remaining packets by then.
const endReaderAfter = EndTime

// endReader ends the reader of x/crypto, and so frees the memory that x/crypto still holds for the connection.
func (c *Conn) endReader() {
	if conn := c.shaking.Load(); conn != nil {
		endReader(conn)
	} else if c.ssh != nil {
		endReader(c.ssh)
	}
}

// SendRequest sends a global request. If wantReply is set, it waits for the reply. It needs the handshake.
func (c *Conn) SendRequest(ctx context.Context, kind string, wantReply bool, payload []byte) (ok bool, reply []byte, err error) {
	type result struct {
		ok    bool
		reply []byte
		err   error
	}
	ended := make(chan result, 1)
	if !c.Go("request", func() {
		ok, reply, err := c.ssh.SendRequest(kind, wantReply, payload)
		ended <- result{ok, reply, err}
	}) {
		return false, nil, ErrLost
	}
	select {
	case r := <-ended:
		return r.ok, r.reply, r.err
	case <-ctx.Done():
		return false, nil, ctx.Err()
	case <-c.ctx.Done():
		return false, nil, ErrLost
	}
}

// Request is a request of the peer, global or on a channel.
type Request struct {
	Type      string
	Payload   []byte
	WantReply bool

	req *ssh.Request
}

func newRequest(req *ssh.Request) *Request {
	r := &Request{Type: req.Type, Payload: req.Payload, WantReply: req.WantReply, req: req}
	// req lives until the reply, but the receiver may set r.Payload to nil earlier to free the bytes.
	req.Payload = nil
	return r
}

// Reply answers the request, if it asks for a reply. Only the first call has an effect. Reply may wait
// for the socket. Replies carry no id, so those on one channel, or on the connection itself, must be
// sent in the order of the requests.
func (r *Request) Reply(ok bool, payload []byte) error {
	if !r.WantReply {
		return nil
	}
	r.WantReply = false
	return r.req.Reply(ok, payload)
}

// Reason is the reason why the opening of a channel was refused (RFC 4254, section 5.1).
type Reason = ssh.RejectionReason

// The reasons of RFC 4254.
const (
	Prohibited       = ssh.Prohibited
	ConnectFailed    = ssh.ConnectionFailed
	UnknownType      = ssh.UnknownChannelType
	ResourceShortage = ssh.ResourceShortage
)

// Marshal encodes a struct as RFC 4251, section 5, specifies.
func Marshal(msg any) []byte { return ssh.Marshal(msg) }

// Unmarshal decodes a result of Marshal. msg is a pointer to the struct to fill.
func Unmarshal(data []byte, msg any) error { return ssh.Unmarshal(data, msg) }

// Offer is a channel that the peer wants to open. Its receiver calls either Accept or Reject, once; both
// may wait for the socket.
type Offer struct {
	conn *Conn
	open ssh.NewChannel
}

// Offer wraps the opening of a channel that other code has received from x/crypto.
func (c *Conn) Offer(open ssh.NewChannel) *Offer { return &Offer{c, open} }

// Conn returns the connection of the channel.
func (o *Offer) Conn() *Conn { return o.conn }

// Type returns the type of the channel.
func (o *Offer) Type() string { return o.open.ChannelType() }

// Payload returns the data that the peer sent with the open, whose format depends on the type of the channel.
func (o *Offer) Payload() []byte { return o.open.ExtraData() }

// Accept accepts the channel and returns it.
func (o *Offer) Accept(options ChannelOptions) (*Channel, error) {
	ch, reqs, err := o.open.Accept()
	if err != nil {
		return nil, err
	}
	return o.conn.newChannel(ch, reqs, options, false), nil
}

// Reject refuses the channel.
func (o *Offer) Reject(reason Reason, text string) error { return o.open.Reject(reason, text) }
