package sshgate

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
)

// TestGreetingFits: PuTTY breaks lines of 76, and everything that is known stands in
// the greeting.
func TestGreetingFits(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	long := strings.Repeat("l", 63)
	a := b.house.alias(long, 1)
	a.Settings.Paused = true
	b.house.queue(a, 1234)
	for n := range greetRows + 4 {
		b.house.alias(fmt.Sprintf("z%02d", n), 1)
	}
	b.house.alias("carried", 1)
	forwards(t, b.mustDial(b.alice), "carried", 80)
	b.online("carried")
	_, text, err := b.dial("relay", ssh.PublicKeys(b.alice.signer))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(text, "\n"); n > 20 || len(text) > 1900 {
		t.Errorf("%d lines, %d bytes: dropbear shows 20 and 2000", n, len(text))
	}
	for line := range strings.SplitSeq(text, "\r\n") {
		if len(line) > 76 && !strings.Contains(line, "://"+long) {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
	for _, want := range []string{
		"hello alice", "never online yet", "online from 127.0.0.1 since ", "by alice, Go; a new forward takes over",
		"paused: ", "1234 events queued while offline", "and more: ", "a forward must name its alias",
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

func TestGreetingWithoutAlias(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, text, err := b.dial("anna", ssh.PublicKeys(b.alice.signer))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text, "no alias yet: forward a free name") || !strings.Contains(text, "relayd alias add") {
		t.Errorf("%s", text)
	}
}
