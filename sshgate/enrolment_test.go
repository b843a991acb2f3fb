package sshgate

import (
	"errors"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/admission"
	"relay/cli"
)

var (
	linkLine = regexp.MustCompile(`http://relay\.example\.test:8080/link/([a-z0-9]+)`)
	codeLine = regexp.MustCompile(`(?m)^(?:\| )?Code: ([2-9A-HJ-NP-Z]{4}-[2-9A-HJ-NP-Z]{4})\r?$`)
	bob      = relay.Actor{Account: 2, AccountName: "bob", Kind: relay.ActorUser, Name: "bob", Scopes: relay.AllScopes, Credential: "ses_1"}
)

// invited waits until a client has printed a link and a code.
func invited(t *testing.T, p *process) (link, code string) {
	t.Helper()
	eventually(t, 30*time.Second, "link and code", func() bool {
		text := p.err.String() + p.out.String()
		l, c := linkLine.FindStringSubmatch(text), codeLine.FindStringSubmatch(text)
		if l == nil || c == nil {
			return false
		}
		link, code = l[1], c[1]
		return true
	})
	return link, code
}

// TestApprovalAmongLostChanges: a login that waits for the approval of its key also continues if the change that
// announces the approval is lost, as in a failover of the database. It continues at once, and not only when the
// time for the approval ends.
func TestApprovalAmongLostChanges(t *testing.T) {
	t.Parallel()
	b := newFixture(t, func(o *Options) { o.EnrolTime = time.Hour })
	p := b.openssh(b.newKey("stranger", 0), "-T", "link@127.0.0.1")
	link, _ := invited(t, p)
	waiting, err := b.store.Enrolment(t.Context(), link)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.store.AddKey(t.Context(), bob, "", "", waiting.AuthorizedKey); err != nil {
		t.Fatal(err)
	}
	if _, err := b.store.EndEnrolment(t.Context(), link, relay.EnrolmentApproved); err != nil {
		t.Fatal(err)
	}
	b.store.changed([]relay.Change{{Kind: relay.ChangeAlias}, {Kind: relay.ChangeAccount}, {Kind: relay.ChangeTunnel}, {Kind: relay.ChangeMissed}})
	_ = p.code(t)
	if said := p.err.String() + p.out.String(); !strings.Contains(said, "this key now belongs to bob") {
		t.Errorf("said %q", said)
	}
}

// TestEnrolment runs the whole enrolment with every client: the link is shown, the key approved, the
// client notified, and the next login succeeds.
func TestEnrolment(t *testing.T) {
	for name, start := range map[string]func(b *fixture, k key) *process{
		"openssh":        func(b *fixture, k key) *process { return b.openssh(k, "link@127.0.0.1") },
		"openssh, pty":   func(b *fixture, k key) *process { return b.openssh(k, "-tt", "link@127.0.0.1") },
		"openssh, -N":    func(b *fixture, k key) *process { return b.openssh(k, "-N", "link@127.0.0.1") },
		"openssh, batch": func(b *fixture, k key) *process { return b.openssh(k, "-o", "BatchMode=yes", "Link@127.0.0.1") },
		"openssh, -T, -R": func(b *fixture, k key) *process {
			return b.openssh(k, "-T", "-R", "a:80:127.0.0.1:1", "link@127.0.0.1")
		},
		"dropbear": func(b *fixture, k key) *process { return b.dropbear(k, "-T", "link@127.0.0.1") },
		"plink":    func(b *fixture, k key) *process { return b.plink(k, "link@127.0.0.1") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t, func(o *Options) {
				if name == "openssh, -N" { // this client ends only when relayd closes the connection
					o.IdleClose = 200 * time.Millisecond
				}
			})
			stranger := b.newKey("stranger", 0)
			fp := ssh.FingerprintSHA256(stranger.signer.PublicKey())
			p := start(b, stranger)
			link, code := invited(t, p)
			got, err := b.store.Enrolment(t.Context(), link)
			if err != nil || got.Fingerprint != fp || got.KeyType != "ssh-ed25519" || got.Remote != "127.0.0.1" || got.Client == "" || got.Link != link {
				t.Errorf("enrolment %+v, %v", got, err)
			}
			if left := got.ExpiresAt.Sub(got.RequestedAt); left <= 0 || left > 2*time.Minute {
				t.Errorf("waits %v", left)
			}
			if err := b.store.ApproveEnrolment(t.Context(), bob, link, strings.ToLower(strings.Replace(code, "-", " ", 1))); err != nil {
				t.Fatalf("approve: %v", err)
			}
			exit := p.code(t)
			if said := p.err.String() + p.out.String(); !strings.Contains(said, "this key now belongs to bob") || !strings.Contains(said, "ssh -N -R ALIAS:80:localhost:3000 -p 2222 relay.example.test") {
				t.Errorf("said %q", said)
			}
			if name != "openssh, -N" && exit != 0 {
				t.Errorf("exit %d, want 0", exit)
			}
			if h := b.store.hold("a"); h != nil {
				t.Error("a connection of link@ attached an alias")
			}
			if _, err := b.store.Enrolment(t.Context(), link); !errors.Is(err, relay.ErrNotFound) {
				t.Errorf("after the approval: %v", err)
			}
			if client, _, err := b.dial("relay", ssh.PublicKeys(stranger.signer)); err != nil {
				t.Errorf("login afterwards: %v", err)
			} else if who, ok := b.store.keys[fp]; !ok || who.AccountName != "bob" {
				t.Errorf("the key belongs to %+v", who)
			} else {
				client.Close()
			}
		})
	}
}

