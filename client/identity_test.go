package client

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// agentWith starts an ssh-agent with the keys of files, and returns the agent and its socket.
func agentWith(t *testing.T, dir string, files ...string) (keys agent.Agent, socket string) {
	t.Helper()
	keys = agent.NewKeyring()
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := ssh.ParseRawPrivateKey(text)
		if err == nil {
			err = keys.Add(agent.AddedKey{PrivateKey: raw})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	socket = filepath.Join(dir, "agent.sock")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				_ = agent.ServeAgent(keys, c)
				c.Close()
			}()
		}
	}()
	return keys, socket
}

// TestKeysAsSSHReadsThem: the client obeys all settings of ~/.ssh/config about keys and agents, not only
// IdentityFile.
func TestKeysAsSSHReadsThem(t *testing.T) {
	home := t.TempDir()
	names := []string{"agent1", "agent2", "file", "id_ed25519"}
	var files []string
	public := map[string]string{} // names of the keys, by public key
	for _, name := range names {
		file := filepath.Join(home, name)
		if name == "id_ed25519" {
			file = filepath.Join(home, ".ssh", name)
		}
		key, err := MakeKey(file, name)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
		public[string(key.Marshal())] = name
	}
	half := filepath.Join(home, "half.pub")
	text, err := os.ReadFile(files[1] + ".pub")
	if err != nil || os.WriteFile(half, text, 0o600) != nil {
		t.Fatal(err)
	}
	_, socket := agentWith(t, home, files[0], files[1])
	t.Setenv("MY_AGENT", socket)
	for name, c := range map[string]struct {
		config, env string // env is SSH_AUTH_SOCK
		want        string
	}{
		"nothing":                           {"", "", "id_ed25519"},
		"agent of the environment":          {"", socket, "agent1 agent2 id_ed25519"},
		"agent of the file":                 {"Host *\n  IdentityAgent ~/agent.sock\n", "", "agent1 agent2 id_ed25519"},
		"agent of the file, quoted":         {"Host *\n  IdentityAgent \"~/agent.sock\"\n", "", "agent1 agent2 id_ed25519"},
		"agent by a token":                  {"Host *\n  IdentityAgent %d/agent.sock\n", "", "agent1 agent2 id_ed25519"},
		"agent by a variable":               {"Host *\n  IdentityAgent $MY_AGENT\n", "", "agent1 agent2 id_ed25519"},
		"agent by a variable in braces":     {"Host *\n  IdentityAgent ${MY_AGENT}\n", "", "agent1 agent2 id_ed25519"},
		"agent SSH_AUTH_SOCK":               {"Host *\n  IdentityAgent SSH_AUTH_SOCK\n", socket, "agent1 agent2 id_ed25519"},
		"agent of the file wins":            {"Host *\n  IdentityAgent ~/agent.sock\n", "/nonexistent", "agent1 agent2 id_ed25519"},
		"no agent":                          {"Host *\n  IdentityAgent none\n", socket, "id_ed25519"},
		"another host":                      {"Host other\n  IdentityAgent none\n  IdentitiesOnly yes\n", socket, "agent1 agent2 id_ed25519"},
		"a file instead of the defaults":    {"Host *\n  IdentityFile ~/file\n", "", "file"},
		"a file that is missing":            {"Host *\n  IdentityFile ~/missing\n  IdentityFile ~/file\n", "", "file"},
		"no file":                           {"Host *\n  IdentityFile none\n", socket, "agent1 agent2"},
		"a file of the agent comes first":   {"Host *\n  IdentityFile ~/agent2\n", socket, "agent2 agent1"},
		"the public half of one":            {"Host *\n  IdentityFile ~/half.pub\n", socket, "agent2 agent1"},
		"the public half of one, only":      {"Host *\n  IdentityFile ~/half\n  IdentitiesOnly yes\n", socket, "agent2"},
		"only files":                        {"Host *\n  IdentitiesOnly yes\n  IdentityFile ~/file\n", socket, "file"},
		"only the default files":            {"Host *\n  IdentitiesOnly yes\n", socket, "id_ed25519"},
		"only files, one of the agent":      {"Host *\n  IdentitiesOnly yes\n  IdentityFile ~/file\n  IdentityFile ~/agent1\n", socket, "agent1 file"},
		"first value counts":                {"Host relay.test\n  IdentitiesOnly no\nHost *\n  IdentitiesOnly yes\n", socket, "agent1 agent2 id_ed25519"},
		"agent that is gone, files all the": {"Host *\n  IdentityAgent ~/none.sock\n", socket, "id_ed25519"},
	} {
		if err := os.WriteFile(filepath.Join(home, ".ssh", "config"), []byte(c.config), 0o600); err != nil {
			t.Fatal(err)
		}
		d := &Dialer{Server: "relay.test", Home: home, Agent: c.env, Say: func(string) {}}
		d.once.Do(d.prepare)
		list, done, err := d.keys.signers()
		var got []string
		for _, s := range list {
			got = append(got, public[string(s.PublicKey().Marshal())])
		}
		done()
		if err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, c.want)
		}
	}
}

// TestOpenedKeysAreAddedToTheAgent: keys opened with a passphrase are added to the agent if ~/.ssh/config asks
// for it.
func TestOpenedKeysAreAddedToTheAgent(t *testing.T) {
	for config, want := range map[string]int{"": 0, "AddKeysToAgent no": 0, "AddKeysToAgent yes": 1, "AddKeysToAgent ask": 1, "AddKeysToAgent 1h30m": 1, "AddKeysToAgent 2d": 1, "AddKeysToAgent soon": 0} {
		d := newFakeRelay(t)
		dialer, _ := newDialer(t, d.listen())
		keys, socket := agentWith(t, t.TempDir())
		file := newKeyFile(t, "secret")
		dialer.Identity, dialer.Agent, dialer.Prompter = "", socket, &fakePrompter{yes: true, pass: []string{"secret"}}
		keep(t, filepath.Join(dialer.Home, ".ssh", "config"), fmt.Sprintf("Host *\n  IdentityFile %s\n  %s\n", file, config))
		if err := dialOnce(t, dialer); err != nil {
			t.Fatal(config, err)
		}
		if list, err := keys.List(); err != nil || len(list) != want {
			t.Errorf("%q: the agent has %v, %v", config, list, err)
		}
	}
	for text, want := range map[string]string{"90": "1m30s", "1h30m": "1h30m0s", "2d": "48h0m0s", "1w1s": "168h0m1s"} {
		if got, err := sshTime(text); err != nil || got.String() != want {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
}
