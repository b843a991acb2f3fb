package main

import (
	"bytes"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite generated files")

func env(pairs ...string) func(string) string {
	m := map[string]string{"HOME": "/home/tester"}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return func(k string) string { return m[k] }
}

func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func settingOf(list []*setting, name string) *setting {
	for _, s := range list {
		if s.name == name {
			return s
		}
	}
	return &setting{origin: "no such setting"}
}

func originOf(list []*setting, name string) string { return settingOf(list, name).origin }

func TestPrecedence(t *testing.T) {
	t.Parallel()
	file := write(t, "relay.yaml", "drain: 1s\nmax-body: 1MiB\nalias-claim: off\nmax-aliases: 7\n")
	marked := write(t, "marked.yaml", "\ufeffdrain: 4s\n")
	for _, tc := range []struct {
		name       string
		flags      map[string]string
		getenv     func(string) string
		file       string
		want       time.Duration
		wantOrigin string
	}{
		{"default", nil, env(), "", 15 * time.Second, "default"},
		{"file", nil, env(), file, time.Second, file + ":1"},
		{"file with a byte order mark", nil, env(), marked, 4 * time.Second, marked + ":1"},
		{"file by environment", nil, env("RELAY_CONFIG", file), "", time.Second, file + ":1"},
		{"environment over file", nil, env("RELAY_DRAIN", "2s"), file, 2 * time.Second, "RELAY_DRAIN"},
		{"empty variable is not set", nil, env("RELAY_DRAIN", ""), file, time.Second, file + ":1"},
		{"flag over environment", map[string]string{"drain": "3s"}, env("RELAY_DRAIN", "2s"), file, 3 * time.Second, "--drain"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c, list, err := load(sources{flags: tc.flags, getenv: tc.getenv, file: tc.file})
			if err != nil {
				t.Fatal(err)
			}
			if c.Drain != tc.want || originOf(list, "drain") != tc.wantOrigin {
				t.Errorf("got %v from %s, want %v from %s", c.Drain, originOf(list, "drain"), tc.want, tc.wantOrigin)
			}
		})
	}
	c, _, err := load(sources{getenv: env(), file: file})
	if err != nil || c.AliasClaim || c.MaxAliases != 7 || c.MaxBody != 1<<20 {
		t.Errorf("values of the file: %v, %+v", err, c)
	}
}

// TestListOfAdminKeys: all keys of a YAML list are used, and a repeated key does not prevent the first start.
func TestListOfAdminKeys(t *testing.T) {
	t.Parallel()
	list := "initial-admin-keys:\n"
	for range 2 {
		key := filepath.Join(t.TempDir(), "key")
		if err := generateKey(key); err != nil {
			t.Fatal(err)
		}
		line, err := os.ReadFile(key + ".pub")
		if err != nil {
			t.Fatal(err)
		}
		list += strings.Repeat("  - "+string(line), 2)
	}
	file := write(t, "relay.yaml", list)
	c, _, err := load(sources{getenv: env(), file: file})
	if err != nil {
		t.Fatal(err)
	}
	if keys, err := initialAdminKeys(c.InitialAdminKeys); err != nil || len(keys) != 2 {
		t.Errorf("%d keys, %v", len(keys), err)
	}
}

// TestDefaults repeats every default, because docs/config.md is generated from the program and would follow
// an accidental change.
func TestDefaults(t *testing.T) {
	t.Parallel()
	c, list, err := load(sources{getenv: env()})
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, row := range effective(c, list) {
		got = append(got, strings.TrimSpace(row.Name+" "+row.Value))
	}
	want := strings.Split(strings.TrimSpace(strings.Replace(defaults, "HOST", host, 1)), "\n")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if !c.loopback() {
		t.Error("without settings something listens off loopback")
	}
}

