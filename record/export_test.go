package record_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/record"
	"relay/wire"
)

// heard is the request that a raw listener received: the head, and the body without its framing.
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

// withCURLHome returns an environment in which curl uses IPv4 and no proxy, whatever the settings of this
// machine.
func withCURLHome(t *testing.T) []string {
	t.Helper()
	home := t.TempDir()
	must(t, os.WriteFile(filepath.Join(home, ".curlrc"), []byte("ipv4\nnoproxy = \"*\"\n"), 0o600))
	return append(os.Environ(), "CURL_HOME="+home)
}

// TestCURLOfALargeBodyReadsAFile: the command fails if the file of the body is missing or too short, and
// sends the complete file.
func TestCURLOfALargeBodyReadsAFile(t *testing.T) {
	site, got := listen(t)
	body := strings.Repeat("x\n", record.MaxBody/2) + "y"
	e := captured(t, "POST / HTTP/1.1\r\nHost: a.b\r\nContent-Length: "+strconv.Itoa(len(body))+"\r\n\r\n", body)
	e.ID = relay.ID{15: 1}
	dir := t.TempDir()
	file := e.ID.String() + "-request.body"
	run := func() (string, error) {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", record.CURL(e, site))
		cmd.Dir, cmd.Env = dir, withCURLHome(t)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for _, wrong := range []string{"", "too short"} {
		if wrong != "" {
			must(t, os.WriteFile(filepath.Join(dir, file), []byte(wrong), 0o600))
		}
		if out, err := run(); err == nil || !strings.Contains(out, "nothing was sent: save the body of the request, all 1048577 bytes, as "+file+" in this folder; it is at "+site.URL("/api/v1/events/")) {
			t.Fatalf("with the file %q: %v %s", wrong, err, out)
		}
	}
	must(t, os.WriteFile(filepath.Join(dir, file), []byte(body), 0o600))
	if out, err := run(); err != nil || (<-got).body != body {
		t.Errorf("%v %s", err, out)
	}
}

func TestHAR(t *testing.T) {
	t.Parallel()
	const form = "text=hello+brave+world&email=ann%40example.org&a&"
	e := captured(t, "POST /a?x=1&y=%20 HTTP/1.1\r\nHost: a.b\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: "+strconv.Itoa(len(form))+"\r\n\r\n", form)
	answer := func(head string, body []byte) relay.Message {
		return relay.Message{Head: []byte("HTTP/1.1 302 Found\r\n" + head + "\r\n\r\n"), Body: relay.Body{Data: body, Size: int64(len(body)), Stored: int64(len(body)), State: relay.BodyComplete}}
	}
	packed := gzipped(t, strings.Repeat("hello ", 100))
	e.Attempts = []relay.Attempt{
		{N: 1, Kind: relay.KindOriginal, State: relay.StateFailed, Error: &relay.Fault{Code: relay.CodeLocalRefused}},
		{N: 2, Kind: relay.KindReplay, State: relay.StateDelivered, HasResponse: true, Status: 302, HasTiming: true, Response: answer("Location: /b", []byte("\xff\x00"))},
		{N: 3, Kind: relay.KindReplay, State: relay.StateDelivered, HasResponse: true, Status: 302, Response: answer("Content-Encoding: gzip", packed)},
		{N: 4, Kind: relay.KindReplay, State: relay.StateDelivered, HasResponse: true, Status: 302, Response: answer("Content-Encoding: gzip", packed[:len(packed)-2])},
	}
	text, err := json.Marshal(record.HAROf(e, relay.Site{Base: url.URL{Scheme: "https", Host: "example.com"}, AliasDomain: "example.com"}, "1", record.MaxJSON))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"version":"1.2"`, `"url":"https://hook.example.com/a?x=1\u0026y=%20"`, `{"name":"y","value":" "}`, `"status":0`, `"_error":"local-refused"`,
		`"redirectURL":"/b"`, `"encoding":"base64","mimeType":"application/octet-stream","size":2,"text":"` + base64.StdEncoding.EncodeToString([]byte("\xff\x00")) + `"`, `"_attempt":2`,
		`"params":[{"name":"text","value":"hello brave world"},{"name":"email","value":"ann@example.org"},{"name":"a","value":""}],"text":"text=hello+brave+world\u0026email`,
		fmt.Sprintf(`"compression":%d,"mimeType":"application/octet-stream","size":600,"text":"hello hello`, 600-len(packed)),
		fmt.Sprintf(`"encoding":"base64","mimeType":"application/octet-stream","size":%d,"text":"H4sI`, len(packed)-2), // this body lacks its last two bytes, so it cannot be decompressed
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("har lacks %s: %s", want, text)
		}
	}
}

// TestExportWeightCoversTheFile: ExportWeight returns at least twice the size of a HAR with compressed
// responses, and the HAR has at most 5 MiB.
func TestExportWeightCoversTheFile(t *testing.T) {
	t.Parallel()
	e := captured(t, "GET / HTTP/1.1\r\nHost: a.b\r\n\r\n", "")
	packed := gzipped(t, strings.Repeat("\x01", 100<<10))
	for n := range 20 {
		e.Attempts = append(e.Attempts, relay.Attempt{
			N: n + 1, Kind: relay.KindReplay, State: relay.StateDelivered, HasResponse: true, Status: 200,
			Response: relay.Message{
				Head: []byte("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n"),
				Body: relay.Body{Data: packed, Size: int64(len(packed)), Stored: int64(len(packed)), State: relay.BodyComplete},
			},
		})
	}
	file, err := record.Export(e, "har", relay.Site{AliasDomain: "example.com"}, "1", time.Now(), record.MaxJSON)
	must(t, err)
	if weight := record.ExportWeight(e, "har", record.MaxJSON); weight < 2*int64(len(file.Body)) || len(file.Body) > 5<<20 {
		t.Errorf("%d bytes are reserved for a file of %d", weight, len(file.Body))
	}
}

func gzipped(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := io.WriteString(z, text)
	must(t, err)
	must(t, z.Close())
	return b.Bytes()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestHAROfManyAttemptsStaysSmall: a HAR of 1000 attempts has at most 20 MiB. The last entry has no copy of
// the request body.
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
