package handshake

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
)

// proof is the evidence that a challenge needs in addition to its form.
type proof uint8

const (
	none    proof = iota
	checked       // the signature is checked if the alias has a secret
	needed        // the signature has to match
	tested        // the signature has to match; the sender also tests that a wrong signature gets 401
	token         // the request has to contain the verify token
	keyed         // the answer is made with a secret; the request is not signed
)

// challenge is one row of the table. form reports whether a request is the challenge, and returns the text that
// the answer repeats. reply makes the answer from the text and from a secret. The secret depends on proof: for
// needed it is the one that matches the signature, for none and checked it is "", and otherwise it is the first
// one of the alias. givesSecret means that the text is the secret of later signatures, whether or not the
// answer repeats the text.
type challenge struct {
	name        string
	proof       proof
	form        func(q *request) (echo string, ok bool)
	reply       func(q *request, echo, secret string) *Reply
	givesSecret bool
}

const nameHead = "head"

// table has the challenges as their senders publish them. The first row whose form matches a request
// answers it.
var table = []challenge{
	{"slack", checked, slack, text, false},
	{Meta, token, meta, text, false},
	{"x", keyed, parameter("crc_token"), responseToken, false},
	{"zoom", needed, zoom, encryptedToken, false},
	{"graph", none, graph, text, false},
	{"event-grid", none, eventGrid, object("validationResponse"), false},
	{"cloudevents", none, cloudEvents, allowOrigin, false},
	{"dropbox", none, parameter("challenge"), text, false},
	{"twitch", checked, twitch, text, false},
	{"discord", tested, discord, ping, false},
	{"monday", none, monday, object("challenge"), false},
	{"asana", none, asana, line("X-Hook-Secret"), true},
	{"smartsheet", none, smartsheet, line("Smartsheet-Hook-Response"), false},
	{"notion", none, notion, empty, true},
	{"okta", none, lineOfGET("X-Okta-Verification-Challenge"), object("verification"), false},
	{"worldline", none, lineOfGET("X-GCS-Webhooks-Endpoint-Verification"), text, false},
	{"xero", tested, xero, empty, false},
	{nameHead, none, head, empty, false},
}

// Functions that recognise the form of a challenge.

func slack(q *request) (string, bool) {
	if q.method != "POST" {
		return "", false
	}
	if q.media() == "application/x-www-form-urlencoded" { // a check of TLS; the answer repeats nothing of it
		form, err := url.ParseQuery(string(q.raw.Body))
		return "", err == nil && slices.Equal(form["ssl_check"], []string{"1"}) && len(form["token"]) <= 1 && len(form) == 1+len(form["token"])
	}
	kind, _ := q.member("type")
	echo, ok := q.member("challenge")
	return echo, ok && kind == "url_verification" && q.members("token", "challenge", "type") && mayEcho(echo)
}

// meta recognises the challenge of Meta. A challenge of WebSub has the same form, and may have hub.topic and
// hub.lease_seconds too. Parameters without the prefix hub. belong to the URL.
func meta(q *request) (string, bool) {
	mode, _ := q.param("hub.mode")
	echo, ok := q.param("hub.challenge")
	for name := range q.query {
		ok = ok && (!strings.HasPrefix(name, "hub.") || slices.Contains(hubParameters, name))
	}
	return echo, ok && mode == "subscribe" && q.isEmptyGET() && mayEcho(echo)
}

var hubParameters = []string{"hub.mode", "hub.challenge", "hub.verify_token", "hub.topic", "hub.lease_seconds"}

func zoom(q *request) (string, bool) {
	event, _ := q.member("event")
	payload := request{object: objectOf(q.object["payload"])}
	echo, ok := payload.member("plainToken")
	return echo, ok && q.method == "POST" && event == "endpoint.url_validation" && q.members("event", "event_ts", "payload") &&
		payload.members("plainToken") && mayEcho(echo)
}

// graph recognises the challenge of Microsoft Graph, whose validation tokens are sentences.
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
	if q.method != "POST" || q.media() != "application/json" || kind != "SubscriptionValidation" || json.Unmarshal(q.raw.Body, &events) != nil || len(events) != 1 {
		return "", false
	}
	echo := events[0].Data.ValidationCode
	return echo, events[0].EventType == "Microsoft.EventGrid.SubscriptionValidationEvent" && mayEcho(echo)
}

