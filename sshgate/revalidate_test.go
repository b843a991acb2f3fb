package sshgate

import (
	"bufio"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/cli"
	"relay/sshgate/shell"
)

// TestRemovedAliasLeavesTheOthers: removing an alias ends only its forward, whether the store or the
// attachment reports the removal. The connection ends when no forward is left.
func TestRemovedAliasLeavesTheOthers(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(b *fixture, alias string){
		"told by the store": func(b *fixture, alias string) {
			b.store.mu.Lock()
			delete(b.store.aliases, alias)
			b.store.mu.Unlock()
			b.srv.Publish([]relay.Change{{Kind: relay.ChangeAlias}})
		},
		"told by the tunnel's holder": func(b *fixture, alias string) { b.store.hold(alias).tunnel.Close(relay.AliasRemoved) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
			c, notices := b.dialHearing(b.alice)
			holds := map[string]*fakeHold{}
			for _, alias := range []string{"a", "b", "c"} {
				forwards(t, c, alias, 80)
				b.online(alias)
				holds[alias] = b.store.hold(alias)
			}
			for _, alias := range []string{"a", "b", "c"} {
				wantNotice(t, notices, relay.NoticeOnline, alias)
			}
			s, out, _ := show(t, c, "", 80, nil)
			eventually(t, 30*time.Second, "session", func() bool { return contains(out, "Press Ctrl+C") })
			for i, alias := range []string{"b", "a", "c"} {
				remove(b, alias)
				wantNotice(t, notices, relay.NoticeRevoked, alias)
				eventually(t, 30*time.Second, "offline", func() bool {
					b.store.mu.Lock()
					defer b.store.mu.Unlock()
					return holds[alias].detached
				})
				if _, _, err := c.SendRequest("keepalive@openssh.com", true, nil); err != nil && i < 2 {
					t.Errorf("the connection ended with %s: %v", alias, err)
				}
			}
			if exit, ok := s.Wait().(*ssh.ExitError); !ok || exit.ExitStatus() != cli.ExitTaken {
				t.Errorf("exit %v", exit)
			}
			_ = c.Wait()
		})
	}
}

// TestRemovedAliasWithoutSession: plain ssh -N with two aliases keeps the second alias when the first one is
// removed. The client is disconnected when both are removed.
func TestRemovedAliasWithoutSession(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	p := b.openssh(b.alice, "-N", "-R", "a:80:127.0.0.1:1", "-R", "b:80:127.0.0.1:"+b.local(greetingServer), "127.0.0.1")
	b.online("a")
	tun := b.online("b")
	b.store.hold("a").tunnel.Close(relay.AliasRemoved)
	eventually(t, 30*time.Second, "a offline", func() bool { return b.store.state("a") == relay.TunnelOffline })
	ask(t, tun)
	b.store.hold("b").tunnel.Close(relay.AliasRemoved)
	if code := p.code(t); code != 255 {
		t.Errorf("exit %d", code)
	}
}

// TestWaitingCommandsEndWithTheirKey: when the key is removed, the commands replay, wait and events -f end with a
// message.
func TestWaitingCommandsEndWithTheirKey(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"replay ", "wait a --timeout 1h", "events a -f"} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
			b.store.pending = make(chan struct{}, 1)
			e := b.store.event(1, b.store.alias("a", 1))
			c := b.mustDial(b.alice)
			if command == "replay " {
				command += e.ID.String()
			}
			s, err := c.NewSession()
			if err != nil {
				t.Fatal(err)
			}
			bad := &output{}
			s.Stderr = bad
			if err := s.Start(command); err != nil {
				t.Fatal(err)
			}
			if len(command) > 20 {
				<-b.store.pending
			} else {
				eventually(t, 30*time.Second, "subscription", func() bool { return b.store.subscribers() == 1 })
			}
			b.store.mu.Lock()
			clear(b.store.keys)
			b.store.mu.Unlock()
			began := time.Now()
			b.srv.Publish([]relay.Change{{Kind: relay.ChangeAccount}})
			if exit, ok := s.Wait().(*ssh.ExitError); !ok || exit.ExitStatus() != cli.ExitRefused || !contains(bad, shell.KeyRemovedText) {
				t.Errorf("%v, %s", exit, bad)
			}
			_ = c.Wait()
			t.Logf("ended after %v", time.Since(began))
		})
	}
}

// lateHold is a store whose Attach calls the function meanwhile before it attaches the tunnel.
type lateHold struct {
	*fakeStore
	meanwhile func()
}

func (h lateHold) Attach(a *relay.Alias, t relay.Tunnel) relay.Attachment {
	h.meanwhile()
	return h.fakeStore.Attach(a, t)
}

// audited waits until the revalidator has begun all checks that are due.
func (b *fixture) audited() {
	b.t.Helper()
	a := b.srv.revalidator
	eventually(b.t, 30*time.Second, "audit", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(a.due) == 0
	})
}

