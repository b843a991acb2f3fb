package sshgate

import (
	"bytes"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/crypto/ssh"

	"relay"
	"relay/admission"
	"relay/sshgate/login"
)

// This file checks the promised times of an SSH connection to the millisecond, with the fake clock of
// testing/synctest. A synctest bubble cannot wait for the kernel, so the connections are in memory.

// memoryListener accepts in-memory connections.
type memoryListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newMemoryListener() *memoryListener {
	return &memoryListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *memoryListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *memoryListener) Addr() net.Addr { return loopback(22) }

func loopback(port int) net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port} }

// dial makes an in-memory connection. toServer holds the bytes from the client to the server.
func (l *memoryListener) dial() (client net.Conn, toServer *direction) {
	up, down := newDirection(), newDirection()
	l.conns <- &memoryConn{in: up, out: down, remote: loopback(40000)}
	return &memoryConn{in: down, out: up, remote: loopback(22)}, up
}

// direction holds the bytes sent in one direction. Unlike net.Pipe it has a buffer, because both
// ends of SSH begin with a write.
type direction struct {
	mu     sync.Mutex
	change *sync.Cond
	bytes  bytes.Buffer
	held   bool // whether Read waits for release before it returns bytes
	closed bool
}

func newDirection() *direction {
	d := &direction{}
	d.change = sync.NewCond(&d.mu)
	return d
}

func (d *direction) set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
	d.change.Broadcast()
}

func (d *direction) hold()    { d.set(func() { d.held = true }) }
func (d *direction) release() { d.set(func() { d.held = false }) }
func (d *direction) close()   { d.set(func() { d.closed = true }) }

// memoryConn is a connection without deadlines. Bytes arrive wireTime after they were written, because an
// answer must not arrive at the same instant as its request.
type memoryConn struct {
	net.Conn
	in, out *direction
	remote  net.Addr
}

const wireTime = 10 * time.Microsecond

func (c *memoryConn) Read(p []byte) (int, error) {
	d := c.in
	d.mu.Lock()
	defer d.mu.Unlock()
	for !d.closed && (d.held || d.bytes.Len() == 0) {
		d.change.Wait()
	}
	d.mu.Unlock()
	time.Sleep(wireTime)
	d.mu.Lock()
	return d.bytes.Read(p) // io.EOF if it is empty
}

func (c *memoryConn) Write(p []byte) (n int, err error) {
	c.out.set(func() {
		if c.out.closed {
			err = net.ErrClosed
			return
		}
		n, err = c.out.bytes.Write(p)
	})
	return n, err
}

func (c *memoryConn) Close() error {
	c.in.close()
	c.out.close()
	return nil
}

func (c *memoryConn) LocalAddr() net.Addr              { return c.remote }
func (c *memoryConn) RemoteAddr() net.Addr             { return c.remote }
func (c *memoryConn) SetDeadline(time.Time) error      { return nil }
func (c *memoryConn) SetReadDeadline(time.Time) error  { return nil }
func (c *memoryConn) SetWriteDeadline(time.Time) error { return nil }

// timed is a server in a synctest bubble with the default times of Options and of relayd's settings.
// TestDefaults of cmd/relayd checks those of the settings.
type timed struct {
	*fixture
	listener *memoryListener
	registry *prometheus.Registry
}

func newTimed(t *testing.T) *timed {
	// This cleanup runs last and lets bytes in transit arrive before the bubble ends.
	t.Cleanup(func() { time.Sleep(time.Second) })
	l, registry := newMemoryListener(), prometheus.NewRegistry()
	return &timed{newFixtureOn(t, l, func(o *Options) {
		o.Registry = registry
		o.HandshakeTimeout, o.IdleClose = 0, 0
		o.PingInterval, o.PingTimeout, o.StaleClose = 5*time.Second, 3*time.Second, time.Minute
	}), l, registry}
}

// login logs in. If the connection ends before that, it returns the error of the connection.
func (b *timed) login(user string, methods ...ssh.AuthMethod) (*ssh.Client, *direction, error) {
	conn, toServer := b.listener.dial()
	c, chans, reqs, err := ssh.NewClientConn(conn, "", &ssh.ClientConfig{
		User: user, Auth: methods, HostKeyCallback: ssh.InsecureIgnoreHostKey(),
	})
	if err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	client := ssh.NewClient(c, chans, reqs)
	b.t.Cleanup(func() { _ = client.Close() })
	return client, toServer, nil
}

