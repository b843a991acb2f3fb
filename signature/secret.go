package signature

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// MaxSecret bounds a secret, in bytes.
const MaxSecret = 10_000

// notSecrets are the beginnings of keys that users enter by mistake in place of a secret.
var notSecrets = []struct{ prefix, what string }{
	{"whpk_", "a public key of Standard Webhooks; enter the secret, which begins with whsec_"},
	{"pk_live_", "a publishable key of the Stripe API; enter the signing secret of the endpoint, which begins with whsec_"},
	{"pk_test_", "a publishable key of the Stripe API; enter the signing secret of the endpoint, which begins with whsec_"},
	{"-----BEGIN PUBLIC KEY", "a public key; enter the secret that you share with the sender"},
	{"ssh-", "a public key of SSH; enter the secret that you share with the sender"},
}

// apiKeys are the beginnings of keys for the Stripe API, which do not sign webhooks.
var apiKeys = []string{"sk_live_", "sk_test_", "rk_live_", "rk_test_"}

// CheckSecret returns an error if a secret cannot belong to the sender with the given name in the table. Call it
// before the secret is stored. The error never contains a part of the secret.
func CheckSecret(sender, secret string) error { return checkSecret(sender, schemesOf(sender), secret) }

// CheckSecret is the function CheckSecret for a sender that is not in the table.
func (p *Sender) CheckSecret(secret string) error {
	return checkSecret(p.Name, []*Scheme{&p.Schemes[0]}, secret)
}

func checkSecret(sender string, schemes []*Scheme, secret string) error {
	switch {
	case secret == "":
		return errors.New("the secret is empty")
	case len(secret) > MaxSecret:
		return fmt.Errorf("the secret is longer than %d bytes", MaxSecret)
	case strings.TrimSpace(secret) != secret:
		return errors.New("there is a space or a line break at an end of the secret; remove it")
	case strings.ContainsRune(secret, 0):
		return errors.New("the secret holds a NUL byte")
	}
	err := fmt.Errorf("%s signs nothing that a secret could be stored for", sender)
	for _, s := range schemes {
		if err = s.checkSecret(sender, secret); err == nil {
			return nil
		}
	}
	return err
}

// schemesOf lists the schemes of a sender that can be verified with a secret or a public key.
func schemesOf(sender string) (list []*Scheme) {
	for i := range Senders {
		if p := &Senders[i]; p.Name == sender {
			for n := range p.Schemes {
				if p.Schemes[n].Digest != Network {
					list = append(list, &p.Schemes[n])
				}
			}
		}
	}
	return list
}

// SignsAny reports whether a secret of the sender can sign requests of that sender.
func SignsAny(sender string) bool {
	for _, s := range schemesOf(sender) {
		if can := s.CanSign(); can != SignKeyPair && can != SignNo {
			return true
		}
	}
	return false
}

func (s *Scheme) checkSecret(sender, secret string) error {
	if s.Key != PublicHex && s.Key != PublicDER {
		for _, n := range notSecrets {
			if strings.HasPrefix(secret, n.prefix) {
				return errors.New("this is " + n.what)
			}
		}
		for _, prefix := range apiKeys {
			if sender == "stripe" && strings.HasPrefix(secret, prefix) {
				return errors.New("this is a key of the Stripe API; enter the signing secret of the endpoint, which begins with whsec_")
			}
		}
		if raw, err := base64.StdEncoding.DecodeString(secret); err == nil && strings.HasPrefix(string(raw), "-----BEGIN PUBLIC KEY") {
			return errors.New("this is a public key; enter the secret that you share with the sender")
		}
	}
	_, err := s.Key.read(secret)
	return err
}
