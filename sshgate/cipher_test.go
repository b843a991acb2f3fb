package sshgate

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"relay/link"
)

// TestCiphersOfClients: a client that supports AES-GCM uses AES-GCM, even if it prefers another cipher. A
// client that supports only CTR still logs in.
func TestCiphersOfClients(t *testing.T) {
	t.Parallel()
	if !link.HasAES() {
		t.Log("this CPU has no AES: the order of the clients holds, and only that they log in is tested")
	}
	b := newFixture(t)
	for name, c := range map[string]struct {
		options []string
		want    string
	}{
		"own order": {nil, "aes(128|256)-gcm@openssh.com"},
		"CTR only":  {[]string{"-o", "Ciphers=aes256-ctr"}, "aes256-ctr"},
		"chacha20":  {[]string{"-o", "Ciphers=chacha20-poly1305@openssh.com"}, "chacha20-poly1305@openssh.com"},
		"both":      {[]string{"-o", "Ciphers=aes256-ctr,aes256-gcm@openssh.com"}, "aes256-gcm@openssh.com"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := b.openssh(b.alice, append(append([]string{"-v"}, c.options...), "relay@127.0.0.1", "whoami")...)
			select {
			case <-p.exited:
			case <-time.After(30 * time.Second):
				t.Fatalf("ssh does not end: %s", p.err)
			}
			if !strings.Contains(p.out.String(), "alice") {
				t.Fatalf("ssh printed %q and said %s", p.out, p.err)
			}
			used := regexp.MustCompile(`kex: client->server cipher: (\S+)`).FindStringSubmatch(p.err.String())
			if used == nil || link.HasAES() && !regexp.MustCompile("^"+c.want+"$").MatchString(used[1]) {
				t.Errorf("%v, want %s", used, c.want)
			}
		})
	}
}
