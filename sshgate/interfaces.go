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
	// KeyOwner returns the actor (kind ssh) of a registered key; ErrNotFound.
	KeyOwner(ctx context.Context, fingerprint string) (relay.Actor, error)
	// ClaimAlias gives an alias that the actor may attach: its own, one it is a
	// member of, or a free valid name, which it claims when claiming is on.
	// ErrNotFound in the same words for foreign and for unknown with claiming off;
	// validation-failed for invalid and reserved names; conflict for a full quota.
	ClaimAlias(ctx context.Context, who relay.Actor, name string) (*relay.Alias, error)
	Aliases(ctx context.Context, who relay.Actor) ([]relay.Alias, error)
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
	Keys(ctx context.Context, who relay.Actor, user string) ([]relay.Key, error)
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
	CreateLoginLink(ctx context.Context, who relay.Actor, user string, ttl time.Duration) (secret string, err error)
	CreateShare(ctx context.Context, who relay.Actor, id relay.ID, want relay.Share) (relay.Share, string, error)
	// CreateToken makes an API token of the actor's account with t's Name; without
	// scopes it may do what the actor may. The secret is given once.
	CreateToken(ctx context.Context, who relay.Actor, t relay.Token) (made relay.Token, secret string, err error)
}

// Reader reads events. store satisfies it.
type Reader interface {
	Events(ctx context.Context, who relay.Actor, f relay.Filter) (relay.Page, error)
	// Matches reports whether the filter selects one event; it reads bodies where needed.
	Matches(ctx context.Context, who relay.Actor, id relay.ID, f relay.Filter) (bool, error)
	Event(ctx context.Context, who relay.Actor, id relay.ID, maxBody int) (*relay.Event, error)
	// BodyPart reads part i of the request body (n = 0) or of the response body of
	// attempt n. Only after Event let the actor in.
	BodyPart(ctx context.Context, id relay.ID, n, i int) ([]byte, error)
}

// Replayer sends events again. delivery satisfies it.
type Replayer interface {
	// Replay asks for a new attempt and waits up to wait for its end. The event is
	// as it stands then; n is the number of the new attempt.
	Replay(ctx context.Context, who relay.Actor, id relay.ID, wait time.Duration) (e *relay.Event, n int, err error)
	// Release lets the inbound events queued while offline go out; says how many.
	Release(ctx context.Context, who relay.Actor, alias string) (int, error)
}

// Limits count what people do, together with the other fronts. Both give rate-limited
// when there was too much of it lately. api's satisfies it.
type Limits interface {
	// Create counts a login, share, token or key that the actor's account makes.
	Create(who relay.Actor) error
	// Replay counts a replay or release by the actor's credential.
	Replay(who relay.Actor) error
}

// noLimits are Limits that let everything through.
type noLimits struct{}

func (noLimits) Create(relay.Actor) error { return nil }
func (noLimits) Replay(relay.Actor) error { return nil }
