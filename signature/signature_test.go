package signature

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"os"
	"strings"
	"testing"
	"time"
)

const (
	testURL   = "https://shop.example.com/hook?a=1"
	testBody  = `{"id":"evt_1","type":"invoice.paid","webhookTimestamp":1700000000000,"name":"Zoë"}`
	formBody  = "b=2&a=1&a=1&c=%C3%A9"
	mailBody  = `{"signature":{"timestamp":"1","token":"tok","signature":"` + "00" + `"},"event-data":{"event":"opened","id":"x"}}`
	adyenBody = `{"live":"false","notificationItems":[{"NotificationRequestItem":{"additionalData":{"hmacSignature":"AA=="},"eventCode":"AUTHORISATION","success":"true","amount":{"currency":"EUR","value":1000},"pspReference":"p","merchantAccountCode":"m","merchantReference":"r"}}]}`
)

var testNow = time.Unix(1_790_000_000, 0).UTC()

// message is a request whose header lines can be changed.
type message struct {
	Method, URL string
	Lines       []Field
	Body        []byte
}

func (m *message) request() *Request {
	return &Request{Method: m.Method, URL: m.URL, Body: m.Body, Line: Lines(m.Lines)}
}

// secretOf returns a secret in the format that a scheme requires.
func secretOf(s *Scheme) string {
	switch s.Key {
	case KeyBase64:
		return base64.StdEncoding.EncodeToString([]byte("a secret of 24 bytes....."))
	case KeyHex:
		return hex.EncodeToString([]byte("a secret"))
	case Whsec:
		return "whsec_" + base64.StdEncoding.EncodeToString([]byte("a secret of 24 bytes....."))
	default:
		return "a secret"
	}
}

func otherSecretOf(s *Scheme) string {
	switch s.Key {
	case KeyBase64, Whsec:
		return base64.StdEncoding.EncodeToString([]byte("another secret of 24 byte"))
	case KeyHex:
		return hex.EncodeToString([]byte("another"))
	default:
		return "another secret"
	}
}

// requestOf returns an unsigned request of a sender.
func requestOf(s *Scheme) *message {
	r := &message{Method: "POST", URL: testURL, Body: []byte(testBody)}
	switch {
	case s.own == twilio || s.own == mandrill:
		r.Body = []byte(formBody)
	case s.own == mailgun:
		r.Body = []byte(mailBody)
	case s.own == adyenItems:
		r.Body = []byte(adyenBody)
	case s.own == hook0:
		r.Lines = append(r.Lines, Field{"Content-Type", "application/json"}, Field{s.Header, "t=1,h=content-type,v1=00"})
	}
	if s.IDHeader != "" {
		r.Lines = append(r.Lines, Field{s.IDHeader, "msg_1"})
	}
	if s.When.Name != "" {
		r.Lines = append(r.Lines, s.When)
	}
	return r
}

// apply returns a copy of a request with the changes that signing makes.
func apply(r *message, c Changes) *message {
	out := &message{Method: r.Method, URL: r.URL, Body: r.Body}
	if c.Body != nil {
		out.Body = c.Body
	}
	for _, line := range r.Lines {
		replaced := false
		for _, change := range c.Lines {
			replaced = replaced || strings.EqualFold(change.Name, line.Name)
		}
		if !replaced {
			out.Lines = append(out.Lines, line)
		}
	}
	out.Lines = append(out.Lines, c.Lines...)
	return out
}

// TestRows checks each row of the table. A signature made by this package is valid. A changed byte or
// a wrong secret makes it invalid. An old time makes it expired if the sender has a tolerance.
func TestRows(t *testing.T) {
	t.Parallel()
	for i := range Senders {
		p := &Senders[i]
		for n := range p.Schemes {
			s := &p.Schemes[n]
			if s.CanSign() == SignNo || s.CanSign() == SignKeyPair {
				continue
			}
			t.Run(p.Name+" "+s.Header+" "+s.Describe(), func(t *testing.T) {
				t.Parallel()
				testRow(t, s)
			})
		}
	}
}

