package dashboard

import (
	"context"
	"time"

	"relay"
)

// Accounts is who is signed in and what they may do. store satisfies it.
type Accounts interface {
	// LoginLink tells whose a login link is without using it up; ErrNotFound.
	LoginLink(ctx context.Context, secret string) (relay.Account, error)
	// UseLoginLink burns a login link and opens a session.
	UseLoginLink(ctx context.Context, secret, remote, userAgent string) (session string, acc relay.Account, err error)
	// SessionOwner gives the actor of a session's secret; ErrNotFound.
	SessionOwner(ctx context.Context, secret string) (relay.Actor, error)
	// EndSession forgets a session.
	EndSession(ctx context.Context, secret string) error

	Aliases(ctx context.Context, who relay.Actor) ([]relay.Alias, error)
	Alias(ctx context.Context, who relay.Actor, name string) (*relay.Alias, error)
	// RefusedForwards lists the forwards that were lately refused to an account at any
	// node, and not allowed since; the newest first.
	RefusedForwards(ctx context.Context, account int64) ([]relay.RefusedForward, error)

	CreateShare(ctx context.Context, who relay.Actor, id relay.ID, want relay.Share) (relay.Share, string, error)
	// Shares lists those of an event; forbidden for members.
	Shares(ctx context.Context, who relay.Actor, id relay.ID) ([]relay.Share, error)
	RemoveShare(ctx context.Context, who relay.Actor, id relay.ID, share string) error
	// ShareActor gives the actor (kind share) of a share token; ErrNotFound for
	// unknown, expired and revoked alike. use counts one use.
	ShareActor(ctx context.Context, secret string, use bool) (relay.Actor, relay.Share, error)
	// ReturnShareUse takes a use back if why, the error of its replay, means that none was
	// begun. share is as it was before the use.
	ReturnShareUse(ctx context.Context, share relay.Share, why error) error

	// Of aliases: what only the owner may do is forbidden to members, and not-found to
	// everybody else.
	// CreateAlias makes an alias of the actor's; validation-failed and conflict.
	CreateAlias(ctx context.Context, who relay.Actor, name, owner string) (*relay.Alias, error)
	SetAlias(ctx context.Context, who relay.Actor, name string, edit func(*relay.Settings) error) (*relay.Alias, error)
	TransferAlias(ctx context.Context, who relay.Actor, name, user string) (*relay.Alias, error)
	RemoveAlias(ctx context.Context, who relay.Actor, name string) error
	Members(ctx context.Context, who relay.Actor, alias string) ([]string, error)
	AddMember(ctx context.Context, who relay.Actor, alias, user string) error
	RemoveMember(ctx context.Context, who relay.Actor, alias, user string) error

	// What proves an account: keys, tokens, sessions, invitations.
	AddKey(ctx context.Context, who relay.Actor, user, name, authorizedKey string) (relay.Key, error)
	Keys(ctx context.Context, who relay.Actor, user string) ([]relay.Key, error)
	RemoveKey(ctx context.Context, who relay.Actor, id string) error
	CreateToken(ctx context.Context, who relay.Actor, t relay.Token) (relay.Token, string, error)
	Tokens(ctx context.Context, who relay.Actor, user string) ([]relay.Token, error)
	RemoveToken(ctx context.Context, who relay.Actor, id string) error
	Sessions(ctx context.Context, who relay.Actor) ([]relay.Session, error)
	RemoveSession(ctx context.Context, who relay.Actor, id string) error
	// Invite tells who is invited without using the invitation up; ErrNotFound.
	Invite(ctx context.Context, secret string) (relay.Account, error)
	// UseInvite burns an invitation: it registers a key and opens a session.
	UseInvite(ctx context.Context, secret, keyLine, remote, userAgent string) (session string, acc relay.Account, err error)

	// For admins only.
	Accounts(ctx context.Context, who relay.Actor) ([]relay.Account, error)
	CreateAccount(ctx context.Context, who relay.Actor, name string, admin bool) (relay.Account, error)
	RemoveAccount(ctx context.Context, who relay.Actor, name string) error
	CreateInvite(ctx context.Context, who relay.Actor, user string, ttl time.Duration) (secret string, err error)
	// Nodes lists the relayd processes that serve the store.
	Nodes(ctx context.Context) ([]relay.Node, error)
	// UnownedAliases lists the aliases of removed accounts.
	UnownedAliases(ctx context.Context, who relay.Actor) ([]relay.Alias, error)
	Audit(ctx context.Context, who relay.Actor, limit int) ([]relay.AuditEntry, error)
}

