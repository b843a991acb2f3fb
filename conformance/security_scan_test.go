package conformance

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// secrets maps names to secret values. A value may appear only in the one answer that shows it.
type secrets map[string]string

// found returns the names of the secrets in a text, as plain text or encoded.
func (s secrets) found(text []byte) (names []string) {
	for name, secret := range s {
		for _, form := range []string{secret, base64.StdEncoding.EncodeToString([]byte(secret)), hex.EncodeToString([]byte(secret)), url.QueryEscape(secret)} {
			if bytes.Contains(text, []byte(form)) {
				names = append(names, name)
				break
			}
		}
	}
	return names
}

// keep adds a secret. The secret must be long enough not to occur by chance.
func (s secrets) keep(t *testing.T, name, secret string) string {
	t.Helper()
	if len(secret) < 20 {
		t.Fatalf("%s is %q", name, secret)
	}
	s[name] = secret
	return secret
}

// TestSecurityNoSecretIsKept creates every kind of secret and uses it correctly and incorrectly. Afterwards
// it searches for the secrets in everything that the server stores and shows.
func TestSecurityNoSecretIsKept(t *testing.T) {
	t.Parallel()
	r := startRelay(t, "", "RELAY_LOG_LEVEL=debug")
	known := secrets{}
	known.keep(t, "token", r.token)
	r.tunnel("hook", localServer(t))
	if status, body, _ := r.call("hook", "/x", "hello"); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	id := r.latest("hook").ID
	var pages []byte
	see := func(client *http.Client, method, address, body string, header ...string) []byte {
		t.Helper()
		seen := r.see(client, method, address, body, header...)
		pages = append(pages, seen...)
		return seen
	}
	useTokens(t, r, known)
	useShare(t, r, known, id, see)
	c := useLogin(t, r, known, see)
	useWrongSecrets(t, r, known, see)
	for _, page := range []string{
		"/", "/aliases/hook", "/aliases/hook/settings", "/events/" + id, "/account", "/account/audit", "/admin", "/admin/audit",
		"/api/v1/tokens", "/api/v1/keys", "/api/v1/sessions", "/api/v1/audit", "/api/v1/users", "/api/v1/events/" + id, "/api/v1/events/" + id + "/shares",
	} {
		if got := see(c, "GET", page, ""); !bytes.HasPrefix(got, []byte("200")) {
			t.Errorf("%s: %.100s", page, got)
		}
	}
	pages = append(pages, r.fetch("http://"+r.admin+"/metrics")+r.fetch("http://"+r.admin+"/debug/stats")...)
	for _, name := range known.found(pages) {
		t.Errorf("the %s is on a page or in an answer", name)
	}
	files := known.files(t, filepath.Join(r.dir, "data")) // before the stop, the write-ahead log has content, too
	r.stop(syscall.SIGTERM)                               // the stop writes everything to the disk, and the files are searched once more
	if log := r.log.String(); !strings.Contains(log, "level=DEBUG") {
		t.Errorf("this is no debug log: %.500s", log)
	}
	for _, name := range known.found([]byte(r.log.String())) {
		t.Errorf("the %s is in the log", name)
	}
	files += known.files(t, filepath.Join(r.dir, "data"))
	t.Logf("figure: %d secrets looked for in %d files, %d bytes of log and %d bytes of answers", len(known), files, len(r.log.String()), len(pages))
}

// files searches all files of a folder, and fails the test for each secret in them. It returns the number of
// files.
func (s secrets) files(t *testing.T, dir string) (n int) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		n++
		for _, name := range s.found(content) {
			t.Errorf("the %s is in %s", name, path)
		}
		return nil
	})
	if err != nil || n < 3 {
		t.Errorf("%d files: %v", n, err)
	}
	return n
}

// see sends a request and returns status, header and body of the answer as one text.
func (r *relayServer) see(client *http.Client, method, path, body string, header ...string) []byte {
	r.t.Helper()
	req, err := http.NewRequest(method, "http://"+r.http+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		req.Header.Set(name, value)
	}
	res, err := client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	var out bytes.Buffer
	fmt.Fprintln(&out, res.Status)
	_ = res.Header.Write(&out)
	return append(out.Bytes(), b...)
}

