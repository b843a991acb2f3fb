package conformance

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"relay/relaytest"
	"relay/store/pgtest"
)

// stopDrain is RELAY_DRAIN in TestLongestStop, and stopLonger is how much longer than that a stop may take.
const stopDrain, stopLonger = 2 * time.Second, 5 * time.Second

// TestLongestStop stops relayd by SIGTERM under every kind of peer, pipe and database that hangs. In every
// case relayd ends within the drain time plus five seconds.
func TestLongestStop(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		extra []string
		begin func(t *testing.T, r *relayServer) // lets the peers that hang connect to r, which already runs
	}{
		"nobody":                      {nil, func(*testing.T, *relayServer) {}},
		"client takes no bodies":      {nil, clientTakesNoBodies},
		"client takes no bytes":       {nil, clientTakesNoBytes},
		"opens without an answer":     {nil, opensWithoutAnswer},
		"streams that nobody reads":   {nil, streamsUnread},
		"sessions that nobody reads":  {nil, sessionsUnread},
		"pages that nobody reads":     {nil, pagesUnread},
		"calls that wait":             {nil, waitsOpen},
		"calls half sent":             {nil, callsHalfSent},
		"upgraded, and nobody reads":  {nil, upgradedUnread},
		"idle callers":                {nil, callersIdle},
		"callers that drip":           {nil, callersDrip},
		"callers that read no answer": {nil, callersReadNothing},
		"SSH handshakes half done":    {nil, handshakesHalfDone},
		"PROXY headers half sent":     {[]string{"RELAY_TRUSTED_PROXIES=127.0.0.2/32"}, proxyHeadersHalfSent},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startRelay(t, "", append(row.extra, "RELAY_DRAIN=2s", "RELAY_RESPONSE_TIMEOUT=off")...)
			row.begin(t, r)
			stopsInTime(t, r)
		})
	}
	t.Run("TLS handshakes half done", func(t *testing.T) {
		t.Parallel()
		r, _ := newFilesRig(t, "RELAY_DRAIN=2s")
		for range 50 {
			c := rawConn(t, r.https)
			go func() {
				_ = tls.Client(halfConn{c}, &tls.Config{InsecureSkipVerify: true}).Handshake() // the handshake never ends, because halfConn reads nothing
			}()
		}
		stopsInTime(t, r.relayServer)
	})
	t.Run("pipes that nobody reads", func(t *testing.T) {
		t.Parallel()
		r := newRelay(t, "", "RELAY_DRAIN=2s", "RELAY_ACCESS_LOG=stdout", "RELAY_LOG_LEVEL=debug")
		cmd := exec.Command(relaytest.Program(t, "relayd"), "serve")
		cmd.Env, cmd.Stdout, cmd.Stderr = r.env(), fullPipe(t), fullPipe(t)
		r.process.set(relaytest.Start(t, cmd))
		r.waitFor(20*time.Second, "relayd to be ready", func() bool { return r.ready() == 200 })
		for range 50 {
			r.call("nobody", "/", "x")
		}
		stopsInTime(t, r)
	})
	t.Run("Postgres frozen", func(t *testing.T) {
		t.Parallel()
		pg, databaseURL := ownPostgres(t)
		r := startRelay(t, databaseURL, "RELAY_DRAIN=2s")
		r.tunnel("frozen", localServer(t))
		r.through("frozen", "/", "x")
		frozen(t, pg)
		for range 20 {
			go r.call("frozen", "/", "x")
		}
		r.waitFor(20*time.Second, "the spool to be used", r.degraded)
		stopsInTime(t, r)
	})
	t.Run("Postgres frozen just now", func(t *testing.T) {
		t.Parallel()
		pg, databaseURL := ownPostgres(t)
		r := startRelay(t, databaseURL, "RELAY_DRAIN=2s")
		r.tunnel("frozen", localServer(t))
		r.through("frozen", "/", "x")
		frozen(t, pg)
		go r.call("frozen", "/", "x")
		stopsInTime(t, r)
	})
	t.Run("Postgres frozen under sessions that nobody reads", func(t *testing.T) {
		t.Parallel()
		pg, databaseURL := ownPostgres(t)
		r := startRelay(t, databaseURL, "RELAY_DRAIN=2s", "RELAY_RESPONSE_TIMEOUT=off")
		sessionsOnFrozen(t, r, func() { frozen(t, pg) })
		stopsInTime(t, r)
	})
	t.Run("another node that does not go on", func(t *testing.T) {
		t.Parallel()
		nodes := newNodes(t, pgtest.URL(t), "RELAY_DRAIN=2s")
		a, b := nodes[0], nodes[1]
		a.start()
		a.token, _ = a.newToken(a.key)
		b.token = a.token
		b.start()
		hold := make(chan struct{})
		var held atomic.Int32
		b.tunnel("far", serveLocal(t, func(w http.ResponseWriter, req *http.Request) {
			if req.URL.Path != "/first" {
				held.Add(1)
				<-hold
			}
		}))
		// This cleanup runs before that of the local server, which waits for its requests.
		t.Cleanup(func() { close(hold) })
		a.knows("far")
		for range 20 {
			go a.call("far", "/held", strings.Repeat("x", 256<<10))
		}
		a.waitFor(20*time.Second, "requests through the other node", func() bool { return held.Load() > 10 })
		freeze(t, b.process.get().Cmd.Process.Pid)
		stopsInTime(t, a)
	})
}

