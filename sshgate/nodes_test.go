package sshgate

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/budget"
	"relay/link"
	"relay/sshgate/node"
	"relay/waits"
)

// cluster holds the nodes of a test, and the list from which they know each other.
type cluster struct {
	mu    sync.Mutex
	nodes map[string]relay.Node
	late  map[string]relay.Node // nodes that are listed from the next RefreshPeers on
}

// member is one node of a cluster. It records the calls of Wake and Reachable that its server makes.
type member struct {
	*cluster
	id    string
	woken chan int64
	reach map[string]bool
	srv   *Server
}

func (m *member) NodeID() string { return m.id }

func (m *member) Peers() (list []relay.Node) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, n := range m.nodes {
		if id != m.id {
			list = append(list, n)
		}
	}
	return list
}

func (m *member) RefreshPeers(context.Context) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.Copy(m.nodes, m.late)
}

func (m *member) reaches(node string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.reach[node]
}

func newSigner(t testing.TB) ssh.Signer {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// newMember starts a server as a node of the cluster.
func (c *cluster) newMember(t testing.TB, id string, change ...func(*Options)) (*fixture, *member) {
	t.Helper()
	m := &member{cluster: c, id: id, woken: make(chan int64, 16), reach: map[string]bool{}}
	key := newSigner(t)
	b := newFixture(t, append(change, func(o *Options) {
		o.Peers = PeerOptions{
			Nodes: m, Key: key, Wake: func(alias int64) { m.woken <- alias },
			Reachable: func(node string, ok bool) {
				m.mu.Lock()
				defer m.mu.Unlock()
				m.reach[node] = ok
			},
		}
	})...)
	m.srv = b.srv
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes[id] = relay.Node{ID: id, Name: id, PeerAddr: "127.0.0.1:" + b.port, PeerKey: string(ssh.MarshalAuthorizedKey(key.PublicKey()))}
	return b, m
}

// twoNodes starts the nodes "owner" and "ingress", which reach each other, and returns the fixture of the first and the
// member of the second. client has a tunnel for the alias a at owner, and the function handle serves the channels of
// this tunnel. tun is the same tunnel, for use at ingress.
func twoNodes(t *testing.T, handle func(forwardedOpen, ssh.NewChannel)) (owner *fixture, client *ssh.Client, other *member, tun relay.RemoteTunnel) {
	t.Helper()
	c := &cluster{nodes: map[string]relay.Node{}}
	owner, _ = c.newMember(t, "owner")
	ingress, other := c.newMember(t, "ingress")
	client = owner.mustDial(owner.alice)
	accept(t, client, handle)
	forwards(t, client, "a", 80)
	rec := relay.TunnelRecord{TunnelInfo: owner.online("a").Info(), Alias: 1, Node: "owner"}
	eventually(t, 30*time.Second, "the nodes reach each other", func() bool { return other.reaches("owner") })
	return owner, client, other, ingress.srv.Remote(rec)
}

// echo writes back the bytes it receives, until the peer half-closes.
func echo(_ forwardedOpen, n ssh.NewChannel) {
	ch, reqs, err := n.Accept()
	if err != nil {
		return
	}
	go ssh.DiscardRequests(reqs)
	_, _ = io.Copy(ch, ch)
	_ = ch.CloseWrite()
}

// TestTunnelOfAnotherNode: the client of a tunnel at another node gets the caller's address, and bytes and
// half-closes pass in both directions.
func TestTunnelOfAnotherNode(t *testing.T) {
	t.Parallel()
	got := make(chan forwardedOpen, 1)
	_, _, _, tun := twoNodes(t, func(o forwardedOpen, n ssh.NewChannel) {
		got <- o
		echo(o, n)
	})
	ch := open(t, tun)
	if o := <-got; o.Origin != origin.Addr().String() || o.OriginPort != uint32(origin.Port()) || o.Bind != "a" {
		t.Errorf("open payload %+v", o)
	}
	sent := random(5<<20, 1)
	go func() {
		if n, err := ch.Write(sent); n != len(sent) || err != nil {
			t.Errorf("wrote %d, %v", n, err)
		}
		if err := ch.CloseWrite(); err != nil {
			t.Errorf("half-close: %v", err)
		}
	}()
	back, err := readAll(t, ch)
	if err != io.EOF || !bytes.Equal(back, sent) {
		t.Errorf("%d bytes came back of %d, %v", len(back), len(sent), err)
	}
	if e := ch.End(30 * time.Second).Refusal; e != nil {
		t.Errorf("refusal %v", e)
	}
	_ = ch.Close()
}

func TestRefusalsOfAnotherNode(t *testing.T) {
	t.Parallel()
	owner, _, other, tun := twoNodes(t, func(_ forwardedOpen, n ssh.NewChannel) { _ = n.Reject(ssh.ConnectionFailed, "nobody listens") })
	if _, err := tun.Open(t.Context(), origin); relay.AsError(err).Code != relay.CodeLocalRefused || !strings.Contains(relay.AsError(err).Detail, "nobody listens") {
		t.Errorf("open: %v", err)
	}
	for _, change := range []func(*relay.TunnelRecord){
		func(r *relay.TunnelRecord) { r.ID = "tun_of_before" },
		func(r *relay.TunnelRecord) { r.Node = "gone" },
	} {
		rec := relay.TunnelRecord{TunnelInfo: tun.Info(), Alias: 1, Node: "owner"}
		change(&rec)
		if _, err := other.srv.Remote(rec).Open(t.Context(), origin); err != relay.ErrTunnelMoved {
			t.Errorf("open: %v, want %v", err, relay.ErrTunnelMoved)
		}
	}
	tun.Close("taken over by a newer connection")
	eventually(t, 30*time.Second, "the client is told", func() bool { return owner.store.state("a") == relay.TunnelOffline })
	if _, err := tun.Open(t.Context(), origin); err != relay.ErrTunnelMoved {
		t.Errorf("open of the closed tunnel: %v", err)
	}
}

// TestEndsOfAnotherNode: if a client sends dial-failed@relay or broke-off@relay or disconnects, a channel from
// another node ends with the same error as a channel of the tunnel's own node.
func TestEndsOfAnotherNode(t *testing.T) {
	t.Parallel()
	how, arrived := make(chan string, 1), make(chan struct{})
	var client *ssh.Client
	var tun relay.RemoteTunnel
	_, client, _, tun = twoNodes(t, func(_ forwardedOpen, n ssh.NewChannel) {
		ch, reqs, err := n.Accept()
		if err != nil {
			return
		}
		go ssh.DiscardRequests(reqs)
		_, _ = ch.Read(make([]byte, 10))
		switch <-how {
		case "dial":
			_, _ = ch.SendRequest(relay.DialFailedRequest, false, ssh.Marshal(relay.DialFailed{Reason: 2, Class: "refused", Text: "nobody"}))
			_ = ch.Close()
		case "abort":
			_, _ = ch.Write([]byte("part"))
			_, _ = ch.SendRequest(relay.BrokeOffRequest, true, nil)
			_ = ch.Close()
		case "die":
			_, _ = ch.Write([]byte("part"))
			<-arrived
			_ = client.Close()
		}
	})
	if _, _, err := client.SendRequest(relay.HelloRequest, false, ssh.Marshal(relay.Hello{Protocol: 1, Flags: relay.HelloLazyDial, Version: "9"})); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		how, text string
		err       error
		refusal   string
	}{{"dial", "", io.EOF, relay.CodeLocalRefused}, {"abort", "part", io.ErrUnexpectedEOF, ""}, {"die", "part", link.ErrLost, ""}} {
		ch := open(t, tun)
		how <- c.how
		if _, err := ch.Write([]byte("GET /")); err != nil {
			t.Fatal(err)
		}
		var first []byte
		for c.how == "die" && string(first) != c.text {
			buf := make([]byte, len(c.text)-len(first))
			f := <-filled(ch, buf)
			if first = append(first, buf[:f.N]...); f.Err != nil {
				t.Fatal(f.Err)
			}
		}
		if c.how == "die" {
			close(arrived)
		}
		got, err := readAll(t, ch)
		if got = append(first, got...); string(got) != c.text || err != c.err {
			t.Errorf("%s: %q, %v", c.how, got, err)
		}
		code := ""
		if e := ch.End(30 * time.Second).Refusal; e != nil {
			code = e.Code
		}
		if code != c.refusal {
			t.Errorf("%s: refusal %q", c.how, code)
		}
		_ = ch.Close()
	}
}

