package sshgate

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
)

// says starts a local server that responds with a word, and returns its port.
func (b *fixture) says(word string) string {
	return b.local(func(c net.Conn) {
		_, _ = c.Read(make([]byte, 8))
		_, _ = io.WriteString(c, word)
	})
}

// serves returns the response of the local server of an alias.
func (b *fixture) serves(alias string) string {
	b.t.Helper()
	t := b.t.(*testing.T)
	ch := open(t, b.online(alias))
	defer ch.Close()
	_, _ = ch.Write([]byte("x"))
	got, _ := readAll(t, ch)
	return string(got)
}

// sshConfig writes a configuration file of OpenSSH with the host named relay and the given lines for all hosts, and
// returns its path.
func (b *fixture) sshConfig(k key, lines ...string) string {
	b.t.Helper()
	path := filepath.Join(b.dir, "config")
	text := fmt.Sprintf("Host relay\nHostName 127.0.0.1\nPort %s\nIdentityFile %s\nIdentitiesOnly yes\nStrictHostKeyChecking no\nUserKnownHostsFile %s\n",
		b.port, k.path, filepath.Join(b.dir, "known"))
	if err := os.WriteFile(path, []byte(text+"Host *\n"+strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		b.t.Fatal(err)
	}
	return path
}

// purposes are the ways to start a client: flag comes before the host, and command after it.
var purposes = map[string]struct{ flag, command string }{
	"command": {"-T", "whoami"}, "shell": {"-T", ""}, "-N": {"-N", ""},
}

// forwarders has, by the name of a client, a function that starts the client as the user shop with one forward. Its
// parameters flag and command are those of an element of purposes.
var forwarders = map[string]func(b *fixture, forward, flag, command string) *process{
	"openssh": func(b *fixture, forward, flag, command string) *process {
		i := strings.LastIndex(forward[:strings.Index(forward, ":127.")], ":") + 1
		i += strings.Index(forward[i:], ":")
		config := b.sshConfig(b.alice, "RemoteForward "+forward[:i]+" "+forward[i+1:])
		return b.run(need(b.t, "ssh", "openssh-client"), words("-F", config, flag, "shop@relay", command)...)
	},
	"dropbear": func(b *fixture, forward, flag, command string) *process {
		return b.dropbear(b.alice, words(flag, "-R", forward, "shop@127.0.0.1", command)...)
	},
	"plink": func(b *fixture, forward, flag, command string) *process {
		return b.plink(b.alice, words(flag, "-R", forward, "shop@127.0.0.1", command)...)
	},
}

// mustDialAs is mustDial with a user name.
func (b *fixture) mustDialAs(k key, user string) *ssh.Client {
	b.t.Helper()
	client, _, err := b.dial(user, ssh.PublicKeys(k.signer))
	if err != nil {
		b.t.Fatalf("login: %v", err)
	}
	return client
}

// mustDialBusy logs in as a client that answers no global request, such as a ping, while the test holds the lock busy.
func (b *fixture) mustDialBusy(k key, user string, busy *sync.Mutex) *ssh.Client {
	b.t.Helper()
	tcp, err := net.Dial("tcp", "127.0.0.1:"+b.port)
	if err != nil {
		b.t.Fatal(err)
	}
	c, channels, requests, err := ssh.NewClientConn(tcp, "relay", &ssh.ClientConfig{
		User: user, Auth: []ssh.AuthMethod{ssh.PublicKeys(k.signer)}, HostKeyCallback: ssh.InsecureIgnoreHostKey(),
	})
	if err != nil {
		b.t.Fatalf("login: %v", err)
	}
	b.t.Cleanup(func() { c.Close() })
	held := make(chan *ssh.Request)
	go func() {
		defer close(held)
		for r := range requests {
			busy.Lock()
			held <- r
			busy.Unlock()
		}
	}()
	return ssh.NewClient(c, channels, held)
}

// mustDialSilent logs in as a client that answers no global request.
func (b *fixture) mustDialSilent(k key) ssh.Conn {
	b.t.Helper()
	tcp, err := net.Dial("tcp", "127.0.0.1:"+b.port)
	if err != nil {
		b.t.Fatal(err)
	}
	c, channels, requests, err := ssh.NewClientConn(tcp, "relay", &ssh.ClientConfig{
		User: "relay", Auth: []ssh.AuthMethod{ssh.PublicKeys(k.signer)}, HostKeyCallback: ssh.InsecureIgnoreHostKey(),
	})
	if err != nil {
		b.t.Fatalf("login: %v", err)
	}
	go func() {
		for range requests {
			continue
		}
	}()
	go func() {
		for range channels {
			continue
		}
	}()
	b.t.Cleanup(func() { c.Close() })
	return c
}

// startShell starts a session without a command.
func (b *fixture) startShell(c *ssh.Client) *output {
	b.t.Helper()
	s, err := c.NewSession()
	if err != nil {
		b.t.Fatal(err)
	}
	out := &output{}
	s.Stdout = out
	if err := s.Shell(); err != nil {
		b.t.Fatal(err)
	}
	return out
}

// refusals returns the reasons why forwards of an account were refused, one in each line.
func (b *fixture) refusals(account int64) (text string) {
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	for _, r := range b.store.refused[account] {
		text += r.Message + "\n"
	}
	return text
}

// has reports whether an alias exists.
func (f *fakeStore) has(alias string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.aliases[alias] != nil
}

// words returns its arguments without the empty ones.
func words(all ...string) (list []string) {
	for _, w := range all {
		if w != "" {
			list = append(list, w)
		}
	}
	return list
}

// TestCommandServesNoForward: a client that is started with a forward and a command neither claims an alias nor
// takes an alias from its tunnel, whatever the client and the form of the forward. Started without a command, it
// does both.
func TestCommandServesNoForward(t *testing.T) {
	for client, start := range forwarders {
		for purpose, p := range purposes {
			for kind, forward := range map[string]string{"named": "shop:80:127.0.0.1:", "nameless": "52698:127.0.0.1:"} {
				for _, held := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s %s %s held=%v", client, purpose, kind, held), func(t *testing.T) {
						t.Parallel()
						b := newFixture(t)
						var before relay.Tunnel
						if held {
							forwards(t, b.mustDial(b.alice), "shop", 80)
							before = b.online("shop")
						}
						c := start(b, forward+b.says("new"), p.flag, p.command)
						if p.command == "" {
							eventually(t, 30*time.Second, "the new tunnel", func() bool { h := b.store.hold("shop"); return h != nil && h.tunnel != before })
							if got := b.serves("shop"); got != "new" {
								t.Errorf("shop answers %q", got)
							}
							return
						}
						if code := c.code(t); code != 0 || !contains(c.out, "alice") {
							t.Errorf("exit %d: %s", code, c.out)
						}
						switch h := b.store.hold("shop"); {
						case held && (h.tunnel != before || b.store.state("shop") != relay.TunnelOnline):
							t.Errorf("the tunnel that served the alias has lost it")
						case !held && h != nil:
							t.Error("the alias was attached")
						case !held && b.store.has("shop"):
							t.Error("the name was claimed")
						}
					})
				}
			}
		}
	}
}

