package sshgate

import (
	"crypto/ed25519"
	"crypto/rand"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"relay/relaytest"
)

// TestRefusedLoginsAreTold: a login with an unknown key is written to the log and the audit log with its
// source and key; a flood of such logins writes few lines.
func TestRefusedLoginsAreTold(t *testing.T) {
	t.Parallel()
	var log relaytest.Buffer
	b := newFixture(t, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	fingerprint := ssh.FingerprintSHA256(stranger.PublicKey())
	if client, _, err := b.dial("root", ssh.PublicKeys(stranger, b.alice.signer)); err != nil {
		t.Fatal(err)
	} else {
		_ = client.Close()
	}
	if _, _, err := b.dial("root", ssh.PublicKeys(stranger)); err == nil {
		t.Fatal("let in")
	}
	told := func() bool { return strings.Contains(log.String(), "keys="+fingerprint) }
	relaytest.Until(t, 30*time.Second, "the line", told)
	if text := log.String(); !strings.Contains(text, `msg="ssh login refused" from=127.0.0.1:`) || !strings.Contains(text, "user=root client=Go ") {
		t.Errorf("the log: %s", text)
	}
	entries := func() []string {
		b.store.mu.Lock()
		defer b.store.mu.Unlock()
		return slices.Clone(b.store.refusedLogins)
	}
	relaytest.Until(t, 30*time.Second, "the entry, which is written after the line", func() bool { return len(entries()) > 0 })
	if list := entries(); len(list) != 1 || !strings.HasPrefix(list[0], fingerprint+" from 127.0.0.1:") || !strings.HasSuffix(list[0], " as root") {
		t.Errorf("the audit log: %v", list)
	}
	const many = 2 * refusedEntries
	for range many {
		_, _, _ = b.dial("root", ssh.PublicKeys(stranger))
	}
	if n := strings.Count(log.String(), "ssh login refused"); n > refusedLines+2 {
		t.Errorf("%d lines of %d logins", n, many)
	}
	if n := len(entries()); n > refusedEntries+2 {
		t.Errorf("%d entries of %d logins", n, many)
	}
}

// TestNoCommonAlgorithm: a client that has no algorithm in common with relayd causes a log line with
// the algorithms of both sides, because the client itself often shows no reason.
func TestNoCommonAlgorithm(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		config ssh.ClientConfig
		want   string
	}{
		"key exchange": {ssh.ClientConfig{Config: ssh.Config{KeyExchanges: []string{ssh.KeyExchangeECDHP256}}}, ssh.KeyExchangeECDHP256},
		"host key":     {ssh.ClientConfig{HostKeyAlgorithms: []string{ssh.KeyAlgoRSASHA256}}, ssh.KeyAlgoRSASHA256},
		"cipher":       {ssh.ClientConfig{Config: ssh.Config{Ciphers: []string{ssh.InsecureCipherAES128CBC}}}, ssh.InsecureCipherAES128CBC},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log relaytest.Buffer
			b := newFixture(t, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
			tc.config.HostKeyCallback, tc.config.User = ssh.InsecureIgnoreHostKey(), "relay"
			tcp, err := net.Dial("tcp", b.ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer tcp.Close()
			if _, _, _, err := ssh.NewClientConn(tcp, b.ln.Addr().String(), &tc.config); err == nil {
				t.Fatal("they agree")
			}
			relaytest.Until(t, 30*time.Second, "the line", func() bool {
				return strings.Contains(log.String(), "without a common algorithm") && strings.Contains(log.String(), "from=127.0.0.1:") &&
					strings.Contains(log.String(), tc.want)
			})
		})
	}
}
