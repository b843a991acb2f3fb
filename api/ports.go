package api

import (
	"context"
	"time"

	"relay"
)

// Deliverer moves events. delivery satisfies it.
type Deliverer interface {
	Replay(ctx context.Context, who relay.Actor, id relay.ID, wait time.Duration) (e *relay.Event, n int, err error)
	Release(ctx context.Context, who relay.Actor, alias string) (int, error)
	// Cancel cancels what waits of an event and gives the event as it is then.
	Cancel(ctx context.Context, who relay.Actor, id relay.ID) (*relay.Event, error)
	Status(ctx context.Context, aliases []relay.Alias) ([]relay.AliasStatus, error)
	Subscribe(ctx context.Context, who relay.Actor, alias int64, lastID string) (relay.Subscription, error)
}

// Events reads and removes events. store satisfies it.
type Events interface {
	Events(ctx context.Context, who relay.Actor, f relay.Filter) (relay.Page, error)
	Event(ctx context.Context, who relay.Actor, id relay.ID, maxBody int) (*relay.Event, error)
	// Matches tells whether a filter selects an event.
	Matches(ctx context.Context, who relay.Actor, id relay.ID, f relay.Filter) (bool, error)
	BodyPart(ctx context.Context, id relay.ID, n, i int) ([]byte, error)
	// Figures counts the events of an alias since a time, in equal parts.
	Figures(ctx context.Context, who relay.Actor, alias string, since time.Time, parts int) (relay.Figures, error)
	// SavedSearches lists the searches that the actor's account keeps for an alias.
	SavedSearches(ctx context.Context, who relay.Actor, alias string) ([]relay.SavedSearch, error)
	// SaveSearch keeps a search of an alias by its name; without words it forgets the name.
	SaveSearch(ctx context.Context, who relay.Actor, alias string, search relay.SavedSearch) error
	// DeleteEvent removes an event with its attempts; conflict while one is
	// delivering, queued ones go with it.
	DeleteEvent(ctx context.Context, who relay.Actor, id relay.ID) error
	// MarkEvent changes what the owner of its alias noted about an event.
	MarkEvent(ctx context.Context, who relay.Actor, id relay.ID, change func(*relay.Mark)) error
}

// Nodes lists the relayd processes that serve the store, and the tunnels that they have.
// store satisfies it.
type Nodes interface {
	Nodes(ctx context.Context) ([]relay.Node, error)
	// Tunnels lists those of aliases that the actor may see, for admins all.
	Tunnels(ctx context.Context, who relay.Actor) ([]relay.TunnelRecord, error)
	// CloseTunnel lets the node of a tunnel close it; ErrNotFound.
	CloseTunnel(ctx context.Context, who relay.Actor, id string) error
}

// Accounts is who may do what. store satisfies it.
type Accounts interface {
	// TokenOwner gives the actor of an API token's secret; ErrNotFound.
	TokenOwner(ctx context.Context, secret string) (relay.Actor, error)
	// SessionOwner gives the actor of a dashboard session's secret; ErrNotFound.
	SessionOwner(ctx context.Context, secret string) (relay.Actor, error)
	// StillValid is nil while the actor's credential stands, else ErrNotFound.
	StillValid(ctx context.Context, who relay.Actor) error

	Aliases(ctx context.Context, who relay.Actor) ([]relay.Alias, error)
	Alias(ctx context.Context, who relay.Actor, name string) (*relay.Alias, error)
	CreateAlias(ctx context.Context, who relay.Actor, name, owner string) (*relay.Alias, error)
	// SetAlias replaces the settings of an alias by change's result.
	SetAlias(ctx context.Context, who relay.Actor, name string, change func(*relay.Settings) error) (*relay.Alias, error)
	TransferAlias(ctx context.Context, who relay.Actor, name, user string) (*relay.Alias, error)
	// UnownedAliases lists the aliases of removed accounts, for admins to transfer.
	UnownedAliases(ctx context.Context, who relay.Actor) ([]relay.Alias, error)
	RemoveAlias(ctx context.Context, who relay.Actor, name string) error
	Members(ctx context.Context, who relay.Actor, alias string) ([]string, error)
	AddMember(ctx context.Context, who relay.Actor, alias, user string) error
	RemoveMember(ctx context.Context, who relay.Actor, alias, user string) error

	CreateShare(ctx context.Context, who relay.Actor, id relay.ID, want relay.Share) (relay.Share, string, error)
	Shares(ctx context.Context, who relay.Actor, id relay.ID) ([]relay.Share, error)
	RemoveShare(ctx context.Context, who relay.Actor, id relay.ID, share string) error
	// ShareActor gives the actor (kind share) of a share token; ErrNotFound for
	// unknown, expired and revoked alike. use counts one use.
	ShareActor(ctx context.Context, secret string, use bool) (relay.Actor, relay.Share, error)
	// ReturnShareUse takes a use back if why, the error of its replay, means that none was
	// begun. share is as it was before the use.
	ReturnShareUse(ctx context.Context, share relay.Share, why error) error

	CreateToken(ctx context.Context, who relay.Actor, t relay.Token) (relay.Token, string, error)
	Tokens(ctx context.Context, who relay.Actor, user string) ([]relay.Token, error)
	RemoveToken(ctx context.Context, who relay.Actor, id string) error
	AddKey(ctx context.Context, who relay.Actor, user, name, authorizedKey string) (relay.Key, error)
	Keys(ctx context.Context, who relay.Actor, user string) ([]relay.Key, error)
	RemoveKey(ctx context.Context, who relay.Actor, id string) error // id or fingerprint
	Sessions(ctx context.Context, who relay.Actor) ([]relay.Session, error)
	RemoveSession(ctx context.Context, who relay.Actor, id string) error
	CreateAccount(ctx context.Context, who relay.Actor, name string, admin bool) (relay.Account, error)
	Accounts(ctx context.Context, who relay.Actor) ([]relay.Account, error)
	RemoveAccount(ctx context.Context, who relay.Actor, name string) error
	CreateInvite(ctx context.Context, who relay.Actor, user string, ttl time.Duration) (secret string, err error)
	Audit(ctx context.Context, who relay.Actor, limit int) ([]relay.AuditEntry, error)

	// BeginIdempotent remembers an Idempotency-Key of a credential: it gives the
	// stored answer of the same key and target, conflict while the first call is
	// still running, validation-failed for another target, and (0, nil, nil) when
	// the call is the first.
	BeginIdempotent(ctx context.Context, who relay.Actor, key, target string) (status int, body []byte, err error)
	EndIdempotent(ctx context.Context, who relay.Actor, key string, status int, body []byte) error
}
