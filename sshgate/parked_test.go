package sshgate

import (
	"io"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"relay/link"
)

// heapMiB is the live heap in MiB.
func heapMiB() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / (1 << 20)
}

// TestExtendedDataClosesTheConnection: extended data on a channel closes the connection, because
// x/crypto would hold up to 2 MiB of it on each channel.
func TestExtendedDataClosesTheConnection(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	c := b.mustDial(b.alice)
	accept(t, c, func(_ forwardedOpen, n ssh.NewChannel) {
		ch, reqs, err := n.Accept()
		if err != nil {
			return
		}
		go ssh.DiscardRequests(reqs)
		go func() { _, _ = ch.Stderr().Write(make([]byte, 100)) }()
	})
	forwards(t, c, "a", 80)
	open(t, b.online("a"))
	served := b.srv.all()[0]
	closed(t, c)
	if cause := served.Cause(); cause != link.ForbiddenBytes {
		t.Errorf("ended by %q", cause)
	}
}

// talker is a channel whose peer sends data after EOF.
type talker struct {
	badPeer
	eof atomic.Bool
}

func (r *talker) Read(p []byte) (int, error) {
	if !r.eof.Swap(true) {
		return 0, io.EOF
	}
	return len(p), nil
}

func (r *talker) Stderr() io.ReadWriter                             { return &r.badPeer }
func (r *talker) Accept() (ssh.Channel, <-chan *ssh.Request, error) { return r, r.reqs, nil }

// TestDataAfterEOFClosesTheConnection: data after EOF closes the connection, because x/crypto would hold such
// data in memory. No library sends it, so the channel is a fake.
func TestDataAfterEOFClosesTheConnection(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	client, c := b.met()
	reqs := make(chan *ssh.Request)
	defer close(reqs)
	h := c.confirmed(&talker{badPeer: badPeer{reqs: reqs}}, reqs)
	_, _ = h.Read(make([]byte, 1)) // this read gets the EOF
	closed(t, client)
}

// TestSessionInputIsRead: the input of sessions is read and dropped, because x/crypto would hold 2 MiB of it
// for each session.
func TestSessionInputIsRead(t *testing.T) {
	b := newFixture(t)
	b.store.alias("a", 1)
	const size = 3 << 20
	before := heapMiB()
	block := make([]byte, 32<<10)
	c := b.mustDial(b.alice)
	for i := range maxSessions {
		s, err := c.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		in, err := s.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 { // the first session has no command
			if err := s.Start("wait a --timeout 1m"); err != nil {
				t.Fatal(err)
			}
		}
		// A window is 2 MiB, so sending more succeeds only if the server reads.
		for sent := 0; sent < size; sent += len(block) {
			if _, err := in.Write(block); err != nil {
				t.Fatal(err)
			}
		}
	}
	const most = maxSessions * size / (2 << 20) // half of the MiB that were sent
	eventually(t, 30*time.Second, "the input to be read, and not kept", func() bool { return heapMiB()-before < most })
	t.Logf("%d sessions: %.1f MiB more", maxSessions, heapMiB()-before)
}

// TestSessionErrorOutputOfThePeer: extended data from the client on a session closes the connection,
// because only servers may send it.
func TestSessionErrorOutputOfThePeer(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	b.store.alias("a", 1)
	c := b.mustDial(b.alice)
	ch, reqs, err := c.OpenChannel("session", nil)
	if err != nil {
		t.Fatal(err)
	}
	go ssh.DiscardRequests(reqs)
	if ok, err := ch.SendRequest("exec", true, ssh.Marshal(struct{ Line string }{"wait a --timeout 1m"})); !ok || err != nil {
		t.Fatal(ok, err)
	}
	_, _ = ch.Stderr().Write([]byte("x"))
	closed(t, c)
}