// TestStrangersAtThePeerPort: a login as a node needs the key of a living node, which may have just started. The
// server shows another host key to nodes than to users.
func TestStrangersAtThePeerPort(t *testing.T) {
	t.Parallel()
	owner, _, other, _ := twoNodes(t, echo)
	known := other.Peers()[0]
	hostKey, _, _, _, err := ssh.ParseAuthorizedKey([]byte(known.PeerKey))
	if err != nil {
		t.Fatal(err)
	}
	dial := func(user string, key ssh.Signer, host ssh.HostKeyCallback) (*ssh.Client, error) {
		return ssh.Dial("tcp", known.PeerAddr, &ssh.ClientConfig{
			User: user, ClientVersion: node.ClientVersion, Auth: []ssh.AuthMethod{ssh.PublicKeys(key)}, HostKeyCallback: host, Timeout: 10 * time.Second,
		})
	}
	for name, key := range map[string]ssh.Signer{"any key": newSigner(t), "key of a user": owner.alice.signer} {
		for _, user := range []string{"ingress", "owner", "", "alice"} {
			if c, err := dial(user, key, ssh.FixedHostKey(hostKey)); err == nil {
				c.Close()
				t.Errorf("%s as %q: let in", name, user)
			}
		}
	}
	late := newSigner(t)
	other.mu.Lock()
	other.late = map[string]relay.Node{"late": {ID: "late", PeerKey: string(ssh.MarshalAuthorizedKey(late.PublicKey()))}}
	other.mu.Unlock()
	if c, err := dial("late", newSigner(t), ssh.FixedHostKey(hostKey)); err == nil {
		c.Close()
		t.Error("any key as a node that has just started: let in")
	}
	other.mu.Lock()
	delete(other.nodes, "late")
	other.mu.Unlock()
	if c, err := dial("late", late, ssh.FixedHostKey(hostKey)); err != nil {
		t.Errorf("a node that has just started: %v", err)
	} else {
		c.Close()
	}
	if c, err := dial("ingress", newSigner(t), ssh.FixedHostKey(owner.srv.o.HostKeys[0].PublicKey())); err == nil || !strings.Contains(err.Error(), "host key") {
		t.Errorf("the host key for users was shown to a node: %v, %v", c, err)
	}
	if n := owner.srv.nodes.Served(); n == 0 || n > 10 {
		t.Errorf("%d connections of other nodes", n)
	}
}

