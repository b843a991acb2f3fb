package sshgate

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

func TestFights(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	f := newFights()
	f.now = func() time.Time { return now }
	a := loser{credential: "key_1"}
	for n := range fightBurst {
		f.lost("a", a)
		if _, wait := f.due(a); wait != 0 {
			t.Fatalf("takeover %d costs %v", n+1, wait)
		}
	}
	if !f.lost("a", a) || !f.contested("a") || f.contested("b") {
		t.Error("not noticed")
	}
	if _, wait := f.due(loser{credential: "key_2"}); wait != 0 {
		t.Error("somebody else waits")
	}
	now = now.Add(time.Second)
	if alias, wait := f.due(a); alias != "a" || wait != fightWait-time.Second {
		t.Errorf("%s, %v", alias, wait)
	}
	if _, wait := f.due(a); wait != 0 {
		t.Error("waits twice for one loss")
	}
	f.lost("b", a)
	if _, wait := f.due(a); wait != 0 {
		t.Error("another alias costs")
	}
	now = now.Add(time.Hour)
	if f.lost("a", a) || f.contested("a") {
		t.Error("noticed an hour later")
	}
	if _, wait := f.due(a); wait != 0 {
		t.Error("an hour later it still costs")
	}
}

// TestFightIsDamped: two clients that come back at once whenever they are thrown out
// take the alias from each other a few times and then slowly. A third one, with
// another key, wins at once all the same.
func TestFightIsDamped(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(o *Options) { o.TakeoverDrain = 10 * time.Millisecond })
	now := time.Now() // and it stays so, however slow the machine is
	b.gate.fights.mu.Lock()
	b.gate.fights.now = func() time.Time { return now }
	b.gate.fights.mu.Unlock()
	for range fightBurst + 2 {
		before := b.house.hold("a")
		forwards(t, b.mustDial(b.alice), "a", 80)
		eventually(t, 30*time.Second, "online", func() bool { return b.house.hold("a") != before })
	}
	eventually(t, 30*time.Second, "a loser", func() bool {
		b.gate.fights.mu.Lock()
		defer b.gate.fights.mu.Unlock()
		return len(b.gate.fights.losses) > 0
	})
	banner := &output{}
	ended := make(chan error, 1)
	go func() {
		client, err := ssh.Dial("tcp", "127.0.0.1:"+b.port, &ssh.ClientConfig{
			User: "x", Auth: []ssh.AuthMethod{ssh.PublicKeys(b.alice.signer)}, HostKeyCallback: ssh.InsecureIgnoreHostKey(),
			BannerCallback: func(text string) error { _, err := banner.Write([]byte(text)); return err },
		})
		if err == nil {
			client.Close()
		}
		ended <- err
	}()
	eventually(t, 30*time.Second, "told", func() bool { return contains(banner, "changes hands all the time") })
	text, _, _ := runs(t, b.mustDial(b.newKey("alice", 1)), "aliases")
	if !strings.Contains(text, "changes hands all the time") {
		t.Errorf("aliases: %s", text)
	}
	other := b.newKey("alice", 1)
	client := b.mustDial(other)
	forwards(t, client, "a", 80)
	eventually(t, 30*time.Second, "the person wins", func() bool {
		h := b.house.hold("a")
		return h.tunnel.(*tunnel).c.who.Credential == other.actor.Credential
	})
	for _, c := range b.gate.all() {
		_ = c.sock.Close()
	}
	<-ended
}

// TestWinnerHearsOfTheFight: whoever has the alias reads in the live log that others
// take it, and a program is not bothered with it.
func TestWinnerHearsOfTheFight(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(o *Options) { o.TakeoverDrain = 10 * time.Millisecond })
	a := b.house.alias("a", 1)
	c := b.mustDial(b.alice)
	forwards(t, c, "a", 80)
	_, out, _ := show(t, c, "", 80, nil)
	s, next := saying(t, c)
	eventually(t, 30*time.Second, "subscriptions", func() bool { return b.house.subscribers() == 2 })
	b.gate.contest(a.ID, a.Name)
	eventually(t, 30*time.Second, "words", func() bool { return contains(out, "Alias a changes hands all the time: two clients") })
	if kind, _ := next(); kind != "online" {
		t.Error(kind)
	}
	_ = s.Signal(ssh.SIGTERM)
	if kind, _ := next(); kind != "" {
		t.Errorf("the program was told %s", kind)
	}
}
