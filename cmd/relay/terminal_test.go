//go:build linux

package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// call sends a request to an alias and gives the status.
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

// atTerminal is a relay up at a terminal of its own.
type atTerminal struct {
	t    *testing.T
	tty  *os.File
	cmd  *exec.Cmd
	out  *output
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

// runAtTerminal starts the program at a terminal of its own.
func runAtTerminal(t *testing.T, env []string, args ...string) *atTerminal {
	t.Helper()
	a := &atTerminal{t: t, out: &output{}, done: make(chan struct{})}
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
	// The test keeps its own end of the terminal open, so that its modes can be seen
	// when the program is gone.
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

// startWithSignals starts a command that no signal is ignored by: what runs under
// nohup ignores SIGHUP, and so does whatever it starts, but for signals that it has a
// handler for.
func startWithSignals(c *exec.Cmd) error {
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT)
	defer signal.Stop(caught)
	return c.Start()
}

// sees waits for text that matches, after what was seen before.
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

// leaves waits for the end of the program, and checks that the terminal is as it was.
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
		a.t.Errorf("it ended by %s, not %s", got, how)
	}
	if now := a.modes(); now != a.was {
		a.t.Errorf("the modes of the terminal were %+v and are %+v", a.was, now)
	}
}

// stopped tells whether the program is stopped, by proc(5).
func (a *atTerminal) stopped() bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", a.cmd.Process.Pid))
	if err != nil {
		a.t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(after, "T")
}

// TestKeyRReleasesWhatWasQueued: at a terminal the key R, and nothing that is pasted,
// sends what came while the alias was offline.
func TestKeyRReleasesWhatWasQueued(t *testing.T) {
	t.Parallel()
	r := theRelay(t)
	first := r.upAtTerminal(t, "keys-dev") // the alias is claimed by this
	first.press("\x03")
	first.leaves("exit status 0")
	if status := r.call(t, "keys-dev", "/queued"); status != http.StatusAccepted {
		t.Fatalf("status %d while offline", status)
	}
	a := r.upAtTerminal(t, "keys-dev")
	a.sees("1 event queued while offline; press R")
	a.press("some pasted text with an R\nR\n")
	r.call(t, "keys-dev", "/live") // its line comes after that of a replay would
	a.sees(`POST /live \(`)
	if strings.Contains(a.out.String(), "released") {
		t.Error("pasted text released the queued event")
	}
	a.press("R")
	a.sees("released 1 event of keys-dev")
	a.sees(`\[200\] POST /queued \(\d+ms\) evt_`)
	a.press("\x03")
	a.leaves("exit status 0")
	a.sees(goodbye) // what a program wrote may be read from its terminal when it is gone
}

func TestSuspendedAndResumed(t *testing.T) {
	t.Parallel()
	r := theRelay(t)
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

// TestCtrlCAtAPassphrase: the first Ctrl+C ends the program, and the terminal shows
// again what is typed.
func TestCtrlCAtAPassphrase(t *testing.T) {
	t.Parallel()
	r := theRelay(t)
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

func TestTerminalIsPutBackAtEveryEnd(t *testing.T) {
	t.Parallel()
	r := theRelay(t)
	for sig, how := range map[syscall.Signal]string{
		syscall.SIGINT: "exit status 0", syscall.SIGTERM: "exit status 0", syscall.SIGHUP: "signal: hangup", syscall.SIGQUIT: "exit status 2",
	} {
		a := r.upAtTerminal(t, "ends-dev")
		_ = a.cmd.Process.Signal(sig)
		a.leaves(how)
	}
	first, second := r.upAtTerminal(t, "ends-dev"), r.upAtTerminal(t, "ends-dev") // the alias is taken over
	first.leaves("exit status 5")
	second.press("\x03")
	second.leaves("exit status 0")
}
