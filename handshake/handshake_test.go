package handshake_test

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

	"github.com/google/go-cmp/cmp"

	"relay/handshake"
)

var now = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

const (
	secret    = "topsecret"
	jsonLine  = "Content-Type: application/json\r\n"
	plainLine = "text/plain; charset=utf-8"
)

func hmacOf(message string) []byte {
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte(message))
	return h.Sum(nil)
}

var discordKey = ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))

// signedSlack returns a signed request in Slack's form with the given body.
func signedSlack(body string) string {
	at := fmt.Sprint(now.Unix())
	return "POST / HTTP/1.1\r\n" + jsonLine + "X-Slack-Request-Timestamp: " + at + "\r\nX-Slack-Signature: v0=" +
		hex.EncodeToString(hmacOf("v0:"+at+":"+body)) + "\r\n\r\n" + body
}

func signedZoom(body string) string {
	return strings.NewReplacer("X-Slack-Request", "x-zm-request", "X-Slack-Sig", "x-zm-sig").Replace(signedSlack(body))
}

func signedTwitch(body string) string {
	at := now.Format(time.RFC3339Nano)
	return "POST / HTTP/1.1\r\n" + jsonLine + "Twitch-Eventsub-Message-Type: webhook_callback_verification\r\nTwitch-Eventsub-Message-Id: m1\r\nTwitch-Eventsub-Message-Timestamp: " +
		at + "\r\nTwitch-Eventsub-Message-Signature: sha256=" + hex.EncodeToString(hmacOf("m1"+at+body)) + "\r\n\r\n" + body
}

func signedDiscord(body string) string {
	at := fmt.Sprint(now.Unix())
	return "POST / HTTP/1.1\r\n" + jsonLine + "X-Signature-Timestamp: " + at + "\r\nX-Signature-Ed25519: " +
		hex.EncodeToString(ed25519.Sign(discordKey, []byte(at+body))) + "\r\n\r\n" + body
}

func signedXero(body string) string {
	return "POST / HTTP/1.1\r\n" + jsonLine + "x-xero-signature: " + base64.StdEncoding.EncodeToString(hmacOf(body)) + "\r\n\r\n" + body
}

// challenge is the challenge text in the published requests.
const challenge = "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P"

type testCase struct {
	name    string
	secrets []string
	request func(echo string) string
	wrong   [2]string
	status  int
	lines   [][2]string
	body    string // expected body; %s stands for the repeated text
}

func plain(format string) func(string) string {
	return func(echo string) string { return strings.ReplaceAll(format, "%s", echo) }
}

func signed(sign func(string) string, body string) func(string) string {
	return func(echo string) string { return sign(strings.ReplaceAll(body, "%s", echo)) }
}

