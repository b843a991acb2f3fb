package signature

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"relay/relaytest"
)

// TestWorstBytes: the time for a verdict or a report is proportional to the size of the request, for any
// sender.
func TestWorstBytes(t *testing.T) {
	t.Parallel()
	secrets := []Secret{{Value: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}}
	at := time.Now()
	requests := func(p []byte) []*Request {
		return []*Request{
			{Method: "POST", URL: "https://a.example/b", Body: p, Line: func(string) (string, bool) { return "t=1,v1=00", true }},
			{Method: "POST", URL: "https://a.example/b?" + string(p[:min(len(p), 16<<10)]), Line: func(string) (string, bool) { return string(p), true }},
		}
	}
	for name, f := range map[string]func(p []byte){
		"verdict": func(p []byte) {
			for i := range Senders {
				for k := range Senders[i].Schemes {
					for _, r := range requests(p) {
						Verify(&Senders[i].Schemes[k], secrets, r, at)
					}
				}
			}
		},
		"report": func(p []byte) {
			for _, name := range []string{"stripe", "twilio", "github", "aws-sns"} {
				if s := Find(name, nil); s != nil {
					for _, r := range requests(p) {
						Explain(s, secrets, secrets, r, at)
					}
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			relaytest.WorstBytes(t, 32<<10, f) // each of some fifty schemes reads the input
		})
	}
}

// TestDeepBodyIsNotIndented: a body of 1 MiB with deeply nested arrays is not tried with indents,
// because these would take ten gigabytes.
func TestDeepBodyIsNotIndented(t *testing.T) {
	t.Parallel()
	deep := []byte(strings.Repeat("[", 9000) + strings.Repeat("0,", 20<<10) + "0" + strings.Repeat("]", 9000))
	for _, unit := range []string{"  ", "    "} {
		if got := indented(deep, unit); got != nil {
			t.Errorf("%d bytes became %d", len(deep), len(got))
		}
		text := []byte(`{"a":[1,{"b":"[\\\"{,"}],"c":{},"d":[]}`)
		var want bytes.Buffer
		if err := json.Indent(&want, text, "", unit); err != nil || !bytes.Equal(indented(text, unit), want.Bytes()) {
			t.Errorf("%v: %s", err, indented(text, unit))
		}
	}
}

// TestLinesNamedManyTimes: if a signature names a line thousands of times, the line is signed a
// limited number of times.
func TestLinesNamedManyTimes(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 60<<10)
	r := &Request{Method: "POST", URL: "https://a.example/", Body: []byte("{}"), Line: func(name string) (string, bool) {
		if name == "a" {
			return long, true
		}
		return "t=1,h=" + strings.Repeat("a ", 20<<10) + ",v1=00", strings.EqualFold(name, "X-Hook0-Signature")
	}}
	p := Find("coinbase", r)
	if p == nil {
		t.Fatal("coinbase is not known")
	}
	if got := Explain(p, nil, nil, r, time.Now()); got.Signed.Length > 8<<20 || got.Signed.Length < len(long) {
		t.Errorf("%d bytes are signed", got.Signed.Length)
	}
}
