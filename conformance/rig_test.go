package conformance

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

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
