package sshgate

import (
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
)

// clients has, by the name of a real client, a function that starts it with a forward of stripe-dev to a
// local port.
var clients = map[string]func(b *fixture, k key, port string) *process{
	"openssh": func(b *fixture, k key, port string) *process {
		return b.openssh(k, "-N", "-R", "Stripe-Dev:80:127.0.0.1:"+port, "relay@127.0.0.1")
	},
	"dropbear": func(b *fixture, k key, port string) *process {
		return b.dropbear(k, "-N", "-R", "stripe-dev:80:127.0.0.1:"+port, "relay@127.0.0.1")
	},
	"plink": func(b *fixture, k key, port string) *process {
		return b.plink(k, "-N", "-R", "stripe-dev:80:127.0.0.1:"+port, "relay@127.0.0.1")
	},
}

func (b *fixture) dropbear(k key, args ...string) *process {
	b.t.Helper()
	converted := k.path + ".dropbear"
	if out, err := exec.Command(need(b.t, "dropbearconvert", "dropbear-bin"), "openssh", "dropbear", k.path, converted).CombinedOutput(); err != nil {
		b.t.Fatalf("dropbearconvert: %v: %s", err, out)
	}
	return b.run(need(b.t, "dbclient", "dropbear-bin"), append([]string{"-y", "-y", "-i", converted, "-p", b.port}, args...)...)
}

func (b *fixture) plink(k key, args ...string) *process {
	b.t.Helper()
	converted := k.path + ".ppk"
	if out, err := exec.Command(need(b.t, "puttygen", "putty-tools"), k.path, "-O", "private", "-o", converted).CombinedOutput(); err != nil {
		b.t.Fatalf("puttygen: %v: %s", err, out)
	}
	host, err := LoadHostKey(b.dir)
	if err != nil {
		b.t.Fatal(err)
	}
	return b.run(need(b.t, "plink", "putty-tools"), append([]string{
		"-batch", "-hostkey", ssh.FingerprintSHA256(host.PublicKey()), "-i", converted, "-P", b.port,
	}, args...)...)
}

const bulk = 5 << 20

// bulkServer returns a local server that reads as many bytes as the constant bulk says. It responds with their
// SHA-256 hash and then with answer.
func bulkServer(answer []byte) func(net.Conn) {
	return func(c net.Conn) {
		sum := sha256.New()
		if _, err := io.CopyN(sum, c, bulk); err != nil {
			return
		}
		_, _ = c.Write(sum.Sum(nil))
		_, _ = c.Write(answer)
	}
}

func random(n int, seed uint64) []byte {
	p := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(seed)}).Read(p)
	return p
}

func TestRealClientsCarryBulk(t *testing.T) {
	up, down := random(bulk, 1), random(bulk, 2)
	for name, start := range clients {
		t.Run(name, func(t *testing.T) {
			b := newFixture(t)
			start(b, b.alice, b.local(bulkServer(down)))
			ch := open(t, b.online("stripe-dev"))
			defer ch.Close()
			began := time.Now()
			if n, err := ch.Write(up); n != len(up) || err != nil {
				t.Fatalf("write: %d, %v", n, err)
			}
			got, err := readAll(t, ch)
			if err != io.EOF || len(got) != sha256.Size+bulk {
				t.Fatalf("read %d bytes, %v", len(got), err)
			}
			t.Logf("%d MiB up and down in %v", bulk>>20, time.Since(began))
			if want := sha256.Sum256(up); [32]byte(got[:32]) != want {
				t.Error("what went up was changed")
			}
			if sha256.Sum256(got[32:]) != sha256.Sum256(down) {
				t.Error("what came down was changed")
			}
		})
	}
}

func TestRealClientsReportRefusedDial(t *testing.T) {
	for name, start := range clients {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
			start(b, b.alice, deafPort(t))
			tun := b.online("stripe-dev")
			ch, err := tun.Open(t.Context(), origin)
			if name == "plink" { // unlike the other clients, plink confirms a channel whose local server cannot be reached, and then closes it
				if err != nil {
					t.Fatalf("open: %v", err)
				}
				defer ch.Close()
				if got, err := readAll(t, ch); len(got) != 0 || err != io.EOF {
					t.Errorf("got %q, %v", got, err)
				}
				if e := ch.End(time.Second).Refusal; e != nil {
					t.Errorf("refusal %v, want none", e)
				}
				return
			}
			if e := relay.AsError(err); err == nil || e.Code != relay.CodeLocalRefused {
				t.Errorf("open: %v, want %s", err, relay.CodeLocalRefused)
			}
			if b.store.state("stripe-dev") != relay.TunnelOnline {
				t.Error("a local server that is down took the tunnel offline")
			}
		})
	}
}

// deafPort returns a loopback port that refuses every connection. The port is reserved until the end of the
// test, so no other program can listen there.
func deafPort(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(name.(*syscall.SockaddrInet4).Port)
}

