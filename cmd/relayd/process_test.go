package main

import (
	"errors"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"relay/cli"
	"relay/relaytest"
	"relay/store"
)

// process is relayd as a separate process, for tests of signals and kills. The methods of the embedded
// testServer work as with a server in the process of the test.
type process struct {
	*testServer
	*relaytest.Process
}

var listeningLine = regexp.MustCompile(`msg=listening http=(\S+) https="" ssh=(\S+)`)

// startProcess runs `relayd serve` on a folder and waits until it serves.
func startProcess(t *testing.T, dir string, flags map[string]string) *process {
	t.Helper()
	needTool(t, "ssh")
	h := &testServer{t: t, dir: dir, flags: map[string]string{"data-dir": dir}}
	args := []string{"serve", "--data-dir", dir, "--http-addr", "127.0.0.1:0", "--ssh-addr", "127.0.0.1:0", "--admin-addr", "off"}
	for name, value := range flags {
		h.flags[name] = value
		args = append(args, "--"+name, value)
	}
	cmd := exec.Command("relayd", args...) // TestMain has put relayd into PATH
	cmd.Env = append(os.Environ(), "HOME="+dir, "GORACE="+hurry)
	p := &process{h, relaytest.StartSeparate(t, cmd)}
	p.log = p.Err
	if !relaytest.Poll(20*time.Second, func() bool { return strings.Contains(p.Out.String(), "export RELAY_TOKEN") }) {
		t.Fatalf("it never served:\n%s", p.log)
	}
	var m []string
	if !relaytest.Poll(20*time.Second, func() bool { m = listeningLine.FindStringSubmatch(p.log.String()); return m != nil }) { // the log comes by another pipe
		t.Fatalf("no addresses in the log:\n%s", p.log)
	}
	cfg, _, err := load(sources{flags: p.flags, getenv: env()})
	if err != nil {
		t.Fatal(err)
	}
	cfg.HTTPAddr, cfg.SSHAddr = m[1], m[2]
	p.app = &app{cfg: cfg, site: cfg.site()}
	s, err := store.Open(t.Context(), store.Options{URL: cfg.DatabaseURL, DataDir: dir, NoCreate: true})
	if err != nil {
		t.Fatal(err)
	}
	p.app.hostKeys, err = loadHostKeys(t.Context(), cfg, s, slog.New(slog.DiscardHandler))
	if err = errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	p.key = filepath.Join(dir, "id_ed25519")
	line := regexp.MustCompile(`(?m)^  admin +(\S+)$`).FindStringSubmatch(p.Out.String())
	token, code := p.operate("token", "add", "--user", line[1])
	if code != cli.ExitOK {
		t.Fatal("no token")
	}
	p.token = strings.TrimSpace(token)
	return p
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.Cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// TestSignals: one signal stops relayd gracefully, with exit code 1 if requests were cut. A second signal
// ends the process at once.
func TestSignals(t *testing.T) {
	t.Parallel()
	// Under nohup, this process ignores SIGHUP, and relayd as its child would ignore it, too. This handler
	// prevents that.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(caught) })
	for _, tc := range []struct {
		name, drain string
		first       os.Signal
		busy, twice bool
		want        int
	}{
		{"idle", "30s", syscall.SIGTERM, false, false, cli.ExitOK},
		{"terminal closed", "30s", syscall.SIGHUP, false, false, cli.ExitOK}, // SIGHUP, too, stops gracefully
		{"drain runs out", "200ms", syscall.SIGTERM, true, false, cli.ExitFailure},
		{"second signal", "60s", syscall.SIGTERM, true, true, cli.ExitFailure},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := startProcess(t, t.TempDir(), map[string]string{"drain": tc.drain})
			if tc.busy {
				l := newLocal(t, oddAnswer)
				l.gate = make(chan struct{})
				defer close(l.gate)
				p.tunnel("demo", l.addr)
				go p.trySend(odd)
				l.seen(t, 1)
			}
			p.signal(tc.first)
			if !relaytest.Poll(10*time.Second, func() bool { return strings.Contains(p.log.String(), "msg=stopping") }) {
				t.Fatal("it does not stop")
			}
			if tc.twice {
				p.signal(syscall.SIGINT)
			}
			if got := p.Code(t, 20*time.Second); got != tc.want {
				t.Errorf("exit %d, want %d:\n%s", got, tc.want, p.log)
			}
			cut := strings.Contains(p.log.String(), "requests were cut and are recorded as interrupted")
			if want := tc.busy && !tc.twice; cut != want {
				t.Errorf("told of cut requests: %t, want %t", cut, want)
			}
		})
	}
}

// TestKilled: after a kill, attempts that were in progress are interrupted and can be replayed, and queued
// attempts are still queued.
func TestKilled(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, flags map[string]string) {
		dir := t.TempDir()
		p := startProcess(t, dir, flags)
		l := newLocal(t, oddAnswer)
		l.gate = make(chan struct{})
		p.tunnel("busy", l.addr)
		p.tunnel("away", l.addr).close()
		if !relaytest.Poll(15*time.Second, func() bool { return !p.alias("away").Online }) {
			t.Fatal("still online")
		}
		if answer := p.send(strings.Replace(odd, "demo.", "away.", 1)); !strings.HasPrefix(answer, "HTTP/1.1 202 ") {
			t.Fatalf("offline answer %q", answer)
		}
		go p.trySend(strings.Replace(odd, "demo.", "busy.", 1))
		l.seen(t, 1)
		if !relaytest.Poll(10*time.Second, func() bool { return p.count("busy") == 1 }) {
			t.Fatal("the request under way was never stored")
		}
		p.Kill()
		close(l.gate)

		again := startProcess(t, dir, flags)
		if e := again.newest("away"); e.State != "queued" {
			t.Errorf("what waited is %s", e.State)
		}
		e := again.newest("busy")
		if e.State != "interrupted" {
			t.Errorf("what was under way is %s", e.State)
		}
		again.tunnel("busy", l.addr)
		again.replays(e, 2)
	})
}

// count returns the number of events of an alias in the store.
func (h *testServer) count(alias string) int {
	h.t.Helper()
	var page struct{ Data []struct{} }
	h.api(http.MethodGet, "/events?alias="+alias, "", &page)
	return len(page.Data)
}
