package conformance

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"relay/relaytest"
)

// person is an account with a key and a token.
type person struct {
	r           *relayServer
	name, key   string
	fingerprint string
	token, id   string // the secret and the id of an API token
}

// person creates an account without admin rights.
func (r *relayServer) person(name string) *person {
	r.t.Helper()
	p := &person{r: r, name: name, key: filepath.Join(r.dir, name)}
	p.fingerprint = ssh.FingerprintSHA256(relaytest.WriteKey(r.t, p.key))
	r.relayd("user", "add", name, "--key", p.key+".pub")
	p.renew()
	return p
}

// renew replaces the token of the account by a new one.
func (p *person) renew() {
	p.r.t.Helper()
	p.token, p.id = p.r.newToken(p.key)
}

func (r *relayServer) decode(b []byte, v any) {
	r.t.Helper()
	if err := json.Unmarshal(b, v); err != nil {
		r.t.Fatalf("%v in %.300s", err, b)
	}
}

// bearer returns a request to the API that carries the given token; "" = no token.
func (r *relayServer) bearer(ctx context.Context, token, method, path, body string) *http.Request {
	r.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+r.http+"/api/v1"+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	return req
}

// do calls the API with the token of the account and returns the body; if want is 0, every status is
// accepted.
func (p *person) do(method, path, body string, want int) []byte {
	p.r.t.Helper()
	res, err := http.DefaultClient.Do(p.r.bearer(p.r.t.Context(), p.token, method, path, body))
	if err != nil {
		p.r.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil || want != 0 && res.StatusCode != want {
		p.r.t.Fatalf("%s %s = %d, want %d: %v %.300s", method, path, res.StatusCode, want, err, b)
	}
	return b
}

// tunnel opens a tunnel by OpenSSH with the account's key and waits until the alias is online. When ssh has
// ended, the returned channel gets an error with its exit status.
func (p *person) tunnel(alias, target string) <-chan error {
	p.r.t.Helper()
	args := append([]string{"-N", "-R", alias + ":80:" + target}, p.r.sshArgs()...)
	for i, a := range args {
		if a == p.r.key {
			args[i] = p.key
		}
	}
	tunnel := relaytest.Start(p.r.t, exec.Command("ssh", args...))
	p.r.waitFor(20*time.Second, alias+" to be online", func() bool {
		if tunnel.HasEnded() {
			p.r.t.Fatalf("ssh ended: %s", tunnel.Out)
		}
		return strings.Contains(string(p.do("GET", "/aliases/"+alias, "", 0)), `"online":true`)
	})
	ended := make(chan error, 1)
	go func() {
		<-tunnel.Ended()
		ended <- errors.New(tunnel.Cmd.ProcessState.String())
	}()
	return ended
}

// follow sends req, which opens a stream of the API, and waits for the first line of the stream. When the
// stream ends, the returned channel gets the error of reading it; nil = the stream ended normally.
func (r *relayServer) follow(req *http.Request) <-chan error {
	r.t.Helper()
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	if res.StatusCode != 200 {
		r.t.Fatalf("stream: %d", res.StatusCode)
	}
	body := bufio.NewReader(res.Body)
	if _, err := body.ReadString('\n'); err != nil {
		r.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, body)
		res.Body.Close()
		ended <- err
	}()
	return ended
}

func (p *person) stream(query string) <-chan error {
	p.r.t.Helper()
	return p.r.follow(p.r.bearer(p.r.t.Context(), p.token, "GET", "/stream"+query, ""))
}

// wait calls the API to wait for an event that never comes, and returns when the server counts the call. When the call
// ends, the returned channel gets its error, or an error with its status.
func (p *person) wait(query string) <-chan error {
	p.r.t.Helper()
	open := p.r.metric("relay_api_waits")
	ended := make(chan error, 1)
	req := p.r.bearer(p.r.t.Context(), p.token, "GET", "/events?path=/never&wait=60s"+query, "")
	go func() {
		res, err := http.DefaultClient.Do(req)
		if err == nil {
			res.Body.Close()
			err = errors.New(res.Status)
		}
		ended <- err
	}()
	p.r.waitFor(20*time.Second, "the call to wait", func() bool { return p.r.metric("relay_api_waits") > open })
	return ended
}

// metric returns the value of a metric without labels.
func (r *relayServer) metric(name string) (v float64) {
	r.t.Helper()
	for line := range strings.Lines(r.fetch("http://" + r.admin + "/metrics")) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			_, _ = fmt.Sscan(rest, &v)
		}
	}
	return v
}

// fetch returns the body of the page at address. It sends no credential.
func (r *relayServer) fetch(address string) string {
	r.t.Helper()
	res, err := http.Get(address)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(b)
}

// browser logs in with a one-time link. It returns a client with the session cookie, and the link.
func (r *relayServer) browser(user string) (*http.Client, string) {
	r.t.Helper()
	link := strings.TrimSpace(r.relayd("login-link", "--user", user))
	jar, err := cookiejar.New(nil)
	if err != nil {
		r.t.Fatal(err)
	}
	c := &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := c.Post(r.local(link), "application/x-www-form-urlencoded", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	res.Body.Close()
	here, _ := url.Parse("http://" + r.http)
	if len(jar.Cookies(here)) == 0 {
		r.t.Fatalf("login = %d without a cookie", res.StatusCode)
	}
	return c, link
}

// local returns a URL of the base site with its scheme and host replaced by those of relayd's HTTP listener.
func (r *relayServer) local(address string) string {
	r.t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		r.t.Fatal(err)
	}
	u.Scheme, u.Host = "http", r.http
	return u.String()
}

func (r *relayServer) cookie(c *http.Client) *http.Cookie {
	r.t.Helper()
	here, _ := url.Parse("http://" + r.http)
	for _, cookie := range c.Jar.Cookies(here) {
		if cookie.Name == "relay_session" {
			return cookie
		}
	}
	r.t.Fatal("there is no session cookie")
	return nil
}
