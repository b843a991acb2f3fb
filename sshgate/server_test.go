package sshgate

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/crypto/ssh"

	"relay"
	"relay/link"
)

// TestMain checks for leaked goroutines after the last test. Ending goroutines get some time, for a busy
// machine.
func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		left := goleak.IgnoreAnyFunction("golang.org/x/crypto/ssh.(*mux).openChannel") // such calls may never return; see calls_test.go
		err := goleak.Find(left)
		for until := time.Now().Add(30 * time.Second); err != nil && time.Now().Before(until); {
			err = goleak.Find(left)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// fixture is a server on a loopback port with a fake store.
type fixture struct {
	t     testing.TB
	store *fakeStore
	srv   *Server
	ln    *net.TCPListener
	port  string
	dir   string
	alice key
}

// key is the key of a client, in every file format that the clients need.
type key struct {
	signer ssh.Signer
	path   string // OpenSSH private key
	actor  relay.Actor
}

func newFixture(t testing.TB, change ...func(*Options)) *fixture {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := newFixtureOn(t, ln, change...)
	b.ln = ln.(*net.TCPListener)
	_, b.port, _ = net.SplitHostPort(ln.Addr().String())
	return b
}

// newFixtureOn serves the connections of a listener, which need not be TCP.
func newFixtureOn(t testing.TB, ln net.Listener, change ...func(*Options)) *fixture {
	t.Helper()
	dir := t.TempDir()
	host, err := LoadHostKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	store := newFakeStore()
	base, _ := url.Parse("http://relay.example.test:8080")
	o := Options{
		HostKeys: []ssh.Signer{host}, Accounts: store, Attach: store, Limits: noLimits{}, API: store.api,
		Site:    relay.Site{Base: *base, AliasDomain: "example.test", SSHAddr: "relay.example.test:2222"},
		Version: "v9-test",
		Log:     slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelInfo})),
		// The limits are long, because a test that does not set them must not reach them on a busy machine.
		HandshakeTimeout: time.Minute, IdleClose: time.Minute,
	}
	for _, f := range change {
		f(&o)
	}
	store.site = o.Site
	b := &fixture{t: t, store: store, srv: New(o), dir: dir}
	b.srv.sessions.Shell.FirstForward, store.changed = 30*time.Second, b.srv.Publish
	served := make(chan error, 1)
	go func() { served <- b.srv.Serve(ln) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := b.srv.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if err := <-served; err != nil && !errors.Is(err, net.ErrClosed) { // a short test may stop the server before it serves
			t.Errorf("serve: %v", err)
		}
	})
	b.alice = b.newKey("alice", 1)
	return b
}

// testWriter writes the log of the server to the log of the test while the test runs.
type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	defer func() { _ = recover() }() // t.Log panics after the end of the test
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

// newKey registers a new key for an account; with account 0 the key stays unregistered.
func (b *fixture) newKey(name string, account int64) key {
	b.t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		b.t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		b.t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, name)
	if err != nil {
		b.t.Fatal(err)
	}
	k := key{signer: signer, path: filepath.Join(b.dir, fmt.Sprintf("%s-%x", name, signer.PublicKey().Marshal()[30:34]))}
	if err := os.WriteFile(k.path, pem.EncodeToMemory(block), 0o600); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(k.path+".pub", ssh.MarshalAuthorizedKey(signer.PublicKey()), 0o600); err != nil {
		b.t.Fatal(err)
	}
	k.actor = relay.Actor{
		Account: account, AccountName: name, Kind: relay.ActorSSH, Name: name, Scopes: relay.AllScopes,
		Credential: "key_" + ssh.FingerprintSHA256(signer.PublicKey()),
	}
	if account != 0 {
		b.store.mu.Lock()
		b.store.keys[ssh.FingerprintSHA256(signer.PublicKey())] = k.actor
		b.store.mu.Unlock()
	}
	return k
}

// cut closes all connections.
func (b *fixture) cut() {
	for _, c := range b.srv.all() {
		c.Close(link.Stopped)
	}
}

// need fails the test if a program is missing, and names the package to install.
func need(t testing.TB, program, pkg string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Fatalf("%s is not installed; run: apt-get install %s", program, pkg)
	}
	return path
}

// process is a client program.
type process struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	out    *output
	err    *output
	exited chan struct{}
}

// output collects what a program prints.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// run starts a program that is killed at the end of the test.
func (b *fixture) run(name string, args ...string) *process {
	b.t.Helper()
	p := &process{cmd: exec.Command(name, args...), out: &output{}, err: &output{}, exited: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), "HOME="+b.dir, "SSH_AUTH_SOCK=")
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // without a terminal, no client can prompt
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.err
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		b.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	go func() {
		defer close(p.exited)
		_ = p.cmd.Wait()
	}()
	b.t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.exited
		if b.t.Failed() {
			b.t.Logf("%s\nstdout: %s\nstderr: %s", p.cmd, p.out, p.err)
		}
	})
	return p
}

// code waits for the end of the program and returns its exit code.
func (p *process) code(t *testing.T) int {
	t.Helper()
	select {
	case <-p.exited:
	case <-time.After(60 * time.Second):
		t.Fatalf("%s is still running", p.cmd)
	}
	return p.cmd.ProcessState.ExitCode()
}

// openssh starts the OpenSSH client with a key.
func (b *fixture) openssh(k key, args ...string) *process {
	b.t.Helper()
	full := append([]string{
		"-F", "/dev/null", "-p", b.port, "-i", k.path,
		"-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=" + filepath.Join(b.dir, "known"),
		"-o", "GlobalKnownHostsFile=/dev/null",
	}, args...)
	return b.run(need(b.t, "ssh", "openssh-client"), full...)
}