const defaults = `
http-addr 127.0.0.1:8080
https-addr off
ssh-addr 127.0.0.1:2222
ssh-host-key
ssh-public-addr localhost:2222
admin-addr 127.0.0.1:9091
pprof off
base-url http://localhost:8080
alias-domain localhost
trusted-proxies
data-dir /home/tester/.local/share/relayd
database-url
database-direct-url
secret-key
database-max-conns 12
node-name HOST
peer-addr off
tls off
tls-cert
tls-key
acme-email
acme-ca
acme-ca-root
acme-dns off
acme-dns-server
acme-dns-key
acme-dns-command
acme-dns-resolvers
alias-claim on
max-aliases 50
max-head 128KiB
max-target 16KiB
max-body 32MiB
max-response-capture 32MiB
max-alias-storage 5GiB
max-account-storage off
queue-bytes 1GiB
min-free 1GiB
spool-limit 256MiB
head-timeout 10s
idle-timeout 75s
stall-timeout 30s
min-rate 1KiB
min-rate-grace 30s
response-timeout 60s
buffer-limit 512MiB
max-connections 10000
max-connections-per-source 1024
max-connections-per-account 256
ssh-penalties on
ssh-penalty-exempt
ping-interval 5s
ping-timeout 3s
stale-close 60s
drain 15s
drain-delay 3s
retention 30d
queue-limit 10000
max-account-queue off
replay-limit 60/min
max-share-age off
share-replay-limit 10/min
initial-admin-keys
log-format text
log-level info
access-log off
mcp on
`

func TestSecretFiles(t *testing.T) {
	t.Parallel()
	secret := write(t, "url", "postgres://u:geheim@db:5432/relay?sslpassword=tief&sslmode=disable\n")
	c, list, err := load(sources{getenv: env("RELAY_DATABASE_URL_FILE", secret)})
	if err != nil {
		t.Fatal(err)
	}
	if originOf(list, "database-url") != "RELAY_DATABASE_URL_FILE" || c.DatabaseDirectURL != c.DatabaseURL {
		t.Errorf("origin %s, direct %s", originOf(list, "database-url"), c.DatabaseDirectURL)
	}
	shown := settingOf(list, "database-url").String()
	if strings.Contains(shown, "geheim") || strings.Contains(shown, "tief") || !strings.Contains(shown, "u:xxxxx@db:5432/relay") {
		t.Errorf("shown as %s", shown)
	}
	_, _, err = load(sources{getenv: env("RELAY_DATABASE_URL_FILE", secret, "RELAY_DATABASE_URL", "postgres://x/y")})
	if err == nil || !strings.Contains(err.Error(), "both set") {
		t.Errorf("both: %v", err)
	}
	_, _, err = load(sources{getenv: env("RELAY_DATABASE_URL", "mysql://u:geheim@h/d")})
	if err == nil || strings.Contains(err.Error(), "geheim") {
		t.Errorf("a refused URL must not be repeated: %v", err)
	}
}

