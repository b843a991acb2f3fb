package client

import (
	"strings"
	"testing"
)

// TestTokenIsNotSentInTheClear: a token is used over https, or on this machine.
func TestTokenIsNotSentInTheClear(t *testing.T) {
	for base, refused := range map[string]bool{
		"http://relay.example.com": true, "http://192.0.2.1:8080": true, "http://localhost.example.com": true,
		"https://relay.example.com": false, "http://localhost:8080": false, "http://relay.localhost": false, "http://127.0.0.1:1": false, "http://[::1]:1": false,
	} {
		_, err := NewAPI(base, "rly_secret", "test")
		if got := exitOf(err) == ExitRefused; got != refused {
			t.Errorf("%s: %v", base, err)
		}
		if err != nil && (!strings.Contains(err.Error(), "not encrypted") || strings.Contains(err.Error(), "rly_secret")) {
			t.Errorf("%s: %v", base, err)
		}
		if _, err := NewAPI(base, "", "test"); err != nil {
			t.Errorf("%s without a token: %v", base, err)
		}
	}
}
