package sshgate

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/budget"
)

// answering lets every channel of a client answer with all of p, then end.
func answering(t *testing.T, c *ssh.Client, p []byte) {
	accept(t, c, func(_ forwardedOpen, n ssh.NewChannel) {
		ch, reqs, err := n.Accept()
		if err != nil {
			return
		}
		go ssh.DiscardRequests(reqs)
		go func() {
			_, _ = ch.Write(p)
			_ = ch.CloseWrite()
		}()
	})
}

func fillOnce(ch relay.Channel, buf []byte) relay.Fill {
	ch.Fill(buf)
	return <-ch.Filled()
}

// TestPausedChannelsAreBounded: each answer of a quick local server whose caller did not
// take it held 2 MiB, without end.
func TestPausedChannelsAreBounded(t *testing.T) {
	t.Parallel()
	shared := budget.New(16 << 20) // an account has a quarter: one channel fits, and a second one does not
	b := newFixture(t, func(o *Options) { o.Budget = shared })
	answer := random(4<<20, 3)
	c, other := b.mustDial(b.alice), b.mustDial(b.newKey("bob", 2))
	answering(t, c, answer)
	answering(t, other, []byte("hello you"))
	forwards(t, c, "a", 80)
	forwards(t, other, "b", 80)
	tun := b.online("a")
	chans := []relay.Channel{open(t, tun), open(t, tun)}
	bufs := [][]byte{make([]byte, 1000), make([]byte, 1000)}
	got := []int{fillOnce(chans[0], bufs[0]).N, fillOnce(chans[1], bufs[1]).N}
	cut := func() int {
		for i, ch := range chans {
			h := ch.(*channel)
			h.mu.Lock()
			err := h.err
			h.mu.Unlock()
			if err == budget.ErrOver {
				return i
			}
		}
		return -1
	}
	eventually(t, 30*time.Second, "one to be cut", func() bool { return cut() >= 0 && shared.Stats().Used == pausedBytes })
	if _, err := tun.Open(t.Context(), origin); relay.AsError(err).Code != relay.CodeOverloaded {
		t.Errorf("a new request: %v", err)
	}
	tun = b.online("b")
	ch := open(t, tun)
	if p, err := readAll(t, ch); string(p) != "hello you" || err != io.EOF {
		t.Errorf("another account: %q, %v", p, err)
	}
	_ = ch.Close()
	bad := cut()
	if f := fillOnce(chans[bad], make([]byte, 10)); !errors.Is(f.Err, budget.ErrOver) || f.N != 0 {
		t.Errorf("the one that was cut: %v", f)
	}
	rest, err := readAll(t, chans[1-bad])
	if all := append(bufs[1-bad][:got[1-bad]], rest...); !bytes.Equal(all, answer) || err != io.EOF {
		t.Errorf("the other one: %d of %d bytes, or changed, %v", len(all), len(answer), err)
	}
	if s := shared.Stats(); s.Used != 0 || s.Refused != 2 {
		t.Errorf("%+v when nothing is paused", s)
	}
	for _, ch := range chans {
		_ = ch.Close()
	}
}

// TestClosedChannelReservesNothing: what a paused channel had reserved comes back with
// its Close.
func TestClosedChannelReservesNothing(t *testing.T) {
	t.Parallel()
	budget := budget.New(64 << 20)
	b := newFixture(t, func(o *Options) { o.Budget = budget })
	c := b.mustDial(b.alice)
	answering(t, c, random(3<<20, 4))
	forwards(t, c, "a", 80)
	ch := open(t, b.online("a"))
	eventually(t, 30*time.Second, "a reservation", func() bool { return budget.Stats().Used == pausedBytes })
	_ = ch.Close()
	if s := budget.Stats(); s.Used != 0 || s.Accounts != 0 {
		t.Errorf("%+v", s)
	}
}

// TestPauseReservesOnce: on a busy machine the timer of a pause could fire while a Fill was
// served, and again after it. The second reservation was never given back, or was refused, and
// the channel was cut.
func TestPauseReservesOnce(t *testing.T) {
	t.Parallel()
	budget := budget.New(64 << 20)
	b := newFixture(t, func(o *Options) { o.Budget = budget })
	c := b.mustDial(b.alice)
	answering(t, c, random(3<<20, 4))
	forwards(t, c, "a", 80)
	ch := open(t, b.online("a")).(*channel)
	eventually(t, 30*time.Second, "a reservation", func() bool { return budget.Stats().Used == pausedBytes })
	ch.paused()
	if s := budget.Stats(); s.Used != pausedBytes {
		t.Errorf("paused again: %+v", s)
	}
	_ = ch.Close()
	if s := budget.Stats(); s.Used != 0 {
		t.Errorf("closed: %+v", s)
	}
}

// TestPausesKeepTheBytes: whatever was read ahead in a pause comes in its place, an idle
// pause reserves nothing, and the end comes after the last byte.
func TestPausesKeepTheBytes(t *testing.T) {
	t.Parallel()
	budget := budget.New(64 << 20)
	b := newFixture(t, func(o *Options) { o.Budget = budget })
	c := b.mustDial(b.alice)
	answer := random(30_000, 5)
	next := make(chan int)
	accept(t, c, func(_ forwardedOpen, n ssh.NewChannel) {
		ch, reqs, err := n.Accept()
		if err != nil {
			return
		}
		go ssh.DiscardRequests(reqs)
		go func() {
			sent := 0
			for n := range next {
				_, _ = ch.Write(answer[sent : sent+n])
				sent += n
			}
			_ = ch.CloseWrite()
		}()
	})
	forwards(t, c, "a", 80)
	ch := open(t, b.online("a"))
	defer ch.Close()
	h := ch.(*channel)
	ahead := func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.ahead
	}
	var all []byte
	take := func() error {
		buf := make([]byte, 700)
		f := fillOnce(ch, buf)
		all = append(all, buf[:f.N]...)
		return f.Err
	}
	eventually(t, 30*time.Second, "a read ahead", ahead)
	if used := budget.Stats().Used; used != 0 {
		t.Errorf("%d bytes reserved for a peer that sends nothing", used)
	}
	next <- 10_000 // into the read ahead
	eventually(t, 30*time.Second, "a reservation", func() bool { return budget.Stats().Used > 0 })
	for len(all) < 10_000 {
		if err := take(); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, 30*time.Second, "a second read ahead", ahead)
	buf := make([]byte, 700)
	ch.Fill(buf) // meets the read ahead
	next <- 20_000
	f := <-ch.Filled()
	all = append(all, buf[:f.N]...)
	close(next)
	eventually(t, 30*time.Second, "a pause with bytes", func() bool { return budget.Stats().Used > 0 || len(all) == len(answer) })
	var err error
	for err == nil {
		err = take()
	}
	if err != io.EOF || !bytes.Equal(all, answer) {
		t.Errorf("%d of %d bytes, or changed, %v", len(all), len(answer), err)
	}
	if used := budget.Stats().Used; used != 0 {
		t.Errorf("%d bytes are left reserved", used)
	}
}
