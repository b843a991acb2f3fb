package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// builtRelayd is where the server is built for the scripts; TestMain removes it.
func builtRelayd() string {
	return filepath.Join(os.TempDir(), "relay-scripts-"+strconv.Itoa(os.Getpid()), "relayd")
}

// buildRelayd builds the server once: the scripts talk to a real one.
var buildRelayd = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "build", "-o", builtRelayd(), "relay/cmd/relayd").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build relayd: %w: %s", err, out)
	}
	return builtRelayd(), nil
})

// server is one relayd of a script.
type server struct {
	cmd  *exec.Cmd
	out  *output
	done chan struct{}
}

// output collects what a process says.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// poll asks until something is so, or patience ends.
func poll(so func() bool) bool {
	end := time.Now().Add(40 * time.Second)
	for !so() {
		if time.Now().After(end) {
			return false
		}
		time.Sleep(20 * time.Millisecond)
	}
	return true
}

type servers struct {
	mu   sync.Mutex
	list map[string]*server // by data folder
}

var (
	listening = regexp.MustCompile(`msg=listening http=(\S+) https="" ssh=(\S+)`)
	adminLine = regexp.MustCompile(`(?m)^  admin +(\S+)$`)
)

// serve [FLAG…] starts relayd in the folder data of the script, on free ports or on
// those it had before, and sets HTTP, SSH, BASE, ADMIN, KEY, TOKEN and RELAYD.
func (s *servers) serve(ts *testscript.TestScript, neg bool, args []string) {
	program, err := buildRelayd()
	ts.Check(err)
	dir := ts.MkAbs("data")
	addr := func(name string) string {
		if old := ts.Getenv(name); old != "" {
			return "127.0.0.1:" + old
		}
		return "127.0.0.1:0"
	}
	all := append([]string{"serve", "--data-dir", dir, "--admin-addr", "off", "--http-addr", addr("HTTP"), "--ssh-addr", addr("SSH")}, args...)
	srv := &server{cmd: exec.Command(program, all...), out: &output{}, done: make(chan struct{})}
	home := ts.MkAbs("server-home")
	ts.Check(os.MkdirAll(home, 0o700))
	srv.cmd.Env = append(os.Environ(), "HOME="+home)
	srv.cmd.Stdout, srv.cmd.Stderr = srv.out, srv.out
	ts.Check(srv.cmd.Start())
	go func() { _ = srv.cmd.Wait(); close(srv.done) }()
	ts.Defer(srv.kill)
	s.mu.Lock()
	s.list[dir] = srv
	s.mu.Unlock()
	if !poll(func() bool { return strings.Contains(srv.out.String(), "export RELAY_TOKEN") }) {
		ts.Fatalf("relayd never served:\n%s", srv.out)
	}
	at := listening.FindStringSubmatch(srv.out.String())
	_, httpPort, _ := net.SplitHostPort(at[1])
	_, sshPort, _ := net.SplitHostPort(at[2])
	admin := adminLine.FindStringSubmatch(srv.out.String())[1]
	token, err := exec.Command(program, "token", "add", "--user", admin, "--data-dir", dir).Output()
	ts.Check(err)
	for name, value := range map[string]string{
		"HTTP": httpPort, "SSH": sshPort, "BASE": "http://localhost:" + httpPort, "ADMIN": admin, "RELAYD": program,
		"KEY": filepath.Join(dir, "id_ed25519"), "TOKEN": strings.TrimSpace(string(token)),
	} {
		ts.Setenv(name, value)
	}
}

func (srv *server) kill() {
	_ = srv.cmd.Process.Kill()
	<-srv.done
}

// stop ends the relayd of the script in order.
func (s *servers) stop(ts *testscript.TestScript, _ bool, _ []string) {
	s.mu.Lock()
	srv := s.list[ts.MkAbs("data")]
	s.mu.Unlock()
	_ = srv.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-srv.done:
	case <-time.After(30 * time.Second):
		ts.Fatalf("relayd did not stop:\n%s", srv.out)
	}
}

// await FILE REGEXP [NAME…] waits until the file matches, and puts the groups into
// the environment.
func await(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: await FILE REGEXP [NAME…]")
	}
	re, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	var last []byte
	found := poll(func() bool {
		last, _ = os.ReadFile(ts.MkAbs(args[0]))
		m := re.FindSubmatch(last)
		for i := range m {
			if i > 0 && i+1 < len(args) {
				ts.Setenv(args[i+1], string(m[i]))
			}
		}
		return m != nil
	})
	if !found {
		ts.Fatalf("%s never matched %s; it holds:\n%s", args[0], args[1], last)
	}
}

// approve LINK CODE signs in to the dashboard as the admin, and types the code into
// the page behind the link.
func approve(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: approve LINK CODE")
	}
	link, err := exec.Command(ts.Getenv("RELAYD"), "login-link", "--user", ts.Getenv("ADMIN"), "--data-dir", ts.MkAbs("data")).Output()
	ts.Check(err)
	jar, err := cookiejar.New(nil)
	ts.Check(err)
	browser := &http.Client{Jar: jar, Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	post(ts, browser, strings.TrimSpace(string(link)), nil)
	body := post(ts, browser, args[0], url.Values{"code": {args[1]}})
	if strings.Contains(body, `name="code"`) {
		ts.Fatalf("the code was not taken:\n%s", body)
	}
}

func post(ts *testscript.TestScript, browser *http.Client, to string, form url.Values) string {
	req, err := http.NewRequest(http.MethodPost, to, strings.NewReader(form.Encode()))
	ts.Check(err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	resp, err := browser.Do(req)
	ts.Check(err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	ts.Check(err)
	if resp.StatusCode != http.StatusOK {
		ts.Fatalf("POST %s: %s\n%s", req.URL.Path, resp.Status, text)
	}
	return string(text)
}

// removeBuilt takes what was built for the scripts away.
func removeBuilt() { _ = os.RemoveAll(filepath.Dir(builtRelayd())) }

// needTool fails where a program that the scripts call is missing.
func needTool(t *testing.T, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Fatalf("%s is missing; make setup installs it", name)
	}
}
