package conformance

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"relay/store/pgtest"
)

var bin string // folder of the built binaries

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "relay-conformance-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	build := exec.Command("go", "build", "-o", dir+"/", "./cmd/relayd", "./cmd/relay")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the binaries: %v\n%s", err, out)
		os.Exit(1)
	}
	bin = dir
	http.DefaultClient.Timeout = 5 * time.Minute // a server that hangs is a failure with words
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// stores runs a test on SQLite and on a real Postgres.
func stores(t *testing.T, f func(t *testing.T, databaseURL string)) {
	t.Run("sqlite", func(t *testing.T) { f(t, "") })
	t.Run("postgres", func(t *testing.T) { f(t, pgtest.URL(t)) })
}

// rig is one relayd with an admin, a key and a token.
type rig struct {
	t         *testing.T
	dir       string
	http, ssh string // addresses
	admin     string
	key       string // private key file
	token     string
	database  string
	extra     []string
	log       *syncBuffer

	mu   sync.Mutex
	cmd  *exec.Cmd
	gone chan struct{}
}

// syncBuffer is a buffer that a process writes and a test reads.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// newRig starts a server; extra are settings as NAME=value.
func newRig(t *testing.T, databaseURL string, extra ...string) *rig {
	t.Helper()
	r := makeRig(t, databaseURL, extra...)
	r.start()
	r.token = strings.TrimSpace(r.relayd("token", "add", "--user", "admin"))
	return r
}

// makeRig is newRig without a server that runs.
func makeRig(t *testing.T, databaseURL string, extra ...string) *rig {
	t.Helper()
	r := &rig{
		t: t, dir: t.TempDir(), database: databaseURL, extra: extra, log: &syncBuffer{},
		http: freeAddr(t), ssh: freeAddr(t), admin: freeAddr(t),
	}
	r.key = filepath.Join(r.dir, "id_ed25519")
	writeKey(t, r.key)
	t.Cleanup(func() {
		r.stop(syscall.SIGKILL)
		if t.Failed() {
			t.Logf("relayd log:\n%s", tail(withoutRequests(r.log.String()), 6000))
		}
	})
	return r
}

// withoutRequests leaves the lines out that tell of each request: the tests know them.
func withoutRequests(log string) string {
	var rest strings.Builder
	for line := range strings.Lines(log) {
		if !strings.Contains(line, `msg="api request"`) && !strings.Contains(line, "msg=answered") {
			rest.WriteString(line)
		}
	}
	return rest.String()
}

func tail(s string, n int) string {
	if len(s) > n {
		return "…" + s[len(s)-n:]
	}
	return s
}

// freeAddr gives an address where nobody listens. It is below the ports that the
// system gives to connections: one of those could take it before its user does.
func freeAddr(t *testing.T) string {
	t.Helper()
	for range 1000 {
		n, err := rand.Int(rand.Reader, big.NewInt(20_000))
		if err != nil {
			t.Fatal(err)
		}
		addr := fmt.Sprintf("127.0.0.1:%d", 10_000+n.Int64())
		if _, given := given.LoadOrStore(addr, true); given {
			continue
		}
		if ln, err := net.Listen("tcp", addr); err == nil {
			_ = ln.Close()
			return addr
		}
	}
	t.Fatal("found no free port")
	return ""
}

// given are the addresses that freeAddr gave.
var given sync.Map

func writeKey(t *testing.T, file string) {
	t.Helper()
	pub, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(priv, "")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewPublicKey(pub)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file+".pub", ssh.MarshalAuthorizedKey(signer), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) env() []string {
	env := append(os.Environ(),
		"HOME="+r.dir, "RELAY_DATA_DIR="+filepath.Join(r.dir, "data"),
		"RELAY_HTTP_ADDR="+r.http, "RELAY_SSH_ADDR="+r.ssh, "RELAY_ADMIN_ADDR="+r.admin,
		"RELAY_INITIAL_ADMIN_KEYS="+r.key+".pub", "RELAY_REPLAY_LIMIT=off", "RELAY_DATABASE_URL="+r.database)
	return append(env, r.extra...)
}

// start runs relayd serve and waits until it is ready.
func (r *rig) start() {
	r.t.Helper()
	cmd := exec.Command(filepath.Join(bin, "relayd"), "serve")
	cmd.Env, cmd.Stdout, cmd.Stderr = r.env(), r.log, r.log
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	gone := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(gone)
	}()
	r.mu.Lock()
	r.cmd, r.gone = cmd, gone
	r.mu.Unlock()
	r.waitFor(20*time.Second, "relayd to be ready", func() bool {
		select {
		case <-gone:
			r.t.Fatalf("relayd ended: %s", tail(r.log.String(), 4000))
		default:
		}
		return r.ready() == 200
	})
}

// stop sends a signal and waits for the end of the process.
func (r *rig) stop(sig syscall.Signal) {
	r.mu.Lock()
	cmd, gone := r.cmd, r.gone
	r.mu.Unlock()
	if cmd == nil {
		return
	}
	_ = cmd.Process.Signal(sig)
	select {
	case <-gone:
	case <-time.After(60 * time.Second):
		_ = cmd.Process.Kill()
		<-gone
		r.t.Errorf("relayd did not end within 60 s of %v", sig)
	}
	http.DefaultClient.CloseIdleConnections() // a POST would not be sent again on another one
}