// TestCausesOfNodes: of the connections of another node, the eleventh gets no slot, and the others end when that node
// has ended.
func TestCausesOfNodes(t *testing.T) {
	t.Parallel()
	all := &cluster{nodes: map[string]relay.Node{}}
	owner, _ := all.newMember(t, "owner")
	key := newSigner(t)
	all.mu.Lock()
	all.nodes["other"] = relay.Node{ID: "other", PeerKey: string(ssh.MarshalAuthorizedKey(key.PublicKey()))}
	all.mu.Unlock()
	known := map[*conn]bool{}
	var dial func() *conn
	tries := 0
	dial = func() (served *conn) {
		client, err := ssh.Dial("tcp", "127.0.0.1:"+owner.port, &ssh.ClientConfig{
			User: "other", ClientVersion: node.ClientVersion, Auth: []ssh.AuthMethod{ssh.PublicKeys(key)},
			HostKeyCallback: func(string, net.Addr, ssh.PublicKey) error { // at this time, the connection cannot have ended
				for _, c := range owner.srv.all() {
					if c.Context().Err() == nil && !known[c] {
						known[c], served = true, c
					}
				}
				return nil
			},
		})
		if err == nil { // a connection without a slot may end before the client has heard of its login
			t.Cleanup(func() { _ = client.Close() })
		}
		if served == nil {
			if tries++; tries > 20 {
				t.Fatal(err)
			}
			return dial() // on a busy machine the login may take longer than LoginTime; another node would also dial again
		}
		return served
	}
	endsBy := func(c *conn, want link.Cause) {
		t.Helper()
		select {
		case <-c.Done():
		case <-time.After(30 * time.Second):
			t.Fatal("the connection is still open")
		}
		if got := c.Cause(); got != want {
			t.Errorf("ended by %q, want %q", got, want)
		}
	}
	var served []*conn
	for range 10 {
		served = append(served, dial())
	}
	eventually(t, 30*time.Second, "ten connections", func() bool { return owner.srv.nodes.Served() == 10 })
	endsBy(dial(), link.NoSlot)
	all.mu.Lock()
	delete(all.nodes, "other")
	all.mu.Unlock()
	for _, c := range served {
		endsBy(c, link.NodeEnded)
	}
}