// TestNamelessBesideNamed: a RemoteForward line for all hosts, in each form and in either order, has
// no effect beside a forward with a name.
func TestNamelessBesideNamed(t *testing.T) {
	for _, nameless := range []string{"52698 127.0.0.1:PORT", "0 127.0.0.1:PORT", "1080", "*:52698 127.0.0.1:PORT", "127.0.0.1:52698 127.0.0.1:PORT", "[::1]:52698 127.0.0.1:PORT"} {
		for _, first := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s first=%v", nameless, first), func(t *testing.T) {
				t.Parallel()
				b := newFixture(t)
				// The client logs in with the user name "other", so a forward without a name is for the alias of
				// this name.
				b.store.alias("other", 1)
				line := "RemoteForward " + nameless
				line = strings.ReplaceAll(line, "PORT", b.says("nameless"))
				lines := []string{"RemoteForward shop:80 127.0.0.1:" + b.says("named"), line}
				if first {
					lines[0], lines[1] = lines[1], lines[0]
				}
				p := b.run(need(t, "ssh", "openssh-client"), "-F", b.sshConfig(b.alice, lines...), "-N", "other@relay")
				if got := b.serves("shop"); got != "named" {
					t.Errorf("shop answers %q", got)
				}
				eventually(t, 30*time.Second, "warning", func() bool { return contains(p.err, "remote port forwarding failed for listen port") })
				if b.store.hold("other") != nil {
					t.Error("the forward without a name was attached")
				}
			})
		}
	}
}