func TestValues(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		into string // name of a setting of the kind under test
		text string
		want string // "" = refused
	}{
		{"max-body", "128KiB", "128KiB"},
		{"max-body", "131072", "128KiB"},
		{"max-body", "5gib", "5GiB"},
		{"max-body", "3 MB", "3MB"},
		{"max-body", "1000001", "1000001"},
		{"max-body", "off", "off"},
		{"min-free", "0", "0"},
		{"max-body", "-1", ""},
		{"max-body", "1.5MiB", ""},
		{"max-body", "99999999999GiB", ""},
		{"max-body", "5 apples", ""},
		{"max-body", "", ""},
		{"head-timeout", "90s", "1m30s"},
		{"head-timeout", "30d", "30d"},
		{"head-timeout", "off", "off"},
		{"drain", "0s", "0s"},
		{"drain", "off", "off"},
		{"head-timeout", "10", ""},
		{"head-timeout", "-1s", ""},
		{"max-aliases", "50", "50"},
		{"max-aliases", "off", "off"},
		{"max-aliases", "fifty", ""},
		{"max-aliases", "-1", ""},
		{"replay-limit", "60/min", "60/min"},
		{"replay-limit", "5/s", "5/s"},
		{"replay-limit", "7/10m", "7/10m"},
		{"replay-limit", "off", "off"},
		{"replay-limit", "60", ""},
		{"replay-limit", "0/min", ""},
		{"replay-limit", "60/fortnight", ""},
		{"pprof", "on", "on"},
		{"pprof", "false", "off"},
		{"pprof", "maybe", ""},
		{"http-addr", ":8080", ":8080"},
		{"http-addr", "[::1]:0", "[::1]:0"},
		{"http-addr", "off", "off"},
		{"http-addr", "8080", ""},
		{"http-addr", "host:99999", ""},
		{"ssh-public-addr", "relay.example.com", "relay.example.com:22"},
		{"ssh-public-addr", "::1", "[::1]:22"},
		{"ssh-public-addr", "relay.example.com:2222", "relay.example.com:2222"},
		{"ssh-public-addr", "user@host:22", ""},
		{"base-url", "https://Relay.Example.com/", "https://relay.example.com"},
		{"base-url", "http://localhost:8080", "http://localhost:8080"},
		{"base-url", "https://relay.example.com/sub", ""},
		{"base-url", "relay.example.com", ""},
		{"base-url", "http://[::1]:8080", "http://[::1]:8080"},
		{"base-url", "http://localhost?", ""},
		{"base-url", "http://localhost:", ""},
		{"base-url", "http://localhost:0", ""},
		{"base-url", "http://localhost:99999", ""},
		{"base-url", "http://a..com", ""},
		{"base-url", "http://*.example.com", ""},
		{"base-url", "http://ünï.localhost", ""},
		{"base-url", "ftp://relay.example.com", ""},
		{"alias-domain", ".Relay.Example.com.", "relay.example.com"},
		{"alias-domain", "exa_mple.com", ""},
		{"alias-domain", "", ""},
		{"node-name", "eu-1.example_net", "eu-1.example_net"},
		{"node-name", "eu west", ""},
		{"node-name", "-eu", ""},
		{"node-name", strings.Repeat("x", 64), ""},
		{"trusted-proxies", "10.0.0.0/8, ::1", "10.0.0.0/8,::1/128"},
		{"trusted-proxies", "10.0.0.0/33", ""},
		{"tls", "files", "files"},
		{"tls", "on", ""},
		{"log-level", "WARN", "warn"},
		{"log-level", "loud", ""},
		{"access-log", "OFF", "off"},
		{"access-log", "Stdout", "stdout"},
		{"access-log", "/var/log/OFF", "/var/log/OFF"},
	} {
		var c Config
		s := settingOf(c.settings(), tc.into)
		err := s.set(tc.text)
		got := ""
		if err == nil {
			got = s.String()
		}
		if got != tc.want {
			t.Errorf("%s %q: got %q (%v), want %q", tc.into, tc.text, got, err, tc.want)
		}
	}
}

func TestChecks(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		flags map[string]string
		want  string
	}{
		{map[string]string{"tls": "acme"}, "--tls: tls acme needs a listener"},
		{map[string]string{"tls": "acme", "https-addr": ":443"}, "--base-url: tls acme needs the name"},
		{map[string]string{"acme-ca": "acme.example.com"}, "--acme-ca: \"acme.example.com\" is not the https URL"},
		{map[string]string{"tls": "files"}, "--tls-cert"},
		{map[string]string{"tls": "files", "tls-cert": "c", "tls-key": "k"}, "needs a listener"},
		{map[string]string{"https-addr": ":443"}, "pass --tls files"},
		{map[string]string{"trusted-proxies": "10.0.0.0/8, everybody"}, "\"everybody\" is not a network"},
		{map[string]string{"ssh-addr": "off"}, "cannot be off"},
		{map[string]string{"http-addr": "off"}, "only with --https-addr"},
		{map[string]string{"ping-interval": "off"}, "cannot be off"},
		{map[string]string{"ping-interval": "0"}, "--ping-interval: it cannot be off or 0"}, // the message must not suggest the value off
		{map[string]string{"ping-timeout": "0s"}, "--ping-timeout: it cannot be off or 0"},
		{map[string]string{"database-max-conns": "0"}, "a node needs 6 connections at least"},
		{map[string]string{"max-aliases": "0"}, "write off for no limit"},
		{map[string]string{"max-body": "12parsecs"}, `--max-body: "12parsecs" is not a size such as 128KiB`},
	} {
		_, _, err := load(sources{flags: tc.flags, getenv: env()})
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v: got %v, want %q in it", tc.flags, err, tc.want)
		}
	}
	if _, _, err := load(sources{flags: map[string]string{"drain": "0s", "min-free": "0"}, getenv: env()}); err != nil {
		t.Errorf("zero where it means something: %v", err)
	}
}

