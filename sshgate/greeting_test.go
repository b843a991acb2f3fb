package sshgate

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
)

// TestGreetingFits: the greeting contains all known facts and fits the limits of Dropbear. Its lines have at
// most 76 characters, because PuTTY wraps longer ones; only a long URL may be longer.
func TestGreetingFits(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	long := strings.Repeat("l", 63)
	a := b.store.alias(long, 1)
	a.Settings.Paused = true
	b.store.queue(a, 1234)
	for n := range greetRows + 4 {
		b.store.alias(fmt.Sprintf("z%02d", n), 1)
	}
	b.store.alias("carried", 1)
	forwards(t, b.mustDial(b.alice), "carried", 80)
	b.online("carried")
	_, text, err := b.dial("relay", ssh.PublicKeys(b.alice.signer))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(text, "\n"); n > greetRows || len(text) > 1900 {
		t.Errorf("%d lines, %d bytes: dropbear shows 18 and 2050", n, len(text))
	}
	for line := range strings.SplitSeq(text, "\r\n") {
		if len(line) > 76 && !strings.Contains(line, "://"+long) {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
	for _, want := range []string{
		"hello alice", "never online yet", "online from 127.0.0.1 since ", "by alice, Go; a new forward takes over",
		"paused: ", "1234 events queued while offline", " more: see the command aliases", "-R without an alias would be refused",
		"http://" + long + ".example.test:8080",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if bytes.ContainsAny([]byte(text), "\x1b\x07") {
		t.Error("control characters")
	}
}

// TestGreetingAfterACommand: the login after a command shows the account, its aliases and their queues in one line; the
// login after a shell shows the full greeting again.
func TestGreetingAfterACommand(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	b.store.queue(b.store.alias("github-dev", 1), 3)
	b.store.alias("stripe-dev", 1)
	greeted := func() (*ssh.Client, string) {
		t.Helper()
		c, text, err := b.dial("stripe-dev", ssh.PublicKeys(b.alice.signer))
		if err != nil {
			t.Fatal(err)
		}
		return c, text
	}
	c, text := greeted()
	if strings.Count(text, "\n") < 3 || !strings.Contains(text, "never online yet") {
		t.Errorf("the first greeting is\n%s", text)
	}
	if _, _, code := runs(t, c, "whoami"); code != 0 {
		t.Fatalf("exit %d", code)
	}
	const short = ": hello alice: github-dev http://github-dev.example.test:8080 (3 events queued while offline), stripe-dev http://stripe-dev.example.test:8080\r\n"
	c, text = greeted()
	if !strings.HasSuffix(text, short) || strings.Count(text, "\n") != 1 {
		t.Errorf("after a command the greeting is\n%s", text)
	}
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Shell(); err != nil {
		t.Fatal(err)
	}
	if _, text = greeted(); !strings.Contains(text, "never online yet") {
		t.Errorf("after a shell the greeting is\n%s", text)
	}
}

// TestGreetingWithoutAlias: the greeting of an account without aliases advises forwarding a free name only if the
// account may claim one. It says that a forward without a name would be refused if the user name can be no alias.
func TestGreetingWithoutAlias(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	for user, want := range map[string]bool{"anna": false, "root": true, "a_b": true} {
		_, text, err := b.dial(user, ssh.PublicKeys(b.alice.signer))
		if err != nil {
			t.Fatal(err)
		}
		if told := strings.Contains(text, "-R without an alias would be refused: user name"); told != want || !strings.Contains(text, "no alias yet") {
			t.Errorf("%s:\n%s", user, text)
		}
	}
	for noClaim, want := range map[bool]string{false: "no alias yet: forward a free name", true: "-R would be refused: no alias yet; make one in the dashboard"} {
		b := newFixture(t, func(o *Options) { o.NoClaim = noClaim })
		c, text, err := b.dial("anna", ssh.PublicKeys(b.alice.signer))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(text, want) || !strings.Contains(text, "relayd alias add") {
			t.Errorf("%s", text)
		}
		if out, said, code := runs(t, c, "aliases"); out != "" || code != 0 || !strings.Contains(said, "no alias yet") {
			t.Errorf("exit %d, %q, %q", code, out, said)
		}
	}
}

// TestGreetingIsShownWholeByDropbear: Dropbear shows the whole greeting of an account, whether it has one, nine
// or 25 aliases.
func TestGreetingIsShownWholeByDropbear(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	for n := range 25 {
		name := fmt.Sprintf("alias-%02d", n)
		b.store.queue(b.store.alias(name, 1), 3)
		if n != 0 && n != 8 && n != 24 {
			continue
		}
		for _, user := range []string{"root", "stripe-dev", name} {
			p := b.dropbear(b.alice, user+"@127.0.0.1", "version")
			<-p.exited
			if said := p.err.String(); strings.Contains(said, "too long") || !strings.Contains(said, "hello alice") {
				t.Errorf("%d aliases, %s:\n%s", n+1, user, said)
			}
		}
	}
}

// TestForetold: if a forward without a name would be refused because of the user name of the login, the greeting
// says so. The text is the same for the name of another account's alias and for an unused name.
func TestForetold(t *testing.T) {
	t.Parallel()
	b := newFixture(t, func(o *Options) { o.NoClaim = true })
	b.store.claiming = false
	for _, name := range []string{"mine-a", "mine-b"} {
		b.store.alias(name, 1)
	}
	b.store.alias("foreign", 2)
	said := func(user string) string {
		t.Helper()
		client, text, err := b.dial(user, ssh.PublicKeys(b.alice.signer))
		if err != nil {
			t.Fatal(err)
		}
		ok, _, err := client.SendRequest("tcpip-forward", true, ssh.Marshal(forwardRequest{"", 80}))
		if err != nil {
			t.Fatal(err)
		}
		if _, after, told := strings.Cut(text, "-R without an alias would be refused"); told != !ok {
			t.Errorf("%s: attached %t, and the greeting says\n%s", user, ok, text)
		} else {
			return after
		}
		return ""
	}
	for user, want := range map[string]string{
		"root": "user name \"root\" is reserved;\r\n", "a_b": "cannot be an alias", "mine-a": "", "MINE-B.example.test": "",
	} {
		if text := said(user); !strings.Contains(text, want) {
			t.Errorf("%s: %q", user, text)
		}
	}
	if foreign, free := said("foreign"), said("nothing"); strings.Replace(foreign, "foreign", "nothing", 1) != free || free == "" {
		t.Errorf("%q and %q", foreign, free)
	}
}
