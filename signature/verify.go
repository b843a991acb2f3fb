package signature

import (
	"fmt"
	"strings"
	"time"
)

// The verdicts. Valid and Expired mean that a secret matches; with Expired the signed time is too old.
const (
	Valid     = "valid"
	Expired   = "expired"
	Invalid   = "invalid"
	Missing   = "missing"
	Unchecked = "unchecked"
)

// The reasons of verdicts. Only Explain returns those that are listed below SecretEncoding, because only it tries
// common mistakes. Verify returns SecretEncoding only if its single secret cannot be read.
const (
	OK              = "ok"
	NoSecret        = "no-secret"
	KeyNotLocal     = "key-not-local"
	SecretSealed    = "secret-sealed"
	BodyIncomplete  = "body-incomplete"
	TooLarge        = "too-large"
	TimeTooOld      = "time-too-old"
	TimeInFuture    = "time-in-future"
	TimeMalformed   = "time-malformed"
	HeaderMissing   = "header-missing"
	HeaderMalformed = "header-malformed"
	VersionUnknown  = "version-unknown"
	WrongSecret     = "wrong-secret"

	SecretEncoding   = "secret-encoding"
	SecretWhitespace = "secret-whitespace"
	SecretOfOther    = "secret-of-other"
	BodyRewritten    = "body-rewritten"
	URLDiffers       = "url-differs"
	OtherScheme      = "other-scheme"
)

// Secret is a secret of a sender, with which Relay verifies signatures.
type Secret struct {
	ID    string // "" = a secret that is given for this call
	Value string
}

// Verdict is the result of a signature check.
type Verdict struct {
	Verdict  string    `json:"verdict" enum:"valid,expired,invalid,missing,unchecked"`
	Reason   string    `json:"reason"`
	Message  string    `json:"message"`
	SignedAt time.Time `json:"-"` // zero = no plausible time
	SecretID string    `json:"-"` // id of the secret that matches
}

// Verify verifies a request as of the given time. It computes one digest for each secret.
func Verify(s *Scheme, secrets []Secret, r *Request, at time.Time) Verdict {
	got := s.read(r)
	return s.judge(&got, secrets, r, at)
}

func (s *Scheme) judge(got *reading, secrets []Secret, r *Request, at time.Time) Verdict {
	v := Verdict{Verdict: Invalid}
	signed, timeErr := s.Unit.read(got.time)
	if timeErr == nil && s.timed() {
		v.SignedAt = signed
	}
	switch {
	case !got.present:
		v.Verdict, v.Reason = Missing, HeaderMissing
		v.Message = "the request has no " + s.place() + ", so it is not signed"
		return v
	case got.fault == unknownVersion:
		v.Reason = VersionUnknown
		v.Message = fmt.Sprintf("%s has no signature of the version that is checked, but %q", got.header, shortText(got.others[0]))
		return v
	case got.fault != "":
		v.Reason, v.Message = HeaderMalformed, s.place()+": "+got.fault
		return v
	case s.timed() && (s.Old > 0 || got.time == "") && timeErr != nil:
		v.Reason = TimeMalformed
		v.Message = fmt.Sprintf("the signed time %q cannot be read", shortText(got.time))
		if got.time == "" {
			v.Message = "the time that is signed is missing"
		}
		return v
	case s.Digest == Network:
		v.Verdict, v.Reason = Unchecked, KeyNotLocal
		v.Message = "this signature is verified with a key from its sender's network, which the relay never fetches"
		return v
	case len(secrets) == 0:
		v.Verdict, v.Reason = Unchecked, NoSecret
		v.Message = "no secret is known for this sender"
		return v
	}
	fault := error(nil)
	for _, secret := range secrets {
		k, err := s.Key.read(secret.Value)
		if err != nil {
			fault = err
			continue
		}
		if s.fits(k, r, got) {
			v.SecretID = secret.ID
			s.judgeTime(&v, signed, at)
			return v
		}
	}
	v.Reason = WrongSecret
	v.Message = "the signature is in order, but was not made with this secret over these bytes"
	if fault != nil && len(secrets) == 1 {
		v.Reason, v.Message = SecretEncoding, fault.Error()
	}
	return v
}

// place names the header line or the part of the body that has the signature.
func (s *Scheme) place() string {
	if s.Header == "" {
		return "signature in its body"
	}
	return "line " + s.Header
}

// judgeTime completes the verdict on a matching signature: valid, or expired if the signed time is too far
// from the time at.
func (s *Scheme) judgeTime(v *Verdict, signed, at time.Time) {
	age := at.Sub(signed)
	v.Verdict, v.Reason, v.Message = Valid, OK, "the signature fits"
	switch {
	case v.SignedAt.IsZero():
	case s.Old > 0 && age > s.Old:
		v.Verdict, v.Reason = Expired, TimeTooOld
		v.Message = fmt.Sprintf("the signature fits, but was %s old when the request arrived; the sender's libraries refuse it after %s", ageText(age), ageText(s.Old))
	case s.Future > 0 && -age > s.Future:
		v.Verdict, v.Reason = Expired, TimeInFuture
		v.Message = fmt.Sprintf("the signature fits, but its time was %s ahead of the arrival; the sender's libraries refuse more than %s", ageText(-age), ageText(s.Future))
	}
}

// shortText shortens text of a request for a message.
func shortText(s string) string {
	if len(s) > 40 {
		return s[:40] + "…"
	}
	return s
}

// ageText returns an age in its two largest units.
func ageText(d time.Duration) string {
	seconds := int(d.Round(time.Second) / time.Second)
	units := []struct {
		size int
		name string
	}{{24 * 60 * 60, "d"}, {60 * 60, "h"}, {60, "min"}, {1, "s"}}
	var parts []string
	for _, u := range units {
		if n := seconds / u.size; n > 0 && len(parts) < 2 {
			parts = append(parts, fmt.Sprintf("%d %s", n, u.name))
		}
		seconds %= u.size
	}
	if len(parts) == 0 {
		return "0 s"
	}
	return strings.Join(parts, " ")
}