// TestReference compares docs/config.md with the Config struct. `make generate` writes that file.
func TestReference(t *testing.T) {
	t.Parallel()
	var want bytes.Buffer
	if err := writeReference(&want); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("..", "..", "docs", "config.md")
	if *update {
		if err := os.WriteFile(file, want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.String(), string(got)); diff != "" {
		t.Errorf("docs/config.md is not what `make generate` writes:\n%s", diff)
	}
}

// TestFieldComments: every field of Config has a doc comment, or shares that of the fields directly above it.
// Every setting has a name, a help text and a valid default.
func TestFieldComments(t *testing.T) {
	t.Parallel()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "config.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok || spec.Name.Name != "Config" {
			return true
		}
		// One comment may describe the fields directly below it.
		spoken := false
		end := 0
		for _, f := range spec.Type.(*ast.StructType).Fields.List {
			line := fset.Position(f.Pos()).Line
			spoken = f.Doc != nil || spoken && line == end+1
			end = fset.Position(f.End()).Line
			if !spoken {
				t.Errorf("%s has no comment", f.Names[0])
			}
		}
		return false
	})
	var c Config
	for _, s := range c.settings() {
		if s.name == "" || s.help == "" {
			t.Errorf("a field lacks its flag or help tag: %+v", s)
		}
		if err := s.set(s.def); err != nil {
			t.Errorf("default of %s: %v", s.name, err)
		}
	}
}

// TestCredentials: a secret comes from the systemd credential with its name, unless a variable sets it. Other
// settings are not read from credentials.
func TestCredentials(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"database-url": "postgres://relay:secret@db/relay\n", "log-level": "debug"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg, _, err := load(sources{getenv: env("CREDENTIALS_DIRECTORY", dir, "HOME", dir)})
	if err != nil || cfg.DatabaseURL != "postgres://relay:secret@db/relay" || cfg.LogLevel != "info" {
		t.Errorf("%q, %v, %v", cfg.DatabaseURL, cfg.LogLevel, err)
	}
	cfg, _, err = load(sources{getenv: env("CREDENTIALS_DIRECTORY", dir, "HOME", dir, "RELAY_DATABASE_URL", "postgres://other/relay")})
	if err != nil || cfg.DatabaseURL != "postgres://other/relay" {
		t.Errorf("%q, %v", cfg.DatabaseURL, err)
	}
}

// TestUnitTakesEverySecret: the systemd unit relayd.service, which the installation packages contain, has a
// LoadCredential line for each secret setting.
func TestUnitTakesEverySecret(t *testing.T) {
	t.Parallel()
	unit, err := os.ReadFile("../../deploy/systemd/relayd.service")
	if err != nil {
		t.Fatal(err)
	}
	var cfg Config
	for _, s := range cfg.settings() {
		if s.secret && !strings.Contains(string(unit), "\nLoadCredential="+s.name+":relayd."+s.name+"\n") {
			t.Errorf("no LoadCredential for %s", s.name)
		}
	}
}

// TestSystemConfiguration: the file of the packaged service is read if no other source names the store.
func TestSystemConfiguration(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := write(t, "relayd.yaml", "data-dir: /var/lib/relayd\n")
	for _, tc := range []struct {
		src  sources
		want string
	}{
		{sources{getenv: env("HOME", dir)}, file},
		{sources{getenv: env("HOME", dir), file: "other.yaml"}, "other.yaml"},
		{sources{getenv: env("HOME", dir, "RELAY_CONFIG", "its.yaml")}, "its.yaml"},
		{sources{getenv: env("HOME", dir), flags: map[string]string{"data-dir": dir}}, ""},
		{sources{getenv: env("HOME", dir, "RELAY_DATABASE_URL_FILE", "url")}, ""},
	} {
		tc.src.system = file
		if got := tc.src.configFile(); got != tc.want {
			t.Errorf("%+v: %q, want %q", tc.src.flags, got, tc.want)
		}
	}
	if got := (sources{getenv: env(), system: filepath.Join(dir, "none")}).configFile(); got != "" {
		t.Errorf("a file that is not there: %q", got)
	}
	cfg, _, err := load(sources{getenv: env("HOME", dir), system: file})
	if err != nil || cfg.DataDir != "/var/lib/relayd" {
		t.Errorf("%q, %v", cfg.DataDir, err)
	}
}
