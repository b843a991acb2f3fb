package record_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/record"
)

// TestHostRefusedWarning: the record of an event whose last response refused the Host
// header warns and names both remedies; an earlier response does not count.
func TestHostRefusedWarning(t *testing.T) {
	attempt := func(n, status int, body string) relay.Attempt {
		return relay.Attempt{
			N: n, State: relay.StateDelivered, HasResponse: true, Status: status,
			Response: relay.Message{
				Head: []byte("HTTP/1.1 403 Forbidden\r\n\r\n"),
				Body: relay.Body{Data: []byte(body), Stored: int64(len(body)), Size: int64(len(body)), State: relay.BodyComplete},
			},
		}
	}
	e := &relay.Event{Alias: "stripe-dev", Host: "stripe-dev.example.com", Attempts: []relay.Attempt{attempt(1, 403, "Invalid Host header")}}
	site := relay.Site{Base: url.URL{Scheme: "https", Host: "example.com"}}
	warnings := record.Of(e, site, time.Now()).Warnings
	if len(warnings) != 1 || warnings[0].Code != "host-refused" {
		t.Fatalf("warnings %+v", warnings)
	}
	for _, text := range []string{"stripe-dev.example.com", "relay up with --host-header rewrite", "alias set stripe-dev hostHeader="} {
		if !strings.Contains(warnings[0].Message, text) {
			t.Errorf("%q is not in %q", text, warnings[0].Message)
		}
	}
	e.Attempts = append(e.Attempts, attempt(2, 403, "no"))
	if warnings := record.Of(e, site, time.Now()).Warnings; len(warnings) != 0 {
		t.Errorf("after another response: %+v", warnings)
	}
}

// TestHostRefusedBy uses the texts of Vite 6, Django 5, webpack-dev-server 4 and 5, and
// Rails 6.1 and 7.1, with what is not about the text left out.
func TestHostRefusedBy(t *testing.T) {
	const vite = "Blocked request. This host (\"stripe-dev.example.com\") is not allowed.\nTo allow this host, add \"stripe-dev.example.com\" to `server.allowedHosts` in vite.config.js."
	const django = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n  <meta http-equiv=\"content-type\" content=\"text/html; charset=utf-8\">\n  <title>DisallowedHost\n          at /</title>"
	const djangoText = "DisallowedHost at /hook\nInvalid HTTP_HOST header: 'stripe-dev.example.com'. You may need to add 'stripe-dev.example.com' to ALLOWED_HOSTS.\n"
	const rails7 = "<header role=\"banner\">\n  <h1>Blocked hosts: stripe-dev.example.com</h1>\n</header>"
	const rails6 = "<header>\n  <h1>Blocked host: stripe-dev.example.com</h1>\n</header>"
	const webpack = "Invalid Host header"
	for name, c := range map[string]struct {
		status int
		body   string
		want   string
	}{
		"vite":                       {403, vite, "Vite"},
		"django page":                {400, django, "Django"},
		"django text":                {400, djangoText, "Django"},
		"webpack-dev-server 5":       {403, webpack, "webpack-dev-server"},
		"webpack-dev-server 4":       {200, webpack, "webpack-dev-server"},
		"chunked":                    {403, "13\r\n" + webpack + "\r\n0\r\n\r\n", "webpack-dev-server"},
		"rails 7":                    {403, strings.Repeat(" ", 5000) + rails7, "Rails"},
		"rails 6":                    {403, rails6, "Rails"},
		"another 403":                {403, "forbidden", ""},
		"another 400":                {400, "<h1>Bad Request (400)</h1>", ""},
		"a page about it":            {200, "What does Invalid Host header mean? And DisallowedHost?", ""},
		"text with the wrong status": {500, vite, ""},
		"nothing":                    {403, "", ""},
	} {
		if got := record.HostRefusedBy(c.status, []byte(c.body)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
