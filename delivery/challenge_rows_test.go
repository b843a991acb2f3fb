package delivery_test

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/handshake"
)

// challengeRow is a challenge as its sender documents it. challengeRows has one for each handshake of package
// handshake.
type challengeRow struct {
	name, line string // line is the start of the request; %s in line, fields and body is the text that the answer repeats
	fields     string
	body       string
	secret     string                       // secret of the alias; "" = none
	sign       func(at, body string) string // returns the header lines that sign the request at the Unix time at; nil = it is not signed
	wrong      [2]string                    // a text of the signed request, and its replacement with one wrong byte
	refused    string                       // status of the answer to the request with the wrong byte; "" = that request is queued
}

const challengeSecret = "topsecret"

func challengeMAC(text string) []byte {
	h := hmac.New(sha256.New, []byte(challengeSecret))
	h.Write([]byte(text))
	return h.Sum(nil)
}

var challengeKey = ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))

const jsonContent = "Content-Type: application/json\r\n"

var challengeRows = []challengeRow{
	{name: "slack", line: "POST /slack", fields: jsonContent, body: `{"token":"t","challenge":"%s","type":"url_verification"}`, wrong: [2]string{"url_v", "url-v"}},
	{name: "meta", line: "GET /w?hub.mode=subscribe&hub.challenge=%s&hub.verify_token=" + challengeSecret, secret: challengeSecret, wrong: [2]string{"topsecret", "topsecreT"}},
	{name: "x", line: "GET /w?crc_token=%s&nonce=n", secret: challengeSecret, wrong: [2]string{"crc_token", "crc-token"}},
	{
		name: "zoom", line: "POST /zoom", fields: jsonContent, body: `{"payload":{"plainToken":"%s"},"event_ts":1,"event":"endpoint.url_validation"}`, secret: challengeSecret,
		sign: func(at, body string) string {
			return "x-zm-request-timestamp: " + at + "\r\nx-zm-signature: v0=" + hex.EncodeToString(challengeMAC("v0:"+at+":"+body)) + "\r\n"
		},
		wrong: [2]string{`"event_ts":1`, `"event_ts":2`},
	},
	{name: "graph", line: "POST /?validationToken=%s", wrong: [2]string{"validationToken", "validationtoken"}},
	{
		name: "event-grid", line: "POST /", fields: jsonContent + "aeg-event-type: SubscriptionValidation\r\n",
		body:  `[{"eventType":"Microsoft.EventGrid.SubscriptionValidationEvent","data":{"validationCode":"%s"}}]`,
		wrong: [2]string{"ValidationEvent", "ValidationevenT"},
	},
	{name: "cloudevents", line: "OPTIONS /", fields: "WebHook-Request-Origin: %s\r\n", wrong: [2]string{"Request-Origin", "Request_Origin"}},
	{name: "dropbox", line: "GET /w?challenge=%s", wrong: [2]string{"challenge", "challengE"}},
	{
		name: "twitch", line: "POST /", fields: jsonContent + "Twitch-Eventsub-Message-Type: webhook_callback_verification\r\n",
		body: `{"challenge":"%s","subscription":{}}`, wrong: [2]string{"webhook_callback", "webhook-callback"},
	},
	{
		name: "discord", line: "POST /", fields: jsonContent, body: `{"type":1}`, secret: hex.EncodeToString(challengeKey.Public().(ed25519.PublicKey)),
		sign: func(at, body string) string {
			return "X-Signature-Timestamp: " + at + "\r\nX-Signature-Ed25519: " + hex.EncodeToString(ed25519.Sign(challengeKey, []byte(at+body))) + "\r\n"
		},
		wrong: [2]string{`{"type":1}`, `{"type":1 `}, // the body is no JSON object any more
	},
	{name: "monday", line: "POST /", fields: jsonContent, body: `{"challenge":"%s"}`, wrong: [2]string{"challenge", "challengE"}},
	{name: "asana", line: "POST /", fields: "X-Hook-Secret: %s\r\n", wrong: [2]string{"X-Hook-Secret", "X-Hook_Secret"}},
	{name: "smartsheet", line: "POST /", fields: jsonContent + "Smartsheet-Hook-Challenge: %s\r\n", body: `{"challenge":"%s","webhookId":1}`, wrong: [2]string{"webhookId", "webhookid"}},
	{name: "notion", line: "POST /", fields: jsonContent, body: `{"verification_token":"secret_t"}`, wrong: [2]string{"verification_token", "verification-token"}},
	{name: "okta", line: "GET /", fields: "X-Okta-Verification-Challenge: %s\r\n", wrong: [2]string{"Okta-Ver", "Okta_Ver"}},
	{name: "worldline", line: "GET /", fields: "X-GCS-Webhooks-Endpoint-Verification: %s\r\n", wrong: [2]string{"GCS-Web", "GCS_Web"}},
	{
		name: "xero", line: "POST /", fields: jsonContent, body: `{"events":[],"firstEventSequence":0,"lastEventSequence":0,"entropy":"x"}`, secret: challengeSecret,
		sign: func(_, body string) string {
			return "x-xero-signature: " + base64.StdEncoding.EncodeToString(challengeMAC(body)) + "\r\n"
		},
		wrong: [2]string{`"entropy":"x"`, `"entropy":"y"`}, refused: "401", // a wrong signature, which Xero tests
	},
	{name: "head", line: "HEAD /", wrong: [2]string{"HEAD", "READ"}},
}

