//go:build linux

package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"relay/relaytest"
)

// call sends a request to an alias and returns the status.
func (r relayAt) call(t *testing.T, alias, path string) int {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, "http://"+r.http+path, strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(r.http)
	req.Host, req.Close = alias+".localhost:"+port, true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	return res.StatusCode
}

// atTerminal is a run of the program relay at its own pseudo-terminal.
type atTerminal struct {
	t    *testing.T
	tty  *os.File
	cmd  *exec.Cmd
	out  *relaytest.Buffer
	seen int
	done chan struct{}
	was  unix.Termios
}

func (r relayAt) upAtTerminal(t *testing.T, alias string, env ...string) *atTerminal {
	t.Helper()
	a := runAtTerminal(t, env, "up", "--echo", "--alias", alias, "--server", r.ssh, "--identity", r.key)
	a.sees(`Press Ctrl\+C to disconnect`)
	if !poll(a.single) {
		t.Fatal("keys are not read one by one")
	}
	return a
}

// runAtTerminal starts the program at a new pseudo-terminal.
func runAtTerminal(t *testing.T, env []string, args ...string) *atTerminal {
	t.Helper()
	a := &atTerminal{t: t, out: &relaytest.Buffer{}, done: make(chan struct{})}
	a.cmd = exec.Command(relayProgram(), args...)
	a.cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "TERM=xterm", "NO_COLOR=1", "DISPLAY=", "WAYLAND_DISPLAY=", "BROWSER=")
	a.cmd.Env = append(a.cmd.Env, env...)
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	a.tty = master
	_ = pty.Setsize(master, &pty.Winsize{Rows: 30, Cols: 120})
	a.was = a.modes()
	a.cmd.Stdin, a.cmd.Stdout, a.cmd.Stderr = slave, slave, slave
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := startWithSignals(a.cmd); err != nil {
		t.Fatal(err)
	}
	// The test keeps both ends of the terminal open, because it reads the modes after the program has ended.
	t.Cleanup(func() {
		_ = a.cmd.Process.Kill()
		<-a.done
		slave.Close()
		master.Close()
	})
	go func() { _, _ = io.Copy(a.out, master) }()
	go func() { _ = a.cmd.Wait(); close(a.done) }()
	return a
}

// startWithSignals starts a command that ignores no signal, even if the test runs under nohup. A child
// inherits ignored signals such as SIGHUP, but not those for which its parent has a handler.
func startWithSignals(c *exec.Cmd) error {
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT)
	defer signal.Stop(caught)
	return c.Start()
}

// sees waits for text that matches pattern, after the text of the last match. It returns the match and its
// groups.
func (a *atTerminal) sees(pattern string) []string {
	a.t.Helper()
	re := regexp.MustCompile(pattern)
	var m []string
	if !poll(func() bool {
		text := a.out.String()[a.seen:]
		at := re.FindStringSubmatchIndex(text)
		if at == nil {
			return false
		}
		m = re.FindStringSubmatch(text)
		a.seen += at[1]
		return true
	}) {
		a.t.Fatalf("%s was not shown; the terminal got\n%q", pattern, a.out.String())
	}
	return m
}

func (a *atTerminal) press(keys string) {
	a.t.Helper()
	if _, err := io.WriteString(a.tty, keys); err != nil {
		a.t.Fatal(err)
	}
}

func (a *atTerminal) modes() unix.Termios {
	a.t.Helper()
	m, err := unix.IoctlGetTermios(int(a.tty.Fd()), unix.TCGETS)
	if err != nil {
		a.t.Fatal(err)
	}
	return *m
}

func (a *atTerminal) single() bool { return a.modes().Lflag&(unix.ICANON|unix.ECHO) == 0 }

// leaves waits for the end of the program. It checks that the program's exit state, as text, begins with how,
// and that the terminal has its former modes again.
func (a *atTerminal) leaves(how string) {
	a.t.Helper()
	if !poll(func() bool {
		select {
		case <-a.done:
			return true
		default:
			return false
		}
	}) {
		a.t.Fatalf("it does not end; the terminal got\n%q", a.out.String())
	}
	if got := a.cmd.ProcessState.String(); !strings.HasPrefix(got, how) {
		a.t.Errorf("it ended by %s, not %s; the terminal got\n%s", got, how, a.out.String())
	}
	if now := a.modes(); now != a.was {
		a.t.Errorf("the modes of the terminal were %+v and are %+v", a.was, now)
	}
}

// stopped reports whether a signal has stopped the program: state T in proc(5).
func (a *atTerminal) stopped() bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", a.cmd.Process.Pid))
	if err != nil {
		a.t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(after, "T")
}

