package sshgate

import (
	"bytes"
	"context"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/cli"
	"relay/link"
)

// The peers of these tests break the protocol in ways that no SSH library does. The tests therefore replace the
// connections and channels of x/crypto by fakes.

// badPeer is a fake ssh.Channel and ssh.NewChannel whose peer accepts data and never sends CLOSE.
type badPeer struct {
	ssh.Channel
	reqs   chan *ssh.Request
	reject func() error
}

func (r *badPeer) ChannelType() string                               { return "session" }
func (r *badPeer) ExtraData() []byte                                 { return nil }
func (r *badPeer) Accept() (ssh.Channel, <-chan *ssh.Request, error) { return r, r.reqs, nil }
func (r *badPeer) Reject(ssh.RejectionReason, string) error          { return r.reject() }
func (r *badPeer) Read([]byte) (int, error)                          { return 0, io.EOF }
func (r *badPeer) Write(p []byte) (int, error)                       { return len(p), nil }
func (r *badPeer) Close() error                                      { return nil }
func (r *badPeer) CloseWrite() error                                 { return nil }
func (r *badPeer) SendRequest(string, bool, []byte) (bool, error)    { return false, nil }
func (r *badPeer) Stderr() io.ReadWriter                             { return r }

// confirmedOpen is a fake ssh.Conn. Each of its OpenChannel calls returns ch and reqs, as if the peer had
// confirmed the channel.
type confirmedOpen struct {
	ssh.Conn
	ch   ssh.Channel
	reqs <-chan *ssh.Request
}

func (o confirmedOpen) OpenChannel(string, []byte) (ssh.Channel, <-chan *ssh.Request, error) {
	return o.ch, o.reqs, nil
}

// confirmed replaces the x/crypto connection of c by a fake, and opens a channel of a tunnel on it. This
// link.Channel uses ch and reqs.
func (c *conn) confirmed(ch ssh.Channel, reqs <-chan *ssh.Request) *link.Channel {
	c.Use(confirmedOpen{ch: ch, reqs: reqs})
	h, err := c.OpenChannel(context.Background(), "forwarded-tcpip", nil, c.tunnelChannel(1))
	if err != nil {
		panic(err)
	}
	return h
}

// met returns a client that has logged in and used its connection, and the server's side of this connection.
func (b *fixture) met() (*ssh.Client, *conn) {
	b.t.Helper()
	raw, err := net.Dial("tcp", "127.0.0.1:"+b.port)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = raw.Close() })
	opened, channels, requests, err := ssh.NewClientConn(raw, "relay", &ssh.ClientConfig{
		User: "relay", Auth: []ssh.AuthMethod{ssh.PublicKeys(b.alice.signer)}, HostKeyCallback: ssh.InsecureIgnoreHostKey(),
	})
	if err != nil {
		b.t.Fatalf("login: %v", err)
	}
	others, announced := make(chan *ssh.Request), make(chan struct{})
	go func() {
		defer close(others)
		for r := range requests {
			if r.Type == hostKeys {
				close(announced)
				continue
			}
			others <- r
		}
	}()
	client := ssh.NewClient(opened, channels, others)
	if _, _, err := client.SendRequest("x", true, nil); err != nil {
		b.t.Fatal(err)
	}
	select {
	case <-announced:
	case <-time.After(30 * time.Second):
		b.t.Fatal("the host keys were not announced")
	}
	c := b.srv.all()[0]
	// Some tests replace the x/crypto connection that the announcement of host keys reads, so the
	// announcement must have ended.
	stacks := make([]byte, 8<<20)
	for bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("announceHostKeys")) {
		time.Sleep(time.Millisecond)
	}
	c.Run("test", func() {})
	return client, c
}

func closed(t *testing.T, client *ssh.Client) {
	t.Helper()
	ended := make(chan struct{})
	go func() { defer close(ended); _ = client.Wait() }()
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Fatal("the connection is still open")
	}
}

// TestOpensWithoutEnd: a peer that opens channels and does not read the refusals is disconnected at a limit.
func TestOpensWithoutEnd(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	client, c := b.met()
	stuck := make(chan struct{})
	open := &badPeer{reject: func() error { <-stuck; return nil }}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(stuck)
	c.sessions.Refuse()
	for range maxAnswering + 1 {
		wg.Go(func() { c.offered(c.Offer(open)) })
	}
	closed(t, client)
}

// TestPanicBehindTheEnd: a panic in a channel that a peer opened while its connection was ending does not end the
// process.
func TestPanicBehindTheEnd(t *testing.T) {
	t.Parallel()
	_, c := newFixture(t).met()
	c.Close(link.Stopped)
	c.offered(c.Offer(&badPeer{reject: func() error { panic("reject") }}))
	for c.answering.Load() > 0 {
		time.Sleep(time.Millisecond)
	}
}

// TestChannelsBeyondAll: if a client closes its channels more slowly than requests arrive, the callers get an
// error that names this reason.
func TestChannelsBeyondAll(t *testing.T) {
	t.Parallel()
	_, c := newFixture(t).met()
	if err := c.openFailure(link.ErrUnclosed, 0); relay.AsError(err).Code != relay.CodeOverloaded {
		t.Errorf("a channel beyond all: %v", err)
	}
}