var cases = []testCase{
	{
		"slack", nil, plain("POST /slack HTTP/1.1\r\n" + jsonLine + "\r\n" + `{"token":"Jhj5dZrVaK7ZwHHjRyZWjbDl","challenge":"%s","type":"url_verification"}`),
		[2]string{"url_verification", "url_verificatiom"},
		200,
		[][2]string{{"Content-Type", plainLine}},
		"%s",
	},
	{
		"slack",
		[]string{"other", secret},
		signed(signedSlack, `{"challenge":"%s","type":"url_verification"}`),
		[2]string{"v0=", "v0=0"},
		200,
		[][2]string{{"Content-Type", plainLine}},
		"%s",
	},
	{
		"slack", nil, plain("POST / HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded\r\n\r\nssl_check=1&token=Jhj5dZrVaK7ZwHHjRyZWjbDl"),
		[2]string{"check=1", "check=2"},
		200,
		[][2]string{{"Content-Type", plainLine}},
		"",
	},
	{
		"meta",
		[]string{"meatyhamhock"},
		plain("GET /webhooks?hub.mode=subscribe&hub.challenge=%s&hub.verify_token=meatyhamhock HTTP/1.1\r\n\r\n"),
		[2]string{"hamhock", "hamhocK"},
		200,
		[][2]string{{"Content-Type", plainLine}},
		"%s",
	},
	{
		"meta",
		[]string{secret},
		plain("GET /w?hub.topic=https%3A%2F%2Fwww.youtube.com%2Fxml%2Ffeeds%2Fvideos.xml%3Fchannel_id%3DC1&hub.challenge=%s&hub.mode=subscribe&hub.lease_seconds=432000&hub.verify_token=topsecret HTTP/1.1\r\n\r\n"),
		[2]string{"subscribe", "unsubscribe"},
		200,
		[][2]string{{"Content-Type", plainLine}},
		"%s",
	},
	{
		"x",
		[]string{secret},
		plain("GET /webhook/twitter?crc_token=%s&nonce=nonce HTTP/1.1\r\n\r\n"),
		[2]string{"crc_token", "crc_tokem"},
		200,
		[][2]string{{"Content-Type", "application/json"}},
		`{"response_token":"sha256=` + base64.StdEncoding.EncodeToString(hmacOf(challenge)) + `"}`,
	},
	{
		"zoom",
		[]string{secret},
		signed(signedZoom, `{"payload":{"plainToken":"%s"},"event_ts":1654503849680,"event":"endpoint.url_validation"}`),
		[2]string{"event_ts", "event_tz"},
		200,
		[][2]string{{"Content-Type", "application/json"}},
		`{"plainToken":"%s","encryptedToken":"` + hex.EncodeToString(hmacOf(challenge)) + `"}`,
	},
	{
		"graph", nil, plain("POST /?validationToken=Validation%3a+Testing+client%20application+reachability.+%s HTTP/1.1\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 0\r\n\r\n"),
		[2]string{"validationToken", "validationTokem"},
		200,
		[][2]string{{"Content-Type", plainLine}},
		"Validation: Testing client application reachability. %s",
	},
	{
		"event-grid", nil, plain("POST / HTTP/1.1\r\naeg-event-type: SubscriptionValidation\r\n" + jsonLine + "\r\n" +
			`[{"id":"2d1781af-3a4c-4d7c-bd0c-e34b19da4e66","topic":"/subscriptions/x","subject":"","data":{"validationCode":"%s","validationUrl":"https://rp-eastus2.eventgrid.azure.net:553/"},"eventType":"Microsoft.EventGrid.SubscriptionValidationEvent","eventTime":"2018-01-25T22:12:19.4556811Z","metadataVersion":"1","dataVersion":"1"}]`),
		[2]string{"SubscriptionValidationEvent", "SubscriptionValidationEvemt"},
		200,
		[][2]string{{"Content-Type", "application/json"}},
		`{"validationResponse":"%s"}`,
	},
	{
		"cloudevents", nil, plain("OPTIONS / HTTP/1.1\r\nWebHook-Request-Origin: %s\r\nWebHook-Request-Rate: 120\r\n\r\n"),
		[2]string{"OPTIONS", "OPTIONZ"},
		200,
		[][2]string{{"Allow", "POST"}, {"WebHook-Allowed-Origin", "%s"}, {"WebHook-Allowed-Rate", "*"}},
		"",
	},
	{
		"dropbox", nil, plain("GET /webhook?challenge=%s HTTP/1.1\r\n\r\n"),
		[2]string{"challenge=", "challengE="},
		200,
		[][2]string{{"Content-Type", plainLine}},
		"%s",
	},
	{
		"twitch", nil, plain("POST / HTTP/1.1\r\nTwitch-Eventsub-Message-Type: webhook_callback_verification\r\n" + jsonLine + "\r\n" + `{"challenge":"%s","subscription":{"id":"f1c2a387"}}`),
		[2]string{"callback_ver", "callback-ver"},
		200,
		[][2]string{{"Content-Type", plainLine}},
		"%s",
	},
	{
		"twitch",
		[]string{secret},
		signed(signedTwitch, `{"challenge":"%s","subscription":{}}`),
		[2]string{"Message-Id: m1", "Message-Id: m2"},
		200,
		[][2]string{{"Content-Type", plainLine}},
		"%s",
	},
	{
		"discord",
		[]string{hex.EncodeToString(discordKey.Public().(ed25519.PublicKey))},
		signed(signedDiscord, `{"application_id":"1","type":1}`),
		[2]string{`"type":1`, `"type":2`},
		200,
		[][2]string{{"Content-Type", "application/json"}},
		`{"type":1}`,
	},
	{
		"monday", nil, plain("POST / HTTP/1.1\r\n" + jsonLine + "\r\n" + `{"challenge":"%s"}`),
		[2]string{`"}`, `","x":1}`},
		200,
		[][2]string{{"Content-Type", "application/json"}},
		`{"challenge":"%s"}`,
	},
	{
		"asana", nil, plain("POST / HTTP/1.1\r\nX-Hook-Secret: %s\r\nContent-Length: 0\r\n\r\n"),
		[2]string{"X-Hook-Secret", "X-Hook-Secrets"},
		200,
		[][2]string{{"X-Hook-Secret", "%s"}},
		"",
	},
	{
		"smartsheet", nil, plain("POST / HTTP/1.1\r\nSmartsheet-Hook-Challenge: %s\r\n" + jsonLine + "\r\n" + `{"challenge":"%s","webhookId":8444254503626628}`),
		[2]string{"Hook-Challenge", "Hook-challengE2"},
		200,
		[][2]string{{"Smartsheet-Hook-Response", "%s"}},
		"",
	},
	{
		"notion", nil, plain("POST / HTTP/1.1\r\n" + jsonLine + "\r\n" + `{"verification_token":"secret_tMrlL1qK5vuQAh1b6cZGhFChZTSYJlce98V0pYn7yBl"}`),
		[2]string{"verification_token", "verification_tokem"},
		200, nil, "",
	},
	{
		"okta", nil, plain("GET / HTTP/1.1\r\nX-Okta-Verification-Challenge: %s\r\n\r\n"),
		[2]string{"GET", "PUT"},
		200,
		[][2]string{{"Content-Type", "application/json"}},
		`{"verification":"%s"}`,
	},
	{
		"worldline", nil, plain("GET / HTTP/1.1\r\nX-GCS-Webhooks-Endpoint-Verification: %s\r\n\r\n"),
		[2]string{"GET", "POST"},
		200,
		[][2]string{{"Content-Type", plainLine}},
		"%s",
	},
	{
		"xero",
		[]string{secret},
		signed(signedXero, `{"events":[],"firstEventSequence":0,"lastEventSequence":0,"entropy":"S0m3r4Nd0mt3xt"}`),
		[2]string{`"events":[]`, `"events":[1]`},
		200, nil, "",
	},
	{"head", nil, plain("HEAD / HTTP/1.1\r\n\r\n"), [2]string{"HEAD", "READ"}, 200, nil, ""},
}