// TestRightsLostBetweenTheQuestionAndTheUse: if a right to an alias is revoked after a forward was allowed and
// before it is attached, the forward ends at once. A connection whose key was removed ends at once, too.
func TestRightsLostBetweenTheQuestionAndTheUse(t *testing.T) {
	t.Parallel()
	t.Run("membership", func(t *testing.T) {
		t.Parallel()
		var b *fixture
		b = newFixture(t, func(o *Options) {
			o.Attach = lateHold{o.Accounts.(*fakeStore), func() {
				b.store.mu.Lock()
				clear(b.store.members)
				b.store.mu.Unlock()
				b.srv.Publish([]relay.Change{{Kind: relay.ChangeAlias}})
				b.audited()
			}}
		})
		b.store.alias("a", 1)
		b.store.members["a"] = []int64{2}
		c := b.mustDial(b.newKey("bob", 2))
		forwards(t, c, "a", 80)
		closed(t, c)
	})
	t.Run("key", func(t *testing.T) {
		t.Parallel()
		b := newFixture(t)
		c := b.mustDial(b.alice)
		b.store.mu.Lock()
		clear(b.store.keys)
		b.store.mu.Unlock()
		b.srv.Publish([]relay.Change{{Kind: relay.ChangeAccount}})
		b.audited()
		_, _, _ = c.SendRequest("tcpip-forward", true, ssh.Marshal(forwardRequest{"a", 80})) // the connection may be closed already
		closed(t, c)
	})
}

// TestChecksAskOnlyAboutWhatChanged: a change that names an account or an alias causes a check of the rights of
// that account or alias only. A change that names neither causes a check of all rights, in one query.
func TestChecksAskOnlyAboutWhatChanged(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	own := b.store.alias("a", 1)
	b.store.alias("b", 2)
	alice, bob := b.mustDial(b.alice), b.mustDial(b.newKey("bob", 2))
	forwards(t, alice, "a", 80)
	forwards(t, alice, "c", 80)
	forwards(t, bob, "b", 80)
	for _, alias := range []string{"a", "b", "c"} {
		b.online(alias)
	}
	for _, c := range []struct {
		name   string
		change relay.Change
		want   func(r relay.Right) bool
		n      int
	}{
		{"an event", relay.Change{Kind: relay.ChangeEvent, Alias: own.ID}, nil, 0},
		{"a queue", relay.Change{Kind: relay.ChangeQueue, Alias: own.ID}, nil, 0},
		{"an account without connections", relay.Change{Kind: relay.ChangeAccount, Account: 99}, nil, 0},
		{"another credential", relay.Change{Kind: relay.ChangeAccount, Account: 1, Credential: "tok_1"}, nil, 0},
		{"an alias without tunnel", relay.Change{Kind: relay.ChangeAlias, Alias: 99}, nil, 0},
		{"an account", relay.Change{Kind: relay.ChangeAccount, Account: 1}, func(r relay.Right) bool { return r.Account == 1 }, 3},
		{"an alias", relay.Change{Kind: relay.ChangeAlias, Alias: own.ID}, func(r relay.Right) bool { return r.Alias == own.ID }, 1},
		{"anything", relay.Change{Kind: relay.ChangeAccount}, func(relay.Right) bool { return true }, 5},
	} {
		b.store.mu.Lock()
		b.store.asked = nil
		b.store.mu.Unlock()
		b.srv.Publish([]relay.Change{c.change})
		if c.n > 0 {
			eventually(t, 30*time.Second, "question about "+c.name, func() bool {
				b.store.mu.Lock()
				defer b.store.mu.Unlock()
				return len(b.store.asked) > 0
			})
		}
		b.audited()
		b.store.mu.Lock()
		asked := slices.Concat(b.store.asked...)
		if len(asked) != c.n || len(b.store.asked) > 1 || slices.ContainsFunc(asked, func(r relay.Right) bool { return !c.want(r) }) {
			t.Errorf("a change of %s: asked %v", c.name, b.store.asked)
		}
		b.store.mu.Unlock()
	}
}

// TestRemovedKeyEndsAConnectionThatDrains: if the key of a draining connection is removed, the connection
// ends at once.
func TestRemovedKeyEndsAConnectionThatDrains(t *testing.T) {
	t.Parallel()
	b := newFixture(t, withAPI(new(atomic.Int64), func(w http.ResponseWriter, _ *http.Request, who relay.Actor) {
		_, _ = io.WriteString(w, "hello "+who.AccountName)
	}), func(o *Options) { o.TakeoverDrain = time.Hour })
	c := b.mustDial(b.alice)
	offers := c.HandleChannelOpen("forwarded-tcpip")
	go func() {
		for o := range offers {
			if ch, reqs, err := o.Accept(); err == nil {
				go ssh.DiscardRequests(reqs)
				go func() { _, _ = io.Copy(io.Discard, ch) }()
			}
		}
	}()
	forwards(t, c, "a", 80)
	request, err := b.online("a").Open(t.Context(), netip.MustParseAddrPort("203.0.113.9:1"))
	if err != nil {
		t.Fatal(err)
	}
	defer request.Close()
	api := mustOpenAPI(t, c)
	if status, body := exchange(t, api, bufio.NewReader(api), "GET / HTTP/1.1\r\nHost: relay\r\n\r\n"); status != 200 || body != "hello alice" {
		t.Fatal(status, body)
	}
	held := b.store.hold("a")
	forwards(t, b.mustDial(b.alice), "a", 80) // this forward takes the alias over
	eventually(t, 30*time.Second, "the takeover", func() bool { return b.store.hold("a") != held })
	b.store.mu.Lock()
	clear(b.store.keys)
	b.store.mu.Unlock()
	b.srv.Publish([]relay.Change{{Kind: relay.ChangeAccount}})
	_ = c.Wait() // without the removal, the drain would take an hour
}
