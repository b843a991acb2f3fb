package conformance

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"relay/relaytest"
	"relay/signature"
)

// oracleCase is a request whose signature the library of its sender verifies.
type oracleCase struct {
	Oracle  string            `json:"oracle"`
	Method  string            `json:"method"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"` // base64
	Secret  string            `json:"secret"`
	NowMs   int64             `json:"nowMs"`

	what     string
	accepted bool
}

// oracle is a row of the signature table together with the Node library that checks the row. The signature
// table is signature.Senders; each of its rows is one scheme of one sender.
type oracle struct {
	name   string // name of the oracle in testdata/oracles/verify.cjs
	sender string
	header string // signature header, which identifies the row of this sender
	secret string
	other  string
	body   string
	lines  []signature.Field
}

// The cases in which each row of the signature table is tested. Only the request of caseSigned is accepted.
const (
	caseSigned  = "as signed"
	caseChanged = "a changed body"
	caseSecret  = "another secret"
	caseOld     = "too old"
)

const (
	oracleURL  = "https://shop.example.com/hook?a=1"
	oracleBody = `{"id":"evt_1","type":"invoice.paid","webhookTimestamp":1700000000000,"name":"Zoë €"}`
	adyenItem  = `{"live":"false","notificationItems":[{"NotificationRequestItem":{"additionalData":{"hmacSignature":"x"},"eventCode":"AUTHORISATION","success":"true",` +
		`"amount":{"currency":"EUR","value":1130},"pspReference":"7914073381342284","merchantAccountCode":"TestMerchant","merchantReference":"TestPayment-1407325143704","eventDate":"2026-01-01T00:00:00+00:00"}}]}`
	gocardlessBody = `{"events":[{"id":"EV1","resource_type":"payments","action":"paid"}],"meta":{"webhook_id":"WB1"}}`
)

func oracles() []oracle {
	hexKey, otherKey := strings.Repeat("ab", 32), strings.Repeat("cd", 32)
	return []oracle{
		{name: "adyen", sender: "adyen", header: "HmacSignature", secret: hexKey, other: otherKey},
		{name: "adyen-items", sender: "adyen", header: "", secret: hexKey, other: otherKey, body: adyenItem},
		{name: "hubspot", sender: "hubspot", header: "X-HubSpot-Signature-v3"},
		{name: "hubspot-v1", sender: "hubspot", header: "X-HubSpot-Signature"},
		{name: "hubspot-v2", sender: "hubspot", header: "X-HubSpot-Signature", lines: []signature.Field{{Name: "X-HubSpot-Signature-Version", Value: "v2"}}},
		{name: "line", sender: "line", header: "X-Line-Signature"},
		{name: "linear", sender: "linear", header: "Linear-Signature"},
		{name: "mux", sender: "mux", header: "Mux-Signature"},
		{name: "notion", sender: "notion", header: "X-Notion-Signature"},
		{name: "paddle", sender: "paddle", header: "Paddle-Signature"},
		{name: "sanity", sender: "sanity", header: "sanity-webhook-signature"},
		{name: "shopify", sender: "shopify", header: "X-Shopify-Hmac-Sha256"},
		{name: "workos", sender: "workos", header: "WorkOS-Signature"},
		{name: "coinbase-commerce", sender: "coinbase-commerce", header: "X-CC-Webhook-Signature"},
		{name: "gocardless", sender: "gocardless", header: "Webhook-Signature", body: gocardlessBody},
		{name: "razorpay", sender: "razorpay", header: "X-Razorpay-Signature"},
		{name: "square", sender: "square", header: "X-Square-HmacSha256-Signature"},
	}
}

// TestSignatureOracles uses the senders' own libraries for Node: they accept the signatures of package
// signature. They refuse another secret, a changed byte, and a time that is too old by the signature table.
func TestSignatureOracles(t *testing.T) {
	t.Parallel()
	dir := relaytest.NodeModules(t, "testdata/oracles", "verify.cjs")
	var cases []oracleCase
	for _, o := range oracles() {
		cases = append(cases, casesOf(t, o)...)
	}
	cases = append(cases, keyPairCases(t)...)
	in, err := json.Marshal(cases)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", filepath.Join(dir, "verify.cjs"))
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(in)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var answers []string
	if err != nil || json.Unmarshal(out, &answers) != nil || len(answers) != len(cases) {
		t.Fatalf("node: %v, %d answers to %d cases\n%s", err, len(answers), len(cases), stderr.Bytes())
	}
	for i, c := range cases {
		if accepted := answers[i] == ""; accepted != c.accepted {
			t.Errorf("%s, %s: accepted %v, want %v: %s", c.Oracle, c.what, accepted, c.accepted, answers[i])
		}
	}
	t.Logf("%d rows, %d cases", len(oracles())+2, len(cases))
}

