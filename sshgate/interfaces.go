package sshgate

import (
	"context"

	"relay"
	"relay/sshgate/shell"
)

// Attacher is where tunnels are announced. delivery satisfies it.
type Attacher interface {
	shell.Tunnels
	// Attach makes t the tunnel of the alias at once. A tunnel that had it before
	// is told Close("taken over by a newer connection").
	Attach(a *relay.Alias, t relay.Tunnel) relay.Attachment
}

// Accounts is who may come in and what they own. store satisfies it.
type Accounts interface {
	shell.Accounts
	// KeyOwner returns the actor (kind ssh) of a registered key; ErrNotFound.
	KeyOwner(ctx context.Context, fingerprint string) (relay.Actor, error)
	// ClaimAlias gives an alias that the actor may attach: its own, one it is a
	// member of, or a free valid name, which it claims when claiming is on.
	// ErrNotFound in the same words for foreign and for unknown with claiming off;
	// validation-failed for invalid and reserved names; conflict for a full quota.
	ClaimAlias(ctx context.Context, who relay.Actor, name string) (*relay.Alias, error)
	// NoteLogin keeps in the audit log that somebody came in by a proven key from the
	// address remote. It never blocks.
	NoteLogin(who relay.Actor, remote string)
	// NoteRefusedForward keeps for the dashboard that a remote forward was refused to an
	// account, and NoteAllowedForward forgets those of a bind address. They never block.
	NoteRefusedForward(account int64, x relay.RefusedForward)
	NoteAllowedForward(account int64, bind string)
	// Revoked gives those of the rights that do not stand any more.
	Revoked(ctx context.Context, rights []relay.Right) ([]relay.Right, error)
	// StillValid is nil while the actor's credential stands.
	StillValid(ctx context.Context, who relay.Actor) error
	// AddKey registers a public key, one authorized_keys line, for the account user
	// ("" = the actor's own); conflict when anybody has it.
	AddKey(ctx context.Context, who relay.Actor, user, name, authorizedKey string) (relay.Key, error)
	// AddEnrolment makes a proven key wait until a person approves it by link and code.
	AddEnrolment(ctx context.Context, e relay.Enrolment) (link, code string, err error)
	// EndEnrolment ends an enrolment, unless how is "" or it has ended, and returns how it
	// ended; "" = it waits.
	EndEnrolment(ctx context.Context, link, how string) (ended string, err error)
	// TokenOwner gives the actor of an API token; ErrNotFound for unknown and expired ones.
	TokenOwner(ctx context.Context, secret string) (relay.Actor, error)
}

// noLimits are Limits that let everything through.
type noLimits struct{}

func (noLimits) Create(relay.Actor) error { return nil }
func (noLimits) Replay(relay.Actor) error { return nil }
