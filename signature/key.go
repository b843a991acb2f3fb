package signature

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"hash"
	"io"
	"strings"
)

// key is a secret in the form that its scheme needs to compute a signature.
type key struct {
	secret  string // secret as the user gave it
	raw     []byte
	ed25519 ed25519.PublicKey
	ecdsa   *ecdsa.PublicKey
}

// read reads a secret in the form that its scheme expects. The error describes the mistake and never
// contains a part of the secret.
func (k Key) read(secret string) (key, error) {
	out := key{secret: secret}
	if secret == "" {
		return out, errors.New("the secret is empty")
	}
	var err error
	switch k {
	case KeyBase64:
		out.raw, err = fromBase64(secret, "the secret is not base64")
	case Whsec:
		_, encoded, prefixed := strings.Cut(secret, "_")
		if !prefixed {
			encoded = secret
		}
		out.raw, err = fromBase64(encoded, "the secret is not base64 behind whsec_")
	case KeyHex:
		if out.raw, err = hex.DecodeString(secret); err != nil {
			err = errors.New("the secret is not hex")
		}
	case PublicHex:
		raw, decodeErr := hex.DecodeString(secret)
		if decodeErr != nil || len(raw) != ed25519.PublicKeySize {
			return out, errors.New("the key is not the hex of an Ed25519 public key (64 digits)")
		}
		out.ed25519 = raw
	case PublicDER:
		out.ecdsa, err = readECDSA(secret)
	default:
		out.raw = []byte(secret)
	}
	return out, err
}

// isWhsecKey reports whether a text looks like a key of Standard Webhooks: it begins with whsec_, or is the base64 of
// 32 bytes, with any prefix or none.
func isWhsecKey(secret string) bool {
	if strings.HasPrefix(secret, "whsec_") {
		return true
	}
	k, err := Whsec.read(secret)
	return err == nil && len(k.raw) == 32
}

func fromBase64(text, fault string) ([]byte, error) {
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		raw, err = base64.RawStdEncoding.DecodeString(text)
	}
	if err != nil || len(raw) == 0 {
		return nil, errors.New(fault)
	}
	return raw, nil
}

// readECDSA reads the public key of SendGrid: its DER form in base64, with or without PEM lines around it.
func readECDSA(secret string) (*ecdsa.PublicKey, error) {
	fault := errors.New("the key is not the base64 of an ECDSA public key on the curve P-256")
	der, err := base64.StdEncoding.DecodeString(secret)
	if block, _ := pem.Decode([]byte(secret)); block != nil {
		der, err = block.Bytes, nil
	}
	if err != nil {
		return nil, fault
	}
	parsed, err := x509.ParsePKIXPublicKey(der)
	public, ok := parsed.(*ecdsa.PublicKey)
	if err != nil || !ok || public.Curve != elliptic.P256() {
		return nil, fault
	}
	return public, nil
}

// mac returns the hash to which the signed bytes are written, for schemes that sign with the secret.
func (s *Scheme) mac(k key) hash.Hash {
	switch s.Digest {
	case HMACSHA1:
		return hmac.New(sha1.New, k.raw)
	case HMACSHA512:
		return hmac.New(sha512.New, k.raw)
	case PlainSHA256:
		return sha256.New()
	default:
		return hmac.New(sha256.New, k.raw)
	}
}

// digest returns the text that a sender with this key would have sent as the signature.
func (s *Scheme) digest(k key, r *Request, got *reading) string {
	if s.Digest == Equal {
		return k.secret
	}
	mac := s.mac(k)
	s.write(mac, r, got, k.secret)
	return s.Form.encode(mac.Sum(nil))
}

// write writes the signed bytes to w. Only the plain hashes of HubSpot include the secret.
func (s *Scheme) write(w io.Writer, r *Request, got *reading, secret string) {
	if s.own != nil && s.own.write != nil {
		s.own.write(w, r, got)
		return
	}
	for text := s.Signed; text != ""; {
		literal, rest, found := strings.Cut(text, "{")
		_, _ = io.WriteString(w, literal)
		if !found {
			return
		}
		var name string
		name, text, _ = strings.Cut(rest, "}")
		switch name {
		case "b":
			_, _ = w.Write(r.Body)
		case "t":
			_, _ = io.WriteString(w, got.time)
		case "id":
			_, _ = io.WriteString(w, got.id)
		case "method":
			_, _ = io.WriteString(w, r.Method)
		case "url":
			_, _ = io.WriteString(w, r.URL)
		case "form":
			if !writeForm(w, r.Body, false) {
				_, _ = w.Write(r.Body) // the signed text covers the body even if it is not a form
			}
		case "secret":
			_, _ = io.WriteString(w, secret)
		}
	}
}

// fits reports whether one of the signatures in got was made with the key k.
func (s *Scheme) fits(k key, r *Request, got *reading) bool {
	if s.own != nil && s.own.fits != nil {
		return s.own.fits(s, k, r, got)
	}
	switch s.Digest {
	case Ed25519, ECDSA:
		return s.verified(k, r, got)
	}
	want := []byte(s.digest(k, r, got))
	fit := 0
	for _, digest := range got.digests { // all digests are compared, so that the time reveals nothing
		if s.Form == Hex && !s.SendsSecret() { // some libraries write hexadecimal digits in capitals
			digest = strings.ToLower(digest)
		}
		fit |= subtle.ConstantTimeCompare(want, []byte(digest))
	}
	return fit == 1
}

func (s *Scheme) verified(k key, r *Request, got *reading) bool {
	var signed strings.Builder
	s.write(&signed, r, got, "")
	for _, digest := range got.digests {
		raw, err := s.Form.decode(digest)
		switch {
		case err != nil:
		case k.ed25519 != nil && ed25519.Verify(k.ed25519, []byte(signed.String()), raw):
			return true
		case k.ecdsa != nil:
			sum := sha256.Sum256([]byte(signed.String()))
			if ecdsa.VerifyASN1(k.ecdsa, sum[:], raw) {
				return true
			}
		}
	}
	return false
}
