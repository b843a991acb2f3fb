package conformance

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"relay/relaytest"
)

// try runs a client to its end, without a terminal, and returns its exit code and output.
func (r *relayServer) try(env []string, name string, args ...string) (exit int, said string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(r.env(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		r.t.Fatalf("%s %v did not end: %s", name, args, out)
	}
	if cmd.ProcessState == nil {
		r.t.Fatalf("%s: %v", name, err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// sshLine returns the arguments of an OpenSSH command. The options come before the host, and rest comes after
// it.
func (r *relayServer) sshLine(key, user string, options []string, rest ...string) []string {
	host, port, _ := net.SplitHostPort(r.ssh)
	args := append([]string{
		"-F", "none", "-i", key, "-p", port, "-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=no",
		"-o", "UserKnownHostsFile=" + filepath.Join(r.dir, "known_hosts"),
	}, options...)
	return append(append(args, user+"@"+host), rest...)
}

func TestSecuritySSHAudit(t *testing.T) {
	t.Parallel()
	r := startRelay(t, "")
	host, port, _ := net.SplitHostPort(r.ssh)
	_, out := r.try(nil, "ssh-audit", "-n", "-b", "-p", port, host)
	fails, warns := 0, 0
	for line := range strings.Lines(out) {
		switch {
		case strings.Contains(line, "[fail]"):
			fails++
			t.Error(strings.TrimSpace(line))
		case strings.Contains(line, "[warn]") && !strings.Contains(line, "unknown algorithm"):
			warns++
			t.Log(strings.TrimSpace(line))
		}
	}
	if !strings.Contains(out, "curve25519-sha256") || !strings.Contains(out, "[info]") {
		t.Errorf("ssh-audit did not look: %s", out)
	}
	t.Logf("figure: ssh-audit: %d failures, %d warnings but those of algorithms it does not know", fails, warns)
}

// TestSecuritySSHSilentSockets: a thousand sockets send nothing, or only their version line. A login at the
// same time is quick, and each of the sockets is closed after 10 s.
func TestSecuritySSHSilentSockets(t *testing.T) {
	t.Parallel()
	r := startRelay(t, "")
	closed := make(chan time.Duration, 1000)
	for n := range 1000 {
		c, err := net.Dial("tcp", r.ssh)
		if err != nil {
			t.Fatalf("socket %d: %v", n, err)
		}
		defer c.Close()
		if n%4 == 0 {
			_, _ = c.Write([]byte("SSH-2.0-silent\r\n"))
		}
		opened := time.Now()
		go func() {
			_, _ = io.Copy(io.Discard, c)
			closed <- time.Since(opened)
		}()
	}
	began := time.Now()
	exit, said := r.try(nil, "ssh", r.sshLine(r.key, "admin", []string{"-o", "LogLevel=ERROR"}, "whoami")...)
	took := time.Since(began)
	if exit != 0 || !strings.Contains(said, "admin") {
		t.Fatalf("exit %d: %s", exit, said)
	}
	if took > bound(3*time.Second) {
		t.Errorf("the login took %v", took)
	}
	longest := time.Duration(0)
	for n := range 1000 {
		select {
		case open := <-closed:
			longest = max(longest, open)
		case <-time.After(relaytest.Patience(20 * time.Second)):
			t.Fatalf("%d of 1 000 silent sockets are still open", 1000-n)
		}
	}
	figure(t, "login beside 1 000 silent sockets: %v; the last of them was closed after %v", took.Round(time.Millisecond), longest.Round(10*time.Millisecond))
	if longest > bound(10*time.Second) {
		t.Errorf("a silent socket was open for %v", longest)
	}
}

// listening returns the sockets on which a process accepts connections.
func listening(t *testing.T, pid int) (list []string) {
	t.Helper()
	mine := map[string]bool{}
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		to, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, fd.Name()))
		if inode, ok := strings.CutPrefix(to, "socket:["); ok {
			mine[strings.TrimSuffix(inode, "]")] = true
		}
	}
	for file, state := range map[string]struct {
		column int
		value  string
		inode  int
	}{"tcp": {3, "0A", 9}, "tcp6": {3, "0A", 9}, "udp": {3, "07", 9}, "udp6": {3, "07", 9}, "unix": {3, "00010000", 6}} {
		f, err := os.Open(fmt.Sprintf("/proc/%d/net/%s", pid, file))
		if err != nil {
			continue
		}
		for lines := bufio.NewScanner(f); lines.Scan(); {
			words := strings.Fields(lines.Text())
			if len(words) > state.inode && words[state.column] == state.value && mine[words[state.inode]] {
				list = append(list, file+" "+words[1])
			}
		}
		f.Close()
	}
	slices.Sort(list)
	return list
}

// TestSecuritySSHOpensNothing: for each kind of forward and channel that OpenSSH requests, the server opens
// no further listener and no outgoing connection.
func TestSecuritySSHOpensNothing(t *testing.T) {
	t.Parallel()
	r := startRelay(t, "")
	knocked := make(chan struct{}, 16)
	prey, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer prey.Close()
	go func() {
		for {
			c, err := prey.Accept()
			if err != nil {
				return
			}
			knocked <- struct{}{}
			c.Close()
		}
	}()
	before := listening(t, r.process.get().Cmd.Process.Pid)
	if len(before) != 3 {
		t.Errorf("listens on %v at first", before)
	}
	r.alias("walls")
	if status, body, _ := r.call("walls", "/queued", "x"); status != 202 {
		t.Fatalf("answered %d %s", status, body)
	}
	to, here, never := prey.Addr().String(), filepath.Join(relaytest.SocketDir(t), "l"), filepath.Join(r.dir, "never.sock")
	// Each client must be alive while the sockets of the server are listed, and its requests must have been
	// answered. A followed list prints the stored event, and the client's log shows the answer to a forward.
	follow := []string{"events walls -n 1 -f"}
	forward := regexp.MustCompile(`remote forward (success|failure)|forwarding failed`)
	for name, c := range map[string]struct {
		options, rest []string
		forwards      int // number of answers to wait for
	}{
		"-L":             {[]string{"-o", "ExitOnForwardFailure=yes", "-L", here + ":" + to}, follow, 0},
		"-w":             {[]string{"-w", "any"}, follow, 0},
		"-X":             {[]string{"-X"}, follow, 0},
		"-A":             {[]string{"-A"}, follow, 0},
		"SetEnv":         {[]string{"-o", "SetEnv=PATH=/evil"}, follow, 0},
		"-R unix":        {[]string{"-N", "-R", never + ":" + to}, nil, 1},
		"-R any":         {[]string{"-N", "-R", "0.0.0.0:18080:" + to}, nil, 1},
		"-R alias":       {[]string{"-N", "-R", "walls:18081:" + to}, nil, 1},
		"-R zero":        {[]string{"-N", "-R", "walls:0:" + to}, nil, 1},
		"-R dynamic":     {[]string{"-N", "-R", "18082"}, nil, 1},
		"-R many, ports": {[]string{"-N", "-R", "walls:22:" + to, "-R", "walls:443:" + to, "-R", "walls:65535:" + to}, nil, 3},
	} {
		cmd := exec.Command("ssh", r.sshLine(r.key, "admin", append([]string{"-v"}, c.options...), c.rest...)...)
		cmd.Env = append(r.env(), "DISPLAY=:9")
		client := relaytest.StartSeparate(t, cmd)
		r.waitFor(20*time.Second, name+" to be answered", func() bool {
			ended := client.HasEnded() // a client without a forward is disconnected after 5 s, but it has its answer by then
			answers := len(forward.FindAllString(client.Err.String(), -1))
			isAnswered := c.forwards > 0 && answers >= c.forwards || c.forwards == 0 && strings.Contains(client.Out.String(), "evt_")
			if ended && !isAnswered {
				t.Fatalf("%s: exit %d: %s", name, client.Cmd.ProcessState.ExitCode(), client.Err)
			}
			return isAnswered
		})
		if name == "-L" {
			c, err := net.Dial("unix", here)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, c); err != nil { // the copy ends when the channel is refused
				t.Log(err)
			}
			c.Close()
		}
		if during := listening(t, r.process.get().Cmd.Process.Pid); !slices.Equal(before, during) {
			t.Errorf("%s: listened on %v, beside that client on %v", name, before, during)
		}
		client.Kill()
	}
	for name, args := range map[string][]string{
		"-W":   r.sshLine(r.key, "admin", []string{"-W", to}),
		"sftp": r.sshLine(r.key, "admin", []string{"-s"}, "sftp"),
	} {
		exit, said := r.try(nil, "ssh", args...)
		if exit == 0 || name == "-W" && !strings.Contains(said, "administratively prohibited") {
			t.Errorf("%s: exit %d: %s", name, exit, said)
		}
	}
	tunnel := r.tunnel("walls", to)
	if after := listening(t, r.process.get().Cmd.Process.Pid); !slices.Equal(before, after) {
		t.Errorf("listened on %v, with a tunnel on %v", before, after)
	}
	tunnel.Kill()
	if _, err := os.Stat(never); err == nil {
		t.Error("a socket was made in the file system")
	}
	select {
	case <-knocked:
		t.Error("somebody was connected to")
	default:
	}
}

