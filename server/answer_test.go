package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"relay"
	"relay/record"
)

var testID = relay.ID{0x01, 0x93, 0x4c, 0x2a, 15: 7}

const shopLine = "Host: shop.hooks.test\r\n"

// refusals are requests that this package refuses, with the expected response. kept says whether the request
// is stored as a rejected event.
var refusals = []struct {
	name, request string
	status        int
	code          string
	kept          bool
}{
	{"not http", "hello there\r\n\r\n", 400, "request-malformed", false},
	{"two lengths", "POST / HTTP/1.1\r\n" + shopLine + "Content-Length: 1\r\nContent-Length: 1\r\n\r\n", 400, "request-malformed", true},
	{"length and chunked", "POST / HTTP/1.1\r\n" + shopLine + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "request-malformed", true},
	{"space before colon", "POST / HTTP/1.1\r\n" + shopLine + "Transfer-Encoding : chunked\r\n\r\n", 400, "request-malformed", true},
	{"bare LF", "GET / HTTP/1.1\nHost: shop.hooks.test\n\n", 400, "request-malformed", true},
	{"folded", "GET / HTTP/1.1\r\n" + shopLine + "X: a\r\n b\r\n\r\n", 400, "request-malformed", true},
	{"two hosts", "GET / HTTP/1.1\r\n" + shopLine + shopLine + "\r\n", 400, "request-malformed", true},
	{"other target host", "GET http://a.test/ HTTP/1.1\r\n" + shopLine + "\r\n", 400, "request-malformed", true},
	{"no host", "GET / HTTP/1.1\r\n\r\n", 400, "request-malformed", false},
	{"user in host", "GET / HTTP/1.1\r\nHost: u@shop.hooks.test\r\n\r\n", 400, "request-malformed", false},
	{"bad, unknown alias", "GET / HTTP/1.1\r\nHost: nobody.hooks.test\r\nX : y\r\n\r\n", 400, "request-malformed", false},
	{"unknown alias", "GET / HTTP/1.1\r\nHost: nobody.hooks.test\r\n\r\n", 404, "alias-not-found", false},
	{"no label", "GET / HTTP/1.1\r\nHost: a_b.hooks.test\r\n\r\n", 404, "alias-not-found", false},
	{"connect", "CONNECT shop.hooks.test:443 HTTP/1.1\r\n" + shopLine + "\r\n", 405, "method-not-supported", true},
	{"long target", "GET /" + strings.Repeat("a", 17<<10) + " HTTP/1.1\r\n" + shopLine + "\r\n", 414, "target-too-long", true},
	{"endless target", "GET /" + strings.Repeat("a", 200<<10), 414, "target-too-long", false},
	{"deeper name", "GET / HTTP/1.1\r\nHost: a.shop.hooks.test\r\n\r\n", 421, "host-unknown", false},
	{"health of deeper name", "GET /healthz HTTP/1.1\r\nHost: a.shop.hooks.test\r\n\r\n", 421, "host-unknown", false},
	{"foreign host", "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n", 421, "host-unknown", false},
	{"http/1.0 without host", "GET / HTTP/1.0\r\n\r\n", 421, "host-unknown", false},
	{"large head", "GET / HTTP/1.1\r\n" + shopLine + "X: " + strings.Repeat("a", 140<<10) + "\r\n\r\n", 431, "head-too-large", true},
	{"gzip coding", "POST / HTTP/1.1\r\n" + shopLine + "Transfer-Encoding: gzip\r\n\r\n", 501, "transfer-coding-unsupported", true},
	{"http/2.0", "GET / HTTP/2.0\r\n" + shopLine + "\r\n", 505, "http-version-unsupported", true},
	{"http/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "http-version-unsupported", false},
	{"half a head", "GET / HTTP/1.1\r\n" + shopLine, 400, "request-malformed", true},
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, tt := range refusals {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			u := &upstream{}
			_, addr := start(t, testOptions(t, u))
			c := dial(t, addr)
			send(t, c, tt.request)
			_ = c.(interface{ CloseWrite() error }).CloseWrite()
			checkProblem(t, rest(t, c), tt.status, tt.code)
			until(t, func() bool { return !tt.kept || len(u.rejections()) > 0 })
			kept := u.rejections()
			if u.captures() != 0 || (len(kept) == 1) != tt.kept {
				t.Fatalf("%d captures, rejected %.200q", u.captures(), kept)
			}
			if tt.kept && (kept[0].alias != "shop" || kept[0].code != tt.code || !strings.HasPrefix(tt.request, kept[0].head)) {
				t.Errorf("kept %.200q", kept[0])
			}
		})
	}
}

