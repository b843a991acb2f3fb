package handshake

import (
	"testing"
	"time"

	"relay/relaytest"
)

// TestWorstBytes: the time to recognise a challenge is proportional to its size, whatever its bytes.
func TestWorstBytes(t *testing.T) {
	t.Parallel()
	now := time.Now()
	secrets := func(string) []string { return []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"} }
	judge := func(r *Request) {
		Recognise(r)
		SentSecret(r)
		ConfirmationLink(r)
		Answer(r, []string{All}, secrets, now)
	}
	heads := []string{
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nX-Amz-Sns-Message-Type: SubscriptionConfirmation\r\n\r\n",
	}
	for name, f := range map[string]func(p []byte){
		"body": func(p []byte) {
			for _, head := range heads {
				judge(&Request{Head: []byte(head), Body: p, URL: "https://a.example/"})
			}
		},
		"head": func(p []byte) {
			judge(&Request{Head: append([]byte("POST / HTTP/1.1\r\n"), p...), URL: "https://a.example/"})
		},
		"target": func(p []byte) {
			judge(&Request{Head: []byte("GET /?" + string(p) + " HTTP/1.1\r\nHost: a\r\n\r\n"), URL: "https://a.example/?" + string(p)})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			relaytest.WorstBytes(t, 128<<10, f) // the size of the largest head
		})
	}
}