// TestNamelessBesideWhatIsNoName: a forward whose bind address cannot be an alias is refused. A forward without a
// name works beside it, whichever of the two comes first.
func TestNamelessBesideWhatIsNoName(t *testing.T) {
	t.Parallel()
	for _, bind := range []string{"10.0.0.5", "build_host", "www", "deep.shop.example.test"} {
		for _, first := range []bool{false, true} {
			b := newFixture(t)
			lines := []string{"RemoteForward " + bind + ":8080 127.0.0.1:1", "RemoteForward 52698 127.0.0.1:" + b.says("nameless")}
			if first {
				lines[0], lines[1] = lines[1], lines[0]
			}
			p := b.run(need(t, "ssh", "openssh-client"), "-F", b.sshConfig(b.alice, lines...), "-N", "shop@relay")
			if got := b.serves("shop"); got != "nameless" {
				t.Errorf("%s, nameless first %v: shop answers %q", bind, first, got)
			}
			eventually(t, 30*time.Second, "warning", func() bool { return contains(p.err, "remote port forwarding failed for listen port 8080") })
		}
	}
}

// TestNamelessGivesWay: a forward without a name ends when a forward with a name begins on the same connection, for
// the same or another alias. The session shows that.
func TestNamelessGivesWay(t *testing.T) {
	for _, named := range []string{"shop", "other"} {
		t.Run(named, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
			c := b.mustDialAs(b.alice, "shop")
			accept(t, c, func(o forwardedOpen, n ssh.NewChannel) { _ = n.Reject(ssh.ConnectionFailed, o.Bind) })
			forwards(t, c, "localhost", 52698)
			first := b.online("shop")
			out := b.startShell(c)
			eventually(t, 30*time.Second, "header", func() bool { return contains(out, "Press Ctrl+C") })
			if ok, _ := forwards(t, c, named, 80); !ok {
				t.Fatal("the forward with a name was refused")
			}
			eventually(t, 30*time.Second, "the new tunnel", func() bool { h := b.store.hold(named); return h != nil && h.tunnel != first })
			if _, err := b.online(named).Open(t.Context(), origin); !strings.Contains(err.Error(), "("+named+")") {
				t.Errorf("a channel: %v", err)
			}
			eventually(t, 30*time.Second, "text", func() bool { return contains(out, "Alias shop is offline: its forward without a name gave way") })
			if named != "shop" && b.store.state("shop") != relay.TunnelOffline {
				t.Errorf("shop is %s", b.store.state("shop"))
			}
			if ok, _, _ := c.SendRequest("cancel-tcpip-forward", true, ssh.Marshal(forwardRequest{"localhost", 52698})); ok {
				t.Error("the forward that has ended was canceled")
			}
			if ok, _ := forwards(t, c, "", 1080); ok {
				t.Error("a forward without a name was let in beside the one with a name")
			}
			if state := b.store.state(named); state != relay.TunnelOnline {
				t.Errorf("%s is %s", named, state)
			}
		})
	}
}

// TestSecondForwardOfAlias: a second forward of an alias on one connection is refused while the first one exists. The
// client can cancel the first forward and request the second. The error names the port of the first forward.
func TestSecondForwardOfAlias(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	c := b.mustDialAs(b.alice, "shop")
	for _, first := range []forwardRequest{{"shop", 81}, {"Shop.example.test", 0}, {"localhost", 8080}} {
		if ok, _ := forwards(t, c, first.Bind, first.Port); !ok {
			t.Fatalf("%v was refused", first)
		}
		tunnel := b.online("shop")
		for _, second := range []forwardRequest{{"shop", 80}, {"SHOP", 443}, {"shop.example.test.", 0}, {"", 52698}, first} {
			if isNeutral(first.Bind) && !isNeutral(second.Bind) {
				continue // the second forward replaces the first one
			}
			if ok, payload := forwards(t, c, second.Bind, second.Port); ok || len(payload) > 0 {
				t.Errorf("%v beside %v was let in", second, first)
			}
			cancel, _, _ := c.SendRequest("cancel-tcpip-forward", true, ssh.Marshal(second))
			if cancel != (second == first) {
				t.Errorf("cancel of %v: %v", second, cancel)
			}
			if second != first && (b.store.hold("shop").tunnel != tunnel || b.store.state("shop") != relay.TunnelOnline) {
				t.Errorf("%v has ended %v", second, first)
			}
		}
	}
	if text := b.refusals(1); !strings.Contains(text, "by port 81,") {
		t.Errorf("the dashboard says %q", text)
	}
}

