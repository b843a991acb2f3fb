package sshgate

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"relay"
)

// dial logs in with x/crypto. It returns the client and the text that relayd showed before the login.
func (b *fixture) dial(user string, methods ...ssh.AuthMethod) (*ssh.Client, string, error) {
	b.t.Helper()
	var banner strings.Builder
	client, err := ssh.Dial("tcp", "127.0.0.1:"+b.port, &ssh.ClientConfig{
		User: user, Auth: methods, HostKeyCallback: ssh.InsecureIgnoreHostKey(),
		BannerCallback: func(text string) error { banner.WriteString(text); return nil },
		Timeout:        60 * time.Second,
	})
	if err == nil {
		b.t.Cleanup(func() { client.Close() })
	}
	return client, banner.String(), err
}

func (b *fixture) mustDial(k key) *ssh.Client {
	b.t.Helper()
	client, _, err := b.dial("relay", ssh.PublicKeys(k.signer))
	if err != nil {
		b.t.Fatalf("login: %v", err)
	}
	return client
}

// countingStore counts the lookups of logins. If the function then is set, it is called after the first KeyOwner.
type countingStore struct {
	*fakeStore
	owners, aliases atomic.Int64
	then            func()
}

func (s *countingStore) KeyOwner(ctx context.Context, fingerprint string) (relay.Actor, error) {
	if s.owners.Add(1) == 1 && s.then != nil {
		defer s.then()
	}
	return s.fakeStore.KeyOwner(ctx, fingerprint)
}

func (s *countingStore) Aliases(ctx context.Context, who relay.Actor) ([]relay.Alias, error) {
	s.aliases.Add(1)
	return s.fakeStore.Aliases(ctx, who)
}

// TestLoginAsksLittle: a login makes few store lookups, because a thousand clients may log in at once after a
// restart. If rights change between the offer and the proof of a key, its owner is looked up again.
func TestLoginAsksLittle(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		version         string
		change          bool
		owners, aliases int64
	}{
		"ssh":            {"SSH-2.0-OpenSSH_9.9", false, 1, 1},
		"relay":          {"SSH-2.0-relay_1.0", false, 1, 0},
		"rights changed": {"SSH-2.0-relay_1.0", true, 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var store *countingStore
			b := newFixture(t, func(o *Options) {
				store = &countingStore{fakeStore: o.Accounts.(*fakeStore)}
				o.Accounts = store
			})
			if c.change {
				store.then = func() { b.srv.Publish([]relay.Change{{Kind: relay.ChangeAccount}}) }
			}
			client, err := ssh.Dial("tcp", "127.0.0.1:"+b.port, &ssh.ClientConfig{
				User: "relay", Auth: []ssh.AuthMethod{ssh.PublicKeys(b.alice.signer)}, ClientVersion: c.version,
				HostKeyCallback: ssh.InsecureIgnoreHostKey(),
			})
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			if owners, aliases := store.owners.Load(), store.aliases.Load(); owners != c.owners || aliases != c.aliases {
				t.Errorf("asked %d times for the owner and %d times for the aliases; want %d and %d", owners, aliases, c.owners, c.aliases)
			}
		})
	}
}

func TestNoneIsRefused(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	if _, _, err := b.dial("alice"); err == nil {
		t.Fatal("logged in without any proof")
	}
}

func TestPasswordIsRefused(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	asked := false
	_, _, err := b.dial("alice", ssh.PasswordCallback(func() (string, error) { asked = true; return "alice", nil }))
	if err == nil || asked {
		t.Fatalf("password login: %v, asked %v", err, asked)
	}
}

func TestUnknownKeyIsTold(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	stranger := b.newKey("stranger", 0)
	p := b.openssh(stranger, "-N", "-R", "a:80:127.0.0.1:1", "127.0.0.1")
	if code := p.code(t); code != 255 {
		t.Errorf("exit %d, want 255", code)
	}
	fp := ssh.FingerprintSHA256(stranger.signer.PublicKey())
	got := p.err.String()
	if strings.Count(got, fp+" is not registered") != 1 || strings.Count(got, "you come from 127.0.0.1") != 1 ||
		!strings.Contains(got, "http://relay.example.test:8080/account") || !strings.Contains(got, "ssh -p 2222 link@relay.example.test") {
		t.Errorf("stderr %q, want %s once and an address", got, fp)
	}
	if p := b.dropbear(stranger, "-N", "-R", "a:80:127.0.0.1:1", "x@127.0.0.1"); p.code(t) == 0 || !contains(p.err, fp) {
		t.Errorf("dropbear: %s", p.err)
	}
	if p := b.plink(stranger, "-N", "-R", "a:80:127.0.0.1:1", "x@127.0.0.1"); p.code(t) != 1 || !contains(p.err, fp) {
		t.Errorf("plink: %s", p.err)
	}
}