// TestKeyRReleasesWhatWasQueued: at a terminal the key R delivers the events that were queued while
// the alias was offline; pasted text never does.
func TestKeyRReleasesWhatWasQueued(t *testing.T) {
	t.Parallel()
	r := useSharedRelay(t)
	first := r.upAtTerminal(t, "keys-dev") // the first tunnel makes the account the owner of the alias
	first.press("\x03")
	first.leaves("exit status 0")
	// Until the relay has noticed the end of the client, a request gets 502.
	if !poll(func() bool { return r.call(t, "keys-dev", "/queued") == http.StatusAccepted }) {
		t.Fatal("no request was queued while offline")
	}
	a := r.upAtTerminal(t, "keys-dev")
	a.sees("1 event queued while offline; press R")
	a.press("some pasted text with an R\nR\n")
	r.call(t, "keys-dev", "/live") // if the pasted R had caused a replay, the line of the replay would come before the line of this request
	a.sees(`POST /live \(`)
	if strings.Contains(a.out.String(), "released") {
		t.Error("pasted text released the queued event")
	}
	a.press("R")
	a.sees("delivering 1 queued event of keys-dev")
	a.sees(`\[200\] POST /queued \(\d+ms\) evt_`)
	a.press("\x03")
	a.leaves("exit status 0")
	a.sees("disconnected") // the output can be read from the terminal after the program has ended
}

// TestKeyRGoesOnAfterARefusedAlias: if R cannot deliver the events of one alias, for example of the reserved
// name www, it continues with the other aliases.
func TestKeyRGoesOnAfterARefusedAlias(t *testing.T) {
	t.Parallel()
	r := useSharedRelay(t)
	a := r.upAtTerminal(t, "www,second-dev")
	a.press("R")
	a.sees("no event of second-dev was queued")
	a.press("\x03")
	a.leaves("exit status 0")
}

// TestWhenThereAreColors: stdout gets colors only at a terminal, and not if the user disables them by
// --no-color, NO_COLOR (no-color.org: any non-empty value) or a dumb terminal.
func TestWhenThereAreColors(t *testing.T) {
	master, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	defer tty.Close()
	file, err := os.CreateTemp(t.TempDir(), "out")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, c := range []struct {
		name    string
		out     *os.File
		env     map[string]string
		noColor bool
		want    bool
	}{
		{"at a terminal", tty, map[string]string{"TERM": "xterm"}, false, true},
		{"NO_COLOR is empty", tty, map[string]string{"TERM": "xterm", "NO_COLOR": ""}, false, true},
		{"NO_COLOR=1", tty, map[string]string{"TERM": "xterm", "NO_COLOR": "1"}, false, false},
		{"NO_COLOR=0", tty, map[string]string{"TERM": "xterm", "NO_COLOR": "0"}, false, false},
		{"--no-color", tty, map[string]string{"TERM": "xterm"}, true, false},
		{"a dumb terminal", tty, map[string]string{"TERM": "dumb"}, false, false},
		{"a file", file, map[string]string{"TERM": "xterm"}, false, false},
	} {
		p := &program{out: c.out, getenv: func(name string) string { return c.env[name] }, noColor: c.noColor}
		if got := p.terminal().Color; got != c.want {
			t.Errorf("%s: colors %t, want %t", c.name, got, c.want)
		}
	}
}

// TestColorsAtATerminal: the flag and the environment variables decide whether the program prints colours at a
// terminal.
func TestColorsAtATerminal(t *testing.T) {
	t.Parallel()
	r := useSharedRelay(t)
	for i, c := range []struct {
		env   []string
		flags []string
		color bool
	}{
		{[]string{"NO_COLOR="}, nil, true},
		{[]string{"NO_COLOR=1"}, nil, false},
		{[]string{"NO_COLOR="}, []string{"--no-color"}, false},
	} {
		alias := fmt.Sprintf("color%d-dev", i)
		a := runAtTerminal(t, c.env, append(c.flags, "up", "--echo", "--alias", alias, "--server", r.ssh, "--identity", r.key)...)
		a.sees(`Press Ctrl\+C`)
		r.call(t, alias, "/x")
		line := a.sees(`\d\d:\d\d:\d\d (.*) POST /x`)[1]
		if want := map[bool]string{true: "\x1b[32m[200]\x1b[0m", false: "[200]"}[c.color]; line != want {
			t.Errorf("%v %v: %q, want %q", c.env, c.flags, line, want)
		}
		a.press("\x03")
		a.leaves("exit status 0")
	}
}