// link starts an enrolment with x/crypto. banner collects the texts that relayd shows. The result of the login is
// sent to the returned channel.
func (b *fixture) link(k key) (banner *output, ended chan error) {
	banner, ended = &output{}, make(chan error, 1)
	go func() {
		client, err := ssh.Dial("tcp", "127.0.0.1:"+b.port, &ssh.ClientConfig{
			User: "link", Auth: []ssh.AuthMethod{ssh.PublicKeys(k.signer)}, HostKeyCallback: ssh.InsecureIgnoreHostKey(),
			BannerCallback: func(text string) error { _, err := banner.Write([]byte(text)); return err },
		})
		if err == nil {
			client.Close()
		}
		ended <- err
	}()
	return banner, ended
}

func (b *fixture) shown(banner *output) (link, code string) {
	b.t.Helper()
	eventually(b.t, 30*time.Second, "code", func() bool { return codeLine.MatchString(banner.String()) })
	return linkLine.FindStringSubmatch(banner.String())[1], codeLine.FindStringSubmatch(banner.String())[1]
}

// TestEndedEnrolment: the client gets the reason why its enrolment was ended, even if another node ended it.
func TestEndedEnrolment(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	banner, ended := b.link(b.newKey("stranger", 0))
	link, _ := b.shown(banner)
	b.store.endEnrolment(link, relay.EnrolmentMistyped)
	if err := <-ended; err == nil {
		t.Error("let in")
	}
	if !contains(banner, "typed wrong too often") {
		t.Errorf("banner %q", banner)
	}
}

func TestEnrolmentExpires(t *testing.T) {
	t.Parallel()
	b := newFixture(t, func(o *Options) { o.EnrolTime = 300 * time.Millisecond })
	p := b.openssh(b.newKey("stranger", 0), "link@127.0.0.1")
	link, code := invited(t, p)
	if exit := p.code(t); exit != 255 || !contains(p.err, "nobody approved the key in time") {
		t.Errorf("exit %d: %s", exit, p.err)
	}
	if err := b.store.ApproveEnrolment(t.Context(), bob, link, code); !errors.Is(err, relay.ErrNotFound) {
		t.Errorf("approve after the end: %v", err)
	}
	if n := strings.Count(p.err.String(), "Code: "); n != 1 {
		t.Errorf("%d codes shown", n)
	}
}

// TestEnrolmentEndsWithItsClient: after the client of a waiting key has disconnected, the key can no longer be
// approved.
func TestEnrolmentEndsWithItsClient(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	p := b.openssh(b.newKey("stranger", 0), "link@127.0.0.1")
	link, _ := invited(t, p)
	_ = p.cmd.Process.Kill()
	eventually(t, 30*time.Second, "gone", func() bool {
		_, err := b.store.Enrolment(t.Context(), link)
		return err != nil
	})
	eventually(t, 30*time.Second, "place free", func() bool { return b.srv.Stats().Connections == 0 })
}

func TestEnrolmentOfRegisteredKey(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	p := b.openssh(b.alice, "link@127.0.0.1")
	if exit := p.code(t); exit != 0 || !contains(p.out, "already registered, it belongs to alice; nothing to do") {
		t.Errorf("exit %d: %s", exit, p.out)
	}
	p = b.openssh(b.alice, "link@127.0.0.1", "whoami")
	if exit := p.code(t); exit != cli.ExitUsage || p.out.String() != "" || !contains(p.err, "no command was run") {
		t.Errorf("exit %d: %q, %s", exit, p.out, p.err)
	}
}