// extras are additions that no published form of a challenge has. They are also tried without a secret,
// where the form alone can refuse them.
var extras = map[string]map[string][2]string{
	"meta":        {"another parameter of a hub": {"hub.mode=", "hub.secret=x&hub.mode="}, "a mode twice": {"hub.mode=", "hub.mode=subscribe&hub.mode="}},
	"graph":       {"a body": {"\r\n\r\n", "\r\n\r\n{}"}},
	"event-grid":  {"two events": {"[{", "[{},{"}, "another type of content": {"application/json", "text/plain"}},
	"cloudevents": {"a body": {"\r\n\r\n", "\r\n\r\n{}"}},
	"dropbox":     {"a body": {"\r\n\r\n", "\r\n\r\n{}"}, "the parameter twice": {"challenge=", "challenge=a&challenge="}},
	"monday":      {"another member": {`{"`, `{"event":{},"`}, "the member twice": {`{"`, `{"challenge":"a","`}},
	"asana": {
		"a body": {"Content-Length: 0\r\n\r\n", jsonLine + "\r\n" + `{"events":[]}`}, "a text": {"\r\n\r\n", "\r\n\r\nhook"},
		"a signature": {"X-Hook-Secret", "X-Hook-Signature: 00\r\nX-Hook-Secret"}, "the line twice": {"X-Hook-Secret", "X-Hook-Secret: a\r\nX-Hook-Secret"},
	},
	"smartsheet": {
		"another member": {`{"`, `{"events":[],"`}, "another challenge in the body": {`"challenge":"`, `"challenge":"x`},
		"a body that is no JSON": {`{"challenge"`, `("challenge"`},
	},
	"notion":    {"another member": {`{"`, `{"type":"page.created","`}, "no text": {`"secret_`, `1,"x":"secret_`}},
	"okta":      {"a body": {"\r\n\r\n", "\r\n\r\n{}"}},
	"worldline": {"a body": {"\r\n\r\n", "\r\n\r\n{}"}},
}

