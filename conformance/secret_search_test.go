package conformance

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"relay/relaytest"
	"relay/store/pgtest"
)

// secretSearch stores and uses secrets of senders through every interface, and searches for their
// values.
type secretSearch struct {
	*relayServer
	values map[string]string // the secrets, by the place where each was given
	where  map[string][]byte // searched texts, by where they come from
}

// value returns a secret value that contains the name of the place where it is used.
func (s *secretSearch) value(place string) string {
	s.values[place] = fmt.Sprintf("secretvalue%02dof%s", len(s.values), strings.ReplaceAll(place, " ", ""))
	return s.values[place]
}

// TestSecretsOfSendersAreFoundNowhere stores secrets through every interface and uses them in every way.
// Afterwards their values must not be in any file of the store, the spool and the backup, or in a log, metric,
// profile, support file or audit entry. No answer, no page and no stack of a crash may contain the values
// either. The test does not search the memory of relayd, which needs the values. It searches a heap profile,
// which contains names of functions and no content of the memory.
func TestSecretsOfSendersAreFoundNowhere(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"sqlite", "postgres"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			var pg *pgtest.Server
			databaseURL, folder := "", ""
			if engine == "postgres" {
				pg, databaseURL = ownPostgres(t)
				address, _ := plainURL(t, databaseURL)
				folder = strings.TrimSpace(command(t, pgtest.Program(t, "psql"), "-AtX", "-c", "SHOW data_directory", address))
			}
			s := &secretSearch{startRelay(t, databaseURL, "RELAY_LOG_LEVEL=debug", "RELAY_PPROF=on"), map[string]string{}, map[string][]byte{}}
			s.alias("hook")
			s.keep()
			s.tunnel("hook", localServer(t))
			s.use(t)
			if pg != nil {
				s.useWithoutStore(pg)
			}
			s.look()
			s.crash()
			s.files(filepath.Join(s.dir, "data"))
			if pg != nil {
				s.files(folder)
			}
			s.report()
		})
	}
}

const shopScheme = `{"header":"X-Shop","template":"{body}"}`

// keep stores a secret through each of the API, relayd secret, relay secret, plain ssh and the dashboard. It
// also stores a verify token and a secret of a custom scheme, and tries one that is refused.
func (s *secretSearch) keep() {
	s.must(201, "POST", "/aliases/hook/secrets", []byte(`{"provider":"stripe","sign":true,"secret":"`+s.value("API")+`"}`))
	s.must(201, "POST", "/aliases/hook/secrets", []byte(`{"provider":"custom","sign":true,"secret":"`+s.value("definition")+`","custom":`+shopScheme+`}`))
	s.must(200, "PATCH", "/aliases/hook", []byte(`{"handshakes":["meta"],"verifyToken":"`+s.value("verify token")+`"}`))
	s.must(422, "POST", "/aliases/hook/secrets", []byte(`{"provider":"discord","secret":"`+s.value("refused")+`"}`))
	s.says(s.operator("secret", "add", "hook", "--provider", "github", "--sign"), s.value("operator"))
	s.says(s.relay("secret", "add", "hook", "--provider", "slack"), s.value("client"))
	s.says(exec.Command("ssh", append(s.openSSH("relay"), "secret add hook --provider linear")...), s.value("plain ssh"))
	c, _ := s.browser("admin")
	s.see(c, "POST", "/aliases/hook/settings/secrets", url.Values{"provider": {"shopify"}, "sign": {"on"}, "secret": {s.value("dashboard")}}.Encode(), "Content-Type: application/x-www-form-urlencoded")
	if list := s.must(200, "GET", "/aliases/hook/secrets", nil); bytes.Count(list, []byte(`"sec_`)) != 6 {
		s.t.Errorf("kept are %s", list)
	}
}

// relay returns a command of the program relay. The command can read a new secret from the variable SECRET.
func (s *secretSearch) relay(args ...string) *exec.Cmd {
	cmd := exec.Command(relaytest.Program(s.t, "relay"), args...)
	cmd.Env = append(s.env(), "RELAY_URL=http://"+s.http, "RELAY_TOKEN="+s.token, "SECRET="+s.value(fmt.Sprintf("variable %d of the client", len(s.values))))
	return cmd
}

// says runs a command with a text on standard input. The output is stored for the search.
func (s *secretSearch) says(cmd *exec.Cmd, input string) {
	cmd.Stdin = strings.NewReader(input + "\n")
	out, err := cmd.CombinedOutput()
	s.where[fmt.Sprintf("output %d", len(s.where))] = out
	if err != nil {
		s.t.Errorf("%v: %v\n%s", cmd.Args, err, out)
	}
}