// checkProblem checks the head of an error answer, except for the text of the title, and the members of its
// body.
func checkProblem(t *testing.T, raw string, status int, code string, more ...string) {
	t.Helper()
	head, body, _ := strings.Cut(raw, "\r\n\r\n")
	var p record.Problem
	if err := json.Unmarshal([]byte(body), &p); err != nil {
		t.Fatalf("%q: %v", raw, err)
	}
	want := []string{
		fmt.Sprintf("HTTP/1.1 %d %s", status, p.Title),
		"Content-Type: application/problem+json",
		fmt.Sprintf("Content-Length: %d", len(body)),
		"Relay-Error: " + code,
	}
	want = append(want, more...)
	if status == 405 {
		want = append(want, "Allow: "+allowed)
	}
	want = append(want, "Connection: close")
	if diff := cmp.Diff(want, strings.Split(head, "\r\n")); diff != "" {
		t.Error(diff)
	}
	if p.Status != status || p.Code != code || p.Type != "about:blank" || p.Detail == "" ||
		!regexp.MustCompile(`^req_[a-z2-7]{16}$`).MatchString(p.RequestID) {
		t.Errorf("got %s", body)
	}
}

// answering starts a server whose captures all end with the answer a, and leave the request body unread. keep
// says whether the capture allows another request on the connection.
func answering(t *testing.T, a relay.Answer, keep bool) (s *Server, addr string) {
	u := &upstream{answer: func(context.Context, *relay.Inbound) (relay.Outcome, bool) {
		return relay.Outcome{Answer: &a, KeepAlive: keep}, true
	}}
	return start(t, testOptions(t, u))
}

// captureErrors are the errors with which package delivery ends a capture, and the expected responses.
var captureErrors = []struct {
	code   string
	status int
	event  relay.ID
	retry  time.Duration
	more   []string
}{
	{relay.CodeRequestTimeout, 408, relay.ID{}, 0, nil},
	{relay.CodeBodyTooLarge, 413, relay.ID{}, 0, nil},
	{relay.CodeLocalRefused, 502, testID, 0, []string{"Relay-Event: " + testID.String()}},
	{relay.CodeLocalUnresolvable, 502, testID, 0, []string{"Relay-Event: " + testID.String()}},
	{relay.CodeLocalClosed, 502, testID, 0, []string{"Relay-Event: " + testID.String()}},
	{relay.CodeLocalMalformed, 502, testID, 0, []string{"Relay-Event: " + testID.String()}},
	{relay.CodeTunnelLost, 502, testID, 0, []string{"Relay-Event: " + testID.String()}},
	{relay.CodeLocalTimeout, 504, testID, 0, []string{"Relay-Event: " + testID.String()}},
	{relay.CodeQueueFull, 503, relay.ID{}, 0, []string{"Retry-After: 5"}},
	{relay.CodeStorageFull, 503, relay.ID{}, 1500 * time.Millisecond, []string{"Retry-After: 2"}},
	{relay.CodeStoreUnavailable, 503, relay.ID{}, 0, []string{"Retry-After: 5"}},
	{relay.CodeOverloaded, 503, testID, 0, []string{"Relay-Event: " + testID.String(), "Retry-After: 5"}},
	{relay.CodeStopping, 503, relay.ID{}, 0, []string{"Retry-After: 5"}},
}

func TestCaptureErrors(t *testing.T) {
	t.Parallel()
	for _, tt := range captureErrors {
		t.Run(tt.code, func(t *testing.T) {
			t.Parallel()
			e := &relay.Error{Code: tt.code, Detail: "why", RetryAfter: tt.retry}
			_, addr := answering(t, relay.Answer{Error: e, Event: tt.event}, true)
			checkProblem(t, say(t, addr, hello), tt.status, tt.code, tt.more...)
			head := say(t, addr, "HEAD / HTTP/1.1\r\nHost: shop.hooks.test\r\n\r\n")
			if !strings.HasSuffix(head, "\r\n\r\n") || !strings.Contains(head, "\r\nContent-Length: 1") {
				t.Errorf("HEAD: got %q", head)
			}
		})
	}
}

