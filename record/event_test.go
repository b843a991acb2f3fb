package record_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/record"
)

// TestHostRefusedWarning: the summary of an event whose local server refused the Host header
// warns and names both remedies; so does its line in a list.
func TestHostRefusedWarning(t *testing.T) {
	e := &relay.Event{Alias: "stripe-dev", Host: "stripe-dev.example.com", State: relay.StateDelivered, Status: 403, HostRefusedBy: "Vite"}
	site := relay.Site{Base: url.URL{Scheme: "https", Host: "example.com"}}
	s := record.Summarise(e, site, time.Now())
	w := s.HostRefused()
	if w == nil || w.Code != "host-refused" || len(s.Warnings) != 1 {
		t.Fatalf("warnings %+v", s.Warnings)
	}
	for _, text := range []string{"(Vite)", "stripe-dev.example.com", "relay up with --host-header rewrite", "alias set stripe-dev hostHeader="} {
		if !strings.Contains(w.Message, text) {
			t.Errorf("%q is not in %q", text, w.Message)
		}
	}
	if line := record.EventLine(s).String(); !strings.Contains(line, "host-refused") {
		t.Errorf("line %q", line)
	}
	e.HostRefusedBy = ""
	if s := record.Summarise(e, site, time.Now()); len(s.Warnings) != 0 || strings.Contains(record.EventLine(s).String(), "refused") {
		t.Errorf("without a refusal: %+v", s)
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
		"far behind the beginning":   {403, strings.Repeat(" ", 16<<10) + "Invalid Host header", ""},
		"a page about it":            {200, "What does Invalid Host header mean? And DisallowedHost?", ""},
		"text with the wrong status": {500, vite, ""},
		"nothing":                    {403, "", ""},
	} {
		if got := record.HostRefusedBy(c.status, []byte(c.body)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
