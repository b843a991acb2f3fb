package record_test

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"io"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/andybalholm/brotli"

	"relay"
	"relay/record"
)

// TestHostRefusedWarning: if a local server refused the Host header, the summary of the event has a
// warning that names both remedies, and so does the event's line in a list.
func TestHostRefusedWarning(t *testing.T) {
	e := &relay.Event{Alias: "stripe-dev", Host: "stripe-dev.example.com", State: relay.StateDelivered, Status: 403, HostRefusedBy: "Vite"}
	site := relay.Site{Base: url.URL{Scheme: "https", Host: "example.com"}}
	s := record.Summarise(e, site, time.Now())
	w := s.AddressRefused()
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

// TestHostRefusedBy uses the texts of Vite 6, Django 5, webpack-dev-server 4 and 5, and Rails 6.1 and
// 7.1, shortened to the relevant part.
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

// TestRefusedBy checks RefusedBy with the texts of IIS Express 10, Rails 7.1 and Django 5 and with compressed
// responses, and RedirectTo with several redirects.
func TestRefusedBy(t *testing.T) {
	t.Parallel()
	const plain = "HTTP/1.1 400 Bad Request\r\n\r\n"
	const iis = "<!DOCTYPE HTML PUBLIC \"-//W3C//DTD HTML 4.01//EN\"><HTML><HEAD><TITLE>Bad Request</TITLE></HEAD>\r\n<BODY><h2>Bad Request - Invalid Hostname</h2>\r\n<hr><p>HTTP Error 400. The request hostname is invalid.</p>"
	const rails = "<h1>ActionController::InvalidAuthenticityToken</h1> <h2>HTTP Origin header (https://shop.example.com) didn&#39;t match request.base_url (http://shop.example.com)</h2>"
	const django = "<p>Reason given for failure:</p><pre>Origin checking failed - https://shop.example.com does not match any trusted origins.</pre>"
	coded := func(coding, text string) (head, body string) {
		var b bytes.Buffer
		var w io.WriteCloser = gzip.NewWriter(&b)
		switch coding {
		case "deflate":
			w = zlib.NewWriter(&b)
		case "br":
			w = brotli.NewWriter(&b)
		}
		_, _ = io.WriteString(w, text)
		_ = w.Close()
		return "HTTP/1.1 403 X\r\nContent-Encoding: " + coding + "\r\n\r\n", b.String()
	}
	gzipHead, gzipVite := coded("gzip", "Blocked request. This host (\"a\") is not allowed.")
	_, gzipLong := coded("gzip", strings.Repeat("x", 32<<20)+"Invalid Host header")
	deflateHead, deflateVite := coded("deflate", "Blocked request. This host (\"a\") is not allowed.")
	brotliHead, brotliVite := coded("br", "Blocked request. This host (\"a\") is not allowed.")
	_, brotliLong := coded("br", strings.Repeat("x", 32<<20)+"Invalid Host header")
	for name, c := range map[string]struct {
		status     int
		head, body string
		want       string
	}{
		"IIS Express":               {400, plain, iis, "IIS Express"},
		"gzip":                      {403, gzipHead, gzipVite, "Vite"},
		"deflate":                   {403, deflateHead, deflateVite, "Vite"},
		"brotli":                    {403, brotliHead, brotliVite, "Vite"},
		"brotli that is cut":        {403, brotliHead, brotliVite[:len(brotliVite)-4], "Vite"},
		"brotli that is none":       {403, brotliHead, "Invalid Host header", "webpack-dev-server"},
		"brotli of very many bytes": {403, brotliHead, brotliLong, ""},
		"gzip that is cut":          {403, gzipHead, gzipVite[:len(gzipVite)-4], "Vite"},
		"gzip that is none":         {403, gzipHead, "Invalid Host header", "webpack-dev-server"},
		"gzip of very many bytes":   {403, gzipHead, gzipLong, ""},
		"Origin at Rails":           {422, plain, rails, "Rails (Origin)"},
		"Origin at Django":          {403, plain, django, "Django (Origin)"},
		"another 422":               {422, plain, "InvalidAuthenticityToken", ""},
		"another 403 of Django":     {403, plain, "CSRF verification failed. Request aborted.", ""},
		"a page about the refusal":  {200, plain, rails + django, ""},
	} {
		if got := record.RefusedBy(c.status, []byte(c.head), []byte(c.body)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	for _, c := range []struct {
		status       int
		location     string
		host, target string
	}{
		{301, "https://Shop.example.com/a?b=1", "shop.example.com", "/a?b=1"},
		{308, "https://shop.example.com", "shop.example.com", "/"},
		{302, "http://shop.example.com/a", "", ""},
		{302, "/a", "", ""},
		{302, "https://a%b/", "", ""},
		{303, "https://shop.example.com/a", "", ""}, // not a redirect for this purpose, because servers usually answer a form by 303
		{200, "https://shop.example.com/a", "", ""},
	} {
		host, target, ok := record.RedirectTo(c.status, []byte("HTTP/1.1 301 X\r\nLocation: "+c.location+"\r\n\r\n"))
		if ok != (c.host != "") || ok && (host != c.host || string(target) != c.target) {
			t.Errorf("%d %s: %q %q %v", c.status, c.location, host, target, ok)
		}
	}
}

// If the response shows that the local server does not know that it is reached by https, a warning
// names the setting to change.
func TestForwardedNeeded(t *testing.T) {
	t.Parallel()
	for by, word := range map[string]string{"Rails (Origin)": "(Rails) refused the Origin", record.RedirectedToSelf: "redirected"} {
		e := &relay.Event{Alias: "shop", Host: "shop.example.com", State: relay.StateDelivered, Status: 422, HostRefusedBy: by}
		s := record.Summarise(e, relay.Site{}, time.Now())
		w := s.AddressRefused()
		if w == nil || w.Code != "forwarded-needed" || len(s.Warnings) != 1 || !strings.Contains(w.Message, word) || !strings.Contains(w.Message, "relayd alias set shop forwarded=on") {
			t.Errorf("%s: %+v", by, s.Warnings)
		}
		if line := record.EventLine(s).String(); !strings.Contains(line, "forwarded-needed") {
			t.Error(line)
		}
	}
}

// TestMissedTextSaysThatTheListIsReplaced: the command in the warning replaces the whole setting handshakes of
// the alias, and the warning says so.
func TestMissedTextSaysThatTheListIsReplaced(t *testing.T) {
	t.Parallel()
	for name, more := range map[string]string{"slack": "", "zoom": "relay secret add stripe-dev --provider zoom", "meta": "verifyToken=TOKEN"} {
		text := record.MissedText(&relay.Event{Alias: "stripe-dev", MissedHandshake: name})
		for _, want := range []string{"relayd alias set stripe-dev handshakes=" + name, more, "replaces the one before"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %q is not in %q", name, want, text)
			}
		}
	}
}
