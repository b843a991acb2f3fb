package page

import (
	"context"
	"time"

	"relay"
	"relay/grant"
)

// Accounts finds the logged-in actors and their rights. store satisfies it.
type Accounts interface {
	relay.Accounts
	relay.SecretOpener // for signatures of new events
	// LoginLink tells whose a login link is without using it up; ErrNotFound.
	LoginLink(ctx context.Context, secret string) (relay.Account, error)
	// UseLoginLink burns a login link and opens a session.
	UseLoginLink(ctx context.Context, secret, remote, userAgent string) (session string, acc relay.Account, err error)
	// EndSession forgets a session.
	EndSession(ctx context.Context, secret string) error
	// Invite tells who is invited without using the invitation up; ErrNotFound.
	Invite(ctx context.Context, secret string) (relay.Account, error)
	// UseInvite burns an invitation: it registers a key and opens a session.
	UseInvite(ctx context.Context, secret, keyLine, remote, userAgent string) (session string, acc relay.Account, err error)
	// UsedShare gives the actor of a share for one use that was used a moment ago; ErrNotFound.
	UsedShare(ctx context.Context, secret string) (relay.Actor, error)
	// RefusedForwards lists the forwards that were lately refused to an account at any
	// node, and not allowed since; the newest first.
	RefusedForwards(ctx context.Context, account int64) ([]relay.RefusedForward, error)
	// Nodes lists the relayd processes that serve the store, for admins.
	Nodes(ctx context.Context) ([]relay.Node, error)
	// BeginIdempotent remembers the key of a form that a credential sent: it returns the stored
	// answer of the same key and target, conflict while the first form with it is still handled,
	// and (0, nil, nil) when the form is the first.
	BeginIdempotent(ctx context.Context, who relay.Actor, key, target string) (status int, body []byte, err error)
	// EndIdempotent stores the answer of the form; status 0 forgets the key.
	EndIdempotent(ctx context.Context, who relay.Actor, key string, status int, body []byte) error
}

// Events reads and removes events. store satisfies it.
type Events interface {
	relay.Events
	// Choices lists the event types, senders and labels that the newest events of an alias have.
	Choices(ctx context.Context, who relay.Actor, alias string) (relay.Choices, error)
	// CountEvents counts the events of an alias that a filter selects, at most most of them, among the
	// newest ones; more says that there may be others. Where bodies would have to be read it counts none.
	CountEvents(ctx context.Context, who relay.Actor, f relay.Filter, most int) (n int, more bool, err error)
	// AliasHealth counts the newest events of aliases from since to now, in equal parts: of at most 200
	// aliases, and of each a bounded number of events.
	AliasHealth(ctx context.Context, who relay.Actor, aliases []int64, since time.Time, parts int) (map[int64]relay.AliasHealth, error)
}

// Deliverer replays and releases events, and returns the states of aliases. delivery satisfies it.
type Deliverer interface {
	relay.Deliverer
	// Capture stores and forwards a request to an alias, and returns when it was answered.
	Capture(ctx context.Context, in *relay.Inbound) relay.Outcome
	// FeedID returns the id of the last item of the feed, for Subscribe.
	FeedID() string
}

// Enrolments are keys that wait to be accepted. store satisfies it.
type Enrolments interface {
	// Enrolment tells of the key that waits behind a link; ErrNotFound when nothing
	// waits there any more.
	Enrolment(ctx context.Context, link string) (relay.Enrolment, error)
	// ApproveEnrolment registers the key for the actor's account when the code is the one that
	// the holder of the key was shown; validation-failed for a wrong one (too many
	// end the enrolment), ErrNotFound when nothing waits there any more.
	ApproveEnrolment(ctx context.Context, who relay.Actor, link, code string) error
}

// Limits are the rate and concurrency limits, shared with the API. The errors are
// *relay.Error with code rate-limited.
type Limits interface {
	// Stream takes a slot for a live stream of the account; release gives it back.
	Stream(who relay.Actor) (release func(), err error)
	// Verify counts a verification of a signature.
	Verify(who relay.Actor) error
	// Replay counts a replay or release of a session.
	Replay(who relay.Actor) error
	grant.Limits
}