// useTokens makes tokens with the API and with the command line and uses one.
func useTokens(t *testing.T, r *relayServer, known secrets) {
	t.Helper()
	var made struct{ ID, Token string }
	r.decode(r.must(201, "POST", "/tokens", []byte(`{"name":"ci","alias":"hook","expiresIn":"1h"}`)), &made)
	known.keep(t, "token of the API", made.Token)
	res, err := http.DefaultClient.Do(r.bearer(t.Context(), made.Token, "GET", "/events", ""))
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != 200 {
		t.Errorf("the token gives %d", res.StatusCode)
	}
	known.keep(t, "token of the command", strings.TrimSpace(r.relayd("token", "add", "--user", "admin", "--name", "x")))
}

type seer func(client *http.Client, method, address, body string, header ...string) []byte

// useShare makes a share and uses it in every way.
func useShare(t *testing.T, r *relayServer, known secrets, id string, see seer) {
	t.Helper()
	var share struct{ ID, Token string }
	r.decode(r.must(201, "POST", "/events/"+id+"/shares", []byte(`{"view":true}`)), &share)
	known.keep(t, "share", share.Token)
	quiet := &http.Client{}
	for _, call := range []string{
		"GET /api/v1/shared/" + share.Token, "POST /api/v1/events/shared/" + share.Token + "/replay",
		"GET /api/v1/shared/" + share.Token + "/x", "PUT /api/v1/shared/" + share.Token, "GET /api/v1/shared/" + share.Token + "?x=1",
	} {
		method, path, _ := strings.Cut(call, " ")
		see(quiet, method, path, "")
	}
	// The pages of a share contain its token in their links, so these answers are not searched.
	for _, call := range []string{"GET /s/" + share.Token, "POST /s/" + share.Token + "/replay"} {
		method, path, _ := strings.Cut(call, " ")
		r.see(quiet, method, path, "", "Sec-Fetch-Site: same-origin")
	}
}

// useLogin creates and uses login links, and returns a browser that is logged in.
func useLogin(t *testing.T, r *relayServer, known secrets, see seer) *http.Client {
	t.Helper()
	last := func(link string) string { return link[strings.LastIndexByte(link, '/')+1:] }
	c, link := r.browser("admin")
	known.keep(t, "login link", last(link))
	known.keep(t, "session", r.cookie(c).Value)
	known.keep(t, "unused login link", last(strings.TrimSpace(r.relayd("login-link", "--user", "admin"))))
	known.keep(t, "invite", last(strings.TrimSpace(r.relayd("invite", "guest"))))
	r.must(201, "POST", "/users", []byte(`{"name":"other"}`))
	var invite struct{ URL string }
	r.decode(r.must(201, "POST", "/users/other/invite", nil), &invite)
	known.keep(t, "invite of the API", last(invite.URL))
	r.see(&http.Client{}, "GET", "/invite/"+last(invite.URL), "")
	see(&http.Client{}, "GET", "/login/"+last(link), "")
	return c
}

// useWrongSecrets sends invalid secrets wherever a secret is accepted. The server must not show or store them
// either, because a secret that is invalid here could be the user's valid secret of another server.
func useWrongSecrets(t *testing.T, r *relayServer, known secrets, see seer) {
	t.Helper()
	quiet := &http.Client{}
	wrong := func(name string) string {
		return known.keep(t, "wrong "+name, "rly_wrong-"+strings.ReplaceAll(name, " ", "-")+"-0123456789")
	}
	see(quiet, "GET", "/api/v1/me", "", "Authorization: Bearer "+wrong("token"))
	see(quiet, "GET", "/api/v1/me", "", "Authorization: Basic "+wrong("password"))
	see(quiet, "GET", "/", "", "Cookie: relay_session="+wrong("session"))
	see(quiet, "GET", "/api/v1/shared/"+wrong("share"), "")
	see(quiet, "GET", "/s/"+wrong("share page"), "")
	see(quiet, "POST", "/login/"+wrong("login link"), "")
	see(quiet, "GET", "/invite/"+wrong("invite"), "")
	see(quiet, "POST", "/api/v1/tokens", `{"name":3,"token":"`+wrong("body key")+`"`, "Content-Type: application/json", "Authorization: Bearer "+r.token)
	for method, secret := range map[string]string{"password": wrong("ssh password"), "keyboard": wrong("ssh answer")} {
		auth := ssh.Password(secret)
		if method == "keyboard" {
			auth = ssh.KeyboardInteractive(func(_, _ string, questions []string, _ []bool) ([]string, error) {
				answers := make([]string, len(questions))
				for i := range answers {
					answers[i] = secret
				}
				return answers, nil
			})
		}
		conn, err := ssh.Dial("tcp", r.ssh, &ssh.ClientConfig{
			User: "link", Auth: []ssh.AuthMethod{auth}, HostKeyCallback: ssh.InsecureIgnoreHostKey(), Timeout: 30 * time.Second,
		})
		if err == nil {
			conn.Close()
			t.Errorf("a wrong %s lets somebody in", method)
		}
	}
}

