package server

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestChallengeOnPlainHTTP: on plain HTTP, the request of a certificate authority for a pending ACME challenge is
// answered on an alias host and on the base host. Other paths reach the alias or are redirected.
func TestChallengeOnPlainHTTP(t *testing.T) {
	t.Parallel()
	u := &upstream{}
	o := testOptions(t, u)
	o.Site.Base.Scheme, o.RedirectPlain = "https", true
	o.Challenge = func(host, path string) (string, bool) {
		return host + " is ours", path == challengePath+"token" && (host == "shop.hooks.test" || host == "relay.test")
	}
	_, addr := start(t, o)
	const get = "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n"
	for _, host := range []string{"shop.hooks.test", "SHOP.hooks.test:80", "relay.test"} {
		resp, body := parse(t, say(t, addr, fmt.Sprintf(get, challengePath+"token", host)), "GET")
		if resp.StatusCode != http.StatusOK || !strings.HasSuffix(body, " is ours") || resp.Header.Get("Content-Type") != "text/plain" {
			t.Errorf("%s: %v %q", host, resp.Status, body)
		}
	}
	if u.captures() > 0 {
		t.Error("a challenge was captured")
	}
	for _, target := range []string{challengePath + "other", challengePath, "/.well-known/acme-challenge", "/"} {
		c := dial(t, addr)
		send(t, c, fmt.Sprintf(get, target, "shop.hooks.test"))
		if resp, body := readAnswer(t, bufio.NewReader(c), "GET"); resp.StatusCode != http.StatusOK || !strings.HasPrefix(body, "GET "+target) {
			t.Errorf("%s on an alias did not reach it: %v %q", target, resp.Status, body)
		}
	}
	if resp, _ := parse(t, say(t, addr, fmt.Sprintf(get, challengePath+"other", "relay.test")), "GET"); resp.StatusCode != http.StatusPermanentRedirect {
		t.Errorf("another challenge: %v", resp.Status)
	}
}
