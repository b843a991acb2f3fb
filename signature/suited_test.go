package signature

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestKeysAreNotSent: if a sender has a scheme that signs with a key and one that sends the secret, a secret
// that looks like a key is used to sign, and never sent. Any other secret is sent, unless the request has a
// signature that was made with a key.
func TestKeysAreNotSent(t *testing.T) {
	t.Parallel()
	raw := []byte(strings.Repeat("k", 32))
	std, short := base64.StdEncoding.EncodeToString(raw), base64.RawStdEncoding.EncodeToString(raw)
	secrets := map[string]bool{ // true if the secret is a key
		"whsec_" + std: true, "whsec_" + short: true, "whsec_c2hvcnQ=": true, "v1_" + std: true, std: true, short: true,
		"secret": false, "a-token_with_underscores": false, strings.Repeat("0123456789abcdef", 2): false, strings.Repeat("0123456789abcdef", 4): false,
	}
	lines := [][]Field{
		nil,
		{{"X-Gitlab-Event", "Push Hook"}},
		{{"X-Gitlab-Event", "Push Hook"}, {"X-Gitlab-Token", "x"}},
		{{"x-gitlab-token", ""}},
		{{"X-Gitlab-Event", "Push Hook"}, {"webhook-id", "1"}, {"webhook-timestamp", "1"}, {"webhook-signature", "v1,x"}},
		{{"X-Gitlab-Token", "x"}, {"webhook-signature", "v1,x"}},
	}
	tried := 0
	for i := range Senders {
		p := &Senders[i]
		if !slices.ContainsFunc(p.Schemes, func(s Scheme) bool { return s.SendsSecret() }) || !slices.ContainsFunc(p.Schemes, func(s Scheme) bool { return s.Key == Whsec }) {
			continue
		}
		for secret, isKey := range secrets {
			for _, of := range lines {
				r := &Request{Method: "POST", URL: "https://a.example", Body: []byte("{}"), Line: Lines(of)}
				s := p.Suited(p.SchemeOf(r), r, secret)
				byKey := slices.ContainsFunc(of, func(f Field) bool { return f.Name == "webhook-signature" })
				if s.SendsSecret() == (isKey || byKey) {
					t.Errorf("%s, %q, %v: the secret is sent: %v", p.Name, secret, of, s.SendsSecret())
				}
				tried++
				if !isKey {
					continue
				}
				c, err := Sign(s, secret, r, time.Unix(1, 0))
				if unsigned := !slices.ContainsFunc(of, func(f Field) bool { return f.Name == "webhook-id" }); (err != nil) != unsigned {
					t.Errorf("%s, %q, %v: %v", p.Name, secret, of, err) // the scheme signs an id, so a request without an id cannot be signed
				}
				_, encoded, _ := strings.Cut(secret, "_")
				for _, f := range c.Lines {
					if strings.Contains(f.Value, secret) || encoded != "" && strings.Contains(f.Value, encoded) {
						t.Errorf("%s, %v: a line says the key: %v", p.Name, of, f)
					}
				}
			}
		}
	}
	if tried == 0 {
		t.Error("no sender has both")
	}
}