// raw returns the request, with echo as the text that the answer repeats.
func (c *challengeRow) raw(echo string) string {
	put := func(format string) string { return strings.ReplaceAll(format, "%s", echo) }
	body, signed := put(c.body), ""
	if c.sign != nil {
		signed = c.sign(fmt.Sprint(time.Now().Unix()), body)
	}
	length := ""
	if strings.HasPrefix(c.line, "POST") {
		length = fmt.Sprintf("Content-Length: %d\r\n", len(body))
	}
	return put(c.line) + " HTTP/1.1\r\nHost: hook.localhost\r\n" + put(c.fields) + signed + length + "\r\n" + body
}

// prepare gives the alias the secret of a challenge.
func (c *challengeRow) prepare(b *fixture) {
	secret := relay.NewSecretText(c.secret)
	switch {
	case c.secret == "":
	case c.name == handshake.Meta:
		b.a.Settings.VerifyToken = &secret
	default:
		b.s.secrets = map[int64]relay.OpenSecrets{7: {{SenderSecret: relay.SenderSecret{ID: "sec_1", Provider: c.name}, Value: secret}}}
	}
}

// TestEachChallenge tries the challenge of each handshake in the package handshake. While the alias is
// offline, relayd answers it; without the setting handshakes, with a wrong byte, or with markup in the text
// to repeat, the challenge is queued or refused. An online tunnel gets the challenge unchanged.
func TestEachChallenge(t *testing.T) {
	for _, name := range handshake.Names() {
		i := slices.IndexFunc(challengeRows, func(c challengeRow) bool { return c.name == name })
		if i < 0 {
			t.Errorf("no row tries %s", name)
			continue
		}
		c := &challengeRows[i]
		t.Run(name, func(t *testing.T) {
			offline := func(what, echo, status, state string, names ...string) {
				t.Helper()
				run(t, nil, func(b *fixture) {
					// The request is made here, because its signature contains the fake time of the fixture.
					out, _ := b.send(c.raw(echo))
					b.want(what+": answer", code(out), status)
					b.want(what+": state", b.event().State, state)
				}, withHandshakes(names...), c.prepare)
			}
			offline("as published", "abc", "200", relay.StateAnswered, name)
			offline("with all", "abc", "200", relay.StateAnswered, handshake.All)
			offline("without the setting", "abc", "202", relay.StateQueued)
			run(t, nil, func(b *fixture) {
				changed := strings.Replace(c.raw("abc"), c.wrong[0], c.wrong[1], 1)
				b.want("a byte is wrong", changed != c.raw("abc"), true)
				out, _ := b.send(changed)
				status, state := "202", relay.StateQueued
				if c.refused != "" {
					status, state = c.refused, relay.StateAnswered
				}
				b.want("a byte wrong: answer", code(out), status)
				b.want("a byte wrong: state", b.event().State, state)
			}, withHandshakes(name), c.prepare)
			if c.raw("abc") != c.raw("abd") {
				markup := "<b>x</b>"
				if strings.Contains(c.line, "%s") {
					markup = "%3Cb%3Ex%3C/b%3E"
				}
				offline("markup", markup, "202", relay.StateQueued, name)
			}
			got := ""
			run(t, func(l *local) {
				want := c.raw("abc")
				if l.until(want[len(want)-min(len(want), 30):]) {
					got = string(l.got)
					l.Write("HTTP/1.1 204 No Content\r\n\r\n")
				}
			}, func(b *fixture) {
				want := c.raw("abc")
				b.send(want)
				b.want("the tunnel is up: state", b.event().State, relay.StateDelivered)
				b.want("the tunnel is up: request", got, want)
			}, withHandshakes(handshake.All), c.prepare)
		})
	}
}