// TestSignedFormsWithMore: challenges with an additional or repeated member are not answered, although their
// signatures are right.
func TestSignedFormsWithMore(t *testing.T) {
	t.Parallel()
	for name, raw := range map[string]string{
		"zoom":    signedZoom(`{"payload":{"plainToken":"a","x":1},"event_ts":1,"event":"endpoint.url_validation"}`),
		"zoom ":   signedZoom(`{"payload":{"plainToken":"a"},"event_ts":1,"event":"endpoint.url_validation","account_id":"1"}`),
		"slack":   signedSlack(`{"challenge":"a","type":"url_verification","event":{}}`),
		"slack ":  "POST / HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded\r\n\r\nssl_check=1&token=a&command=x",
		"twitch":  signedTwitch(`{"challenge":"a","subscription":{},"event":{}}`),
		"xero":    signedXero(`{"events":[],"x":1}`),
		"discord": signedDiscord(`{"type":1,"type":2}`),
	} {
		c := testCase{name: strings.TrimSpace(name)}
		secrets := []string{secret}
		if c.name == "discord" {
			secrets = []string{hex.EncodeToString(discordKey.Public().(ed25519.PublicKey))}
		}
		if _, got := c.ask(raw, []string{c.name}, secrets); got != nil {
			t.Errorf("%s answered %+v", name, got)
		}
	}
}

// TestOtherSpellings: Asana's challenge with a JSON body and Smartsheet's challenge without a body are
// answered too.
func TestOtherSpellings(t *testing.T) {
	t.Parallel()
	for name, raw := range map[string]string{
		"asana":      "POST / HTTP/1.1\r\nX-Hook-Secret: b537207f20cbfa02357cf448134da559\r\n" + jsonLine + "\r\n{}",
		"smartsheet": "POST / HTTP/1.1\r\nsmartsheet-hook-challenge: d78dd1d3-01ce-4481\r\n\r\n",
	} {
		c := testCase{name: name}
		if _, got := c.ask(raw, []string{name}, nil); got == nil {
			t.Errorf("%s is not answered", name)
		}
	}
}

// TestCheckOfTLS: Slack's check of TLS, which is not signed, is answered without a body even if the alias has
// a secret.
func TestCheckOfTLS(t *testing.T) {
	t.Parallel()
	c := testCase{name: "slack"}
	_, got := c.ask("POST / HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded\r\n\r\nssl_check=1&token=a", []string{"slack"}, []string{secret})
	if got == nil || got.Status != 200 || len(got.Body) != 0 {
		t.Errorf("answered %+v", got)
	}
}

// TestSentSecret: only the challenges of Asana and Notion contain a secret.
func TestSentSecret(t *testing.T) {
	t.Parallel()
	for _, c := range cases {
		head, body, _ := strings.Cut(c.request(challenge), "\r\n\r\n")
		sender, value := handshake.SentSecret(&handshake.Request{Head: []byte(head + "\r\n\r\n"), Body: []byte(body)})
		want := map[string]string{"asana": challenge, "notion": "secret_tMrlL1qK5vuQAh1b6cZGhFChZTSYJlce98V0pYn7yBl"}[c.name]
		if value != want || (sender == c.name) != (want != "") {
			t.Errorf("%s: %q of %q, want %q", c.name, value, sender, want)
		}
	}
	if sender, value := handshake.SentSecret(nil); sender+value != "" {
		t.Error("no request gives a secret")
	}
}

