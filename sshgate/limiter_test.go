package sshgate

import (
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// TestSilentSocketsKeepNobodyOut: a login succeeds while a thousand silent connections from the same address
// are open.
func TestSilentSocketsKeepNobodyOut(t *testing.T) {
	t.Parallel()
	b := newFixture(t, func(o *Options) { o.MaxUnauthenticated = 200 })
	for n := range 1000 {
		c, err := net.Dial("tcp", "127.0.0.1:"+b.port)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if n%3 == 0 {
			_, _ = c.Write([]byte("SSH-2.0-x\r\n"))
		}
	}
	eventually(t, 30*time.Second, "all accepted", func() bool { return b.srv.Stats().Accepted == 1000 })
	began := time.Now()
	client, _, err := b.dial("x", ssh.PublicKeys(b.alice.signer))
	if err != nil {
		t.Fatal(err)
	}
	// The test also opens a session, because the silent peers must not hold a lock that connections need after
	// their login.
	session, err := client.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := session.Output("whoami"); err != nil || string(out) != "alice\n" {
		t.Errorf("whoami: %q, %v", out, err)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("the login took %v", took)
	}
	eventually(t, 30*time.Second, "bounded", func() bool { s := b.srv.Stats(); return s.Handshaking <= 200 && s.Dropped > 0 })
}

// TestAccountLimit: one account cannot use all slots, and its slots become free when its connections end.
func TestAccountLimit(t *testing.T) {
	t.Parallel()
	b := newFixture(t, func(o *Options) { o.MaxPerAccount = 2 })
	first := b.mustDial(b.alice)
	b.mustDial(b.newKey("alice", 1))
	_, banner, err := b.dial("x", ssh.PublicKeys(b.alice.signer))
	if err == nil || !strings.Contains(banner, "this account has too many connections open") {
		t.Errorf("a third one: %v, %q", err, banner)
	}
	b.mustDial(b.newKey("bob", 2))
	first.Close()
	eventually(t, 30*time.Second, "a free slot", func() bool {
		client, _, err := b.dial("x", ssh.PublicKeys(b.alice.signer))
		if err == nil {
			client.Close()
		}
		return err == nil
	})
}
