package conformance

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"relay/relaytest"
)

// TestUpDialsForEveryRequest: with relay up, the local server gets each request on a new connection.
func TestUpDialsForEveryRequest(t *testing.T) {
	t.Parallel()
	r := startRelay(t, "")
	addr := serveLocal(t, func(w http.ResponseWriter, q *http.Request) { fmt.Fprint(w, q.RemoteAddr) })
	r.up("--target", "http://"+addr, "--alias", "each")
	seen := map[string]bool{}
	for n := range 5 {
		status, from, _ := r.call("each", "/", "x")
		if status != 200 || seen[from] {
			t.Errorf("request %d: answered %d on connection %s, after %v", n, status, from, seen)
		}
		seen[from] = true
	}
}

// TestAPIByPlainSSH: OpenSSH reaches the API by the subsystem relay-api. A key has every scope of its account,
// so requests that only the owner of an alias may make succeed with a key of the owner.
func TestAPIByPlainSSH(t *testing.T) {
	t.Parallel()
	r := startRelay(t, "")
	r.alias("made")
	bob := r.person("bob")
	ask := func(key, request string) string {
		cmd := exec.Command("ssh", append([]string{"-s"}, append(r.openSSH("relay"), "relay-api")...)...)
		for i, arg := range cmd.Args {
			if arg == r.key {
				cmd.Args[i] = key
			}
		}
		cmd.Env, cmd.Stdin = append(r.env(), "SSH_AUTH_SOCK="), strings.NewReader(request)
		out, err := cmd.Output()
		if err != nil {
			t.Errorf("%q: %v", request, err)
		}
		return string(out)
	}
	const patch = "PATCH /api/v1/aliases/made HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n{\"paused\":true}"
	if got := ask(r.key, patch); !strings.HasPrefix(got, "HTTP/1.1 200 ") || !strings.Contains(got, `"paused":true`) {
		t.Errorf("the owner was answered %s", got)
	}
	if got := ask(bob.key, patch); !strings.HasPrefix(got, "HTTP/1.1 404 ") && !strings.HasPrefix(got, "HTTP/1.1 403 ") {
		t.Errorf("another account was answered %s", got)
	}
	if got := ask(bob.key, "GET /api/v1/me HTTP/1.1\r\nHost: x\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 200 ") || !strings.Contains(got, `"bob"`) {
		t.Errorf("another account was answered %s", got)
	}
}

// TestUpReachesIPv6Loopback: relay up --port reaches a local server that listens on ::1 only, as many
// development servers do.
func TestUpReachesIPv6Loopback(t *testing.T) {
	t.Parallel()
	// The port is reserved, so that nobody listens on 127.0.0.1 with the same number.
	_, port, _ := net.SplitHostPort(relaytest.FreeAddr(t))
	ln, err := net.Listen("tcp6", "[::1]:"+port)
	if err != nil {
		t.Fatalf("this test needs IPv6 on the loopback: %v", err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "six") }))
	s.Listener.Close()
	s.Listener = ln
	s.Start()
	t.Cleanup(s.Close)
	r := startRelay(t, "")
	r.up("--port", port, "--alias", "six")
	if status, body, _ := r.call("six", "/", "x"); status != 200 || body != "six" {
		t.Errorf("answered %d %s", status, body)
	}
}

// TestLocalServerWithoutAddress: if ssh cannot resolve the name of the local server, the answer to the caller
// and the record say so.
func TestLocalServerWithoutAddress(t *testing.T) {
	t.Parallel()
	r := startRelay(t, "")
	r.tunnel("nowhere", "no-such-host.invalid:80")
	status, body, header := r.call("nowhere", "/", "x")
	rec := r.latest("nowhere")
	if status != 502 || header.Get("Relay-Error") != "local-unresolvable" || rec.Error == nil || rec.Error.Code != "local-unresolvable" {
		t.Errorf("answered %d %s: %s; recorded %+v", status, header.Get("Relay-Error"), body, rec.Error)
	}
}

// TestResponseOfAGoneCaller: after a caller has left, relayd stops reading the response of the local server
// within 2 s, and records it as cut.
func TestResponseOfAGoneCaller(t *testing.T) {
	t.Parallel()
	r := startRelay(t, "")
	ended := make(chan time.Time, 1)
	addr := serveLocal(t, func(w http.ResponseWriter, q *http.Request) {
		defer func() { ended <- time.Now() }()
		for q.Context().Err() == nil {
			fmt.Fprint(w, "x")
			_ = http.NewResponseController(w).Flush()
			time.Sleep(20 * time.Millisecond)
		}
	})
	r.tunnel("gone", addr)
	c := r.dial()
	fmt.Fprint(c, "GET /stream HTTP/1.1\r\nHost: gone.localhost\r\n\r\n")
	if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || !strings.Contains(line, "200") {
		t.Fatalf("answered %q, %v", line, err)
	}
	_ = c.Close()
	begun := time.Now()
	var took time.Duration
	select {
	case end := <-ended:
		took = end.Sub(begun)
	case <-time.After(relaytest.Patience(10 * time.Second)):
		t.Fatal("the stream of a caller who has gone is read on")
	}
	if took > relaytest.Limit(2*time.Second, begun) {
		t.Errorf("read for %v after its caller had gone, want at most 2 s", took)
	}
	r.waitFor(10*time.Second, "the record of the cut response", func() bool {
		rec := r.latest("gone")
		return rec.State == "delivered" && rec.Response != nil && rec.Response.State == "cut" && rec.Attempts[0].CallerGone
	})
}

