package relay

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// MaxSecrets is the largest number of secrets of senders of an alias.
const MaxSecrets = 20

// SenderSecret describes a secret with which a sender signs, without its value.
type SenderSecret struct {
	ID          string // sec_…
	Provider    string
	Custom      string // JSON of the scheme if Provider is custom; else ""
	Path        string // prefix of the request targets that the secret is for; "" = all
	Sign        bool   // the relay may also sign new requests with it, not only verify received ones
	CreatedAt   time.Time
	CreatedBy   string
	LastValidAt time.Time // last time at which the secret verified a request; zero = never
}

// SecretText is the value of a secret. Formatting and encoding it gives a placeholder; only Reveal
// returns the value.
type SecretText struct{ text string }

const hiddenSecret = "[secret]"

// NewSecretText returns the SecretText for a value.
func NewSecretText(value string) SecretText { return SecretText{value} }

// Reveal returns the value. Use it only to compute a signature or digest.
func (s SecretText) Reveal() string { return s.text }

// Format writes a placeholder, whatever the verb.
func (s SecretText) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(hiddenSecret)) }

// MarshalText returns a placeholder.
func (s SecretText) MarshalText() ([]byte, error) { return []byte(hiddenSecret), nil }

// OpenSecret is a secret of a sender with its value, or without the value if no key of this node
// decrypts it.
type OpenSecret struct {
	SenderSecret
	Value  SecretText
	Sealed bool // no key of this node decrypts the value
}

// OpenSecrets are the secrets of one alias.
type OpenSecrets []OpenSecret

// For returns the secrets that can verify a request of a sender: those with the longest path that is a prefix
// of target. If several secrets have that path, each of them may be the right one.
func (list OpenSecrets) For(provider, target string) OpenSecrets {
	var out OpenSecrets
	longest := 0
	for _, s := range list {
		if s.Provider != provider || !strings.HasPrefix(target, s.Path) || len(s.Path) < longest {
			continue
		}
		if len(s.Path) > longest {
			longest, out = len(s.Path), nil
		}
		out = append(out, s)
	}
	return out
}

// Secrets has the methods of the store about the secrets of senders that the API and the
// dashboard need.
type Secrets interface {
	// Secrets lists the secrets of an alias, for its owner and members.
	Secrets(ctx context.Context, who Actor, alias string) ([]SenderSecret, error)
	// AddSecret encrypts and stores a secret, for the owner of the alias. It uses Provider, Custom, Path
	// and Sign of s. Errors: validation-failed, conflict, secret-unavailable.
	AddSecret(ctx context.Context, who Actor, alias string, s SenderSecret, value SecretText) (SenderSecret, error)
	RemoveSecret(ctx context.Context, who Actor, alias, id string) error
	// OpenSecrets decrypts all secrets of an alias, the oldest first. It checks no rights: call it only
	// for events and aliases that the actor may see.
	OpenSecrets(ctx context.Context, alias int64) (OpenSecrets, error)
	// StoreSignature replaces the stored verdict on the signature of an event that the actor may read.
	StoreSignature(ctx context.Context, who Actor, id ID, judged *Signature) error
}

// SecretOpener decrypts secrets of senders. Package store implements it.
type SecretOpener interface {
	// OpenSecrets decrypts all secrets of an alias, the oldest first. It checks no rights.
	OpenSecrets(ctx context.Context, alias int64) (OpenSecrets, error)
	// SigningSecret decrypts a secret with which a request of a provider may be signed (Sign is set): the one
	// with the given id or, for the id "", the best of those whose path is a prefix of target. Secrets for which
	// fits returns true come first, then secrets with longer paths, then newer secrets. Errors:
	// no-signing-secret, secret-unavailable.
	SigningSecret(ctx context.Context, alias int64, provider, target, id string, fits func(secret string) bool) (OpenSecret, error)
	// NoteSigned notes in the audit log that a secret of an alias has signed a request.
	NoteSigned(ctx context.Context, who Actor, alias int64, s SenderSecret) error
}
