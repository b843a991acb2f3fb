// Package grant makes what lets somebody else in: shares, tokens and invitations, and the replay of
// a shared event. The API and the dashboard read the request and show the outcome; the rules, what
// is counted and in which order are here, once.
package grant

import (
	"context"
	"time"
	"unicode/utf8"

	"relay"
	"relay/record"
)

// InviteLifetime is how long an invitation is good for.
const InviteLifetime = 3 * 24 * time.Hour

// MaxTokenName is how long the name of a token may be, in characters.
const MaxTokenName = 100

// maxLifetime bounds how long a share or a token is good for.
const maxLifetime = 100 * 365 * 24 * time.Hour

// Limits count what is made and used. The errors are *relay.Error with code rate-limited.
type Limits interface {
	// Create counts a login, link, share, token or key that an account makes.
	Create(who relay.Actor) error
	// ShareReplay counts a replay by a share, by its id.
	ShareReplay(share string) error
	// LookUpSecret calls look for a secret that remote (host:port) shows, unless too many
	// wrong ones came from there lately. look returns ErrNotFound for a wrong one.
	LookUpSecret(remote, secret string, look func() error) error
}

// Grants are for what they are made of. They hold no state and are safe for concurrent use.
type Grants struct {
	Accounts relay.Accounts
	Events   relay.Events
	Limits   Limits
}

// Expiry is when something ends whose lifetime is a text such as 12h or 7d; ok = the text is one.
func Expiry(lifetime string) (at time.Time, ok bool) {
	d, err := relay.ParseDuration(lifetime)
	if err != nil || d <= 0 || d > maxLifetime {
		return time.Time{}, false
	}
	return time.Now().Add(d), true
}

// Replayable refuses early, before anything is counted; nil = the event can be sent again.
func Replayable(e *relay.Event) *relay.Error {
	if e.Blocker == "" {
		return nil
	}
	refused := relay.Errorf(relay.CodeEventNotReplayable, "this event cannot be replayed: %s", record.BlockerText(e.Blocker))
	refused.Reason = e.Blocker
	return refused
}

// ShareRequest asks for a share of an event.
type ShareRequest struct {
	Event        relay.ID
	View, OneUse bool
	ExpiresAt    time.Time // zero = never
}

// CreateShare makes a share; its secret is told this once. A share that could do nothing is refused.
func (g Grants) CreateShare(ctx context.Context, who relay.Actor, want ShareRequest) (share relay.Share, secret string, err error) {
	if err := g.Limits.Create(who); err != nil {
		return share, "", err
	}
	e, err := g.Events.Request(ctx, who, want.Event, 0)
	if err != nil {
		return share, "", err
	}
	if refused := Replayable(e); refused != nil && !want.View {
		refused.Detail += `; a share with "view":true can still show it`
		return share, "", refused
	}
	return g.Accounts.CreateShare(ctx, who, want.Event, relay.Share{View: want.View, OneUse: want.OneUse, ExpiresAt: want.ExpiresAt})
}

// Held is a share that somebody holds.
type Held struct {
	Actor  relay.Actor
	Share  relay.Share
	Secret string
	Event  *relay.Event // with what the holder may see
}

// HeldRequest shows the secret of a share.
type HeldRequest struct {
	Remote  string // host:port that shows it
	Secret  string
	MaxBody int // bytes of each body to read, if the share shows bodies
}

// CurrentShare looks a share up; looking counts no use. ErrNotFound for unknown, expired and revoked
// alike.
func (g Grants) CurrentShare(ctx context.Context, want HeldRequest) (held Held, err error) {
	held.Secret = want.Secret
	err = g.Limits.LookUpSecret(want.Remote, want.Secret, func() (err error) {
		held.Actor, held.Share, err = g.Accounts.ShareActor(ctx, want.Secret, false)
		return err
	})
	if err != nil {
		return held, err
	}
	if !held.Share.View {
		want.MaxBody = 0
	}
	held.Event, err = record.ReadShared(ctx, g.Events, held.Actor, held.Actor.Shared, want.MaxBody)
	return held, err
}

// ReplayShared replays a shared event: it is counted against the limit first, then the share is used,
// and the use is given back where no replay was begun.
func (g Grants) ReplayShared(ctx context.Context, held Held, replay func(context.Context, relay.Actor, relay.ID) (*relay.Event, int, error)) (*relay.Event, int, error) {
	if refused := Replayable(held.Event); refused != nil {
		return nil, 0, refused
	}
	if err := g.Limits.ShareReplay(held.Share.ID); err != nil {
		return nil, 0, err
	}
	if _, _, err := g.Accounts.ShareActor(ctx, held.Secret, true); err != nil {
		return nil, 0, err
	}
	e, n, err := replay(ctx, held.Actor, held.Event.ID)
	if err != nil {
		_ = g.Accounts.ReturnShareUse(context.WithoutCancel(ctx), held.Share, err)
	}
	return e, n, err
}

// TokenRequest asks for a token of the actor's account.
type TokenRequest struct {
	Name      string
	Scopes    []string // none = those of the actor
	Alias     string   // "" = all of them
	ExpiresAt time.Time
	Renew     bool // the lifetime counts from the last use of the token
}

// CreateToken makes a token; its secret is told this once.
func (g Grants) CreateToken(ctx context.Context, who relay.Actor, want TokenRequest) (token relay.Token, secret string, err error) {
	t := relay.Token{
		Account: who.Account, AccountName: who.AccountName, Name: want.Name, Scopes: who.Scopes, Alias: want.Alias, ExpiresAt: want.ExpiresAt,
	}
	if fault := record.NameFault(want.Name); fault != "" {
		return token, "", invalid("name", fault)
	}
	if utf8.RuneCountInString(want.Name) > MaxTokenName {
		return token, "", invalid("name", "at most 100 characters")
	}
	if len(want.Scopes) > 0 {
		if t.Scopes, err = relay.ParseScopes(want.Scopes); err != nil {
			return token, "", invalid("scopes", relay.AsError(err).Detail)
		}
	}
	switch {
	case want.Renew && want.ExpiresAt.IsZero():
		return token, "", invalid("renew", "needs an expiresIn")
	case want.Renew && !who.ExpiresAt.IsZero():
		return token, "", relay.Errorf(relay.CodeForbidden, "a login or token that expires cannot make a token that is renewed")
	case want.Renew:
		t.Renewal = time.Until(want.ExpiresAt).Round(time.Second)
	}
	if err := g.Limits.Create(who); err != nil {
		return token, "", err
	}
	return g.Accounts.CreateToken(ctx, who, t)
}

// invalid is a mistake in one field of a request.
func invalid(field, message string) error {
	return &relay.Error{
		Code: relay.CodeValidationFailed, Detail: "body." + field + ": " + message,
		Fields: []relay.FieldError{{Location: "body." + field, Message: message}},
	}
}

// CreateInvite makes a link by which one person may add a key to an account; its secret is told this
// once. ErrNotFound where there is no such account.
func (g Grants) CreateInvite(ctx context.Context, who relay.Actor, user string) (secret string, expires time.Time, err error) {
	if err := g.Limits.Create(who); err != nil {
		return "", expires, err
	}
	expires = time.Now().Add(InviteLifetime)
	secret, err = g.Accounts.CreateInvite(ctx, who, user, InviteLifetime)
	return secret, expires, err
}