// TestEnrolledConnectionDoesNothingElse: a connection with the user name link opens no forward, even if its key
// is registered. It opens only session channels, which refuse subsystems and environment variables.
func TestEnrolledConnectionDoesNothingElse(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	client, _, err := b.dial("link", ssh.PublicKeys(b.alice.signer))
	if err != nil {
		t.Fatal(err)
	}
	for _, req := range []string{"tcpip-forward", "streamlocal-forward@openssh.com", hostKeysProve, relay.HelloRequest, "x"} {
		if ok, payload, err := client.SendRequest(req, true, ssh.Marshal(forwardRequest{"a", 80})); ok || len(payload) > 0 || err != nil {
			t.Errorf("%s: %v, %q, %v", req, ok, payload, err)
		}
	}
	for _, kind := range []string{"direct-tcpip", "x11", "tun@openssh.com"} {
		if _, _, err := client.OpenChannel(kind, nil); err == nil {
			t.Errorf("%s was opened", kind)
		}
	}
	ch, reqs, err := client.OpenChannel("session", nil)
	if err != nil {
		t.Fatal(err)
	}
	go ssh.DiscardRequests(reqs)
	for _, req := range []string{"subsystem", "env", "x11-req", "auth-agent-req@openssh.com"} {
		if ok, err := ch.SendRequest(req, true, nil); ok || err != nil {
			t.Errorf("%s: %v, %v", req, ok, err)
		}
	}
	if b.store.state("a") != relay.TunnelNever {
		t.Error("attached")
	}
}

// TestPromptsAreLimited: if as many logins of one network as MaxPrompts allows wait for an approval, further logins
// of that network are refused. The waiting logins can still be approved.
func TestPromptsAreLimited(t *testing.T) {
	t.Parallel()
	b := newFixture(t, func(o *Options) { o.MaxPrompts = 2 })
	first, firstEnd := b.link(b.newKey("first", 0))
	link, code := b.shown(first)
	second, secondEnd := b.link(b.newKey("second", 0))
	b.shown(second)
	third, thirdEnd := b.link(b.newKey("third", 0))
	if err := <-thirdEnd; err == nil || !contains(third, "too many keys wait") {
		t.Errorf("the third: %v, %s", err, third)
	}
	if err := b.store.ApproveEnrolment(t.Context(), bob, link, code); err != nil {
		t.Errorf("the first: %v", err)
	}
	if err := <-firstEnd; err != nil {
		t.Error(err)
	}
	b.cut()
	<-secondEnd
}

// TestEnrolmentAnew: if a second connection asks for the enrolment of a key that already waits, it gets a new link,
// and the old link becomes invalid.
func TestEnrolmentAnew(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	stranger := b.newKey("stranger", 0)
	first, firstEnd := b.link(stranger)
	oldLink, _ := b.shown(first)
	second, secondEnd := b.link(stranger)
	link, code := b.shown(second)
	if err := <-firstEnd; err == nil || !contains(first, "a newer connection asks") {
		t.Errorf("the first: %v, %s", err, first)
	}
	if _, err := b.store.Enrolment(t.Context(), oldLink); err == nil {
		t.Error("the old link works")
	}
	if err := b.store.ApproveEnrolment(t.Context(), bob, link, code); err != nil {
		t.Error(err)
	}
	if err := <-secondEnd; err != nil {
		t.Error(err)
	}
}

// TestLinkNeedsProof: a public key that is offered without a valid signature gets no link.
func TestLinkNeedsProof(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	stranger, other := b.newKey("stranger", 0), b.newKey("other", 0)
	_, banner, err := b.dial("link", ssh.PublicKeys(swapped{stranger.signer.PublicKey(), other.signer}))
	if err == nil || strings.Contains(banner, "Code") {
		t.Errorf("%v, banner %q", err, banner)
	}
	if n := b.srv.Stats().Enrolments; n != 0 {
		t.Errorf("%d wait", n)
	}
}

// TestEnrolmentIsEvicted: if many keys of one network wait, one of them is evicted for a key of another
// network. The client of the evicted key gets the reason.
func TestEnrolmentIsEvicted(t *testing.T) {
	t.Parallel()
	b := newFixture(t, func(o *Options) { o.MaxPrompts = 2 })
	var ends []<-chan error
	var texts []*output
	for _, name := range []string{"first", "second"} {
		text, end := b.link(b.newKey(name, 0))
		b.shown(text)
		texts, ends = append(texts, text), append(ends, end)
	}
	person := &conn{srv: b.srv}
	person.slot.Conn, person.slot.Source = person, netip.MustParsePrefix("203.0.113.5/32")
	b.srv.front.Acquire(&person.slot, admission.Unknown)
	defer person.slot.Release()
	if !person.BeginPrompt() {
		t.Error("a person of another network was refused")
	}
	if err := <-ends[0]; err == nil || !contains(texts[0], "run the command again for a new link") {
		t.Errorf("the first: %v, %s", err, texts[0])
	}
	b.cut()
	<-ends[1]
}
