package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/relaytest"
	"relay/store"
)

// situation is a mistake of an operator, and the expected finding of doctor.
type situation struct {
	name           string
	flags          map[string]string // flags that replace those of the running server
	breaks         func(t *testing.T, dir string)
	check, verdict string
	says, fix      string // regular expressions for reason and fix
}

// examine runs doctor with the settings in flags.
func examine(t *testing.T, flags map[string]string) []relay.Finding {
	t.Helper()
	cfg, list, err := load(sources{getenv: env(), flags: flags})
	if err != nil {
		t.Fatal(err)
	}
	findings := (&program{getenv: env(), stderr: t.Output()}).runChecks(t.Context(), cfg, list)
	for _, f := range findings { // every finding has a reason, and a fix unless it is ok
		if f.Reason == "" || (f.Fix == "") != (f.Verdict == relay.VerdictOK) {
			t.Errorf("without a reason, or a fix where one is needed: %+v", f)
		}
	}
	return findings
}

// expect fails unless the finding that s names is in the list.
func (s situation) expect(t *testing.T, list []relay.Finding) {
	t.Helper()
	for _, f := range list {
		if f.Check == s.check && f.Verdict == s.verdict && regexp.MustCompile(s.says).MatchString(f.Reason) && regexp.MustCompile(s.fix).MatchString(f.Fix) {
			t.Logf("situation: %s | %s | %s | %s | %s", cmp.Or(s.name, t.Name()), f.Check, f.Verdict, f.Reason, f.Fix) // go test -v prints the table of situations
			return
		}
	}
	var all strings.Builder
	_ = printFindings(&all, false, list)
	t.Errorf("no finding %q with verdict %s, reason %q and fix %q in\n%s", s.check, s.verdict, s.says, s.fix, all.String())
}

// settingsOf returns the flags with which doctor finds a running server.
func settingsOf(h *testServer, flags map[string]string) map[string]string {
	all := map[string]string{
		"data-dir": h.flags["data-dir"], "min-free": "off",
		"http-addr": h.app.cfg.HTTPAddr, "ssh-addr": h.app.cfg.SSHAddr, "admin-addr": h.app.cfg.AdminAddr,
	}
	maps.Copy(all, flags)
	return all
}