// TestNodeThatCannotBeReached: a node whose port refuses connections is unreachable and gets no requests. Only a
// reachable node is notified of changes of queues by Wake.
func TestNodeThatCannotBeReached(t *testing.T) {
	t.Parallel()
	c := &cluster{nodes: map[string]relay.Node{}}
	gone := "127.0.0.1:" + deafPort(t)
	_, owner := c.newMember(t, "owner")
	c.mu.Lock()
	refusing := c.nodes["owner"]
	refusing.ID, refusing.PeerAddr = "refusing", gone
	c.nodes["refusing"] = refusing
	c.mu.Unlock()
	ingress, other := c.newMember(t, "ingress")
	tun := ingress.srv.Remote(relay.TunnelRecord{TunnelInfo: relay.TunnelInfo{ID: "tun_x"}, Alias: 9, Node: "refusing"})
	eventually(t, 30*time.Second, "another node is reached", func() bool { return other.reaches("owner") })
	if _, err := tun.Open(t.Context(), origin); err != relay.ErrNotSent || tun.Heard() < time.Minute {
		t.Errorf("open: %v, heard %v ago", err, tun.Heard())
	}
	wake := ingress.srv.Remote(relay.TunnelRecord{TunnelInfo: relay.TunnelInfo{ID: "tun_y"}, Alias: 11, Node: "owner"})
	if !wake.Wake() || tun.Wake() {
		t.Error("a node is woken that cannot be reached, or the other way round")
	}
	if alias := <-owner.woken; alias != 11 {
		t.Errorf("woken for the alias %d", alias)
	}
}

// TestUnusedChannelsOfASilentClientEnd: an unused channel at another node ends when the client of its tunnel
// becomes silent.
func TestUnusedChannelsOfASilentClientEnd(t *testing.T) {
	t.Parallel()
	_, _, _, tun := twoNodes(t, echo)
	ch, err := tun.Open(t.Context(), netip.AddrPort{})
	if err != nil {
		t.Fatal(err)
	}
	defer ch.Close()
	end := filled(ch, make([]byte, 10))
	eventually(t, 30*time.Second, "the end", func() bool { // no pings are sent here, so the client sends nothing
		select {
		case f := <-end:
			return f.Err != nil
		default:
			return false
		}
	})
}

// TestSlowOpenFailsAlone: if a client confirms one channel late, because its local server does not answer,
// only the request of that channel fails, and the other requests of the tunnel continue. That holds for requests
// at the node of the tunnel and at another node.
func TestSlowOpenFailsAlone(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"one node", "another node"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			answer, first := make(chan struct{}), true
			owner, _, _, remote := twoNodes(t, func(o forwardedOpen, n ssh.NewChannel) {
				if first {
					first = false
					go echo(o, n)
					return
				}
				go func() {
					<-answer
					_ = n.Reject(ssh.ConnectionFailed, "late")
				}()
			})
			defer close(answer)
			var tun relay.Tunnel = owner.online("a")
			if at == "another node" {
				tun = remote
			}
			ch := open(t, tun)
			defer ch.Close()
			limit, want := 2*time.Second, relay.ErrNotSent // delivery has about the same time limit
			if at == "another node" {
				// The node of the tunnel ends the wait. With the time limit of delivery, a pause of the process, which
				// has both nodes here, could end the wait of this node first.
				limit, want = 6*time.Second, relay.ErrTunnelSlow
			}
			ctx, cancel := waits.WithTimeout(t.Context(), limit)
			defer cancel()
			if _, err := tun.Open(ctx, origin); err != want {
				t.Errorf("open: %v, want %v", err, want)
			}
			if h := owner.store.hold("a"); h.stales > 0 || owner.store.state("a") != relay.TunnelOnline {
				t.Errorf("the tunnel was stale %d times", h.stales)
			}
			_, _ = ch.Write([]byte("hello"))
			_ = ch.CloseWrite()
			if got, err := readAll(t, ch); string(got) != "hello" || err != io.EOF {
				t.Errorf("the other request got %q, %v", got, err)
			}
		})
	}
}