// stopsInTime stops relayd and checks how long the stop takes.
func stopsInTime(t *testing.T, r *relayServer) {
	t.Helper()
	begun := time.Now()
	r.stop(syscall.SIGTERM)
	took := time.Since(begun)
	figure(t, "SIGTERM to exit %v, exit code %d", took.Round(10*time.Millisecond), r.exit())
	if took > bound(stopDrain+stopLonger) {
		t.Errorf("the stop took %v", took)
	}
}

func frozen(t *testing.T, pg *pgtest.Server) {
	t.Helper()
	if err := pg.Freeze(); err != nil {
		t.Fatal(err)
	}
}

// rawConn returns a TCP connection to relayd that is closed at the end of the test.
func rawConn(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// halfConn is a connection whose Read blocks forever.
type halfConn struct{ net.Conn }

func (c halfConn) Read([]byte) (int, error) { select {} }

// fullPipe returns a pipe that accepts no more bytes.
func fullPipe(t *testing.T) *os.File {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		read.Close()
		write.Close()
	})
	_ = write.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	for _, n := range []int{4096, 1} {
		for err = nil; err == nil; {
			_, err = write.Write(make([]byte, n))
		}
		_ = write.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	}
	return write
}

// deafConn is a connection that can be made to stop reading.
type deafConn struct {
	net.Conn
	mu   sync.Mutex
	deaf chan struct{} // closed when the test ends; nil while reads continue
}

func (c *deafConn) Read(p []byte) (int, error) {
	c.mu.Lock()
	deaf := c.deaf
	c.mu.Unlock()
	if deaf != nil {
		<-deaf
		return 0, net.ErrClosed
	}
	return c.Conn.Read(p)
}

// stopReading makes reads block until the test ends, except for a read that has already begun.
func (c *deafConn) stopReading(t *testing.T) {
	deaf := make(chan struct{})
	t.Cleanup(func() { close(deaf) })
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deaf = deaf
}