func testRow(t *testing.T, s *Scheme) {
	secret := secretOf(s)
	changes, err := Sign(s, secret, requestOf(s).request(), testNow)
	if err != nil {
		t.Fatal(err)
	}
	signed := apply(requestOf(s), changes)
	verify := func(secret string, r *message, at time.Time) string {
		v := Verify(s, []Secret{{ID: "sec_1", Value: secret}}, r.request(), at)
		return v.Verdict + " " + v.Reason
	}
	if got := verify(secret, signed, testNow.Add(time.Second)); got != "valid ok" {
		t.Errorf("as signed: %s", got)
	}
	if got := verify(otherSecretOf(s), signed, testNow); got != "invalid wrong-secret" {
		t.Errorf("another secret: %s", got)
	}
	if got := Verify(s, nil, signed.request(), testNow); got.Verdict != Unchecked || got.Reason != NoSecret {
		t.Errorf("no secret: %+v", got)
	}
	if got := verify(secret, requestOf(s), testNow); s.Header != "" && s.own != hook0 && got != "missing header-missing" {
		t.Errorf("unsigned: %s", got)
	}
	if s.Digest != Equal && s.own != mailgun && s.Header != "Authorization" {
		changed := *signed
		changed.Body = []byte(strings.Replace(string(signed.Body), "a", "e", 1))
		if s.own == adyenItems {
			changed.Body = []byte(strings.Replace(string(signed.Body), "1000", "1001", 1))
		}
		if got := verify(secret, &changed, testNow); got != "invalid wrong-secret" {
			t.Errorf("changed body: %s", got)
		}
	}
	if s.Old > 0 {
		if got := verify(secret, signed, testNow.Add(s.Old+time.Second)); got != "expired time-too-old" {
			t.Errorf("beyond the tolerance: %s", got)
		}
		if got := verify(secret, signed, testNow.Add(s.Old)); got != "valid ok" {
			t.Errorf("at the tolerance: %s", got)
		}
	}
	if s.Future > 0 {
		if got := verify(secret, signed, testNow.Add(-s.Future-time.Second)); got != "expired time-in-future" {
			t.Errorf("ahead of the tolerance: %s", got)
		}
		if got := verify(secret, signed, testNow.Add(-s.Future)); got != "valid ok" {
			t.Errorf("ahead, at the tolerance: %s", got)
		}
	}
}

func TestKeyPairs(t *testing.T) {
	t.Parallel()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	stamp := Seconds.write(testNow)
	discord := &Find("discord", nil).Schemes[0]
	r := &message{Body: []byte(testBody), Lines: []Field{
		{"X-Signature-Timestamp", stamp},
		{"X-Signature-Ed25519", hex.EncodeToString(ed25519.Sign(private, []byte(stamp+testBody)))},
	}}
	judge(t, "discord", discord, hex.EncodeToString(public), r)

	pair, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(stamp + testBody))
	sig, err := ecdsa.SignASN1(rand.Reader, pair, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&pair.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	sendgrid := &Find("sendgrid", nil).Schemes[0]
	r = &message{Body: []byte(testBody), Lines: []Field{
		{"X-Twilio-Email-Event-Webhook-Timestamp", stamp},
		{"X-Twilio-Email-Event-Webhook-Signature", base64.StdEncoding.EncodeToString(sig)},
	}}
	judge(t, "sendgrid", sendgrid, base64.StdEncoding.EncodeToString(der), r)
}

