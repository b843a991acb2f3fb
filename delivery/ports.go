package delivery

import (
	"context"

	"relay"
	"relay/delivery/changes"
	"relay/delivery/feed"
	"relay/delivery/registry"
)

// Journal is the write path of the store. Steps of one event take effect in the order of the calls; a
// Finish never resolves before its Accept, and fails if that failed. There are no contexts: a step
// that was taken runs to its end. Arguments must not be changed afterwards. All methods return at
// once. When the store's write queue is full, the ticket waits up to 2 s (a Chunk 10 s) for space and
// then fails with store-unavailable.
type Journal interface {
	// NewID makes the next event id: later than every one before it.
	NewID() relay.ID
	// Accept stores a new event with its request and, if there is one,
	// e.Attempts[0], whose State is delivering or queued. Events that are rejected
	// or incomplete from the start come with that State and with or without an
	// attempt. A request body of Parts > 0 was stored by Chunk before.
	Accept(e *relay.Event) *relay.Ticket
	// Chunk stores part i of a body: n = 0 is the request, n = k the response of
	// attempt k. Parts are relay.BodyPart bytes, the last one shorter.
	Chunk(id relay.ID, n, i int, data []byte) *relay.Ticket
	// Finish ends attempt a.N that this process has in progress: state, timing,
	// error, response. event is the new event state ("" = that of the attempt;
	// incomplete or rejected where the request was not whole). ErrFenced when the
	// attempt is no longer ours. A delivered replay makes a still queued attempt 1
	// canceled (superseded).
	Finish(id relay.ID, a *relay.Attempt, event string) *relay.Ticket
	// FinishAndClaim is Finish and, in the same transaction, the claim of the attempt that
	// Next would give. When the ticket has resolved, claimed returns that attempt; nil when
	// none was claimed, for whatever reason, and Next may find one.
	FinishAndClaim(id relay.ID, a *relay.Attempt, event string, next relay.NextClaim) (t *relay.Ticket, claimed func() *relay.Claim)
	// CallerGone notes that the caller of attempt n did not get the whole answer, where that
	// is known only after its Finish.
	CallerGone(id relay.ID, n int) *relay.Ticket
	// Amend replaces the request message of an event that was accepted before its
	// request was whole, and sets its replay blocker from the body state. judged replaces what is
	// kept of its signature; nil leaves that.
	Amend(id relay.ID, m *relay.Message, judged *relay.Signature) *relay.Ticket
	// Requeue puts an attempt that is delivering back to queued: not one byte of
	// it left us. Its ReceivedAt stays.
	Requeue(id relay.ID, n int) *relay.Ticket
	// RequeueHeld is Requeue of an attempt that waits for a release, although it was accepted as
	// released.
	RequeueHeld(id relay.ID, n int) *relay.Ticket
}

// Queue holds the queued attempts, and has the reads that a delivery needs.
type Queue interface {
	// BeginReplay appends a replay attempt, state delivering (claimed by this
	// process) when deliver is set, else queued, and gives the event with its
	// request and the number of the attempt. Errors: ErrNotFound,
	// event-not-replayable with Reason.
	BeginReplay(ctx context.Context, who relay.Actor, id relay.ID, deliver bool) (*relay.Claim, error)
	// Next claims the oldest attempt of an alias that may be delivered; nil when none waits.
	// ErrFenced: the store does not know the tunnel as one of this node (yet).
	// store-unavailable: try again in a moment.
	Next(next relay.NextClaim) (*relay.Claim, error)
	// MayClaim returns nil while this node may begin to deliver its claims. It answers from memory.
	MayClaim() error
	// Release marks the inbound events queued while offline and never delivered as
	// released and says how many. A second call gives 0.
	Release(ctx context.Context, who relay.Actor, alias string) (int, error)
	// Cancel cancels the queued attempts of an event; conflict when none waits.
	Cancel(ctx context.Context, who relay.Actor, id relay.ID) error
	// Request reads one event with its request, without its attempts; of its body at most maxBody
	// bytes.
	Request(ctx context.Context, who relay.Actor, id relay.ID, maxBody int) (*relay.Event, error)
	// Attempts reads attempts of an event, the newest first.
	Attempts(ctx context.Context, who relay.Actor, id relay.ID, page relay.AttemptPage) ([]relay.Attempt, error)
	// BodyPart reads part i of a stored body in one short query (Chunk's numbers).
	BodyPart(ctx context.Context, id relay.ID, n, i int) ([]byte, error)
	// CheckParts is nil when all parts of a stored body can be read now.
	CheckParts(ctx context.Context, id relay.ID, n, parts int) error
}

// Store is the part of the store that this package needs.
type Store interface {
	Journal
	Queue
	registry.Store
	changes.Store
	feed.Rights
	// Alias reads an alias by its name; ErrNotFound when there is none that the actor may see.
	Alias(ctx context.Context, who relay.Actor, name string) (*relay.Alias, error)
}