// use verifies and signs with the stored secrets, and with secrets that are given for one call.
func (s *secretSearch) use(t *testing.T) {
	t.Helper()
	stripe := map[string]string{"Stripe-Signature": "t=1700000000,v1=" + strings.Repeat("0", 64)}
	s.post(stripe, `{"id":"evt_1","type":"invoice.paid"}`)
	id := s.latest("hook").ID
	s.post(map[string]string{"X-Shop": hex.EncodeToString(mac(s.values["definition"], "hello"))}, "hello")
	shop := s.latest("hook").ID
	s.must(200, "POST", "/events/"+id+"/verify", []byte(`{}`))
	s.must(200, "POST", "/events/"+id+"/verify", []byte(`{"secret":"`+s.value("verify")+`"}`))
	s.must(200, "POST", "/events/"+id+"/verify", []byte(`{"provider":"custom","custom":`+shopScheme+`,"secret":"`+s.value("verify custom")+`"}`))
	s.must(422, "POST", "/events/"+id+"/verify", []byte(`{"provider":"nobody","secret":"`+s.value("verify refused")+`"}`))
	s.must(200, "POST", "/events/"+shop+"/verify", []byte(`{}`))
	for _, body := range []string{
		`{"from":"` + id + `","sign":"auto"}`, `{"from":"` + id + `","sign":"auto","dryRun":true}`, `{"from":"` + shop + `","sign":"auto"}`,
		`{"method":"POST","sign":"custom"}`, `{"method":"POST","sign":"shopify"}`, `{"sample":"github/push","sign":"auto"}`,
	} {
		s.where["answer "+body] = s.must(200, "POST", "/aliases/hook/send", []byte(body))
	}
	s.must(200, "POST", "/events/"+id+"/replay", nil)
	s.must(200, "POST", "/events/"+shop+"/replay", nil)
	c, _ := s.browser("admin")
	const form = "Content-Type: application/x-www-form-urlencoded"
	for _, call := range []struct{ path, form string }{
		{"/events/" + id + "/verify", "secret=" + s.value("try a secret")},
		{"/events/" + shop + "/verify", "secret=" + s.value("try a secret of a definition")},
		{"/events/" + id + "/verify", ""},
		{"/aliases/hook/send", url.Values{"from": {id}, "sign": {"auto"}}.Encode()},
	} {
		page := s.see(c, "POST", call.path, call.form, form)
		if s.where["page "+call.path+call.form] = page; !bytes.HasPrefix(page, []byte("200")) {
			t.Errorf("%s: %.100s", call.path, page)
		}
	}
	for _, path := range []string{"/aliases/hook", "/aliases/hook/settings", "/events/" + id, "/events/" + shop, "/aliases/hook/send?from=" + id, "/account"} {
		s.where["page "+path] = s.see(c, "GET", path, "")
	}
	s.says(s.relay("send", "hook", "--from", id, "--sign", "--secret-env", "SECRET"), "")
	verify := s.relay("verify", id, "--secret-env", "SECRET")
	out, _ := verify.CombinedOutput() // relay verify exits with 1, because the signature is invalid
	s.where["relay verify"] = out
}