// TestDoctorBesideAServer: doctor reports problems that callers or users would have, although the server
// itself runs well.
func TestDoctorBesideAServer(t *testing.T) {
	t.Parallel()
	h := newTestServer(t, nil)
	other := newTestServer(t, nil)
	proxied := newTestServer(t, map[string]string{"trusted-proxies": "127.0.0.0/8"})
	page := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(page.Close)
	closed := relaytest.FreeAddr(t)
	silent := silentAddr(t)
	if list := examine(t, settingsOf(h, nil)); len(failures(list)) > 0 {
		t.Fatalf("a good server is not: %+v", failures(list))
	}
	cert := func(names []string, until time.Time) map[string]string {
		certFile, keyFile := certificate(t, names, until)
		return map[string]string{
			"tls": "files", "tls-cert": certFile, "tls-key": keyFile, "https-addr": closed,
			"base-url": "https://relay.test", "alias-domain": "hooks.test",
		}
	}
	_, otherKey := certificate(t, []string{"relay.test"}, time.Now().Add(time.Hour))
	swapped := cert([]string{"relay.test", "*.hooks.test"}, time.Now().Add(time.Hour))
	swapped["tls-key"] = otherKey
	for _, s := range []situation{
		{"base host without an address", map[string]string{"base-url": "http://nosuch.invalid"}, nil, "base URL", relay.VerdictFail, "no address was found", "DNS entry: nosuch.invalid"},
		{"base URL leads to another program", map[string]string{"base-url": page.URL}, nil, "base URL", relay.VerdictFail, "is not this relay", "lead to this machine"},
		{"base URL leads to another relay", map[string]string{"base-url": "http://" + other.app.cfg.HTTPAddr}, nil, "base URL", relay.VerdictFail, "another relay answers", "lead to this machine"},
		{"base URL leads to a closed port", map[string]string{"base-url": "http://" + closed}, nil, "base URL", relay.VerdictWarn, "cannot connect", "open the port"},
		{"base URL leads to an address that is silent", map[string]string{"base-url": "http://" + silent}, nil, "base URL", relay.VerdictWarn, "cannot connect", "from another one"},
		{"the public SSH address is silent", map[string]string{"ssh-public-addr": silent}, nil, "ssh address", relay.VerdictWarn, "no SSH server answers", "ssh-public-addr"},
		{"aliases without an address", map[string]string{"base-url": "http://" + h.app.cfg.HTTPAddr, "alias-domain": "nosuch.invalid"}, nil, "alias domain", relay.VerdictWarn, "no name below", "wildcard DNS"},
		{"alias domain is an address", map[string]string{"alias-domain": "192.0.2.1"}, nil, "alias domain", relay.VerdictFail, "no names below", "to a name"},
		{"another SSH server at the public address", map[string]string{"ssh-public-addr": other.app.cfg.SSHAddr}, nil, "ssh address", relay.VerdictFail, "another SSH server", "ssh-public-addr"},
		{"no SSH server at the public address", map[string]string{"ssh-public-addr": closed}, nil, "ssh address", relay.VerdictWarn, "no SSH server answers", "ssh-public-addr"},
		{"an address that the server did not open", map[string]string{"ssh-addr": closed, "ssh-public-addr": h.app.cfg.SSHAddr}, nil, "ssh-addr", relay.VerdictFail, "nothing listens", "restart"},
		{"another program on the port", map[string]string{"ssh-addr": page.Listener.Addr().String()}, nil, "ssh-addr", relay.VerdictFail, "no relay that answers", "stop what listens"},
		{"trusted proxies since the start", map[string]string{"trusted-proxies": "127.0.0.0/8"}, nil, "http-addr", relay.VerdictFail, "runs without --trusted-proxies", "restart"},
		{"everybody is a proxy", map[string]string{"trusted-proxies": "0.0.0.0/0"}, nil, "proxies", relay.VerdictFail, "trusts everybody", "only the addresses"},
		{"certificate ended", cert([]string{"relay.test", "*.hooks.test"}, time.Now().Add(-time.Hour)), nil, "certificate", relay.VerdictFail, "it ended", "renew"},
		{"certificate about to end", cert([]string{"relay.test", "*.hooks.test"}, time.Now().Add(24*time.Hour)), nil, "certificate", relay.VerdictWarn, "it ends at", "not renewed"},
		{"certificate of other names", cert([]string{"relay.test"}, time.Now().Add(time.Hour)), nil, "certificate", relay.VerdictFail, "hooks.test", "wildcard"},
		{"key of another certificate", swapped, nil, "certificate", relay.VerdictFail, "does not match", "PEM chain"},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			s.expect(t, examine(t, settingsOf(h, s.flags)))
		})
	}
	t.Run("a proxy that the settings do not know", func(t *testing.T) {
		t.Parallel()
		situation{check: "http-addr", verdict: relay.VerdictFail, says: "expects a PROXY header", fix: "trusted-proxies"}.expect(t, examine(t, settingsOf(proxied, nil)))
	})
	t.Run("one of two addresses leads elsewhere", func(t *testing.T) {
		t.Parallel()
		base, err := url.Parse("http://localhost:" + port(h.app.cfg.HTTPAddr))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct{ second, keys, want string }{
			{"127.0.0.1", "", ""},
			{"127.0.0.2", "", "also leads to 127.0.0.2, and this machine cannot connect"},
			{"127.0.0.1", "SHA256:other", "also leads to 127.0.0.1, where another relay answers"},
		} {
			x := &examination{site: relay.Site{Base: *base}}
			if c.keys != "" {
				x.hostKeys = []string{c.keys}
			}
			x.checkEachAddress(t.Context(), []string{"127.0.0.1", c.second})
			if got := fmt.Sprint(x.list); (len(x.list) > 0) != (c.want != "") || !strings.Contains(got, c.want) {
				t.Errorf("%+v: got %s", c, got)
			}
		}
	})
	t.Run("a proxy that parses HTTP", func(t *testing.T) {
		t.Parallel()
		front := httptest.NewServer(&httputil.ReverseProxy{
			Rewrite:        func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", h.app.cfg.HTTPAddr },
			ModifyResponse: func(res *http.Response) error { res.Header.Set("Via", "1.1 front"); return nil },
		})
		t.Cleanup(front.Close)
		situation{check: "proxy", verdict: relay.VerdictWarn, says: "parses HTTP.*Via", fix: "pass TCP on"}.expect(t,
			examine(t, settingsOf(h, map[string]string{"base-url": front.URL})))
	})
	t.Run("a proxy that parses HTTP, or another version", func(t *testing.T) {
		t.Parallel()
		front := httptest.NewServer(&httputil.ReverseProxy{
			Rewrite:        func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", h.app.cfg.HTTPAddr },
			ModifyResponse: func(res *http.Response) error { res.Header.Set("New", "of a later version"); return nil },
		})
		t.Cleanup(front.Close)
		base, err := url.Parse(front.URL)
		if err != nil {
			t.Fatal(err)
		}
		cfg, _, err := load(sources{getenv: env(), flags: settingsOf(h, nil)})
		if err != nil {
			t.Fatal(err)
		}
		for versions, findings := range []int{1, 1, 0} {
			x := &examination{cfg: cfg, site: relay.Site{Base: *base, AliasDomain: "localhost"}, versions: versions}
			x.checkUnchanged(t.Context(), "relay-doctor.localhost")
			if len(x.list) != findings {
				t.Errorf("nodes of %d versions: %+v", versions, x.list)
			}
		}
	})
	t.Run("a proxy that buffers requests", func(t *testing.T) {
		t.Parallel()
		pass := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", h.app.cfg.HTTPAddr }}
		front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.ReadAll(r.Body); err == nil {
				pass.ServeHTTP(w, r)
			}
		}))
		t.Cleanup(front.Close)
		situation{check: "proxy", verdict: relay.VerdictWarn, says: "buffers requests.*body had not come", fix: "pass TCP on"}.expect(t,
			examine(t, settingsOf(h, map[string]string{"base-url": front.URL})))
	})
	t.Run("one node without the key of secrets", func(t *testing.T) {
		t.Parallel()
		const key = "rsk1_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
		flags := postgresFlags(t)
		flags["secret-key"] = key
		h := newTestServer(t, flags)
		ctx, system := t.Context(), relay.System()
		_, err := h.app.store.CreateAlias(ctx, system, "hooks", h.start.Admin)
		if err == nil {
			_, err = h.app.store.AddSecret(ctx, system, "hooks", relay.SenderSecret{Provider: "github"}, relay.NewSecretText("value"))
		}
		if err != nil {
			t.Fatal(err)
		}
		node := func(name, key string) map[string]string { // the flags of doctor at this node
			return settingsOf(h, map[string]string{"database-url": flags["database-url"], "node-name": name, "secret-key": key})
		}
		for _, name := range []string{"one", "two"} {
			situation{check: "secret keys", verdict: relay.VerdictOK, says: "^node " + name + " opens 1 secret"}.expect(t, examine(t, node(name, key)))
		}
		situation{check: "secret keys", verdict: relay.VerdictFail, says: "^node three has no key [0-9a-f]{8}: it cannot open 1 secret", fix: "add the key to --secret-key .* of this node"}.expect(t, examine(t, node("three", "")))
	})
	t.Run("a proxy that passes TCP on", func(t *testing.T) {
		t.Parallel()
		for _, f := range examine(t, settingsOf(h, map[string]string{"base-url": "http://" + passTCP(t, h.app.cfg.HTTPAddr)})) {
			if f.Check == "proxy" {
				t.Errorf("got %+v", f)
			}
		}
	})
	t.Run("an account that may store no more", func(t *testing.T) {
		t.Parallel()
		h := newTestServer(t, nil)
		ctx, system := t.Context(), relay.System()
		_, err := h.app.store.CreateAccount(ctx, system, "busy", false)
		if err == nil {
			_, err = h.app.store.CreateAlias(ctx, system, "hooks", "busy")
		}
		if err != nil {
			t.Fatal(err)
		}
		if answer := h.send("POST / HTTP/1.1\r\nHost: hooks.localhost\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi"); !strings.Contains(answer, " 202 ") {
			t.Fatal(answer)
		}
		situation{check: "storage", verdict: relay.VerdictFail, says: "^account busy may store no more.*503 storage-full", fix: "user set NAME max-account-storage"}.expect(t,
			examine(t, settingsOf(h, map[string]string{"max-account-storage": "512"})))
		situation{check: "storage", verdict: relay.VerdictFail, says: "^alias hooks may store no more", fix: "max-alias-storage"}.expect(t,
			examine(t, settingsOf(h, map[string]string{"max-alias-storage": "512"})))
		situation{check: "storage", verdict: relay.VerdictOK, says: "1 event, .*max-account-storage off", fix: "^$"}.expect(t, examine(t, settingsOf(h, nil)))
	})
	t.Run("a certificate without the one that issued it", func(t *testing.T) {
		t.Parallel()
		flags := cert([]string{"relay.test", "*.hooks.test"}, time.Now().Add(80*24*time.Hour))
		flags["tls-cert"], flags["tls-key"] = issuedCertificate(t, []string{"relay.test", "*.hooks.test"}, false)
		situation{check: "certificate", verdict: relay.VerdictWarn, says: `without that of "issuer"`, fix: "fullchain"}.expect(t, examine(t, settingsOf(h, flags)))
		flags["tls-cert"], flags["tls-key"] = issuedCertificate(t, []string{"relay.test", "*.hooks.test"}, true)
		situation{check: "certificate", verdict: relay.VerdictOK, says: "good until"}.expect(t, examine(t, settingsOf(h, flags)))
	})
	t.Run("the key of secrets is gone", func(t *testing.T) {
		t.Parallel()
		h := newTestServer(t, nil)
		ctx, system := t.Context(), relay.System()
		if _, err := h.app.store.CreateAlias(ctx, system, "hooks", h.start.Admin); err != nil {
			t.Fatal(err)
		}
		add := func() error {
			_, err := h.app.store.AddSecret(ctx, system, "hooks", relay.SenderSecret{Provider: "github"}, relay.NewSecretText("value"))
			return err
		}
		if err := add(); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(h.flags["data-dir"], store.SecretKeyFile)); err != nil {
			t.Fatal(err)
		}
		situation{check: "secret keys", verdict: relay.VerdictFail, says: "has no key [0-9a-f]{8}: it cannot open 1 secret", fix: "restore secret.key in its data dir, and restart it"}.expect(t, examine(t, settingsOf(h, nil)))
		if err := add(); relay.AsError(err).Code != relay.CodeSecretUnavailable || !strings.Contains(relay.AsError(err).Detail, "restore secret.key") {
			t.Errorf("the running server has sealed one more: %v", err)
		}
	})
	t.Run("an alias whose account is gone", func(t *testing.T) {
		t.Parallel()
		ctx, system := t.Context(), relay.System()
		_, err := proxied.app.store.CreateAccount(ctx, system, "leaver", false)
		if err == nil {
			_, err = proxied.app.store.CreateAlias(ctx, system, "left", "leaver")
		}
		if err == nil {
			err = proxied.app.store.RemoveAccount(ctx, system, "leaver")
		}
		if err != nil {
			t.Fatal(err)
		}
		situation{check: "owners", verdict: relay.VerdictWarn, says: "without an owner.*left", fix: "alias transfer"}.expect(t,
			examine(t, settingsOf(proxied, map[string]string{"trusted-proxies": "127.0.0.0/8"})))
	})
}

