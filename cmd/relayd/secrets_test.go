package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/relaytest"
)

const (
	dbPassword  = "geheim-7c1e"
	sslPassword = "tief-93ab"
)

// No output of a relayd holds the password of its database: not the settings, not a
// check, not an error about a database that cannot be reached, refuses, or is written
// wrongly.
func TestNoCommandTellsTheDatabasePassword(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	good := "postgres://relay:" + dbPassword + "@127.0.0.1:9/relay?sslmode=disable&sslpassword=" + sslPassword
	file := write(t, "relay.yaml", "database-url: "+good+"\nmax-aliases: viele\n")
	secret := write(t, "secret", good)
	for _, bad := range []string{
		good,
		"postgres://relay:" + dbPassword + "@127.0.0.1:9/relay?sslmode=wrong&connect_timeout=1",
		"postgres://relay:" + dbPassword + "@127.0.0.1:9/relay?no_such=1&sslmode=disable",
		"postgres://relay:" + dbPassword + "@127.0.0.1:port/relay",
		"postgres://relay:" + dbPassword + "%zz@127.0.0.1:9/relay",
		"mysql://relay:" + dbPassword + "@127.0.0.1:9/relay",
		"host=127.0.0.1 port=9 password=" + dbPassword,
	} {
		for _, args := range [][]string{
			{"config"},
			{"config", "--json"},
			{"doctor"},
			{"doctor", "--json"},
			{"serve", "--http-addr", "127.0.0.1:0", "--ssh-addr", "127.0.0.1:0", "--admin-addr", "off", "--log-level", "debug"},
			{"migrate"},
			{"migrate", "status"},
			{"user", "list"},
			{"healthcheck", "--http-addr", "127.0.0.1:9"},
		} {
			for _, how := range [][]string{{"--database-url", bad}, {"--database-direct-url", bad, "--database-url", good}} {
				checkSecret(t, nil, append(append(args, "--data-dir", dir), how...)...)
			}
			checkSecret(t, []string{"RELAY_DATABASE_URL", bad}, append(args, "--data-dir", dir)...)
		}
	}
	checkSecret(t, nil, "config", "--config", file)
	checkSecret(t, []string{"RELAY_DATABASE_URL_FILE", secret}, "config", "--data-dir", dir)
}

// checkSecret runs a command and looks for the passwords in its output.
func checkSecret(t *testing.T, environment []string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var out, errs relaytest.Buffer
	code := run(ctx, args, env(environment...), &out, &errs)
	for _, text := range []string{out.String(), errs.String()} {
		if strings.Contains(text, dbPassword) || strings.Contains(text, sslPassword) {
			t.Errorf("relayd %s (exit %d) tells the password: %s", args[0], code, text)
		}
	}
}

// Neither does anything that a running server answers or logs, with profiles on.
func TestNoAnswerTellsTheDatabasePassword(t *testing.T) {
	t.Parallel()
	flags := postgresFlags(t)
	u, err := url.Parse(flags["database-url"])
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("password", dbPassword) // not asked for by this server; lib/pq keeps it all the same
	u.RawQuery = q.Encode()
	flags["database-url"], flags["pprof"], flags["log-level"] = u.String(), "on", "debug"
	h := newTestServer(t, flags)
	for _, path := range []string{
		"/metrics", "/debug/stats", "/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/goroutine?debug=2",
		"/debug/pprof/heap?debug=1", "/debug/pprof/symbol", "/debug/pprof/allocs", "/debug/pprof/profile?seconds=1",
	} {
		status, body := get(t, h.app.cfg.AdminAddr, path)
		if want := path != "/debug/pprof/cmdline"; (status == http.StatusOK) != want {
			t.Errorf("%s answered %d", path, status)
		}
		if strings.Contains(body, dbPassword) {
			t.Errorf("%s tells the password", path)
		}
	}
	for _, path := range []string{"/readyz", "/api/v1/me", "/api/v1/openapi.json", "/login"} {
		res, err := h.client().Get(h.app.site.URL(path))
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if strings.Contains(string(body), dbPassword) {
			t.Errorf("%s tells the password", path)
		}
	}
	if _, err := h.app.store.Accounts(t.Context(), relay.System()); err != nil {
		t.Fatal(err)
	}
	if err := h.app.stopOnce(); err != nil {
		t.Error(err)
	}
	if strings.Contains(h.log.String(), dbPassword) || strings.Contains(h.start.String(), dbPassword) {
		t.Errorf("the log or the start tells the password: %s\n%s", h.start, h.log)
	}
}

// The profiles are not there unless they were switched on.
func TestProfilesAreOffByDefault(t *testing.T) {
	t.Parallel()
	h := newTestServer(t, nil)
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/heap"} {
		if status, _ := get(t, h.app.cfg.AdminAddr, path); status != http.StatusNotFound {
			t.Errorf("%s answered %d", path, status)
		}
	}
	if status, _ := get(t, h.app.cfg.AdminAddr, "/debug/stats"); status != http.StatusOK {
		t.Errorf("/debug/stats answered %d", status)
	}
}

// A live server with profiles on answers nothing that holds the password of its database,
// not even if the password is one of its arguments; if it is not, the list of processes
// does not show it either.
func TestLiveServerTellsNoPassword(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(postgresFlags(t)["database-url"])
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("password", dbPassword)
	u.RawQuery = q.Encode()
	file := write(t, "database-url", u.String())
	for name, c := range map[string]struct {
		args, env []string
		inArgs    bool
	}{
		"flag":        {[]string{"--database-url", u.String()}, nil, true},
		"environment": {nil, []string{"RELAY_DATABASE_URL=" + u.String()}, false},
		"file":        {nil, []string{"RELAY_DATABASE_URL_FILE=" + file}, false},
	} {
		t.Run(name, func(t *testing.T) { // one after the other: they share a database
			admin, dir := relaytest.FreeAddr(t), t.TempDir()
			cmd := exec.Command("relayd", append([]string{
				"serve", "--data-dir", dir, "--http-addr", "127.0.0.1:0", "--ssh-addr", "127.0.0.1:0",
				"--admin-addr", admin, "--pprof", "on", "--log-level", "debug",
			}, c.args...)...)
			cmd.Env = append(append(os.Environ(), "HOME="+dir), c.env...)
			p := relaytest.Start(t, cmd)
			relaytest.Until(t, 20*time.Second, "the server", func() bool {
				return p.HasEnded() || strings.Contains(p.Out.String(), "msg=listening")
			})
			for _, path := range []string{
				"/metrics", "/debug/stats", "/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/goroutine?debug=2",
				"/debug/pprof/heap?debug=1", "/debug/pprof/threadcreate?debug=1", "/debug/pprof/symbol",
			} {
				if _, body := get(t, admin, path); strings.Contains(body, dbPassword) {
					t.Errorf("%s tells the password", path)
				}
			}
			if runtime.GOOS == "linux" {
				args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", cmd.Process.Pid)) // what ps shows
				if err != nil {
					t.Fatal(err)
				}
				if shown := strings.Contains(string(args), dbPassword); shown != c.inArgs {
					t.Errorf("the list of processes shows the password: %v", shown)
				}
			}
			p.Kill()
			<-p.Ended()
			if strings.Contains(p.Out.String(), dbPassword) {
				t.Error("the output tells the password")
			}
		})
	}
}
