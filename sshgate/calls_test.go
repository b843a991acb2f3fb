package sshgate

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/sshgate/node"
	"relay/sshgate/shell"
)

// TestConnectionEndsUnderOpens cuts the TCP connections of clients while goroutines open channels on them. Some of
// these calls of x/crypto never return, but every connection ends.
func TestConnectionEndsUnderOpens(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	rounds, end := 0, time.Now().Add(4*time.Second)
	for ; rounds < 1500 && time.Now().Before(end) && !t.Failed(); rounds++ {
		tcp, err := net.Dial("tcp", "127.0.0.1:"+b.port)
		if err != nil {
			t.Fatal(err)
		}
		conn, channels, requests, err := ssh.NewClientConn(tcp, "relay", &ssh.ClientConfig{
			User: "relay", Auth: []ssh.AuthMethod{ssh.PublicKeys(b.alice.signer)}, HostKeyCallback: ssh.InsecureIgnoreHostKey(),
		})
		if err != nil {
			t.Fatal(err)
		}
		client := ssh.NewClient(conn, channels, requests)
		accept(t, client, func(_ forwardedOpen, n ssh.NewChannel) {
			if ch, reqs, err := n.Accept(); err == nil {
				go ssh.DiscardRequests(reqs)
				go func() { _, _ = io.Copy(io.Discard, ch) }()
			}
		})
		forwards(t, client, "a", 80)
		tun := b.online("a").(*forward)
		var opened atomic.Int64
		busy := make(chan struct{})
		var callers sync.WaitGroup
		for range 8 {
			callers.Go(func() {
				for tun.c.Context().Err() == nil {
					ch, err := tun.Open(tun.c.Context(), origin)
					if opened.Add(1) == 16 {
						close(busy)
					}
					if err == nil {
						_ = ch.Close()
					}
				}
			})
		}
		<-busy
		_ = tcp.Close()
		select {
		case <-tun.c.Done():
		case <-time.After(30 * time.Second):
			t.Errorf("round %d: the connection does not end", rounds)
		}
		callers.Wait()
		_ = client.Close()
	}
	eventually(t, 30*time.Second, "no connection is counted", func() bool { return b.srv.Stats().Connections == 0 })
	t.Logf("%d rounds, %d calls left in x/crypto", rounds, b.srv.work.Left())
}

// unanswered is a fake ssh.Conn and ssh.NewChannel whose peer never answers. Each call that needs an answer waits
// until over is closed; only Accept succeeds at once if accepts is set.
type unanswered struct {
	ssh.Conn
	kind    string
	extra   []byte
	accepts bool // whether Accept succeeds
	reqs    chan *ssh.Request

	once    sync.Once
	entered chan struct{} // closed by the first call
	over    chan struct{}
}

func (u *unanswered) stuck() error {
	u.once.Do(func() { close(u.entered) })
	<-u.over
	return io.EOF
}

func (u *unanswered) OpenChannel(string, []byte) (ssh.Channel, <-chan *ssh.Request, error) {
	return nil, nil, u.stuck()
}

func (u *unanswered) SendRequest(string, bool, []byte) (bool, []byte, error) {
	return false, nil, u.stuck()
}
func (u *unanswered) ChannelType() string                      { return u.kind }
func (u *unanswered) ExtraData() []byte                        { return u.extra }
func (u *unanswered) Reject(ssh.RejectionReason, string) error { return u.stuck() }
func (u *unanswered) Accept() (ssh.Channel, <-chan *ssh.Request, error) {
	if u.accepts {
		return unansweredChannel{u}, u.reqs, nil
	}
	return nil, nil, u.stuck()
}

type unansweredChannel struct{ u *unanswered }

func (c unansweredChannel) Read([]byte) (int, error)                       { return 0, c.u.stuck() }
func (c unansweredChannel) Write([]byte) (int, error)                      { return 0, c.u.stuck() }
func (c unansweredChannel) Close() error                                   { return c.u.stuck() }
func (c unansweredChannel) CloseWrite() error                              { return c.u.stuck() }
func (c unansweredChannel) SendRequest(string, bool, []byte) (bool, error) { return false, c.u.stuck() }
func (c unansweredChannel) Stderr() io.ReadWriter                          { return c }