// post sends a request to the alias hook.
func (s *secretSearch) post(header map[string]string, body string) {
	s.t.Helper()
	req, err := http.NewRequest(http.MethodPost, "http://"+s.http+"/hook", strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Host = "hook.localhost"
	for name, value := range header {
		req.Header.Set(name, value)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, res.Body)
	res.Body.Close()
}

// useWithoutStore uses the secrets while Postgres is down, and adds the files of the spool to the searched
// texts.
func (s *secretSearch) useWithoutStore(pg *pgtest.Server) {
	s.t.Helper()
	if err := pg.Kill(); err != nil {
		s.t.Fatal(err)
	}
	s.post(map[string]string{"X-Shop": hex.EncodeToString(mac(s.values["definition"], "away"))}, "away")
	s.where["send without the store"] = func() []byte {
		_, body := s.api("POST", "/aliases/hook/send", []byte(`{"method":"POST","sign":"custom"}`))
		return body
	}()
	if s.stats().SpoolBytes == 0 {
		s.t.Error("the spool is empty: the search of it shows nothing")
	}
	s.files(filepath.Join(s.dir, "data"))
	if err := pg.Restart(); err != nil {
		s.t.Fatal(err)
	}
	s.waitFor(30*time.Second, "the spool to be empty", func() bool { return s.ready() == 200 && s.stats().SpoolBytes == 0 })
}

// look adds to the searched texts everything that a running server can show.
func (s *secretSearch) look() {
	s.t.Helper()
	for _, path := range []string{
		"/aliases", "/aliases/hook", "/aliases/hook/secrets", "/events?alias=hook&limit=200", "/me", "/providers", "/tokens", "/audit?limit=200",
	} {
		_, s.where["GET "+path] = s.api("GET", path, nil)
	}
	for _, e := range s.events("hook", "") {
		s.where["event "+e.ID] = s.must(200, "GET", "/events/"+e.ID, nil)
		s.where["bytes "+e.ID] = s.must(200, "GET", "/events/"+e.ID+"/request.raw", nil)
	}
	for _, path := range []string{
		"/metrics", "/debug/stats", "/debug/pprof/goroutine?debug=2", "/debug/pprof/heap?debug=1", "/debug/pprof/allocs?debug=1", "/debug/pprof/heap", "/debug/pprof/trace?seconds=1",
	} {
		s.where[path] = []byte(s.fetch("http://" + s.admin + path))
	}
	s.where["audit"] = []byte(s.relayd("audit"))
	s.where["support"] = []byte(s.relayd("support", "-"))
	s.where["secret list"] = []byte(s.relayd("secret", "list", "hook", "--json"))
	if s.database == "" {
		s.relayd("backup", filepath.Join(s.dir, "data", "backup.db"))
	} else {
		s.backupPostgres(s.t, s.t.TempDir())
		from, schema := plainURL(s.t, s.database)
		file := filepath.Join(s.dir, "data", "dump.sql")
		command(s.t, pgtest.Program(s.t, "pg_dump"), "--schema="+schema, "--file="+file, from)
	}
	for name, want := range map[string]string{"audit": "secret.sign", "support": "== settings", "GET /aliases/hook/secrets": "sec_", "/debug/pprof/goroutine?debug=2": "goroutine "} {
		if !bytes.Contains(s.where[name], []byte(want)) {
			s.t.Errorf("%s has no %s: the search shows nothing: %.300s", name, want, s.where[name])
		}
	}
}

// crash sends SIGQUIT, which ends relayd with the stacks of all goroutines, as an unrecovered panic does. It
// adds the log to the searched texts.
func (s *secretSearch) crash() {
	s.t.Helper()
	p := s.process.get()
	if err := p.Cmd.Process.Signal(syscall.SIGQUIT); err != nil {
		s.t.Fatal(err)
	}
	<-p.Ended()
	s.where["log and crash"] = []byte(s.log.String())
	for _, want := range []string{"level=DEBUG", "SIGQUIT: quit", "goroutine "} {
		if !strings.Contains(s.log.String(), want) {
			s.t.Errorf("the log has no %q", want)
		}
	}
}

// files adds all files of a folder to the searched texts.
func (s *secretSearch) files(dir string) {
	s.t.Helper()
	n := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		// A file may have been removed, and a folder has no content.
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return nil
		}
		n++
		s.where[fmt.Sprintf("file %d %s", len(s.where), path)] = content
		return nil
	})
	if err != nil || n == 0 {
		s.t.Errorf("%d files in %s: %v", n, dir, err)
	}
}

// report fails for every value that is found in plain text, hex or base64. It also fails if no file has the
// name of the alias, because the search of files would then prove nothing.
func (s *secretSearch) report() {
	s.t.Helper()
	size, found := 0, false
	for where, content := range s.where {
		size += len(content)
		found = found || strings.HasPrefix(where, "file ") && bytes.Contains(content, []byte("hook"))
		for place, value := range s.values {
			codings := map[string]string{"as it is": value, "in hex": hex.EncodeToString([]byte(value))}
			for cut := range 3 { // a value has three forms in base64, depending on its offset in the encoded text
				coded := base64.StdEncoding.EncodeToString([]byte(value[cut:]))
				codings[fmt.Sprintf("in base64, %d", cut)] = strings.TrimRight(coded, "=")[:len(coded)-4]
			}
			for coding, text := range codings {
				if bytes.Contains(content, []byte(text)) {
					s.t.Errorf("%s has the secret of %s %s", where, place, coding)
				}
			}
		}
	}
	if !found {
		s.t.Error("no file has the name of the alias: the search of files shows nothing")
	}
	list, _ := json.Marshal(s.values)
	s.t.Logf("%d values, %d places, %d KiB: %s", len(s.values), len(s.where), size>>10, list)
}