func TestUnresolvableTarget(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	b.openssh(b.alice, "-N", "-R", "stripe-dev:80:no-such-host.invalid:80", "127.0.0.1")
	_, err := b.online("stripe-dev").Open(t.Context(), origin)
	if relay.AsError(err) == nil || relay.AsError(err).Code != relay.CodeLocalUnresolvable {
		t.Errorf("open: %v, want %s", err, relay.CodeLocalUnresolvable)
	}
}

// TestSpellings tries the forms in which a user of OpenSSH can name an alias in -R. For each form, relayd must open
// channels with the bind address and port that OpenSSH expects, because OpenSSH refuses any others.
func TestSpellings(t *testing.T) {
	for _, c := range []struct{ name, user, forward, alias string }{
		{"bind", "relay", "stripe-dev:80", "stripe-dev"},
		{"capitals", "relay", "Stripe-DEV:8080", "stripe-dev"},
		{"trailing dot", "relay", "stripe-dev.:80", "stripe-dev"},
		{"full name", "relay", "stripe-dev.Example.Test:80", "stripe-dev"},
		{"full name with dot", "relay", "stripe-dev.example.test.:80", "stripe-dev"},
		{"user", "stripe-dev", "80", "stripe-dev"},
		{"user in capitals, star", "Stripe-Dev", "*:80", "stripe-dev"},
		{"user, any address", "stripe-dev", "0.0.0.0:80", "stripe-dev"},
		{"user, IPv6", "stripe-dev", "[::]:80", "stripe-dev"},
		{"port 0", "relay", "stripe-dev:0", "stripe-dev"},
		{"only alias", "root", "80", "only"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
			if c.alias == "only" {
				b.store.alias("only", 1)
			}
			port := b.local(greetingServer)
			p := b.openssh(b.alice, "-N", "-o", "ExitOnForwardFailure=yes",
				"-R", c.forward+":127.0.0.1:"+port, c.user+"@127.0.0.1")
			ask(t, b.online(c.alias))
			if c.name == "port 0" {
				eventually(t, 30*time.Second, "allocated port", func() bool {
					return contains(p.err, "Allocated port 80 for remote forward")
				})
			}
		})
	}
}

func TestPortZeroWithDropbear(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	b.dropbear(b.alice, "-N", "-R", "stripe-dev:0:127.0.0.1:"+b.local(greetingServer), "relay@127.0.0.1")
	ask(t, b.online("stripe-dev"))
}

func TestSeveralForwardsReachTheirOwnTargets(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	args := []string{"-N"}
	for _, name := range []string{"a", "b", "c"} {
		port := b.local(func(c net.Conn) {
			_, _ = c.Read(make([]byte, 8))
			_, _ = io.WriteString(c, name)
		})
		args = append(args, "-R", name+":80:127.0.0.1:"+port)
	}
	b.openssh(b.alice, append(args, "127.0.0.1")...)
	for _, name := range []string{"a", "b", "c"} {
		ch := open(t, b.online(name))
		_, _ = ch.Write([]byte("x"))
		if got, _ := readAll(t, ch); string(got) != name {
			t.Errorf("alias %s answered %q", name, got)
		}
		ch.Close()
	}
}

func TestControlMasterForwardAndCancel(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	port := b.local(greetingServer)
	socket := filepath.Join(b.dir, "mux")
	b.openssh(b.alice, "-N", "-M", "-S", socket, "-R", "keep:80:127.0.0.1:"+port, "relay@127.0.0.1")
	b.online("keep")
	// The master process of OpenSSH requests its forwards before it creates its socket.
	eventually(t, 30*time.Second, "socket of the master", func() bool { _, err := os.Stat(socket); return err == nil })
	if code := b.openssh(b.alice, "-S", socket, "-O", "forward", "-R", "more:80:127.0.0.1:"+port, "relay@127.0.0.1").code(t); code != 0 {
		t.Fatalf("-O forward: exit %d", code)
	}
	ask(t, b.online("more"))
	if code := b.openssh(b.alice, "-S", socket, "relay@127.0.0.1", "version").code(t); code != 0 {
		t.Fatalf("command through the master: exit %d", code)
	}
	if code := b.openssh(b.alice, "-S", socket, "-O", "cancel", "-R", "more:80:127.0.0.1:"+port, "relay@127.0.0.1").code(t); code != 0 {
		t.Fatalf("-O cancel: exit %d", code)
	}
	eventually(t, 30*time.Second, "more offline", func() bool { return b.store.state("more") == relay.TunnelOffline })
	ask(t, b.online("keep"))
}

func TestRekeyKeepsBodies(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	up, down := random(bulk, 3), random(bulk, 4)
	b.openssh(b.alice, "-N", "-o", "RekeyLimit=1M", "-R", "stripe-dev:80:127.0.0.1:"+b.local(bulkServer(down)), "127.0.0.1")
	ch := open(t, b.online("stripe-dev"))
	defer ch.Close()
	if _, err := ch.Write(up); err != nil {
		t.Fatal(err)
	}
	got, err := readAll(t, ch)
	if err != io.EOF || len(got) != 32+bulk || sha256.Sum256(up) != [32]byte(got[:32]) || sha256.Sum256(got[32:]) != sha256.Sum256(down) {
		t.Errorf("%d bytes, %v, or changed", len(got), err)
	}
}