// eventually polls until the function ok returns true, and fails the test if this takes longer than the duration
// within.
func eventually(t testing.TB, within time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline.C:
			t.Fatalf("not within %v: %s", within, what)
		case <-tick.C:
		}
	}
}

// online waits until an alias is online and returns its tunnel.
func (b *fixture) online(alias string) relay.Tunnel {
	b.t.Helper()
	eventually(b.t, 30*time.Second, alias+" online", func() bool { return b.store.state(alias) == relay.TunnelOnline })
	return b.store.hold(alias).tunnel
}

// local starts a local server on TCP, which passes each connection to the function handle, and returns its port.
func (b *fixture) local(handle func(net.Conn)) (port string) {
	b.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				handle(c)
			})
		}
	})
	b.t.Cleanup(func() {
		ln.Close()
		wg.Wait()
	})
	_, port, _ = net.SplitHostPort(ln.Addr().String())
	return port
}

// greetingServer answers a line with "hello LINE" and closes the connection.
func greetingServer(c net.Conn) {
	buf := make([]byte, 64)
	n, _ := c.Read(buf)
	fmt.Fprintf(c, "hello %s", buf[:n])
}

var origin = netip.MustParseAddrPort("203.0.113.9:52011")

// open opens a channel of a tunnel. If the tunnel is at another node, and that node could not be reached in time, it
// tries again: a login between nodes ends after 2 s, which may be too short on a busy machine.
func open(t *testing.T, tun relay.Tunnel) relay.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	ch, err := tun.Open(ctx, origin)
	for _, remote := tun.(relay.RemoteTunnel); remote && err == relay.ErrNotSent && ctx.Err() == nil; ch, err = tun.Open(ctx, origin) {
		<-time.After(10 * time.Millisecond)
	}
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return ch
}

// fill is the result of one read.
type fill struct {
	N   int
	Err error
}

// filled reads once from ch in the background. The returned Go channel gets the result.
func filled(ch relay.Conn, buf []byte) <-chan fill {
	f := make(chan fill, 1)
	go func() {
		n, err := ch.Read(buf)
		f <- fill{n, err}
	}()
	return f
}

// readAll reads a channel to its end.
func readAll(t *testing.T, ch relay.Conn) ([]byte, error) {
	t.Helper()
	var all []byte
	for {
		buf := make([]byte, 64<<10)
		select {
		case f := <-filled(ch, buf):
			all = append(all, buf[:f.N]...)
			if f.Err != nil {
				return all, f.Err
			}
		case <-time.After(60 * time.Second):
			t.Fatalf("no answer after %d bytes", len(all))
		}
	}
}

// ask sends one line through a tunnel and checks the response of a greetingServer.
func ask(t *testing.T, tun relay.Tunnel) {
	t.Helper()
	ch := open(t, tun)
	defer ch.Close()
	if n, err := ch.Write([]byte("you")); n != 3 || err != nil {
		t.Fatalf("write: %d, %v", n, err)
	}
	got, err := readAll(t, ch)
	if string(got) != "hello you" || err != io.EOF {
		t.Fatalf("got %q, %v, want hello you and EOF", got, err)
	}
}

func contains(o *output, text string) bool { return strings.Contains(o.String(), text) }

// TestNoGoroutineWaitsForTheEnd: the goroutine that accepts a connection ends with the handshake. The connection stays
// open until its client leaves, and is closed then.
func TestNoGoroutineWaitsForTheEnd(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	accepted, returned := make(chan *acceptedConn, 1), make(chan struct{})
	go func() {
		defer close(returned)
		tcp, err := ln.Accept()
		if err != nil {
			return
		}
		conn := &acceptedConn{Conn: tcp}
		accepted <- conn
		b.srv.serve(nil, conn)
		_ = conn.Close() // gliderlabs does this
	}()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	client, err := dialPort(port, b.alice)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	eventually(t, 10*time.Second, "the goroutine ended", func() bool {
		select {
		case <-returned:
			return true
		default:
			return false
		}
	})
	if ok, _ := forwards(t, client, "a", 80); !ok {
		t.Error("the connection opens no tunnel")
	}
	tun := b.online("a").(*forward)
	_ = client.Close()
	<-tun.c.Done()
	conn := <-accepted
	eventually(t, 10*time.Second, "the TCP connection is closed", func() bool {
		_, err := conn.Read(make([]byte, 1))
		return errors.Is(err, net.ErrClosed)
	})
}

// TestRefusedConnectionIsClosed: a connection that is refused before its handshake is closed, and not only the side of it
// that sends. The client may see no difference, but the connection would keep its file descriptor.
func TestRefusedConnectionIsClosed(t *testing.T) {
	t.Parallel()
	b := newFixture(t, func(o *Options) { o.MaxConnections = 1 })
	holder, err := dialPort(b.port, b.alice)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	eventually(t, 30*time.Second, "the login counted", func() bool { return b.srv.Stats().LoggedIn == 1 })
	refused := func(why string) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		client, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		tcp, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_ = client.Close()
		b.srv.acceptor.HandleConn(&acceptedConn{Conn: tcp})
		if _, err := tcp.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: a read of the connection: %v", why, err)
		}
	}
	refused("no slot")
	if n := b.srv.Stats().Dropped; n != 1 {
		t.Errorf("%d connections were dropped for want of a slot", n)
	}
	b.srv.Announce()
	refused("the server stops")
}
