package record_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"relay"
	"relay/record"
	"relay/record/body"
)

func TestSharedShowsNoSecretsAndNoOwner(t *testing.T) {
	t.Parallel()
	e := replayed(t)
	e.Request.Head = []byte("POST /hook HTTP/1.1\r\nHost: stripe-dev.example.com\r\nAuthorization: Bearer s3cret\r\nCookie: s3cret\r\n" +
		"Stripe-Signature: t=1,v1=s3cret\r\nX-Hub-Signature-256: s3cret\r\nX-Shopify-Hmac-Sha256: s3cret\r\nX-Plain: shown\r\n\r\n")
	e.Attempts[1].Response.Head = []byte("HTTP/1.1 200 OK\r\nset-cookie: s3cret\r\n\r\n")
	b, err := json.Marshal(sharedOf(t, e, relay.Share{View: true}, true))
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"s3cret", "stripe-dev", "token:ci"} {
		if bytes.Contains(b, []byte(word)) {
			t.Errorf("%s is in %s", word, b)
		}
	}
	if !bytes.Contains(b, []byte("shown")) {
		t.Errorf("a plain header is missing in %s", b)
	}
	golden(t, "shared.json", sharedOf(t, e, relay.Share{View: true}, true))
	closed := sharedOf(t, e, relay.Share{}, false)
	if closed.Request != nil || closed.Response != nil || closed.PayloadSize != 8 || *closed.ResponseSize != 3 {
		t.Errorf("without view: %+v", closed)
	}
}

// TestLargeSharesTakeTurns: while two large bodies are being read, OfShared waits if the decoded body is large,
// and does not wait if it is small.
func TestLargeSharesTakeTurns(t *testing.T) {
	for range 2 {
		done, err := body.Turn(t.Context(), body.Large+1)
		must(t, err)
		defer done()
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	packed := gzipped(t, "["+strings.Repeat("{},", 200_000)+"{}]")
	for _, c := range []struct {
		line string
		data []byte
		want error
	}{
		{"", []byte(`{"a":1}`), nil},
		{"Content-Encoding: gzip\r\n", packed, context.Canceled},
	} {
		e := replayed(t)
		e.Request.Head = []byte("POST / HTTP/1.1\r\n" + c.line + "\r\n")
		e.Request.Body = relay.Body{Data: c.data, Size: int64(len(c.data)), Stored: int64(len(c.data)), State: relay.BodyComplete}
		if _, err := record.OfShared(gone, e, relay.Share{View: true}, true); !errors.Is(err, c.want) {
			t.Errorf("%d bytes: %v, want %v", len(c.data), err, c.want)
		}
	}
}

func TestSharedReplay(t *testing.T) {
	t.Parallel()
	golden(t, "shared_replay.json", record.OfSharedReplay(replayed(t), 2))
}

// TestSharesDoNotNameTheOwnersHost: a share hides the host of the alias, even in a redirect. It also hides
// the signatures of Trello and Plaid, although the names of their header lines do not look secret.
func TestSharesDoNotNameTheOwnersHost(t *testing.T) {
	t.Parallel()
	e := replayed(t)
	e.Host = "Stripe-Dev.example.com:8443"
	e.Request.Head = []byte("POST / HTTP/1.1\r\nHost: stripe-dev.example.com:8443\r\nX-Trello-Webhook: c2ln\r\nPlaid-Verification: ey.ey\r\nX-Plain: kept\r\n\r\n")
	e.Attempts[1].Response.Head = []byte("HTTP/1.1 302 Found\r\nLocation: https://STRIPE-DEV.example.com:8443/next\r\nLink: <https://other.example.com>\r\n\r\n")
	text, err := json.Marshal(sharedOf(t, e, relay.Share{View: true}, true))
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"stripe-dev", "c2ln", "ey.ey"} {
		if strings.Contains(strings.ToLower(string(text)), secret) {
			t.Errorf("%s in %s", secret, text)
		}
	}
	for _, open := range []string{"kept", "other.example.com"} {
		if !strings.Contains(string(text), open) {
			t.Errorf("no %s in %s", open, text)
		}
	}
}
