package main

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"relay/cli"
	"relay/relaytest"
)

// TestSupportReport: the report has version, settings, checks, counts, metrics and log of the running
// server, and none of its secrets.
func TestSupportReport(t *testing.T) {
	t.Parallel()
	flags := postgresFlags(t)
	u, err := url.Parse(flags["database-url"])
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(u.User.Username(), dbPassword)
	flags["database-url"] = u.String()
	h := newTestServer(t, flags)
	h.app.log.Warn("a line with secrets", "url", u.String(), "token", h.token, "link", h.app.site.URL("/login/0123456789abcdefghij-_x"))
	file := filepath.Join(h.dir, "report.txt")
	args := []string{"support", file}
	for name, value := range h.flags {
		args = append(args, "--"+name, value)
	}
	args = append(args, "--http-addr", h.app.cfg.HTTPAddr, "--admin-addr", h.app.cfg.AdminAddr)
	var out, errs relaytest.Buffer
	if code := run(t.Context(), args, env("HOME", h.dir), &out, &errs); code != cli.ExitOK {
		t.Fatalf("exit %d: %s", code, &errs)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"relayd dev", "== settings\n", "--database-url", "== doctor\n", "alias domain", "== counts\n", `"goroutines":`,
		"relay_build_info{", "== log\n", "msg=serving", "a line with secrets",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in the report", want)
		}
	}
	for _, secret := range []string{dbPassword, h.token, "0123456789abcdefghij-_x"} {
		if strings.Contains(string(text), secret) {
			t.Errorf("the report holds the secret %s", secret)
		}
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if code := run(t.Context(), args, env("HOME", h.dir), &out, &errs); code != cli.ExitFailure {
		t.Errorf("a file that is there: exit %d", code)
	}
	if t.Failed() {
		t.Logf("%s", text)
	}
}

// TestLogIsForThisMachine: a request for the log gets 403 if its Host is not an address of this machine.
func TestLogIsForThisMachine(t *testing.T) {
	t.Parallel()
	h := newTestServer(t, nil)
	for host, want := range map[string]int{h.app.cfg.AdminAddr: http.StatusOK, "relay.example.com": http.StatusForbidden} {
		req, _ := http.NewRequest(http.MethodGet, "http://"+h.app.cfg.AdminAddr+"/debug/log", nil)
		req.Host = host
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("Host %s: %s", host, res.Status)
		}
	}
}

// TestRecentLines: the stored log is bounded, holds whole lines, and drops the oldest lines.
func TestRecentLines(t *testing.T) {
	t.Parallel()
	var r recentLines
	for i := range 10_000 {
		fmt.Fprintf(&r, "line %d %s\n", i, strings.Repeat("x", 100))
	}
	text := string(r.text())
	if len(text) > recentBytes || len(text) < recentBytes*9/10 {
		t.Errorf("%d bytes", len(text))
	}
	if !strings.HasPrefix(text, "line ") || !strings.Contains(text, "line 9999 ") {
		t.Errorf("it begins with %.20q", text)
	}
}

// TestToggleDebug: toggleDebug switches the log to debug and back.
func TestToggleDebug(t *testing.T) {
	t.Parallel()
	h := newTestServer(t, map[string]string{"log-level": "warn"})
	h.app.log.Debug("hidden")
	h.app.toggleDebug()
	h.app.log.Debug("shown")
	h.app.toggleDebug()
	h.app.log.Info("hidden again")
	if log := h.log.String(); strings.Contains(log, "hidden") || !strings.Contains(log, "msg=shown") {
		t.Errorf("the log: %s", log)
	}
}