func (b *timed) tunnel(alias string) (*ssh.Client, *direction) {
	b.t.Helper()
	client, toServer, err := b.login("relay", ssh.PublicKeys(b.alice.signer))
	if err != nil {
		b.t.Fatal(err)
	}
	if ok, _, err := client.SendRequest("tcpip-forward", true, ssh.Marshal(forwardRequest{alias, 80})); !ok || err != nil {
		b.t.Fatalf("forward: %v, %v", ok, err)
	}
	return client, toServer
}

// changesAfter waits for the duration pause. It fails the test unless the result of the function state changes, within
// a millisecond of the end of the wait, from the value before to the value after.
func changesAfter[T comparable](t *testing.T, pause time.Duration, before, after T, state func() T) {
	t.Helper()
	time.Sleep(pause - time.Millisecond)
	synctest.Wait()
	if got := state(); got != before {
		t.Errorf("%v, a millisecond before %v, want %v", got, pause, before)
	}
	time.Sleep(2 * time.Millisecond)
	synctest.Wait()
	if got := state(); got != after {
		t.Errorf("%v, a millisecond after %v, want %v", got, pause, after)
	}
}

func (b *timed) connections() int { return len(b.srv.all()) }

// inFakeTime runs a test in a bubble of its own.
func inFakeTime(t *testing.T, name string, f func(t *testing.T, b *timed)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { f(t, newTimed(t)) })
	})
}

func TestTimesOfTunnel(t *testing.T) {
	inFakeTime(t, "online 100 ms after the confirmation", func(t *testing.T, b *timed) {
		b.tunnel("a")
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		if got := b.store.state("a"); got != relay.TunnelOnline {
			t.Errorf("the alias is %s", got)
		}
	})
	inFakeTime(t, "stale after ping interval and timeout, back with a byte", func(t *testing.T, b *timed) {
		_, toServer := b.tunnel("a")
		toServer.hold()
		changesAfter(t, 8*time.Second, relay.TunnelOnline, relay.TunnelStale, func() relay.TunnelState { return b.store.state("a") })
		toServer.release() // the answer to the ping now reaches the server
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if got := b.store.state("a"); got != relay.TunnelOnline {
			t.Errorf("%s after a byte", got)
		}
		time.Sleep(time.Hour)
		if n := b.store.hold("a").stales; n != 1 || b.connections() != 1 {
			t.Errorf("stale %d times, %d connections", n, b.connections())
		}
	})
	inFakeTime(t, "closed when it was stale for stale-close", func(t *testing.T, b *timed) {
		_, toServer := b.tunnel("a")
		toServer.hold()
		changesAfter(t, 68*time.Second, 1, 0, b.connections)
		if got := b.store.state("a"); got != relay.TunnelOffline {
			t.Errorf("the alias is %s", got)
		}
	})
}

// acceptAll accepts the channels of a tunnel, and leaves them open.
func acceptAll(t *testing.T, client *ssh.Client) {
	accept(t, client, func(_ forwardedOpen, n ssh.NewChannel) {
		if _, reqs, err := n.Accept(); err == nil {
			go ssh.DiscardRequests(reqs)
		}
	})
}

// TestTimesOfTakeover: a running request may continue for 10 s on the old connection when a newer
// connection takes the alias over.
func TestTimesOfTakeover(t *testing.T) {
	inFakeTime(t, "closed 10 s later", func(t *testing.T, b *timed) {
		client, _ := b.tunnel("a")
		acceptAll(t, client)
		ch := open(t, b.online("a"))
		defer ch.Close()
		b.tunnel("a")
		changesAfter(t, 10*time.Second, 2, 1, b.connections)
	})
}