// goRow is a row of the signature table that is tested with a Go library.
type goRow struct {
	provider
	sender string
	scheme *signature.Scheme
}

// goRows returns the rows of the signature table whose header line one of the Go libraries of providers()
// reads. Several senders use the same header line; each of them has a row.
func goRows() []goRow {
	lines := map[string]string{
		"Stripe-Signature": "stripe", "X-Hub-Signature-256": "github", "X-Hub-Signature": "github", "X-Slack-Signature": "slack",
		"svix-signature": "svix", "webhook-signature": "standard-webhooks", "X-Twilio-Signature": "twilio",
	}
	var rows []goRow
	for _, p := range providers() {
		for i := range signature.Senders {
			for n := range signature.Senders[i].Schemes {
				if s := &signature.Senders[i].Schemes[n]; s.Oracle == "library" && lines[s.Header] == p.name {
					rows = append(rows, goRow{p, signature.Senders[i].Name, s})
				}
			}
		}
	}
	return rows
}

// TestEachLibraryRowHasItsLibrary: the field Oracle of a row is "library" if and only if a test checks the
// row with a library of the sender.
func TestEachLibraryRowHasItsLibrary(t *testing.T) {
	t.Parallel()
	asked := map[*signature.Scheme]bool{&signature.Find("discord", nil).Schemes[0]: true, &signature.Find("sendgrid", nil).Schemes[0]: true}
	for _, o := range oracles() {
		asked[schemeOf(t, o)] = true
	}
	for _, row := range goRows() {
		asked[row.scheme] = true
	}
	for i := range signature.Senders {
		for n := range signature.Senders[i].Schemes {
			if s := &signature.Senders[i].Schemes[n]; (s.Oracle == "library") != asked[s] {
				t.Errorf("%s %s says %q, asked: %v", signature.Senders[i].Name, s.Header, s.Oracle, asked[s])
			}
		}
	}
	if len(asked) < 30 {
		t.Errorf("libraries hold %d rows, want 30", len(asked))
	}
	t.Logf("libraries hold %d rows", len(asked))
}

// TestSignatureGoOracles: for each row of goRows, the sender's Go library accepts the signed request and
// refuses the other cases.
func TestSignatureGoOracles(t *testing.T) {
	t.Parallel()
	for _, row := range goRows() {
		for what, err := range row.answers(t) {
			if accepted := err == nil; accepted != (what == caseSigned) {
				t.Errorf("%s %s, %s: %v", row.sender, row.scheme.Header, what, err)
			}
		}
	}
}

// answers passes each case of the row to the library, and returns the library's error for each; nil =
// accepted.
func (row *goRow) answers(t *testing.T) map[string]error {
	t.Helper()
	secret, lines := plainSecret, []signature.Field{}
	switch row.name {
	case "svix":
		secret, lines = base64Secret, []signature.Field{{Name: "svix-id", Value: "msg_1"}}
	case "standard-webhooks":
		secret, lines = base64Secret, []signature.Field{{Name: "webhook-id", Value: "msg_1"}}
	}
	body, contentType := oracleBody, "application/json"
	if row.form {
		body, contentType = "text=hello+world%21&CallSid=CA1&From=%2B1", "application/x-www-form-urlencoded"
	}
	ask := func(secret, sent string, at time.Time) error {
		changes, err := signature.Sign(row.scheme, secret, &signature.Request{
			Method: "POST", URL: oracleURL, Body: []byte(body), Line: signature.Lines(lines),
		}, at)
		if err != nil {
			t.Fatalf("%s: %v", row.sender, err)
		}
		r := httptest.NewRequestWithContext(t.Context(), "POST", oracleURL, strings.NewReader(sent))
		r.Header.Set("Content-Type", contentType)
		for _, line := range append(lines, changes.Lines...) {
			r.Header.Set(line.Name, line.Value)
		}
		return row.verify(r, []byte(sent))
	}
	now := time.Now()
	out := map[string]error{
		caseSigned:  ask(secret, body, now),
		caseSecret:  ask(otherOf(secret), body, now),
		caseChanged: ask(secret, strings.NewReplacer("paid", "void", "CA1", "CA2", "world", "World").Replace(body), now),
	}
	if row.scheme.Old > 0 {
		out[caseOld] = ask(secret, body, now.Add(-row.scheme.Old-time.Minute))
	}
	return out
}

// otherOf returns a secret of the same form that differs from the given one.
func otherOf(secret string) string {
	if encoded, ok := strings.CutPrefix(secret, "whsec_"); ok {
		return "whsec_B" + encoded[1:]
	}
	return "x" + secret
}

