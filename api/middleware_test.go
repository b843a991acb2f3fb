package api_test

import (
	"net/http"
	"strings"
	"testing"
)

func TestUnknownRoutesAreProblems(t *testing.T) {
	t.Parallel()
	d := newClient(t)
	for _, path := range []string{
		"/api/", "/api/v1", "/api/v1/", "/api/v2/me", "/api/v1/nope", "/api/v1/me/", "/api/v1/events/x/y/z", "/api/v1/schemas/Me",
		"/api/v1/events/shared/x", "/api/v1/openapi.yaml",
	} {
		for _, method := range []string{"GET", "POST", "DELETE", "PROPFIND", "OPTIONS"} {
			d.call(method, "", path, "").code(404, "not-found")
		}
	}
}

func TestUncleanPathsAreNotFoundAndNeverRedirects(t *testing.T) {
	t.Parallel()
	d := newClient(t)
	for _, path := range []string{
		"/api//v1/me", "/api/v1//me", "/api/v1/me//", "/api/v1/../v1/me", "/api/v1/./me", "/api/v1/me/..", "/api/v1/me/.",
		"/api/v1/%2e%2e/v1/me", "/api/v1/%2E/me", "/api/v1/a%2F%2Fb", "//api/v1/me", "/api/v1/events//replay",
	} {
		a := d.get("", path).code(404, "not-found")
		if a.header.Get("Location") != "" {
			t.Errorf("%s: redirects to %s", path, a.header.Get("Location"))
		}
	}
}

func TestWrongMethods(t *testing.T) {
	t.Parallel()
	d := newClient(t)
	t.Run("public", func(t *testing.T) {
		a := d.get("", "/api/v1/events/shared/x/replay").code(405, "method-not-allowed")
		if a.header.Get("Allow") != "POST" {
			t.Errorf("Allow: %s", a.header.Get("Allow"))
		}
		d.post("", "/api/v1/openapi.json", "").code(405, "method-not-allowed")
	})
	t.Run("who asks comes first", func(t *testing.T) {
		d.call("DELETE", "", "/api/v1/me", "").code(401, "unauthorized")
		d.call("DELETE", "wrong", "/api/v1/me", "").code(401, "unauthorized")
	})
}

func TestUnauthorized(t *testing.T) {
	t.Parallel()
	d := newClient(t)
	for name, change := range map[string]func(*http.Request){
		"nothing":        func(*http.Request) {},
		"unknown token":  func(r *http.Request) { r.Header.Set("Authorization", "Bearer rly_x") },
		"empty token":    func(r *http.Request) { r.Header.Set("Authorization", "Bearer ") },
		"other scheme":   func(r *http.Request) { r.Header.Set("Authorization", "Basic eDp5") },
		"two tokens":     func(r *http.Request) { r.Header["Authorization"] = []string{"Bearer a", "Bearer b"} },
		"unknown cookie": func(r *http.Request) { r.AddCookie(&http.Cookie{Name: "relay_session", Value: "x"}) },
	} {
		r := d.request("GET", "", "/api/v1/me", "")
		change(r)
		a := d.do(r).code(401, "unauthorized")
		if a.header.Get("WWW-Authenticate") != "Bearer" {
			t.Errorf("%s: WWW-Authenticate %q", name, a.header.Get("WWW-Authenticate"))
		}
	}
}

func TestRequestIDIsInTheLogAndSecretsAreNot(t *testing.T) {
	t.Parallel()
	d := newClient(t)
	p := d.post("rly_secret", "/api/v1/events/shared/sh4re/replay?x=sh4re", "").want(404).problem()
	if !strings.Contains(d.log.String(), p.RequestID) {
		t.Errorf("the log lacks %s: %s", p.RequestID, d.log)
	}
	d.get("rly_secret", "/api/v1/me").want(401)
	d.get("", "/api/v1/shared/sh4re/more").want(404)
	for _, secret := range []string{"rly_secret", "sh4re"} {
		if strings.Contains(d.log.String(), secret) {
			t.Errorf("%s is in the log: %s", secret, d.log)
		}
	}
	if got := strings.Count(d.log.String(), "\n"); got != 3 {
		t.Errorf("%d lines for 3 requests", got)
	}
}

func TestAcceptHeaderIsIgnored(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	for _, accept := range []string{"", "*/*", "text/html", "json", "application/xml, */*;q=0.1", "application/cbor", ";;;"} {
		for target, want := range map[string]string{"/api/v1/me": "application/json", "/api/v1/me?x": "application/problem+json"} {
			r := h.request("GET", h.asAlice, target, "")
			r.Header.Set("Accept", accept)
			if got := h.do(r).header.Get("Content-Type"); got != want {
				t.Errorf("Accept: %s for %s gives %s", accept, target, got)
			}
		}
	}
}