func cloudEvents(q *request) (string, bool) {
	echo, ok := q.line("WebHook-Request-Origin")
	return echo, ok && q.method == "OPTIONS" && len(q.raw.Body) == 0 && mayEcho(echo)
}

func twitch(q *request) (string, bool) {
	kind, _ := q.line("Twitch-Eventsub-Message-Type")
	echo, ok := q.member("challenge")
	return echo, ok && q.method == "POST" && kind == "webhook_callback_verification" && q.members("challenge", "subscription") && mayEcho(echo)
}

func discord(q *request) (string, bool) {
	_, signed := q.line("X-Signature-Ed25519")
	return "", signed && q.method == "POST" && string(q.object["type"]) == "1"
}

func monday(q *request) (string, bool) {
	echo, ok := q.member("challenge")
	return echo, ok && q.method == "POST" && q.members("challenge") && mayEcho(echo)
}

// asana recognises the challenge of Asana. Other senders may use the same header name, so asana
// requires the published form: a request without content and without the signature line of later
// requests.
func asana(q *request) (string, bool) {
	echo, ok := q.line("X-Hook-Secret")
	empty := len(q.raw.Body) == 0 || q.object != nil && len(q.object) == 0
	return echo, ok && empty && q.method == "POST" && !q.has("X-Hook-Signature") && mayEcho(echo)
}

// smartsheet recognises the challenge of Smartsheet. If the request has a body, it must be JSON with only the
// challenge and the id of the webhook.
func smartsheet(q *request) (string, bool) {
	echo, ok := q.line("Smartsheet-Hook-Challenge")
	if len(q.raw.Body) > 0 {
		repeated, there := q.member("challenge")
		ok = ok && q.members("challenge", "webhookId") && (!there || repeated == echo)
	}
	return echo, ok && q.method == "POST" && mayEcho(echo)
}

func notion(q *request) (string, bool) {
	secret, ok := q.member("verification_token")
	return secret, ok && q.method == "POST" && q.members("verification_token")
}

func xero(q *request) (string, bool) {
	_, signed := q.line("x-xero-signature")
	var events []json.RawMessage
	ok := json.Unmarshal(q.object["events"], &events) == nil && events != nil
	return "", ok && signed && q.method == "POST" && len(events) == 0 && q.members("events", "firstEventSequence", "lastEventSequence", "entropy")
}

func head(q *request) (string, bool) { return "", q.method == "HEAD" }

// parameter returns a function for challenge.form that recognises a GET with the query parameter name.
func parameter(name string) func(*request) (string, bool) {
	return func(q *request) (string, bool) {
		echo, ok := q.param(name)
		return echo, ok && q.isEmptyGET() && mayEcho(echo)
	}
}

// lineOfGET returns a function for challenge.form that recognises a GET with the header line name.
func lineOfGET(name string) func(*request) (string, bool) {
	return func(q *request) (string, bool) {
		echo, ok := q.line(name)
		return echo, ok && q.isEmptyGET() && mayEcho(echo)
	}
}

// mayEcho reports whether an answer may repeat a text. It refuses text that a browser or a shell could
// interpret.
func mayEcho(echo string) bool {
	for i := range len(echo) {
		c := echo[i] | 0x20
		if (c < 'a' || c > 'z') && !strings.ContainsRune("0123456789._~+/=:-", rune(echo[i])) {
			return false
		}
	}
	return echo != "" && len(echo) <= maxEcho
}

// Functions that make the reply to a challenge.

func text(_ *request, echo, _ string) *Reply {
	return &Reply{200, [][2]string{{"Content-Type", "text/plain; charset=utf-8"}}, []byte(echo)}
}

func empty(*request, string, string) *Reply { return &Reply{Status: 200} }

func line(name string) func(*request, string, string) *Reply {
	return func(_ *request, echo, _ string) *Reply { return &Reply{200, [][2]string{{name, echo}}, nil} }
}

// object returns a reply whose body is a JSON object with one member.
func object(name string) func(*request, string, string) *Reply {
	return func(_ *request, echo, _ string) *Reply { return jsonReply(map[string]string{name: echo}) }
}

func jsonReply(value any) *Reply {
	body, _ := json.Marshal(value) // never fails, because the value consists of texts and numbers
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
