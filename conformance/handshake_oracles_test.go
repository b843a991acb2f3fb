package conformance

import (
	"bufio"
	"bytes"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/protocol/http"

	"relay/handshake"
	"relay/relaytest"
)

// challengeCase is a challenge that relayd and the library of the sender both answer. The test compares the
// two answers.
type challengeCase struct {
	Challenge string            `json:"challenge"` // name of the challenge, such as slack
	Method    string            `json:"method"`
	Path      string            `json:"path"`
	Headers   map[string]string `json:"headers"`
	Body      string            `json:"body"`
	Secret    string            `json:"secret"`

	what    string
	refused bool // whether relayd and the library must refuse the case
}

// libraryAnswer is the answer of a library. It has no status if the library computes only the content.
type libraryAnswer struct {
	Status int    `json:"status"`
	Type   string `json:"type"`
	Body   string `json:"body"`
}

// TestHandshakeOracles compares relayd's answers to challenges with those of the senders' own libraries. The
// answers are equal, and both relayd and the library refuse a request with a wrong byte or another secret.
func TestHandshakeOracles(t *testing.T) {
	t.Parallel()
	now := time.Now()
	cases := challengeCases(now)
	dir := relaytest.NodeModules(t, "testdata/handshakes", "answers.cjs")
	in, err := json.Marshal(cases)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", filepath.Join(dir, "answers.cjs"))
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(in)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var answers []libraryAnswer
	if err != nil || json.Unmarshal(out, &answers) != nil || len(answers) != len(cases) {
		t.Fatalf("node: %v, %d answers to %d cases\n%s%s", err, len(answers), len(cases), out, stderr.Bytes())
	}
	for i, c := range cases {
		if wrong := c.compare(answers[i], now); wrong != "" {
			t.Errorf("%s, %s: %s", c.Challenge, c.what, wrong)
		}
	}
}

// compare returns the difference between relayd's answer and that of the library; "" = none.
func (c *challengeCase) compare(theirs libraryAnswer, now time.Time) string {
	var head strings.Builder
	fmt.Fprintf(&head, "%s %s HTTP/1.1\r\nHost: shop.example.com\r\n", c.Method, c.Path)
	for name, value := range c.Headers {
		fmt.Fprintf(&head, "%s: %s\r\n", name, value)
	}
	r := &handshake.Request{Head: []byte(head.String() + "\r\n"), Body: []byte(c.Body), URL: "https://shop.example.com" + c.Path}
	_, ours := handshake.Answer(r, []string{c.Challenge}, func(string) []string { return []string{c.Secret} }, now)
	if c.refused {
		switch {
		case theirs.Status < 400:
			return fmt.Sprintf("the library accepts it: %+v", theirs)
		case ours != nil && ours.Status != theirs.Status:
			return fmt.Sprintf("answered by %d, the library says %d", ours.Status, theirs.Status)
		}
		return ""
	}
	if ours == nil {
		return "not answered"
	}
	if theirs.Status != 0 && theirs.Status != ours.Status {
		return fmt.Sprintf("status %d, the library says %d", ours.Status, theirs.Status)
	}
	contentType := ""
	for _, l := range ours.Lines {
		if l[0] == "Content-Type" {
			contentType = l[1]
		}
	}
	// The library answers JSON, and relayd sends only the text in it. Slack accepts both.
	if c.Challenge == "slack" && theirs.Body != "" {
		var object map[string]string
		if err := json.Unmarshal([]byte(theirs.Body), &object); err != nil || len(object) != 1 || mediaType(contentType) != "text/plain" {
			return fmt.Sprintf("%q, the library says %+v", contentType, theirs)
		}
		theirs.Body, theirs.Type = object["challenge"], ""
	}
	if theirs.Type != "" && mediaType(theirs.Type) != mediaType(contentType) {
		return fmt.Sprintf("type %q, the library says %q", contentType, theirs.Type)
	}
	if !equalContent(string(ours.Body), theirs.Body) {
		return fmt.Sprintf("content %q, the library says %q", ours.Body, theirs.Body)
	}
	return ""
}

func mediaType(line string) string {
	media, _, _ := mime.ParseMediaType(line)
	return media
}

// equalContent reports whether two texts are equal, or contain the same JSON value.
func equalContent(a, b string) bool {
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		return a == b
	}
	left, _ := json.Marshal(x)
	right, _ := json.Marshal(y)
	return bytes.Equal(left, right)
}

