package sshgate

import (
	"context"
	"time"

	"relay"
)

// Attacher is where tunnels are announced. delivery satisfies it.
type Attacher interface {
	// Attach makes t the tunnel of the alias at once. A tunnel that had it before
	// is told Close("taken over by a newer connection").
	Attach(a *relay.Alias, t relay.Tunnel) relay.Attachment
	// Status tells state, tunnel and queue of aliases, in their order.
	Status(ctx context.Context, aliases []relay.Alias) ([]relay.AliasStatus, error)
	// Subscribe opens the live feed for the actor; alias 0 = all it may see.
	Subscribe(ctx context.Context, who relay.Actor, alias int64, lastID string) (relay.Subscription, error)
}

// Accounts is who may come in and what they own. store satisfies it.
type Accounts interface {
	// KeyOwner gives the actor (kind ssh) of a registered key; ErrNotFound.
	KeyOwner(ctx context.Context, fingerprint string) (relay.Actor, error)
	// ClaimAlias gives an alias that the actor may attach: its own, one it is a
	// member of, or a free valid name, which it claims when claiming is on.
	// ErrNotFound in the same words for foreign and for unknown with claiming off;
	// validation-failed for invalid and reserved names; conflict for a full quota.
	ClaimAlias(ctx context.Context, who relay.Actor, name string) (*relay.Alias, error)
	Aliases(ctx context.Context, who relay.Actor) ([]relay.Alias, error)
	// StillValid is nil while the actor's credential stands.
	StillValid(ctx context.Context, who relay.Actor) error
	Keys(ctx context.Context, who relay.Actor, user string) ([]relay.Key, error)
	CreateLoginLink(ctx context.Context, who relay.Actor, user string, ttl time.Duration) (secret string, err error)
	CreateShare(ctx context.Context, who relay.Actor, id relay.ID, view bool, expires time.Time) (relay.Share, string, error)
}

// Reader reads events. store satisfies it.
type Reader interface {
	Events(ctx context.Context, who relay.Actor, f relay.Filter) (relay.Page, error)
	Event(ctx context.Context, who relay.Actor, id relay.ID, maxBody int) (*relay.Event, error)
}

// Replayer sends events again. delivery satisfies it.
type Replayer interface {
	// Replay asks for a new attempt and waits up to wait for its end. The event is
	// as it stands then; n is the number of the new attempt.
	Replay(ctx context.Context, who relay.Actor, id relay.ID, wait time.Duration) (e *relay.Event, n int, err error)
	// Release lets the inbound events queued while offline go out; says how many.
	Release(ctx context.Context, who relay.Actor, alias string) (int, error)
}