// TestEveryCodeOfAnAnswerHasACase: each error code is either in the list others or in a table of this file
// with its status.
func TestEveryCodeOfAnAnswerHasACase(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../error.go")
	if err != nil {
		t.Fatal(err)
	}
	others := []string{
		// Only attempts have the codes of the next line.
		relay.CodeSuperseded, relay.CodeCanceled, relay.CodeResponseNotStored, relay.CodeCallerGone,
		relay.CodeBadRequest, relay.CodeUnauthorized, relay.CodeForbidden, relay.CodeLoginTooOld, relay.CodeNotFound, relay.CodeMethodNotAllowed, relay.CodeConflict,
		relay.CodeEventNotReplayable, relay.CodeAliasOffline, relay.CodeNoSigningSecret, relay.CodeCannotSign, relay.CodeSecretUnavailable,
		relay.CodeUnsupportedMediaType, relay.CodeValidationFailed, relay.CodeRateLimited, relay.CodeInternal,
	}
	tested := map[string]int{}
	for _, r := range refusals {
		tested[r.code] = r.status
	}
	for _, e := range captureErrors {
		tested[e.code] = e.status
	}
	codes := regexp.MustCompile(`(?m)^\tCode\w+\s+= "([a-z0-9-]+)"`).FindAllSubmatch(text, -1)
	if len(codes) < 40 {
		t.Fatalf("found %d codes", len(codes))
	}
	for _, m := range codes {
		code := string(m[1])
		if status := tested[code]; (status != 0) == slices.Contains(others, code) || status != 0 && status != relay.Status(code) {
			t.Errorf("%s is tested with status %d, and has %d", code, status, relay.Status(code))
		}
	}
}