// TestConfirmationLink: the link of Amazon SNS is shown only if it leads to Amazon.
func TestConfirmationLink(t *testing.T) {
	t.Parallel()
	link := func(method, kind, url string) string {
		head := method + " / HTTP/1.1\r\nx-amz-sns-message-type: " + kind + "\r\nContent-Type: text/plain; charset=UTF-8\r\n\r\n"
		return handshake.ConfirmationLink(&handshake.Request{Head: []byte(head), Body: []byte(`{"Type":"SubscriptionConfirmation","SubscribeURL":"` + url + `"}`)})
	}
	const right = "https://sns.us-west-2.amazonaws.com/?Action=ConfirmSubscription&TopicArn=arn:aws:sns:us-west-2:123456789012:MyTopic&Token=2336412f37"
	if got := link("POST", "SubscriptionConfirmation", right); got != right {
		t.Errorf("shown %q", got)
	}
	if got := link("POST", "SubscriptionConfirmation", "https://sns.cn-north-1.amazonaws.com.cn/?Token=1"); got == "" {
		t.Error("that of China is not shown")
	}
	for _, c := range [][3]string{
		{"GET", "SubscriptionConfirmation", right},
		{"POST", "Notification", right},
		{"POST", "SubscriptionConfirmation", "http://sns.us-west-2.amazonaws.com/"},
		{"POST", "SubscriptionConfirmation", "https://sns.us-west-2.amazonaws.com.evil.example/"},
		{"POST", "SubscriptionConfirmation", "https://evil.example/sns.us-west-2.amazonaws.com"},
		{"POST", "SubscriptionConfirmation", "https://sns.us-west-2.amazonaws.com@evil.example/"},
		{"POST", "SubscriptionConfirmation", "javascript:alert(1)"},
		{"POST", "SubscriptionConfirmation", ""},
	} {
		if got := link(c[0], c[1], c[2]); got != "" {
			t.Errorf("%v: %q", c, got)
		}
	}
}

func (c *testCase) ask(raw string, names []string, secrets []string) (string, *handshake.Reply) {
	head, body, _ := strings.Cut(raw, "\r\n\r\n")
	return handshake.Answer(&handshake.Request{Head: []byte(head + "\r\n\r\n"), Body: []byte(body)}, names,
		func(name string) []string {
			if name != c.name {
				return nil
			}
			return secrets
		}, now)
}

func TestPublishedChallenges(t *testing.T) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			raw := c.request(challenge)
			for _, names := range [][]string{{c.name}, {"all"}, {"head", c.name}} {
				name, got := c.ask(raw, names, c.secrets)
				want := &handshake.Reply{Status: c.status, Body: []byte(strings.ReplaceAll(c.body, "%s", challenge))}
				for _, l := range c.lines {
					want.Lines = append(want.Lines, [2]string{l[0], strings.ReplaceAll(l[1], "%s", challenge)})
				}
				if got != nil && len(got.Body) == 0 {
					got.Body = []byte{}
				}
				if diff := cmp.Diff(want, got); name != c.name || diff != "" {
					t.Errorf("for %v: %q answered\n%s", names, name, diff)
				}
			}
			if c.name != "head" {
				r := &handshake.Request{}
				head, body, _ := strings.Cut(raw, "\r\n\r\n")
				r.Head, r.Body = []byte(head+"\r\n\r\n"), []byte(body)
				if got := handshake.Recognise(r); got != c.name {
					t.Errorf("recognised as %q", got)
				}
			}
			refuse := func(what, raw string, names []string, secrets []string) {
				t.Helper()
				if name, got := c.ask(raw, names, secrets); got != nil && (got.Status != 401 || c.name != "discord" && c.name != "xero") {
					t.Errorf("%s: %q answered %+v", what, name, got)
				}
			}
			changed := strings.Replace(raw, c.wrong[0], c.wrong[1], 1)
			if changed == raw {
				t.Fatal("nothing is wrong")
			}
			refuse("with a byte wrong", changed, []string{c.name}, c.secrets)
			refuse("without the setting", raw, nil, c.secrets)
			if method, rest, _ := strings.Cut(raw, " "); c.name != "head" {
				for _, other := range []string{"GET", "POST", "PUT", "HEAD", "OPTIONS", "post"} {
					if other != method {
						refuse("with the method "+other, other+" "+rest, []string{c.name}, c.secrets)
					}
				}
			}
			for what, change := range extras[c.name] {
				if changed := strings.Replace(raw, change[0], change[1], 1); changed == raw {
					t.Errorf("%s changes nothing", what)
				} else {
					refuse(what, changed, []string{c.name}, nil)
				}
			}
			refuse("with the setting of another", raw, []string{"box"}, c.secrets)
			if strings.Contains(c.request("%s"), "%s") {
				for what, echo := range map[string]string{
					"markup": "<script>alert(1)</script>", "percent-encoded markup": "%3Cscript%3E", "a quote": "a'b", "a line end": "a%0D%0Ab",
					"nothing": "", "513 bytes": strings.Repeat("x", 513),
				} {
					if what == "nothing" && c.name == "graph" {
						continue
					}
					refuse(what, c.request(echo), []string{c.name}, c.secrets)
				}
			}
			if c.secrets != nil {
				if c.name != "x" { // the challenge of X has no signature, so no secret is wrong: the answer is made with any secret
					refuse("with a wrong secret", raw, []string{c.name}, []string{"another"})
				}
				if handshake.NeedOf(c.name) != handshake.NeedsNothing {
					refuse("without a secret", raw, []string{c.name}, nil)
				}
			}
		})
	}
}

