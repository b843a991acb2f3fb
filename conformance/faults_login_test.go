package conformance

import (
	"errors"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// line is a way to a listener that can be cut.
type line struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

func newLineTo(t *testing.T, addr string) *line {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &line{Listener: ln}
	t.Cleanup(func() { ln.Close(); l.cut() })
	go func() {
		for {
			near, err := ln.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", addr)
			if err != nil {
				near.Close()
				continue
			}
			l.mu.Lock()
			l.conns = append(l.conns, near, far)
			l.mu.Unlock()
			for _, pair := range [][2]net.Conn{{near, far}, {far, near}} {
				go func() {
					_, _ = io.Copy(pair[0], pair[1])
					pair[0].Close()
				}()
			}
		}
	}()
	return l
}

// cut ends every connection.
func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		c.Close()
	}
	l.conns = nil
}

// TestFaultLineCutWhilePostgresIsAway: a relay that cannot ask whose key it is lets
// nobody in, and that is no refusal: relay up comes back by itself when Postgres does,
// and a command says that the relay cannot be used.
func TestFaultLineCutWhilePostgresIsAway(t *testing.T) {
	pg, databaseURL := ownPostgres(t)
	r := newRig(t, databaseURL)
	l := newLineTo(t, r.ssh)
	relay := filepath.Join(bin, "relay")
	server := []string{"--server", l.Addr().String(), "--identity", r.key}
	r.client("cut", relay, append([]string{"up", "--target", "http://" + localServer(t), "--alias", "cut"}, server...)...)
	if err := pg.Kill(); err != nil {
		t.Fatal(err)
	}
	l.cut()
	<-time.After(size(6*time.Second, 30*time.Second)) // three refusals a second apart used to be enough
	events := exec.Command(relay, append([]string{"events", "cut"}, server...)...)
	events.Env = r.env()
	said, err := events.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 69 || !strings.Contains(string(said), "keys cannot be looked up right now") {
		t.Errorf("relay events: %v, %s", err, said)
	}
	plain, err := exec.Command("ssh", append([]string{"-o", "LogLevel=INFO"}, append(r.sshArgs(), "whoami")...)...).CombinedOutput()
	if err == nil || !strings.Contains(string(plain), "keys cannot be looked up right now") {
		t.Errorf("ssh: %v, %s", err, plain)
	}
	if err := pg.Restart(); err != nil {
		t.Fatal(err)
	}
	r.waitFor(bound(30*time.Second), "the alias to be online again", func() bool { return r.online("cut") })
	if status, body, _ := r.call("cut", "/back", "x"); status != 200 {
		t.Errorf("answered %d %s", status, body)
	}
}
