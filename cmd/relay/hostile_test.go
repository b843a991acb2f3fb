package main

import (
	"bufio"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/crypto/ssh"

	"relay/record"
)

// hostileStrings are texts that attack terminals, as callers and local servers may send them.
func hostileStrings() []string {
	list := []string{
		"\x1b[2J\x1b[H", "\x1b]0;title\x07", "\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "\x1bP$q\"p\x1b\\", "\x1b[6n", "\x1bc",
		"\x9b31m", "\u009b31m", "\u0085", "\x07\x08\x7f", "\x00", "\r\nrelay: you are logged out", "a\rb", "a\tb", "\u2028\u2029",
		"\u202egnp.exe", "\u2066x\u2069", "\u200b\u200d\ufeff", "\U000e0041", "\xff\xfe", "\xc3\x28", "\xed\xa0\x80", "\x0e\x0f", "\x1b[?1049h",
	}
	return append(list, strings.Repeat("\x1b[31m", 200))
}

// outputs has answers of a relay with a hostile text in each field, each with the command that shows the
// field.
var outputs = []struct {
	name    string
	command []string
	answer  func(bad string) (status int, body string)
}{
	{"whoami", []string{"whoami"}, func(bad string) (int, string) { return 200, `{"user":` + quoted(bad) + `,"scopes":[],"alias":null}` }},
	{"aliases", []string{"aliases"}, func(bad string) (int, string) {
		return 200, `{"data":[{"name":` + quoted(bad) + `,"state":` + quoted(bad) + `,"url":` + quoted(bad) + `,"queuedEvents":2}]}`
	}},
	{"event", []string{"events", "a"}, func(bad string) (int, string) { return 200, `{"data":[` + event(bad) + `],"nextCursor":null}` }},
	{"show", []string{"show", "evt_1"}, func(bad string) (int, string) { return 200, event(bad) }},
	{"replay", []string{"replay", "evt_1"}, func(bad string) (int, string) { return 200, event(bad) }},
	{"share", []string{"share", "evt_1"}, func(bad string) (int, string) {
		return 201, `{"id":"shr_1","url":` + quoted(bad) + `,"replayUrl":` + quoted(bad) + `}`
	}},
	{"export", []string{"export", "evt_1"}, func(bad string) (int, string) { return 200, "curl " + bad }},
	{"export har", []string{"export", "evt_1", "--format", "har"}, func(bad string) (int, string) { return 200, `{"log":` + quoted(bad) + `}` }},
	{"problem", []string{"show", "evt_1"}, func(bad string) (int, string) {
		return 404, `{"code":"not-found","detail":` + quoted(bad) + `,"errors":[{"location":` + quoted(bad) + `,"message":` + quoted(bad) + `}]}`
	}},
	{"no answer of a relay", []string{"aliases"}, func(bad string) (int, string) { return 502, bad }},
	{"no JSON", []string{"aliases"}, func(bad string) (int, string) { return 200, `{"data":` + bad }},
	{"doctor", []string{"doctor"}, func(bad string) (int, string) { return 200, `{"user":` + quoted(bad) + `,"data":[]}` }},
}

