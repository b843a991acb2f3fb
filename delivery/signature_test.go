package delivery_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"relay"
)

// TestVerdictAtArrival: the stored event has the verdict on its signature, whether it is delivered or queued,
// and none without a secret.
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
						b.keepSecret(value)
					}
					if !online {
						b.pauseAlias()
					}
					b.send(fmt.Sprintf(signedHead, c.digest, len(c.body)) + c.body)
					b.want("verdict", b.verdict(), c.want)
				})
			})
		}
	}
}

const signedHead = "POST / HTTP/1.1\r\nHost: hook.localhost\r\nX-GitHub-Event: push\r\nX-Hub-Signature-256: sha256=%s\r\nContent-Length: %d\r\n\r\n"

// TestVerdictOfNewEvents: an event made by Send has a verdict on its signature if the alias has a secret.
func TestVerdictOfNewEvents(t *testing.T) {
	const value, body = "secret of the sender", `{"id":1}`
	mac := hmac.New(sha256.New, []byte(value))
	mac.Write([]byte(body))
	for digest, want := range map[string]string{hex.EncodeToString(mac.Sum(nil)): "valid ok sec_a", strings.Repeat("0", 64): "invalid wrong-secret "} {
		for _, kept := range []bool{true, false} {
			run(t, always(body, ok), func(b *fixture) {
				expected := ""
				if kept {
					b.keepSecret(value)
					expected = want
				}
				_, err := b.sendNew(fmt.Sprintf(signedHead, digest, len(body)) + body)
				b.want("error", err, nil)
				b.want("verdict", b.verdict(), expected)
			})
		}
	}
}

// TestVerdictAfterAnEarlyAnswer: the verdict on a request that was answered early is unchecked at first, and
// valid once the rest has arrived.
func TestVerdictAfterAnEarlyAnswer(t *testing.T) {
	const value, body = "secret of the sender", `{"id":1}`
	mac := hmac.New(sha256.New, []byte(value))
	mac.Write([]byte(body))
	run(t, func(l *local) {
		l.until("\r\n\r\n")
		l.Write(ok)
		l.until(body)
	}, func(b *fixture) {
		b.keepSecret(value)
		c, done := b.begin(fmt.Sprintf(signedHead, hex.EncodeToString(mac.Sum(nil)), len(body)) + body[:3])
		time.Sleep(time.Millisecond)
		b.want("answer before the body", c.answer(), ok)
		b.want("verdict then", b.verdict(), "unchecked body-incomplete ")
		c.in.write([]byte(body[3:]))
		<-done
		b.want("verdict of the whole body", b.verdict(), "valid ok sec_a")
	})
}

// TestSenderOfAStoredEventStays: an event that was stored before its body told the sender gets no verdict by a sender
// that its record does not name.
func TestSenderOfAStoredEventStays(t *testing.T) {
	const body = `{"signature":{"timestamp":"1790000000","token":"t","signature":"0011"},"event-data":{"event":"opened","id":"e1"}}`
	run(t, func(l *local) {
		l.until("\r\n\r\n")
		l.Write(ok)
		l.until(body)
	}, func(b *fixture) {
		b.keepSecretOf("mailgun", "secret of the sender")
		c, done := b.begin(fmt.Sprintf("POST /a HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", len(body)) + body[:3])
		time.Sleep(time.Millisecond)
		b.want("answer before the body", c.answer(), ok)
		c.in.write([]byte(body[3:]))
		<-done
		b.want("sender", b.event().Provider.Name, "")
		b.want("verdict", b.verdict(), "")
	})
}

// keepSecret adds a secret of GitHub to the alias.
func (b *fixture) keepSecret(value string) { b.keepSecretOf("github", value) }

// keepSecretOf adds a secret of a sender to the alias.
func (b *fixture) keepSecretOf(provider, value string) {
	b.s.mu.Lock()
	b.s.secrets = map[int64]relay.OpenSecrets{7: {{SenderSecret: relay.SenderSecret{ID: "sec_a", Provider: provider}, Value: relay.NewSecretText(value)}}}
	b.s.mu.Unlock()
	b.d.Publish([]relay.Change{{Kind: relay.ChangeAlias, Alias: 7}})
}

// verdict returns the stored verdict of the newest event.
func (b *fixture) verdict() string {
	if s := b.event().Signature; s != nil {
		return s.Verdict + " " + s.Reason + " " + s.SecretID
	}
	return ""
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
