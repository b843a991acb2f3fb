package record

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/signature"
)

// arrived returns a request of Stripe that arrived when its signature was as old as age says. It has no signature
// if secret is "".
func arrived(secret, body string, age time.Duration) *SignedRequest {
	at := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	r := &SignedRequest{Body: []byte(body), ReceivedAt: at}
	head := "POST /pay/1 HTTP/1.1\r\nHost: shop.localhost\r\n"
	if secret != "" {
		c, err := signature.Sign(&signature.Find("stripe", nil).Schemes[0], secret, &signature.Request{Body: r.Body}, at.Add(-age))
		if err != nil {
			panic(err)
		}
		head += c.Lines[0].Name + ": " + c.Lines[0].Value + "\r\n"
	}
	r.Head = []byte(head + "\r\n")
	return r
}

func kept(id, provider, path, value string) relay.OpenSecret {
	return relay.OpenSecret{SenderSecret: relay.SenderSecret{ID: id, Provider: provider, Path: path}, Value: relay.NewSecretText(value)}
}

// TestJudgeArrival checks verdict, reason and secret for requests at their arrival. No verdict shows the
// secret's value.
func TestJudgeArrival(t *testing.T) {
	const value = "whsec_right"
	right := kept("sec_right", "stripe", "", value)
	sealed := relay.OpenSecret{SenderSecret: relay.SenderSecret{ID: "sec_s", Provider: "stripe"}, Sealed: true}
	cut := arrived(value, "{}", 0)
	cut.Unread = signature.BodyIncomplete
	rewritten := arrived(value, "{}\n", 0)
	rewritten.Body = []byte("{}")
	for name, c := range map[string]struct {
		r       *SignedRequest
		secrets relay.OpenSecrets
		want    string // verdict, reason and id of the secret
	}{
		"fits":                     {arrived(value, "{}", time.Second), relay.OpenSecrets{right}, "valid ok sec_right"},
		"too old":                  {arrived(value, "{}", time.Hour), relay.OpenSecrets{right}, "expired time-too-old sec_right"},
		"any of several":           {arrived(value, "{}", 0), relay.OpenSecrets{kept("sec_old", "stripe", "", "whsec_old"), right}, "valid ok sec_right"},
		"longest path wins":        {arrived(value, "{}", 0), relay.OpenSecrets{right, kept("sec_p", "stripe", "/pay", "whsec_p")}, "invalid wrong-secret "},
		"of another path":          {arrived(value, "{}", 0), relay.OpenSecrets{right, kept("sec_p", "stripe", "/other", "whsec_p")}, "valid ok sec_right"},
		"wrong":                    {arrived(value, "{}", 0), relay.OpenSecrets{kept("sec_w", "stripe", "", "whsec_wrong")}, "invalid wrong-secret "},
		"rewritten, not looked at": {rewritten, relay.OpenSecrets{right}, "invalid wrong-secret "},
		"no signature, by path":    {arrived("", "{}", 0), relay.OpenSecrets{kept("sec_p", "stripe", "/pay", value)}, "missing header-missing "},
		"no signature, any path":   {arrived("", "{}", 0), relay.OpenSecrets{right}, ""},
		"no secret":                {arrived(value, "{}", 0), nil, ""},
		"secret of another sender": {arrived(value, "{}", 0), relay.OpenSecrets{kept("sec_g", "github", "", "x")}, ""},
		"not whole":                {cut, relay.OpenSecrets{right}, "unchecked body-incomplete "},
		"large":                    {arrived(value, strings.Repeat("x", maxJudged+1), 0), relay.OpenSecrets{right}, "unchecked too-large "},
		"sealed":                   {arrived(value, "{}", 0), relay.OpenSecrets{sealed}, "unchecked secret-sealed "},
		"one of them sealed":       {arrived(value, "{}", 0), relay.OpenSecrets{sealed, right}, "valid ok sec_right"},
		"the others do not fit":    {arrived(value, "{}", 0), relay.OpenSecrets{sealed, kept("sec_w", "stripe", "", "whsec_wrong")}, "unchecked secret-sealed "},
	} {
		got := JudgeArrival(c.r, Recognise(c.r.Head, c.r.Body).Name, "/pay/1", c.secrets)
		text := ""
		if got != nil {
			text = got.Verdict + " " + got.Reason + " " + got.SecretID
			if got.Provider != "stripe" || got.Message == "" || strings.Contains(fmt.Sprint(*got), value) {
				t.Errorf("%s: %+v", name, got)
			}
		}
		if text != c.want {
			t.Errorf("%s: %q, want %q", name, text, c.want)
		}
	}
}

