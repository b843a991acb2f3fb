package client

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/crypto/ssh"

	"relay/cli"
	"relay/relaytest"
)

// TestMain checks that no goroutine is left. Ending goroutines get testTimeout, because goleak's own timeout
// is too short on a busy machine.
func TestMain(m *testing.M) {
	code := m.Run()
	for end := time.Now().Add(testTimeout); code == 0; {
		// A call of openChannel may be left, because it may never return; see package link.
		left := goleak.Find(goleak.IgnoreTopFunction("golang.org/x/crypto/ssh.(*mux).openChannel"))
		if left == nil {
			break
		}
		if time.Now().After(end) {
			fmt.Fprintln(os.Stderr, left)
			code = 1
		}
	}
	os.Exit(code)
}

func newSigner(t testing.TB) ssh.Signer {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return signer
}

// newKeyFile writes a private key and returns its path. With a passphrase, ssh-keygen makes it with
// one round of bcrypt, because the usual number takes seconds under the race detector.
func newKeyFile(t testing.TB, passphrase string) string {
	path := filepath.Join(t.TempDir(), "key")
	if passphrase != "" {
		out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-a", "1", "-N", passphrase, "-f", path).CombinedOutput()
		if err != nil {
			t.Fatalf("ssh-keygen: %v: %s", err, out)
		}
		return path
	}
	relaytest.WriteKey(t, path)
	return path
}

// sayRecorder collects the messages to the user.
type sayRecorder struct {
	mu    sync.Mutex
	lines []string
}

func (s *sayRecorder) say(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, line)
}

func (s *sayRecorder) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.lines, "\n")
}

func newDialer(t testing.TB, addr string) (*Dialer, *sayRecorder) {
	talk := &sayRecorder{}
	home := t.TempDir()
	return &Dialer{
		Server: addr, Identity: newKeyFile(t, ""), Home: home, StateDir: filepath.Join(home, "state"),
		Version: "test", Say: talk.say,
	}, talk
}

// upRun is an Up under test.
type upRun struct {
	*Up
	messages chan *Message
	ready    chan bool
	lost     chan time.Duration
	local    chan TargetEvent
	cancel   context.CancelFunc
	done     chan struct{}
	err      error
}

func startUp(t testing.TB, dialer *Dialer, forwards ...Forward) *upRun {
	ctx, cancel := context.WithCancel(context.Background())
	r := &upRun{
		messages: make(chan *Message, 256), ready: make(chan bool, 64), lost: make(chan time.Duration, 64),
		local:  make(chan TargetEvent, 64),
		cancel: cancel, done: make(chan struct{}),
	}
	r.Up = &Up{
		Dialer: dialer, Forwards: forwards,
		Show:  func(m *Message) { r.messages <- m },
		Ready: func(again bool) { r.ready <- again },
		Lost:  func(_ error, next time.Duration) { r.lost <- next },
		Local: func(n TargetEvent) { r.local <- n },
	}
	go func() {
		defer close(r.done)
		r.err = r.Run(ctx)
	}()
	t.Cleanup(func() { r.stop(t) })
	return r
}

func (r *upRun) stop(t testing.TB) error {
	r.cancel()
	return r.end(t)
}

func (r *upRun) end(t testing.TB) error {
	select {
	case <-r.done:
	case <-time.After(testTimeout):
		t.Fatal("Up.Run did not end")
	}
	return r.err
}

// testTimeout is far longer than any step of these tests takes.
const testTimeout = 2 * time.Minute

// got receives a value, and fails the test after testTimeout.
func got[T any](t testing.TB, what string, from <-chan T) T {
	t.Helper()
	select {
	case v, ok := <-from:
		if !ok {
			t.Fatalf("%s: channel closed", what)
		}
		return v
	case <-time.After(testTimeout):
		t.Fatalf("%s did not come", what)
	}
	panic("unreachable")
}

// newListener returns a listener that takes the place of a local server.
func newListener(t testing.TB) (net.Listener, Target) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	target, err := PortTarget(ln.Addr().(*net.TCPAddr).Port)
	if err != nil {
		t.Fatal(err)
	}
	return ln, target
}

// refusingAddr returns an address at which nothing listens. Its port belongs to an open connection, so no
// other program can listen there during the test.
func refusingAddr(t testing.TB) (addr string, target Target) {
	ln, _ := newListener(t)
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if target, err = PortTarget(conn.LocalAddr().(*net.TCPAddr).Port); err != nil {
		t.Fatal(err)
	}
	return conn.LocalAddr().String(), target
}

// online starts a fake relay and an Up with one alias, and waits until the alias is online.
func online(t testing.TB, target Target) (*fakeConn, *upRun) {
	d := newFakeRelay(t)
	dialer, _ := newDialer(t, d.listen())
	run := startUp(t, dialer, Forward{Alias: "stripe-dev", Target: target})
	got(t, "ready", run.ready)
	return got(t, "connection", d.conns), run
}

func exitOfError(err error) int {
	var e *cli.Error
	if errors.As(err, &e) {
		return e.Exit
	}
	return -1
}
