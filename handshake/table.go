package handshake

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strings"
)

// proof says what a challenge needs besides its form.
type proof uint8

const (
	none    proof = iota
	checked       // its signature is checked where the alias holds a secret
	needed        // its signature has to fit
	tested        // as needed, and the sender tests that a wrong signature gets 401
	token         // it has to hold the verify token
	keyed         // the answer is made with a secret; the request is not signed
)

// challenge is one row of the table. form returns the text that the answer repeats, and whether a
// request is the challenge. reply makes the answer; secret is the first one where proof needs one.
type challenge struct {
	name  string
	proof proof
	form  func(q *request) (echo string, ok bool)
	reply func(q *request, echo, secret string) *Reply
}

const nameHead = "head"

// table has the challenges as their senders publish them. The first row whose form a request has
// answers it.
var table = []challenge{
	{"slack", checked, slack, text},
	{Meta, token, meta, text},
	{"x", keyed, parameter("crc_token"), responseToken},
	{"zoom", needed, zoom, encryptedToken},
	{"graph", none, graph, text},
	{"event-grid", none, eventGrid, object("validationResponse")},
	{"cloudevents", none, cloudEvents, allowOrigin},
	{"dropbox", none, parameter("challenge"), text},
	{"twitch", checked, twitch, text},
	{"discord", tested, discord, ping},
	{"monday", none, monday, object("challenge")},
	{"asana", none, lineOfPOST("X-Hook-Secret"), line("X-Hook-Secret")},
	{"smartsheet", none, lineOfPOST("Smartsheet-Hook-Challenge"), line("Smartsheet-Hook-Response")},
	{"notion", none, notion, empty},
	{"okta", none, lineOfGET("X-Okta-Verification-Challenge"), object("verification")},
	{"worldline", none, lineOfGET("X-GCS-Webhooks-Endpoint-Verification"), text},
	{"xero", tested, xero, empty},
	{nameHead, none, head, empty},
}

// Forms.

func slack(q *request) (string, bool) {
	if q.method != "POST" {
		return "", false
	}
	if q.media() == "application/x-www-form-urlencoded" { // a check of TLS, of which nothing is repeated
		return "", bytes.HasPrefix(q.raw.Body, []byte("ssl_check=1&token=")) || bytes.Equal(q.raw.Body, []byte("ssl_check=1"))
	}
	kind, _ := q.member("type")
	echo, ok := q.member("challenge")
	return echo, ok && kind == "url_verification" && q.members("token", "challenge", "type") && mayEcho(echo)
}

// meta is also the form of WebSub, where there is a topic and a token may be missing.
func meta(q *request) (string, bool) {
	mode, _ := q.param("hub.mode")
	echo, ok := q.param("hub.challenge")
	return echo, ok && mode == "subscribe" && q.isEmptyGET() && mayEcho(echo)
}

func zoom(q *request) (string, bool) {
	event, _ := q.member("event")
	var payload struct{ PlainToken string }
	ok := json.Unmarshal(q.object["payload"], &payload) == nil
	return payload.PlainToken, ok && q.method == "POST" && event == "endpoint.url_validation" && mayEcho(payload.PlainToken)
}

// graph has real tokens that are sentences.
func graph(q *request) (string, bool) {
	echo, ok := q.param("validationToken")
	for i := range len(echo) {
		ok = ok && echo[i] >= ' ' && echo[i] <= '~' && !strings.ContainsRune(`<>&"'`, rune(echo[i]))
	}
	return echo, ok && q.method == "POST" && len(q.raw.Body) == 0 && echo != "" && len(echo) <= maxEcho
}

func eventGrid(q *request) (string, bool) {
	var events []struct {
		EventType string
		Data      struct{ ValidationCode string }
	}
	kind, _ := q.line("aeg-event-type")
	if q.method != "POST" || kind != "SubscriptionValidation" || json.Unmarshal(q.raw.Body, &events) != nil || len(events) != 1 {
		return "", false
	}
	echo := events[0].Data.ValidationCode
	return echo, events[0].EventType == "Microsoft.EventGrid.SubscriptionValidationEvent" && mayEcho(echo)
}

func cloudEvents(q *request) (string, bool) {
	echo, ok := q.line("WebHook-Request-Origin")
	return echo, ok && q.method == "OPTIONS" && mayEcho(echo)
}

