package link

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"relay/budget"
)

func random(n int, seed uint64) []byte {
	p, source := make([]byte, n), rand.NewChaCha8([32]byte{byte(seed)})
	_, _ = source.Read(p)
	return p
}

// TestPausedChannelsAreBounded: if the budget has space for one of two paused channels, one is cut with
// budget.ErrOver. The other one gets all its bytes, and nothing stays reserved.
func TestPausedChannelsAreBounded(t *testing.T) {
	t.Parallel()
	// An account has a quarter of the budget: enough for one channel, but not for two.
	shared := budget.New(16 << 20)
	own, peer := pair(t, Options{})
	answer, open := random(4<<20, 3), opener(t, own, peer)
	cuts := make(chan struct{}, 2)
	var chans []*Channel
	for range 2 {
		ch, far := open(ChannelOptions{Budget: shared, Account: 1, Cut: func() { cuts <- struct{}{} }})
		go ssh.DiscardRequests(far.reqs)
		go func() {
			_, _ = far.Write(answer)
			_ = far.CloseWrite()
		}()
		chans = append(chans, ch)
	}
	first := [][]byte{make([]byte, 1000), make([]byte, 1000)}
	for i, ch := range chans {
		n, err := ch.Read(first[i])
		if first[i] = first[i][:n]; err != nil {
			t.Fatal(err)
		}
	}
	within(t, "the wait for a cut", func() { <-cuts })
	bad := 0
	if chans[1].isCut() {
		bad = 1
	}
	if n, err := chans[bad].Read(make([]byte, 10)); !errors.Is(err, budget.ErrOver) || n != 0 {
		t.Errorf("the one that was cut: %d, %v", n, err)
	}
	if used := shared.Stats().Used; used != PausedBytes {
		t.Errorf("%d bytes are reserved", used)
	}
	rest, err := io.ReadAll(chans[1-bad])
	if all := append(first[1-bad], rest...); !bytes.Equal(all, answer) || err != nil {
		t.Errorf("the other one: %d of %d bytes, or changed, %v", len(all), len(answer), err)
	}
	if s := shared.Stats(); s.Used != 0 || s.Refused != 1 {
		t.Errorf("%+v when nothing is paused", s)
	}
}

func (r *reads) isCut() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err == budget.ErrOver
}

// TestPauseReservesOnce: a second call of paused reserves nothing more, and Close returns the reservation.
func TestPauseReservesOnce(t *testing.T) {
	t.Parallel()
	shared := budget.New(64 << 20)
	own, peer := pair(t, Options{})
	ch, far := channel(t, own, peer, ChannelOptions{Budget: shared, Account: 1})
	go ssh.DiscardRequests(far.reqs)
	go func() { _, _ = far.Write(random(3<<20, 4)) }()
	eventually(t, 30*time.Second, "a reservation", func() bool { return shared.Stats().Used == PausedBytes })
	ch.paused()
	if s := shared.Stats(); s.Used != PausedBytes {
		t.Errorf("paused again: %+v", s)
	}
	_ = ch.Close()
	if s := shared.Stats(); s.Used != 0 || s.Accounts != 0 {
		t.Errorf("closed: %+v", s)
	}
}

// TestPausesKeepTheBytes: bytes that were read ahead during a pause arrive in order and before EOF. A pause in
// which no byte arrives reserves nothing in the budget, and after the end of the channel nothing stays reserved.
func TestPausesKeepTheBytes(t *testing.T) {
	t.Parallel()
	shared := budget.New(64 << 20)
	own, peer := pair(t, Options{})
	ch, far := channel(t, own, peer, ChannelOptions{Budget: shared, Account: 1})
	go ssh.DiscardRequests(far.reqs)
	answer, next := random(30_000, 5), make(chan int)
	go func() {
		sent := 0
		for n := range next {
			_, _ = far.Write(answer[sent : sent+n])
			sent += n
		}
		_ = far.CloseWrite()
	}()
	ahead := func() bool {
		ch.reads.mu.Lock()
		defer ch.reads.mu.Unlock()
		return ch.reading && ch.ahead
	}
	var all []byte
	take := func() error {
		buf := make([]byte, 700)
		n, err := ch.Read(buf)
		all = append(all, buf[:n]...)
		return err
	}
	eventually(t, 30*time.Second, "a read ahead", ahead)
	if used := shared.Stats().Used; used != 0 {
		t.Errorf("%d bytes reserved for a peer that sends nothing", used)
	}
	// The read that runs ahead takes these bytes.
	next <- 10_000
	eventually(t, 30*time.Second, "a reservation", func() bool { return shared.Stats().Used > 0 })
	for len(all) < 10_000 {
		if err := take(); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, 30*time.Second, "a second read ahead", ahead)
	taken := make(chan error, 1)
	// This Read waits for the read that still runs ahead.
	go func() { taken <- take() }()
	next <- 20_000
	if err := <-taken; err != nil {
		t.Fatal(err)
	}
	close(next)
	eventually(t, 30*time.Second, "a pause with bytes", func() bool { return shared.Stats().Used > 0 })
	var err error
	for err == nil {
		err = take()
	}
	if err != io.EOF || !bytes.Equal(all, answer) {
		t.Errorf("%d of %d bytes, or changed, %v", len(all), len(answer), err)
	}
	if used := shared.Stats().Used; used != 0 {
		t.Errorf("%d bytes are left reserved", used)
	}
}

// TestWatchedChannelReservesNothing: a channel that is watched with Ready reserves nothing before a byte
// arrives, and PausedBytes from then until the byte is read.
func TestWatchedChannelReservesNothing(t *testing.T) {
	t.Parallel()
	shared := budget.New(64 << 20)
	own, peer := pair(t, Options{})
	ch, far := channel(t, own, peer, ChannelOptions{Budget: shared, Account: 1})
	go ssh.DiscardRequests(far.reqs)
	ready := ch.Ready()
	ch.paused()
	if used := shared.Stats().Used; used != 0 {
		t.Errorf("%d bytes reserved for a peer that sends nothing", used)
	}
	_, _ = far.Write([]byte("x"))
	within(t, "the wait for a byte", func() { <-ready })
	eventually(t, 30*time.Second, "a reservation", func() bool { return shared.Stats().Used == PausedBytes })
	read(t, ch, "x")
	if used := shared.Stats().Used; used != 0 {
		t.Errorf("%d bytes are left reserved", used)
	}
}