func failures(list []relay.Finding) (failed []relay.Finding) {
	for _, f := range list {
		if f.Verdict == relay.VerdictFail {
			failed = append(failed, f)
		}
	}
	return failed
}

// TestDoctorOfChangedSettings: doctor reports a file that was changed while the server runs.
func TestDoctorOfChangedSettings(t *testing.T) {
	t.Parallel()
	file := write(t, "relayd.yaml", "retention: 7d\nqueue-limit: 10\n")
	dir := filepath.Join(t.TempDir(), "data")
	flags := map[string]string{"http-addr": "127.0.0.1:0", "ssh-addr": "127.0.0.1:0", "admin-addr": "127.0.0.1:0", "data-dir": dir, "min-free": "off"}
	cfg, list, err := load(sources{getenv: env(), flags: flags, file: file})
	if err != nil {
		t.Fatal(err)
	}
	a := newApp(&program{getenv: env(), stderr: t.Output()}, cfg)
	a.settings = list
	if err := a.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.stopOnce() })
	flags["http-addr"], flags["ssh-addr"], flags["admin-addr"] = a.cfg.HTTPAddr, a.cfg.SSHAddr, a.cfg.AdminAddr
	told := func() string {
		cfg, list, err := load(sources{getenv: env(), flags: flags, file: file})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range (&program{getenv: env(), stderr: t.Output()}).runChecks(t.Context(), cfg, list) {
			if f.Check == "settings" {
				return f.Verdict + " " + f.Reason
			}
		}
		return ""
	}
	if got := told(); got != "" {
		t.Errorf("before a change: %s", got)
	}
	if err := os.WriteFile(file, []byte("retention: 8d\ndrain: 5s\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := told()
	for _, want := range []string{"warn ", "retention is 8d", "the server has 7d", "drain is 5s", "queue-limit is not in the file any more"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in %q", want, got)
		}
	}
}