// loginFrom logs in with a source address that a trusted proxy names, and returns the greeting. Without the
// proxy, the source would be on loopback, which never gets penalties.
func (r *relayServer) loginFrom(source, key, user string) (greeting string, err error) {
	r.t.Helper()
	c := dialFrom(r.t, "127.0.0.2", r.ssh)
	defer c.Close()
	if _, err := fmt.Fprintf(c, "PROXY TCP4 %s 127.0.0.1 52011 22\r\n", source); err != nil {
		return "", err
	}
	text, err := os.ReadFile(key)
	if err != nil {
		r.t.Fatal(err)
	}
	signer, err := ssh.ParsePrivateKey(text)
	if err != nil {
		r.t.Fatal(err)
	}
	conn, _, _, err := ssh.NewClientConn(c, "", &ssh.ClientConfig{
		User: user, Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)}, HostKeyCallback: ssh.InsecureIgnoreHostKey(),
		BannerCallback: func(text string) error { greeting += text; return nil },
	})
	if err == nil {
		_ = conn.Close()
	}
	return greeting, err
}

// TestSSHPenalties: after failed logins, their source is rejected even with a valid key. Other sources and
// exempt sources are not rejected, and penalties can be switched off.
func TestSSHPenalties(t *testing.T) {
	t.Parallel()
	const bad, other = "203.0.113.9", "198.51.100.4"
	for name, c := range map[string]struct {
		settings []string
		out      bool
	}{
		"on by default": {nil, true},
		"off":           {[]string{"RELAY_SSH_PENALTIES=off"}, false},
		"exempt":        {[]string{"RELAY_SSH_PENALTY_EXEMPT=203.0.113.0/24"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRelay(t, "", append(c.settings, "RELAY_TRUSTED_PROXIES=127.0.0.2/32")...)
			r.start()
			stranger := filepath.Join(r.dir, "stranger")
			relaytest.WriteKey(t, stranger)
			for range 6 {
				if _, err := r.loginFrom(bad, stranger, "admin"); err == nil {
					t.Fatal("a strange key is let in")
				}
			}
			if _, err := r.loginFrom(bad, r.key, "admin"); (err != nil) != c.out {
				t.Errorf("a good key after failed logins: %v", err)
			}
			if _, err := r.loginFrom(other, r.key, "admin"); err != nil {
				t.Errorf("another source: %v", err)
			}
		})
	}
}

// TestBannerForetells: relayd's banner, which ssh -N also shows, warns if a forward without an alias (-R
// 80:…) will be refused because of the user name. If the banner warns, the forward is refused; otherwise it
// is accepted.
func TestBannerForetells(t *testing.T) {
	t.Parallel()
	r := startRelay(t, "")
	r.relayd("user", "add", "bob")
	r.relayd("alias", "add", "bobs", "--user", "bob")
	r.relayd("alias", "add", "mine", "--user", "admin")
	r.relayd("alias", "add", "second", "--user", "admin") // with two aliases, a forward needs a name
	for user, want := range map[string]bool{"bobs": true, "www": true, "a_b": true, "mine": false} {
		p := r.forward(t, "openssh", forwarding{user: user, to: "127.0.0.1:1", flags: []string{"-o", "ExitOnForwardFailure=yes"}})
		r.waitFor(10*time.Second, "the greeting", func() bool { return strings.Contains(p.Out.String(), "hello admin") })
		if want {
			p.Code(t, 15*time.Second)
		} else {
			r.waitFor(10*time.Second, "the tunnel", func() bool { return r.online(user) })
		}
		if foretold := strings.Contains(p.Out.String(), "-R without an alias would be refused"); foretold != want {
			t.Errorf("%s: foretold %t: %s", user, foretold, p.Out)
		}
	}
}

// TestRecordOfACallerWhoLeft: if a caller closes or resets its connection before the answer, the record says
// so. A caller that only closes its sending side still gets the answer.
func TestRecordOfACallerWhoLeft(t *testing.T) {
	t.Parallel()
	r := startRelay(t, "")
	arrived, answer := make(chan struct{}), make(chan struct{})
	addr := serveLocal(t, func(w http.ResponseWriter, q *http.Request) {
		arrived <- struct{}{}
		<-answer
		fmt.Fprint(w, "late")
	})
	r.tunnel("left", addr)
	for how, leave := range map[string]func(c *net.TCPConn){
		"closes": func(c *net.TCPConn) { _ = c.Close() },
		"resets": func(c *net.TCPConn) { _ = c.SetLinger(0); _ = c.Close() },
		"shuts":  func(c *net.TCPConn) { _ = c.CloseWrite() },
		"stays":  func(*net.TCPConn) {},
	} {
		c := r.dial()
		path := "/" + how
		fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: left.localhost\r\nContent-Length: 2\r\n\r\nhi", path)
		<-arrived
		leave(c.(*net.TCPConn))
		answer <- struct{}{}
		want := how == "closes" || how == "resets"
		r.waitFor(10*time.Second, "the record of the caller who "+how, func() bool {
			rec := r.latest("left")
			return rec.Path == path && rec.State == "delivered" && rec.Attempts[0].CallerGone == want
		})
		if !want {
			if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || !strings.Contains(line, "200") {
				t.Errorf("%s: answered %q, %v", how, line, err)
			}
		}
		_ = c.Close()
	}
}
