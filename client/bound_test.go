package client

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"relay/cli"
)

// TestBannerIsBounded: a relay may send any amount of text before the login; the stored part is
// bounded.
func TestBannerIsBounded(t *testing.T) {
	l := &loginAttempt{Dialer: &Dialer{}}
	for range 1000 {
		_ = l.addBanner(strings.Repeat("x", 1000))
	}
	if n := len(l.banner); n > maxBanner || n < maxBanner-1100 {
		t.Errorf("%d bytes are kept", n)
	}
}

// TestAgentThatDoesNotAnswer: an ssh-agent that hangs delays the login briefly, but does not prevent
// it.
func TestAgentThatDoesNotAnswer(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "agent")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	talk := &sayRecorder{}
	k := &keyring{agent: socket, files: []string{newKeyFile(t, "")}, say: talk.say, agentTimeout: 10 * time.Millisecond}
	list, done, err := k.signers()
	defer done()
	if err != nil || len(list) != 1 || !strings.Contains(talk.String(), "the ssh-agent is not used") {
		t.Errorf("%d keys, %v, said %q", len(list), err, talk)
	}
}

// TestWarningsOfKeysAreSaidOnce: a client that reconnects for days does not repeat its warnings each
// time.
func TestWarningsOfKeysAreSaidOnce(t *testing.T) {
	dir := t.TempDir()
	broken := filepath.Join(dir, "broken")
	keep(t, broken, "no key")
	talk := &sayRecorder{}
	k := &keyring{agent: filepath.Join(dir, "agent"), files: []string{broken, newKeyFile(t, "")}, say: talk.say}
	for range 3 {
		list, done, err := k.signers()
		done()
		if err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
	}
	for _, warning := range []string{"the ssh-agent is not used", "is not used: ssh: no key found"} {
		if n := strings.Count(talk.String(), warning); n != 1 {
			t.Errorf("%q is said %d times", warning, n)
		}
	}
}

// TestKeyThatCannotBeReadIsNotReplaced: MakeKey fails for a file that is not a readable key, and writes
// nothing.
func TestKeyThatCannotBeReadIsNotReplaced(t *testing.T) {
	dir := t.TempDir()
	unreadable := filepath.Join(dir, "folder")
	if err := os.Mkdir(unreadable, 0o700); err != nil {
		t.Fatal(err)
	}
	broken := filepath.Join(dir, "broken")
	keep(t, broken, "no key")
	for _, file := range []string{unreadable, broken} {
		if _, err := MakeKey(file, "x"); exitOfError(err) != cli.ExitFailure {
			t.Errorf("%s: %v", file, err)
		}
	}
	if text, err := os.ReadFile(broken); strings.TrimSpace(string(text)) != "no key" {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := os.Stat(unreadable + ".pub"); !errors.Is(err, os.ErrNotExist) {
		t.Error("a public half was written")
	}
}

// TestBaseURLWithALogin: a base URL with a password is refused, because every message would contain
// it.
func TestBaseURLWithALogin(t *testing.T) {
	_, err := NewAPI("https://me:secret@relay.test", "rly_x", "test")
	if exitOfError(err) != cli.ExitUsage || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v", err)
	}
}

// TestSilentPeerIsNamed: if a peer accepts the connection but sends nothing, one message tells the user
// that the program is waiting. Without a terminal nothing is printed.
func TestSilentPeerIsNamed(t *testing.T) {
	for _, c := range []struct {
		person bool
		want   int
	}{{true, 1}, {false, 0}} {
		synctest.Test(t, func(t *testing.T) {
			dialer, talk := newDialer(t, "relay.test:2222")
			if c.person {
				dialer.Prompter = &fakePrompter{}
			}
			dialer.connect = func(context.Context, string) (net.Conn, error) {
				here, there := net.Pipe()
				go func() { _, _ = io.Copy(io.Discard, there) }()
				return here, nil
			}
			if _, err := dialer.Dial(t.Context()); exitOfError(err) != cli.ExitUnreachable {
				t.Errorf("%v", err)
			}
			synctest.Wait()
			if n := strings.Count(talk.String(), "waiting for relay.test:2222 …"); n != c.want {
				t.Errorf("person %t: said %d times\n%s", c.person, n, talk)
			}
		})
	}
}

// TestTimeToDialAName: if a name server is down, the resolver asks the next one after 5 s. The timeout of a dial to a
// name leaves enough time for the answer of the second one and for the connection.
func TestTimeToDialAName(t *testing.T) {
	const nameServer = 5 * time.Second
	byAddress := serverDialer("[2001:db8::1]:2222").Timeout
	if again := serverDialer("192.0.2.1:2222").Timeout; again != byAddress {
		t.Errorf("%v and %v by address", byAddress, again)
	}
	if byName := serverDialer("relay.example.test:2222").Timeout; byName < nameServer+byAddress {
		t.Errorf("%v by name, %v by address", byName, byAddress)
	}
}
