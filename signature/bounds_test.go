package signature

import (
	"encoding/base64"
	"strings"
	"testing"
)

// A text is a well-formed digest only if it has exactly the length of the scheme's digest.
func TestLengthsOfDigests(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		digest Digest
		length int
	}{"SHA-256": {HMACSHA256, 32}, "plain SHA-256": {PlainSHA256, 32}, "SHA-1": {HMACSHA1, 20}, "Ed25519": {Ed25519, 64}} {
		for _, form := range []Form{Hex, Base64, Base64URL} {
			s := Scheme{Digest: c.digest, Form: form}
			for more := -1; more <= 1; more++ {
				if got := s.wellFormed(form.encode(make([]byte, c.length+more))); got != (more == 0) {
					t.Errorf("%s of %d bytes is well-formed: %v", name, c.length+more, got)
				}
			}
		}
	}
}

// While a sender changes its secret, it signs with both secrets: a request is valid if one of its
// signatures is valid.
func TestSeveralSignaturesOfARequest(t *testing.T) {
	t.Parallel()
	other := map[Form]string{Hex: strings.Repeat("ab", 32), Base64: base64.StdEncoding.EncodeToString(make([]byte, 32))}
	for _, c := range []struct{ sender, joint string }{{"stripe", ","}, {"standard-webhooks", " "}} {
		s := &Find(c.sender, nil).Schemes[0]
		r := requestOf(s)
		changes, err := Sign(s, secretOf(s), r.request(), testNow)
		if err != nil {
			t.Fatal(err)
		}
		last := &changes.Lines[len(changes.Lines)-1]
		good := last.Value[strings.LastIndex(last.Value, "v1"):]
		before := strings.TrimSuffix(last.Value, good)
		bad := good[:3] + other[s.Form]
		for _, list := range [][]string{{good, bad}, {bad, good}, {bad, good, bad}, {good, good}} {
			last.Value = before + strings.Join(list, c.joint)
			if v := Verify(s, []Secret{{Value: secretOf(s)}}, apply(r, changes).request(), testNow); v.Verdict != Valid {
				t.Errorf("%s with %s: %+v", c.sender, last.Value, v)
			}
		}
		last.Value = before + bad + c.joint + bad
		if v := Verify(s, []Secret{{Value: secretOf(s)}}, apply(r, changes).request(), testNow); v.Reason != WrongSecret {
			t.Errorf("%s with two that do not fit: %+v", c.sender, v)
		}
	}
}

// A text that cannot be a secret is refused, and the error does not contain the text.
func TestCheckSecret(t *testing.T) {
	t.Parallel()
	whsec := "whsec_" + base64.StdEncoding.EncodeToString([]byte("a secret of 24 bytes....."))
	pem := "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA\n-----END PUBLIC KEY-----"
	for name, c := range map[string]struct {
		sender, secret string
		ok             bool
	}{
		"as it is":                   {"github", "a secret", true},
		"of Stripe":                  {"stripe", "whsec_abc", true},
		"of Standard Webhooks":       {"standard-webhooks", whsec, true},
		"empty":                      {"github", "", false},
		"as long as may be":          {"github", strings.Repeat("x", MaxSecret), true},
		"too long":                   {"github", strings.Repeat("x", MaxSecret+1), false},
		"line break at the end":      {"github", "a secret\n", false},
		"space at the beginning":     {"github", " a secret", false},
		"NUL":                        {"github", "a\x00secret", false},
		"publishable key":            {"stripe", "pk_live_51secret", false},
		"publishable key, test":      {"stripe", "pk_test_51secret", false},
		"key of the API":             {"stripe", "sk_live_51secret", false},
		"restricted key of the API":  {"stripe", "rk_test_51secret", false},
		"such a key of another":      {"github", "sk_live_51secret", true},
		"public key of the standard": {"standard-webhooks", "whpk_" + whsec[6:], false},
		"public key":                 {"github", pem, false},
		"public key in base64":       {"github", base64.StdEncoding.EncodeToString([]byte(pem)), false},
		"public key of SSH":          {"github", "ssh-ed25519 AAAAsecret", false},
		"not base64":                 {"standard-webhooks", "whsec_%%%secret", false},
		"not hex":                    {"adyen", "secret, not hex", false},
		"no key of Ed25519":          {"discord", "abcdsecret", false},
		"keeps none":                 {"paypal", "hunter22", false},
		"not known":                  {"nobody", "hunter22", false},
	} {
		err := CheckSecret(c.sender, c.secret)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && c.secret != "" && strings.Contains(err.Error(), strings.TrimSpace(c.secret)) {
			t.Errorf("%s: the error has the secret: %v", name, err)
		}
	}
}

// For a body of up to 1 MiB, Explain tries common mistakes. For a larger body it tries none.
func TestLargestBodyThatIsTried(t *testing.T) {
	t.Parallel()
	stripe := Find("stripe", nil)
	for more := range 2 {
		r := &message{Method: "POST", URL: testURL, Body: make([]byte, 1<<20+more)}
		changes, err := Sign(&stripe.Schemes[0], "whsec_abc", r.request(), testNow)
		if err != nil {
			t.Fatal(err)
		}
		got := Explain(stripe, []Secret{{Value: " whsec_abc"}}, nil, apply(r, changes).request(), testNow)
		if tried := len(got.Tried) > 0; tried != (more == 0) || (got.Reason == SecretWhitespace) != tried {
			t.Errorf("%d bytes: %s, tried %q", len(r.Body), got.Reason, got.Tried)
		}
	}
}
