package dashboard

import (
	"context"

	"relay"
)

// Accounts is who is signed in and what they see. store satisfies it.
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
}

// Deliverer tells how aliases stand. delivery satisfies it.
type Deliverer interface {
	Status(ctx context.Context, aliases []relay.Alias) ([]relay.AliasStatus, error)
}
