package conformance

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"relay/relaytest"
)

// TestSecuritySSHWithoutProof: OpenSSH, plink, Dropbear and paramiko cannot log in without a signature by a
// registered key.
func TestSecuritySSHWithoutProof(t *testing.T) {
	t.Parallel()
	r := startRelay(t, "")
	host, port, _ := net.SplitHostPort(r.ssh)
	stranger := filepath.Join(r.dir, "stranger")
	relaytest.WriteKey(t, stranger)
	half := filepath.Join(r.dir, "half") // the file has only the public half of the admin's key
	pub, err := os.ReadFile(r.key + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(half+".pub", pub, 0o600); err != nil {
		t.Fatal(err)
	}
	askpass := filepath.Join(r.dir, "askpass")
	relaytest.WriteScript(t, askpass, "echo "+r.token)
	asking := []string{"SSH_ASKPASS=" + askpass, "SSH_ASKPASS_REQUIRE=force", "DISPLAY=:0"}
	only := func(method string) []string { return []string{"-o", "PreferredAuthentications=" + method} }
	fingerprint := strings.Fields(func() string { _, out := r.try(nil, "ssh-keygen", "-lf", stranger+".pub"); return out }())[1]
	for name, c := range map[string]struct {
		env  []string
		args []string
		want string
	}{
		"ssh, none":                  {nil, append([]string{"ssh"}, r.sshLine(stranger, "admin", only("none"), "whoami")...), "Permission denied"},
		"ssh, password":              {asking, append([]string{"ssh"}, r.sshLine(stranger, "admin", only("password"), "whoami")...), "Permission denied"},
		"ssh, token and no key":      {asking, append([]string{"ssh"}, r.sshLine(stranger, "admin", only("keyboard-interactive"), "whoami")...), "Permission denied"},
		"ssh, unknown key":           {nil, append([]string{"ssh"}, r.sshLine(stranger, "admin", nil, "whoami")...), fingerprint + " is not registered"},
		"ssh, public half only":      {nil, append([]string{"ssh"}, r.sshLine(half, "admin", []string{"-o", "BatchMode=yes"}, "whoami")...), "Permission denied"},
		"plink, password":            {nil, []string{"plink", "-batch", "-ssh", "-hostkey", r.hostKey(), "-pw", r.token, "-P", port, "admin@" + host, "whoami"}, ""},
		"dbclient, password":         {[]string{"DROPBEAR_PASSWORD=" + r.token}, []string{"dbclient", "-y", "-y", "-p", port, "admin@" + host, "whoami"}, ""},
		"paramiko, none":             {nil, r.paramiko(`t.auth_none("admin")`), "refused"},
		"paramiko, password":         {nil, r.paramiko(`t.auth_password("admin", "` + r.token + `", fallback=False)`), "refused"},
		"paramiko, unknown key":      {nil, r.paramiko(`t.auth_publickey("admin", paramiko.Ed25519Key(filename="` + stranger + `"))`), "refused"},
		"paramiko, stolen signature": {nil, r.paramiko(swappedKey, r.key+".pub", stranger), "refused"},
	} {
		exit, said := r.try(c.env, c.args[0], c.args[1:]...)
		if exit == 0 || !strings.Contains(said, c.want) || regexp.MustCompile(`(?m)^admin( \(admin\))?\r?$`).MatchString(said) {
			t.Errorf("%s: exit %d, want %q: %s", name, exit, c.want, said)
		}
	}
}

// paramiko returns the command line of a Python program that runs code. In code, the variable t is a paramiko
// transport after the key exchange. The program exits with 3 and prints "refused" if the login in code is
// refused. It exits with 0 after a login.
func (r *relayServer) paramiko(code string, args ...string) []string {
	host, port, _ := net.SplitHostPort(r.ssh)
	program := `
import paramiko, sys
t = paramiko.Transport(("` + host + `", ` + port + `))
t.start_client(timeout=20)
try:
` + "    " + strings.ReplaceAll(strings.TrimSpace(code), "\n", "\n    ") + `
except (paramiko.SSHException, EOFError) as e:
    print("refused", e)
    sys.exit(3)
if not t.is_authenticated():
    print("refused")
    sys.exit(3)
`
	return append([]string{"/usr/bin/python3", "-W", "ignore", "-c", program}, args...)
}

// swappedKey offers one key and signs with another key.
const swappedKey = `
import base64
class Swapped(paramiko.Ed25519Key):
    def asbytes(self):
        return base64.b64decode(open(sys.argv[1]).read().split()[1])
t.auth_publickey("admin", Swapped(filename=sys.argv[2]))
`

// staleUser names an alias of one account in a refused login, and then logs in as another account on the same
// connection. After that it requests a forward without a name.
const staleUser = `
try:
    t.auth_publickey(sys.argv[1], paramiko.Ed25519Key(filename=sys.argv[2]))
except paramiko.AuthenticationException:
    pass
t.auth_handler = None
t.auth_publickey("mallory", paramiko.Ed25519Key(filename=sys.argv[3]))
try:
    t.request_port_forward("", 80)
    print("forwarded")
except paramiko.SSHException:
    print("not forwarded")
`

// TestSecuritySSHStaleUser: the user name of a refused login has no effect on the next login of the same
// connection.
func TestSecuritySSHStaleUser(t *testing.T) {
	t.Parallel()
	r := startRelay(t, "", "RELAY_ALIAS_CLAIM=off")
	stranger, mallory := filepath.Join(r.dir, "stranger"), filepath.Join(r.dir, "mallory")
	relaytest.WriteKey(t, stranger)
	relaytest.WriteKey(t, mallory)
	r.relayd("user", "add", "mallory", "--key", mallory+".pub")
	r.relayd("alias", "add", "victim", "--user", "admin")
	args := r.paramiko(staleUser, "victim", stranger, mallory)
	if _, said := r.try(nil, args[0], args[1:]...); strings.Contains(said, "\nforwarded") || strings.HasPrefix(said, "forwarded") {
		t.Errorf("said %q", said)
	}
	var a struct{ State string }
	if err := json.Unmarshal(r.must(200, "GET", "/aliases/victim", nil), &a); err != nil || a.State != "never" {
		t.Errorf("the alias is %s, %v", a.State, err)
	}
}

// asyncLogin runs a command with asyncssh, and learns the announced host keys.
const asyncLogin = `
import asyncio, asyncssh, sys
async def main():
    async with asyncssh.connect(sys.argv[1], int(sys.argv[2]), username="x", client_keys=[sys.argv[3]], known_hosts=None, config=None) as c:
        print((await c.run("whoami")).stdout, end="")
asyncio.run(main())
`

// TestSecuritySSHLibrariesLogIn: with two announced host keys, paramiko and asyncssh log in, and OpenSSH
// learns the next host key.
func TestSecuritySSHLibrariesLogIn(t *testing.T) {
	t.Parallel()
	r := startRelay(t, "")
	current := filepath.Join(r.dir, "data", "ssh_host_ed25519_key")
	next := filepath.Join(r.dir, "next_host_key")
	relaytest.WriteKey(t, next)
	r.stop(syscall.SIGTERM)
	r.extra = append(r.extra, "RELAY_SSH_HOST_KEY="+current+","+next)
	r.start()
	host, port, _ := net.SplitHostPort(r.ssh)
	paramiko := r.paramiko(`
t.auth_publickey("x", paramiko.Ed25519Key(filename=sys.argv[1]))
s = t.open_session()
s.exec_command("whoami")
print(s.makefile().read().decode(), end="")
`, r.key)
	for name, args := range map[string][]string{
		"paramiko": paramiko,
		"asyncssh": {"/usr/bin/python3", "-W", "ignore", "-c", asyncLogin, host, port, r.key},
	} {
		if exit, said := r.try(nil, args[0], args[1:]...); exit != 0 || !strings.Contains(said, "admin") {
			t.Errorf("%s: exit %d: %s", name, exit, said)
		}
	}
	known := filepath.Join(r.dir, "known_hosts")
	options := []string{"-o", "UpdateHostKeys=yes", "-o", "LogLevel=ERROR"}
	r.try(nil, "ssh", r.sshLine(r.key, "x", options, "version")...) // the first connection stores the host key only
	cmd := exec.Command("ssh", r.sshLine(r.key, "x", append(options, "-N", "-R", "kept:80:127.0.0.1:1"))...)
	cmd.Env = r.env()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.waitFor(15*time.Second, "the next host key to be learned", func() bool {
		text, _ := os.ReadFile(known)
		return strings.Count(string(text), "ssh-ed25519") == 2
	})
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}