// TestSecuritySSHEnrolment: an unknown key is approved on the page that its link opens, after one wrong code,
// and can then log in. Link and code are not in the log.
func TestSecuritySSHEnrolment(t *testing.T) {
	t.Parallel()
	r := startRelay(t, "")
	key := filepath.Join(r.dir, "laptop")
	relaytest.WriteKey(t, key)
	browser, _ := r.browser("admin")
	link, code := regexp.MustCompile(`http://\S+/link/[a-z0-9]+`), regexp.MustCompile(`(?m)^Code: (\S{4}-\S{4})\r?$`)

	cmd := exec.Command("ssh", r.sshLine(key, "link", nil)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Env = r.env()
	stranger := relaytest.Start(t, cmd)
	said := stranger.Out
	r.waitFor(15*time.Second, "link and code", func() bool {
		return link.MatchString(said.String()) && code.MatchString(said.String())
	})
	page, right := link.FindString(said.String()), code.FindStringSubmatch(said.String())[1]
	wrong := "AAAA-AAAA"
	if right == wrong {
		wrong = "BBBB-BBBB"
	}
	res, err := browser.PostForm(r.local(page), url.Values{"code": {wrong}})
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if exit, _ := r.try(nil, "ssh", r.sshLine(key, "admin", nil, "whoami")...); exit == 0 {
		t.Error("a wrong code let the key in")
	}
	if res, err = browser.PostForm(r.local(page), url.Values{"code": {right}}); err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if exit := stranger.Code(t, 15*time.Second); exit != 0 || !strings.Contains(said.String(), "this key now belongs to admin") || !strings.Contains(said.String(), "next: ssh -N -R ALIAS:80") {
		t.Errorf("after the approval (%s): exit %d: %s", res.Status, exit, said)
	}
	if exit, out := r.try(nil, "ssh", r.sshLine(key, "admin", []string{"-o", "LogLevel=ERROR"}, "whoami")...); exit != 0 || !strings.HasPrefix(out, "admin") {
		t.Errorf("exit %d: %s", exit, out)
	}
	if secret := strings.TrimPrefix(page, page[:strings.LastIndex(page, "/")+1]); strings.Contains(r.log.String(), secret) || strings.Contains(r.log.String(), right) {
		t.Error("link or code stand in the log")
	}
}
