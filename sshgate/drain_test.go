package sshgate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/cli"
)

func TestTakeover(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	release := make(chan struct{})
	slow := b.local(func(c net.Conn) {
		_, _ = c.Read(make([]byte, 8))
		<-release
		_, _ = io.WriteString(c, "done")
	})
	old := b.openssh(b.alice, "-tt", "-R", "a:80:127.0.0.1:"+slow, "127.0.0.1")
	ch := open(t, b.online("a"))
	if _, err := ch.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, "header", func() bool { return contains(old.out, "Press Ctrl+C") })
	b.openssh(b.alice, "-N", "-R", "a:80:127.0.0.1:"+b.local(greetingServer), "127.0.0.1")
	eventually(t, 30*time.Second, "told", func() bool { return contains(old.out, "taken over by a newer connection") })
	ask(t, b.online("a"))
	close(release)
	if got, err := readAll(t, ch); string(got) != "done" || err != io.EOF {
		t.Errorf("in flight: %q, %v", got, err)
	}
	ch.Close()
	if code := old.code(t); code != cli.ExitTaken && code != 255 {
		t.Errorf("exit %d", code)
	}
}

// TestTakeoverByMember: the newest tunnel wins, even if another permitted account opened it.
func TestTakeoverByMember(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	b.store.alias("a", 1)
	b.store.members["a"] = []int64{2}
	owner, notices := b.dialHearing(b.alice)
	member := b.mustDial(b.newKey("bob", 2))
	forwards(t, owner, "a", 80)
	b.online("a")
	wantNotice(t, notices, relay.NoticeOnline, "a")
	s, out, _ := show(t, owner, "", 80, nil)
	eventually(t, 30*time.Second, "session", func() bool { return contains(out, "Press Ctrl+C") })
	if ok, payload := forwards(t, member, "A.", 80); !ok || len(payload) > 0 {
		t.Fatalf("%v, %q", ok, payload)
	}
	wantNotice(t, notices, relay.NoticeSuperseded, "a")
	if exit, ok := s.Wait().(*ssh.ExitError); !ok || exit.ExitStatus() != cli.ExitTaken {
		t.Errorf("exit %v", exit)
	}
	if got := b.online("a").Info().User; got != "bob" {
		t.Errorf("the tunnel is %s's", got)
	}
}

func TestTakeoverDrainIsBounded(t *testing.T) {
	t.Parallel()
	b := newFixture(t, func(o *Options) { o.TakeoverDrain = 100 * time.Millisecond })
	c := b.mustDial(b.alice)
	accept(t, c, func(_ forwardedOpen, n ssh.NewChannel) {
		if _, reqs, err := n.Accept(); err == nil {
			go ssh.DiscardRequests(reqs)
		}
	})
	forwards(t, c, "a", 80)
	ch := open(t, b.online("a"))
	defer ch.Close()
	forwards(t, b.mustDial(b.alice), "a", 80)
	closed := make(chan struct{})
	go func() { defer close(closed); _ = c.Wait() }()
	select {
	case <-closed:
	case <-time.After(30 * time.Second):
		t.Error("the old connection is still open")
	}
}

func TestUnusedConnectionIsClosed(t *testing.T) {
	t.Parallel()
	b := newFixture(t, func(o *Options) { o.IdleClose = 200 * time.Millisecond })
	b.store.claiming = false
	for _, p := range []*process{
		b.openssh(b.alice, "-N", "127.0.0.1"),
		b.openssh(b.alice, "-N", "-R", "foreign:80:127.0.0.1:1", "127.0.0.1"),
		b.plink(b.alice, "-N", "-R", "foreign:80:127.0.0.1:1", "x@127.0.0.1"),
	} {
		if code := p.code(t); code == 0 {
			t.Errorf("%s: exit 0", p.cmd.Path)
		}
	}
}

// TestIdleCloseBesideFirstRequest: the timer that closes an unused connection may expire while the first request of
// the client arrives, without a data race.
func TestIdleCloseBesideFirstRequest(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	for range 10 {
		client := b.mustDial(b.alice)
		c := b.srv.all()[0]
		go func() { _, _, _ = client.SendRequest("x", true, nil) }()
		for unused := true; unused; { // closeIdle has no effect while the request is in progress
			c.closeIdle()
			unused = c.Context().Err() == nil
		}
		eventually(t, 30*time.Second, "its end", func() bool { return len(b.srv.all()) == 0 })
	}
}

func TestRevocation(t *testing.T) {
	t.Parallel()
	for name, revoke := range map[string]func(b *fixture){
		"key": func(b *fixture) { clear(b.store.keys) },
		"alias": func(b *fixture) {
			b.store.aliases["kept"] = b.store.aliases["a"]
			delete(b.store.aliases, "a")
			b.store.aliases["kept"].Owner = 2
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
			p := b.openssh(b.alice, "-N", "-R", "a:80:127.0.0.1:1", "127.0.0.1")
			b.online("a")
			hold := b.store.hold("a")
			b.store.mu.Lock()
			revoke(b)
			b.store.mu.Unlock()
			b.srv.Publish([]relay.Change{{Kind: relay.ChangeAccount}})
			eventually(t, 30*time.Second, "offline", func() bool {
				b.store.mu.Lock()
				defer b.store.mu.Unlock()
				return hold.detached
			})
			if code := p.code(t); code != 255 {
				t.Errorf("exit %d", code)
			}
		})
	}
}

