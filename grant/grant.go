// Package grant creates shares, tokens, keys and invitations, and replays shared events. The API and the
// dashboard read the request and show the result; this package has the checks and the limits, and their
// order. A request that the checks refuse does not count against a limit.
package grant

import (
	"context"
	"errors"
	"slices"
	"time"
	"unicode/utf8"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/record"
)

// InviteLifetime is the time for which an invitation is valid.
const InviteLifetime = 3 * 24 * time.Hour

// MaxTokenName is the maximum length of the name of a token, in characters.
const MaxTokenName = 100

// maxLifetime bounds the lifetime of a share or a token.
const maxLifetime = 100 * 365 * 24 * time.Hour

// Limits counts the creation and use of shares, tokens and other credentials. The errors are *relay.Error
// with code rate-limited.
type Limits interface {
	// Create counts a login, link, share, token or key that an account creates.
	Create(who relay.Actor) error
	// ShareReplay counts a replay with the share that has this id.
	ShareReplay(share string) error
	// LookUpSecret calls the function look, which looks up a secret and returns ErrNotFound if it is wrong. If
	// the client at the address remote (host:port) has sent too many wrong secrets lately, LookUpSecret refuses
	// instead.
	LookUpSecret(remote, secret string, look func() error) error
}

// Grants creates shares, tokens and invitations, and replays shared events. It holds no state and is safe for
// concurrent use.
type Grants struct {
	Accounts relay.Accounts
	Events   relay.Events
	Limits   Limits
}

// Expiry returns the end of a lifetime that begins now. lifetime is a text such as 12h or 7d; ok is
// false if it is invalid.
func Expiry(lifetime string) (at time.Time, ok bool) {
	d, err := relay.ParseDuration(lifetime)
	if err != nil || d <= 0 || d > maxLifetime {
		return time.Time{}, false
	}
	return time.Now().Add(d), true
}

// Replayable returns the reason why an event cannot be replayed, or nil. Call it before the replay is counted
// against a limit.
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

// CreateShare creates a share; only this call returns its secret. If the event cannot be replayed, it
// refuses a share without View, because such a share would allow nothing.
func (g Grants) CreateShare(ctx context.Context, who relay.Actor, want ShareRequest) (share relay.Share, secret string, err error) {
	e, err := g.Events.Request(ctx, who, want.Event, 0)
	if err != nil {
		return share, "", err
	}
	if refused := Replayable(e); refused != nil && !want.View {
		refused.Detail += `; a share with "view":true can still show it`
		return share, "", refused
	}
	if err := g.Limits.Create(who); err != nil {
		return share, "", err
	}
	return g.Accounts.CreateShare(ctx, who, want.Event, relay.Share{View: want.View, OneUse: want.OneUse, ExpiresAt: want.ExpiresAt})
}

// Held is a share as the holder of its secret sees it.
type Held struct {
	Actor  relay.Actor
	Share  relay.Share
	Secret string
	Event  *relay.Event // contains only data that the holder may see
}

// HeldRequest is a request of the holder of a share, with the secret of the share.
type HeldRequest struct {
	Remote  string // host:port of the holder
	Secret  string
	MaxBody int // largest number of bytes to read of each body; a share without View shows no bodies
}

// CurrentShare looks up a share; this does not count as a use. The error is ErrNotFound for unknown,
// expired and revoked shares alike.
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

// ReplayShared replays a shared event. It counts the replay against the limit of replays with this share, and
// then counts a use of the share. If replay returns an error which shows that no replay was begun, the use is
// taken back.
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
	Scopes    []string  // none = all scopes of the actor
	Alias     string    // "" = all aliases of the account
	ExpiresAt time.Time // zero = never
	Renew     bool      // the lifetime counts from the last use of the token
}

// CreateToken creates a token; only this call returns its secret.
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
	if want.Alias != "" {
		// The error for an unknown alias takes precedence over that of the limit. CreateToken reports all others.
		if _, err := g.Accounts.Alias(ctx, who, want.Alias); errors.Is(err, relay.ErrNotFound) {
			return token, "", err
		}
	}
	if err := g.Limits.Create(who); err != nil {
		return token, "", err
	}
	return g.Accounts.CreateToken(ctx, who, t)
}

// AddKey registers a public key, which is one line as in authorized_keys, for the account of the actor. A line
// that is no key, and a key that the account has already, are refused in any case, so they do not count.
func (g Grants) AddKey(ctx context.Context, who relay.Actor, name, line string) (relay.Key, error) {
	public, _, _, _, fault := ssh.ParseAuthorizedKey(record.DecodeText([]byte(line)))
	refused := fault != nil
	if !refused {
		keys, err := g.Accounts.Keys(ctx, who, who.AccountName)
		if err != nil {
			return relay.Key{}, err
		}
		fingerprint := ssh.FingerprintSHA256(public)
		refused = slices.ContainsFunc(keys, func(k relay.Key) bool { return k.Fingerprint == fingerprint })
	}
	if !refused {
		if err := g.Limits.Create(who); err != nil {
			return relay.Key{}, err
		}
	}
	return g.Accounts.AddKey(ctx, who, who.AccountName, name, line)
}

// invalid returns the error for one field of a request.
func invalid(field, message string) error {
	return &relay.Error{
		Code: relay.CodeValidationFailed, Detail: "body." + field + ": " + message,
		Fields: []relay.FieldError{{Location: "body." + field, Message: message}},
	}
}

// CreateInvite creates a link with which one user may add a key to an account; only this call returns its
// secret. The error is ErrNotFound if there is no such account.
func (g Grants) CreateInvite(ctx context.Context, who relay.Actor, user string) (secret string, expires time.Time, err error) {
	all, err := g.Accounts.Accounts(ctx, who)
	if err == nil && !slices.ContainsFunc(all, func(a relay.Account) bool { return a.Name == user }) {
		err = relay.ErrNotFound
	}
	if err != nil {
		return "", expires, err
	}
	if err := g.Limits.Create(who); err != nil {
		return "", expires, err
	}
	expires = time.Now().Add(InviteLifetime)
	secret, err = g.Accounts.CreateInvite(ctx, who, user, InviteLifetime)
	return secret, expires, err
}
