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
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"relay/relaytest"
)

// builtIn returns the folder with both programs, or "" if the build failed. The programs have no race
// detector, because with it many short runs would take minutes.
func builtIn() string {
	dir, _ := relaytest.Build()
	return dir
}

// built returns the folder with both programs.
func built(t *testing.T) string {
	t.Helper()
	return relaytest.Programs(t)
}

func relayProgram() string  { return filepath.Join(builtIn(), "relay") }
func relaydProgram() string { return filepath.Join(builtIn(), "relayd") }

// server is a relayd that a script has started.
type server struct {
	cmd  *exec.Cmd
	out  *relaytest.Buffer
	done chan struct{}
}

// testTimeout is far longer than any step of these tests takes, even on a busy machine.
const testTimeout = 2 * time.Minute

// poll calls so until it returns true. After a quarter of testTimeout, it gives up and returns false.
func poll(so func() bool) bool { return relaytest.Poll(testTimeout/4, so) }

type servers struct {
	mu   sync.Mutex
	list map[string]*server // the servers, by data folder
}

var (
	listening = regexp.MustCompile(`msg=listening http=(\S+) https="" ssh=(\S+)`)
	adminLine = regexp.MustCompile(`(?m)^  admin +(\S+)$`)
)

// serve [FLAG…] starts relayd in the folder data of the script, on free ports or on its former ports, and
// sets HTTP, SSH, BASE, ADMIN, KEY, TOKEN and RELAYD.
func (s *servers) serve(ts *testscript.TestScript, neg bool, args []string) {
	program, dir := relaydProgram(), ts.MkAbs("data")
	addr := func(name string) string {
		if old := ts.Getenv(name); old != "" {
			return "127.0.0.1:" + old
		}
		free, release, err := relaytest.ReserveAddr() // the port stays reserved, so a later start gets it again
		ts.Check(err)
		ts.Defer(release)
		return free
	}
	all := append([]string{"serve", "--data-dir", dir, "--admin-addr", "off", "--http-addr", addr("HTTP"), "--ssh-addr", addr("SSH")}, args...)
	home := ts.MkAbs("server-home")
	ts.Check(os.MkdirAll(home, 0o700))
	srv, err := startServer(home, all...)
	ts.Check(err)
	ts.Defer(srv.kill)
	s.mu.Lock()
	s.list[dir] = srv
	s.mu.Unlock()
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

// startServer starts relayd and waits until it serves.
func startServer(home string, args ...string) (*server, error) {
	srv := &server{cmd: exec.Command(relaydProgram(), args...), out: &relaytest.Buffer{}, done: make(chan struct{})}
	srv.cmd.Env = append(os.Environ(), "HOME="+home)
	srv.cmd.Stdout, srv.cmd.Stderr = srv.out, srv.out
	if err := srv.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { _ = srv.cmd.Wait(); close(srv.done) }()
	serves := poll(func() bool { return srv.ended() || strings.Contains(srv.out.String(), "export RELAY_TOKEN") })
	if !serves || srv.ended() {
		srv.kill()
		return nil, fmt.Errorf("relayd never served:\n%s", srv.out)
	}
	return srv, nil
}

func (srv *server) ended() bool {
	select {
	case <-srv.done:
		return true
	default:
		return false
	}
}

func (srv *server) kill() {
	_ = srv.cmd.Process.Kill()
	<-srv.done
}

// stop stops the relayd of the script gracefully.
func (s *servers) stop(ts *testscript.TestScript, _ bool, _ []string) {
	s.mu.Lock()
	srv := s.list[ts.MkAbs("data")]
	s.mu.Unlock()
	_ = srv.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-srv.done:
	case <-time.After(testTimeout):
		ts.Fatalf("relayd did not stop:\n%s", srv.out)
	}
}

// await FILE REGEXP [NAME…] waits until the lines of the file match, and stores the groups in the environment
// variables NAME.
func await(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: await FILE REGEXP [NAME…]")
	}
	re, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	var last []byte
	found := poll(func() bool {
		last, _ = os.ReadFile(ts.MkAbs(args[0]))
		m := re.FindSubmatch(last[:bytes.LastIndexByte(last, '\n')+1]) // the last line may be incomplete
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

// approve LINK CODE logs in to the dashboard as the admin, and submits the code on the page of the
// link.
func approve(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: approve LINK CODE")
	}
	link, err := exec.Command(ts.Getenv("RELAYD"), "login-link", "--user", ts.Getenv("ADMIN"), "--data-dir", ts.MkAbs("data")).Output()
	ts.Check(err)
	jar, err := cookiejar.New(nil)
	ts.Check(err)
	browser := &http.Client{Jar: jar, Timeout: testTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
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

// relayAt is a relayd process that tests share; each test uses its own aliases.
type relayAt struct{ http, ssh, key string }

// sharedRelay starts when the first test needs it.
type sharedRelay struct {
	once sync.Once
	dir  string
	srv  *server
	err  error
}

var shared sharedRelay

func useSharedRelay(t *testing.T) relayAt {
	t.Helper()
	built(t)
	shared.once.Do(func() { shared.err = shared.start() })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	at := listening.FindStringSubmatch(shared.srv.out.String())
	return relayAt{http: at[1], ssh: at[2], key: filepath.Join(shared.dir, "data", "id_ed25519")}
}

func (s *sharedRelay) start() (err error) {
	if s.dir, err = os.MkdirTemp("", "relay-shared-"); err != nil {
		return err
	}
	s.srv, err = startServer(s.dir, "serve", "--data-dir", filepath.Join(s.dir, "data"),
		"--admin-addr", "off", "--http-addr", "127.0.0.1:0", "--ssh-addr", "127.0.0.1:0")
	return err
}

func (s *sharedRelay) stop() {
	if s.srv != nil {
		s.srv.kill()
	}
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
}

// needTool fails the test if a program that the scripts call is not installed.
func needTool(t *testing.T, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Fatalf("%s is missing; make setup installs it", name)
	}
}
