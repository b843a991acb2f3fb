package sshgate

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

func TestSilentPeerIsClosed(t *testing.T) {
	t.Parallel()
	patient := newFixture(t)
	greeted, err := net.Dial("tcp", "127.0.0.1:"+patient.port)
	if err != nil {
		t.Fatal(err)
	}
	defer greeted.Close()
	if line, err := bufio.NewReader(greeted).ReadString('\n'); line != "SSH-2.0-relayd\r\n" {
		t.Errorf("version line %q, %v", line, err)
	}
	b := newFixture(t, func(o *Options) { o.HandshakeTimeout = 300 * time.Millisecond })
	for name, words := range map[string]string{"silent": "", "version only": "SSH-2.0-x\r\n", "no SSH": "GET / HTTP/1.1\r\n\r\n"} {
		c, err := net.Dial("tcp", "127.0.0.1:"+b.port)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write([]byte(words))
		_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
		if _, err := io.Copy(io.Discard, c); err != nil && strings.Contains(err.Error(), "timeout") {
			t.Errorf("%s: still open", name)
		}
		c.Close()
	}
	eventually(t, 30*time.Second, "connections forgotten", func() bool { return len(b.srv.all()) == 0 })
}

func TestAlgorithms(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	for name, change := range map[string]func(*ssh.ClientConfig){
		"plain hmac":  func(c *ssh.ClientConfig) { c.Ciphers, c.MACs = []string{ssh.CipherAES128CTR}, []string{ssh.HMACSHA256} },
		"nist curves": func(c *ssh.ClientConfig) { c.KeyExchanges = []string{ssh.KeyExchangeECDHP256} },
	} {
		c := &ssh.ClientConfig{User: "x", Auth: []ssh.AuthMethod{ssh.PublicKeys(b.alice.signer)}, HostKeyCallback: ssh.InsecureIgnoreHostKey()}
		change(c)
		if client, err := ssh.Dial("tcp", "127.0.0.1:"+b.port, c); err == nil {
			client.Close()
			t.Errorf("%s was accepted", name)
		}
	}
}

func TestHostKey(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := LoadHostKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	second, err := LoadHostKey(dir)
	if err != nil || !bytes.Equal(first.PublicKey().Marshal(), second.PublicKey().Marshal()) {
		t.Errorf("second load: another key, or %v", err)
	}
	path := filepath.Join(dir, "ssh_host_ed25519_key")
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if err := os.WriteFile(path, []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadHostKey(dir); err == nil {
		t.Error("a broken host key was replaced")
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 1 {
		t.Errorf("files %v", left)
	}
}

// TestHostKeyAfterKill: files left by a killed process with the same process id, as in a container, do not
// prevent the next process from creating a host key.
func TestHostKeyAfterKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	draft := filepath.Join(dir, fmt.Sprintf("%s.%d", HostKeyFile, os.Getpid()))
	if err := os.WriteFile(draft, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadHostKey(dir); err != nil {
		t.Error(err)
	}
}
