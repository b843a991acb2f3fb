package conformance

import (
	"os"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"relay/relaytest"
)

// dialSSH makes an SSH connection from this process, with the key of the admin.
func (r *relayServer) dialSSH(t *testing.T) *ssh.Client {
	t.Helper()
	text, err := os.ReadFile(r.key)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.ParsePrivateKey(text)
	if err != nil {
		t.Fatal(err)
	}
	c, err := ssh.Dial("tcp", r.ssh, &ssh.ClientConfig{
		User: "relay", Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)}, HostKeyCallback: ssh.InsecureIgnoreHostKey(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// TestTunnelTimes checks the promised times of tunnels with the default settings of a server.
func TestTunnelTimes(t *testing.T) {
	t.Parallel()
	r := startRelay(t, "")
	t.Run("online 100 ms after the forward is confirmed", func(t *testing.T) { onlineAtOnce(t, r.on(t)) })
	t.Run("closed after 5 s without a forward", func(t *testing.T) { t.Parallel(); unusedIsClosed(t, r.on(t)) })
	t.Run("stale within 8 s of silence", func(t *testing.T) { t.Parallel(); silentIsStale(t, r.on(t)) })
}

// onlineAtOnce: an alias is online within 100 ms after its forward was confirmed.
func onlineAtOnce(t *testing.T, r *relayServer) {
	c := r.dialSSH(t)
	for open := range 5 {
		ok, _, err := c.SendRequest("tcpip-forward", true, ssh.Marshal(struct {
			Bind string
			Port uint32
		}{"times", 80}))
		if err != nil || !ok {
			t.Fatalf("forward %d: %v, %v", open, ok, err)
		}
		confirmed := time.Now()
		relaytest.Until(t, 5*time.Second, "the alias to be online", func() bool { return r.online("times") })
		took := time.Since(confirmed) // the time includes the calls that ask for the state
		if took > bound(100*time.Millisecond) {
			t.Errorf("online %v after the forward was confirmed", took)
		}
		if open == 0 {
			figure(t, "online %v after the forward was confirmed", took.Round(100*time.Microsecond))
		}
		_, _, _ = c.SendRequest("cancel-tcpip-forward", true, ssh.Marshal(struct {
			Bind string
			Port uint32
		}{"times", 80}))
		relaytest.Until(t, 5*time.Second, "the alias to be offline", func() bool { return !r.online("times") })
	}
}

// unusedIsClosed: a connection that requests nothing is closed after about 5 s.
func unusedIsClosed(t *testing.T, r *relayServer) {
	begun := time.Now() // a pause of this process after the login must not make the measured time too short
	c := r.dialSSH(t)
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	select {
	case <-ended:
	case <-time.After(relaytest.Patience(10 * time.Second)):
		t.Fatal("a connection without a forward and a session stays open")
	}
	took := time.Since(begun)
	figure(t, "a connection without a forward and a session was closed after %v", took.Round(10*time.Millisecond))
	if took < 4*time.Second || took > bound(5*time.Second) {
		t.Errorf("closed after %v", took)
	}
}

// silentIsStale freezes a client. Its alias is stale within 8 s and requests are queued. When the client
// continues, the alias is online within a second.
func silentIsStale(t *testing.T, r *relayServer) {
	client := r.tunnel("silent", says(t, "x"))
	r.serves(t, "silent", "x")
	wake := freeze(t, client.Cmd.Process.Pid)
	begun := time.Now()
	r.waitFor(20*time.Second, "the alias to be stale", func() bool { return r.state("silent") == "stale" })
	took := time.Since(begun)
	begun = time.Now()
	if status, body, _ := r.call("silent", "/asleep", "x"); status != 202 || time.Since(begun) > bound(2*time.Second) {
		t.Errorf("asleep: answered %d %s after %v", status, body, time.Since(begun))
	}
	wake()
	begun = time.Now()
	r.waitFor(20*time.Second, "the alias to be online", func() bool { return r.state("silent") == "online" })
	back := time.Since(begun)
	figure(t, "stale after %v of silence, online %v after the peer woke", took.Round(10*time.Millisecond), back.Round(10*time.Millisecond))
	if took > bound(8*time.Second) || back > bound(time.Second) {
		t.Errorf("stale after %v of silence, online %v after the peer woke", took, back)
	}
}

// TestSpoolAfterOneSecond: if Postgres has been silent for a second, requests are stored in the spool and
// answered, at most half a second later.
func TestSpoolAfterOneSecond(t *testing.T) {
	t.Parallel()
	pg, databaseURL := ownPostgres(t)
	r := startRelay(t, databaseURL)
	r.alias("asleep")
	if status, body, _ := r.call("asleep", "/before", "x"); status != 202 {
		t.Fatalf("answered %d %s", status, body)
	}
	if err := pg.Freeze(); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	status, body, _ := r.call("asleep", "/frozen", "x")
	first := time.Since(begun)
	begun = time.Now()
	next, _, _ := r.call("asleep", "/frozen", "x")
	second := time.Since(begun)
	if err := pg.Thaw(); err != nil {
		t.Fatal(err)
	}
	figure(t, "Postgres silent: the first caller was answered after %v, the next after %v", first.Round(10*time.Millisecond), second.Round(10*time.Millisecond))
	if status != 202 || next != 202 || first > bound(1500*time.Millisecond) || second > bound(1500*time.Millisecond) {
		t.Errorf("answered %d %s after %v, then %d after %v", status, body, first, next, second)
	}
}
