package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"relay/cli"
	"relay/relaytest"
)

// beside are the commands that may run with the settings of another store: they start a server, ask
// one by its address, only print settings, or copy the named file.
var beside = []string{"serve", "healthcheck", "config", "migrate-store"}

// storeCommands returns a call of each command that works on a store.
func storeCommands(cmd *cobra.Command) (calls [][]string) {
	for _, sub := range cmd.Commands() {
		calls = append(calls, storeCommands(sub)...)
	}
	if cmd.Flags().Lookup("data-dir") == nil || slices.Contains(beside, cmd.Name()) {
		return calls
	}
	call := strings.Fields(cmd.CommandPath())[1:]
	words := strings.Fields(cmd.Use)[1:]
	for i, word := range words {
		switch {
		case i > 0 && words[i-1] == "--user":
			call = append(call, "--user", "name")
		case i > 0 && words[i-1] == "--provider":
			call = append(call, "--provider", "stripe", "--generate")
		case strings.Contains(word, "="):
			call = append(call, "autoDeliver=on")
		case !strings.HasPrefix(word, "[") && !strings.HasPrefix(word, "-"):
			call = append(call, "name")
		}
	}
	return append(calls, call)
}

// TestNoCommandWorksOnAnotherStore: every command that works on a store refuses one that the server of
// the data dir does not use, SQLite or Postgres.
func TestNoCommandWorksOnAnotherStore(t *testing.T) {
	t.Parallel()
	old := t.TempDir()
	h := newTestServer(t, map[string]string{"data-dir": old}) // the days of SQLite
	if err := h.app.stopOnce(); err != nil {
		t.Fatal(err)
	}
	url := postgresFlags(t)["database-url"]
	calls := storeCommands((&program{}).rootCommand())
	if len(calls) < 20 {
		t.Fatalf("only %d commands work on a store: %v", len(calls), calls)
	}
	try := func(missing, named string, flags ...string) {
		t.Helper()
		for _, call := range calls {
			var out, errs relaytest.Buffer
			code := run(t.Context(), append(append(slices.Clone(call), "--data-dir", old), flags...), env(), &out, &errs)
			all := out.String() + errs.String()
			if code != cli.ExitFailure || !strings.Contains(all, "sqlite "+filepath.Join(old, databaseFile)) || !strings.Contains(all, named) || !strings.Contains(all, missing) {
				t.Errorf("relayd %s: exit %d: %s", strings.Join(call, " "), code, all)
			}
		}
	}
	place := databasePlace(url)
	try("leave out --database-url", "postgres "+place, "--database-url", url)

	// Now the server uses Postgres, by a setting that only its unit has.
	credentials := t.TempDir()
	if err := os.WriteFile(filepath.Join(credentials, "database-url"), []byte(url+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var out, errs relaytest.Buffer
	ended := make(chan int)
	go func() {
		ended <- run(ctx, []string{
			"serve", "--data-dir", old, "--http-addr", "127.0.0.1:0", "--ssh-addr", "127.0.0.1:0", "--admin-addr", "off",
		}, env("CREDENTIALS_DIRECTORY", credentials), &out, &errs)
	}()
	relaytest.Until(t, 20*time.Second, "the server", func() bool { place, _ := servedPlace(old); return place.Engine == "postgres" })
	try("RELAY_DATABASE_URL_FILE", "postgres "+place)
	text, err := os.ReadFile(filepath.Join(old, siteFileName))
	var file siteFile
	if err != nil || json.Unmarshal(text, &file) != nil || strings.Contains(string(text), "password") {
		t.Errorf("%v: %s", err, text)
	}
	var lines, faults relaytest.Buffer
	if code := run(t.Context(), []string{"user", "list", "--data-dir", old, "--database-url", url}, env(), &lines, &faults); code != cli.ExitOK {
		t.Errorf("with the server's own address: exit %d: %s", code, faults.String())
	}
	if code := run(t.Context(), []string{"doctor", "--data-dir", old, "--database-url", url}, env(), &lines, &faults); !strings.Contains(lines.String(), "unused store") {
		t.Errorf("doctor does not tell of the unused file: exit %d: %s", code, lines.String())
	}
	stop()
	if code := <-ended; code != cli.ExitOK || !strings.Contains(errs.String(), "a file of sqlite lies in the data dir and is not used") {
		t.Errorf("exit %d: %s", code, errs.String())
	}
}

// TestCredentialsOfTheService: with the settings of the packaged service, root reads its secrets from
// the same place as systemd; other settings get nothing from there.
func TestCredentialsOfTheService(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const url = "postgres://relay@db.test/relay"
	if err := os.WriteFile(filepath.Join(dir, "relayd.database-url"), []byte(url), 0o600); err != nil {
		t.Fatal(err)
	}
	system := write(t, "relayd.yaml", "data-dir: "+dir+"\n")
	other := write(t, "other.yaml", "data-dir: "+dir+"\n")
	stores := []string{filepath.Join(dir, "none.%s"), filepath.Join(dir, "relayd.%s")}
	for name, tc := range map[string]struct {
		src  sources
		want string
	}{
		"the service's own":     {sources{getenv: env(), system: system, credentials: stores}, url},
		"given by name":         {sources{getenv: env(), file: system, system: system, credentials: stores}, url},
		"another file":          {sources{getenv: env(), file: other, system: system, credentials: stores}, ""},
		"a data dir":            {sources{getenv: env("RELAY_DATA_DIR", dir), system: system, credentials: stores}, ""},
		"inside a unit":         {sources{getenv: env("CREDENTIALS_DIRECTORY", t.TempDir()), system: system, credentials: stores}, ""},
		"no credentials at all": {sources{getenv: env(), system: system}, ""},
	} {
		cfg, _, err := load(tc.src)
		if err != nil || cfg.DatabaseURL != tc.want {
			t.Errorf("%s: %q, %v; want %q", name, cfg.DatabaseURL, err, tc.want)
		}
	}
}

// TestDoctorOfAnotherServer: a relay that answers does not belong to a store that no server uses;
// doctor says so.
func TestDoctorOfAnotherServer(t *testing.T) {
	t.Parallel()
	h := newTestServer(t, nil)
	idle := newTestServer(t, nil)
	if err := idle.app.stopOnce(); err != nil {
		t.Fatal(err)
	}
	var out, errs relaytest.Buffer
	code := run(t.Context(), []string{
		"doctor", "--data-dir", idle.flags["data-dir"], "--http-addr", h.app.cfg.HTTPAddr, "--ssh-addr", h.app.cfg.SSHAddr, "--admin-addr", "off",
	}, env(), &out, &errs)
	if code != cli.ExitFailure || !strings.Contains(out.String(), errNotServed) {
		t.Errorf("exit %d:\n%s", code, out.String())
	}
	out, errs = relaytest.Buffer{}, relaytest.Buffer{}
	code = run(t.Context(), []string{
		"doctor", "--data-dir", h.flags["data-dir"], "--http-addr", h.app.cfg.HTTPAddr, "--ssh-addr", h.app.cfg.SSHAddr, "--admin-addr", "off",
	}, env(), &out, &errs)
	if strings.Contains(out.String(), errNotServed) {
		t.Errorf("exit %d:\n%s", code, out.String())
	}
}