// TestOrderOfForwardsAndSessions checks which forwards are served if the client requests them before, at the same
// time as, or after a command or a subsystem on the same connection.
func TestOrderOfForwardsAndSessions(t *testing.T) {
	t.Parallel()
	command := func(t *testing.T, c *ssh.Client, line string) *ssh.Session {
		s, err := c.NewSession()
		if err == nil {
			err = s.Start(line)
		}
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	t.Run("forward and command without a wait", func(t *testing.T) {
		t.Parallel()
		b := newFixture(t)
		var busy sync.Mutex
		busy.Lock() // if the client answered the pings before it requests the command, the connection would count as a tunnel
		c := b.mustDialBusy(b.alice, "shop", &busy)
		for _, bind := range []string{"shop", "localhost", "other"} {
			if _, _, err := c.SendRequest("tcpip-forward", false, ssh.Marshal(forwardRequest{bind, 80})); err != nil {
				t.Fatal(err)
			}
		}
		s := command(t, c, "whoami")
		busy.Unlock()
		if err := s.Wait(); err != nil {
			t.Error(err)
		}
		if b.store.has("shop") || b.store.has("other") {
			t.Error("an alias was claimed")
		}
		// The command has ended, so a new forward is not part of it.
		if ok, _ := forwards(t, c, "", 80); !ok {
			t.Error("a forward after the command was refused")
		}
	})
	t.Run("command, then forwards", func(t *testing.T) {
		t.Parallel()
		b := newFixture(t)
		b.store.alias("a", 1)
		c := b.mustDialAs(b.alice, "shop")
		s := command(t, c, "events a -f")
		eventually(t, 30*time.Second, "the command", func() bool { return b.store.subscribers() == 1 })
		if ok, _ := forwards(t, c, "", 80); ok {
			t.Error("a forward without a name was let in beside a command")
		}
		if ok, _ := forwards(t, c, "shop", 80); !ok { // ssh -O forward sends this request
			t.Error("a forward with a name was refused")
		}
		b.online("shop")
		_ = s.Close()
	})
	t.Run("tunnel, then commands", func(t *testing.T) {
		t.Parallel()
		b := newFixture(t)
		c := b.mustDialAs(b.alice, "shop")
		forwards(t, c, "", 80)
		tunnel := b.online("shop")
		for range 3 {
			if err := command(t, c, "whoami").Wait(); err != nil {
				t.Error(err)
			}
		}
		if b.store.hold("shop").tunnel != tunnel || b.store.state("shop") != relay.TunnelOnline {
			t.Error("a command has ended the tunnel")
		}
	})
	t.Run("subsystem", func(t *testing.T) {
		t.Parallel()
		for _, name := range []string{"relay-api", "sftp"} {
			b := newFixture(t)
			var busy sync.Mutex
			busy.Lock()
			c := b.mustDialBusy(b.alice, "shop", &busy)
			_, _, _ = c.SendRequest("tcpip-forward", false, ssh.Marshal(forwardRequest{"", 80}))
			s, err := c.NewSession()
			if err != nil {
				t.Fatal(err)
			}
			_ = s.RequestSubsystem(name)
			busy.Unlock()
			// This forward has an invalid port. Its reply shows that the forward before it was decided.
			if ok, _ := forwards(t, c, "keepalive", 65536); ok {
				t.Error("a port that is none was let in")
			}
			if b.store.has("shop") {
				t.Errorf("beside %s an alias was claimed", name)
			}
		}
	})
}

// TestSilentClientForwards: a client that answers none of the server's requests still gets its
// forward.
func TestSilentClientForwards(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	c := b.mustDialSilent(b.alice)
	if _, _, err := c.SendRequest("tcpip-forward", false, ssh.Marshal(forwardRequest{"shop", 80})); err != nil {
		t.Fatal(err)
	}
	b.online("shop")
}

func TestControlMasterSecondForward(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	socket := filepath.Join(b.dir, "mux")
	first, second := b.says("first"), b.says("second")
	b.openssh(b.alice, "-N", "-M", "-S", socket, "-R", "shop:80:127.0.0.1:"+first, "relay@127.0.0.1")
	b.online("shop")
	eventually(t, 30*time.Second, "socket of the master", func() bool { _, err := os.Stat(socket); return err == nil })
	mux := func(do, forward string) (int, *process) {
		p := b.openssh(b.alice, "-S", socket, "-O", do, "-R", forward, "relay@127.0.0.1")
		return p.code(t), p
	}
	if code, p := mux("forward", "shop:80:127.0.0.1:"+second); code != 255 || !contains(p.err, "remote port forwarding failed for listen port 80") {
		t.Errorf("exit %d: %s", code, p.err)
	}
	if code, _ := mux("forward", "52698:127.0.0.1:"+second); code != 255 {
		t.Errorf("a forward without a name: exit %d", code)
	}
	_, _ = mux("cancel", "shop:80:127.0.0.1:"+second)
	if got := b.serves("shop"); got != "first" {
		t.Errorf("shop answers %q", got)
	}
	if code, _ := mux("cancel", "shop:80:127.0.0.1:"+first); code != 0 {
		t.Errorf("-O cancel: exit %d", code)
	}
	eventually(t, 30*time.Second, "offline", func() bool { return b.store.state("shop") == relay.TunnelOffline })
	if code, _ := mux("forward", "shop:80:127.0.0.1:"+second); code != 0 {
		t.Errorf("-O forward after the cancel: exit %d", code)
	}
	if got := b.serves("shop"); got != "second" {
		t.Errorf("shop answers %q", got)
	}
}

// TestRefusedForwardIsTold: a session shows the reason why its forward was refused.
func TestRefusedForwardIsTold(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	p := b.openssh(b.alice, "-R", "dev:80:127.0.0.1:1", "-R", "dev:443:127.0.0.1:1", "-R", "52698:127.0.0.1:1", "127.0.0.1")
	for _, text := range []string{"Alias dev is online", "dev is forwarded on this connection already, by port 80", "a forward without a name serves nothing beside the one of dev"} {
		eventually(t, 30*time.Second, text, func() bool { return contains(p.out, text) })
	}
}

func TestNeutralBinds(t *testing.T) {
	t.Parallel()
	for bind, want := range map[string]bool{
		"": true, "*": true, "localhost": true, "LOCALHOST.": true, "127.0.0.1": true, "127.0.1.1": true, "0.0.0.0": true, "::": true, "::1": true,
		"[::]": true, "[::1]": true, "::ffff:127.0.0.1": true, "0:0:0:0:0:0:0:0": true, "<nil>": true,
		"shop": false, "10.0.0.1": false, "localhost.example.test": false, "nil": false, "1": false, "::2": false,
	} {
		if got := isNeutral(bind); got != want {
			t.Errorf("%q: %v, want %v", bind, got, want)
		}
	}
}

// TestGoListeners: the forwards that Go's x/crypto requests for common listen addresses are served.
func TestGoListeners(t *testing.T) {
	t.Parallel()
	for name, listen := range map[string]func(c *ssh.Client) (net.Listener, error){
		"name":                     func(c *ssh.Client) (net.Listener, error) { return c.Listen("tcp", "shop:80") },
		"no host":                  func(c *ssh.Client) (net.Listener, error) { return c.Listen("tcp", ":80") },
		"all":                      func(c *ssh.Client) (net.Listener, error) { return c.Listen("tcp", "0.0.0.0:80") },
		"<nil>, as before v0.45.0": func(c *ssh.Client) (net.Listener, error) { return c.ListenTCP(&net.TCPAddr{Port: 80}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
			ln, err := listen(b.mustDialAs(b.alice, "shop"))
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				if c, err := ln.Accept(); err == nil {
					greetingServer(c)
					c.Close()
				}
			}()
			ask(t, b.online("shop"))
		})
	}
}
