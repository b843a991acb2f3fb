package sshgate

import (
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// fixedSource is a listener whose connections seem to come from another address.
type fixedSource struct {
	net.Listener
	from net.Addr
}

func (l fixedSource) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return fixedSourceConn{c, l.from}, nil
}

type fixedSourceConn struct {
	net.Conn
	from net.Addr
}

func (c fixedSourceConn) RemoteAddr() net.Addr { return c.from }

// serveFrom makes the server serve a further port, whose connections all seem to come from addr.
func (b *fixture) serveFrom(addr string) (port string) {
	b.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = b.srv.Serve(fixedSource{ln, net.TCPAddrFromAddrPort(netip.MustParseAddrPort(addr))})
	}()
	b.t.Cleanup(func() { ln.Close(); <-served })
	_, port, _ = net.SplitHostPort(ln.Addr().String())
	return port
}

func dialPort(port string, k key) (*ssh.Client, error) {
	return ssh.Dial("tcp", "127.0.0.1:"+port, &ssh.ClientConfig{
		User: "x", Auth: []ssh.AuthMethod{ssh.PublicKeys(k.signer)}, HostKeyCallback: ssh.InsecureIgnoreHostKey(),
	})
}

// TestFailingSourceIsKeptOut: after four refused logins, a valid key is refused from the same source, and
// accepted from other sources. Loopback gets no penalties.
func TestFailingSourceIsKeptOut(t *testing.T) {
	t.Parallel()
	now := time.Now() // now is a fake clock, which advances by a millisecond with each call
	b := newFixture(t, func(o *Options) { o.Now = func() time.Time { now = now.Add(time.Millisecond); return now } })
	bad, good := b.serveFrom("203.0.113.9:5000"), b.serveFrom("203.0.113.10:5000")
	stranger := b.newKey("stranger", 0)
	for n := range 4 {
		if _, err := dialPort(bad, stranger); err == nil {
			t.Fatal("a stranger logged in")
		}
		if _, _, err := b.dial("x", ssh.PublicKeys(stranger.signer)); err == nil {
			t.Fatal("a stranger logged in")
		}
		eventually(t, 30*time.Second, "counted", func() bool { return b.srv.Stats().Refused >= int64(2*n+2) })
	}
	eventually(t, 30*time.Second, "penalty", func() bool { return b.srv.Stats().Penalised == 1 })
	const why = "relay: too many failed logins from your address; try again in "
	if _, err := dialPort(bad, b.alice); err == nil || !strings.Contains(err.Error(), why) {
		t.Errorf("during a penalty: %v", err)
	}
	for name, p := range map[string]*process{
		"ssh": b.run(need(t, "ssh", "openssh-client"), "-F", "none", "-o", "UserKnownHostsFile=/dev/null", "-o", "StrictHostKeyChecking=no",
			"-o", "BatchMode=yes", "-i", b.alice.path, "-p", bad, "-N", "x@127.0.0.1"),
		"plink": b.run(need(t, "plink", "putty-tools"), "-batch", "-P", bad, "-N", "x@127.0.0.1"),
	} {
		if code := p.code(t); code == 0 || !contains(p.err, why) {
			t.Errorf("%s: exit %d, told %q", name, code, p.err)
		}
	}
	for _, port := range []string{good, b.port} {
		client, err := dialPort(port, b.alice)
		if err != nil {
			t.Errorf("port %s: %v", port, err)
			continue
		}
		client.Close()
	}
}

// TestKnocksCostNothing: a source whose connections send nothing and disconnect, such as a health check, gets no
// penalty.
func TestKnocksCostNothing(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	port := b.serveFrom("203.0.113.9:5000")
	for range 40 {
		c, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	eventually(t, 30*time.Second, "all gone", func() bool { s := b.srv.Stats(); return s.Accepted == 40 && s.Connections == 0 })
	if client, err := dialPort(port, b.alice); err != nil {
		t.Error(err)
	} else {
		client.Close()
	}
}

func TestTrustedProxiesPayNothing(t *testing.T) {
	t.Parallel()
	b := newFixture(t, func(o *Options) { o.Trusted = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")} })
	port := b.serveFrom("203.0.113.9:5000")
	stranger := b.newKey("stranger", 0)
	for range 5 {
		_, _ = dialPort(port, stranger)
	}
	eventually(t, 30*time.Second, "counted", func() bool { return b.srv.Stats().Refused == 5 })
	if _, err := dialPort(port, b.alice); err != nil {
		t.Error(err)
	}
	if n := b.srv.Stats().Penalised; n != 0 {
		t.Errorf("%d sources rejected", n)
	}
}

// TestPenaltySettings: penalties can be switched off, and networks can be exempt.
func TestPenaltySettings(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Options){
		"off":    func(o *Options) { o.NoPenalties = true },
		"exempt": func(o *Options) { o.PenaltyExempt = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")} },
	} {
		b := newFixture(t, change)
		port := b.serveFrom("203.0.113.9:5000")
		stranger := b.newKey("stranger", 0)
		for range 5 {
			_, _ = dialPort(port, stranger)
		}
		eventually(t, 30*time.Second, "counted", func() bool { return b.srv.Stats().Refused == 5 })
		client, err := dialPort(port, b.alice)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		client.Close()
	}
}

// noBuffers is a listener whose first accepts fail with errors of a system without free memory or
// descriptors.
type noBuffers struct {
	net.Listener
	failures chan error
}

func (l noBuffers) Accept() (net.Conn, error) {
	select {
	case err := <-l.failures:
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", err)}
	default:
		return l.Listener.Accept()
	}
}

// TestAcceptErrorsAreOutlived: errors of Accept for lack of memory or descriptors do not end the listener.
func TestAcceptErrorsAreOutlived(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	failures := make(chan error, 4)
	for _, e := range []error{syscall.ENOBUFS, syscall.ENOMEM, syscall.ENFILE, syscall.EMFILE} {
		failures <- e
	}
	served := make(chan error, 1)
	go func() { served <- b.srv.Serve(noBuffers{ln, failures}) }()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	client, err := dialPort(port, b.alice)
	if err != nil {
		t.Fatal(err)
	}
	client.Close()
	b.srv.Announce()
	if err := <-served; err != nil {
		t.Errorf("Serve ended with %v", err)
	}
}

// TestSourceLimit: the number of connections of one source is limited, without effect on other sources.
func TestSourceLimit(t *testing.T) {
	t.Parallel()
	b := newFixture(t, func(o *Options) { o.MaxPerSource = 2 })
	here, there := b.serveFrom("203.0.113.9:5000"), b.serveFrom("[2001:db8::1]:5000")
	for n, port := range []string{here, here, there} {
		client, err := dialPort(port, b.alice)
		if err != nil {
			t.Fatalf("connection %d: %v", n, err)
		}
		defer client.Close()
	}
	if _, err := dialPort(here, b.alice); err == nil || !strings.Contains(err.Error(), "too many connections from your address") {
		t.Errorf("a third connection: %v", err)
	}
	eventually(t, 30*time.Second, "one dropped, three logged in", func() bool { // a login is counted after the client sees its success
		s := b.srv.Stats()
		return s.Dropped == 1 && s.LoggedIn == 3
	})
}
