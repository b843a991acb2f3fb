package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"relay"
	"relay/cli"
	"relay/relaytest"
)

// operate runs an operator command on the store of h while the server runs.
func (h *testServer) operate(args ...string) (stdout string, code int) {
	h.t.Helper()
	var out, errs relaytest.Buffer
	args = append(args, "--data-dir", h.flags["data-dir"])
	if url := h.flags["database-url"]; url != "" {
		args = append(args, "--database-url", url)
	}
	code = run(h.t.Context(), args, func(string) string { return "" }, &out, &errs)
	if code != 0 {
		h.t.Logf("relayd %s: %s", strings.Join(args, " "), errs.String())
	}
	return out.String(), code
}

// TestBeside: changes by operator commands take effect in the running server within 2 s.
func TestBeside(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, flags map[string]string) {
		h := newTestServer(t, flags)
		l := newLocal(t, oddAnswer)
		key := filepath.Join(h.dir, "guest")
		if err := generateKey(key); err != nil {
			t.Fatal(err)
		}
		if _, code := h.operate("user", "add", "guest", "--key", key+".pub"); code != 0 {
			t.Fatalf("user add: exit %d", code)
		}
		token, code := h.operate("token", "add", "--user", "guest")
		if code != 0 || !strings.HasPrefix(token, "rly_") || strings.Count(token, "\n") != 1 {
			t.Fatalf("token add: exit %d, %q", code, token)
		}
		h.key, h.token = key, strings.TrimSpace(token)
		tn := h.tunnel("guests-own", l.addr)

		within := func(what string, ok func() bool) {
			t.Helper()
			begun := time.Now()
			if !relaytest.Poll(10*time.Second, ok) {
				t.Fatalf("%s did not happen", what)
			}
			took, limit := time.Since(begun), relaytest.Limit(2*time.Second, begun)
			t.Logf("%s took %v", what, took)
			if took > limit {
				t.Errorf("%s took %v; 2 s are promised, and this machine may take %v", what, took, limit)
			}
		}
		for _, command := range []string{
			"alias set guests-own offlineStatus=99", "alias set guests-own colour=blue", "alias add Not_A_Label --user guest",
			"user set guest max-account-queue=5 maxAccountQueue=6",
		} {
			if _, code := h.operate(strings.Fields(command)...); code != cli.ExitUsage {
				t.Errorf("%s: exit %d", command, code)
			}
		}
		if _, code := h.operate("alias", "set", "nothing", "paused=on"); code != cli.ExitFailure {
			t.Errorf("a setting of no alias: exit %d", code)
		}
		for _, name := range []string{"at-once", "and-again"} { // a caller may connect directly after the command
			h.operate("alias", "add", name, "--user", "guest")
			if answer := h.send(strings.Replace(odd, "demo.", name+".", 1)); !strings.HasPrefix(answer, "HTTP/1.1 202") {
				t.Errorf("a request right after alias add: %q", answer)
			}
		}
		h.operate("alias", "set", "guests-own", "paused=on")
		within("pausing an alias", func() bool {
			return strings.HasPrefix(h.send(strings.Replace(odd, "demo.", "guests-own.", 1)), "HTTP/1.1 202")
		})
		h.operate("user", "rm", "guest")
		within("cutting a removed account's tunnel", func() bool {
			select {
			case <-tn.ended:
				return true
			default:
				return false
			}
		})
		if status := h.api(http.MethodGet, "/me", "", nil); status != http.StatusUnauthorized {
			t.Errorf("a dead token is answered %d", status)
		}
	})
}

// TestAdmin: the admin listener serves metrics, but only to requests with a loopback Host. No other listener
// serves them.
func TestAdmin(t *testing.T) {
	t.Parallel()
	h := newTestServer(t, nil)
	var stats map[string]any
	res, err := http.Get("http://" + h.app.cfg.AdminAddr + "/debug/stats")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(&stats); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"goroutines", "openFds", "rssBytes", "tunnels", "channels", "queued", "spoolBytes", "committed", "version", "node"} {
		if _, ok := stats[key]; !ok {
			t.Errorf("/debug/stats has no %s", key)
		}
	}
	for _, path := range []string{"/debug/stats", "/metrics"} {
		for _, c := range []struct {
			addr, host string
			want       int
		}{
			{h.app.cfg.AdminAddr, "localhost", http.StatusOK},
			{h.app.cfg.AdminAddr, "attacker.example", http.StatusMisdirectedRequest}, // as in an attack by DNS rebinding
			{h.app.cfg.HTTPAddr, h.app.site.Base.Host, http.StatusNotFound},
		} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+c.addr+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Host = c.host
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			if res.StatusCode != c.want {
				t.Errorf("%s of %s as %s answered %d, want %d", path, c.addr, c.host, res.StatusCode, c.want)
			}
		}
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		res, err := http.Get("http://" + h.app.cfg.HTTPAddr + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusOK {
			t.Errorf("%s answered %d", path, res.StatusCode)
		}
	}
}

