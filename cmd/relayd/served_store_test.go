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

	"relay"
	"relay/cli"
	"relay/relaytest"
)

// beside are the commands that may run with the settings of another store: they start a server, ask a server
// by its address, only print settings, or copy the named file.
var beside = []string{"serve", "healthcheck", "config", "migrate-store"}

// storeCommands returns, for each command below cmd that works on a store, the arguments of one call. If the
// command writes a file, the argument names a file in folder.
func storeCommands(cmd *cobra.Command, folder string) (calls [][]string) {
	for _, sub := range cmd.Commands() {
		calls = append(calls, storeCommands(sub, folder)...)
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
		case word == "FILE":
			call = append(call, filepath.Join(folder, cmd.Name()))
		case !strings.HasPrefix(word, "[") && !strings.HasPrefix(word, "-"):
			call = append(call, "name")
		}
	}
	return append(calls, call)
}

// TestNoCommandWorksOnAnotherStore: every command that works on a store refuses a store that the server of
// the data dir does not use. The test covers SQLite and Postgres, a running and a stopped server, and every
// source of settings.
func TestNoCommandWorksOnAnotherStore(t *testing.T) {
	t.Parallel()
	x := twoStores{t: t, dir: t.TempDir(), url: postgresFlags(t)["database-url"], calls: storeCommands((&program{}).rootCommand(), t.TempDir())}
	h := newTestServer(t, map[string]string{"data-dir": x.dir}) // the server once used SQLite
	if err := h.app.stopOnce(); err != nil {
		t.Fatal(err)
	}
	if len(x.calls) < 20 {
		t.Fatalf("only %d commands work on a store: %v", len(x.calls), x.calls)
	}
	x.refuse("leave out --database-url", "--database-url", x.url)

	// Now the server uses Postgres, with settings that the commands do not get.
	credentials := t.TempDir()
	if err := os.WriteFile(filepath.Join(credentials, "database-url"), []byte(x.url+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, way := range []settingsWay{
		{"a flag", []string{"--database-url", x.url}, env()},
		{"the environment", nil, env("RELAY_DATABASE_URL", x.url)},
		{"a file that the environment names", nil, env("RELAY_DATABASE_URL_FILE", write(t, "url", x.url))},
		{"a file of settings", []string{"--config", write(t, "relayd.yaml", "database-url: "+x.url+"\n")}, env()},
		{"a credential of the unit", nil, env("CREDENTIALS_DIRECTORY", credentials)},
	} {
		x.serveBy(way)
	}
	var lines, faults relaytest.Buffer
	if code := run(t.Context(), []string{"doctor", "--data-dir", x.dir, "--database-url", x.url}, env(), &lines, &faults); !strings.Contains(lines.String(), "unused store") {
		t.Errorf("doctor does not tell of the unused file: exit %d: %s", code, lines.String())
	}
}

// settingsWay is a way in which relayd gets the address of its database.
type settingsWay struct {
	name string
	args []string
	env  func(string) string
}

// twoStores are a data dir with a SQLite file, and a Postgres database, with the commands that could use the
// wrong one.
type twoStores struct {
	t        *testing.T
	dir, url string
	calls    [][]string
}

// refuse checks that every command refuses to work. The error must name both stores and the missing setting.
func (x twoStores) refuse(missing string, flags ...string) {
	x.t.Helper()
	for _, call := range x.calls {
		var out, errs relaytest.Buffer
		code := run(x.t.Context(), append(append(slices.Clone(call), "--data-dir", x.dir), flags...), env(), &out, &errs)
		all := out.String() + errs.String()
		if code != cli.ExitFailure || !strings.Contains(all, "sqlite "+filepath.Join(x.dir, databaseFile)) || !strings.Contains(all, "postgres "+databasePlace(x.url)) || !strings.Contains(all, missing) {
			x.t.Errorf("relayd %s: exit %d: %s", strings.Join(call, " "), code, all)
		}
	}
}

// serveBy runs a server on Postgres that gets its settings in the given way. It tries the commands while the
// server runs and after its end.
func (x twoStores) serveBy(way settingsWay) {
	t := x.t
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var out, errs relaytest.Buffer
	ended := make(chan int)
	path := filepath.Join(x.dir, siteFileName)
	_ = os.Remove(path) // removes the site.json of the former server
	go func() {
		ended <- run(ctx, append([]string{
			"serve", "--data-dir", x.dir, "--http-addr", "127.0.0.1:0", "--ssh-addr", "127.0.0.1:0", "--admin-addr", "off", "--drain-delay", "0s",
		}, way.args...), way.env, &out, &errs)
	}()
	relaytest.Until(t, 20*time.Second, "the server by "+way.name, func() bool { place, _ := servedPlace(x.dir); return place.Engine == "postgres" })
	x.refuse("RELAY_DATABASE_URL_FILE")
	text, err := os.ReadFile(path)
	var file siteFile
	if err != nil || json.Unmarshal(text, &file) != nil || strings.Contains(string(text), "password") {
		t.Errorf("%s: %v: %s", way.name, err, text)
	}
	for _, with := range []settingsWay{way, {"its address", []string{"--database-url", x.url}, env()}} {
		var lines, faults relaytest.Buffer
		if code := run(t.Context(), append([]string{"user", "list", "--data-dir", x.dir}, with.args...), with.env, &lines, &faults); code != cli.ExitOK {
			t.Errorf("%s, with %s: exit %d: %s", way.name, with.name, code, faults.String())
		}
	}
	stop()
	if code := <-ended; code != cli.ExitOK || !strings.Contains(errs.String(), "the data dir has a SQLite file that is not used") {
		t.Errorf("%s: exit %d: %s", way.name, code, errs.String())
	}
	x.refuse("RELAY_DATABASE_URL_FILE") // the commands also refuse without a running server
}

// TestDefaultStoreWithoutAServer: if no setting names the store of a command, and no server runs on the default
// store, the command prints a warning: the default store may be an old file of the user.
func TestDefaultStoreWithoutAServer(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	dir := filepath.Join(home, "relayd")
	h := newTestServer(t, map[string]string{"data-dir": dir})
	try := func(when string, told bool, args ...string) {
		t.Helper()
		var out, errs relaytest.Buffer
		code := run(t.Context(), args, env("XDG_DATA_HOME", home), &out, &errs)
		says := strings.Contains(errs.String(), "no server runs on sqlite "+filepath.Join(dir, databaseFile)) && strings.Contains(errs.String(), "--config or --database-url")
		if code != cli.ExitOK || says != told {
			t.Errorf("%s, %s: exit %d: %s", when, strings.Join(args, " "), code, errs.String())
		}
	}
	try("beside the server", false, "user", "add", "mallory")
	if err := h.app.stopOnce(); err != nil {
		t.Fatal(err)
	}
	try("with a named data dir", false, "user", "list", "--data-dir", dir)
	try("without a server", true, "user", "rm", "mallory")
}

// TestPlaceOfADatabase: two settings are compared as the driver reads them: with the variables of libpq, and
// with the schema.
func TestPlaceOfADatabase(t *testing.T) {
	for name, tc := range map[string]struct {
		server, command string
		vars            map[string]string // variables of the server
		same            bool
	}{
		"as it is":                         {"postgres://relay:a@db/relay", "postgres://relay:b@DB:5432/relay?sslmode=require", nil, true},
		"another database":                 {"postgres://relay@db/relay", "postgres://relay@db/staging", nil, false},
		"the database of the user":         {"postgres://relay@db", "postgres://relay@db/relay", nil, true},
		"another port":                     {"postgres://relay@db:6432/relay", "postgres://relay@db/relay", nil, false},
		"another schema":                   {"postgres://relay@db/relay?search_path=hooks", "postgres://relay@db/relay", nil, false},
		"another schema, as JDBC says it":  {"postgres://relay@db/relay?currentSchema=hooks", "postgres://relay@db/relay?search_path=other", nil, false},
		"another schema, by an option":     {"postgres://relay@db/relay?options=-csearch_path%3Dhooks", "postgres://relay@db/relay", nil, false},
		"another schema, by a long option": {"postgres://relay@db/relay", "postgres://relay@db/relay", map[string]string{"PGOPTIONS": "-c geqo=off --search-path=hooks"}, false},
		"one schema, named in two ways":    {"postgres://relay@db/relay?schema=hooks", "postgres://relay@db/relay?options=-c%20search_path%3Dhooks", nil, true},
		"the usual schema":                 {"postgres://relay@db/relay?schema=public", "postgres://relay@db/relay", nil, true},
		"a host of the environment":        {"postgres:///relay", "postgres:///relay", map[string]string{"PGHOST": "db"}, false},
		"a port of the environment":        {"postgres://db/relay", "postgres://db/relay", map[string]string{"PGPORT": "6432"}, false},
		"a database of the environment":    {"postgres://db", "postgres://db", map[string]string{"PGDATABASE": "hooks"}, false},
		"the same by the environment":      {"postgres://relay@/", "postgres://relay@db/hooks", map[string]string{"PGHOST": "db", "PGDATABASE": "hooks"}, true},
		"an address of the environment":    {"postgres://relay@db/relay", "postgres://relay@db/relay", map[string]string{"PGHOSTADDR": "192.0.2.7"}, false},
		"several hosts":                    {"postgres://relay@a,b/relay", "postgres://relay@a/relay", nil, false},
		"a socket":                         {"postgres:///relay?host=/run/PG", "postgres:///relay", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for key, value := range tc.vars {
				t.Setenv(key, value)
			}
			server := Config{DataDir: dir, DatabaseURL: tc.server, DatabaseDirectURL: tc.server}
			if err := saveSiteFile(server, relay.Site{}, nil); err != nil {
				t.Fatal(err)
			}
			for key := range tc.vars {
				if err := os.Unsetenv(key); err != nil { // the earlier t.Setenv restores the variable after the test
					t.Fatal(err)
				}
			}
			err := checkServedStore(Config{DataDir: dir, DatabaseURL: tc.command, DatabaseDirectURL: tc.command})
			if _, fix := hintOf(err); !tc.same && !strings.Contains(fix, "PGHOST") {
				t.Errorf("the hint does not name the variables: %s", fix)
			}
			if (err == nil) != tc.same {
				t.Errorf("server %s, command %s: %v", placeOf(server), placeOf(Config{DatabaseURL: tc.command, DatabaseDirectURL: tc.command}), err)
			}
		})
	}
}

// TestVariableThatTheDriverRefuses: if a variable of libpq has an invalid value, the error names this value.
func TestVariableThatTheDriverRefuses(t *testing.T) {
	dir := t.TempDir()
	if err := saveSiteFile(Config{DataDir: dir, DatabaseURL: "postgres://relay@db/relay", DatabaseDirectURL: "postgres://relay@db/relay"}, relay.Site{}, nil); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PGSSLMODE", "often")
	var out, errs relaytest.Buffer
	code := run(t.Context(), []string{"user", "list", "--data-dir", dir, "--database-url", "postgres://relay@db/relay"}, env(), &out, &errs)
	if code != cli.ExitFailure || !strings.Contains(errs.String(), `"often"`) {
		t.Errorf("exit %d: %s", code, errs.String())
	}
}

// TestServerTellsOfAnotherStore: a server that starts with another store than the last server of its data dir
// names both stores.
func TestServerTellsOfAnotherStore(t *testing.T) {
	t.Parallel()
	url := postgresFlags(t)["database-url"]
	dir := t.TempDir()
	start := func(how, fix string, flags map[string]string) {
		t.Helper()
		flags["data-dir"] = dir
		h := newTestServer(t, flags)
		says := strings.Contains(h.log.String(), "the last server of this data dir kept its data in ")
		if err := h.app.stopOnce(); err != nil {
			t.Fatal(err)
		}
		if says != (fix != "") || !strings.Contains(h.log.String(), fix) {
			t.Errorf("%s: it says so: %v\n%s", how, says, h.log.String())
		}
	}
	start("the first one", "", map[string]string{"database-url": url})
	start("the same", "", map[string]string{"database-url": url})
	start("without the address", "give it the setting --database-url of then", map[string]string{})
	start("as before, without it", "", map[string]string{})
	start("with it again", "leave out --database-url", map[string]string{"database-url": url})
}

// TestCredentialsOfTheService: with the settings of the packaged service, a command of root reads the secrets
// from the same place as systemd. Other settings are not read from there.
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

// TestDoctorOfAnotherServer: if a relay answers on this machine but no server uses the store, doctor says
// that this relay does not use the store.
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

// TestStoreThatNobodyNoted: if site.json was deleted while no server ran, the store of the server is unknown.
// A command that would open the SQLite file prints the name of the file before its result, and says how to
// choose another store.
func TestStoreThatNobodyNoted(t *testing.T) {
	t.Parallel()
	h := newTestServer(t, nil)
	dir := h.flags["data-dir"]
	try := func(when string, named bool, args ...string) {
		t.Helper()
		var out, errs relaytest.Buffer
		code := run(t.Context(), append(args, "--data-dir", dir), env(), &out, &errs)
		says := strings.Contains(errs.String(), "this command works on sqlite "+filepath.Join(dir, databaseFile)) && strings.Contains(errs.String(), "RELAY_DATABASE_URL")
		if code != cli.ExitOK || says != named {
			t.Errorf("%s, %s: exit %d: %s", when, strings.Join(args, " "), code, errs.String())
		}
	}
	try("beside the server", false, "user", "add", "alice")
	if err := h.app.stopOnce(); err != nil {
		t.Fatal(err)
	}
	try("after it", false, "user", "add", "bob")
	for when, text := range map[string]string{"without the file": "", "with one of an earlier version": `{"baseUrl":"http://localhost"}`, "with a damaged one": "{"} {
		path := filepath.Join(dir, siteFileName)
		_ = os.Remove(path)
		if text != "" {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		try(when, true, "user", "list")
		try(when, true, "audit", "--json")
	}
	for _, call := range storeCommands((&program{}).rootCommand(), t.TempDir()) {
		switch call[0] {
		case "doctor", "support": // doctor and support name the file in their check of the store
			continue
		case "backup":
			call[1] = filepath.Join(t.TempDir(), "new")
		}
		var errs relaytest.Buffer
		run(t.Context(), append(call, "--data-dir", dir), env(), &relaytest.Buffer{}, &errs)
		if !strings.Contains(errs.String(), "this command works on sqlite ") {
			t.Errorf("relayd %s does not name the store: %s", strings.Join(call, " "), errs.String())
		}
	}
	url := postgresFlags(t)["database-url"]
	if code := run(t.Context(), []string{"migrate", "--data-dir", dir, "--database-url", url}, env(), &relaytest.Buffer{}, &relaytest.Buffer{}); code != cli.ExitOK {
		t.Fatalf("migrate: exit %d", code)
	}
	try("with a given address", false, "user", "list", "--database-url", url)
}
