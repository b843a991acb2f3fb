package conformance

import (
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"relay/relaytest"
)

// TestFaultLineCutWhilePostgresIsAway: while relayd cannot look up keys, no login succeeds, but none is
// refused for good either. relay up reconnects when Postgres is back, and a command reports that the relay is
// unavailable.
func TestFaultLineCutWhilePostgresIsAway(t *testing.T) {
	t.Parallel()
	pg, databaseURL := ownPostgres(t)
	r := startRelay(t, databaseURL)
	l := relaytest.NewLine(t, "tcp", r.ssh)
	relay := relaytest.Program(t, "relay")
	server := []string{"--server", l.Addr, "--identity", r.key}
	up := r.client("cut", relay, append([]string{"up", "--target", "http://" + localServer(t), "--alias", "cut"}, server...)...)
	// relay up retries only after its first success. Before that, the address in --server may be wrong.
	r.waitFor(15*time.Second, "relay up to have begun", func() bool { return strings.Contains(up.Out.String(), "Press Ctrl+C") })
	if err := pg.Kill(); err != nil {
		t.Fatal(err)
	}
	l.Cut()
	<-time.After(size(6*time.Second, 30*time.Second)) // in this time, several logins of relay up fail, and it must still try again
	events := exec.Command(relay, append([]string{"events", "cut"}, server...)...)
	events.Env = r.env()
	said, err := events.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 69 || !strings.Contains(string(said), "keys cannot be looked up right now") {
		t.Errorf("relay events: %v, %s", err, said)
	}
	plain, err := exec.Command("ssh", append([]string{"-o", "LogLevel=INFO"}, append(r.sshArgs(), "whoami")...)...).CombinedOutput()
	if err == nil || !strings.Contains(string(plain), "keys cannot be looked up right now") {
		t.Errorf("ssh: %v, %s", err, plain)
	}
	if err := pg.Restart(); err != nil {
		t.Fatal(err)
	}
	r.waitFor(bound(30*time.Second), "the alias to be online again", func() bool { return r.online("cut") })
	if status, body, _ := r.call("cut", "/back", "x"); status != 200 {
		t.Errorf("answered %d %s", status, body)
	}
}