// TestVerifyStored checks verdict and reason of stored requests. VerifyStored returns no verdict to store if
// the body is incomplete or too large, or only a secret that cannot be decrypted might match.
func TestVerifyStored(t *testing.T) {
	const value = "whsec_right"
	right, wrong := kept("sec_a", "stripe", "", value), kept("sec_w", "stripe", "", "whsec_wrong")
	sealed := relay.OpenSecret{SenderSecret: relay.SenderSecret{ID: "sec_s", Provider: "stripe"}, Sealed: true}
	signed := arrived(value, "{}", 0)
	rewritten := arrived(value, "{}\n", 0)
	rewritten.Body = []byte("{}")
	cut, large, unknown := *signed, *signed, *signed
	cut.Unread, large.Unread = signature.BodyIncomplete, signature.TooLarge
	unknown.Head = []byte(strings.Replace(string(signed.Head), "v1=", "v7=", 1))
	for name, c := range map[string]struct {
		r       *SignedRequest
		secrets relay.OpenSecrets
		want    string
		keeps   bool // the stored verdict stays
	}{
		"fits":              {signed, relay.OpenSecrets{right}, "valid ok", false},
		"of another path":   {signed, relay.OpenSecrets{kept("sec_a", "stripe", "/other", value), kept("sec_b", "stripe", "/pay", "whsec_b")}, "invalid secret-of-other", false},
		"none":              {signed, nil, "unchecked no-secret", false},
		"sealed":            {signed, relay.OpenSecrets{sealed}, "unchecked secret-sealed", true},
		"one fits":          {signed, relay.OpenSecrets{sealed, right}, "valid ok", false},
		"one does not fit":  {signed, relay.OpenSecrets{sealed, wrong}, "unchecked secret-sealed", true},
		"no secret is hex":  {signed, relay.OpenSecrets{sealed, kept("sec_e", "stripe", "", "x")}, "unchecked secret-sealed", true},
		"rewritten":         {rewritten, relay.OpenSecrets{sealed, right}, "invalid body-rewritten", false},
		"whatever fits":     {&unknown, relay.OpenSecrets{sealed, right}, "invalid version-unknown", false},
		"sealed elsewhere":  {signed, relay.OpenSecrets{wrong, {SenderSecret: relay.SenderSecret{Provider: "github"}, Sealed: true}}, "invalid wrong-secret", false},
		"too large":         {&large, relay.OpenSecrets{right}, "unchecked too-large", true},
		"not whole":         {&cut, relay.OpenSecrets{right}, "unchecked body-incomplete", true},
		"too large, sealed": {&large, relay.OpenSecrets{sealed}, "unchecked too-large", true},
	} {
		report, judged, err := VerifyStored(c.r, "", "/pay/1", c.secrets)
		if err != nil {
			t.Fatal(err)
		}
		if got := report.Verdict.Verdict + " " + report.Reason; got != c.want || (judged == nil) != c.keeps || judged != nil && judged.Verdict+" "+judged.Reason != c.want {
			t.Errorf("%s: %s, kept %+v", name, got, judged)
		}
		if last := report.Checks[len(report.Checks)-1]; !last.OK && report.Reason == signature.SecretSealed && last.Detail != report.Message {
			t.Errorf("%s: %+v", name, last)
		}
	}
	some, _, _ := VerifyStored(signed, "", "/pay/1", relay.OpenSecrets{sealed, wrong, wrong, sealed, sealed})
	if !strings.Contains(some.Message, "2 secrets") || !strings.Contains(some.Message, "3 more") {
		t.Error(some.Message)
	}
}

