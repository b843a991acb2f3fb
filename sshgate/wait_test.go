package sshgate

import (
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"relay/cli"
)

// TestWaitIsInterrupted: Ctrl+C at a terminal ends a waiting command.
func TestWaitIsInterrupted(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	b.store.alias("a", 1)
	c := b.mustDial(b.alice)
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_ = s.RequestPty("xterm", 24, 80, nil)
	in, _ := s.StdinPipe()
	if err := s.Start("wait a --timeout 1h"); err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, "subscription", func() bool { return b.store.subscribers() == 1 })
	_, _ = in.Write([]byte{3})
	if exit, ok := s.Wait().(*ssh.ExitError); !ok || exit.ExitStatus() != cli.ExitInterrupted {
		t.Errorf("exit %v", exit)
	}
}
