package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"relay/client"
	"relay/relaytest"
)

// TestLoginAtASiteThatNamesAnotherRelay: any site can name the SSH address of another relay as its own. A
// login there must not make a token of that relay and store it for the site: the next command would send the
// token to the site.
func TestLoginAtASiteThatNamesAnotherRelay(t *testing.T) {
	built(t)
	home := t.TempDir()
	key := filepath.Join(home, "key")
	public, err := client.MakeKey(key, "test")
	if err != nil {
		t.Fatal(err)
	}
	admins := filepath.Join(home, "admins")
	if err := os.WriteFile(admins, ssh.MarshalAuthorizedKey(public), 0o600); err != nil {
		t.Fatal(err)
	}
	relayd := exec.Command(relaydProgram(), "serve", "--data-dir", filepath.Join(home, "data"), "--admin-addr", "off", "--http-addr", "127.0.0.1:0",
		"--ssh-addr", "127.0.0.1:0", "--base-url", "https://relay.example.test", "--initial-admin-keys", admins)
	log := &relaytest.Buffer{}
	relayd.Stdout, relayd.Stderr = log, log
	if err := relayd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = relayd.Process.Kill()
		_ = relayd.Wait()
	})
	// relayd listens before the first account exists, and would ask for approval of a key that it does not
	// know yet.
	if !poll(func() bool {
		return listening.MatchString(log.String()) && strings.Contains(log.String(), "first account created")
	}) {
		t.Fatal(log)
	}
	sshAddr := listening.FindStringSubmatch(log.String())[2]

	told, tokens := "", ""
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tokens += r.Header.Get("Authorization")
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, told)
	}))
	defer site.Close()
	run := func(args ...string) string {
		t.Helper()
		c := exec.Command(relayProgram(), args...)
		c.Env = append(os.Environ(), "HOME="+home, "SSH_AUTH_SOCK=", "RELAY_SERVER=", "RELAY_TOKEN=", "RELAY_URL=")
		out, err := c.CombinedOutput()
		return fmt.Sprint(string(out), err)
	}
	want := func(got string, parts ...string) {
		t.Helper()
		for _, part := range parts {
			if !strings.Contains(got, part) {
				t.Errorf("%q is not in %s", part, got)
			}
		}
	}
	login := []string{"login", site.URL, "--identity", key}

	// The site names the SSH address of the other relay and no host keys of its own.
	told = fmt.Sprintf(`{"addr":%q,"hostKeys":[],"baseUrl":%q}`, sshAddr, site.URL)
	want(run(login...), "the relay at the SSH address "+sshAddr+" is https://relay.example.test, not "+site.URL, "exit status 3")
	run("aliases", "--server", sshAddr)
	if tokens != "" {
		t.Errorf("the site got %s", tokens)
	}

	// The command aliases above has stored the host key, and the site cannot replace that key.
	known := filepath.Join(home, ".local", "state", "relay", "known_hosts")
	before, err := os.ReadFile(known)
	if err != nil {
		t.Fatal(err)
	}
	other, err := client.MakeKey(filepath.Join(home, "other"), "test")
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(ssh.MarshalAuthorizedKey(other)))
	told = fmt.Sprintf(`{"addr":%q,"hostKeys":[{"type":%q,"key":%q}],"baseUrl":%q}`, sshAddr, fields[0], fields[1], site.URL)
	want(run(login...), "the known host key of "+sshAddr, "but the base URL names another", "exit status 3")
	if after, err := os.ReadFile(known); err != nil || string(after) != string(before) {
		t.Errorf("known host keys %s, %v, before %s", after, err, before)
	}
	want(run("whoami", "--server", sshAddr, "--identity", key), "over SSH at "+sshAddr)
}
