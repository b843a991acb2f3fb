package delivery

import (
	"context"

	"relay"
	"relay/delivery/changes"
	"relay/delivery/feed"
	"relay/delivery/registry"
)

// Journal is the write path of the store. Steps of one event take effect in the order of the calls; a
// Finish never resolves before its Accept, and fails if the Accept failed. There are no contexts,
// because a step that was taken runs to its end. Arguments must not be changed afterwards. All methods
// return at once. When the store's write queue is full, the ticket waits up to 2 s (a Chunk 10 s) for
// space and then fails with store-unavailable.
type Journal interface {
	// NewID returns a new event id, which sorts after all earlier ones.
	NewID() relay.ID
	// Accept stores a new event with its request and, if there is one, e.Attempts[0], whose State is
	// delivering or queued. An event that is rejected or incomplete from the start has that State, and
	// may have no attempt. If the request body has Parts > 0, Chunk was called for each part before
	// Accept is called.
	Accept(e *relay.Event) *relay.Ticket
	// Chunk stores part i of a body: n = 0 is the request, n = k the response of
	// attempt k. Parts are relay.BodyPart bytes, the last one shorter.
	Chunk(id relay.ID, n, i int, data []byte) *relay.Ticket
	// Finish ends attempt a.N, which this process has in progress, and stores state, timing, error and response. The
	// parameter event is the new state of the event ("" = the state of the attempt; incomplete or
	// rejected if the request is not complete). The ticket fails with ErrFenced when the attempt no longer belongs to this
	// process. When a replay is delivered, an attempt 1 that is still queued becomes canceled
	// (superseded).
	Finish(id relay.ID, a *relay.Attempt, event string) *relay.Ticket
	// FinishAndClaim is Finish and, in the same transaction, the claim of the attempt that Next would
	// give. When the ticket has resolved, claimed returns that attempt, or nil when none was claimed.
	// nil does not mean that the queue is empty: Next may still find an attempt.
	FinishAndClaim(id relay.ID, a *relay.Attempt, event string, next relay.NextClaim) (t *relay.Ticket, claimed func() *relay.Claim)
	// CallerGone notes that the caller of attempt n did not get the whole answer, if this becomes known
	// only after the Finish of the attempt.
	CallerGone(id relay.ID, n int) *relay.Ticket
	// Amend replaces the request message of an event that was accepted before its request was whole, and sets
	// the replay blocker of the event according to the state of the body. Values of e that record.ReadBody sets
	// and that are stored in rare columns, such as the verdict on the signature, replace the stored ones; a zero value
	// keeps them.
	Amend(e *relay.Event) *relay.Ticket
	// Requeue changes the state of an attempt from delivering back to queued. No byte of the attempt may have
	// been sent. ReceivedAt stays the same.
	Requeue(id relay.ID, n int) *relay.Ticket
	// RequeueWithheld is Requeue for an attempt that was accepted as released: the attempt is withheld, so it waits
	// for a release from now on.
	RequeueWithheld(id relay.ID, n int) *relay.Ticket
}

// Queue holds the queued attempts, and reads what a delivery needs from the store.
type Queue interface {
	// BeginReplay appends a replay attempt, and returns the event with its request and the number of
	// the attempt. The state of the attempt is delivering (claimed by this process) when deliver is
	// set, else queued. Errors: ErrNotFound, event-not-replayable with Reason.
	BeginReplay(ctx context.Context, who relay.Actor, id relay.ID, deliver bool) (*relay.Claim, error)
	// Next claims the oldest attempt of an alias that may be delivered; it returns nil when there is
	// none. ErrFenced: the store does not know the tunnel as one of this node (yet). store-unavailable:
	// try again in a moment.
	Next(next relay.NextClaim) (*relay.Claim, error)
	// MayClaim returns nil while this node may begin to deliver attempts that it has claimed. It does
	// not read the store.
	MayClaim() error
	// Release marks as released the inbound events that were queued while the alias was offline and were
	// never delivered. It returns their number; a second call returns 0.
	Release(ctx context.Context, who relay.Actor, alias string) (int, error)
	// Cancel cancels the queued attempts of an event; the error is conflict when none is queued.
	Cancel(ctx context.Context, who relay.Actor, id relay.ID) error
	// Request reads one event with its request, without its attempts and with at most maxBody bytes of
	// its body.
	Request(ctx context.Context, who relay.Actor, id relay.ID, maxBody int) (*relay.Event, error)
	// Attempts reads attempts of an event, the newest first.
	Attempts(ctx context.Context, who relay.Actor, id relay.ID, page relay.AttemptPage) ([]relay.Attempt, error)
	// BodyPart reads part i of a stored body in one short query; n and i mean the same as in Chunk.
	BodyPart(ctx context.Context, id relay.ID, n, i int) ([]byte, error)
	// CheckParts returns nil when all parts of a stored body can be read now.
	CheckParts(ctx context.Context, id relay.ID, n, parts int) error
}

// Store is the part of the store that this package uses.
type Store interface {
	Journal
	Queue
	registry.Store
	changes.Store
	feed.Rights
	// Alias reads an alias by its name; ErrNotFound when there is none that the actor may see.
	Alias(ctx context.Context, who relay.Actor, name string) (*relay.Alias, error)
}