func judge(t *testing.T, name string, s *Scheme, key string, r *message) {
	t.Helper()
	if v := Verify(s, []Secret{{Value: key}}, r.request(), testNow); v.Verdict != Valid {
		t.Errorf("%s: %+v", name, v)
	}
	changed := *r
	changed.Body = []byte(testBody + " ")
	if v := Verify(s, []Secret{{Value: key}}, changed.request(), testNow); v.Reason != WrongSecret {
		t.Errorf("%s, changed body: %+v", name, v)
	}
	if _, err := Sign(s, key, r.request(), testNow); err == nil {
		t.Errorf("%s was signed with a public key", name)
	}
	if v := Verify(s, []Secret{{Value: "no key"}}, r.request(), testNow); v.Reason != SecretEncoding {
		t.Errorf("%s, not a key: %+v", name, v)
	}
}

// TestReasons builds one request for each reason and checks that the verdict has that reason.
func TestReasons(t *testing.T) {
	t.Parallel()
	stripe, standard, square := Find("stripe", nil), Find("standard-webhooks", nil), Find("square", nil)
	sign := func(p *Sender, secret string, r *message, at time.Time) *message {
		c, err := Sign(&p.Schemes[0], secret, r.request(), at)
		if err != nil {
			t.Fatal(err)
		}
		return apply(r, c)
	}
	stripeRequest := func(body string) *message { return &message{Method: "POST", URL: testURL, Body: []byte(body)} }
	with := func(value string) *message {
		return &message{Body: []byte(testBody), Lines: []Field{{"Stripe-Signature", value}}}
	}
	good := sign(stripe, "whsec_abc", stripeRequest(testBody), testNow)
	goodTime, goodDigest, _ := strings.Cut(good.Lines[0].Value, "v1=")
	gitlab, capitals := Find("gitlab", (&message{Lines: []Field{{"X-Gitlab-Token", "x"}}}).request()), with(goodTime+"v1="+strings.ToUpper(goodDigest))
	apart := with(goodTime + "v1=" + goodDigest[:32] + "-" + goodDigest[32:])
	rewrittenBody := func(from, to string) *message {
		r := sign(stripe, "whsec_abc", stripeRequest(from), testNow)
		r.Body = []byte(to)
		return r
	}
	standardRequest := &message{Body: []byte(testBody), Lines: []Field{{"webhook-id", "msg_1"}}}
	whsec := "whsec_" + base64.StdEncoding.EncodeToString([]byte("a secret of 24 bytes....."))
	asText := sign(&Sender{Schemes: []Scheme{{Header: "webhook-signature", IDHeader: "webhook-id", TimeHeader: "webhook-timestamp", Signed: dottedID, Form: Base64, Layout: Versions, SigKey: "v1"}}}, whsec, standardRequest, testNow)
	otherURL := sign(square, "k", &message{Method: "POST", URL: "https://shop.example.com:443/hook?a=1", Body: []byte(testBody)}, testNow)
	otherURL.URL = testURL
	sha1 := Scheme{Header: "Stripe-Signature", Signed: body, Layout: Pairs, TimeKey: "t", SigKey: "v1"}
	plainBody := sign(&Sender{Schemes: []Scheme{sha1}}, "whsec_abc", stripeRequest(testBody), testNow)

	tests := map[string]struct {
		sender          *Sender
		secrets, others []Secret
		r               *message
		at              time.Time
		want            string
	}{
		"ok":                   {stripe, []Secret{{Value: "whsec_abc"}}, nil, good, testNow, "valid ok"},
		"second secret":        {stripe, []Secret{{Value: "old"}, {Value: "whsec_abc"}}, nil, good, testNow, "valid ok"},
		"behind one like none": {standard, []Secret{{Value: "whsec_%%%"}, {Value: whsec}}, nil, sign(standard, whsec, standardRequest, testNow), testNow, "valid ok"},
		"hex in capitals":      {stripe, []Secret{{Value: "whsec_abc"}}, nil, capitals, testNow, "valid ok"},
		"digits apart":         {stripe, []Secret{{Value: "whsec_abc"}}, nil, apart, testNow, "invalid header-malformed"},
		"hex is no secret":     {gitlab, []Secret{{Value: "abcd"}}, nil, &message{Lines: []Field{{"X-Gitlab-Token", "ABCD"}}}, testNow, "invalid wrong-secret"},
		"ahead":                {standard, []Secret{{Value: whsec}}, nil, sign(standard, whsec, standardRequest, testNow), testNow.Add(-time.Hour), "expired time-in-future"},
		"no secret":            {stripe, nil, nil, good, testNow, "unchecked no-secret"},
		"old":                  {stripe, []Secret{{Value: "whsec_abc"}}, nil, good, testNow.Add(time.Hour), "expired time-too-old"},
		"future is Stripe's":   {stripe, []Secret{{Value: "whsec_abc"}}, nil, good, testNow.Add(-time.Hour), "valid ok"},
		"no line":              {stripe, []Secret{{Value: "whsec_abc"}}, nil, stripeRequest(testBody), testNow, "missing header-missing"},
		"empty line":           {stripe, []Secret{{Value: "whsec_abc"}}, nil, with(""), testNow, "invalid header-malformed"},
		"not hex":              {stripe, []Secret{{Value: "whsec_abc"}}, nil, with("t=1790000000,v1=zz"), testNow, "invalid header-malformed"},
		"half a digest":        {stripe, []Secret{{Value: "whsec_abc"}}, nil, with("t=1790000000,v1=abcd"), testNow, "invalid header-malformed"},
		"test version only":    {stripe, []Secret{{Value: "whsec_abc"}}, nil, with("t=1790000000,v0=" + strings.Repeat("ab", 32)), testNow, "invalid version-unknown"},
		"time is a word":       {stripe, []Secret{{Value: "whsec_abc"}}, nil, with("t=now,v1=" + strings.Repeat("ab", 32)), testNow, "invalid time-malformed"},
		"time is not there":    {stripe, []Secret{{Value: "whsec_abc"}}, nil, with("v1=" + strings.Repeat("ab", 32)), testNow, "invalid time-malformed"},
		"wrong":                {stripe, []Secret{{Value: "whsec_xyz"}}, nil, good, testNow, "invalid wrong-secret"},
		"white space":          {stripe, []Secret{{Value: " whsec_abc\n"}}, nil, good, testNow, "invalid secret-whitespace"},
		"quotes":               {stripe, []Secret{{Value: `"whsec_abc"`}}, nil, good, testNow, "invalid secret-whitespace"},
		"of another":           {stripe, []Secret{{Value: "whsec_xyz"}}, []Secret{{Value: "whsec_abc"}}, good, testNow, "invalid secret-of-other"},
		"read as text":         {standard, []Secret{{Value: whsec}}, nil, asText, testNow, "invalid secret-encoding"},
		"last newline":         {stripe, []Secret{{Value: "whsec_abc"}}, nil, rewrittenBody(testBody, testBody+"\n"), testNow, "invalid body-rewritten"},
		"newline was cut":      {stripe, []Secret{{Value: "whsec_abc"}}, nil, rewrittenBody(testBody+"\n", testBody), testNow, "invalid body-rewritten"},
		"CRLF":                 {stripe, []Secret{{Value: "whsec_abc"}}, nil, rewrittenBody("a\r\nb", "a\nb"), testNow, "invalid body-rewritten"},
		"indented":             {stripe, []Secret{{Value: "whsec_abc"}}, nil, rewrittenBody(`{"a":"é","b":[1,2]}`, "{\n  \"a\": \"é\",\n  \"b\": [1, 2]\n}"), testNow, "invalid body-rewritten"},
		"was Python's":         {stripe, []Secret{{Value: "whsec_abc"}}, nil, rewrittenBody(`{"a": "\u00e9", "b": [1, 2]}`, `{"a":"é","b":[1,2]}`), testNow, "invalid body-rewritten"},
		"another URL":          {square, []Secret{{Value: "k"}}, nil, otherURL, testNow, "invalid url-differs"},
		"another scheme":       {stripe, []Secret{{Value: "whsec_abc"}}, nil, plainBody, testNow, "invalid other-scheme"},
		"key from the network": {Find("paypal", nil), nil, nil, &message{Lines: []Field{{"PAYPAL-TRANSMISSION-SIG", "x"}, {"PAYPAL-TRANSMISSION-TIME", "2026-01-01T00:00:00Z"}}}, testNow, "unchecked key-not-local"},
		"not base64":           {standard, []Secret{{Value: "whsec_%%%"}}, nil, asText, testNow, "invalid secret-encoding"},
	}
	deserved := map[string]string{ // verdicts with these reasons are made by package record, and tested by its TestVerifyStored
		SecretSealed: "record", BodyIncomplete: "record", TooLarge: "record",
	}
	for name, tt := range tests {
		deserved[strings.Fields(tt.want)[1]] = name
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := Explain(tt.sender, tt.secrets, tt.others, tt.r.request(), tt.at)
			if s := got.Verdict.Verdict + " " + got.Reason; s != tt.want {
				t.Errorf("got %q, want %q: %+v", s, tt.want, got)
			}
			if got.Message == "" {
				t.Error("there is no message")
			}
			for _, secret := range append(tt.secrets, tt.others...) {
				if len(secret.Value) > 3 && strings.Contains(got.Message+strings.Join(got.Tried, " "), secret.Value) {
					t.Errorf("the report has the secret in it: %+v", got)
				}
			}
		})
	}
	for _, reason := range documentedReasons(t) {
		if deserved[reason] == "" {
			t.Errorf("no request deserves %s", reason)
		}
		delete(deserved, reason)
	}
	if len(deserved) > 0 {
		t.Errorf("docs/signatures.md does not have %v", deserved)
	}
}

