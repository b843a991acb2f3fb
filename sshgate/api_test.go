package sshgate

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/budget"
	"relay/cli"
	"relay/link"
)

// withAPI makes a server answer requests on API channels with h. It adds 1 to the counter channels for each API
// channel that is opened.
func withAPI(channels *atomic.Int64, h func(w http.ResponseWriter, r *http.Request, who relay.Actor)) func(*Options) {
	return func(o *Options) {
		o.API = func(who relay.Actor) *http.Server {
			channels.Add(1)
			return &http.Server{
				Handler:           http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h(w, r, who) }),
				ReadHeaderTimeout: time.Minute, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
				ErrorLog: log.New(io.Discard, "", 0),
			}
		}
	}
}

// apiChannel makes an API channel usable as a net.Conn. The methods for deadlines and addresses must not be called,
// because the embedded net.Conn is nil.
type apiChannel struct {
	ssh.Channel
	net.Conn
}

func (c apiChannel) Read(p []byte) (int, error)  { return c.Channel.Read(p) }
func (c apiChannel) Write(p []byte) (int, error) { return c.Channel.Write(p) }
func (c apiChannel) Close() error                { return c.Channel.Close() }

func openAPI(c *ssh.Client) (apiChannel, error) {
	ch, reqs, err := c.OpenChannel("session", nil)
	if err != nil {
		return apiChannel{}, err
	}
	go ssh.DiscardRequests(reqs)
	ok, err := ch.SendRequest("subsystem", true, ssh.Marshal(struct{ Name string }{"relay-api"}))
	if err == nil && !ok {
		err = fmt.Errorf("the subsystem was refused")
	}
	return apiChannel{Channel: ch}, err
}

func mustOpenAPI(t *testing.T, c *ssh.Client) apiChannel {
	t.Helper()
	ch, err := openAPI(c)
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

// exchange writes the bytes raw to an API channel and reads one response with r.
func exchange(t *testing.T, ch io.ReadWriter, r *bufio.Reader, raw string) (status int, body string) {
	t.Helper()
	if _, err := io.WriteString(ch, raw); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// TestAPIChannel: several requests on one API channel are answered, each with the rights of the account that the
// SSH key belongs to.
func TestAPIChannel(t *testing.T) {
	t.Parallel()
	var channels atomic.Int64
	b := newFixture(t, withAPI(&channels, func(w http.ResponseWriter, r *http.Request, who relay.Actor) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("body: %v", err)
		}
		fmt.Fprintf(w, "%s %s %s %s %s", who.AccountName, who.Kind, r.Method, r.URL.Path, body)
	}))
	ch := mustOpenAPI(t, b.mustDial(b.alice))
	r := bufio.NewReader(ch)
	for _, c := range []struct{ raw, want string }{
		{"GET /api/v1/me HTTP/1.1\r\nHost: x\r\n\r\n", "alice ssh GET /api/v1/me "},
		{"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi", "alice ssh POST /a hi"},
		{"POST /b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", "alice ssh POST /b hi"},
	} {
		if status, body := exchange(t, ch, r, c.raw); status != http.StatusOK || body != c.want {
			t.Errorf("%q: %d %q, want %q", c.raw, status, body, c.want)
		}
	}
	if n := channels.Load(); n != 1 {
		t.Errorf("%d HTTP servers for one channel", n)
	}
}

// TestAPIBehindASlowForward: a request to the API that arrives while an alias is being claimed is answered, even if the
// claim takes half a second.
func TestAPIBehindASlowForward(t *testing.T) {
	t.Parallel()
	b := newFixture(t, withAPI(new(atomic.Int64), func(w http.ResponseWriter, _ *http.Request, _ relay.Actor) {
		fmt.Fprint(w, "here")
	}))
	b.store.slow = make(chan struct{})
	c := b.mustDial(b.alice)
	if _, _, err := c.SendRequest("tcpip-forward", false, ssh.Marshal(forwardRequest{"a", 80})); err != nil {
		t.Fatal(err)
	}
	ch := mustOpenAPI(t, c)
	time.AfterFunc(500*time.Millisecond, func() { close(b.store.slow) })
	if status, body := exchange(t, ch, bufio.NewReader(ch), "GET /api/v1/ssh HTTP/1.1\r\nHost: x\r\n\r\n"); status != http.StatusOK || body != "here" {
		t.Errorf("%d %q", status, body)
	}
}

// TestAPIByOpenSSH: a request that OpenSSH sends from a file is answered, although OpenSSH sends EOF
// before the answer.
func TestAPIByOpenSSH(t *testing.T) {
	t.Parallel()
	var channels atomic.Int64
	b := newFixture(t, withAPI(&channels, func(w http.ResponseWriter, r *http.Request, who relay.Actor) {
		select {
		case <-r.Context().Done():
			t.Error("the request was cancelled by EOF")
		case <-time.After(500 * time.Millisecond): // OpenSSH sends EOF within this time
		}
		fmt.Fprintf(w, "you are %s", who.AccountName)
	}))
	p := b.openssh(b.alice, "-s", "127.0.0.1", "relay-api")
	_, _ = io.WriteString(p.stdin, "GET /api/v1/me HTTP/1.1\r\nHost: x\r\n\r\n")
	_ = p.stdin.Close()
	if code := p.code(t); code != cli.ExitOK {
		t.Errorf("exit %d", code)
	}
	if out := p.out.String(); !strings.HasPrefix(out, "HTTP/1.1 200 OK\r\n") || !strings.HasSuffix(out, "\r\n\r\nyou are alice") {
		t.Errorf("answer %q", out)
	}
}

