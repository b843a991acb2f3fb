package record_test

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"relay"
	"relay/record"
	"relay/wire"
)

// heard is what a raw listener got: the head, and the body without its framing.
type heard struct{ head, body string }

func listen(t *testing.T) (relay.Site, <-chan heard) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	got := make(chan heard, 1)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			got <- hear(c)
		}
	}()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	return relay.Site{Base: url.URL{Scheme: "http", Host: "localhost:" + port}, AliasDomain: "localhost"}, got
}

func hear(c net.Conn) heard {
	defer c.Close()
	var head strings.Builder
	r, length, chunked := bufio.NewReader(c), 0, false
	for {
		line, err := r.ReadString('\n')
		head.WriteString(line)
		if err != nil || line == "\r\n" {
			break
		}
		_, _ = fmt.Sscanf(strings.ToLower(line), "content-length: %d", &length)
		chunked = chunked || strings.HasPrefix(strings.ToLower(line), "transfer-encoding: chunked")
	}
	body := make([]byte, length)
	_, _ = io.ReadFull(r, body)
	for chunked {
		var size int
		line, _ := r.ReadString('\n')
		_, _ = fmt.Sscanf(line, "%x", &size)
		piece := make([]byte, size+2)
		_, _ = io.ReadFull(r, piece)
		if body = append(body, piece[:size]...); size == 0 {
			break
		}
	}
	_, _ = io.WriteString(c, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
	return heard{head.String(), string(body)}
}

func captured(t *testing.T, head, body string) *relay.Event {
	t.Helper()
	h, _, err := wire.Request([]byte(head), wire.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return &relay.Event{
		Alias: "hook", Method: string(h.Method), Target: wire.ShownTarget(h.Target), HTTPMinor: h.Minor,
		Request: relay.Message{Head: []byte(head), Framing: h.Framing, Body: relay.Body{Data: []byte(body), Size: int64(len(body)), Stored: int64(len(body)), State: relay.BodyComplete}},
	}
}

// TestCURLSendsTheSameAgain runs the commands with a real shell and a real curl.
func TestCURLSendsTheSameAgain(t *testing.T) {
	site, got := listen(t)
	home := t.TempDir() // another program may have the same port of ::1, or people a proxy
	if err := os.WriteFile(filepath.Join(home, ".curlrc"), []byte("ipv4\nnoproxy = \"*\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	for _, c := range []struct{ name, head, body string }{
		{"json", "POST /hook?x=1&y=[z] HTTP/1.1\r\nHost: a.b\r\nX-Case: One\r\nx-case: two\r\nContent-Type: application/json\r\nContent-Length: 20\r\n\r\n", `{"it's":"@ $HOME \\"}`[:20]},
		{"at sign first", "POST /../a/./b HTTP/1.1\r\nHost: a.b\r\nUser-Agent: me\r\nContent-Length: 7\r\n\r\n", "@/dev/x"},
		{"every byte", "PUT /%41#f HTTP/1.1\r\nHost: a.b\r\nX-Empty:\r\nX-Bin: caf\xe9 100%\r\nAccept: */*\r\nContent-Length: 256\r\n\r\n", string(every)},
		{"lines", "POST / HTTP/1.1\r\nHost: a.b\r\nContent-Length: 9\r\n\r\n", "a\nb\r\nc\td\n"},
		{"chunked", "POST / HTTP/1.1\r\nHost: a.b\r\nTransfer-Encoding: chunked\r\n\r\n", "pieces of it"},
		{"nothing", "DELETE /x HTTP/1.1\r\nHost: a.b\r\n\r\n", ""},
		{"empty", "POST / HTTP/1.1\r\nHost: a.b\r\nContent-Length: 0\r\n\r\n", ""},
		{"head", "HEAD / HTTP/1.1\r\nHost: a.b\r\n\r\n", ""},
		{"head with an empty body", "HEAD / HTTP/1.1\r\nHost: a.b\r\nContent-Length: 0\r\n\r\n", ""},
		{"head with a body", "HEAD / HTTP/1.0\r\nHost: a.b\r\nContent-Length: 2\r\n\r\n", "ab"},
		{"head with empty chunks", "HEAD / HTTP/1.1\r\nHost: a.b\r\nTransfer-Encoding: chunked\r\n\r\n", ""},
		{"multipart", "POST / HTTP/1.1\r\nHost: a.b\r\nContent-Length: 27\r\n\r\n", "--xYz\r\n\r\nhello!!\r\n--xYz--\r\n"},
		{"minus first", "POST / HTTP/1.1\r\nHost: a.b\r\n-x: caf\xe9!x!\r\nContent-Length: 3\r\n\r\n", "-n\x00"},
		{"path that is not ASCII", "POST /caf\u00e9?\u65e5 HTTP/1.1\r\nHost: a.b\r\n\r\n", ""},
		{"whole address as target", "POST http://a.b?x HTTP/1.1\r\nHost: a.b\r\n\r\n", ""},
		{"no path", "OPTIONS * HTTP/1.1\r\nHost: a.b\r\n\r\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			command := record.CURL(captured(t, c.head, c.body), site, "body")
			cmd := exec.Command("sh", "-c", command)
			cmd.Env = append(os.Environ(), "CURL_HOME="+home)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s\n%s", err, out, command)
			}
			h := <-got
			if h.body != c.body {
				t.Errorf("body %q, want %q\n%s", h.body, c.body, command)
			}
			if a, b := sorted(h.head), sorted(c.head); a != b {
				t.Errorf("head\n%q\nwant\n%q\n%s", a, b, command)
			}
		})
	}
}

// sorted are the lines of a head, the start line first, the others in order: curl
// puts Host and Content-Length where it likes.
func sorted(head string) string {
	lines := strings.Split(strings.TrimRight(head, "\r\n"), "\r\n")
	for i, l := range lines[1:] {
		lines[i+1] = strings.TrimSpace(l)
	}
	sort.Strings(lines[1:])
	return strings.Join(lines, "\n")
}

func TestCURLOfALargeBodyReadsAFile(t *testing.T) {
	t.Parallel()
	e := captured(t, "POST / HTTP/1.1\r\nHost: a.b\r\nContent-Length: 100000\r\n\r\n", strings.Repeat("x", 100000))
	if c := record.CURL(e, relay.Site{AliasDomain: "localhost"}, "it's.body"); !strings.Contains(c, `--data-binary '@it'\''s.body'`) || len(c) > 1000 {
		t.Errorf("%.2000s", c)
	}
}

func TestHAR(t *testing.T) {
	t.Parallel()
	e := captured(t, "POST /a?x=1&y=%20 HTTP/1.1\r\nHost: a.b\r\nContent-Length: 2\r\n\r\n", "\xff\x00")
	e.Attempts = []relay.Attempt{
		{N: 1, Kind: relay.KindOriginal, State: relay.StateFailed, Error: &relay.Fault{Code: relay.CodeLocalRefused}},
		{N: 2, Kind: relay.KindReplay, State: relay.StateDelivered, HasResponse: true, Status: 302, HasTiming: true, Response: relay.Message{
			Head: []byte("HTTP/1.1 302 Found\r\nLocation: /b\r\n\r\n"),
		}},
	}
	text, err := json.Marshal(record.HAROf(e, relay.Site{Base: url.URL{Scheme: "https", Host: "example.com"}, AliasDomain: "example.com"}, "1", record.MaxJSON))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"version":"1.2"`, `"url":"https://hook.example.com/a?x=1\u0026y=%20"`, `{"name":"y","value":" "}`, `"status":0`, `"_error":"local-refused"`,
		`"redirectURL":"/b"`, base64.StdEncoding.EncodeToString([]byte("\xff\x00")), `"_encoding":"base64"`, `"_attempt":2`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("har lacks %s: %s", want, text)
		}
	}
}

// TestHAROfManyAttemptsStaysSmall: each entry had the whole request again, so that a
// body of 1 MiB and a day of replays were gigabytes.
func TestHAROfManyAttemptsStaysSmall(t *testing.T) {
	t.Parallel()
	e := captured(t, "POST /?a&b HTTP/1.1\r\nHost: a.b\r\nContent-Length: 1048576\r\n\r\n", strings.Repeat("x", 1<<20))
	for n := range 1000 {
		e.Attempts = append(e.Attempts, relay.Attempt{N: n + 1, Kind: relay.KindReplay, State: relay.StateDelivered})
	}
	har := record.HAROf(e, relay.Site{AliasDomain: "example.com"}, "1", record.MaxJSON)
	text, err := json.Marshal(har)
	if err != nil {
		t.Fatal(err)
	}
	if len(text) > 20<<20 {
		t.Errorf("%d bytes", len(text))
	}
	type request struct {
		Method               string
		Headers, QueryString []any
		PostData             any
		BodySize             int
		Comment              string
	}
	var read struct {
		Log struct{ Entries []struct{ Request request } }
	}
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	entries := read.Log.Entries
	if len(entries) != 1000 || entries[0].Request.PostData == nil || len(entries[0].Request.Headers) != 2 {
		t.Fatalf("%d entries", len(entries))
	}
	last := entries[999].Request
	if last.PostData != nil || last.Method != "POST" || last.BodySize != 1<<20 || last.Comment == "" || last.Headers == nil || last.QueryString == nil {
		t.Errorf("the last one: %+v", last)
	}
}