// TestNoFirstAccount: if a listener is not on loopback, no account is created, and the log says what to do.
func TestNoFirstAccount(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	log := &relaytest.Buffer{}
	nothing := func(string) string { return "" }
	cfg, list, err := load(sources{getenv: nothing, flags: map[string]string{
		"http-addr": "127.0.0.1:0", "ssh-addr": "127.0.0.1:0", "admin-addr": off, "data-dir": dir,
	}})
	if err != nil {
		t.Fatal(err)
	}
	a := newApp(&program{getenv: nothing, stdout: io.Discard, stderr: log}, cfg)
	if err := a.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer a.stopOnce()
	a.site.Loopback = false
	out, err := a.firstStart(t.Context(), list)
	if err != nil {
		t.Fatal(err)
	}
	if out.Admin != "" || out.LoginLink != "" || out.Commands != "" {
		t.Errorf("made %+v", out)
	}
	if want := "user add admin --admin --key FILE.pub --data-dir " + dir; !strings.Contains(log.String(), want) {
		t.Errorf("the log does not say how: %s", log)
	}
	if _, err := os.Stat(filepath.Join(dir, "id_ed25519")); err == nil {
		t.Error("a key was made")
	}
}

// TestPrintedCommandsNameTheDatabase: the printed commands include the --database-url of the server, because
// without it they would use the empty data dir. A password is not printed.
func TestPrintedCommandsNameTheDatabase(t *testing.T) {
	t.Parallel()
	nothing := func(string) string { return "" }
	dir := t.TempDir()
	cfg, list, err := load(sources{getenv: nothing, flags: map[string]string{
		"data-dir": dir, "database-url": "postgres://relay:secret@db/relay?sslmode=disable",
	}})
	if err != nil {
		t.Fatal(err)
	}
	got := newOperatorEnv(newApp(&program{getenv: nothing}, cfg), list).operatorCommand("node", "list")
	if want := " node list --data-dir " + dir + " --database-url 'postgres://relay:xxxxx@db/relay?sslmode=disable'"; !strings.HasSuffix(got, want) {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestInitialAdminBesideAnotherAccount: --initial-admin-keys also creates the admin if `user add` has made
// another account while the server started. If that account has one of the keys, the start fails. If there is an
// admin already, no other one is created.
func TestInitialAdminBesideAnotherAccount(t *testing.T) {
	t.Parallel()
	nothing := func(string) string { return "" }
	key := filepath.Join(t.TempDir(), "id")
	relaytest.WriteKey(t, key)
	cfg, list, err := load(sources{getenv: nothing, flags: map[string]string{
		"http-addr": "127.0.0.1:0", "ssh-addr": "127.0.0.1:0", "admin-addr": off, "data-dir": t.TempDir(), "initial-admin-keys": key + ".pub",
	}})
	if err != nil {
		t.Fatal(err)
	}
	a := newApp(&program{getenv: nothing, stdout: io.Discard, stderr: &relaytest.Buffer{}}, cfg)
	if err := a.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer a.stopOnce()
	if _, err := a.store.CreateAccount(t.Context(), relay.System(), "bob", false); err != nil {
		t.Fatal(err)
	}
	keys, err := initialAdminKeys(cfg.InitialAdminKeys)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.store.AddKey(t.Context(), relay.System(), "bob", "", keys[0].line); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a first start that leaves an account without keys would let the second one succeed
		if _, err := a.firstStart(t.Context(), list); err == nil || !strings.Contains(err.Error(), "belongs to bob already") {
			t.Errorf("with the key of bob: %v", err)
		}
	}
	if err := a.store.RemoveKey(t.Context(), relay.System(), keys[0].fingerprint); err != nil {
		t.Fatal(err)
	}
	for _, first := range []bool{true, false} {
		out, err := a.firstStart(t.Context(), list)
		if err != nil || out.Admin != "admin" || (len(out.Fingerprints) > 0) != first || out.NoAdmin {
			t.Errorf("%+v, %v", out, err)
		}
	}
	accounts, err := a.store.Accounts(t.Context(), relay.System())
	if err != nil || len(accounts) != 2 {
		t.Errorf("%+v, %v", accounts, err)
	}
}

// TestReadyWhenTheFirstAccountIsThere: /readyz answers 503 until the account of the first start exists, and
// then 200.
func TestReadyWhenTheFirstAccountIsThere(t *testing.T) {
	t.Parallel()
	nothing := func(string) string { return "" }
	cfg, list, err := load(sources{getenv: nothing, flags: map[string]string{
		"http-addr": "127.0.0.1:0", "ssh-addr": "127.0.0.1:0", "admin-addr": off, "data-dir": t.TempDir(),
	}})
	if err != nil {
		t.Fatal(err)
	}
	a := newApp(&program{getenv: nothing, stdout: io.Discard, stderr: &relaytest.Buffer{}}, cfg)
	if err := a.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer a.stopOnce()
	if status, body := get(t, a.cfg.HTTPAddr, "/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, "not serving yet") {
		t.Errorf("without an account: %d %s", status, body)
	}
	if _, err := a.firstStart(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	if !relaytest.Poll(30*time.Second, func() bool { status, _ := get(t, a.cfg.HTTPAddr, "/readyz"); return status == http.StatusOK }) {
		t.Error("never ready")
	}
}

// TestTLSFiles: a request to an alias over TLS, with a certificate from files, is answered.
func TestTLSFiles(t *testing.T) {
	t.Parallel()
	cert, key := relaytest.WriteCertificate(t, t.TempDir(), "localhost", "*.localhost", "demo.localhost")
	h := newTestServer(t, map[string]string{"https-addr": "127.0.0.1:0", "tls": "files", "tls-cert": cert, "tls-key": key})
	l := newLocal(t, oddAnswer)
	if h.app.site.Base.Scheme != "https" {
		t.Errorf("base URL %s", h.app.site.Base.String())
	}
	h.app.site.Base.Scheme = "http" // the API client of the tests uses plain HTTP
	conn, err := tls.Dial("tcp", h.app.cfg.HTTPSAddr, &tls.Config{RootCAs: relaytest.CertPool(t, cert), ServerName: "demo.localhost"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, code := h.operate("alias", "add", "demo", "--user", h.start.Admin); code != 0 {
		t.Fatal("alias add")
	}
	_ = l
	if !relaytest.Poll(5*time.Second, func() bool { _, ok := h.app.delivery.Alias("demo"); return ok }) {
		t.Fatal("the alias never showed up")
	}
	if _, err := io.WriteString(conn, odd); err != nil {
		t.Fatal(err)
	}
	answer, _ := io.ReadAll(conn)
	if !strings.HasPrefix(string(answer), "HTTP/1.1 202 ") {
		t.Errorf("got %q", answer)
	}
}

// TestFirstAccountOfNodesThatStartAtOnce: if several nodes start at once on an empty database, one of them
// creates the first account, and all nodes serve.
func TestFirstAccountOfNodesThatStartAtOnce(t *testing.T) {
	t.Parallel()
	const nodes = 3
	database := postgresFlags(t)["database-url"]
	nothing := func(string) string { return "" }
	var apps [nodes]*app
	var settings [nodes][]*setting
	for i := range apps {
		cfg, list, err := load(sources{getenv: nothing, flags: map[string]string{
			"http-addr": "127.0.0.1:0", "ssh-addr": "127.0.0.1:0", "admin-addr": off, "data-dir": t.TempDir(),
			"database-url": database, "drain-delay": "0s",
		}})
		if err != nil {
			t.Fatal(err)
		}
		apps[i], settings[i] = newApp(&program{getenv: nothing, stdout: io.Discard, stderr: &relaytest.Buffer{}}, cfg), list
		if err := apps[i].Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer apps[i].stopOnce()
	}
	var made atomic.Int32
	var all sync.WaitGroup
	for i, a := range apps {
		all.Go(func() {
			out, err := a.firstStart(t.Context(), settings[i])
			if err != nil {
				t.Errorf("node %d: %v", i, err)
			} else if len(out.Fingerprints) > 0 {
				made.Add(1)
			}
		})
	}
	all.Wait()
	accounts, err := apps[0].store.Accounts(t.Context(), relay.System())
	if err != nil || len(accounts) != 1 || !accounts[0].Admin || made.Load() != 1 {
		t.Errorf("%d nodes made the first account; accounts: %+v (%v)", made.Load(), accounts, err)
	}
}

// TestTwoNodes: on Postgres a second relayd serves together with the first one, and lists two nodes. The
// second one still serves after the first one has ended.
func TestTwoNodes(t *testing.T) {
	t.Parallel()
	flags := postgresFlags(t)
	first := newTestServer(t, flags)
	nothing, log := func(string) string { return "" }, &relaytest.Buffer{}
	cfg, list, err := load(sources{getenv: nothing, flags: map[string]string{
		"data-dir": t.TempDir(), "http-addr": "127.0.0.1:0", "ssh-addr": "127.0.0.1:0", "admin-addr": off,
		"database-url": flags["database-url"], "drain-delay": "0s",
	}})
	if err != nil {
		t.Fatal(err)
	}
	second := newApp(&program{getenv: nothing, stdout: io.Discard, stderr: log}, cfg)
	if err := second.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer second.stopOnce()
	if _, err := second.firstStart(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	at := listening(t, log)
	ready := func() bool { status, _ := get(t, at, "/readyz"); return status == http.StatusOK }
	if !relaytest.Poll(20*time.Second, ready) {
		t.Fatalf("the second node is not ready: %s", log)
	}
	if nodes, err := second.store.Nodes(t.Context()); err != nil || len(nodes) != 2 {
		t.Errorf("nodes: %+v, %v", nodes, err)
	}
	if err := first.app.stopOnce(); err != nil {
		t.Fatal(err)
	}
	if nodes, err := second.store.Nodes(t.Context()); err != nil || len(nodes) != 1 || !ready() {
		t.Errorf("after the first stopped: %+v, %v", nodes, err)
	}
}

func listening(t *testing.T, log *relaytest.Buffer) string {
	t.Helper()
	_, rest, ok := strings.Cut(log.String(), "msg=listening http=")
	if !ok {
		t.Fatalf("no address in the log: %s", log)
	}
	addr, _, _ := strings.Cut(rest, " ")
	return addr
}

func get(t *testing.T, addr, path string) (int, string) {
	t.Helper()
	res, err := http.Get("http://" + addr + path)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(body)
}

func TestAccountName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"alice": "alice", "John.Doe": "john.doe", "_www": "www", "Jürgen K": "j-rgen-k", "日本": "admin", "": "admin",
	} {
		if got := accountName(name); got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
}

// writerFunc is a function as io.Writer.
type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestStopAroundTheFirstAccount: a relayd that is stopped while it creates the first account stops without an
// error. It leaves no account without its keys, because the next start would add none.
func TestStopAroundTheFirstAccount(t *testing.T) {
	t.Parallel()
	t.Run("before it", func(t *testing.T) { stopAtLine(t, "msg=serving ", 0) })
	t.Run("before its keys", func(t *testing.T) { stopAtLine(t, "action=user.add ", 1) })
}

// stopAtLine starts a relayd, stops it when its log contains the text line, and checks that there are want
// accounts and want keys.
func stopAtLine(t *testing.T, line string, want int) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	nothing := func(string) string { return "" }
	cfg, list, err := load(sources{getenv: nothing, flags: map[string]string{
		"data-dir": t.TempDir(), "http-addr": "127.0.0.1:0", "ssh-addr": "127.0.0.1:0", "admin-addr": "off",
	}})
	if err != nil {
		t.Fatal(err)
	}
	a := newApp(&program{getenv: nothing, stdout: io.Discard, stderr: writerFunc(func(p []byte) (int, error) {
		if strings.Contains(string(p), line) {
			stop()
		}
		return len(p), nil
	})}, cfg)
	a.settings = list
	greeting, served, err := a.startWithin(ctx, list)
	if greeting != nil || !served || err != nil {
		t.Errorf("greeting %v, served %v, error %v", greeting, served, err)
	}
	accounts, err := a.store.Accounts(t.Context(), relay.System())
	if err != nil || len(accounts) != want {
		t.Errorf("%d accounts, error %v", len(accounts), err)
	}
	keys, err := a.store.Keys(t.Context(), relay.System(), "")
	if err != nil || len(keys) != want {
		t.Errorf("%d keys, error %v", len(keys), err)
	}
	if err := a.Stop(); err != nil {
		t.Error(err)
	}
}
