package server

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestWall checks the security headers of the base site for different addresses. A page replaces the content
// security policy.
func TestWall(t *testing.T) {
	t.Parallel()
	const alone = "same-origin"
	for _, c := range []struct{ scheme, host, hsts, opener string }{
		{"https", "relay.test", "max-age=15552000", alone},
		{"http", "relay.test", "", ""}, // browsers would ignore Cross-Origin-Opener-Policy and report an error
		{"http", "203.0.113.9:8080", "", ""},
		{"http", "localhost:8080", "", alone},
		{"http", "127.0.0.1:8080", "", alone},
		{"https", "localhost:8443", "", alone},
		{"https", "dash.localhost", "", alone},
		{"https", "127.0.0.1", "", alone},
		{"https", "[::1]:8443", "", alone},
	} {
		o := testOptions(t, &upstream{})
		o.Site.Base.Scheme, o.Site.Base.Host = c.scheme, c.host
		o.Base = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/page" {
				w.Header().Set("Content-Security-Policy", "page's own")
			}
		})
		s := New(o)
		for path, csp := range map[string]string{"/": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'", "/page": "page's own"} {
			r, w := httptest.NewRequest("GET", path, nil), httptest.NewRecorder()
			r.Host = c.host
			s.serveBase(w, r)
			h := w.Result().Header
			for name, want := range map[string]string{
				"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Content-Security-Policy": csp,
				"Cross-Origin-Opener-Policy": c.opener, "Cross-Origin-Resource-Policy": "same-origin",
				"Strict-Transport-Security": c.hsts,
			} {
				if got := h.Get(name); got != want || len(h.Values(name)) > 1 {
					t.Errorf("%s://%s%s: %s is %q, want %q", c.scheme, c.host, path, name, h.Values(name), want)
				}
			}
		}
	}
}

// TestReboundNames: with the option Loopback, the base site answers requests whose Host is its own name or a
// loopback name. Requests with other host names get 421, and the methods CONNECT and TRACE get 405.
func TestReboundNames(t *testing.T) {
	t.Parallel()
	o := testOptions(t, &upstream{})
	o.Site.Loopback = true
	_, addr := start(t, o)
	for host, want := range map[string]int{
		"relay.test": 200, "localhost": 200, "127.0.0.1:8080": 200, "[::1]": 200,
		"evil.test": 421, "127.0.0.1.nip.io": 421, "localhost.evil.test": 421, "127.0.0.2": 421, "0.0.0.0": 421,
	} {
		resp, _ := parse(t, say(t, addr, "GET / HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\n\r\n"), "GET")
		if resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", host, resp.StatusCode, want)
		}
	}
	addr, cfg := startTLS(t, o)
	for _, method := range []string{"CONNECT", "TRACE"} {
		// These requests go over TLS, where net/http itself reads all requests to the base host.
		c, err := dialTLS(t, addr, cfg, "relay.test")
		if err != nil {
			t.Fatal(err)
		}
		br := bufio.NewReader(c)
		send(t, c, "GET / HTTP/1.1\r\nHost: relay.test\r\n\r\n")
		readAnswer(t, br, "GET")
		target := map[string]string{"CONNECT": "relay.test:80", "TRACE": "/"}[method]
		send(t, c, method+" "+target+" HTTP/1.1\r\nHost: relay.test\r\n\r\n")
		if resp, err := http.ReadResponse(br, nil); err != nil || resp.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("%s: %v, %v", method, resp, err)
		}
	}
}
