// Package exchange sends one request to a local server, passes the response on and records both. It
// does not know the alias or queue of the request, nor the origin of the connection. It treats a
// response without a caller like one whose caller has left, so that a replay is recorded as its original was.
//
// One goroutine runs the exchange and reads the response. A second one sends the part of the request
// that the connection does not take at once. The struct signals holds the state that both use.
//
// run.go has the course of an exchange. Its steps stand in send.go (the request), join.go (the start and the end of
// the second goroutine), receive.go (the response), lost.go (the end of connection or tunnel), wait.go (the limits),
// store.go (the record) and ends.go (the last piece, or the error).
package exchange

import (
	"context"
	"hash/maphash"
	"log/slog"
	"sync"
	"time"

	"relay"
	"relay/budget"
)

// Journal records exchanges: it is a part of the write path of the store. Its methods return at once;
// package delivery documents their guarantees.
type Journal interface {
	Accept(e *relay.Event) *relay.Ticket
	Chunk(id relay.ID, n, i int, data []byte) *relay.Ticket
	Finish(id relay.ID, a *relay.Attempt, event string) *relay.Ticket
	CallerGone(id relay.ID, n int) *relay.Ticket
	Amend(e *relay.Event) *relay.Ticket
}

// Bodies reads the stored bodies of requests.
type Bodies interface {
	// BodyPart reads part i of a stored body in one short query. n is 0 for the body of the request,
	// and the number of the attempt for the body of a response.
	BodyPart(ctx context.Context, id relay.ID, n, i int) ([]byte, error)
	// CheckParts returns nil when all parts of a stored body can be read now.
	CheckParts(ctx context.Context, id relay.ID, n, parts int) error
}

// Conn is the connection to the local server while an exchange uses it. Its methods are as safe for
// concurrent use as those of a relay.Conn. Exactly one call of Keep or Close ends the use.
type Conn interface {
	relay.Conn
	// Reused reports whether the connection has carried another request before.
	Reused() bool
	// Slow is called once if the local server has not begun to answer within slowAfter of the time at which
	// it could begin.
	Slow()
	// Upgraded is called when the connection was upgraded and serves no more requests.
	Upgraded()
	// Keep releases the connection after an answer that leaves it usable: another request may use it within
	// the duration limit. body says that the request had a body: the next request must then be of the same
	// caller, because a local server that has not read the body takes it for that request.
	Keep(limit time.Duration, body bool)
}

// Sink receives the response: a relay.Caller satisfies it.
type Sink interface {
	Write(p []byte) (int, error)
	DisableWriteTimeout()
	Presence() relay.Presence
	Left() bool
	ResetOnCrash()
	CloseWrite() error
	Abort()
}

// Options hold the settings that all exchanges of a process share. A limit of 0 means no limit.
type Options struct {
	Bodies Bodies
	Budget *budget.Budget // bounds the bytes that wait for the store or a caller; nil = no bound
	Log    *slog.Logger
	Site   relay.Site
	// KeepRejected reports whether one more refused request of an alias may be stored. It counts the request in
	// the metrics.
	KeepRejected func(alias int64) bool

	MaxHead            int64 // bytes of a response head
	MaxBody            int64 // decoded bytes of a request body
	MaxResponseCapture int64 // decoded bytes of a response body that are stored

	// When Cut ends, the running exchanges have to end and must not wait for callers any more. Base ends
	// later: from then on, no exchange waits for the store.
	Cut, Base context.Context

	timers sync.Pool // holds stopped timers (*time.Timer)
}

const (
	storeWait              = 10 * time.Second      // longest wait for a step that must be stored before the caller gets an answer
	partWait               = 20 * time.Second      // longest wait for a part of a body, of which up to 10 s are for space in the write queue
	earlyAnswerWait        = 10 * time.Second      // longest wait for the rest of a request that was answered before it was whole
	acceptDelay            = 20 * time.Millisecond // time after the last byte of the request was written, after which its event is stored even if no response has come; ADR 0034 gives the reason
	firstWait              = 20 * time.Millisecond // time limit of the first write; after it the second goroutine sends the rest
	lastWriteWait          = 10 * time.Millisecond // longest wait for the sender's last write to return
	lostWait               = 100 * time.Millisecond
	slowAfter              = 100 * time.Millisecond
	refusalWait            = time.Second
	continueWait           = time.Second      // longest wait of a stored body for 100 Continue
	minWriteTimeout        = 30 * time.Second // smallest result of run.writeTimeout after the first piece
	defaultResponseTimeout = 60 * time.Second
	retryAfter             = 5 * time.Second

	maxFirstWrite   = 16 << 10  // number of bytes up to which body bytes follow the head in the first write; a longer head is sent whole
	pieceSize       = 32 << 10  // bytes of one read, from the caller or the local server
	writeSize       = 64 << 10  // bytes of one write to the caller
	maxHeldOutput   = 256 << 10 // number of held response bytes at which the exchange stops reading from the local server
	maxInterim      = 16
	maxFramingBytes = 4 << 20 // bytes of chunk lines that are kept of one message
)

// seed is the seed of the hashes that compare received and sent bytes.
var seed = maphash.MakeSeed()

// pieces is a pool of buffers of pieceSize bytes.
var pieces = sync.Pool{New: func() any { b := make([]byte, pieceSize); return &b }}

func newPiece() *[]byte {
	b, _ := pieces.Get().(*[]byte)
	return b
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// pending returns the channel Done of a ticket, or nil without a ticket.
func pending(t *relay.Ticket) <-chan struct{} {
	if t == nil {
		return nil
	}
	return t.Done()
}