// Events reads and removes events. store satisfies it.
type Events interface {
	Events(ctx context.Context, who relay.Actor, f relay.Filter) (relay.Page, error)
	// Matches reports whether a filter selects an event.
	Matches(ctx context.Context, who relay.Actor, id relay.ID, f relay.Filter) (bool, error)
	// Event reads one event whole; of each body at most maxBody bytes.
	Event(ctx context.Context, who relay.Actor, id relay.ID, maxBody int) (*relay.Event, error)
	// MarkEvent, for the owner of its alias, changes what people noted about an event.
	MarkEvent(ctx context.Context, who relay.Actor, id relay.ID, change func(*relay.Mark)) error
	// DeleteEvent, for the owner of its alias, removes an event; conflict while an attempt
	// is being delivered.
	DeleteEvent(ctx context.Context, who relay.Actor, id relay.ID) error
	// Choices lists the event types, senders and labels that the newest events of an alias have.
	Choices(ctx context.Context, who relay.Actor, alias string) (relay.Choices, error)
	SavedSearches(ctx context.Context, who relay.Actor, alias string) ([]relay.SavedSearch, error)
	// SaveSearch keeps a search of an alias for the account; without words it forgets the name.
	SaveSearch(ctx context.Context, who relay.Actor, alias string, search relay.SavedSearch) error
	// BodyPart reads part i of the request body (n = 0) or of the response body of
	// attempt n; a body that is not stored as parts is part 0. Only after Event let the
	// actor in.
	BodyPart(ctx context.Context, id relay.ID, n, i int) ([]byte, error)
	// Figures counts the events of an alias since a time, in equal buckets, within a
	// time budget.
	Figures(ctx context.Context, who relay.Actor, alias string, since time.Time, buckets int) (relay.Figures, error)
}

// Deliverer moves events and tells how aliases stand. delivery satisfies it.
type Deliverer interface {
	Status(ctx context.Context, aliases []relay.Alias) ([]relay.AliasStatus, error)
	// Replay asks for a new attempt and waits up to wait for its end; n is its number.
	Replay(ctx context.Context, who relay.Actor, id relay.ID, wait time.Duration) (e *relay.Event, n int, err error)
	// Capture stores and forwards a request to an alias, and returns when it was answered.
	Capture(ctx context.Context, in *relay.Inbound) relay.Outcome
	// Release lets the inbound events go that were queued while offline.
	Release(ctx context.Context, who relay.Actor, alias string) (int, error)
	// Cancel cancels what waits of an event; conflict when nothing does.
	Cancel(ctx context.Context, who relay.Actor, id relay.ID) (*relay.Event, error)
	Subscribe(ctx context.Context, who relay.Actor, alias int64, lastID string) (relay.Subscription, error)
	// FeedID returns the id of the last item of the feed, for Subscribe.
	FeedID() string
}

// Enrolments are keys that wait to be let in. store satisfies it.
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
	// Replay counts a replay or release of a session.
	Replay(who relay.Actor) error
	// ShareReplay counts a replay by a share, by its id.
	ShareReplay(share string) error
	// Create counts a login, link, share, token or key that an account makes.
	Create(who relay.Actor) error
	// CheckSecret is asked before a secret that remote (host:port) shows is looked up: an
	// error when too many wrong ones came from there lately.
	CheckSecret(remote, secret string) error
	// RecordSecret tells how the look-up ended.
	RecordSecret(remote, secret string, right bool)
}