// deafClient logs in over a connection that can be made to stop reading.
func deafClient(t *testing.T, r *relayServer) (*ssh.Client, *deafConn) {
	t.Helper()
	key, err := os.ReadFile(r.key)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.ParsePrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	c := &deafConn{Conn: rawConn(t, r.ssh)}
	conn, channels, requests, err := ssh.NewClientConn(c, "relay", &ssh.ClientConfig{
		User: "relay", Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)}, HostKeyCallback: ssh.InsecureIgnoreHostKey(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return ssh.NewClient(conn, channels, requests), c
}

// forwardTo forwards aliases, and waits until they are online: relayd attaches a tunnel after it has replied, because
// a client refuses channels that it gets before the reply. handle gets the channels.
func forwardTo(t *testing.T, r *relayServer, client *ssh.Client, handle func(ssh.NewChannel), aliases ...string) {
	t.Helper()
	opens := client.HandleChannelOpen("forwarded-tcpip")
	go func() {
		for n := range opens {
			handle(n)
		}
	}()
	for _, alias := range aliases {
		if ok, _, err := client.SendRequest("tcpip-forward", true, ssh.Marshal(struct {
			Bind string
			Port uint32
		}{alias, 80})); !ok || err != nil {
			t.Fatalf("forward %s: %t, %v", alias, ok, err)
		}
		r.waitFor(20*time.Second, alias+" to be online", func() bool { return r.online(alias) })
	}
}

// takeNothing accepts a channel and never reads it.
func takeNothing(n ssh.NewChannel) {
	if _, reqs, err := n.Accept(); err == nil {
		go ssh.DiscardRequests(reqs)
	}
}

func clientTakesNoBodies(t *testing.T, r *relayServer) {
	client, _ := deafClient(t, r)
	forwardTo(t, r, client, takeNothing, "deaf")
	for range 20 {
		go r.call("deaf", "/", strings.Repeat("x", 4<<20))
	}
	r.waitFor(20*time.Second, "requests", func() bool { return r.stats().Channels >= 10 })
}

func clientTakesNoBytes(t *testing.T, r *relayServer) {
	client, c := deafClient(t, r)
	forwardTo(t, r, client, takeNothing, "deaf")
	for range 20 {
		go r.call("deaf", "/", "x")
	}
	r.waitFor(20*time.Second, "requests", func() bool { return r.stats().Channels >= 10 })
	c.stopReading(t)
	for range 40 {
		go func() {
			out, err := net.Dial("tcp", r.http)
			if err != nil {
				return
			}
			defer out.Close()
			fmt.Fprintf(out, "GET / HTTP/1.1\r\nHost: deaf.localhost\r\nX-Large: %s\r\n\r\n", strings.Repeat("x", 120<<10))
			_, _ = io.Copy(io.Discard, out)
		}()
	}
}

func opensWithoutAnswer(t *testing.T, r *relayServer) {
	client, _ := deafClient(t, r)
	var asked sync.WaitGroup
	asked.Add(200)
	n := 0
	aliases := []string{"mute-a", "mute-b", "mute-c", "mute-d"}
	forwardTo(t, r, client, func(ssh.NewChannel) {
		if n++; n <= 200 {
			asked.Done()
		}
	}, aliases...)
	for i := range 256 {
		go r.call(aliases[i%len(aliases)], "/", "x")
	}
	asked.Wait()
}

func streamsUnread(t *testing.T, r *relayServer) {
	client, _ := deafClient(t, r)
	forwardTo(t, r, client, answerOK, "busy")
	for range 20 {
		c := rawConn(t, r.http)
		fmt.Fprintf(c, "GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", r.token)
	}
	for range 100 {
		r.call("busy", "/", strings.Repeat("x", 10<<10))
	}
}

// answerOK answers one request on a channel.
func answerOK(n ssh.NewChannel) {
	ch, reqs, err := n.Accept()
	if err != nil {
		return
	}
	go ssh.DiscardRequests(reqs)
	go func() {
		_, _ = ch.Read(make([]byte, 64<<10))
		_, _ = io.WriteString(ch, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
		_ = ch.Close()
	}()
}

func sessionsUnread(t *testing.T, r *relayServer) {
	client, c := deafClient(t, r)
	forwardTo(t, r, client, answerOK, "busy")
	other, _ := deafClient(t, r)
	forwardTo(t, r, other, answerOK, "more")
	for range 4 {
		s, err := client.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Start("events -f --json"); err != nil {
			t.Fatal(err)
		}
	}
	c.stopReading(t)
	for range 100 {
		r.call("more", "/", strings.Repeat("x", 10<<10))
	}
}

func callersIdle(t *testing.T, r *relayServer) {
	for _, host := range []string{"localhost", "nobody.localhost"} {
		for range 50 {
			c := rawConn(t, r.http)
			fmt.Fprintf(c, "GET /healthz HTTP/1.1\r\nHost: %s\r\n\r\n", host)
			_, _ = c.Read(make([]byte, 4096))
		}
	}
}

func callersDrip(t *testing.T, r *relayServer) {
	client, _ := deafClient(t, r)
	forwardTo(t, r, client, takeNothing, "drip")
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	for i := range 60 {
		c := rawConn(t, r.http)
		head := "POST / HTTP/1.1\r\nHost: drip.localhost\r\nContent-Length: 1000000\r\n\r\n"
		switch i % 3 {
		case 1:
			head = strings.Replace(head, "drip.localhost", "localhost", 1)
		case 2:
			head = head[:40]
		}
		_, _ = io.WriteString(c, head)
		go func() {
			for ctx.Err() == nil {
				if _, err := c.Write([]byte("x")); err != nil {
					return
				}
				select {
				case <-time.After(50 * time.Millisecond):
				case <-ctx.Done():
				}
			}
		}()
	}
}

func callersReadNothing(t *testing.T, r *relayServer) {
	client, _ := deafClient(t, r)
	forwardTo(t, r, client, func(n ssh.NewChannel) {
		ch, reqs, err := n.Accept()
		if err != nil {
			return
		}
		go ssh.DiscardRequests(reqs)
		go func() {
			_, _ = ch.Read(make([]byte, 64<<10))
			_, _ = io.WriteString(ch, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
			for {
				if _, err := ch.Write(make([]byte, 32<<10)); err != nil {
					return
				}
			}
		}()
	}, "flood")
	for range 10 {
		c := rawConn(t, r.http)
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: flood.localhost\r\n\r\n")
	}
	r.waitFor(20*time.Second, "requests", func() bool { return r.stats().Channels >= 5 })
}

func handshakesHalfDone(t *testing.T, r *relayServer) {
	for i := range 60 {
		c := rawConn(t, r.ssh)
		if i%2 == 0 {
			continue
		}
		_, _ = io.WriteString(c, "SSH-2.0-half\r\n\x00\x00\x05\x00\x04\x14")
	}
}

func proxyHeadersHalfSent(t *testing.T, r *relayServer) {
	for _, addr := range []string{r.http, r.ssh} {
		for range 30 {
			c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			_, _ = io.WriteString(c, "PROXY TCP4 203.0")
		}
	}
}