// TestTestedSignatures: a wrong signature of Discord or Xero gets 401. Without a secret there is no answer.
func TestTestedSignatures(t *testing.T) {
	for _, c := range cases {
		if c.name != "discord" && c.name != "xero" {
			continue
		}
		raw := strings.Replace(c.request(""), `"}`, `" }`, 1)
		raw = strings.Replace(raw, `:1}`, `:1 }`, 1)
		if _, got := c.ask(raw, []string{c.name}, c.secrets); got == nil || got.Status != 401 {
			t.Errorf("%s: %+v, want 401", c.name, got)
		}
		if _, got := c.ask(raw, []string{c.name}, nil); got != nil {
			t.Errorf("%s without a secret: %+v", c.name, got)
		}
	}
}

func TestEveryChallengeHasACase(t *testing.T) {
	for _, name := range handshake.Names() {
		if !slices.ContainsFunc(cases, func(c testCase) bool { return c.name == name }) {
			t.Errorf("%s has none", name)
		}
	}
}

// TestOldChallenges: a challenge with an old signature is not answered, because an attacker may have
// recorded it.
func TestOldChallenges(t *testing.T) {
	for _, c := range cases {
		old := map[string]time.Duration{"slack": 5 * time.Minute, "zoom": 5 * time.Minute, "twitch": 10 * time.Minute}[c.name]
		if old == 0 || c.secrets == nil {
			continue
		}
		head, body, _ := strings.Cut(c.request(challenge), "\r\n\r\n")
		r := &handshake.Request{Head: []byte(head + "\r\n\r\n"), Body: []byte(body)}
		for late, answered := range map[time.Duration]bool{old: true, old + time.Second: false} {
			if _, got := handshake.Answer(r, []string{c.name}, func(string) []string { return c.secrets }, now.Add(late)); (got != nil) != answered {
				t.Errorf("%s %v later: %+v", c.name, late, got)
			}
		}
	}
}

// A challenge may have a body of 16 KiB, and no more.
func TestLargestChallenge(t *testing.T) {
	for more := range 2 {
		body := `{"challenge":"a"}`
		body += strings.Repeat(" ", 16<<10-len(body)+more)
		c := testCase{}
		if _, got := c.ask("POST / HTTP/1.1\r\n"+jsonLine+"\r\n"+body, []string{"monday"}, nil); (got != nil) != (more == 0) {
			t.Errorf("%d bytes: %+v", len(body), got)
		}
	}
}

// TestChallengeTwice: a challenge is not answered if the text to repeat occurs twice, the query is malformed,
// or the body is unexpected or too large.
func TestChallengeTwice(t *testing.T) {
	for _, raw := range []string{
		"GET /?challenge=a&challenge=b HTTP/1.1\r\n\r\n",
		"GET /?challenge=a;b=%zz HTTP/1.1\r\n\r\n",
		"POST / HTTP/1.1\r\nX-Hook-Secret: a\r\nX-Hook-Secret: b\r\n\r\n",
		"GET /?challenge=a HTTP/1.1\r\n\r\nbody",
		"POST / HTTP/1.1\r\n" + jsonLine + "\r\n" + `{"challenge":"a"}` + strings.Repeat(" ", 16<<10),
	} {
		c := testCase{}
		if name, got := c.ask(raw, []string{"all"}, nil); got != nil {
			t.Errorf("%.60q: %s answered %+v", raw, name, got)
		}
	}
}
