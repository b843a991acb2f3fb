package cookie

import (
	"net/http"
	"net/url"
	"testing"

	"relay"
	"relay/relaytest"
)

// TestWorstBytes: the time to read hostile cookies is proportional to their length, and only a few
// of them are looked up.
func TestWorstBytes(t *testing.T) {
	t.Parallel()
	site := relay.Site{Base: url.URL{Scheme: "http", Host: "example.com"}}
	relaytest.WorstBytes(t, 128<<10, func(p []byte) {
		for _, lines := range [][]string{
			{string(p)},
			{Name(site) + "=" + string(p)},
			{Name(site) + "=a; " + string(p) + "; " + Name(site) + "=b"},
		} {
			secrets := Secrets(site, &http.Request{Header: http.Header{"Cookie": lines}})
			if len(secrets) > maxSessionCookies {
				t.Errorf("%d secrets", len(secrets))
			}
			_, _ = Actor(secrets, func(string) (relay.Actor, error) { return relay.Actor{}, relay.ErrNotFound })
		}
	})
}
