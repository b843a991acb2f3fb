package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh/knownhosts"

	"relay"
	"relay/record"
	"relay/relaytest"
)

// testServer is a running relay on free ports, with an account, its key and a token.
type testServer struct {
	t     *testing.T
	app   *app
	flags map[string]string
	dir   string
	log   *relaytest.Buffer
	start *summary
	key   string
	token string
}

// newTestServer starts a relay with flags, in a new folder and on ports that are reserved for the test, also while the
// relay is stopped.
func newTestServer(t *testing.T, flags map[string]string) *testServer {
	t.Helper()
	needTool(t, "ssh")
	h := &testServer{t: t, dir: t.TempDir(), log: &relaytest.Buffer{}, flags: map[string]string{
		"http-addr": relaytest.FreeAddr(t), "ssh-addr": relaytest.FreeAddr(t), "admin-addr": relaytest.FreeAddr(t), "drain": "5s",
	}}
	h.flags["data-dir"] = filepath.Join(h.dir, "data")
	for k, v := range flags {
		h.flags[k] = v
	}
	h.open()
	acc, err := h.app.store.AccountByName(t.Context(), h.start.Admin)
	if err != nil {
		t.Fatal(err)
	}
	h.key = h.start.KeyFile
	_, h.token, err = h.app.store.CreateToken(t.Context(), relay.System(), relay.Token{
		Account: acc.ID, AccountName: acc.Name, Name: "test", Scopes: relay.AllScopes,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the relay:\n%s", h.log)
		}
	})
	return h
}

// open starts the app. After stopOnce, it starts the app again in the same folder.
func (h *testServer) open() {
	h.t.Helper()
	if err := h.tryOpen(); err != nil {
		h.t.Fatal(err)
	}
}

// tryOpen is open, but returns the error of a start that failed.
func (h *testServer) tryOpen() error {
	h.t.Helper()
	nothing := func(string) string { return "" }
	cfg, list, err := load(sources{flags: h.flags, getenv: nothing})
	if err != nil {
		h.t.Fatal(err)
	}
	h.app = newApp(&program{getenv: nothing, stdout: io.Discard, stderr: h.log}, cfg)
	h.app.settings = list
	if err := h.app.Start(h.t.Context()); err != nil {
		return err
	}
	stopped := h.app
	h.t.Cleanup(func() { stopped.stopOnce() })
	h.start, err = h.app.firstStart(h.t.Context(), list)
	return err
}

var stops sync.Map

// stopOnce stops the app, and prevents that the cleanup of the test stops it again.
func (a *app) stopOnce() error {
	if _, done := stops.LoadOrStore(a, true); done {
		return nil
	}
	return a.Stop()
}

// tunnel opens plain ssh -R to a local address and waits until the alias is online.
func (h *testServer) tunnel(alias, local string) *tunnelled {
	h.t.Helper()
	known := filepath.Join(h.t.TempDir(), "known_hosts")
	host, port, _ := net.SplitHostPort(h.app.cfg.SSHAddr)
	line := knownhosts.Line([]string{h.app.cfg.SSHAddr}, h.app.hostKeys[0].PublicKey())
	if err := os.WriteFile(known, []byte(line+"\n"), 0o600); err != nil {
		h.t.Fatal(err)
	}
	cmd := exec.Command("ssh", "-N", "-R", alias+":80:"+local, "-p", port, "-i", h.key, "-F", "none",
		"-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes", "-o", "ExitOnForwardFailure=yes",
		"-o", "UserKnownHostsFile="+known, host)
	tn := &tunnelled{cmd: cmd, talk: &relaytest.Buffer{}, ended: make(chan struct{})}
	cmd.Stderr = tn.talk
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	go func() { _ = cmd.Wait(); close(tn.ended) }()
	h.t.Cleanup(tn.close)
	if !relaytest.Poll(20*time.Second, func() bool { return h.alias(alias).Online }) {
		h.t.Fatalf("%s never came online; ssh said: %s", alias, tn.talk)
	}
	return tn
}

type tunnelled struct {
	cmd   *exec.Cmd
	talk  *relaytest.Buffer
	ended chan struct{}
}

func (tn *tunnelled) close() {
	_ = tn.cmd.Process.Kill()
	<-tn.ended
}

