package people

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
)

// NewSecret returns prefix followed by 43 characters that encode 32 random bytes. It begins with no -, because a person
// pastes it behind a command, such as relayd share rm, which would take it for a flag.
func NewSecret(prefix string) string {
	var b [32]byte
	for {
		_, _ = rand.Read(b[:]) // never fails
		if secret := prefix + base64.RawURLEncoding.EncodeToString(b[:]); secret[0] != '-' {
			return secret
		}
	}
}

// NewName returns a short random id for a row, such as tok_….
func NewName(prefix string) string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails; a duplicate would violate the primary key
	return prefix + base64.RawURLEncoding.EncodeToString(b[:])
}

// Hash returns the stored hash of a secret.
func Hash(secret string) []byte {
	h := sha256.Sum256([]byte(secret))
	return h[:]
}