// TestSessionsLeftOpen: a peer that does not close the channels of its ended sessions cannot open more than a
// limited number of sessions. Such channels do not keep the connection open.
func TestSessionsLeftOpen(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	client, c := b.met()
	refused := false
	for range maxLingering + 1 {
		reqs := make(chan *ssh.Request, 1)
		defer close(reqs)
		reqs <- &ssh.Request{Type: "exec", Payload: ssh.Marshal(struct{ Line string }{"version"})}
		c.sessions.Offered(c.Offer(&badPeer{reqs: reqs, reject: func() error { refused = c.Context().Err() == nil; return nil }}), c.who, nil)()
	}
	if !refused {
		t.Error("no session was refused")
	}
	c.closeIdle() // instead of waiting for the timer of c.usage, which calls closeIdle
	closed(t, client)
}

// TestTargetsThatAreNone: the announced target and name of a client have a limited length and cannot add
// lines to a request.
func TestTargetsThatAreNone(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	client, c := b.met()
	for _, target := range []relay.Target{
		{Bind: strings.Repeat("x", 100_000)},
		{Bind: "a", URL: strings.Repeat("x", 100_000)},
		{Bind: "a", HostHeader: strings.Repeat("x", 100_000)},
		{Bind: "a", HostHeader: "x\r\nX-Evil: 1"},
		{Bind: "a", HostHeader: "x y"},
		{Bind: "a", HostHeader: "x\x00"},
	} {
		if ok, _, err := client.SendRequest(relay.TargetRequest, true, ssh.Marshal(target)); ok || err != nil {
			t.Error(ok, err)
		}
	}
	c.announced.mu.Lock()
	defer c.announced.mu.Unlock()
	if len(c.announced.targets) != 0 {
		t.Error("kept")
	}
}

// TestEmptyCommand: a command line of empty words does not panic.
func TestEmptyCommand(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	c := b.mustDial(b.alice)
	for line, want := range map[string]int{"'' --help": cli.ExitOK, "''": cli.ExitUsage, "'' -h": cli.ExitOK, "--help ''": cli.ExitOK, "help ''": cli.ExitUsage} {
		if _, _, code := runs(t, c, line); code != want {
			t.Errorf("%s: exit %d, want %d", line, code, want)
		}
	}
}

// TestChecksAreRepeatedUntilTheStoreAnswers: if a key was removed while the store did not answer, the
// connection ends soon after the store answers.
func TestChecksAreRepeatedUntilTheStoreAnswers(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 64)
	b := newFixture(t, func(o *Options) { o.Accounts = telling{o.Accounts.(*fakeStore), asked} })
	client := b.mustDial(b.alice)
	forwards(t, client, "a", 80)
	b.online("a")
	b.store.mu.Lock()
	b.store.down = true
	clear(b.store.keys)
	b.store.mu.Unlock()
	b.srv.Publish([]relay.Change{{Kind: relay.ChangeAccount}})
	<-asked
	if b.store.state("a") != relay.TunnelOnline {
		t.Error("cut off because the store was down")
	}
	b.store.mu.Lock()
	b.store.down = false
	b.store.mu.Unlock()
	closed(t, client)
}

// telling is a store that sends to the channel asked after each call of Revoked.
type telling struct {
	*fakeStore
	asked chan struct{}
}

func (f telling) Revoked(ctx context.Context, rights []relay.Right) ([]relay.Right, error) {
	revoked, err := f.fakeStore.Revoked(ctx, rights)
	select {
	case f.asked <- struct{}{}:
	default:
	}
	return revoked, err
}

// unclosed is a TCP connection whose Close does nothing, so x/crypto/ssh cannot close it.
type unclosed struct{ net.Conn }

func (unclosed) Close() error { return nil }

// TestIdleEndIsNoReset: after relayd has closed an unused connection, the client can still write to it for a
// moment without an error, for example the answer to a ping.
func TestIdleEndIsNoReset(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	var failed error
	for range 5 { // one of five tries must succeed: relayd accepts late bytes for only a second, and a busy machine may send them later
		tcp, err := net.Dial("tcp", "127.0.0.1:"+b.port)
		if err != nil {
			t.Fatal(err)
		}
		defer tcp.Close()
		client, channels, requests, err := ssh.NewClientConn(unclosed{tcp}, "relay", &ssh.ClientConfig{
			User: "relay", Auth: []ssh.AuthMethod{ssh.PublicKeys(b.alice.signer)}, HostKeyCallback: ssh.InsecureIgnoreHostKey(),
		})
		if err != nil {
			t.Fatal(err)
		}
		go ssh.DiscardRequests(requests)
		go func() {
			for range channels {
			}
		}()
		for _, c := range b.srv.all() {
			c.closeIdle() // instead of waiting for the timer of c.usage, which calls closeIdle
		}
		_ = client.Wait()
		if _, failed = tcp.Write([]byte("x")); failed == nil {
			time.Sleep(20 * time.Millisecond) // a reset would have arrived by then
			_, failed = tcp.Write([]byte("x"))
		}
		if failed == nil {
			return
		}
	}
	t.Errorf("after the end: %v", failed)
}