// TestFirstRequestsToANodeShareAConnection: 40 concurrent requests for a tunnel of another node open at most
// four data connections to that node.
func TestFirstRequestsToANodeShareAConnection(t *testing.T) {
	t.Parallel()
	owner, _, _, tun := twoNodes(t, func(o forwardedOpen, n ssh.NewChannel) { go echo(o, n) })
	var group sync.WaitGroup
	for range 40 {
		group.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			ch, err := tun.Open(ctx, origin)
			if err != nil {
				t.Errorf("open: %v", err)
				return
			}
			_ = ch.Close()
		})
	}
	group.Wait()
	if n := owner.srv.metrics.accepted.Load(); n > 1+1+4 { // connections: one of the client, one for control, four for data
		t.Errorf("%d connections were made", n)
	}
}

// TestStopEndsRequestsOfOtherNodes: a stopping node waits until the running requests of other nodes on its
// tunnels have got their responses.
func TestStopEndsRequestsOfOtherNodes(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	owner, _, _, tun := twoNodes(t, func(_ forwardedOpen, n ssh.NewChannel) {
		ch, reqs, err := n.Accept()
		if err != nil {
			return
		}
		go ssh.DiscardRequests(reqs)
		_, _ = ch.Read(make([]byte, 10))
		<-release
		_, _ = ch.Write([]byte("late"))
		_ = ch.Close()
	})
	ch := open(t, tun)
	if _, err := ch.Write([]byte("GET /")); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		stopped <- owner.srv.Shutdown(ctx)
	}()
	eventually(t, 30*time.Second, "the tunnel is taken off", func() bool { return owner.store.state("a") == relay.TunnelOffline })
	close(release)
	got, err := readAll(t, ch)
	if string(got) != "late" || err != io.EOF {
		t.Errorf("got %q, %v", got, err)
	}
	_ = ch.Close()
	if err := <-stopped; err != nil {
		t.Errorf("stop: %v", err)
	}
}

// TestRequestOnAParkedChannelCounts: if a channel gets its next request right after parked@relay was sent, this
// request holds a slot, even if its bytes arrive before parked@relay.
func TestRequestOnAParkedChannelCounts(t *testing.T) {
	t.Parallel()
	owner, _, _, tun := twoNodes(t, echo)
	ch := open(t, tun).(*node.Channel)
	defer ch.Close()
	inUse := func() bool {
		_, busy := owner.srv.nodes.Bridged()
		return busy == 1
	}
	buf := make([]byte, 1)
	for n := range 200 {
		if _, err := ch.Write([]byte{'x'}); err != nil {
			t.Fatal(err)
		}
		if f := <-filled(ch, buf); f.Err != nil {
			t.Fatal(f.Err)
		}
		if !inUse() {
			t.Fatalf("request %d counts as none", n)
		}
		ch.Parked()
	}
	eventually(t, 30*time.Second, "the slot to be free", func() bool { return !inUse() })
}

// TestRequestThatMeetsAMoveIsServed: after a tunnel was detached gracefully, as when its client moves to another
// node, one more request on a parked channel is served. The channel ends after this request.
func TestRequestThatMeetsAMoveIsServed(t *testing.T) {
	t.Parallel()
	owner, _, _, tun := twoNodes(t, echo)
	ch := open(t, tun).(*node.Channel)
	defer ch.Close()
	say := func(text string) {
		t.Helper()
		if _, err := ch.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, len(text))
		if f := <-filled(ch, buf); f.Err != nil || string(buf[:f.N]) != text {
			t.Fatalf("%q was answered %q, %v", text, buf[:f.N], f.Err)
		}
	}
	say("one")
	ch.Parked()
	eventually(t, 30*time.Second, "the channel to be parked", func() bool {
		all, busy := owner.srv.nodes.Bridged()
		return all == 1 && busy == 0
	})
	owner.online("a").(*forward).detach(true)
	time.Sleep(50 * time.Millisecond)
	say("two")
	ch.Parked()
	buf := make([]byte, 10)
	if f := <-filled(ch, buf); f.Err == nil {
		t.Errorf("got %q of a tunnel that has gone", buf[:f.N])
	}
}

