package sshgate

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"relay/relaytest"
)

// newHostKey makes the next host key.
func newHostKey(t *testing.T) ssh.Signer {
	t.Helper()
	text, err := NewHostKey()
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.ParsePrivateKey(text)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// TestOpenSSHLearnsTheNextHostKey: a client that trusts the relay learns the next key at a login, and
// forgets the old key after its removal.
func TestOpenSSHLearnsTheNextHostKey(t *testing.T) {
	t.Parallel()
	var current, next ssh.Signer
	b := newFixture(t, func(o *Options) {
		current, next = o.HostKeys[0], newHostKey(t)
		o.HostKeys = append(o.HostKeys, next)
	})
	known := filepath.Join(b.dir, "known")
	host := "[127.0.0.1]:" + b.port
	line := knownhosts.Line([]string{host}, current.PublicKey()) + "\n"
	if err := os.WriteFile(known, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	login := func() {
		t.Helper()
		p := b.openssh(b.alice, "-o", "StrictHostKeyChecking=yes", "-o", "UpdateHostKeys=yes", "-R", "a:80:127.0.0.1:1", "127.0.0.1")
		b.online("a")
		eventually(t, 30*time.Second, "known hosts changed", func() bool {
			text, _ := os.ReadFile(known)
			return string(text) != line
		})
		_ = p.stdin.Close()
		_ = p.cmd.Process.Kill()
		<-p.exited
	}
	login()
	text, _ := os.ReadFile(known)
	if got := string(text); strings.Count(got, "ssh-ed25519") != 2 || !strings.Contains(got, strings.TrimSpace(string(ssh.MarshalAuthorizedKey(next.PublicKey())))) {
		t.Fatalf("known hosts: %q", got)
	}

	after := newFixture(t, func(o *Options) { o.HostKeys = []ssh.Signer{next} })
	moved := strings.ReplaceAll(string(text), host, "[127.0.0.1]:"+after.port)
	if err := os.WriteFile(known, []byte(moved), 0o600); err != nil {
		t.Fatal(err)
	}
	line, b.port, b.store = moved, after.port, after.store
	fp := ssh.FingerprintSHA256(b.alice.signer.PublicKey())
	after.store.mu.Lock()
	after.store.keys[fp] = b.alice.actor
	after.store.mu.Unlock()
	login()
	text, _ = os.ReadFile(known)
	if got := string(text); strings.Count(got, "ssh-ed25519") != 1 || !strings.Contains(got, strings.TrimSpace(string(ssh.MarshalAuthorizedKey(next.PublicKey())))) {
		t.Errorf("known hosts after the change: %q", got)
	}
}

func TestHostKeyProof(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	client := b.mustDial(b.alice)
	key := b.srv.o.HostKeys[0].PublicKey()
	mine := ssh.Marshal(struct{ Key []byte }{key.Marshal()})
	ok, reply, err := client.SendRequest(hostKeysProve, true, mine)
	var got struct{ Sig []byte }
	var sig ssh.Signature
	if err != nil || !ok || ssh.Unmarshal(reply, &got) != nil || ssh.Unmarshal(got.Sig, &sig) != nil {
		t.Fatalf("%v, %v, %q", ok, err, reply)
	}
	if err := key.Verify(ssh.Marshal(struct {
		What    string
		Session []byte
		Key     []byte
	}{hostKeysProve, client.SessionID(), key.Marshal()}), &sig); err != nil {
		t.Error(err)
	}
	for name, payload := range map[string][]byte{
		"nothing": nil, "a stranger's": ssh.Marshal(struct{ Key []byte }{b.alice.signer.PublicKey().Marshal()}),
		"ours and a stranger's": append(append([]byte{}, mine...), ssh.Marshal(struct{ Key []byte }{b.alice.signer.PublicKey().Marshal()})...),
		"cut off":               mine[:len(mine)-1], "too many": []byte(strings.Repeat(string(mine), maxProofs+1)),
	} {
		if ok, reply, err := client.SendRequest(hostKeysProve, true, payload); ok || len(reply) > 0 || err != nil {
			t.Errorf("%s: %v, %q, %v", name, ok, reply, err)
		}
	}
}

// fakeSession is an ssh.ConnMetadata that has only a session id.
type fakeSession struct{ ssh.ConnMetadata }

func (fakeSession) SessionID() []byte { return []byte("session") }

// TestOpenSSHLearnsRSAHostKeys: the proof of an RSA host key is signed with SHA-2, because OpenSSH accepts no
// SHA-1 signature.
func TestOpenSSHLearnsRSAHostKeys(t *testing.T) {
	t.Parallel()
	newRSA := func() ssh.Signer {
		private, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			t.Fatal(err)
		}
		key, err := ssh.NewSignerFromKey(private)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	for name, current := range map[string]ssh.Signer{"from ed25519": newHostKey(t), "from RSA": newRSA()} {
		for _, algorithms := range []string{"", "ssh-ed25519,rsa-sha2-256"} {
			t.Run(name+" "+algorithms, func(t *testing.T) {
				next := newRSA()
				b := newFixture(t, func(o *Options) { o.HostKeys = []ssh.Signer{current, next} })
				known := filepath.Join(b.dir, "known")
				line := knownhosts.Line([]string{"[127.0.0.1]:" + b.port}, current.PublicKey()) + "\n"
				if err := os.WriteFile(known, []byte(line), 0o600); err != nil {
					t.Fatal(err)
				}
				options := []string{"-o", "StrictHostKeyChecking=yes", "-o", "UpdateHostKeys=yes", "-R", "a:80:127.0.0.1:1"}
				if algorithms != "" {
					options = append(options, "-o", "HostKeyAlgorithms="+algorithms)
				}
				p := b.openssh(b.alice, append(options, "127.0.0.1")...)
				b.online("a")
				var text []byte
				learned := relaytest.Poll(30*time.Second, func() bool {
					text, _ = os.ReadFile(known)
					return strings.Contains(string(text), strings.TrimSpace(string(ssh.MarshalAuthorizedKey(next.PublicKey()))))
				})
				if !learned {
					t.Errorf("known hosts %q; ssh said %s", text, p.err)
				}
				_ = p.stdin.Close()
				_ = p.cmd.Process.Kill()
				<-p.exited
			})
		}
	}
}

func FuzzHostKeyProof(f *testing.F) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	key, err := ssh.NewSignerFromKey(private)
	if err != nil {
		f.Fatal(err)
	}
	srv := &Server{o: Options{HostKeys: []ssh.Signer{key}}}
	mine := ssh.Marshal(struct{ Key []byte }{key.PublicKey().Marshal()})
	f.Add(mine)
	f.Add(append(mine, mine...))
	f.Add(mine[:7])
	f.Fuzz(func(t *testing.T, payload []byte) {
		ok, reply := srv.proveHostKeys(fakeSession{}, payload)
		if ok != (len(reply) > 0) || ok && len(payload)%len(mine) != 0 {
			t.Errorf("%q: %v, %q", payload, ok, reply)
		}
	})
}