// TestHostHeaderEndsWithItsTunnel: --host-header applies while the tunnel that set it is open; the next
// tunnel of the alias gets the caller's Host line.
func TestHostHeaderEndsWithItsTunnel(t *testing.T) {
	t.Parallel()
	r := useSharedRelay(t)
	hosts := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { hosts <- r.Host }))
	defer server.Close()
	_, port, _ := net.SplitHostPort(r.http)
	_, localPort, _ := net.SplitHostPort(server.Listener.Addr().String())
	for _, c := range []struct {
		flags []string
		want  string
	}{
		{[]string{"--host-header", "shop.test"}, "shop.test"},
		{nil, "host-dev.localhost:" + port},
		{[]string{"--host-header", "rewrite"}, "127.0.0.1:" + localPort},
		{[]string{"--host-header", "preserve"}, "host-dev.localhost:" + port},
	} {
		a := runAtTerminal(t, nil, append([]string{"up", "--port", localPort, "--alias", "host-dev", "--server", r.ssh, "--identity", r.key}, c.flags...)...)
		a.sees(`Press Ctrl\+C`)
		r.call(t, "host-dev", "/")
		if got := <-hosts; got != c.want {
			t.Errorf("%v: Host %q, want %q", c.flags, got, c.want)
		}
		a.press("\x03")
		a.leaves("exit status 0")
	}
}

func TestSuspendedAndResumed(t *testing.T) {
	t.Parallel()
	r := useSharedRelay(t)
	a := r.upAtTerminal(t, "suspend-dev")
	for range 2 {
		a.press("\x1a") // Ctrl+Z
		if !poll(a.stopped) {
			t.Fatal("Ctrl+Z does not stop it")
		}
		if now := a.modes(); now != a.was {
			t.Errorf("stopped, the modes of the terminal are %+v, not %+v", now, a.was)
		}
		_ = a.cmd.Process.Signal(syscall.SIGCONT)
		if !poll(a.single) {
			t.Error("resumed, keys are not read one by one")
		}
		r.call(t, "suspend-dev", "/after")
		a.sees(`\[200\] POST /after`)
	}
	a.press("\x03")
	a.leaves("exit status 0")
}

// TestCtrlCAtAPassphrase: the first Ctrl+C ends the program, and the terminal shows typed text again.
func TestCtrlCAtAPassphrase(t *testing.T) {
	t.Parallel()
	r := useSharedRelay(t)
	key := filepath.Join(t.TempDir(), "locked")
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-a", "1", "-N", "secret", "-f", key).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	admin := adminLine.FindStringSubmatch(shared.srv.out.String())[1]
	add := exec.Command(relaydProgram(), "key", "add", "--user", admin, "--data-dir", filepath.Join(shared.dir, "data"), key+".pub")
	if out, err := add.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	a := runAtTerminal(t, nil, "whoami", "--server", r.ssh, "--identity", key)
	a.sees("passphrase")
	if !poll(func() bool { return a.modes().Lflag&unix.ECHO == 0 }) {
		t.Error("the passphrase is shown")
	}
	a.press("\x03")
	a.leaves("exit status 130")
}

// TestTerminalIsPutBackAtTheSecondCtrlC: a second Ctrl+C while a request is in progress ends the program with
// its terminal restored, including the echo.
func TestTerminalIsPutBackAtTheSecondCtrlC(t *testing.T) {
	t.Parallel()
	r := useSharedRelay(t)
	came, hold := make(chan bool, 1), make(chan bool)
	local := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { came <- true; <-hold }))
	defer local.Close()
	defer close(hold)
	_, port, _ := net.SplitHostPort(local.Listener.Addr().String())
	a := runAtTerminal(t, nil, "up", "--port", port, "--alias", "held-dev", "--server", r.ssh, "--identity", r.key)
	a.sees(`Press Ctrl\+C to disconnect`)
	if !poll(a.single) {
		t.Fatal("keys are not read one by one")
	}
	answered := make(chan bool)
	go func() {
		defer close(answered)
		q, _ := http.NewRequest("POST", "http://"+r.http+"/", nil)
		_, port, _ := net.SplitHostPort(r.http)
		q.Host = "held-dev.localhost:" + port
		if res, err := http.DefaultClient.Do(q); err == nil {
			res.Body.Close()
		}
	}()
	<-came
	a.press("\x03")
	time.Sleep(500 * time.Millisecond) // shorter than the time for which the program waits for the request
	a.press("\x03")
	a.leaves("") // any exit state, because the wait for the request may be over before the second Ctrl+C
	<-answered
}

func TestTerminalIsPutBackAtEveryEnd(t *testing.T) {
	t.Parallel()
	r := useSharedRelay(t)
	for sig, how := range map[syscall.Signal]string{
		syscall.SIGINT: "exit status 0", syscall.SIGTERM: "exit status 0", syscall.SIGHUP: "signal: hangup",
		// Any exit state: the Go runtime prints all stacks and exits with 2, but other threads may run while it
		// prints. If it faults then, the system ends the program by SIGSEGV.
		syscall.SIGQUIT: "",
	} {
		a := r.upAtTerminal(t, "ends-dev")
		_ = a.cmd.Process.Signal(sig)
		a.leaves(how)
	}
	first, second := r.upAtTerminal(t, "ends-dev"), r.upAtTerminal(t, "ends-dev") // the second tunnel takes the alias over
	first.leaves("exit status 5")
	second.press("\x03")
	second.leaves("exit status 0")
}
