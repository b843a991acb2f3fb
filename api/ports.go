package api

import (
	"context"

	"relay"
)

// Deliverer replays, releases and cancels events. Package delivery implements it.
type Deliverer = relay.Deliverer

// Events reads and removes events. Package store implements it.
type Events = relay.Events

// Nodes lists the relayd processes that serve the store, and their tunnels. Package store implements
// it.
type Nodes interface {
	Nodes(ctx context.Context) ([]relay.Node, error)
	// Tunnels lists the tunnels of the aliases that the actor may see; admins see all tunnels.
	Tunnels(ctx context.Context, who relay.Actor) ([]relay.TunnelRecord, error)
	// CloseTunnel asks the node of a tunnel to close the tunnel. The error is ErrNotFound if the actor sees
	// no such tunnel.
	CloseTunnel(ctx context.Context, who relay.Actor, id string) error
}

// Accounts stores accounts, credentials and rights. Package store implements it.
type Accounts interface {
	relay.Accounts
	// TokenOwner returns the actor of an API token's secret. The error is ErrNotFound if there is no such
	// token.
	TokenOwner(ctx context.Context, secret string) (relay.Actor, error)
	// StillValid returns nil while the actor's credential is valid, and ErrNotFound afterwards.
	StillValid(ctx context.Context, who relay.Actor) error
	// BeginIdempotent remembers an Idempotency-Key of a credential. It returns the stored answer of the same
	// key and target, the error conflict while the first call is still running, and validation-failed for
	// another target. For the first call it returns (0, nil, nil).
	BeginIdempotent(ctx context.Context, who relay.Actor, key, target string) (status int, body []byte, err error)
	EndIdempotent(ctx context.Context, who relay.Actor, key string, status int, body []byte) error
}