// TestUntakenBytesOfAnotherNodeAreReserved: bytes that the client of a tunnel does not read stay at the node
// of the tunnel. The bytes are reserved in the budget of that node until the channel ends.
func TestUntakenBytesOfAnotherNodeAreReserved(t *testing.T) {
	t.Parallel()
	shared := budget.New(64 << 20)
	c := &cluster{nodes: map[string]relay.Node{}}
	owner, _ := c.newMember(t, "owner", func(o *Options) { o.Budget = shared })
	ingress, other := c.newMember(t, "ingress")
	client := owner.mustDial(owner.alice)
	accept(t, client, func(_ forwardedOpen, n ssh.NewChannel) {
		if _, reqs, err := n.Accept(); err == nil { // the client does not read
			go ssh.DiscardRequests(reqs)
		}
	})
	forwards(t, client, "a", 80)
	rec := relay.TunnelRecord{TunnelInfo: owner.online("a").Info(), Alias: 1, Node: "owner"}
	eventually(t, 30*time.Second, "the nodes reach each other", func() bool { return other.reaches("owner") })
	ch := open(t, ingress.srv.Remote(rec))
	go func() { _, _ = ch.Write(make([]byte, 8<<20)) }()
	eventually(t, 30*time.Second, "a reservation", func() bool { return shared.Stats().Used == link.PausedBytes })
	_ = ch.Close()
	_ = client.Close()
	eventually(t, 30*time.Second, "the bytes to be given back", func() bool { return shared.Stats().Used == 0 })
}

// TestBytesBeforeTheClose: the local server gets all bytes that were written before a channel was closed, even if the
// local server has half-closed the channel earlier, and reads late. That holds on the node of the tunnel and through
// another node.
func TestBytesBeforeTheClose(t *testing.T) {
	t.Parallel()
	const all = 1_500_000 // less than a window, so no write waits
	for _, at := range []string{"one node", "another node"} {
		for _, half := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, half-close %v", at, half), func(t *testing.T) {
				t.Parallel()
				closed, got := make(chan struct{}), make(chan int, 1)
				owner, _, _, remote := twoNodes(t, func(_ forwardedOpen, n ssh.NewChannel) {
					ch, reqs, err := n.Accept()
					if err != nil {
						return
					}
					go ssh.DiscardRequests(reqs)
					_, _ = io.WriteString(ch, "done")
					_ = ch.CloseWrite()
					<-closed
					n64, _ := io.Copy(io.Discard, ch)
					got <- int(n64)
					_ = ch.Close()
				})
				var tun relay.Tunnel = owner.online("a")
				if at == "another node" {
					tun = remote
				}
				ch := open(t, tun)
				if said, err := readAll(t, ch); string(said) != "done" || err != io.EOF {
					t.Fatalf("read %q, %v", said, err)
				}
				if n, err := ch.Write(make([]byte, all)); n != all || err != nil {
					t.Fatalf("wrote %d, %v", n, err)
				}
				if half {
					if err := ch.CloseWrite(); err != nil {
						t.Errorf("half-close: %v", err)
					}
				}
				_ = ch.Close()
				close(closed)
				if n := <-got; n != all {
					t.Errorf("the local server got %d bytes of %d", n, all)
				}
				eventually(t, 30*time.Second, "no bridge", func() bool {
					all, _ := owner.srv.nodes.Bridged()
					return all == 0
				})
			})
		}
	}
}

// TestClientTakesNothingAfterTheClose: if a client does not read, the bytes that another node sent before it
// closed the channel are dropped after a limited time.
func TestClientTakesNothingAfterTheClose(t *testing.T) {
	t.Parallel()
	c := &cluster{nodes: map[string]relay.Node{}}
	owner, _ := c.newMember(t, "owner", func(o *Options) { o.StallTimeout = 100 * time.Millisecond })
	ingress, other := c.newMember(t, "ingress")
	client := owner.mustDial(owner.alice)
	end := make(chan struct{})
	defer close(end)
	accept(t, client, func(_ forwardedOpen, n ssh.NewChannel) {
		if _, reqs, err := n.Accept(); err == nil {
			go ssh.DiscardRequests(reqs)
			<-end
		}
	})
	forwards(t, client, "a", 80)
	rec := relay.TunnelRecord{TunnelInfo: owner.online("a").Info(), Alias: 1, Node: "owner"}
	eventually(t, 30*time.Second, "the nodes reach each other", func() bool { return other.reaches("owner") })
	ch := open(t, ingress.srv.Remote(rec))
	if _, err := ch.Write(make([]byte, 3<<20)); err != nil { // this is more than the window of the client
		t.Fatal(err)
	}
	_ = ch.Close()
	eventually(t, 30*time.Second, "no bridge", func() bool {
		all, _ := owner.srv.nodes.Bridged()
		return all == 0
	})
}