// TestOtherSubsystemsAreRefused: subsystems other than relay-api are refused, and so is a second subsystem on the
// same session.
func TestOtherSubsystemsAreRefused(t *testing.T) {
	t.Parallel()
	var channels atomic.Int64
	b := newFixture(t, withAPI(&channels, func(http.ResponseWriter, *http.Request, relay.Actor) {}))
	s, err := b.mustDial(b.alice).NewSession()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"sftp", "relay-api2", "RELAY-API", ""} {
		if err := s.RequestSubsystem(name); err == nil {
			t.Errorf("subsystem %q was accepted", name)
		}
	}
	if err := s.RequestSubsystem("relay-api"); err != nil {
		t.Error(err)
	}
	if err := s.RequestSubsystem("relay-api"); err == nil {
		t.Error("a second subsystem was accepted on one session")
	}
}

// TestAPIHostileBytes: bytes that are not HTTP get 400, a huge header gets 431, and a panic of the handler ends the
// channel; the SSH connection stays open.
func TestAPIHostileBytes(t *testing.T) {
	t.Parallel()
	var channels atomic.Int64
	b := newFixture(t, withAPI(&channels, func(_ http.ResponseWriter, _ *http.Request, _ relay.Actor) { panic("in a handler") }))
	c := b.mustDial(b.alice)
	for name, test := range map[string]struct{ raw, want string }{
		"no http":     {"\x00\xff\x16\x03\x01\r\n\r\n", "HTTP/1.1 400 "},
		"two lengths": {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "HTTP/1.1 400 "},
		"huge header": {"GET / HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 64<<10), "HTTP/1.1 431 "},
		"panic":       {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", ""},
	} {
		ch := mustOpenAPI(t, c)
		if _, err := io.WriteString(ch, test.raw); err != nil {
			t.Fatal(err)
		}
		all, err := io.ReadAll(ch)
		if err != nil || !strings.HasPrefix(string(all), test.want) || test.want == "" && len(all) > 0 {
			t.Errorf("%s: answer %q, %v", name, all, err)
		}
		_ = ch.Close()
	}
	if _, _, err := c.SendRequest("keepalive@openssh.com", true, nil); err != nil {
		t.Errorf("the connection ended: %v", err)
	}
}

// waiting returns a handler that sends to the channel started, waits until the request ends, and sends to the
// channel ended.
func waiting(started, ended chan struct{}) func(http.ResponseWriter, *http.Request, relay.Actor) {
	return func(_ http.ResponseWriter, r *http.Request, _ relay.Actor) {
		started <- struct{}{}
		<-r.Context().Done()
		ended <- struct{}{}
	}
}

// TestAPIChannelEnds: a waiting request ends when its channel ends, when its key is removed, and when the
// server stops.
func TestAPIChannelEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(b *fixture, ch apiChannel){
		"channel": func(_ *fixture, ch apiChannel) { _ = ch.Close() },
		"key": func(b *fixture, _ apiChannel) {
			b.store.mu.Lock()
			clear(b.store.keys)
			b.store.mu.Unlock()
			b.srv.Publish([]relay.Change{{Kind: relay.ChangeAccount, Credential: b.alice.actor.Credential}})
		},
		"server": func(b *fixture, _ apiChannel) {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			_ = b.srv.Shutdown(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var channels atomic.Int64
			started, ended := make(chan struct{}, 1), make(chan struct{}, 1)
			b := newFixture(t, withAPI(&channels, waiting(started, ended)))
			ch := mustOpenAPI(t, b.mustDial(b.alice))
			if _, err := io.WriteString(ch, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			<-started
			began := time.Now()
			end(b, ch)
			<-ended
			if took := time.Since(began); took > 10*time.Second { // the end comes at once; 10 s are for a busy machine
				t.Errorf("the request ended after %v", took)
			}
		})
	}
}

// TestAPIChannelWithoutSpace: bytes that arrive while an earlier request waits are reserved in the budget. If
// the budget has no space, the channel is closed.
func TestAPIChannelWithoutSpace(t *testing.T) {
	t.Parallel()
	for limit, want := range map[int64]bool{1 << 20: true, 64 << 20: false} {
		var channels atomic.Int64
		started, ended := make(chan struct{}, 1), make(chan struct{}, 1)
		budget := budget.New(limit)
		b := newFixture(t, withAPI(&channels, waiting(started, ended)), func(o *Options) { o.Budget = budget })
		ch := mustOpenAPI(t, b.mustDial(b.alice))
		if _, err := io.WriteString(ch, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"+strings.Repeat("x", 512<<10)); err != nil {
			t.Fatal(err)
		}
		<-started
		if want {
			<-ended
			continue
		}
		eventually(t, 30*time.Second, "reservation", func() bool { return budget.Stats().Used == link.PausedBytes })
		_ = ch.Close()
		<-ended
		eventually(t, 30*time.Second, "release", func() bool { return budget.Stats().Used == 0 })
	}
}

// TestAPIStalls: the channel of a peer is closed if the peer does not read its response or does not send an
// announced body.
func TestAPIStalls(t *testing.T) {
	t.Parallel()
	for name, raw := range map[string]string{
		"answer": "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"body":   "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhi",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var channels atomic.Int64
			ended := make(chan error, 1)
			b := newFixture(t, withAPI(&channels, func(w http.ResponseWriter, r *http.Request, _ relay.Actor) {
				_, err := io.ReadAll(r.Body)
				for piece := make([]byte, 64<<10); err == nil; {
					_, err = w.Write(piece)
				}
				ended <- err
			}), func(o *Options) { o.StallTimeout = 300 * time.Millisecond })
			ch := mustOpenAPI(t, b.mustDial(b.alice))
			if _, err := io.WriteString(ch, raw); err != nil {
				t.Fatal(err)
			}
			select {
			case <-ended:
			case <-time.After(30 * time.Second):
				t.Fatal("the handler still waits")
			}
		})
	}
}