// relayd runs an operator command and gives its stdout.
func (r *rig) relayd(args ...string) string {
	r.t.Helper()
	cmd := exec.Command(filepath.Join(bin, "relayd"), args...)
	cmd.Env = r.env()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		r.t.Fatalf("relayd %v: %v\n%s", args, err, stderr.String())
	}
	return string(out)
}

// waitFor polls until ok holds. What a quiet machine does within limit may take a busy
// one four times as long: a time that is promised is measured, not waited for.
func (r *rig) waitFor(limit time.Duration, what string, ok func() bool) {
	r.t.Helper()
	within(r.t, limit, what, ok)
}

// within is waitFor for a test that has no rig.
func within(t *testing.T, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(4 * limit); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("waited %v in vain for %s", 4*limit, what)
}

// sshArgs are the options that make OpenSSH's client fit for a test.
func (r *rig) sshArgs() []string {
	host, port, _ := net.SplitHostPort(r.ssh)
	return []string{
		"-F", "none", "-i", r.key, "-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=accept-new",
		"-o", "UserKnownHostsFile=" + filepath.Join(r.dir, "known_hosts"), "-o", "LogLevel=ERROR",
		"-o", "ExitOnForwardFailure=yes", "-p", port, host,
	}
}

// tunnel runs a client that forwards alias to a local address and waits until the
// alias is online.
func (r *rig) tunnel(alias, target string) *exec.Cmd {
	r.t.Helper()
	args := append([]string{"-N", "-R", alias + ":80:" + target}, r.sshArgs()...)
	return r.client(alias, "ssh", args...)
}

func (r *rig) client(alias, name string, args ...string) *exec.Cmd {
	r.t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = r.env()
	out := &syncBuffer{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		r.t.Fatalf("start %s: %v", name, err)
	}
	gone := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(gone)
	}()
	r.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-gone
	})
	r.waitFor(15*time.Second, alias+" to be online", func() bool {
		select {
		case <-gone:
			r.t.Fatalf("%s ended: %s", name, out.String())
		default:
		}
		var a struct{ Online bool }
		status, body := r.api("GET", "/aliases/"+alias, nil)
		return status == 200 && json.Unmarshal(body, &a) == nil && a.Online
	})
	return cmd
}

// api calls the API with the admin's token.
func (r *rig) api(method, path string, body []byte) (int, []byte) {
	r.t.Helper()
	req, err := http.NewRequest(method, "http://"+r.http+"/api/v1"+path, bytes.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+r.token)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, []byte(err.Error())
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, []byte(err.Error())
	}
	return res.StatusCode, b
}

func (r *rig) must(status int, method, path string, body []byte) []byte {
	r.t.Helper()
	got, out := r.api(method, path, body)
	if got != status {
		r.t.Fatalf("%s %s = %d, want %d: %.600s", method, path, got, status, out)
	}
	return out
}

// record is the part of an event record that the tests look at.
type record struct {
	ID, State, Path string
	Status          *int
	Replayable      bool
	ReplayBlocker   *string
	Request         struct {
		Framing string
		Body    struct {
			Size   int64
			SHA256 string
			State  string
		}
	}
	Response *struct {
		State string
	}
	Error *struct {
		Code string
	}
	Attempts []struct {
		Number     int
		Kind       string
		State      string
		Connection string
		Identical  *bool
		Response   *struct{ State string }
	}
}

func (r *rig) event(id string) record {
	r.t.Helper()
	var rec record
	if err := json.Unmarshal(r.must(200, "GET", "/events/"+id, nil), &rec); err != nil {
		r.t.Fatal(err)
	}
	return rec
}

// events lists an alias' events, newest first.
func (r *rig) events(alias, query string) []record {
	r.t.Helper()
	var all []record
	for cursor := ""; ; {
		var page struct {
			Data       []record
			NextCursor *string
		}
		if err := json.Unmarshal(r.must(200, "GET", "/events?limit=200&alias="+alias+query+cursor, nil), &page); err != nil {
			r.t.Fatal(err)
		}
		all = append(all, page.Data...)
		if page.NextCursor == nil {
			return all
		}
		cursor = "&cursor=" + *page.NextCursor
	}
}

// latest is the newest event of an alias, read again until it has ended.
func (r *rig) latest(alias string) record {
	r.t.Helper()
	var rec record
	r.waitFor(10*time.Second, "the newest event of "+alias+" to end", func() bool {
		var page struct{ Data []record }
		if err := json.Unmarshal(r.must(200, "GET", "/events?limit=1&alias="+alias, nil), &page); err != nil {
			r.t.Fatal(err)
		}
		if len(page.Data) == 0 || page.Data[0].State == "delivering" {
			return false
		}
		rec = r.event(page.Data[0].ID)
		return true
	})
	return rec
}

func (r *rig) replay(id string) record {
	r.t.Helper()
	var rec record
	if err := json.Unmarshal(r.must(200, "POST", "/events/"+id+"/replay", nil), &rec); err != nil {
		r.t.Fatal(err)
	}
	return rec
}

// dial opens a raw connection to the alias listener.
func (r *rig) dial() net.Conn {
	r.t.Helper()
	c, err := net.Dial("tcp", r.http)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(60 * time.Second))
	return c
}

// readAll reads exactly want bytes and then whatever else arrives within a moment.
func readAll(c net.Conn, want int) ([]byte, error) {
	b := make([]byte, want)
	n, err := io.ReadFull(c, b)
	if err != nil {
		return b[:n], err
	}
	_ = c.SetReadDeadline(time.Now().Add(40 * time.Millisecond))
	extra, err := io.ReadAll(c)
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
		err = nil
	}
	return append(b, extra...), err
}