// TestDoctorWithoutAServer: doctor reports problems that would prevent a server from starting or from running
// well.
func TestDoctorWithoutAServer(t *testing.T) {
	t.Parallel()
	h := newTestServer(t, nil)
	closed := settingsOf(h, nil)
	if err := h.app.stopOnce(); err != nil {
		t.Fatal(err)
	}
	copyOf := func(t *testing.T) string {
		t.Helper()
		dir := filepath.Join(t.TempDir(), "data")
		if err := os.CopyFS(dir, os.DirFS(h.flags["data-dir"])); err != nil {
			t.Fatal(err)
		}
		for name, mode := range map[string]os.FileMode{"": 0o700, "ssh_host_ed25519_key": 0o600, databaseFile: 0o600} {
			if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	change := func(name string, do func(path string) error) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			t.Helper()
			if err := do(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	mode := func(m os.FileMode) func(string) error { return func(path string) error { return os.Chmod(path, m) } }
	text := func(s string) func(string) error {
		return func(path string) error { return os.WriteFile(path, []byte(s), 0o600) }
	}
	// In the last situations, the database URL leads to a port without Postgres, or to a Postgres that does not
	// accept relayd.
	at := relaytest.FreeAddr(t)
	base := postgresFlags(t)["database-url"]
	for _, s := range []situation{
		{"the server is down", nil, nil, "server", relay.VerdictFail, "no relay answers", "start it"},
		{"it never ran", nil, change(siteFileName, os.Remove), "server", relay.VerdictWarn, "no relay has served", "relayd serve"},
		{"no data dir", nil, func(t *testing.T, dir string) { t.Helper(); _ = os.RemoveAll(dir) }, "data dir", relay.VerdictFail, "no such file", "data-dir"},
		{"others may write", nil, change("", mode(0o777)), "data dir", relay.VerdictFail, "others may write", "chmod 700"},
		{"others may read the key", nil, change("ssh_host_ed25519_key", mode(0o644)), "host key", relay.VerdictFail, "others may read", "chmod 600"},
		{"the key is damaged", nil, change("ssh_host_ed25519_key", text("nonsense")), "host key", relay.VerdictFail, "will not start", "backup"},
		{"no database", nil, change(databaseFile, os.Remove), "store", relay.VerdictFail, "no relay data", "start relayd serve once"},
		{"no database but another file", nil, change(databaseFile, text("this is not a database, and long enough to be one")), "store", relay.VerdictFail, "not a database", "as the reason says"},
		{"the database may not be written", nil, change(databaseFile, mode(0o400)), "files", relay.VerdictFail, "may not write", "chmod 600"},
		{"files of another user", nil, foreignFile, "files", relay.VerdictFail, "another user", "chown"},
		{"the clock is behind", nil, change(databaseFile, entryAhead), "clock", relay.VerdictWarn, "newest entry of the store is (59m|1h).* ahead of the clock", "synchronised"},
		{"another store than the server's", nil, change(siteFileName, text(`{"store":{"engine":"postgres","places":["db:5432/relay"]}}`)), "served store", relay.VerdictFail, "db:5432/relay", "database-url"},
		{"an unused file of SQLite", map[string]string{"database-url": base}, change(siteFileName, os.Remove), "unused store", relay.VerdictWarn, "relay.db of SQLite", "move it"},
		{"no Postgres there", map[string]string{"database-url": "postgres://relay@" + at + "/relay?sslmode=disable"}, change(siteFileName, os.Remove), "store", relay.VerdictFail, "refused", "answers and lets relayd in"},
		{"Postgres without TLS", map[string]string{"database-url": "postgres://relay@" + postgresWithoutTLS(t) + "/relay?sslmode=require"}, change(siteFileName, os.Remove), "store", relay.VerdictFail, "SSL is not enabled", "sslmode=disable"},
		{"no such database", map[string]string{"database-url": withDatabase(t, base, "nosuch")}, change(siteFileName, os.Remove), "store", relay.VerdictFail, "nosuch", "lets relayd in"},
		{"a role without rights", map[string]string{"database-url": weakRole(t, base)}, change(siteFileName, os.Remove), "postgres", relay.VerdictFail, "may not make tables", "ALTER SCHEMA"},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			flags := maps.Clone(closed)
			flags["data-dir"] = copyOf(t)
			maps.Copy(flags, s.flags)
			if s.breaks != nil {
				s.breaks(t, flags["data-dir"])
			}
			s.expect(t, examine(t, flags))
		})
	}
}

// TestDoctorOfFilesOfRoot: a key or certificate in a folder that only root may enter, as certbot makes it,
// keeps the service from starting. Doctor reports it although root can read the file.
func TestDoctorOfFilesOfRoot(t *testing.T) {
	t.Parallel()
	const other = 12345
	base := t.TempDir()
	folder := filepath.Join(base, "live")
	file := filepath.Join(folder, "key.pem")
	link := filepath.Join(base, "link.pem")
	if err := errors.Join(os.Mkdir(folder, 0o700), os.WriteFile(file, nil, 0o640), os.Symlink(file, link)); err != nil {
		t.Fatal(err)
	}
	if place := lockedPlace(link, other, nil); !strings.HasPrefix(folder, place) || place == "" {
		t.Errorf("of another user: %q", place)
	}
	for path := folder; strings.HasPrefix(path, os.TempDir()) && path != os.TempDir(); path = filepath.Dir(path) {
		_ = os.Chmod(path, 0o755) // folders of the test; the folder above belongs to the system
	}
	if place := lockedPlace(base, other, nil); place != "" {
		t.Skipf("%s keeps every other user out of the folder for temporary files", place)
	}
	if place := lockedPlace(link, other, nil); place != file {
		t.Errorf("a file for its group: %q", place)
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	if place := lockedPlace(link, other, nil); place != "" {
		t.Errorf("a file for all: %q", place)
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if owner, known := ownerOf(info); known && !mayUse(info, 0o4, owner, nil) {
		t.Error("its owner may read it")
	}
	if os.Geteuid() != 0 {
		return // only root can change the owner of a folder
	}
	data := filepath.Join(base, "data")
	if err := errors.Join(os.Mkdir(data, 0o700), os.Chown(data, other, other), os.Chmod(folder, 0o700)); err != nil {
		t.Fatal(err)
	}
	cfg := Config{DataDir: data, TLS: "files", TLSCert: link, TLSKey: file}
	if list := checkReadable(cfg); len(list) != 2 || list[0].Verdict != relay.VerdictWarn || !strings.Contains(list[0].Reason, folder) || list[0].Fix == "" {
		t.Errorf("got %+v", list)
	}
}

func TestPostgresIsJudged(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		server        postgresServer
		verdict, says string
	}{
		{postgresServer{140000, false, false, true, "public", "relay"}, relay.VerdictOK, "version 14.0"},
		{postgresServer{130011, false, false, true, "public", "relay"}, relay.VerdictFail, "version 13.11"},
		{postgresServer{150004, true, false, true, "public", "relay"}, relay.VerdictFail, "replica"},
		{postgresServer{150004, false, true, true, "public", "relay"}, relay.VerdictFail, "only read"},
		{postgresServer{150004, false, false, false, "", "relay"}, relay.VerdictFail, "no schema"},
		{postgresServer{150004, false, false, false, "public", "relay"}, relay.VerdictFail, "may not make tables"},
	} {
		if f := c.server.judge(); f.Verdict != c.verdict || !strings.Contains(f.Reason, c.says) || (f.Fix == "") != (c.verdict == relay.VerdictOK) {
			t.Errorf("%+v: got %+v", c.server, f)
		}
	}
}
