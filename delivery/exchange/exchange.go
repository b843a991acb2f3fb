// Package exchange sends one request to a local server, passes the response on and records both. It
// does not know the alias or queue of the request, nor the origin of the connection. It treats a
// response without a caller like one with a caller, so that a replay is recorded as its original was.
//
// One goroutine runs the exchange and reads the response. A second one sends the part of the request
// that the connection does not take at once. The struct signals holds the state that both use.
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
	Amend(id relay.ID, m *relay.Message, judged *relay.Signature) *relay.Ticket
}

// Bodies reads the bodies of stored requests.
type Bodies interface {
	// BodyPart reads part i of a stored body in one short query. n is the number of the attempt whose
	// response it is, 0 = the request.
	BodyPart(ctx context.Context, id relay.ID, n, i int) ([]byte, error)
	// CheckParts is nil when all parts of a stored body can be read now.
	CheckParts(ctx context.Context, id relay.ID, n, parts int) error
}

// Conn is the connection to the local server while an exchange uses it. Its methods are as safe for
// concurrent use as those of a relay.Conn. Exactly one call of Keep or Close ends the use.
type Conn interface {
	relay.Conn
	// Reused reports whether the connection has carried another request before.
	Reused() bool
	// Slow is called once if the local server has not begun to answer slowAfter after it could have.
	Slow()
	// Upgraded is called when the connection serves no requests any more.
	Upgraded()
	// Keep releases the connection for another request within limit, after an answer that leaves it
	// usable. body says that the request had a body.
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
	// KeepRejected reports whether one more refused request of an alias may be stored, and counts it.
	KeepRejected func(alias int64) bool

	MaxHead            int64 // bytes of a response head
	MaxBody            int64 // decoded bytes of a request body
	MaxResponseCapture int64 // decoded bytes of a response body that are stored

	// Cut ends when the drain is over: exchanges end, and no caller is waited for any more. Base ends
	// some time later: nothing waits for the store any more.
	Cut, Base context.Context

	timers sync.Pool // of stopped *time.Timer
}

const (
	storeWait              = 10 * time.Second      // for a step before which the caller gets no answer
	partWait               = 20 * time.Second      // for a part of a body: it may wait 10 s for room in the write queue
	earlyAnswerWait        = 10 * time.Second      // for the rest of a request that was answered early
	acceptDelay            = 20 * time.Millisecond // ADR 0034
	firstWait              = 20 * time.Millisecond // for the first write, which the second goroutine then continues
	lastWriteWait          = 10 * time.Millisecond // for a write that is about to return
	lostWait               = 100 * time.Millisecond
	slowAfter              = 100 * time.Millisecond
	refusalWait            = time.Second
	continueWait           = time.Second      // a stored body waits so long for 100 Continue
	minWriteTimeout        = 30 * time.Second // least result of run.writeTimeout
	defaultResponseTimeout = 60 * time.Second
	retryAfter             = 5 * time.Second

	maxFirstWrite   = 16 << 10  // head and body bytes in the first write
	pieceSize       = 32 << 10  // one read, either side
	writeSize       = 64 << 10  // one write to the caller
	maxHeldOutput   = 256 << 10 // bytes held back before reading stops
	maxInterim      = 16
	maxFramingBytes = 4 << 20 // chunk lines kept of one message
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

// pending returns the channel of a ticket; nil without a ticket.
func pending(t *relay.Ticket) <-chan struct{} {
	if t == nil {
		return nil
	}
	return t.Done()
}