func TestTimesOfConnection(t *testing.T) {
	inFakeTime(t, "closed after 5 s without a forward", func(t *testing.T, b *timed) {
		if _, _, err := b.login("relay", ssh.PublicKeys(b.alice.signer)); err != nil {
			t.Fatal(err)
		}
		changesAfter(t, 5*time.Second, 1, 0, b.connections)
	})
	inFakeTime(t, "closed 5 s after its forward was canceled", func(t *testing.T, b *timed) {
		client, _ := b.tunnel("a")
		time.Sleep(time.Minute)
		if ok, _, err := client.SendRequest("cancel-tcpip-forward", true, ssh.Marshal(forwardRequest{"a", 80})); !ok || err != nil {
			t.Fatalf("cancel: %v, %v", ok, err)
		}
		changesAfter(t, 5*time.Second, 1, 0, b.connections)
	})
	inFakeTime(t, "not closed while a request to its canceled forward is under way", func(t *testing.T, b *timed) {
		client, _ := b.tunnel("a")
		acceptAll(t, client)
		ch := open(t, b.online("a"))
		defer ch.Close()
		if ok, _, err := client.SendRequest("cancel-tcpip-forward", true, ssh.Marshal(forwardRequest{"a", 80})); !ok || err != nil {
			t.Fatalf("cancel: %v, %v", ok, err)
		}
		time.Sleep(8 * time.Second)
		if n := b.connections(); n != 1 {
			t.Errorf("%d connections during the request", n)
		}
		_ = client.Close()
		time.Sleep(time.Second) // lets the goroutines of the channel end, because a synctest bubble must not have any left
	})
	inFakeTime(t, "silent: closed after 10 s", func(t *testing.T, b *timed) {
		b.listener.dial()
		synctest.Wait()
		changesAfter(t, 10*time.Second, 1, 0, b.connections)
	})
	inFakeTime(t, "handshake without login: closed after 10 s", func(t *testing.T, b *timed) {
		end := make(chan struct{})
		go func() {
			_, _, _ = b.login("relay", ssh.PublicKeysCallback(func() ([]ssh.Signer, error) { <-end; return nil, nil }))
		}()
		defer close(end)
		synctest.Wait()
		changesAfter(t, 10*time.Second, 1, 0, b.connections)
	})
}

// TestBusyNodeCostsNothing: if the time for a login ends while its client is still sending, as on a busy node, the
// source gets no penalty. The source of a client that has become silent gets one.
func TestBusyNodeCostsNothing(t *testing.T) {
	inFakeTime(t, "slow and silent", func(t *testing.T, b *timed) {
		_, silent := b.listener.dial()
		_, talking := b.listener.dial()
		silent.set(func() { silent.bytes.WriteString("SSH-2.0-x") })
		for range 10 {
			talking.set(func() { talking.bytes.WriteByte('S') })
			time.Sleep(time.Second)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		for result, want := range map[string]float64{"timeout": 1, "unavailable": 1} {
			if got := figure(t, b.registry, "relay_sshgate_logins_total", result); got != want {
				t.Errorf("%s: %v, want %v", result, got, want)
			}
		}
		if penalty := login.ResultUnavailable.Penalty(); penalty != 0 || login.ResultTimeout.Penalty() != admission.PenaltySlow {
			t.Errorf("penalty %v of a busy node", penalty)
		}
	})
}

// TestTimesOfEnrolment: an approval, or the answer to a prompt, may take 110 s. Then the connection is closed, which
// is, even with a slow handshake, within the promised two minutes.
func TestTimesOfEnrolment(t *testing.T) {
	inFakeTime(t, "link@ that nobody approves", func(t *testing.T, b *timed) {
		stranger := b.newKey("stranger", 0)
		ended := make(chan error, 1)
		go func() {
			_, _, err := b.login("link", ssh.PublicKeys(stranger.signer))
			ended <- err
		}()
		changesAfter(t, 110*time.Second, 1, 0, func() int { return min(1, b.connections()) })
		if err := <-ended; err == nil {
			t.Error("the login succeeded")
		}
	})
	inFakeTime(t, "a prompt that nobody answers", func(t *testing.T, b *timed) {
		asked, end := make(chan struct{}), make(chan struct{})
		go func() {
			_, _, _ = b.login("link", ssh.KeyboardInteractive(func(string, string, []string, []bool) ([]string, error) {
				close(asked)
				<-end
				return nil, net.ErrClosed
			}))
		}()
		defer close(end)
		<-asked
		changesAfter(t, 110*time.Second, 1, 0, b.connections)
		for result, want := range map[string]float64{"timeout": 1, "refused": 0} { // an unanswered prompt counts as a timeout, not as a refused login
			if got := figure(t, b.registry, "relay_sshgate_logins_total", result); got != want {
				t.Errorf("%s: %v, want %v", result, got, want)
			}
		}
	})
}
