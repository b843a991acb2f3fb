package sshgate

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"golang.org/x/crypto/ssh"

	"relay"
)

// TestBrokenOffAnswerIsNoCleanEnd: if the local server resets a response without a length, the response must not look
// complete. x/crypto reports CLOSE like EOF, so the client sends broke-off@relay before CLOSE. The bytes before the
// reset are passed on, and the response of a client that does not send broke-off@relay ends normally.
func TestBrokenOffAnswerIsNoCleanEnd(t *testing.T) {
	t.Parallel()
	answer := random(300<<10, 7)
	for name, x := range map[string]struct {
		end    func(ch ssh.Channel)
		broken bool
	}{
		"broke off": {func(ch ssh.Channel) {
			_, _ = ch.SendRequest(relay.BrokeOffRequest, true, nil)
			_ = ch.Close()
		}, true},
		"broke off, with a payload and an EOF": {func(ch ssh.Channel) {
			_, _ = ch.SendRequest(relay.BrokeOffRequest, true, answer[:1000])
			_ = ch.CloseWrite()
		}, true},
		"EOF":             {func(ch ssh.Channel) { _ = ch.CloseWrite() }, false},
		"EOF and CLOSE":   {func(ch ssh.Channel) { _ = ch.CloseWrite(); _ = ch.Close() }, false},
		"CLOSE alone":     {func(ch ssh.Channel) { _ = ch.Close() }, false},
		"another request": {func(ch ssh.Channel) { _, _ = ch.SendRequest("x@relay", true, nil); _ = ch.Close() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
			c := b.mustDial(b.alice)
			accept(t, c, func(_ forwardedOpen, n ssh.NewChannel) {
				ch, reqs, err := n.Accept()
				if err != nil {
					return
				}
				go ssh.DiscardRequests(reqs)
				go func() {
					_, _ = ch.Write(answer)
					x.end(ch)
				}()
			})
			_, _, _ = c.SendRequest(relay.HelloRequest, false, ssh.Marshal(relay.Hello{Protocol: 1, Flags: relay.HelloLazyDial}))
			forwards(t, c, "a", 80)
			tun := b.online("a")
			ch := open(t, tun)
			defer ch.Close()
			got, err := readAll(t, ch)
			if !bytes.Equal(got, answer) {
				t.Errorf("%d of %d bytes, or changed", len(got), len(answer))
			}
			want := io.EOF
			if x.broken {
				want = io.ErrUnexpectedEOF
			}
			if !errors.Is(err, want) {
				t.Errorf("ended with %v", err)
			}
			if b.store.state("a") != relay.TunnelOnline {
				t.Error("the tunnel went with it")
			}
		})
	}
}
