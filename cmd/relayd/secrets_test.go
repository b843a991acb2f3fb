package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
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

// TestNoCommandTellsTheDatabasePassword: no output of a relayd contains the password of its database: neither
// the settings nor a check, nor an error about a database that is unreachable, refuses, or has an invalid
// address.
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

// spellings returns database settings, valid and invalid ones. Their password has a piece before and a piece
// after a separator.
func spellings(separator string) map[string]string {
	password := pieceOne + separator + pieceTwo
	return map[string]string{
		"URL":                 "postgres://relay:" + password + "@127.0.0.1:9/relay?sslmode=disable",
		"URL, escaped":        "postgres://relay:" + url.QueryEscape(password) + "@127.0.0.1:9/relay?sslmode=disable",
		"URL, digits first":   "postgres://relay:12" + separator + pieceTwo + "@127.0.0.1:9/relay",
		"URL without slashes": "postgres:relay:" + password + "@127.0.0.1:9/relay",
		"URL, capitals":       "POSTGRES://relay:" + password + "@127.0.0.1:9/relay",
		"in the query":        "postgres://127.0.0.1:9/relay?user=relay&password=" + password + "&sslmode=disable",
		"key=value":           "host=127.0.0.1 port=9 user=relay password=" + password,
		"key=value, quoted":   "host=127.0.0.1 password='" + password + "' port=9",
		"in front":            "PGPASSWORD=" + password + " psql postgres://relay@127.0.0.1:9/relay",
		"other database":      "mysql://relay:" + password + "@127.0.0.1:9/relay",
		"sslpassword":         "postgres://relay@127.0.0.1:9/relay?sslpassword=" + password,
		"options":             "postgres://relay@127.0.0.1:9/relay?sslmode=disable&options=endpoint%3D" + password,
	}
}

const pieceOne, pieceTwo = "geh7c1eim", "sch93abwanz"

// tellsPiece runs a command and searches its output for the pieces of the password.
func tellsPiece(t *testing.T, name string, environment []string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var out, errs relaytest.Buffer
	code := run(ctx, args, env(environment...), &out, &errs)
	for _, text := range []string{out.String(), errs.String()} {
		if strings.Contains(text, pieceOne) || strings.Contains(text, pieceTwo) {
			t.Errorf("%s: relayd %s (exit %d) tells a piece of the password: %s", name, args[0], code, text)
		}
	}
}