func TestStoreDownCutsNobody(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	c := b.mustDial(b.alice)
	forwards(t, c, "a", 80)
	b.online("a")
	b.store.mu.Lock()
	b.store.down = true
	b.store.mu.Unlock()
	b.srv.revalidator.revalidate(scope{{all: true}: true})
	if b.store.state("a") != relay.TunnelOnline {
		t.Error("cut off because the store was down")
	}
}

func TestShutdown(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	release := make(chan struct{})
	port := b.local(func(c net.Conn) {
		_, _ = c.Read(make([]byte, 8))
		<-release
		_, _ = io.WriteString(c, "done")
	})
	p := b.openssh(b.alice, "-tt", "-R", "a:80:127.0.0.1:"+port, "127.0.0.1")
	ch := open(t, b.online("a"))
	_, _ = ch.Write([]byte("x"))
	eventually(t, 30*time.Second, "header", func() bool { return contains(p.out, "Press Ctrl+C") })
	idle, err := net.Dial("tcp", "127.0.0.1:"+b.port) // a connection that never logs in
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	stopped := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
		defer cancel()
		stopped <- b.srv.Shutdown(ctx)
	}()
	eventually(t, 30*time.Second, "told", func() bool { return contains(p.out, "the relay is stopping") })
	// The test does not dial the port, because another program may listen there by now.
	if err := b.ln.SetDeadline(time.Now()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("still listening: %v", err)
	}
	close(release)
	if got, err := readAll(t, ch); string(got) != "done" || err != io.EOF {
		t.Errorf("in flight: %q, %v", got, err)
	}
	ch.Close()
	if err := <-stopped; err != nil {
		t.Errorf("shutdown: %v", err)
	}
	p.code(t)
	if h := b.store.hold("a"); !h.detached || !h.graceful {
		t.Errorf("hold %+v", h)
	}
}

// TestShutdownWaitsForOpens: a request whose channel is being opened when the relay stops gets its response.
func TestShutdownWaitsForOpens(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	client, c := b.met()
	asked, release := make(chan struct{}), make(chan struct{})
	accept(t, client, func(_ forwardedOpen, n ssh.NewChannel) {
		close(asked)
		<-release
		ch, reqs, err := n.Accept()
		if err != nil {
			return
		}
		go ssh.DiscardRequests(reqs)
		_, _ = io.WriteString(ch, "done")
		_ = ch.Close()
	})
	forwards(t, client, "a", 80)
	tun := b.online("a")
	got := make(chan string, 1)
	go func() {
		ch, err := tun.Open(t.Context(), netip.AddrPort{})
		if err != nil {
			got <- err.Error()
			return
		}
		defer ch.Close()
		text, err := readAll(t, ch)
		got <- fmt.Sprintf("%s, %v", text, err)
	}()
	<-asked
	stopped := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
		defer cancel()
		stopped <- b.srv.Shutdown(ctx)
	}()
	eventually(t, 30*time.Second, "the drain", func() bool {
		return c.draining.Load()
	})
	close(release)
	if text := <-got; text != "done, EOF" {
		t.Errorf("the request got %s", text)
	}
	if err := <-stopped; err != nil {
		t.Errorf("shutdown: %v", err)
	}
}

func TestShutdownCutsAtItsEnd(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	c := b.mustDial(b.alice)
	accept(t, c, func(_ forwardedOpen, n ssh.NewChannel) {
		if _, reqs, err := n.Accept(); err == nil {
			go ssh.DiscardRequests(reqs)
		}
	})
	forwards(t, c, "a", 80)
	ch := open(t, b.online("a"))
	defer ch.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := b.srv.Shutdown(ctx); err != context.DeadlineExceeded {
		t.Errorf("shutdown: %v", err)
	}
	if _, err := readAll(t, ch); err == io.EOF {
		t.Error("a cut channel ended cleanly")
	}
}

// TestPanicEndsOneConnection: a panic in one connection ends that connection only.
func TestPanicEndsOneConnection(t *testing.T) {
	t.Parallel()
	var store *fakeStore
	b := newFixture(t, func(o *Options) {
		store = o.Accounts.(*fakeStore)
		o.Accounts = panicky{store}
	})
	good := b.mustDial(b.alice)
	forwards(t, good, "good", 80)
	bad := b.mustDial(b.alice)
	_, _, _ = bad.SendRequest("tcpip-forward", true, ssh.Marshal(forwardRequest{"boom", 80}))
	_ = bad.Wait()
	if _, _, err := good.SendRequest("keepalive@openssh.com", true, nil); err != nil {
		t.Errorf("the other connection: %v", err)
	}
}

type panicky struct{ *fakeStore }

func (p panicky) ClaimAlias(ctx context.Context, who relay.Actor, name string) (*relay.Alias, error) {
	if name == "boom" {
		panic("boom")
	}
	return p.fakeStore.ClaimAlias(ctx, who, name)
}
