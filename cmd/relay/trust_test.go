package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"relay/client"
)

// TestLoginKeepsOnlyWhatIsProven: a failed login must not store a host key that a site has named for
// the SSH address of another relay.
func TestLoginKeepsOnlyWhatIsProven(t *testing.T) {
	t.Parallel()
	const another = "https://relay.example.test"
	for name, c := range map[string]struct {
		itsKey     bool   // the site names the host key of the relay at the SSH address; false = it names another key
		base       string // base URL that the relay reports over SSH; "" = that of the site
		nobody     bool   // no program listens at the SSH address
		known      bool   // the host key of the relay is in known_hosts already
		keyExit    int    // exit code of a login by key
		tokenExit  int    // exit code of a login with a token
		keepsKey   bool   // the host key that the site names is stored
		keepsLogin bool
	}{
		"its own relay":                           {itsKey: true, keepsKey: true, keepsLogin: true},
		"its own relay, known already":            {itsKey: true, known: true, keepsLogin: true},
		"another relay":                           {itsKey: true, base: another, keyExit: 3, tokenExit: 3},
		"another relay, with a key of the site":   {base: another, keyExit: 3, tokenExit: 3},
		"a key of the site, the base of the site": {keyExit: 3, tokenExit: 3},
		"another relay, whose key is known":       {base: another, known: true, keyExit: 3, tokenExit: 3},
		"an address where nobody listens":         {nobody: true, keyExit: 69, keepsLogin: true},
	} {
		for _, withToken := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, with a token %t", name, withToken), func(t *testing.T) {
				t.Parallel()
				home := t.TempDir()
				api := &hostileAPI{}
				relay := newHostileSSH(t, api)
				hostKey := publicKeyOf(t, relay.key)
				told := hostKey
				if !c.itsKey {
					var err error
					if told, err = client.MakeKey(filepath.Join(home, "site"), "test"); err != nil {
						t.Fatal(err)
					}
				}
				addr := relay.addr
				if c.nobody {
					addr = "127.0.0.1:1"
				}
				var site *httptest.Server
				site = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					line := strings.Fields(string(ssh.MarshalAuthorizedKey(told)))
					_, _ = fmt.Fprintf(w, `{"user":"u","addr":%q,"hostKeys":[{"type":%q,"key":%q}],"baseUrl":%q}`, addr, line[0], line[1], site.URL)
				}))
				t.Cleanup(site.Close)
				base := c.base
				if base == "" {
					base = site.URL
				}
				api.set(200, fmt.Sprintf(`{"user":"u","id":"tok_1","token":"rly_made","baseUrl":%q}`, base))
				knownFile := filepath.Join(home, ".local", "state", "relay", "known_hosts")
				before := ""
				if c.known {
					before = knownhosts.Line([]string{addr}, hostKey) + "\n"
					writeFile(t, knownFile, before)
				}
				args := []string{"login", site.URL, "--identity", relay.key}
				exit := c.keyExit
				if withToken {
					args, exit = append(args, "--with-token"), c.tokenExit
				}
				got, said := withInput(t, home, "rly_stdin\n", args...)
				if got != exit {
					t.Errorf("exit %d, want %d: %s", got, exit, said)
				}
				want := before
				if c.keepsKey {
					want = knownhosts.Line([]string{addr}, told) + "\n"
				}
				if text, err := os.ReadFile(knownFile); string(text) != want || err != nil && !os.IsNotExist(err) {
					t.Errorf("known host keys %q, want %q; %v", text, want, err)
				}
				_, err := os.Stat(filepath.Join(home, ".config", "relay", "logins.json"))
				if kept := err == nil; kept != (c.keepsLogin && exit == 0) {
					t.Errorf("a login is stored: %t", kept)
				}
			})
		}
	}
}