// quoted returns s as a JSON string. It escapes only the bytes that JSON does not allow unescaped.
func quoted(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(s) {
		switch c := s[i]; {
		case c < 0x20 || c == '"' || c == '\\':
			fmt.Fprintf(&b, `\u%04x`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

func event(bad string) string {
	q := quoted(bad)
	message := `{"headers":[[` + q + `,` + q + `]],"trailers":[],"framing":"length","httpVersion":` + q + `,"status":200,"reason":` + q +
		`,"interim":[],"state":"complete","body":{"size":9,"sha256":"x","encoding":"utf8","data":` + q + `,"truncated":true,"state":"complete"}}`
	return `{"id":` + q + `,"alias":` + q + `,"url":` + q + `,"receivedAt":"2026-11-21T05:17:53.123Z","state":` + q +
		`,"error":{"code":` + q + `,"message":` + q + `},"method":` + q + `,"path":` + q + `,"httpVersion":` + q + `,"remoteAddr":` + q +
		`,"status":200,"attemptCount":2,"warnings":[{"code":"x","message":` + q + `}],"request":` + message + `,"response":` + message +
		`,"attempts":[{"number":1,"kind":` + q + `,"state":` + q + `,"receivedAt":"2026-11-21T05:17:53.123Z","error":{"code":` + q +
		`,"message":` + q + `},"response":` + message + `}]}`
}

const secret = "rly_c2VjcmV0c2VjcmV0c2VjcmV0"

// TestNothingRaw: no byte that a relay sends controls the terminal, in text and in JSON, over HTTP and over
// SSH. No output contains the token.
func TestNothingRaw(t *testing.T) {
	t.Parallel()
	api := &hostileAPI{}
	web := httptest.NewServer(api)
	t.Cleanup(web.Close)
	sshServer := newHostileSSH(t, api)
	cases := 0
	for _, place := range outputs {
		for i, bad := range append([]string{strings.Join(hostileStrings(), "")}, hostileStrings()...) {
			api.set(place.answer(bad))
			forms := []string{"compact", "json"}
			if i > 0 { // JSON is tried only with the text that joins all others, because its printer treats all texts alike
				forms = forms[:1]
			}
			for _, form := range forms {
				args := append(place.command, "--output", form, "--server", sshServer.addr)
				api := map[string]string{"RELAY_TOKEN": secret, "RELAY_URL": web.URL}
				harmless(t, place.name+" over the API", api, args...)
				cases++
				if i == 0 { // over SSH, only the text that joins all others is tried, because both connections use one printer
					harmless(t, place.name+" over SSH", nil, append(args, "--identity", sshServer.key)...)
					cases++
				}
			}
		}
	}
	if cases < 200 {
		t.Errorf("only %d cases", cases)
	}
	t.Logf("%d cases", cases)
}

func harmless(t *testing.T, name string, env map[string]string, args ...string) {
	t.Helper()
	_, stdout, stderr := inProcess(t, env, args...)
	for line := range strings.Lines(stdout + stderr) {
		line = strings.TrimSuffix(line, "\n")
		if args[0] == "export" { // an export may contain tabs
			line = strings.ReplaceAll(line, "\t", "")
		}
		if record.SafeText(line) != line {
			t.Fatalf("%s: %q", name, line)
		}
		if strings.Contains(line, secret) {
			t.Fatalf("%s says %q", name, line)
		}
	}
	// A relay's error text must not look like a message of the program, so it stays on one line.
	if env != nil && strings.Contains(stderr, "\nrelay: you are logged out") {
		t.Fatalf("%s says something that the program did not: %q", name, stderr)
	}
	if len(stdout)+len(stderr) == 0 {
		t.Fatalf("%s says nothing", name)
	}
}

// hostileAPI gives the same answer to every request.
type hostileAPI struct {
	mu     sync.Mutex
	status int
	body   string
}

func (o *hostileAPI) set(status int, body string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.status, o.body = status, body
}

func (o *hostileAPI) get() (status int, body string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.status, o.body
}

// ServeHTTP sends the answer that set has stored.
func (o *hostileAPI) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	status, body := o.get()
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body))
}

// hostileSSH is an SSH server that serves the answer of a hostileAPI on every channel.
type hostileSSH struct{ addr, key string }

func newHostileSSH(t *testing.T, api *hostileAPI) hostileSSH {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	config := &ssh.ServerConfig{ServerVersion: "SSH-2.0-relayd_x", PublicKeyCallback: func(ssh.ConnMetadata, ssh.PublicKey) (*ssh.Permissions, error) { return nil, nil }}
	config.AddHostKey(signer)
	go func() {
		for {
			raw, err := ln.Accept()
			if err != nil {
				return
			}
			go serveHostile(raw, config, api)
		}
	}()
	return hostileSSH{ln.Addr().String(), key}
}

func serveHostile(raw net.Conn, config *ssh.ServerConfig, api *hostileAPI) {
	defer raw.Close()
	_, channels, requests, err := ssh.NewServerConn(raw, config)
	if err != nil {
		return
	}
	go ssh.DiscardRequests(requests)
	for offer := range channels {
		ch, asked, err := offer.Accept()
		if err != nil {
			return
		}
		go ssh.DiscardRequests(asked)
		if r, err := http.ReadRequest(bufio.NewReader(ch)); err == nil {
			_, _ = io.Copy(io.Discard, r.Body)
			status, body := api.get()
			// "Connection: close" makes the client use a new channel for its next request. Otherwise it could send the
			// request on this channel before it sees that the channel has ended.
			_, _ = fmt.Fprintf(ch, "HTTP/1.1 %d x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", status, len(body), body)
		}
		ch.Close()
	}
}
