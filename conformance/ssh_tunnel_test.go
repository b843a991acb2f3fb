package conformance

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/crypto/ssh"

	"relay/relaytest"
)

// sshArgs are the options that OpenSSH's client needs in a test.
func (r *relayServer) sshArgs() []string {
	host, port, _ := net.SplitHostPort(r.ssh)
	return []string{
		"-F", "none", "-i", r.key, "-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=accept-new",
		"-o", "UserKnownHostsFile=" + filepath.Join(r.dir, "known_hosts"), "-o", "LogLevel=ERROR",
		"-o", "ExitOnForwardFailure=yes", "-p", port, host,
	}
}

// tunnel starts a client that forwards alias to a local address and waits until the alias is online.
func (r *relayServer) tunnel(alias, target string) *relaytest.Process {
	r.t.Helper()
	args := append([]string{"-N", "-R", alias + ":80:" + target}, r.sshArgs()...)
	return r.client(alias, "ssh", args...)
}

func (r *relayServer) client(alias, name string, args ...string) *relaytest.Process {
	r.t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = r.env()
	p := relaytest.Start(r.t, cmd)
	r.waitFor(15*time.Second, alias+" to be online", func() bool {
		if p.HasEnded() {
			r.t.Fatalf("%s ended: %s", name, p.Out)
		}
		return r.online(alias)
	})
	return p
}

// newToken creates a token for the account of a key, over SSH, because that needs no other process.
func (r *relayServer) newToken(keyFile string) (token, id string) {
	r.t.Helper()
	text, err := os.ReadFile(keyFile)
	if err != nil {
		r.t.Fatal(err)
	}
	signer, err := ssh.ParsePrivateKey(text)
	if err != nil {
		r.t.Fatal(err)
	}
	client, err := ssh.Dial("tcp", r.ssh, &ssh.ClientConfig{
		User: "relay", Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)}, HostKeyCallback: ssh.InsecureIgnoreHostKey(),
	})
	if err != nil {
		r.t.Fatalf("log in for a token: %v", err)
	}
	defer client.Close()
	session, err := client.NewSession()
	if err != nil {
		r.t.Fatal(err)
	}
	out, err := session.Output("token --name test --json")
	if err != nil {
		r.t.Fatalf("ssh token: %v", err)
	}
	var made struct{ Token, ID string }
	r.decode(out, &made)
	return made.Token, made.ID
}

// dial opens a raw connection to relayd's HTTP listener.
func (r *relayServer) dial() net.Conn {
	r.t.Helper()
	c, err := net.Dial("tcp", r.http)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(60 * time.Second))
	return c
}

// readAnswer reads exactly want bytes. After that it expects the end of the connection if closes is set,
// otherwise no further byte. On an open connection, it misses an extra byte that arrives more than 40 ms
// after the answer.
func readAnswer(c net.Conn, want int, closes bool) ([]byte, error) {
	b := make([]byte, want)
	n, err := io.ReadFull(c, b)
	if err != nil {
		return b[:n], err
	}
	if !closes {
		_ = c.SetReadDeadline(time.Now().Add(40 * time.Millisecond))
	}
	extra, err := io.ReadAll(c)
	switch kept := errors.Is(err, os.ErrDeadlineExceeded); {
	case closes && err != nil:
		err = fmt.Errorf("the connection does not end behind its answer: %w", err)
	case !closes && kept:
		err = nil
	case !closes && err == nil:
		err = errors.New("the connection ends behind an answer that keeps it")
	}
	return append(b, extra...), err
}
