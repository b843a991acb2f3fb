package conformance

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// freeAddr gives an address where nobody listens. It is below the ports that the
// system gives to connections: one of those could take it before its user does.
func freeAddr(t *testing.T) string {
	t.Helper()
	for range 1000 {
		n, err := rand.Int(rand.Reader, big.NewInt(20_000))
		if err != nil {
			t.Fatal(err)
		}
		addr := fmt.Sprintf("127.0.0.1:%d", 10_000+n.Int64())
		if _, given := given.LoadOrStore(addr, true); given {
			continue
		}
		if ln, err := net.Listen("tcp", addr); err == nil {
			_ = ln.Close()
			return addr
		}
	}
	t.Fatal("found no free port")
	return ""
}

// given are the addresses that freeAddr gave.
var given sync.Map

func writeKey(t *testing.T, file string) {
	t.Helper()
	pub, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(priv, "")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewPublicKey(pub)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file+".pub", ssh.MarshalAuthorizedKey(signer), 0o600); err != nil {
		t.Fatal(err)
	}
}

// sshArgs are the options that make OpenSSH's client fit for a test.
func (r *rig) sshArgs() []string {
	host, port, _ := net.SplitHostPort(r.ssh)
	return []string{
		"-F", "none", "-i", r.key, "-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=accept-new",
		"-o", "UserKnownHostsFile=" + filepath.Join(r.dir, "known_hosts"), "-o", "LogLevel=ERROR",
		"-o", "ExitOnForwardFailure=yes", "-p", port, host,
	}
}

// tunnel runs a client that forwards alias to a local address and waits until the
// alias is online.
func (r *rig) tunnel(alias, target string) *exec.Cmd {
	r.t.Helper()
	args := append([]string{"-N", "-R", alias + ":80:" + target}, r.sshArgs()...)
	return r.client(alias, "ssh", args...)
}

func (r *rig) client(alias, name string, args ...string) *exec.Cmd {
	r.t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = r.env()
	out := &syncBuffer{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		r.t.Fatalf("start %s: %v", name, err)
	}
	gone := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(gone)
	}()
	r.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-gone
	})
	r.waitFor(15*time.Second, alias+" to be online", func() bool {
		select {
		case <-gone:
			r.t.Fatalf("%s ended: %s", name, out.String())
		default:
		}
		var a struct{ Online bool }
		status, body := r.api("GET", "/aliases/"+alias, nil)
		return status == 200 && json.Unmarshal(body, &a) == nil && a.Online
	})
	return cmd
}

// dial opens a raw connection to the alias listener.
func (r *rig) dial() net.Conn {
	r.t.Helper()
	c, err := net.Dial("tcp", r.http)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(60 * time.Second))
	return c
}

// readAll reads exactly want bytes and then whatever else arrives within a moment.
func readAll(c net.Conn, want int) ([]byte, error) {
	b := make([]byte, want)
	n, err := io.ReadFull(c, b)
	if err != nil {
		return b[:n], err
	}
	_ = c.SetReadDeadline(time.Now().Add(40 * time.Millisecond))
	extra, err := io.ReadAll(c)
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
		err = nil
	}
	return append(b, extra...), err
}
