package sshgate

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// TestBatchModeIsToldTheSecondTime: a client that tries nothing after its keys reads
// why it was refused when it comes again; who gets in by a later key reads nothing.
func TestBatchModeIsToldTheSecondTime(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	first, second := b.newKey("stranger", 0), b.newKey("stranger", 0)
	try := func(keys ...key) *process {
		args := []string{"-o", "BatchMode=yes"}
		for _, k := range keys[1:] {
			args = append(args, "-i", k.path)
		}
		p := b.openssh(keys[0], append(args, "x@127.0.0.1", "whoami")...)
		p.code(t)
		eventually(t, 30*time.Second, "its end", func() bool { return b.gate.Stats().Connections == 0 })
		return p
	}
	if p := try(first, second); contains(p.err, "not registered") {
		t.Errorf("told at once: %s", p.err)
	}
	if p := try(first, second, b.alice); p.out.String() != "alice\n" || strings.Contains(p.err.String(), "registered") && !contains(p.err, "hello alice") {
		t.Errorf("with a good key: %s%s", p.out, p.err)
	}
	try(first, second)
	p := try(first, second)
	for _, k := range []key{first, second} {
		if fp := ssh.FingerprintSHA256(k.signer.PublicKey()); strings.Count(p.err.String(), fp+" is not registered") != 1 {
			t.Errorf("%s is not in %s", fp, p.err)
		}
	}
	if !contains(p.err, "to register a key, run: ssh -p 2222 link@") {
		t.Errorf("told %s", p.err)
	}
	var many unheard
	for n := range maxUnheard + 10 {
		many.note(sourceOf(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)})), "x")
	}
	if len(many.last) != maxUnheard {
		t.Errorf("%d remembered", len(many.last))
	}
}