// TestNodeThatTakesNothing: if another node stops reading a response, but answers other messages, only the channel
// of that response is blocked. The channel ends some time after the client of its tunnel has gone, when the node of
// the tunnel stops, or when the other node closes the channel.
func TestNodeThatTakesNothing(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(owner *fixture, client *ssh.Client, ch relay.Conn){
		"client gone": func(_ *fixture, client *ssh.Client, _ relay.Conn) { _ = client.Close() },
		"stop": func(owner *fixture, _ *ssh.Client, _ relay.Conn) {
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			defer cancel()
			_ = owner.srv.Shutdown(ctx)
		},
		"closed": func(_ *fixture, _ *ssh.Client, ch relay.Conn) { _ = ch.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wrote := make(chan int, 100)
			c := &cluster{nodes: map[string]relay.Node{}}
			owner, _ := c.newMember(t, "owner", func(o *Options) { o.StallTimeout = 10 * time.Millisecond })
			ingress, other := c.newMember(t, "ingress")
			client := owner.mustDial(owner.alice)
			accept(t, client, func(_ forwardedOpen, n ssh.NewChannel) {
				ch, reqs, err := n.Accept()
				if err != nil {
					return
				}
				go ssh.DiscardRequests(reqs)
				what := make([]byte, 3)
				if _, _ = io.ReadFull(ch, what); string(what) == "you" {
					_, _ = io.WriteString(ch, "hello you")
					_ = ch.CloseWrite()
					return
				}
				go func() {
					defer close(wrote)
					for all, err := 0, error(nil); err == nil; wrote <- all {
						var k int
						k, err = ch.Write(make([]byte, 64<<10))
						all += k
					}
				}()
			})
			forwards(t, client, "a", 80)
			rec := relay.TunnelRecord{TunnelInfo: owner.online("a").Info(), Alias: 1, Node: "owner"}
			eventually(t, 30*time.Second, "the nodes reach each other", func() bool { return other.reaches("owner") })
			tun := ingress.srv.Remote(rec)
			ch := open(t, tun)
			if _, err := ch.Write([]byte("all")); err != nil {
				t.Fatal(err)
			}
			for all := range wrote { // more than the window of one channel, so its node waits for the other node
				if all > 2<<20 {
					break
				}
			}
			ask(t, tun)
			end(owner, client, ch)
			for range wrote { // the loop ends when the writes of the client fail
			}
			eventually(t, 30*time.Second, "no bridge", func() bool {
				all, busy := owner.srv.nodes.Bridged()
				return all == 0 && busy == 0
			})
		})
	}
}

// TestRequestWithoutASlotEndsWithItsChannel: if another node closes a channel whose request still waits for a
// slot, the request never reaches the local server.
func TestRequestWithoutASlotEndsWithItsChannel(t *testing.T) {
	t.Parallel()
	got := make(chan []byte, 1)
	owner, _, _, tun := twoNodes(t, func(_ forwardedOpen, n ssh.NewChannel) {
		if ch, reqs, err := n.Accept(); err == nil {
			go ssh.DiscardRequests(reqs)
			all, _ := io.ReadAll(ch)
			got <- all
			_ = ch.Close()
		}
	})
	hold := owner.store.hold("a")
	hold.store.mu.Lock()
	hold.slots, hold.waiting = make(chan struct{}), make(chan struct{}, 1)
	hold.store.mu.Unlock()
	ch := open(t, tun)
	if _, err := ch.Write([]byte("request")); err != nil {
		t.Fatal(err)
	}
	<-hold.waiting
	_ = ch.Close()
	eventually(t, 30*time.Second, "no bridge", func() bool {
		all, _ := owner.srv.nodes.Bridged()
		return all == 0
	})
	if all := <-got; len(all) > 0 {
		t.Errorf("the local server got %q", all)
	}
}
