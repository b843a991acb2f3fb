package signature

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
)

// GenerateSecret returns a new secret of 32 random bytes in the form that a sender expects; "" if the
// sender uses public keys or does not sign.
func GenerateSecret(sender string) string {
	var b [32]byte
	_, _ = rand.Read(b[:])    // never fails
	if sender == CustomName { // hexadecimal digits are valid as text, hex and base64
		return hex.EncodeToString(b[:])
	}
	for _, s := range schemesOf(sender) {
		switch s.Key {
		case PublicHex, PublicDER:
			continue
		case Whsec:
			return "whsec_" + base64.StdEncoding.EncodeToString(b[:])
		case KeyBase64:
			return base64.StdEncoding.EncodeToString(b[:])
		default:
			return hex.EncodeToString(b[:])
		}
	}
	return ""
}
