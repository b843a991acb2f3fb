package delivery_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"relay"
)

// An event has its verdict when it is handed to the store, delivered or queued. The bytes that the
// local server gets are the same with a secret and without one.
func TestVerdictAtArrival(t *testing.T) {
	const value, body = "secret of the sender", `{"id":1}`
	mac := hmac.New(sha256.New, []byte(value))
	mac.Write([]byte(body))
	right := hex.EncodeToString(mac.Sum(nil))
	for name, c := range map[string]struct {
		digest, body, want string
		kept               bool
	}{
		"fits":      {right, body, "valid ok sec_a", true},
		"wrong":     {strings.Repeat("0", 64), body, "invalid wrong-secret ", true},
		"large":     {right, strings.Repeat("x", relay.BodyPart*2), "unchecked too-large ", true},
		"no secret": {right, body, "", false},
	} {
		for _, online := range []bool{true, false} {
			t.Run(fmt.Sprint(name, online), func(t *testing.T) {
				run(t, always(c.body, ok), func(b *fixture) {
					if c.kept {
						b.s.mu.Lock()
						b.s.secrets = map[int64]relay.OpenSecrets{7: {{SenderSecret: relay.SenderSecret{ID: "sec_a", Provider: "github"}, Value: relay.NewSecretText(value)}}}
						b.s.mu.Unlock()
						b.d.Publish([]relay.Change{{Kind: relay.ChangeAlias, Alias: 7}})
					}
					if !online {
						b.pauseAlias()
					}
					b.send(fmt.Sprintf("POST / HTTP/1.1\r\nHost: hook.localhost\r\nX-GitHub-Event: push\r\nX-Hub-Signature-256: sha256=%s\r\nContent-Length: %d\r\n\r\n%s", c.digest, len(c.body), c.body))
					got := ""
					if s := b.event().Signature; s != nil {
						got = s.Verdict + " " + s.Reason + " " + s.SecretID
					}
					b.want("verdict", got, c.want)
				})
			})
		}
	}
}

// pauseAlias makes the alias offline.
func (b *fixture) pauseAlias() {
	b.s.mu.Lock()
	a := *b.s.aliases[7]
	a.Settings.Paused = true
	b.s.aliases[7] = &a
	b.s.mu.Unlock()
	b.d.Publish([]relay.Change{{Kind: relay.ChangeAlias, Alias: 7}})
	b.a = &a
}
