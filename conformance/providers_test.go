package conformance

import (
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-github/v74/github"
	"github.com/slack-go/slack"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stripe/stripe-go/v82/webhook"
	svix "github.com/svix/svix-webhooks/go"
	twilio "github.com/twilio/twilio-go/client"
)

const (
	plainSecret  = "s3cr3t-of-the-test"
	base64Secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
)

// provider is a sender of webhooks. sign returns the headers with which it signs a body. verify checks a
// request with the provider's own library, as the code of a user behind a tunnel would.
type provider struct {
	name   string
	sign   func(t *testing.T, body string) http.Header
	verify func(r *http.Request, body []byte) error
	form   bool
}

func providers() []provider {
	return []provider{
		{name: "stripe", sign: signStripe, verify: func(r *http.Request, body []byte) error {
			_, err := webhook.ConstructEventWithOptions(body, r.Header.Get("Stripe-Signature"), plainSecret,
				webhook.ConstructEventOptions{IgnoreAPIVersionMismatch: true})
			return err
		}},
		{name: "github", sign: signGitHub, verify: func(r *http.Request, _ []byte) error {
			_, err := github.ValidatePayload(r, []byte(plainSecret))
			return err
		}},
		{name: "slack", sign: signSlack, verify: func(r *http.Request, body []byte) error {
			v, err := slack.NewSecretsVerifier(r.Header, plainSecret)
			if err != nil {
				return err
			}
			_, _ = v.Write(body)
			return v.Ensure()
		}, form: true},
		{name: "svix", sign: signSvix, verify: func(r *http.Request, body []byte) error {
			wh, err := svix.NewWebhook(base64Secret)
			if err != nil {
				return err
			}
			return wh.Verify(body, r.Header)
		}},
		{name: "standard-webhooks", sign: signStandard, verify: func(r *http.Request, body []byte) error {
			wh, err := standardwebhooks.NewWebhook(base64Secret)
			if err != nil {
				return err
			}
			return wh.Verify(body, r.Header)
		}},
		{name: "twilio", sign: signTwilio, verify: verifyTwilio, form: true},
	}
}

func mac(secret, text string) []byte {
	m := hmac.New(sha256.New, []byte(secret))
	m.Write([]byte(text))
	return m.Sum(nil)
}

func signStripe(_ *testing.T, body string) http.Header {
	now := strconv.FormatInt(time.Now().Unix(), 10)
	return http.Header{"Stripe-Signature": {"t=" + now + ",v1=" + hex.EncodeToString(mac(plainSecret, now+"."+body))}}
}

func signGitHub(_ *testing.T, body string) http.Header {
	return http.Header{
		"X-Github-Event": {"push"}, "X-Github-Delivery": {"72d3162e-cc78-11e3-81ab-4c9367dc0958"},
		"X-Hub-Signature-256": {"sha256=" + hex.EncodeToString(mac(plainSecret, body))},
	}
}

func signSlack(_ *testing.T, body string) http.Header {
	now := strconv.FormatInt(time.Now().Unix(), 10)
	return http.Header{
		"X-Slack-Request-Timestamp": {now},
		"X-Slack-Signature":         {"v0=" + hex.EncodeToString(mac(plainSecret, "v0:"+now+":"+body))},
	}
}

func signSvix(t *testing.T, body string) http.Header {
	wh, err := svix.NewWebhook(base64Secret)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	sig, err := wh.Sign("msg_svix", now, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return http.Header{"svix-id": {"msg_svix"}, "svix-timestamp": {strconv.FormatInt(now.Unix(), 10)}, "svix-signature": {sig}}
}

func signStandard(t *testing.T, body string) http.Header {
	wh, err := standardwebhooks.NewWebhook(base64Secret)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	sig, err := wh.Sign("msg_std", now, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return http.Header{"webhook-id": {"msg_std"}, "webhook-timestamp": {strconv.FormatInt(now.Unix(), 10)}, "webhook-signature": {sig}}
}

// publicURL is the public URL in the configuration of a Twilio application.
const publicURL = "https://signed.localhost/hook?a=1&b=%2F"

func signTwilio(_ *testing.T, body string) http.Header {
	form, _ := url.ParseQuery(body)
	var names []string
	for name := range form {
		names = append(names, name)
	}
	sorted := append([]string(nil), names...)
	for i := range sorted {
		for j := i + 1; j < len(sorted); j++ {
			if sorted[j] < sorted[i] {
				sorted[i], sorted[j] = sorted[j], sorted[i]
			}
		}
	}
	text := publicURL
	for _, name := range sorted {
		text += name + form.Get(name)
	}
	m := hmac.New(sha1.New, []byte(plainSecret))
	m.Write([]byte(text))
	return http.Header{"X-Twilio-Signature": {base64.StdEncoding.EncodeToString(m.Sum(nil))}}
}

func verifyTwilio(r *http.Request, body []byte) error {
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return err
	}
	params := map[string]string{}
	for name := range form {
		params[name] = form.Get(name)
	}
	v := twilio.NewRequestValidator(plainSecret)
	if !v.Validate("https://"+r.Host+r.URL.RequestURI(), params, r.Header.Get("X-Twilio-Signature")) {
		return fmt.Errorf("twilio signature does not match")
	}
	return nil
}

// TestProviderSignatures sends a freshly signed request through an ssh tunnel and replays it. The local code
// verifies both with the provider's own library.
func TestProviderSignatures(t *testing.T) {
	t.Parallel()
	r := startRelay(t, "")
	verdicts := make(chan error, 4)
	var verify func(r *http.Request, body []byte) error
	local := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err == nil {
			req.Body = io.NopCloser(strings.NewReader(string(body)))
			err = verify(req, body)
		}
		verdicts <- err
	}))
	t.Cleanup(local.Close)
	r.tunnel("signed", local.Listener.Addr().String())

	for _, p := range providers() {
		t.Run(p.name, func(t *testing.T) {
			verify = p.verify
			body, contentType := `{"id":"evt_1","object":"event","type":"invoice.paid","data":{"object":{"a":1.10,"b":"caf\u00e9"}}}`, "application/json"
			if p.form {
				body, contentType = "text=hello+world%21&CallSid=CA1&From=%2B1", "application/x-www-form-urlencoded"
			}
			var request strings.Builder
			fmt.Fprintf(&request, "POST /hook?a=1&b=%%2F HTTP/1.1\r\nHost: signed.localhost\r\nContent-Type: %s\r\n", contentType)
			for name, values := range p.sign(t, body) {
				fmt.Fprintf(&request, "%s: %s\r\n", name, values[0])
			}
			fmt.Fprintf(&request, "Content-Length: %d\r\n\r\n%s", len(body), body)

			conn := r.dial()
			defer conn.Close()
			_, _ = io.WriteString(conn, request.String())
			if answer, err := readAnswer(conn, 15, false); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 200 OK") {
				t.Fatalf("answer: %.200q, %v", answer, err)
			}
			if err := <-verdicts; err != nil {
				t.Errorf("original: %v", err)
			}
			r.replay(r.latest("signed").ID)
			if err := <-verdicts; err != nil {
				t.Errorf("replay: %v", err)
			}
		})
	}
}