// TestCallsWithoutAnswer: while a call of x/crypto waits for an answer that never comes, the server can still stop,
// and the connection gives its slot back. The test tries each call that may wait like this.
func TestCallsWithoutAnswer(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(b *fixture, c *conn, u *unanswered){
		"open": func(b *fixture, _ *conn, _ *unanswered) {
			tun := b.online("a")
			go func() { _, _ = tun.Open(context.Background(), origin) }()
		},
		"ping":      func(_ *fixture, c *conn, _ *unanswered) { c.Ping() },
		"host keys": func(_ *fixture, c *conn, _ *unanswered) { c.Go("test", c.announceHostKeys) },
		"notice": func(_ *fixture, c *conn, _ *unanswered) {
			c.hello(ssh.Marshal(relay.Hello{Protocol: 1}))
			c.notify(shell.Notice{Kind: relay.NoticeOnline, Alias: "a"})
		},
		"reply": func(_ *fixture, c *conn, u *unanswered) {
			c.post(func() { _ = u.stuck() })
			c.post(func() {})
		},
		"refused channel": func(b *fixture, c *conn, u *unanswered) {
			u.kind = "x11"
			go c.offered(c.Offer(u))
		},
		"session": func(b *fixture, c *conn, u *unanswered) {
			u.kind = "session"
			go c.offered(c.Offer(u))
		},
		"command": func(b *fixture, c *conn, u *unanswered) {
			u.kind, u.accepts = "session", true
			u.reqs <- &ssh.Request{Type: "exec", Payload: ssh.Marshal(struct{ Value string }{"help"})}
			go c.offered(c.Offer(u))
		},
		"api": func(b *fixture, c *conn, u *unanswered) {
			u.kind, u.accepts = "session", true
			u.reqs <- &ssh.Request{Type: "subsystem", Payload: ssh.Marshal(struct{ Value string }{"relay-api"})}
			go c.offered(c.Offer(u))
		},
		"read, write, half-close and close": func(_ *fixture, c *conn, u *unanswered) {
			ch := c.confirmed(unansweredChannel{u}, u.reqs)
			go func() { _, _ = ch.Read(make([]byte, 10)) }()
			go func() {
				_, _ = ch.Write([]byte("x"))
				_ = ch.CloseWrite()
			}()
			_ = ch.Close()
		},
		"channel of another node": func(b *fixture, c *conn, u *unanswered) {
			u.kind = "relay-tunnel@relay"
			c.Go("test", func() { b.srv.nodes.Handlers().Channel(c.Offer(u)) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
			client, c := b.met()
			forwards(t, client, "a", 80)
			b.online("a")
			u := &unanswered{reqs: make(chan *ssh.Request, 1), entered: make(chan struct{}), over: make(chan struct{})}
			c.Use(u)
			defer close(u.over)
			defer close(u.reqs)
			call(b, c, u)
			select {
			case <-u.entered:
			case <-time.After(30 * time.Second):
				t.Fatal("x/crypto was not called")
			}
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			stopped := make(chan struct{})
			go func() {
				defer close(stopped)
				_ = b.srv.Shutdown(ctx)
			}()
			select {
			case <-stopped:
			case <-time.After(closeTime + 10*time.Second):
				t.Fatal("the stop does not end")
			}
			eventually(t, 30*time.Second, "no connection is counted", func() bool { return b.srv.Stats().Connections == 0 })
		})
	}
}

// TestLeftCallsAreCounted: after a connection has ended, Workers.Left counts each of its goroutines that has not
// returned.
func TestLeftCallsAreCounted(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	client, c := b.met()
	over := make(chan struct{})
	c.Go("test", func() { <-over })
	_ = client.Close()
	<-c.Done()
	eventually(t, 30*time.Second, "one call is counted as left", func() bool { return b.srv.work.Left() == 1 })
	close(over)
	eventually(t, 30*time.Second, "the call has returned", func() bool { return b.srv.work.Left() == 0 })
}

// slowClaims is a store whose ClaimAlias waits until the channel answer is closed.
type slowClaims struct {
	*fakeStore
	answer chan struct{}
}

func (s slowClaims) ClaimAlias(ctx context.Context, who relay.Actor, name string) (*relay.Alias, error) {
	<-s.answer
	return s.fakeStore.ClaimAlias(ctx, who, name)
}

// TestLongRequests: a global request that is longer than any known request is refused after the requests before it were
// answered. While it waits for these answers, its bytes are not kept in memory.
func TestLongRequests(t *testing.T) {
	t.Parallel()
	answer := make(chan struct{})
	b := newFixture(t, func(o *Options) { o.Accounts = slowClaims{o.Accounts.(*fakeStore), answer} })
	client, c := b.met()
	forwarded := make(chan bool, 1)
	go func() {
		ok, _, _ := client.SendRequest("tcpip-forward", true, ssh.Marshal(forwardRequest{"a", 80}))
		forwarded <- ok
	}()
	eventually(t, 30*time.Second, "the forward waits for the store", func() bool { return c.requests.waiting.Load() == 1 })
	long := ssh.Marshal(relay.Target{Bind: "a", URL: strings.Repeat("x", 200<<10)})
	for range 2 * maxQueuedRequests {
		if _, _, err := client.SendRequest(relay.TargetRequest, false, long); err != nil {
			t.Fatal(err)
		}
	}
	_, _, _ = client.SendRequest(relay.TargetRequest, false, ssh.Marshal(relay.Target{Bind: "a", URL: "http://127.0.0.1:3000"}))
	eventually(t, 30*time.Second, "the short request waits", func() bool { return c.requests.waiting.Load() > 1 })
	if n := c.requests.waiting.Load(); n != 2 {
		t.Errorf("%d requests wait, so some of the long ones", n)
	}
	close(answer)
	if !<-forwarded {
		t.Error("the forward was refused")
	}
	for _, kind := range []string{"tcpip-forward", "cancel-tcpip-forward", relay.HelloRequest, relay.TargetRequest, hostKeysProve, "x", strings.Repeat("x", 2<<10)} {
		if ok, _, err := client.SendRequest(kind, true, long); ok || err != nil {
			t.Errorf("a long request %.20s: %t, %v", kind, ok, err)
		}
	}
}

// silentNode is a store with one other node that does not answer.
type silentNode struct {
	node.Nodes
	other relay.Node
}

func (silentNode) NodeID() string               { return "this" }
func (n silentNode) Peers() []relay.Node        { return []relay.Node{n.other} }
func (silentNode) RefreshPeers(context.Context) {}

// TestShutdownBesideSilentNode: another node that accepts connections and sends nothing, or only part of a
// handshake, does not delay the shutdown.
func TestShutdownBesideSilentNode(t *testing.T) {
	t.Parallel()
	for name, says := range map[string]string{"nothing": "", "a version": "SSH-2.0-relayd\r\n", "half a packet": "SSH-2.0-relayd\r\n\x00\x00\x05\x00\x04\x14"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			met, over := make(chan struct{}, 100), make(chan struct{})
			defer close(over)
			defer ln.Close()
			go func() {
				for {
					c, err := ln.Accept()
					if err != nil {
						return
					}
					_, _ = io.WriteString(c, says)
					met <- struct{}{}
					go func() {
						<-over
						c.Close()
					}()
				}
			}()
			b := newFixture(t, func(o *Options) {
				key := o.HostKeys[0]
				o.Peers = PeerOptions{
					Key: key, Reachable: func(string, bool) {}, Wake: func(int64) {},
					Nodes: silentNode{other: relay.Node{ID: "other", Name: "other", PeerAddr: ln.Addr().String(), PeerKey: string(ssh.MarshalAuthorizedKey(key.PublicKey()))}},
				}
			})
			<-met
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			begun := time.Now()
			_ = b.srv.Shutdown(ctx)
			if took := time.Since(begun); took > closeTime+10*time.Second {
				t.Errorf("the stop took %v", took)
			}
		})
	}
}