func publicKeyOf(t *testing.T, private string) ssh.PublicKey {
	t.Helper()
	text, err := os.ReadFile(private)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.ParsePrivateKey(text)
	if err != nil {
		t.Fatal(err)
	}
	return signer.PublicKey()
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// withInput runs the program with a standard input.
func withInput(t *testing.T, home, input string, args ...string) (exit int, said string) {
	t.Helper()
	writeFile(t, filepath.Join(home, "in"), input)
	in, err := os.Open(filepath.Join(home, "in"))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.Create(filepath.Join(home, "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	p := &program{in: in, out: out, err: out, getenv: func(name string) string {
		if name == "HOME" {
			return home
		}
		return ""
	}}
	root := p.root()
	root.SetArgs(args)
	exit = p.front().Exit(t.Context(), root.ExecuteContext(t.Context()))
	text, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	return exit, string(text)
}

// TestWhoGetsTheToken: RELAY_TOKEN is not sent to a relay that only a webhooks.yaml names, even if the user
// has a login there.
func TestWhoGetsTheToken(t *testing.T) {
	var got []string // "SITE TOKEN" of each request
	site := func(name string) *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
				got = append(got, name+" "+token)
			}
			_, _ = io.WriteString(w, `{"user":"u","data":[]}`)
		}))
		t.Cleanup(s.Close)
		return s
	}
	a, b := site("a"), site("b")
	const serverA, serverB = "127.0.0.1:3", "127.0.0.1:4" // addresses where no program listens
	login := map[string]string{
		"a": fmt.Sprintf(`{"baseUrl":%q,"server":%q,"user":"a","token":"rly_a"}`, a.URL, serverA),
		"b": fmt.Sprintf(`{"baseUrl":%q,"server":%q,"user":"b","token":"rly_b"}`, b.URL, serverB),
	}
	const refused = "refused"
	for _, c := range []struct {
		name   string
		file   string            // value of server in the webhooks.yaml of the current folder
		logins string            // names of the logins, newest last
		env    map[string]string // variables in addition to RELAY_TOKEN
		args   []string
		token  string // value of RELAY_TOKEN
		want   string // the site that gets the token; "" = none, refused = none, with an error
	}{
		{"file, no login", serverB, "", nil, nil, "rly_env", refused},
		{"file, a login there", serverB, "b", nil, nil, "rly_env", refused},
		{"file, an older login there", serverB, "ba", nil, nil, "rly_env", refused},
		{"file, logins there and elsewhere", serverB, "ab", nil, nil, "rly_env", refused},
		{"file that a flag names", serverB, "b", nil, []string{"--config", "webhooks.yaml"}, "rly_env", "b rly_env"},
		{"file without a server", "", "a", nil, nil, "rly_env", "a rly_env"},
		{"newest login", "", "ba", nil, nil, "rly_env", "a rly_env"},
		{"flag beats file", serverB, "ab", nil, []string{"--server", serverA}, "rly_env", "a rly_env"},
		{"flag names what the file does", serverB, "ab", nil, []string{"--server", serverB}, "rly_env", "b rly_env"},
		{"environment beats file", serverB, "ab", map[string]string{"RELAY_SERVER": serverA}, nil, "rly_env", "a rly_env"},
		{"RELAY_URL names the site", serverB, "b", map[string]string{"RELAY_URL": a.URL}, nil, "rly_env", "a rly_env"},
		{"RELAY_URL and a flag", "", "b", map[string]string{"RELAY_URL": a.URL}, []string{"--server", serverB}, "rly_env", "a rly_env"},
		{"a stored token with its own site", serverB, "ab", nil, nil, "", "b rly_b"},
		{"a stored token, RELAY_URL of another", serverB, "ab", map[string]string{"RELAY_URL": a.URL}, nil, "", "b rly_b"},
		{"a stored token of another relay", serverB, "a", nil, nil, "", ""},
	} {
		for _, command := range [][]string{{"aliases"}, {"whoami"}, {"events", "x"}, {"doctor"}} {
			t.Run(c.name+", "+command[0], func(t *testing.T) {
				folder, home := t.TempDir(), t.TempDir()
				t.Chdir(folder)
				text := "version: 1\n"
				if c.file != "" {
					text += "server: " + c.file + "\n"
				}
				writeFile(t, "webhooks.yaml", text)
				var logins []string
				for _, name := range c.logins {
					logins = append(logins, login[string(name)])
				}
				if logins != nil {
					writeFile(t, filepath.Join(home, ".config", "relay", "logins.json"), `{"version":1,"logins":[`+strings.Join(logins, ",")+`]}`)
				}
				env := map[string]string{"HOME": home, "RELAY_TOKEN": c.token}
				for name, value := range c.env {
					env[name] = value
				}
				got = nil
				_, stdout, stderr := inProcess(t, env, slices.Concat(command, c.args)...)
				slices.Sort(got)
				tokens := strings.Join(slices.Compact(got), ", ")
				want := strings.TrimSuffix(c.want, refused)
				if tokens != want {
					t.Errorf("tokens went to %q, want %q", tokens, want)
				}
				if said := strings.Contains(stdout+stderr, "is not sent to"); said != (c.want == refused) {
					t.Errorf("said %s%s", stdout, stderr)
				}
			})
		}
	}
}

// TestLoginWithTokenInAClonedFolder: a token on standard input is not sent to a relay that only a
// webhooks.yaml names.
func TestLoginWithTokenInAClonedFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFile(t, "webhooks.yaml", "version: 1\nserver: 127.0.0.1:3\n")
	exit, said := withInput(t, t.TempDir(), "rly_stdin\n", "login", "--with-token")
	if exit != 2 || !strings.Contains(said, "the token is not sent to 127.0.0.1:3, which only webhooks.yaml names") {
		t.Errorf("exit %d: %s", exit, said)
	}
}