func casesOf(t *testing.T, o oracle) []oracleCase {
	t.Helper()
	scheme := schemeOf(t, o)
	if o.secret == "" {
		o.secret, o.other = "a secret of the test", "another secret"
	}
	if o.body == "" {
		o.body = oracleBody
	}
	now := time.Now().Truncate(time.Second)
	r := &signature.Request{Method: "POST", URL: oracleURL, Body: []byte(o.body), Line: signature.Lines(o.lines)}
	changes, err := signature.Sign(scheme, o.secret, r, now)
	if err != nil {
		t.Fatalf("%s: %v", o.name, err)
	}
	body := o.body
	if changes.Body != nil {
		body = string(changes.Body)
	}
	headers := map[string]string{}
	for _, line := range append(o.lines, changes.Lines...) {
		headers[strings.ToLower(line.Name)] = line.Value
	}
	list := []oracleCase{}
	add := func(what, secret, body string, age time.Duration, accepted bool) {
		list = append(list, oracleCase{
			Oracle: o.name, Method: "POST", URL: oracleURL, Headers: headers, Secret: secret,
			Body: base64.StdEncoding.EncodeToString([]byte(body)), NowMs: now.Add(age).UnixMilli(), what: what, accepted: accepted,
		})
	}
	add(caseSigned, o.secret, body, 0, true)
	add(caseSecret, o.other, body, 0, false)
	changed := strings.NewReplacer("invoice.paid", "invoice.void", `"value":1130`, `"value":1131`, `"action":"paid"`, `"action":"void"`).Replace(body)
	if changed == body {
		t.Fatalf("%s: the body has nothing to change", o.name)
	}
	add(caseChanged, o.secret, changed, 0, false)
	if scheme.Old > 0 {
		add("nearly too old", o.secret, body, scheme.Old-2*time.Second, true)
		add(caseOld, o.secret, body, scheme.Old+2*time.Second, false)
	}
	return list
}

func schemeOf(t *testing.T, o oracle) *signature.Scheme {
	t.Helper()
	line := signature.Lines(o.lines)
	for i := range signature.Senders {
		p := &signature.Senders[i]
		for n := range p.Schemes {
			s := &p.Schemes[n]
			if p.Name != o.sender || s.Header != o.header {
				continue
			}
			if value, _ := line(s.When.Name); value == s.When.Value {
				return s
			}
		}
	}
	t.Fatalf("the table has no row for %s", o.name)
	return nil
}

// keyPairCases are cases of senders that sign with a private key. The test has its own key pair, and the
// library and package signature must give the same verdict.
func keyPairCases(t *testing.T) []oracleCase {
	t.Helper()
	now := time.Now().Truncate(time.Second)
	stamp := strconv.FormatInt(now.Unix(), 10)
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	otherPublic, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	otherPair, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(stamp + oracleBody))
	der, err := ecdsa.SignASN1(rand.Reader, pair, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	var list []oracleCase
	add := func(name, key, other string, headers map[string]string) {
		for _, what := range []string{caseSigned, caseSecret, caseChanged} {
			body, key := oracleBody, key
			switch what {
			case caseSecret:
				key = other
			case caseChanged:
				body = strings.Replace(oracleBody, "paid", "void", 1)
			}
			c := oracleCase{
				Oracle: name, Method: "POST", URL: oracleURL, Headers: headers, Secret: key, NowMs: now.UnixMilli(),
				Body: base64.StdEncoding.EncodeToString([]byte(body)), what: what, accepted: what == caseSigned,
			}
			list = append(list, c)
			var fields []signature.Field
			for name, value := range headers {
				fields = append(fields, signature.Field{Name: name, Value: value})
			}
			r := &signature.Request{Method: "POST", URL: oracleURL, Body: []byte(body), Line: signature.Lines(fields)}
			v := signature.Verify(&signature.Find(name, r).Schemes[0], []signature.Secret{{Value: key}}, r, now)
			if (v.Verdict == signature.Valid) != c.accepted {
				t.Errorf("%s: %+v", name, v)
			}
		}
	}
	add("discord", hex.EncodeToString(public), hex.EncodeToString(otherPublic), map[string]string{
		"x-signature-ed25519": hex.EncodeToString(ed25519.Sign(private, []byte(stamp+oracleBody))), "x-signature-timestamp": stamp,
	})
	add("sendgrid", spkiOf(t, pair), spkiOf(t, otherPair), map[string]string{
		"x-twilio-email-event-webhook-signature": base64.StdEncoding.EncodeToString(der), "x-twilio-email-event-webhook-timestamp": stamp,
	})
	return list
}

// spkiOf returns the public key of a pair in the form that SendGrid shows.
func spkiOf(t *testing.T, pair *ecdsa.PrivateKey) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(&pair.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(der)
}
