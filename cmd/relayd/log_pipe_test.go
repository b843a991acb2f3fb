//go:build unix

package main

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"relay/cli"
	"relay/relaytest"
)

// place is an output for the log of a relayd, with a function that breaks it.
type place struct {
	args []string
	out  *os.File // stdout; nil = collected
	errs *os.File // stderr; nil = collected
	give func()   // takes the reader away; nil = the output is broken from the start
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close(); _ = w.Close() })
	return r, w
}

func open(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// TestServerOutlivesItsLog: if the reader of the log, the access log or the greeting goes away or stops
// reading, relayd still answers requests and stops in time. /readyz and the metrics report it.
func TestServerOutlivesItsLog(t *testing.T) {
	t.Parallel()
	access := []string{"--access-log", "stdout"}
	places := map[string]func(t *testing.T) place{
		"stderr gone": func(t *testing.T) place {
			r, w := pipe(t)
			return place{errs: w, give: func() { _ = r.Close() }}
		},
		"stdout gone": func(t *testing.T) place {
			r, w := pipe(t)
			return place{args: access, out: w, give: func() { _ = r.Close() }}
		},
		"both gone": func(t *testing.T) place { // as with 2>&1 | tee
			r, w := pipe(t)
			return place{args: access, out: w, errs: w, give: func() { _ = r.Close() }}
		},
		"gone from the start": func(t *testing.T) place {
			r, w := pipe(t)
			_ = r.Close()
			return place{args: access, out: w, errs: w}
		},
		"stderr unread": func(t *testing.T) place {
			_, w := pipe(t)
			return place{errs: w}
		},
		"stdout unread": func(t *testing.T) place {
			_, w := pipe(t)
			return place{args: access, out: w}
		},
		"stopped terminal": func(t *testing.T) place {
			screen, terminal, err := pty.Open()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = screen.Close(); _ = terminal.Close() })
			return place{args: access, out: terminal, errs: terminal} // as after Ctrl+S: the terminal takes no output
		},
		"access log, a named pipe without a reader": func(t *testing.T) place {
			path := filepath.Join(t.TempDir(), "access")
			if err := syscall.Mkfifo(path, 0o600); err != nil {
				t.Fatal(err)
			}
			return place{args: []string{"--access-log", path}}
		},
	}
	if _, err := os.Stat("/dev/full"); err == nil {
		places["stderr on a full disk"] = func(t *testing.T) place { return place{errs: open(t, "/dev/full")} }
		places["access log on a full disk"] = func(*testing.T) place { return place{args: []string{"--access-log", "/dev/full"}} }
	}
	for name, of := range places {
		for _, ignored := range []bool{false, true} { // SIGPIPE is ignored under systemd
			t.Run(fmt.Sprintf("%s, SIGPIPE ignored %v", name, ignored), func(t *testing.T) {
				if ignored && !strings.Contains(name, "gone") {
					t.Skip("there is no SIGPIPE")
				}
				t.Parallel()
				testOutlives(t, of(t), ignored)
			})
		}
	}
}

func testOutlives(t *testing.T, at place, ignored bool) {
	dir, web, admin := t.TempDir(), relaytest.FreeAddr(t), relaytest.FreeAddr(t)
	program := []string{needTool(t, "relayd")}
	if ignored {
		program = []string{"sh", "-c", `trap "" PIPE; exec "$@"`, "sh", program[0]}
	}
	args := append(program, "serve", "--data-dir", dir, "--http-addr", web, "--ssh-addr", "127.0.0.1:0",
		"--admin-addr", admin, "--log-level", "debug", "--drain", "1s")
	args = append(args, at.args...)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "HOME="+dir, "GORACE="+hurry)
	if at.out != nil {
		cmd.Stdout = at.out
	}
	if at.errs != nil {
		cmd.Stderr = at.errs
	}
	p := relaytest.Start(t, cmd)
	relaytest.Until(t, 20*time.Second, "the server", func() bool {
		res, err := http.Get("http://" + web + "/readyz")
		if err == nil {
			_ = res.Body.Close()
		}
		return p.HasEnded() || err == nil && res.StatusCode == http.StatusOK
	})
	if at.give != nil {
		at.give()
	}
	client := &http.Client{Timeout: time.Minute}
	blocked := func() bool {
		for range 100 { // each request makes a line in the log and in the access log
			req, err := http.NewRequest(http.MethodGet, "http://"+web+"/hook", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Host = "nobody.localhost"
			res, err := client.Do(req)
			if err != nil {
				t.Fatalf("a request is not answered: %v", err)
			}
			_ = res.Body.Close()
		}
		_, body := get(t, web, "/readyz")
		return strings.Contains(body, `"log"`)
	}
	relaytest.Until(t, 30*time.Second, "/readyz to tell of the log", blocked)
	if status, body := get(t, web, "/readyz"); status != http.StatusOK {
		t.Errorf("/readyz answers %d %s", status, body)
	}
	_, metrics := get(t, admin, "/metrics")
	if !regexp.MustCompile(`relay_(access_)?log_(dropped_total|blocked)({[^}]*})? [1-9]`).MatchString(metrics) {
		t.Error("no metric tells of the log")
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := p.Code(t, 6*time.Second); code != cli.ExitOK {
		t.Errorf("exit %d", code)
	}
}