// A custom signature definition of the alias is used for requests that have its signature line, and for requests
// to its path. If the sender is recognised and the alias has a secret of it, that secret is used instead.
func TestJudgeCustom(t *testing.T) {
	const value, definition = "secret", `{"header":"X-Shop","template":"{body}"}`
	custom := func(path string) relay.OpenSecret {
		s := kept("sec_c", signature.CustomName, path, value)
		s.Custom = definition
		return s
	}
	p, err := signature.ReadCustom([]byte(definition))
	if err != nil {
		t.Fatal(err)
	}
	c, err := signature.Sign(&p.Schemes[0], value, &signature.Request{Body: []byte("{}")}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	request := func(line string) *SignedRequest {
		return &SignedRequest{Head: []byte("POST /pay/1 HTTP/1.1\r\nHost: a\r\n" + line + "\r\n"), Body: []byte("{}"), ReceivedAt: time.Now()}
	}
	signed := request("X-Shop: " + c.Lines[0].Value + "\r\n")
	for name, x := range map[string]struct {
		r       *SignedRequest
		secrets relay.OpenSecrets
		want    string
	}{
		"its line":            {signed, relay.OpenSecrets{custom("")}, "custom valid sec_c"},
		"wrong":               {request("X-Shop: " + strings.Repeat("0", 64) + "\r\n"), relay.OpenSecrets{custom("")}, "custom invalid "},
		"no line":             {request(""), relay.OpenSecrets{custom("")}, ""},
		"no line, its path":   {request(""), relay.OpenSecrets{custom("/pay")}, "custom missing "},
		"another path":        {signed, relay.OpenSecrets{custom("/other")}, ""},
		"recognised":          {arrived("whsec_right", "{}", 0), relay.OpenSecrets{custom("/pay"), kept("sec_a", "stripe", "", "whsec_right")}, "stripe valid sec_a"},
		"of a later relayd":   {signed, relay.OpenSecrets{{SenderSecret: relay.SenderSecret{Provider: signature.CustomName, Custom: `{"new":1}`}}}, ""},
		"of another sender":   {arrived("whsec_right", "{}", 0), relay.OpenSecrets{custom("/pay")}, ""},
		"among other secrets": {signed, relay.OpenSecrets{kept("sec_a", "stripe", "", "x"), custom("")}, "custom valid sec_c"},
	} {
		got := ""
		if v := JudgeArrival(x.r, Recognise(x.r.Head, x.r.Body).Name, "/pay/1", x.secrets); v != nil {
			got = v.Provider + " " + v.Verdict + " " + v.SecretID
		}
		if got != x.want {
			t.Errorf("%s: %q, want %q", name, got, x.want)
		}
		if report, judged, err := VerifyStored(x.r, "", "/pay/1", x.secrets); x.want != "" && (err != nil || judged == nil || judged.Provider+" "+report.Verdict.Verdict+" "+report.SecretID != x.want) {
			t.Errorf("%s, verified: %+v %+v %v", name, report, judged, err)
		}
	}
	for _, named := range []string{"github", "strpe"} { // the user named another sender, so the definition is not used
		if report, judged, err := VerifyStored(signed, named, "/pay/1", relay.OpenSecrets{custom("/pay")}); err == nil && (judged != nil && judged.Provider != named || report.Verdict.Verdict == signature.Valid) {
			t.Errorf("%s: %+v %+v", named, report, judged)
		}
	}
}

// If a request matches several definitions, each is tried, whatever the spelling of their JSON. Only those
// with the longest path are tried, and no secret for a shorter path.
func TestJudgeSeveralDefinitions(t *testing.T) {
	custom := func(id, path, definition, value string) relay.OpenSecret {
		s := kept(id, signature.CustomName, path, value)
		s.Custom = definition
		return s
	}
	const (
		hexBody  = `{"header":"X-Shop","template":"{body}"}`
		spelled  = `{"template":"{body}","header":"x-shop","hash":"sha256"}`
		withBase = `{"header":"X-Shop","template":"{body}","form":"base64"}`
		dotted   = `{"header":"X-Shop","template":"v1.{body}"}`
		other    = `{"header":"X-Other","template":"{body}"}`
	)
	signed := func(definition, value string) *SignedRequest {
		p, err := signature.ReadCustom([]byte(definition))
		if err != nil {
			t.Fatal(err)
		}
		c, err := signature.Sign(&p.Schemes[0], value, &signature.Request{Body: []byte("{}")}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		head := "POST /pay/1 HTTP/1.1\r\nHost: a\r\n" + c.Lines[0].Name + ": " + c.Lines[0].Value + "\r\n\r\n"
		return &SignedRequest{Head: []byte(head), Body: []byte("{}"), ReceivedAt: time.Now()}
	}
	unsigned := &SignedRequest{Head: []byte("POST /pay/1 HTTP/1.1\r\nHost: a\r\n\r\n"), Body: []byte("{}"), ReceivedAt: time.Now()}
	sealed := custom("sec_s", "", withBase, "")
	sealed.Sealed = true
	for name, x := range map[string]struct {
		r       *SignedRequest
		secrets relay.OpenSecrets
		want    string
	}{
		"the newer of one line":         {signed(dotted, "b"), relay.OpenSecrets{custom("sec_a", "", hexBody, "a"), custom("sec_b", "", dotted, "b")}, "custom valid sec_b"},
		"the older of one line":         {signed(hexBody, "a"), relay.OpenSecrets{custom("sec_a", "", hexBody, "a"), custom("sec_b", "", dotted, "b")}, "custom valid sec_a"},
		"another form of one line":      {signed(withBase, "b"), relay.OpenSecrets{custom("sec_a", "", hexBody, "a"), custom("sec_b", "", withBase, "b")}, "custom valid sec_b"},
		"another spelling of the JSON":  {signed(hexBody, "b"), relay.OpenSecrets{custom("sec_a", "", hexBody, "a"), custom("sec_b", "", spelled, "b")}, "custom valid sec_b"},
		"none of them":                  {signed(hexBody, "x"), relay.OpenSecrets{custom("sec_a", "", hexBody, "a"), custom("sec_b", "", dotted, "b")}, "custom invalid "},
		"one of them sealed":            {signed(hexBody, "x"), relay.OpenSecrets{custom("sec_a", "", hexBody, "a"), sealed}, "custom unchecked "},
		"its line, not the longer path": {signed(hexBody, "a"), relay.OpenSecrets{custom("sec_o", "/pay", other, "o"), custom("sec_a", "", hexBody, "a")}, "custom valid sec_a"},
		"the longer path of its line":   {signed(hexBody, "a"), relay.OpenSecrets{custom("sec_a", "", hexBody, "a"), custom("sec_p", "/pay", hexBody, "p")}, "custom invalid "},
		"a sender of a longer path":     {unsigned, relay.OpenSecrets{custom("sec_a", "/pay", hexBody, "a"), kept("sec_m", "stripe", "/pay/1", "m")}, "stripe missing "},
		"a definition of a longer path": {unsigned, relay.OpenSecrets{kept("sec_m", "stripe", "/pay", "m"), custom("sec_a", "/pay/1", hexBody, "a")}, "custom missing "},
	} {
		got := ""
		if v := JudgeArrival(x.r, "", "/pay/1", x.secrets); v != nil {
			got = v.Provider + " " + v.Verdict + " " + v.SecretID
		}
		if got != x.want {
			t.Errorf("%s: %q, want %q", name, got, x.want)
		}
		if strings.Contains(x.want, Unchecked) {
			continue // for an unchecked request, VerifyStored returns no verdict to store, see TestVerifyStored
		}
		if report, judged, err := VerifyStored(x.r, "", "/pay/1", x.secrets); err != nil || judged == nil || !strings.HasPrefix(x.want, judged.Provider+" "+report.Verdict.Verdict+" ") {
			t.Errorf("%s, verified: %+v %+v %v", name, report, judged, err)
		}
	}

	// A secret that is given for one call is tried with each definition, or only with the definition that is
	// given too.
	definitions := relay.OpenSecrets{custom("sec_a", "", hexBody, "a"), custom("sec_b", "", dotted, "b")}
	for name, x := range map[string]struct {
		r     *SignedRequest
		given GivenSecret
		kept  relay.OpenSecrets
		want  string
	}{
		"by that of the alias":     {signed(dotted, "c"), GivenSecret{Value: "c"}, definitions, "valid ok"},
		"by name":                  {signed(dotted, "c"), GivenSecret{Provider: signature.CustomName, Value: "c"}, definitions, "valid ok"},
		"with a definition":        {signed(withBase, "c"), GivenSecret{Provider: signature.CustomName, Custom: withBase, Value: "c"}, definitions, "valid ok"},
		"with a definition alone":  {signed(withBase, "c"), GivenSecret{Custom: withBase, Value: "c"}, nil, "valid ok"},
		"wrong":                    {signed(dotted, "c"), GivenSecret{Value: "a"}, definitions, "invalid wrong-secret"},
		"no line":                  {unsigned, GivenSecret{Provider: signature.CustomName, Value: "c"}, definitions, "missing header-missing"},
		"recognised":               {arrived("c", "{}", 0), GivenSecret{Value: "c"}, definitions, "valid ok"},
		"of no sender":             {unsigned, GivenSecret{Value: "c"}, nil, "unchecked no-secret"},
		"a definition of a sender": {unsigned, GivenSecret{Provider: "stripe", Custom: hexBody, Value: "c"}, nil, "body.provider: a definition goes with the provider custom alone"},
		"no definition":            {unsigned, GivenSecret{Provider: signature.CustomName, Value: "c"}, nil, "body.provider: " + noDefinition},
		"no scheme":                {unsigned, GivenSecret{Custom: "{}", Value: "c"}, nil, "body.custom: expected the name of a header line, such as X-Signature"},
	} {
		report, _, err := ExplainGiven(x.r, "/pay/1", &x.given, x.kept)
		got := ""
		if err != nil {
			got = relay.AsError(err).Detail
		} else {
			got = report.Verdict.Verdict + " " + report.Reason
		}
		if got != x.want {
			t.Errorf("given, %s: %q, want %q", name, got, x.want)
		}
	}
}

// A stored event may name a sender that only a newer version of Relay knows. Its signature is verified by the
// custom definitions of the alias only. A secret that is given without a sender is tried with the definitions too.
func TestJudgeBesideARecognisedSender(t *testing.T) {
	const definition, value = `{"header":"X-Shop","template":"{body}"}`, "secret"
	p, err := signature.ReadCustom([]byte(definition))
	if err != nil {
		t.Fatal(err)
	}
	c, err := signature.Sign(&p.Schemes[0], value, &signature.Request{Body: []byte("{}")}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	line := "X-Shop: " + c.Lines[0].Value + "\r\n"
	request := func(lines string) *SignedRequest {
		return &SignedRequest{Head: []byte("POST /pay HTTP/1.1\r\nHost: a\r\n" + lines + "\r\n"), Body: []byte("{}"), ReceivedAt: time.Now()}
	}
	s := kept("sec_c", signature.CustomName, "", value)
	s.Custom = definition
	secrets := relay.OpenSecrets{s, kept("sec_n", "sender-of-tomorrow", "", value)}
	if got := JudgeArrival(request(""), "sender-of-tomorrow", "/pay", secrets); got != nil {
		t.Errorf("without a line: %+v", got)
	}
	if got := JudgeArrival(request(line), "sender-of-tomorrow", "/pay", secrets); got == nil || got.Verdict != signature.Valid {
		t.Errorf("with its line: %+v", got)
	}
	for given, want := range map[string]string{value: signature.Valid, "wrong": signature.Invalid} {
		report, _, err := ExplainGiven(request("X-GitHub-Event: push\r\n"+line), "/pay", &GivenSecret{Value: given}, secrets)
		if err != nil || report.Verdict.Verdict != want || report.Signature.Header != "X-Shop" {
			t.Errorf("given %s: %+v, %v", given, report, err)
		}
	}
}

// The signature of a record is null if the sender was not recognised, and unchecked if the alias had no secret of
// the sender.
func TestSignatureOfRecords(t *testing.T) {
	for provider, want := range map[string]string{"": "", "stripe": "unchecked no-secret"} {
		s := Summarise(&relay.Event{Provider: relay.Provider{Name: provider}, Method: http.MethodPost}, relay.Site{}, time.Now())
		got := ""
		if s.Signature != nil {
			got = s.Signature.Verdict + " " + s.Signature.Reason
		}
		if got != want {
			t.Errorf("%q: %q", provider, got)
		}
	}
	if !slices.Contains(SigningSenders(), "stripe") {
		t.Error("stripe does not sign")
	}
}

func BenchmarkJudgeArrival(b *testing.B) {
	r := arrived("whsec_right", strings.Repeat(`{"id":"evt_1","object":"event"}`, 64), time.Second)
	secrets := relay.OpenSecrets{kept("sec_a", "stripe", "", "whsec_right")}
	b.ReportAllocs()
	for b.Loop() {
		if v := JudgeArrival(r, "stripe", "/pay/1", secrets); v.Verdict != signature.Valid {
			b.Fatal(v)
		}
	}
}

// TestJudgeAlike: requests of Polar look like those of Standard Webhooks; the secret that matches decides
// between the two.
func TestJudgeAlike(t *testing.T) {
	const value = "polar_whs_right"
	p := signature.Find("polar", &signature.Request{})
	lines := signature.Lines([]signature.Field{{Name: "webhook-id", Value: "msg_1"}})
	c, err := signature.Sign(&p.Schemes[0], value, &signature.Request{Line: lines, Body: []byte("{}")}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	head := "POST /a HTTP/1.1\r\nHost: a\r\nwebhook-id: msg_1\r\n"
	for _, line := range c.Lines {
		head += line.Name + ": " + line.Value + "\r\n"
	}
	r := &SignedRequest{Head: []byte(head + "\r\n"), Body: []byte("{}"), ReceivedAt: time.Now()}
	for name, secrets := range map[string]relay.OpenSecrets{
		"alone":                      {kept("sec_p", "polar", "", value)},
		"beside one of the standard": {kept("sec_s", "standard-webhooks", "", "whsec_"+"d3Jvbmd3cm9uZ3dyb25nd3Jvbmc="), kept("sec_p", "polar", "", value)},
	} {
		list := judgedBy("standard-webhooks", "/a", secrets, requestOf(r))
		if best := bestOf(list, r, requestOf(r)); best.sender == nil || best.sender.Name != "polar" {
			t.Errorf("%s: %v", name, best.sender)
		}
	}
}
