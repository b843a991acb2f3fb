package record_test

import (
	"bytes"
	"compress/gzip"
	"strings"
	"testing"
	"unicode/utf8"

	"relay"
	"relay/record"
)

func packed(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(text))
	_ = w.Close()
	return b.String()
}

// TestCause checks the error text that is found in responses of common servers. A response with status 200
// has none.
func TestCause(t *testing.T) {
	t.Parallel()
	type answer struct{ name, head, body, want string }
	const json, page, text = "Content-Type: application/json\r\n", "Content-Type: text/html; charset=utf-8\r\n", "Content-Type: text/plain\r\n"
	for _, x := range []answer{
		{"plain error", json, `{"error":"no such user"}`, "no such user"},
		{"error in an object", json, `{"error":{"type":"x","message":"Cannot read properties of null (reading 'email')"}}`, "Cannot read properties of null (reading 'email')"},
		{"Spring", json, `{"timestamp":"2026","status":500,"error":"Internal Server Error","message":"id must not be null","path":"/hook"}`, "id must not be null"},
		{"Nest", json, `{"statusCode":500,"message":"Internal server error"}`, "Internal server error"},
		{"Nest, list", json, `{"message":["email must be an email","x"],"error":"Bad Request","statusCode":500}`, "email must be an email"},
		{"FastAPI", json, `{"detail":[{"loc":["body","x"],"msg":"field required"}]}`, "field required"},
		{"problem", "Content-Type: application/problem+json\r\n", `{"type":"about:blank","title":"Internal Server Error","detail":"out of stock"}`, "out of stock"},
		{"problem with a title only", json, `{"title":"Out of stock","status":500}`, "Out of stock"},
		{"less deep first", json, `{"request":{"message":"hello"},"error":"broken"}`, "broken"},
		{"a text", json, `"broken"`, "broken"},
		{"cut within", json, `{"error":"first","rest":"` + strings.Repeat("x", 9000) + `"}`, "first"},
		{"unlabelled", "", `{"message":"m"}`, "m"},
		{"packed", json + "Content-Encoding: gzip\r\n", packed(`{"error":"in gzip"}`), "in gzip"},
		{"form", "Content-Type: application/x-www-form-urlencoded\r\n", `error=invalid_request&error_description=no+code`, "invalid_request"},
		{"Express", page, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>Error</title>\n</head>\n<body>\n<pre>TypeError: Cannot read &#39;x&#39;<br> &nbsp; &nbsp;at /app.js:3</pre>\n</body>", "TypeError: Cannot read 'x'"},
		{"Django", page, "<html><head><style>a{}</style><title>KeyError\n          at /hook</title></head>", "KeyError at /hook"},
		{"nginx", page, "<html>\r\n<head><title>500 Internal Server Error</title></head>\r\n<body><center><h1>500 Internal Server Error</h1></center><hr><center>nginx</center>", "nginx"},
		{"PHP", page, "<br />\n<b>Fatal error</b>:  Uncaught TypeError: x() in /a.php:3", "Fatal error: Uncaught TypeError: x() in /a.php:3"},
		{"page without label", "", "<!doctype html><title>Oops</title>", "Oops"},
		{"Python's http.server", page, "<!DOCTYPE HTML>\n<html><head><title>Error response</title></head><body><h1>Error response</h1>\n<p>Error code: 501</p>\n<p>Message: Unsupported method ('POST').</p>", "Message: Unsupported method ('POST')."},
		{"script is no text", page, "<body><script>alert(1)</script><p>Broken", "Broken"},
		{"XML", "Content-Type: application/xml\r\n", "<?xml version='1.0'?><Error><Code>A</Code><Message>No bucket</Message></Error>", "No bucket"},
		{"text", text, "\n\n  boom at line 3\nmore", "boom at line 3"},
		{"traceback", text, "Traceback (most recent call last):\n  File \"a.py\"\nKeyError: 'email'\n", "KeyError: 'email'"},
		{"go", text, "Internal Server Error\n", "Internal Server Error"},
		{"escapes", text, "\x1b[31mred\x07 \u202etext", `\x1b[31mred\x07 \u202etext`},
		{"binary", "Content-Type: image/png\r\n", "\x89PNG\r\n\x1a\n\x00\x00", ""},
		{"empty object", json, `{}`, ""},
		{"deep", json, strings.Repeat(`{"a":`, 2000) + `{"error":"x"}`, ""},
	} {
		b := &relay.Body{Data: []byte(x.body), Size: int64(len(x.body))}
		head := []byte("HTTP/1.1 500 Internal Server Error\r\n" + x.head + "\r\n")
		if got := record.Cause(500, head, b); got != x.want {
			t.Errorf("%s: %q, want %q", x.name, got, x.want)
		}
		if got := record.Cause(200, head, b); got != "" {
			t.Errorf("%s is no error, and says %q", x.name, got)
		}
	}
	long := record.Cause(500, nil, &relay.Body{Data: []byte(strings.Repeat("ä", 3000)), Size: 6000})
	if n := utf8.RuneCountInString(long); n != 200 || !strings.HasSuffix(long, "…") {
		t.Errorf("%d characters: %q", n, long)
	}
}

// TestSentence checks the sentence of a response: status, duration and error text.
func TestSentence(t *testing.T) {
	t.Parallel()
	for want, e := range map[string]*record.Summary{
		"500 after 2.4 ms: no user": {Status: new(500), LatencyMs: new(2.4), Cause: new("no user")},
		"404 after 1.0 ms":          {Status: new(404), LatencyMs: new(1.0)},
		"500":                       {Status: new(500)},
		"":                          {State: relay.StateQueued},
	} {
		if got := record.Sentence(e); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestSharedAnswerSaysNothingMasked: a response in a share has a cause only if no part of the cause is
// masked.
func TestSharedAnswerSaysNothingMasked(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"error":"no such user"}`:                                  "no such user",
		`{"password":"hunter22222","error":"hunter22222 is wrong"}`: "",
	} {
		e := &relay.Event{Method: "POST", Target: []byte("/"), State: relay.StateDelivered, AttemptCount: 1, Request: relay.Message{Head: []byte("POST / HTTP/1.1\r\nHost: a.example.com\r\n\r\n")}}
		e.Attempts = []relay.Attempt{{N: 1, State: relay.StateDelivered, HasResponse: true, Status: 500, Response: relay.Message{
			Head: []byte("HTTP/1.1 500 X\r\nContent-Type: application/json\r\n\r\n"), Body: relay.Body{Data: []byte(body), Size: int64(len(body)), State: relay.BodyComplete},
		}}}
		shared, err := record.OfShared(t.Context(), e, relay.Share{View: true}, true)
		if err != nil {
			t.Fatal(err)
		}
		if got := shared.Response.Cause(); got != want {
			t.Errorf("%s: %q, want %q (%s)", body, got, want, shared.Response.Body.Data)
		}
	}
}

// TestLineTellsEventsApart: the line of an event or attempt shows event type, sender, marks and cause.
func TestLineTellsEventsApart(t *testing.T) {
	t.Parallel()
	e := &record.Summary{
		ID: "evt_1", Method: "POST", Path: "/hook", State: relay.StateDelivered, Status: new(500), LatencyMs: new(2.4), AttemptCount: 2, Pinned: true, Label: new("bug-12"),
		Provider: &record.Provider{Name: "stripe", EventType: new("invoice.paid")}, Cause: new("no user"),
	}
	_, list, _ := strings.Cut(record.EventLine(e).String(), " ")
	a := &record.Attempt{Number: 1, Kind: relay.KindOriginal, State: relay.StateDelivered, LatencyMs: e.LatencyMs, Response: &record.Response{Status: 500}, Cause: e.Cause}
	_, live, _ := strings.Cut(record.AttemptLine(e, a).String(), " ")
	const start = "[500] POST /hook (2ms) evt_1 invoice.paid stripe pinned label:bug-12 "
	if want := start + "(2 attempts) - no user"; list != want {
		t.Errorf("%q, want %q", list, want)
	}
	if want := start + "- no user"; live != want {
		t.Errorf("%q, want %q", live, want)
	}
}