// TestAgentWithManyKeys: a login succeeds if one key of eight is right, and the client gets no message about
// the other keys.
func TestAgentWithManyKeys(t *testing.T) {
	t.Parallel()
	for _, right := range []int{3, 7, 8} {
		b := newFixture(t)
		agentSocket := b.agent(right, 8)
		p := b.run(need(t, "ssh", "openssh-client"), "-F", "/dev/null", "-p", b.port, "-o", "IdentityAgent="+agentSocket,
			"-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "x@127.0.0.1", "whoami")
		if code := p.code(t); code != 0 || p.out.String() != "alice\n" {
			t.Fatalf("key %d: exit %d, %q", right, code, p.out)
		}
		if contains(p.err, "not registered") {
			t.Errorf("key %d: told about an unknown key: %s", right, p.err)
		}
	}
}

// TestLastTryIsTold: a client that only has unknown keys gets a message about them before it is disconnected.
func TestLastTryIsTold(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	var signers []ssh.Signer
	for range maxAuthTries + 2 {
		signers = append(signers, b.newKey("stranger", 0).signer)
	}
	_, banner, err := b.dial("x", ssh.PublicKeys(signers...))
	if err == nil || strings.Count(banner, "not registered") != maxAuthTries {
		t.Errorf("%v, banner %q", err, banner)
	}
}

// agent starts an SSH agent. It has as many keys as count says, numbered from 1, and the key whose number is
// right belongs to alice.
func (b *fixture) agent(right, count int) (socket string) {
	b.t.Helper()
	ring := agent.NewKeyring()
	for i := 1; i <= count; i++ {
		k := b.alice
		if i != right {
			k = b.newKey("stranger", 0)
		}
		text, err := os.ReadFile(k.path)
		if err != nil {
			b.t.Fatal(err)
		}
		private, err := ssh.ParseRawPrivateKey(text)
		if err != nil {
			b.t.Fatal(err)
		}
		if err := ring.Add(agent.AddedKey{PrivateKey: private}); err != nil {
			b.t.Fatal(err)
		}
	}
	socket = filepath.Join(b.dir, "agent")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		b.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_ = agent.ServeAgent(ring, c)
			c.Close()
		}
	}()
	b.t.Cleanup(func() {
		ln.Close()
		<-done
	})
	return socket
}

// TestOfferedKeyIsNoIdentity: if a client offers alice's public key without proof and then logs in with
// mallory's key, it is logged in as mallory.
func TestOfferedKeyIsNoIdentity(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	b.store.alias("alices", 1)
	mallory := b.newKey("mallory", 2)
	// A signature by another key is not a proof.
	if _, _, err := b.dial("alice", ssh.PublicKeys(swapped{b.alice.signer.PublicKey(), mallory.signer})); err == nil {
		t.Fatal("logged in as alice with a signature of mallory's")
	}
	// OpenSSH has the public half of alice's key, and both halves of mallory's.
	half := filepath.Join(b.dir, "half")
	pub, _ := os.ReadFile(b.alice.path + ".pub")
	if err := os.WriteFile(half+".pub", pub, 0o600); err != nil {
		t.Fatal(err)
	}
	p := b.run(need(t, "ssh", "openssh-client"), "-F", "/dev/null", "-p", b.port, "-i", half+".pub", "-i", mallory.path,
		"-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
		"alice@127.0.0.1", "whoami")
	if code := p.code(t); code != 0 || p.out.String() != "mallory\n" {
		t.Errorf("exit %d, whoami %q, want mallory", code, p.out)
	}
}

// swapped claims one public key and signs with another.
type swapped struct {
	public ssh.PublicKey
	ssh.Signer
}

func (s swapped) PublicKey() ssh.PublicKey { return s.public }

// TestUserNameIsNoIdentity: the account depends only on the key. If the user name is an alias, the account
// must have access to it.
func TestUserNameIsNoIdentity(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	b.store.claiming = false
	b.store.alias("alices", 1)
	mallory := b.newKey("mallory", 2)
	for _, user := range []string{"alice", "alices", "admin"} {
		client, _, err := b.dial(user, ssh.PublicKeys(mallory.signer))
		if err != nil {
			t.Fatal(err)
		}
		ok, payload, err := client.SendRequest("tcpip-forward", true, ssh.Marshal(forwardRequest{"", 80}))
		if ok || len(payload) != 0 || err != nil {
			t.Errorf("user %s: forward %v, payload %q, %v", user, ok, payload, err)
		}
	}
	if got := b.store.state("alices"); got != relay.TunnelNever {
		t.Errorf("alice's alias is %s", got)
	}
}