func TestOfflineAnswer(t *testing.T) {
	t.Parallel()
	const get, head = "GET / HTTP/1.1\r\nHost: shop.hooks.test\r\n\r\n", "HEAD / HTTP/1.1\r\nHost: shop.hooks.test\r\n\r\n"
	id := testID.String()
	body := `{"event":"` + id + `","state":"queued"}`
	typed := fmt.Sprintf("Content-Type: application/json\r\nContent-Length: %d\r\nRelay-Event: %s\r\n", len(body), id)
	tests := []struct {
		name, request string
		status        int
		keep          bool
		want          string
	}{
		{"202", get, 202, true, "HTTP/1.1 202 Accepted\r\n" + typed + "\r\n" + body},
		{"202 head", head, 202, true, "HTTP/1.1 202 Accepted\r\n" + typed + "\r\n"},
		{"202 body not whole", get, 202, false, "HTTP/1.1 202 Accepted\r\n" + typed + "Connection: close\r\n\r\n" + body},
		{"202 close asked", "GET / HTTP/1.1\r\nHost: shop.hooks.test\r\nConnection: close\r\n\r\n", 202, true, "HTTP/1.1 202 Accepted\r\n" + typed + "Connection: close\r\n\r\n" + body},
		{"202 http/1.0", "GET / HTTP/1.0\r\nHost: shop.hooks.test\r\nConnection: keep-alive\r\n\r\n", 202, true, "HTTP/1.1 202 Accepted\r\n" + typed + "Connection: close\r\n\r\n" + body},
		{"200", get, 200, false, "HTTP/1.1 200 OK\r\n" + typed + "Connection: close\r\n\r\n" + body},
		{"204", get, 204, true, "HTTP/1.1 204 No Content\r\nRelay-Event: " + id + "\r\n\r\n"},
		{"205", get, 205, true, "HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\nRelay-Event: " + id + "\r\n\r\n"},
		{"304", get, 304, true, "HTTP/1.1 304 Not Modified\r\nRelay-Event: " + id + "\r\n\r\n"},
		{"299", get, 299, true, "HTTP/1.1 299 \r\n" + typed + "\r\n" + body},
		{"503", get, 503, true, "HTTP/1.1 503 Service Unavailable\r\n" + typed + "Retry-After: 60\r\n\r\n" + body},
		{"500", get, 500, false, "HTTP/1.1 500 Internal Server Error\r\n" + typed + "Retry-After: 60\r\nConnection: close\r\n\r\n" + body},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, addr := answering(t, relay.Answer{Event: testID, Status: tt.status}, tt.keep)
			c := dial(t, addr)
			if strings.Contains(tt.want, "Connection: close") {
				send(t, c, tt.request)
				if diff := cmp.Diff(tt.want, rest(t, c)); diff != "" {
					t.Error(diff)
				}
				return
			}
			// The connection is kept, so the second request is answered too.
			send(t, c, strings.Repeat(tt.request, 2))
			_ = c.(interface{ CloseWrite() error }).CloseWrite()
			if diff := cmp.Diff(strings.Repeat(tt.want, 2), rest(t, c)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestOwnAnswerIsSentAsItIs: an answer that another package made is sent unchanged for two requests on one
// connection.
func TestOwnAnswerIsSentAsItIs(t *testing.T) {
	t.Parallel()
	const own = "HTTP/1.1 201 Created\r\nX-A: b\r\nContent-Length: 2\r\n\r\nhi"
	_, addr := answering(t, relay.Answer{Event: testID, Status: 201, Own: []byte(own)}, true)
	c := dial(t, addr)
	send(t, c, strings.Repeat("GET / HTTP/1.1\r\nHost: shop.hooks.test\r\n\r\n", 2))
	_ = c.(interface{ CloseWrite() error }).CloseWrite()
	if diff := cmp.Diff(own+own, rest(t, c)); diff != "" {
		t.Error(diff)
	}
}

// TestRefusalEndsTheConnection: a request that follows a refused one on the same connection is not captured.
func TestRefusalEndsTheConnection(t *testing.T) {
	t.Parallel()
	u := &upstream{}
	_, addr := start(t, testOptions(t, u))
	got := say(t, addr, "POST / HTTP/1.1\r\nHost: shop.hooks.test\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"+hello)
	checkProblem(t, got, 400, "request-malformed")
	if u.captures() != 0 {
		t.Error("bytes behind a refused request were captured")
	}
}

func TestLocalAnswersAreNotTouched(t *testing.T) {
	t.Parallel()
	const odd = "HTTP/1.0 799 \r\nx-A:  b \r\n\r\nuntil close"
	u := &upstream{answer: func(_ context.Context, in *relay.Inbound) (relay.Outcome, bool) {
		_, _ = in.Caller.Write([]byte(odd))
		return relay.Outcome{}, true
	}}
	_, addr := start(t, testOptions(t, u))
	if got := say(t, addr, hello); got != odd {
		t.Errorf("got %q", got)
	}
}

func TestStateOfCaller(t *testing.T) {
	t.Parallel()
	in := make(chan *relay.Inbound, 1)
	u := &upstream{answer: func(_ context.Context, i *relay.Inbound) (relay.Outcome, bool) {
		in <- i
		return relay.Outcome{}, false
	}}
	_, addr := start(t, testOptions(t, u))
	c := dial(t, addr)
	before := time.Now()
	send(t, c, hello)
	readAnswer(t, bufio.NewReader(c), "POST")
	i := <-in
	if i.TLS || i.From.String() != c.LocalAddr().String() || i.Arrived.Before(before) || i.Alias.Name != "shop" {
		t.Errorf("got %+v, connection is from %s", i, c.LocalAddr())
	}
}

// TestLogOfAnswerWithoutEvent: the log line of an answer names its event only if there is one, and names an
// answered challenge.
func TestLogOfAnswerWithoutEvent(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	o := testOptions(t, &upstream{})
	o.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	c := &conn{srv: New(o)}
	c.logAnswer(&relay.Answer{Error: errHostUnknown}, relay.CodeHostUnknown, "req_1", "shop")
	if got := log.String(); strings.Contains(got, "event") || !strings.Contains(got, "request=req_1") {
		t.Errorf("without an event: %s", got)
	}
	log.Reset()
	c.logAnswer(&relay.Answer{Event: testID, Handshake: "slack"}, codeAnswered, "", "shop")
	if got := log.String(); !strings.Contains(got, "code=answered") || !strings.Contains(got, "handshake=slack") {
		t.Errorf("of a challenge: %s", got)
	}
	log.Reset()
	c.logAnswer(&relay.Answer{Event: testID}, codeQueued, "", "shop")
	if got := log.String(); !strings.Contains(got, "event="+testID.String()) {
		t.Errorf("with an event: %s", got)
	}
}

// TestLogOfManyFailures: at most logPerSecond answers are logged in a second, and the next line has the
// number of suppressed lines.
func TestLogOfManyFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		o := testOptions(t, &upstream{})
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
		c, a := &conn{srv: New(o)}, &relay.Answer{Error: relay.Errorf(relay.CodeLocalRefused, "x")}
		for range logPerSecond + 30 {
			c.logAnswer(a, relay.CodeLocalRefused, "req_1", "shop")
		}
		if got := log.String(); strings.Count(got, "\n") != logPerSecond || strings.Contains(got, "suppressed") {
			t.Errorf("in one second: %s", got)
		}
		log.Reset()
		time.Sleep(time.Second)
		c.logAnswer(a, relay.CodeLocalRefused, "req_1", "shop")
		c.logAnswer(a, relay.CodeLocalRefused, "req_1", "shop")
		if got := log.String(); strings.Count(got, "\n") != 2 || strings.Count(got, "suppressed=30") != 1 {
			t.Errorf("in the next second: %s", got)
		}
	})
}
