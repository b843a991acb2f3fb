package page

import (
	"context"
	"time"

	"relay"
	"relay/grant"
)

// Accounts finds the logged-in actors and their rights. Package store implements it.
type Accounts interface {
	relay.Accounts
	relay.SecretOpener // opens the secrets that sign new events
	// LoginLink returns the account of a login link, and does not use the link up. Error: ErrNotFound.
	LoginLink(ctx context.Context, secret string) (relay.Account, error)
	// UseLoginLink uses up a login link and opens a session.
	UseLoginLink(ctx context.Context, secret, remote, userAgent string) (session string, acc relay.Account, err error)
	// EndSession deletes a session.
	EndSession(ctx context.Context, secret string) error
	// Invite returns the account of an invitation, and does not use the invitation up. Error:
	// ErrNotFound.
	Invite(ctx context.Context, secret string) (relay.Account, error)
	// UseInvite uses up an invitation: it registers a key and opens a session.
	UseInvite(ctx context.Context, secret, keyLine, remote, userAgent string) (session string, acc relay.Account, err error)
	// UsedShare returns the actor of a one-use share that was used a moment ago. Error: ErrNotFound.
	UsedShare(ctx context.Context, secret string) (relay.Actor, error)
	// RefusedForwards lists the recently refused forwards of an account at all nodes, newest first. It
	// leaves out forwards that were allowed afterwards.
	RefusedForwards(ctx context.Context, account int64) ([]relay.RefusedForward, error)
	// Nodes lists the relayd processes that serve the store, for admins.
	Nodes(ctx context.Context) ([]relay.Node, error)
	// BeginIdempotent stores the key of a form that was sent with the credential of the actor. It returns (0,
	// nil, nil) for the first form with the key and target, the error conflict while that form is still being
	// handled, and the stored answer afterwards.
	BeginIdempotent(ctx context.Context, who relay.Actor, key, target string) (status int, body []byte, err error)
	// EndIdempotent stores the answer of the form; status 0 deletes the key.
	EndIdempotent(ctx context.Context, who relay.Actor, key string, status int, body []byte) error
}

// Events reads and deletes events. Package store implements it.
type Events interface {
	relay.Events
	// Choices lists the event types, senders and labels that the newest events of an alias have.
	Choices(ctx context.Context, who relay.Actor, alias string) (relay.Choices, error)
	// CountEvents counts the events of an alias that a filter selects among the newest events; n is at most
	// the number most. more says that there may be others. For a filter that searches bodies it counts none.
	CountEvents(ctx context.Context, who relay.Actor, f relay.Filter, most int) (n int, more bool, err error)
	// AliasHealth divides the time from since to now into the given number of equal parts, and counts the
	// newest events of each alias in each part. It takes at most 200 aliases, and counts a bounded number of
	// events of each.
	AliasHealth(ctx context.Context, who relay.Actor, aliases []int64, since time.Time, parts int) (map[int64]relay.AliasHealth, error)
}

// Deliverer replays and releases events, and returns the states of aliases. Package delivery implements it.
type Deliverer interface {
	relay.Deliverer
	// Capture stores and forwards a request to an alias, and returns when it was answered.
	Capture(ctx context.Context, in *relay.Inbound) relay.Outcome
	// FeedID returns the id of the last item of the feed, for Subscribe.
	FeedID() string
}

// Enrolments reads and approves keys that wait for approval. Package store implements it.
type Enrolments interface {
	// Enrolment returns the waiting key of a link; ErrNotFound when the link has none any more.
	Enrolment(ctx context.Context, link string) (relay.Enrolment, error)
	// ApproveEnrolment registers the key for the actor's account if the code is the one that the client
	// of the key shows. Errors: validation-failed for a wrong code (too many wrong codes end the
	// enrolment), ErrNotFound when the link has no waiting key any more.
	ApproveEnrolment(ctx context.Context, who relay.Actor, link, code string) error
}

// Limits are the rate and concurrency limits, shared with the API. The errors are
// *relay.Error with code rate-limited.
type Limits interface {
	// Stream takes a slot for a live stream of the account, until the function release is called.
	Stream(who relay.Actor) (release func(), err error)
	// Verify counts a verification of a signature.
	Verify(who relay.Actor) error
	// Replay counts a replay or a release that a session has requested.
	Replay(who relay.Actor) error
	grant.Limits
}