// TestUserNameChangeBetweenAttempts: if a refused attempt names one user, and the next attempt on the same
// connection names another user and succeeds, only the second user name counts.
func TestUserNameChangeBetweenAttempts(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	b.store.claiming = false
	b.store.alias("alices00", 1)
	b.store.alias("mallory0", 2)
	mallory, stranger := b.newKey("mallory", 2), b.newKey("stranger", 0)
	// The client of x/crypto cannot change its user name, so the test changes the bytes of the string.
	name := []byte("alices00")
	first := shifting{stranger.signer, func() { copy(name, "alices00") }}
	second := shifting{mallory.signer, func() { copy(name, "mallory0") }}
	client, _, err := b.dial(unsafe.String(&name[0], len(name)), ssh.PublicKeys(first, second))
	if err != nil {
		t.Fatal(err)
	}
	if ok, _, err := client.SendRequest("tcpip-forward", true, ssh.Marshal(forwardRequest{"localhost", 80})); !ok || err != nil {
		t.Fatalf("forward: %v, %v", ok, err)
	}
	eventually(t, 30*time.Second, "mallory's own alias online", func() bool { return b.store.state("mallory0") == relay.TunnelOnline })
	if got := b.store.state("alices00"); got != relay.TunnelNever {
		t.Errorf("alice's alias is %s", got)
	}
}

// shifting is a signer that calls a function, its field before, each time x/crypto reads the public key, as when it
// offers the key.
type shifting struct {
	ssh.Signer
	before func()
}

func (s shifting) PublicKey() ssh.PublicKey {
	s.before()
	return s.Signer.PublicKey()
}

func TestWeakRSAIsRefused(t *testing.T) {
	for _, bits := range []int{1024, 2048} {
		b := newFixture(t)
		path := filepath.Join(b.dir, "rsa")
		// OpenSSH makes no keys of 1024 bits any more, and Go needs this setting to make one.
		t.Setenv("GODEBUG", "rsa1024min=0")
		private, err := rsa.GenerateKey(rand.Reader, bits)
		if err != nil {
			t.Fatal(err)
		}
		block, err := ssh.MarshalPrivateKey(private, "")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		signer, err := ssh.NewSignerFromKey(private)
		if err != nil {
			t.Fatal(err)
		}
		b.store.mu.Lock()
		b.store.keys[ssh.FingerprintSHA256(signer.PublicKey())] = b.alice.actor
		b.store.mu.Unlock()
		_, banner, err := b.dial("x", ssh.PublicKeys(signer), ssh.KeyboardInteractive(
			func(string, string, []string, []bool) ([]string, error) { return nil, nil }))
		if want := bits >= 2048; (err == nil) != want {
			t.Errorf("RSA of %d bits: %v", bits, err)
		} else if !want && !strings.Contains(banner, "it has 1024 bits") {
			t.Errorf("banner %q", banner)
		}
	}
}

func TestStoreDownRefusesWithWords(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	b.store.mu.Lock()
	b.store.down = true
	b.store.mu.Unlock()
	_, banner, err := b.dial("x", ssh.PublicKeys(b.alice.signer))
	if err == nil || !strings.Contains(banner, "cannot be looked up right now") || strings.Contains(banner, "not registered") {
		t.Errorf("%v, banner %q", err, banner)
	}
}

func TestGreeting(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	a := b.store.alias("stripe-dev", 1)
	b.store.queue(a, 3)
	for _, p := range []*process{
		b.openssh(b.alice, "-N", "-R", "stripe-dev:80:127.0.0.1:1", "x@127.0.0.1"),
		b.dropbear(b.alice, "-N", "-R", "stripe-dev:80:127.0.0.1:1", "x@127.0.0.1"),
		b.plink(b.alice, "-N", "-R", "stripe-dev:80:127.0.0.1:1", "x@127.0.0.1"),
	} {
		eventually(t, 30*time.Second, "greeting", func() bool {
			return contains(p.err, "hello alice") && contains(p.err, "http://stripe-dev.example.test:8080") &&
				contains(p.err, "3 events queued while offline")
		})
	}
}