func twitch(q *request) (string, bool) {
	kind, _ := q.line("Twitch-Eventsub-Message-Type")
	echo, ok := q.member("challenge")
	return echo, ok && q.method == "POST" && kind == "webhook_callback_verification" && mayEcho(echo)
}

func discord(q *request) (string, bool) {
	_, signed := q.line("X-Signature-Ed25519")
	return "", signed && q.method == "POST" && string(q.object["type"]) == "1"
}

func monday(q *request) (string, bool) {
	echo, ok := q.member("challenge")
	return echo, ok && q.method == "POST" && q.members("challenge") && mayEcho(echo)
}

func notion(q *request) (string, bool) {
	_, ok := q.member("verification_token")
	return "", ok && q.method == "POST" && q.members("verification_token")
}

func xero(q *request) (string, bool) {
	_, signed := q.line("x-xero-signature")
	var events []json.RawMessage
	ok := json.Unmarshal(q.object["events"], &events) == nil && events != nil
	return "", ok && signed && q.method == "POST" && len(events) == 0
}

func head(q *request) (string, bool) { return "", q.method == "HEAD" }

// parameter is the form of a GET with one parameter.
func parameter(name string) func(*request) (string, bool) {
	return func(q *request) (string, bool) {
		echo, ok := q.param(name)
		return echo, ok && q.isEmptyGET() && mayEcho(echo)
	}
}

// lineOfGET is the form of a GET with one header line.
func lineOfGET(name string) func(*request) (string, bool) {
	return func(q *request) (string, bool) {
		echo, ok := q.line(name)
		return echo, ok && q.isEmptyGET() && mayEcho(echo)
	}
}

// lineOfPOST is the form of a POST with one header line.
func lineOfPOST(name string) func(*request) (string, bool) {
	return func(q *request) (string, bool) {
		echo, ok := q.line(name)
		return echo, ok && q.method == "POST" && mayEcho(echo)
	}
}

// mayEcho reports whether an answer may repeat a text: none that a browser or a shell could take for
// something else.
func mayEcho(echo string) bool {
	for i := range len(echo) {
		c := echo[i] | 0x20
		if (c < 'a' || c > 'z') && !strings.ContainsRune("0123456789._~+/=:-", rune(echo[i])) {
			return false
		}
	}
	return echo != "" && len(echo) <= maxEcho
}

// Replies.

func text(_ *request, echo, _ string) *Reply {
	return &Reply{200, [][2]string{{"Content-Type", "text/plain; charset=utf-8"}}, []byte(echo)}
}

func empty(*request, string, string) *Reply { return &Reply{Status: 200} }

func line(name string) func(*request, string, string) *Reply {
	return func(_ *request, echo, _ string) *Reply { return &Reply{200, [][2]string{{name, echo}}, nil} }
}

// object is an answer with one member.
func object(name string) func(*request, string, string) *Reply {
	return func(_ *request, echo, _ string) *Reply { return jsonReply(map[string]string{name: echo}) }
}

func jsonReply(value any) *Reply {
	body, _ := json.Marshal(value) // texts and numbers, which always encode
	return &Reply{200, [][2]string{{"Content-Type", "application/json"}}, body}
}

func allowOrigin(_ *request, echo, _ string) *Reply {
	return &Reply{200, [][2]string{{"Allow", "POST"}, {"WebHook-Allowed-Origin", echo}, {"WebHook-Allowed-Rate", "*"}}, nil}
}

func ping(*request, string, string) *Reply { return jsonReply(map[string]int{"type": 1}) }

func responseToken(_ *request, echo, secret string) *Reply {
	return jsonReply(map[string]string{"response_token": "sha256=" + base64.StdEncoding.EncodeToString(sum(secret, echo))})
}

func encryptedToken(_ *request, echo, secret string) *Reply {
	return jsonReply(struct {
		Plain     string `json:"plainToken"`
		Encrypted string `json:"encryptedToken"`
	}{echo, hex.EncodeToString(sum(secret, echo))})
}

func sum(secret, message string) []byte {
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte(message))
	return h.Sum(nil)
}

// holdsToken reports whether the request has one of the verify tokens.
func (q *request) holdsToken(tokens []string) (ok bool) {
	got, there := q.param("hub.verify_token")
	for _, want := range tokens {
		ok = subtle.ConstantTimeCompare([]byte(got), []byte(want)) == 1 && there || ok
	}
	return ok
}