// client returns an HTTP client that connects to the HTTP listener for every host name.
func (h *testServer) client() *http.Client {
	return &http.Client{Timeout: 4 * time.Minute, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", h.app.cfg.HTTPAddr)
		},
	}}
}

// api calls the API, decodes the answer into *into unless into is nil, and returns the status.
func (h *testServer) api(method, path, body string, into any) int {
	h.t.Helper()
	req, err := http.NewRequest(method, h.app.site.URL("/api/v1"+path), strings.NewReader(body))
	if err != nil {
		h.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+h.token)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := h.client().Do(req)
	if err != nil {
		h.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	switch to := into.(type) {
	case nil:
	case *[]byte:
		*to = text
	default:
		if err := json.Unmarshal(text, into); err != nil {
			h.t.Fatalf("%s %s: %v in %s", method, path, err, text)
		}
	}
	return res.StatusCode
}

func (h *testServer) alias(name string) record.Alias {
	h.t.Helper()
	var a record.Alias
	h.api(http.MethodGet, "/aliases/"+name, "", &a)
	return a
}

// newest returns the newest event of an alias.
func (h *testServer) newest(alias string) record.Summary {
	h.t.Helper()
	var page struct{ Data []record.Summary }
	h.api(http.MethodGet, "/events?limit=1&alias="+alias, "", &page)
	if len(page.Data) == 0 {
		h.t.Fatalf("%s has no event", alias)
	}
	return page.Data[0]
}

// send writes raw bytes to the HTTP listener and returns the raw answer, up to the end of the
// connection.
func (h *testServer) send(raw string) string {
	h.t.Helper()
	conn, err := net.Dial("tcp", h.app.cfg.HTTPAddr)
	if err != nil {
		h.t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(90 * time.Second))
	if _, err := io.WriteString(conn, raw); err != nil {
		h.t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		h.t.Fatalf("read the answer: %v after %q", err, answer)
	}
	return string(answer)
}

// local is a local server on a raw socket: it records the bytes of each request and sends a fixed response.
type local struct {
	addr   string
	answer string
	gate   chan struct{} // if set, each response waits until gate is closed

	mu  sync.Mutex
	got []string
}

func newLocal(t *testing.T, answer string) *local {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &local{addr: ln.Addr().String(), answer: answer}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go l.serve(conn)
		}
	}()
	return l
}

func (l *local) serve(conn net.Conn) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	for {
		raw, err := readRequest(r)
		if err != nil {
			return
		}
		l.mu.Lock()
		l.got = append(l.got, raw)
		gate := l.gate
		l.mu.Unlock()
		if gate != nil {
			<-gate
		}
		if _, err := io.WriteString(conn, l.answer); err != nil {
			return
		}
	}
}

// readRequest reads one request with Content-Length or chunks, as raw bytes.
func readRequest(r *bufio.Reader) (string, error) {
	var raw bytes.Buffer
	length, chunked := 0, false
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return "", err
		}
		raw.WriteString(line)
		lower := strings.ToLower(strings.TrimSpace(line))
		if rest, ok := strings.CutPrefix(lower, "content-length:"); ok {
			_, _ = fmt.Sscan(rest, &length)
		}
		chunked = chunked || strings.HasPrefix(lower, "transfer-encoding:")
		if lower == "" {
			break
		}
	}
	for chunked {
		line, err := r.ReadString('\n')
		if err != nil {
			return "", err
		}
		raw.WriteString(line)
		chunked = !strings.HasSuffix(raw.String(), "\r\n0\r\n\r\n")
	}
	_, err := io.CopyN(&raw, r, int64(length))
	return raw.String(), err
}

// seen waits for n requests and returns the recorded requests.
func (l *local) seen(t *testing.T, n int) []string {
	t.Helper()
	var got []string
	relaytest.Poll(20*time.Second, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		got = append([]string(nil), l.got...)
		return len(got) >= n
	})
	if len(got) != n {
		t.Fatalf("the local server saw %d requests, want %d: %q", len(got), n, got)
	}
	return got
}

// trySend is like send, but does not fail the test if the connection is cut: it returns what has arrived.
func (h *testServer) trySend(raw string) string {
	conn, err := net.Dial("tcp", h.app.cfg.HTTPAddr)
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(90 * time.Second))
	_, _ = io.WriteString(conn, raw)
	answer, _ := io.ReadAll(conn)
	return string(answer)
}