// TestNoPieceOfASecretIsTold: no output contains a piece of a password, whatever separator the password
// contains, however its setting is misspelled, and whichever setting gets it by mistake.
func TestNoPieceOfASecretIsTold(t *testing.T) {
	t.Parallel()
	for _, separator := range []string{
		"", "@", "/", "#", "?", "%zz", ":", "&", "&x=", " ", "'", `"`, `\`, "[", "=", "\n", "\t", "?a=b&", "@x/", ": ", " #", "://", "@h:12/",
	} {
		t.Run(fmt.Sprintf("%q", separator), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for name, text := range spellings(separator) {
				file := write(t, "relay.yaml", "max-aliases: 7\ndatabase-url: "+text+"\n")
				quoted := write(t, "relay.yaml", "max-aliases: many\ndatabase-url: '"+text+"'\n")
				secret := write(t, "secret", text)
				environment := []string{"RELAY_DATABASE_URL", text}
				_, _, err := load(sources{getenv: env(environment...)})
				commands := [][]string{{"config"}, {"user", "list"}}
				if err == nil && separator != "@" { // the settings are valid, so `user list` would connect to a database
					commands = [][]string{{"config", "--json"}}
				} else if err == nil {
					commands = [][]string{
						{"migrate"},
						{"backup", filepath.Join(dir, "copy")},
						{"doctor"},
						{"support", "-"},
						{"serve", "--http-addr", "127.0.0.1:0", "--ssh-addr", "127.0.0.1:0", "--log-level", "debug"},
					}
				}
				for _, args := range commands {
					tellsPiece(t, name, environment, append(args, "--data-dir", dir, "--admin-addr", "off")...)
				}
				config := []string{"config", "--data-dir", dir}
				tellsPiece(t, name, []string{"RELAY_DATABASE_URL", "postgres://127.0.0.1:9/relay", "RELAY_DATABASE_DIRECT_URL", text}, config...)
				tellsPiece(t, name, []string{"RELAY_DATABASE_URL_FILE", secret}, config...)
				tellsPiece(t, name, nil, "config", "--config", file)
				tellsPiece(t, name, nil, "config", "--config", quoted)
				if name != "URL" && name != "key=value" && name != "other database" {
					continue
				}
				tellsPiece(t, name, []string{"RELAY_DATABASE_URL_FILE", text}, config...)
				tellsPiece(t, name, nil, "config", "--config", text)
				tellsPiece(t, name, nil, append([]string{"config", "--database-url"}, strings.Fields(text)...)...)
				tellsPiece(t, name, nil, "serve", text)
				tellsPiece(t, name, nil, "audit", "-n="+text)
				var everywhere []string
				var defaults Config
				for _, s := range defaults.settings() {
					if s.kind != "database-url" { // the password is put into the wrong setting
						everywhere = append(everywhere, s.env(), text)
					}
				}
				tellsPiece(t, name, everywhere, config...)
			}
		})
	}
}

// TestNoOtherSecretIsTold: errors show neither the user information of an address nor a key that was given
// instead of its file.
func TestNoOtherSecretIsTold(t *testing.T) {
	t.Parallel()
	for name, setting := range map[string][]string{
		"ACME CA":              {"RELAY_ACME_CA", "https://" + pieceOne + ":" + pieceTwo + "@ca.test/directory"},
		"base URL":             {"RELAY_BASE_URL", "https://" + pieceOne + ":" + pieceTwo + "@relay.test"},
		"host key itself":      {"RELAY_SSH_HOST_KEY", "-----BEGIN OPENSSH PRIVATE KEY-----\n" + pieceOne + "\n" + pieceTwo},
		"TLS key itself":       {"RELAY_TLS_KEY", "-----BEGIN PRIVATE KEY-----\n" + pieceOne + "\n" + pieceTwo},
		"admin's private key":  {"RELAY_INITIAL_ADMIN_KEYS", "-----BEGIN OPENSSH PRIVATE KEY-----\n" + pieceOne + "\n" + pieceTwo},
		"TSIG key":             {"RELAY_ACME_DNS_KEY", "relay:hmac-sha256:" + pieceOne + pieceTwo + "AAA="},
		"TSIG key, wrong":      {"RELAY_ACME_DNS_KEY", "relay:" + pieceOne + ":" + pieceTwo},
		"TSIG key, for a file": {"RELAY_ACME_DNS_KEY_FILE", "relay:hmac-sha256:" + pieceOne + pieceTwo},
		"API token":            {"RELAY_LOG_LEVEL", "rly_" + pieceOne + "-" + pieceTwo},
	} {
		for _, args := range [][]string{{"config"}, {"doctor"}, {"support", "-"}, {"user", "list"}} {
			tellsPiece(t, name, setting, append(args, "--data-dir", t.TempDir(), "--admin-addr", "off")...)
		}
	}
}

// TestMistakesOfAFileTellNoSecret: the errors of a configuration file show neither a secret in the place of a key
// nor a word that the YAML library quotes.
func TestMistakesOfAFileTellNoSecret(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"rsk1_" + pieceOne + ": " + pieceTwo + "\n", "acme-dns-key: |" + pieceOne + "\n", "acme-dns-key: >" + pieceOne + "\n"} {
		tellsPiece(t, text, nil, "config", "--config", write(t, "relay.yaml", text))
	}
}

// TestDatabaseParameters: common parameters in the database URLs of providers are translated, left out, or
// refused by name.
func TestDatabaseParameters(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]struct{ as, left, refused string }{
		"sslmode=require&channel_binding=require": {"sslmode=require", "channel_binding", ""}, // in URLs of Neon
		"schema=public":                                    {"", "", ""}, // in URLs of Prisma
		"schema=relay":                                     {"search_path=relay", "", ""},
		"currentSchema=relay":                              {"search_path=relay", "", ""},
		"pgbouncer=true&connection_limit=1":                {"", "connection_limit pgbouncer", ""},
		"sslmode=no-verify":                                {"sslmode=require", "", ""}, // in URLs of Heroku for Node
		"ssl=true":                                         {"sslmode=require", "", ""},
		"options=endpoint%3Dep-1":                          {"options=endpoint%3Dep-1", "", ""},
		"target_session_attrs=read-write":                  {"target_session_attrs=read-write", "", ""},
		"gssencmode=disable":                               {"", "gssencmode", ""},
		"gssencmode=require":                               {"", "", "gssencmode"},
		"uselibpqcompat=true&sslmode=require":              {"sslmode=require", "uselibpqcompat", ""},
		"statement_cache_capacity=0":                       {"", "statement_cache_capacity", ""},
		"sslaccept=strict&sslmode=require":                 {"sslmode=verify-full", "", ""},
		"ssl=true&sslmode=verify-full":                     {"sslmode=verify-full", "", ""}, // the stricter mode applies
		"sslmode=verify-full&ssl=0":                        {"sslmode=verify-full", "", ""},
		"sslaccept=accept_invalid_certs&sslmode=verify-ca": {"sslmode=verify-ca", "", ""},
		"ssl=true&sslaccept=strict":                        {"sslmode=verify-full", "", ""},
		"ssl=true&sslmode=nonsense":                        {"sslmode=nonsense", "", ""},
		"keepalives=1&keepalives_idle=30":                  {"", "keepalives keepalives_idle", ""},
		"serverVersion=15&charset=utf8":                    {"", "charset serverVersion", ""},
		"supa=base-pooler.x":                               {"", "supa", ""},
		"require_auth=scram-sha-256":                       {"", "", "require_auth"},
		"sslcrl=/etc/crl.pem":                              {"", "", "sslcrl"},
		"statement_timeout=5000":                           {"statement_timeout=5000", "", ""},
		"sslrootcert=/etc/ca.pem&sslmode=verify-full":      {"sslmode=verify-full&sslrootcert=%2Fetc%2Fca.pem", "", ""},
		"application_name=relay&ApplicationName=relay-1":   {"application_name=relay-1", "", ""},
	} {
		address := "postgres://relay:secret@db.test/relay?" + query
		_, err := parseDatabaseURL(address)
		if (err != nil) != (want.refused != "") || err != nil && !strings.Contains(err.Error(), want.refused) {
			t.Errorf("%s: %v", query, err)
		}
		if err != nil {
			continue
		}
		got, left := connectionURL(address)
		if u, err := url.Parse(got); err != nil || u.RawQuery != want.as || strings.Join(left, " ") != want.left || u.User.String() != "relay:secret" {
			t.Errorf("%s: %s, without %v; want %s", query, got, left, want.as)
		}
	}
	// Postgres itself accepts the resulting URL, and its error about an unknown parameter names the parameter.
	base := postgresFlags(t)["database-url"]
	join := "?"
	if strings.Contains(base, "?") {
		join = "&"
	}
	for query, want := range map[string]string{
		"channel_binding=require&schema=public&pgbouncer=true&connection_limit=1&statement_cache_capacity=0": "",
		"no_such_setting=1": "no_such_setting",
	} {
		var out, errs relaytest.Buffer
		code := run(t.Context(), []string{"migrate", "--data-dir", t.TempDir(), "--database-url", base + join + query}, env(), &out, &errs)
		if (code != 0) != (want != "") || want != "" && (!strings.Contains(errs.String(), want) || !strings.Contains(errs.String(), "leave that parameter out")) {
			t.Errorf("%s: exit %d, %s", query, code, errs.String())
		}
	}
}

// checkSecret runs a command and searches its output for the passwords.
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

// TestNoAnswerTellsTheDatabasePassword: with profiles on, no answer and no log line of a running server
// contains the password of its database.
func TestNoAnswerTellsTheDatabasePassword(t *testing.T) {
	t.Parallel()
	flags := postgresFlags(t)
	u, err := url.Parse(flags["database-url"])
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("password", dbPassword) // the test server needs no password, but lib/pq stores it
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

// TestProfilesAreOffByDefault: without the setting pprof, the admin listener serves no profiles.
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

// TestLiveServerTellsNoPassword: with profiles on, no answer of a running server contains the password of its
// database, even if the password is in an argument. If the password comes from the environment or a file, the
// process list does not show it either.
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
		t.Run(name, func(t *testing.T) { // in sequence, because the cases share a database
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
				args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", cmd.Process.Pid)) // the command line that ps shows
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