// challengeCases are the published challenges of those senders that have a library for receivers.
func challengeCases(now time.Time) []challengeCase {
	const secret, echo = "a secret of the test", "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P"
	stamp := fmt.Sprint(now.Unix())
	signed := func(line, body string) map[string]string {
		h := hmac.New(sha256.New, []byte(secret))
		h.Write([]byte("v0:" + stamp + ":" + body))
		return map[string]string{
			"Content-Type": "application/json", line + "-request-timestamp": stamp, line + "-signature": "v0=" + hex.EncodeToString(h.Sum(nil)),
		}
	}
	slackBody := `{"token":"Jhj5dZrVaK7ZwHHjRyZWjbDl","challenge":"` + echo + `","type":"url_verification"}`
	zoomBody := `{"payload":{"plainToken":"` + echo + `"},"event_ts":1654503849680,"event":"endpoint.url_validation"}`
	slack := challengeCase{Challenge: "slack", Method: "POST", Path: "/slack/events", Headers: signed("x-slack", slackBody), Body: slackBody, Secret: secret}
	zoom := challengeCase{Challenge: "zoom", Method: "POST", Path: "/zoom", Headers: signed("x-zm", zoomBody), Body: zoomBody, Secret: secret}
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	discord := challengeCase{Challenge: "discord", Method: "POST", Path: "/discord", Body: `{"type":1}`, Secret: hex.EncodeToString(key.Public().(ed25519.PublicKey))}
	discord.Headers = map[string]string{
		"Content-Type": "application/json", "X-Signature-Timestamp": stamp,
		"X-Signature-Ed25519": hex.EncodeToString(ed25519.Sign(key, []byte(stamp+discord.Body))),
	}
	cases := []challengeCase{
		{
			Challenge: "slack", Method: "POST", Path: "/slack/events", Headers: map[string]string{"Content-Type": "application/x-www-form-urlencoded"},
			Body: "ssl_check=1&token=Jhj5dZrVaK7ZwHHjRyZWjbDl", Secret: secret, what: "the check of TLS",
		},
		{Challenge: "x", Method: "GET", Path: "/webhook/twitter?crc_token=" + echo + "&nonce=nonce", Secret: secret, what: "as published"},
		{Challenge: "dropbox", Method: "GET", Path: "/webhook?challenge=" + echo, what: "as published"},
	}
	for _, c := range []challengeCase{slack, zoom, discord} {
		c.what = "as published"
		cases = append(cases, c)
		c.what, c.refused = "a byte wrong", true
		c.Body = strings.Replace(c.Body, "{", "{ ", 1) // the JSON stays valid, but the signature is of the old bytes
		if c.Challenge == "zoom" {
			c.Body = strings.Replace(c.Body, echo, "4"+echo[1:], 1)
		}
		cases = append(cases, c)
	}
	for _, c := range []challengeCase{slack, zoom} {
		c.what, c.refused, c.Secret = "another secret", true, "another secret"
		cases = append(cases, c)
	}
	return cases
}

// TestHandshakeOfCloudEvents compares relayd with the CloudEvents SDK for Go, whose receivers answer the
// challenge of a sender that is allowed. Only the allowed rate in the answer may differ: the SDK states a
// number, and relayd allows any rate.
func TestHandshakeOfCloudEvents(t *testing.T) {
	t.Parallel()
	receiver, err := cloudevents.New()
	if err != nil {
		t.Fatal(err)
	}
	const origin = "eventemitter.example.com"
	rate := 120
	receiver.WebhookConfig = &cloudevents.WebhookConfig{AllowedOrigins: []string{origin}, AllowedRate: &rate}
	for name, c := range map[string]struct {
		method, lines string
		answered      bool
	}{
		"as published":     {"OPTIONS", "WebHook-Request-Origin: " + origin + "\r\nWebHook-Request-Rate: 120\r\n", true},
		"without a rate":   {"OPTIONS", "WebHook-Request-Origin: " + origin + "\r\n", true},
		"another method":   {"OPTIONZ", "WebHook-Request-Origin: " + origin + "\r\n", false},
		"without a sender": {"OPTIONS", "WebHook-Request-Origim: " + origin + "\r\n", false},
	} {
		head := c.method + " /hook HTTP/1.1\r\nHost: shop.example.com\r\n" + c.lines + "\r\n"
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(head)))
		if err != nil {
			t.Fatal(err)
		}
		theirs := httptest.NewRecorder()
		receiver.OptionsHandler(theirs, r)
		_, ours := handshake.Answer(&handshake.Request{Head: []byte(head), URL: "https://shop.example.com/hook"}, []string{"cloudevents"},
			func(string) []string { return nil }, time.Now())
		if accepted := theirs.Code < 400; accepted != c.answered || (ours != nil) != c.answered {
			t.Errorf("%s: the SDK says %d, answered here %+v", name, theirs.Code, ours)
			continue
		}
		if ours == nil {
			continue
		}
		lines := http.Header{}
		for _, l := range ours.Lines {
			lines.Set(l[0], l[1])
		}
		for _, line := range []string{"Allow", "WebHook-Allowed-Origin"} {
			if lines.Get(line) != theirs.Header().Get(line) || lines.Get(line) == "" {
				t.Errorf("%s: %s %q, the SDK says %q", name, line, lines.Get(line), theirs.Header().Get(line))
			}
		}
		if ours.Status != theirs.Code || lines.Get("WebHook-Allowed-Rate") != "*" || theirs.Header().Get("WebHook-Allowed-Rate") != "120" {
			t.Errorf("%s: %+v, the SDK says %d %v", name, ours, theirs.Code, theirs.Header())
		}
	}
}