// documentedReasons lists the reasons of docs/signatures.md.
func documentedReasons(t *testing.T) (list []string) {
	t.Helper()
	page, err := os.ReadFile("../docs/signatures.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| reason | what to do |")
	table, _, _ = strings.Cut(table, "\n\n")
	for row := range strings.Lines(table) {
		cell, _, _ := strings.Cut(strings.TrimPrefix(row, "| "), " | ")
		for name := range strings.SplitSeq(cell, ", ") {
			if name, ok := strings.CutPrefix(name, "`"); ok {
				list = append(list, strings.TrimSuffix(name, "`"))
			}
		}
	}
	return list
}

func TestExplainIsBounded(t *testing.T) {
	t.Parallel()
	stripe := Find("stripe", nil)
	var secrets []Secret
	for range 20 {
		secrets = append(secrets, Secret{Value: " whsec_" + rand.Text()})
	}
	r := &message{Method: "POST", URL: testURL, Body: []byte("{\"a\":\"" + strings.Repeat(`\u00e9`, 100_000) + "\"}\n"), Lines: []Field{
		{"Stripe-Signature", "t=1790000000,v1=" + strings.Repeat("ab", 32)},
	}}
	s := &stripe.Schemes[0]
	got := s.read(r.request())
	report := Report{}
	tr := trial{sender: stripe, scheme: s, got: &got, r: r.request(), report: &report}
	tr.run(secrets, secrets)
	if tr.count > maxTried {
		t.Errorf("%d digests", tr.count)
	}
}

func TestMemberIsReplacedInPlace(t *testing.T) {
	t.Parallel()
	doc := "{ \"a\" : [1, {\"b\":\t\"old\" , \"c\": 1e2}],\n\"b\":\"x\" }"
	got, err := replaceMember([]byte(doc), []string{"a", "1", "b"}, []byte(`"new"`))
	if want := strings.Replace(doc, `"old"`, `"new"`, 1); err != nil || string(got) != want {
		t.Errorf("got %q, %v", got, err)
	}
	for _, path := range [][]string{{"x"}, {"a", "7"}, {"b", "c"}, {"a", "1", "b", "c"}} {
		if _, err := replaceMember([]byte(doc), path, []byte("1")); err == nil {
			t.Errorf("%v was found", path)
		}
	}
}