// TestSecurityOfAnswers: changes that other sites request get 403, and forms sent to the API get 415. No
// answer allows CORS or sniffing, and downloads are sandboxed attachments.
func TestSecurityOfAnswers(t *testing.T) {
	t.Parallel()
	r := startRelay(t, "")
	r.alias("hook")
	r.call("hook", "/x", "<script>alert(1)</script>")
	id := r.events("hook", "")[0].ID
	c, _ := r.browser("admin")
	for _, header := range []string{"Sec-Fetch-Site: same-site", "Sec-Fetch-Site: cross-site", "Origin: http://hook.localhost", "Origin: null"} {
		for _, call := range []string{
			"POST /api/v1/tokens", "POST /api/v1/aliases", "DELETE /api/v1/events/" + id, "POST /api/v1/events/" + id + "/replay", "PATCH /api/v1/aliases/hook",
			"POST /aliases/hook/settings", "POST /account/tokens", "POST /events/" + id + "/replay", "POST /admin/users", "POST /logout",
		} {
			method, path, _ := strings.Cut(call, " ")
			if got := r.see(c, method, path, `{}`, header, "Content-Type: application/json"); !bytes.HasPrefix(got, []byte("403")) {
				t.Errorf("%s with %s: %.60s", call, header, got)
			}
		}
	}
	for _, path := range []string{"/api/v1/me", "/api/v1/events", "/"} {
		for _, method := range []string{"GET", "OPTIONS"} {
			got := r.see(c, method, path, "", "Origin: http://hook.localhost", "Access-Control-Request-Method: POST", "Access-Control-Request-Headers: authorization")
			if bytes.Contains(got, []byte("Access-Control-")) {
				t.Errorf("%s %s speaks CORS: %.500s", method, path, got)
			}
			if !bytes.Contains(got, []byte("X-Content-Type-Options: nosniff")) {
				t.Errorf("%s %s may be sniffed: %.500s", method, path, got)
			}
		}
	}
	for _, media := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"} {
		got := r.see(c, "POST", "/api/v1/aliases", `{"name":"by-form"}`, "Content-Type: "+media)
		if !bytes.HasPrefix(got, []byte("415")) {
			t.Errorf("%s: %.60s", media, got)
		}
	}
	for _, part := range []string{"request.raw", "request.body", "export?format=curl", "export?format=json", "export?format=js"} {
		got := string(r.see(c, "GET", "/api/v1/events/"+id+"/"+part, ""))
		for _, want := range []string{"Content-Disposition: attachment", "Content-Security-Policy: sandbox; default-src 'none'", "X-Content-Type-Options: nosniff"} {
			if !strings.Contains(got, want) {
				t.Errorf("%s lacks %s: %.500s", part, want, got)
			}
		}
	}
}

// TestSecurityHostKeys: the base site shows the host key that the SSH server uses, so a client that trusts
// the site can check the key.
func TestSecurityHostKeys(t *testing.T) {
	t.Parallel()
	r := startRelay(t, "")
	var about struct {
		Addr, BaseURL string
		HostKeys      []struct{ Type, Key, Fingerprint string }
	}
	if err := json.Unmarshal([]byte(r.fetch("http://"+r.http+"/api/v1/ssh")), &about); err != nil {
		t.Fatal(err)
	}
	shown := errors.New("seen enough")
	_, err := ssh.Dial("tcp", r.ssh, &ssh.ClientConfig{User: "x", Timeout: 30 * time.Second, HostKeyCallback: func(_ string, _ net.Addr, key ssh.PublicKey) error {
		for _, k := range about.HostKeys {
			if k.Type == key.Type() && k.Key == base64.StdEncoding.EncodeToString(key.Marshal()) && k.Fingerprint == ssh.FingerprintSHA256(key) {
				return shown
			}
		}
		return fmt.Errorf("%+v does not name %s", about, ssh.FingerprintSHA256(key))
	}})
	if err == nil || !strings.Contains(err.Error(), shown.Error()) {
		t.Error(err)
	}
	if about.BaseURL == "" || !strings.HasSuffix(about.Addr, r.ssh[strings.LastIndexByte(r.ssh, ':'):]) {
		t.Errorf("%+v, ssh at %s", about, r.ssh)
	}
}