// TestPeerWithoutAHostKeyTellsNoBase: the error of a failed key exchange contains the names of the peer's
// algorithms. The client does not search this text for the address that gets RELAY_TOKEN.
func TestPeerWithoutAHostKeyTellsNoBase(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 4)
	site := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r.URL.Path }))
	defer site.Close()
	api := &hostileAPI{}
	known := newHostileSSH(t, api)
	home := t.TempDir()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	addr := ln.Addr().String()
	writeFile(t, filepath.Join(home, ".ssh", "known_hosts"), knownhosts.Line([]string{addr}, publicKeyOf(t, known.key))+"\n")
	go func() {
		for {
			raw, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer raw.Close()
				_, _ = raw.Write(append([]byte("SSH-2.0-relayd_x\r\n"), kexInit(site.URL+"/account")...))
				_, _ = io.Copy(io.Discard, raw)
			}()
		}
	}()
	d := &client.Dialer{Server: addr, Identity: known.key, Home: home, StateDir: filepath.Join(home, "state"), Version: "x", Say: func(string) {}}
	if base := d.FindBase(context.Background()); base != "" {
		t.Errorf("found %s", base)
	}
	if len(asked) != 0 {
		t.Errorf("the site was asked for %s", <-asked)
	}
}

// kexInit is the packet that begins a key exchange (RFC 4253, sections 6 and 7.1), with one name of
// a host key algorithm.
func kexInit(name string) []byte {
	payload := ssh.Marshal(struct {
		Type                                       byte
		Cookie                                     [16]byte
		Kex, HostKey                               []string
		CipherIn, CipherOut, MacIn, MacOut, C1, C2 []string
		Lang1, Lang2                               []string
		Follows                                    bool
		Reserved                                   uint32
	}{
		Type: 20, Kex: []string{"curve25519-sha256"}, HostKey: []string{name},
		CipherIn: []string{"aes128-gcm@openssh.com"}, CipherOut: []string{"aes128-gcm@openssh.com"},
		MacIn: []string{"hmac-sha2-256"}, MacOut: []string{"hmac-sha2-256"}, C1: []string{"none"}, C2: []string{"none"},
	})
	padding := 8 - (5+len(payload))%8
	if padding < 4 {
		padding += 8
	}
	length := 1 + len(payload) + padding
	packet := []byte{byte(length >> 24), byte(length >> 16), byte(length >> 8), byte(length), byte(padding)}
	return append(append(packet, payload...), make([]byte, padding)...)
}

// TestTokenForNobody: if no program answers at the SSH address, the token is sent nowhere, not even to the
// default HTTP port of a relay on this machine.
func TestTokenForNobody(t *testing.T) {
	t.Parallel()
	const nobody = "127.0.0.1:1"
	for _, command := range [][]string{{"aliases"}, {"doctor"}} {
		_, stdout, stderr := inProcess(t, map[string]string{"RELAY_TOKEN": "rly_env", "RELAY_SERVER": nobody}, command...)
		if said := stdout + stderr; !strings.Contains(said, "the token was sent nowhere") || !strings.Contains(said, "RELAY_URL") {
			t.Errorf("%s: %s", command, said)
		}
	}
	t.Run("login", func(t *testing.T) {
		exit, said := withInput(t, t.TempDir(), "rly_stdin\n", "login", "--with-token", "--server", nobody)
		if exit != 69 || !strings.Contains(said, "the token was sent nowhere") {
			t.Errorf("exit %d: %s", exit, said)
		}
	})
}

// TestDoctorKeepsNoHostKey: doctor stores no host key, even when it asks the relay for its base URL over SSH.
func TestDoctorKeepsNoHostKey(t *testing.T) {
	t.Parallel()
	api := &hostileAPI{}
	relay := newHostileSSH(t, api)
	site := httptest.NewServer(api)
	t.Cleanup(site.Close)
	api.set(200, fmt.Sprintf(`{"user":"u","data":[],"baseUrl":%q}`, site.URL))
	for _, token := range []string{"", "rly_env"} {
		home := t.TempDir()
		env := map[string]string{"HOME": home, "RELAY_TOKEN": token, "RELAY_SERVER": relay.addr}
		_, stdout, stderr := inProcess(t, env, "doctor", "--identity", relay.key)
		if !strings.Contains(stdout, "you are u") {
			t.Errorf("%s%s", stdout, stderr)
		}
		if _, err := os.Stat(filepath.Join(home, ".local")); err == nil {
			t.Errorf("token %q: something was stored", token)
		}
	}
}
