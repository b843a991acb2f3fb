package relay

import (
	"context"
	"time"
)

// Accounts has the methods about accounts and rights that both the API and the dashboard need. Calls
// that only the owner of an alias may make fail with forbidden for its members, and with not-found for
// all others.
type Accounts interface {
	// SessionOwner returns the actor of a dashboard session's secret. The error is ErrNotFound if there is no
	// such session.
	SessionOwner(ctx context.Context, secret string) (Actor, error)

	Aliases(ctx context.Context, who Actor) ([]Alias, error)
	Alias(ctx context.Context, who Actor, name string) (*Alias, error)
	// CreateAlias makes an alias. If owner is "", the alias belongs to the account of the actor. Errors:
	// validation-failed, conflict.
	CreateAlias(ctx context.Context, who Actor, name, owner string) (*Alias, error)
	// SetAlias replaces the settings of an alias by the result of change.
	SetAlias(ctx context.Context, who Actor, name string, change func(*Settings) error) (*Alias, error)
	TransferAlias(ctx context.Context, who Actor, name, user string) (*Alias, error)
	// UnownedAliases lists the aliases of removed accounts, for admins to transfer.
	UnownedAliases(ctx context.Context, who Actor) ([]Alias, error)
	RemoveAlias(ctx context.Context, who Actor, name string) error
	Members(ctx context.Context, who Actor, alias string) ([]string, error)
	AddMember(ctx context.Context, who Actor, alias, user string) error
	RemoveMember(ctx context.Context, who Actor, alias, user string) error

	Secrets

	CreateShare(ctx context.Context, who Actor, id ID, want Share) (Share, string, error)
	// Shares lists the shares of an event; forbidden for members.
	Shares(ctx context.Context, who Actor, id ID) ([]Share, error)
	RemoveShare(ctx context.Context, who Actor, id ID, share string) error
	// ShareActor returns the actor (kind share) of a share token. The error is ErrNotFound for unknown,
	// expired and revoked tokens alike. If use is true, ShareActor counts one use of the share.
	ShareActor(ctx context.Context, secret string, use bool) (Actor, Share, error)
	// ReturnShareUse takes back a use of a share if no replay was begun. The argument share is the share as it
	// was before the use; the argument why is the error of the replay, which shows whether a replay was begun.
	ReturnShareUse(ctx context.Context, share Share, why error) error

	CreateToken(ctx context.Context, who Actor, t Token) (Token, string, error)
	Tokens(ctx context.Context, who Actor, user string) ([]Token, error)
	// RenewToken extends the token that authenticated the actor: its original lifetime begins again now.
	RenewToken(ctx context.Context, who Actor) (Token, error)
	RemoveToken(ctx context.Context, who Actor, id string) error
	AddKey(ctx context.Context, who Actor, user, name, authorizedKey string) (Key, error)
	Keys(ctx context.Context, who Actor, user string) ([]Key, error)
	RemoveKey(ctx context.Context, who Actor, id string) error // id is the id or the fingerprint of the key
	Sessions(ctx context.Context, who Actor) ([]Session, error)
	RemoveSession(ctx context.Context, who Actor, id string) error

	// The methods from here on are for admins only, except Audit.
	Accounts(ctx context.Context, who Actor) ([]Account, error)
	// AccountUsage returns the stored and queued amounts of each account, by its id.
	AccountUsage(ctx context.Context, who Actor) (map[int64]AccountUsage, error)
	// SetAccount changes the limits of an account. The keys of limits are maxAccountStorage (bytes that all
	// its aliases may store) and maxAccountQueue (attempts that may be queued at all its aliases). Values:
	// nil = the server's default, 0 = no limit.
	SetAccount(ctx context.Context, who Actor, name string, limits map[string]*int64) (Account, error)
	CreateAccount(ctx context.Context, who Actor, name string, admin bool) (Account, error)
	RemoveAccount(ctx context.Context, who Actor, name string) error
	CreateInvite(ctx context.Context, who Actor, user string, ttl time.Duration) (secret string, err error)
	Audit(ctx context.Context, who Actor, limit int) ([]AuditEntry, error)
}

// Events has the methods of the store about events that both the API and the dashboard
// need.
type Events interface {
	Events(ctx context.Context, who Actor, f Filter) (Page, error)
	// Event reads one event with its request, its first attempt and the newest ShownAttempts. It reads at
	// most maxBody bytes of each body, and a limited number of bytes of all heads and bodies together.
	Event(ctx context.Context, who Actor, id ID, maxBody int) (*Event, error)
	// Request is like Event, but reads no attempts.
	Request(ctx context.Context, who Actor, id ID, maxBody int) (*Event, error)
	// Attempts reads a page of attempts of an event, the newest first.
	Attempts(ctx context.Context, who Actor, id ID, page AttemptPage) ([]Attempt, error)
	// Matches reports whether a filter selects an event.
	Matches(ctx context.Context, who Actor, id ID, f Filter) (bool, error)
	// BodyPart reads part i of the request body (n = 0) or of the response body of attempt n. A body that is
	// not stored as parts is part 0. BodyPart checks no rights: call it only after Event has returned the
	// event to the actor.
	BodyPart(ctx context.Context, id ID, n, i int) ([]byte, error)
	// Figures counts the events of an alias between two times, in equal parts, within a time budget. The
	// parameter until may be a time in the future, so that parts can begin at whole minutes or hours.
	Figures(ctx context.Context, who Actor, alias string, since, until time.Time, parts int) (Figures, error)
	// SavedSearches lists the searches that the actor's account has saved for an alias.
	SavedSearches(ctx context.Context, who Actor, alias string) ([]SavedSearch, error)
	// SaveSearch saves a search of an alias under its name. If search.Words is empty, it
	// deletes the search of that name.
	SaveSearch(ctx context.Context, who Actor, alias string, search SavedSearch) error
	// DeleteEvent removes an event with its attempts, also queued ones, for the owner of its alias. The error
	// is conflict while an attempt is being delivered.
	DeleteEvent(ctx context.Context, who Actor, id ID) error
	// MarkEvent changes the pin, label and note of an event, for the owner of its alias.
	MarkEvent(ctx context.Context, who Actor, id ID, change func(*Mark)) error
}

// Deliverer has the methods of delivery that both the API and the dashboard need.
type Deliverer interface {
	// Replay requests a new attempt, whose number is n, and waits until it ends, at most for the duration
	// wait. e is the event afterwards, with only this attempt and without bodies. After an error, no
	// attempt was added, except that one may be queued if MayBeDone is true for the error.
	Replay(ctx context.Context, who Actor, id ID, wait time.Duration) (e *Event, n int, err error)
	// Send stores a new event, sends it through the tunnel of its alias and waits until the attempt ends, at
	// most for the duration wait. The event is never queued and never sent twice. e is the event afterwards,
	// as in Replay. An error means that nothing was sent.
	Send(ctx context.Context, who Actor, out Outgoing, wait time.Duration) (e *Event, err error)
	// Release permits the delivery of the inbound events that were queued while the alias was offline, and
	// returns their number.
	Release(ctx context.Context, who Actor, alias string) (int, error)
	// Cancel cancels the queued attempts of an event. The error is conflict if there are none.
	Cancel(ctx context.Context, who Actor, id ID) error
	// Status returns the status of each alias, in the order of aliases.
	Status(ctx context.Context, aliases []Alias) ([]AliasStatus, error)
	Subscribe(ctx context.Context, who Actor, alias int64, lastID string) (Subscription, error)
}
