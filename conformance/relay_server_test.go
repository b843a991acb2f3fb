package conformance

import (
	"bytes"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"relay/relaytest"
	"relay/store/pgtest"
)

func TestMain(m *testing.M) {
	// Without this timeout, a call to a server that hangs would last until the timeout of go test.
	http.DefaultClient.Timeout = 5 * time.Minute
	relaytest.Slowdown(time.Now()) // this call starts to measure how busy the machine is
	os.Exit(relaytest.Main(m))
}

// stores runs a test on SQLite and on a real Postgres.
func stores(t *testing.T, f func(t *testing.T, databaseURL string)) {
	t.Run("sqlite", func(t *testing.T) { f(t, "") })
	t.Run("postgres", func(t *testing.T) { f(t, pgtest.URL(t)) })
}

// relayServer is a relayd with an admin, a key and a token.
type relayServer struct {
	t         *testing.T // the test or subtest that uses the server now
	owner     *testing.T // the process ends with this test
	dir       string
	http, ssh string // addresses of the listeners
	admin     string
	key       string // private key file
	token     string
	database  string
	extra     []string
	log       *relaytest.Buffer
	process   *running
	program   string   // path of relayd; "" = this version
	runner    []string // command before the path of relayd, such as ip netns exec; empty = none
}

// running holds the process of a server. Each start replaces the process. Copies of the relayServer for
// subtests share one running.
type running struct {
	mu sync.Mutex
	p  *relaytest.Process // nil before the first start
}

func (r *running) get() *relaytest.Process {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.p
}

func (r *running) set(p *relaytest.Process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.p = p
}

// startRelay starts a server. extra are settings of the form NAME=value.
func startRelay(t *testing.T, databaseURL string, extra ...string) *relayServer {
	t.Helper()
	r := newRelay(t, databaseURL, extra...)
	r.start()
	r.token, _ = r.newToken(r.key)
	return r
}

// newRelay is like startRelay, without starting the server.
func newRelay(t *testing.T, databaseURL string, extra ...string) *relayServer {
	t.Helper()
	r := &relayServer{
		t: t, owner: t, dir: t.TempDir(), database: databaseURL, extra: extra, log: &relaytest.Buffer{}, process: &running{},
		http: relaytest.FreeAddr(t), ssh: relaytest.FreeAddr(t), admin: relaytest.FreeAddr(t),
	}
	r.key = filepath.Join(r.dir, "id_ed25519")
	relaytest.WriteKey(t, r.key)
	t.Cleanup(func() {
		r.stop(syscall.SIGKILL)
		if t.Failed() {
			t.Logf("relayd log:\n%s", relaytest.Tail(withoutRequests(r.log.String()), 6000))
		}
	})
	return r
}

// withoutRequests returns a log without the lines about single requests, which would make the output of a
// failed test long.
func withoutRequests(log string) string {
	var rest strings.Builder
	for line := range strings.Lines(log) {
		if !strings.Contains(line, `msg="api request"`) && !strings.Contains(line, "msg=answered") {
			rest.WriteString(line)
		}
	}
	return rest.String()
}

func (r *relayServer) env() []string {
	env := append(os.Environ(),
		"HOME="+r.dir, "RELAY_DATA_DIR="+filepath.Join(r.dir, "data"),
		"RELAY_HTTP_ADDR="+r.http, "RELAY_SSH_ADDR="+r.ssh, "RELAY_ADMIN_ADDR="+r.admin,
		"RELAY_INITIAL_ADMIN_KEYS="+r.key+".pub", "RELAY_REPLAY_LIMIT=off", "RELAY_DATABASE_URL="+r.database)
	return append(env, r.extra...)
}

// start runs relayd serve and waits until it is ready.
func (r *relayServer) start() {
	r.t.Helper()
	p := r.spawn()
	r.waitFor(20*time.Second, "relayd to be ready", func() bool {
		if p.HasEnded() {
			r.t.Fatalf("relayd ended: %s", relaytest.Tail(r.log.String(), 4000))
		}
		return r.ready() == 200
	})
}

// spawn starts relayd serve without waiting until it is ready. The process ends with stop, or with the test
// r.owner.
func (r *relayServer) spawn() *relaytest.Process {
	r.t.Helper()
	program := r.program
	if program == "" {
		program = relaytest.Program(r.t, "relayd")
	}
	line := append(r.runner[:len(r.runner):len(r.runner)], program, "serve")
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = r.env(), r.log, r.log
	p := relaytest.Start(r.owner, cmd)
	r.process.set(p)
	return p
}

// stop sends a signal and waits for the end of the process.
func (r *relayServer) stop(sig syscall.Signal) {
	p := r.process.get()
	if p == nil {
		return
	}
	_ = p.Cmd.Process.Signal(sig)
	select {
	case <-p.Ended():
	case <-time.After(60 * time.Second):
		p.Kill()
		r.t.Errorf("relayd did not end within 60 s of %v", sig)
	}
	http.DefaultClient.CloseIdleConnections() // net/http would not repeat a POST that fails on a closed connection
}

// relayd runs a command of the program relayd with the settings of the server, and returns its stdout.
func (r *relayServer) relayd(args ...string) string {
	r.t.Helper()
	cmd := r.operator(args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		r.t.Fatalf("relayd %v: %v\n%s%s", args, err, stderr.String(), out)
	}
	return string(out)
}

// operator returns a command of the program relayd, such as relayd token, with the settings of the server.
func (r *relayServer) operator(args ...string) *exec.Cmd {
	r.t.Helper()
	cmd := exec.Command(relaytest.Program(r.t, "relayd"), args...)
	cmd.Env = r.env()
	return cmd
}

// waitFor polls until ok returns true. quiet is the time that this takes on an idle machine; waitFor waits longer, as
// relaytest.Until does. Use it only for times that are not promised; measure promised times instead.
func (r *relayServer) waitFor(quiet time.Duration, what string, ok func() bool) {
	r.t.Helper()
	relaytest.Until(r.t, quiet, what, ok)
}
