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

// arrived makes a request of Stripe that was signed with a secret some time before it arrived.
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

// What a request is judged by as it arrives, and what is said of it.
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
		want    string // verdict, reason, secret
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

// Verify finds the reason with the secrets of the alias, other ones among them.
func TestVerifyStored(t *testing.T) {
	const value = "whsec_right"
	for name, c := range map[string]struct {
		secrets relay.OpenSecrets
		want    string
	}{
		"fits":            {relay.OpenSecrets{kept("sec_a", "stripe", "", value)}, "valid ok"},
		"of another path": {relay.OpenSecrets{kept("sec_a", "stripe", "/other", value), kept("sec_b", "stripe", "/pay", "whsec_b")}, "invalid secret-of-other"},
		"none":            {nil, "unchecked no-secret"},
		"sealed":          {relay.OpenSecrets{{SenderSecret: relay.SenderSecret{Provider: "stripe"}, Sealed: true}}, "unchecked secret-sealed"},
	} {
		report, judged, err := VerifyStored(arrived(value, "{}", 0), "", "/pay/1", c.secrets)
		if err != nil {
			t.Fatal(err)
		}
		if got := report.Verdict.Verdict + " " + report.Reason; got != c.want || judged == nil || judged.Verdict+" "+judged.Reason != c.want {
			t.Errorf("%s: %s, kept %+v", name, got, judged)
		}
	}
}

// A record says null where no scheme is known, and unchecked where the alias had no secret.
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
