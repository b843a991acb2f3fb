package link

import (
	"errors"
	"io"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// unclosed is a channel of a peer that reads everything and never sends CLOSE.
type unclosed struct {
	ssh.Channel
}

func (unclosed) Read([]byte) (int, error)                       { return 0, io.EOF }
func (unclosed) Write(p []byte) (int, error)                    { return len(p), nil }
func (unclosed) Close() error                                   { return nil }
func (unclosed) CloseWrite() error                              { return nil }
func (unclosed) SendRequest(string, bool, []byte) (bool, error) { return false, nil }

// TestChannelsLeftOpen: if the peer has closed none of maxUnclosed+1 channels within unclosedTime, the next
// open ends the connection.
func TestChannelsLeftOpen(t *testing.T) {
	t.Parallel()
	own, peer := pair(t, Options{})
	reqs := make(chan *ssh.Request)
	defer close(reqs)
	for range maxUnclosed + 1 {
		_ = own.newChannel(unclosed{}, reqs, ChannelOptions{}, true).Close()
	}
	own.channels.change(func() { own.channels.closedAt = own.channels.closedAt.Add(-unclosedTime) })
	if _, err := own.OpenChannel(t.Context(), "x", nil, ChannelOptions{}); err != ErrLost {
		t.Errorf("an open: %v", err)
	}
	within(t, "the connection", func() { _ = peer.Wait() })
	if cause := own.Cause(); cause != UnclosedChannels {
		t.Errorf("ended by %q", cause)
	}
}

// TestCrowdThatEndsAtOnce: while the peer closes twice maxUnclosed channels one after another, opens are
// possible and the connection stays.
func TestCrowdThatEndsAtOnce(t *testing.T) {
	t.Parallel()
	own, peer := pair(t, Options{})
	var all []chan *ssh.Request
	for range 2 * maxUnclosed {
		reqs := make(chan *ssh.Request)
		all = append(all, reqs)
		_ = own.newChannel(unclosed{}, reqs, ChannelOptions{}, true).Close()
	}
	left := func() (n int) {
		own.channels.change(func() { n = own.channels.alive })
		return n
	}
	for i, reqs := range all {
		close(reqs)
		if i%100 == 0 {
			eventually(t, 30*time.Second, "it to be seen as closed", func() bool { return left() < len(all)-i })
			if err := own.reserveOpen(); err != nil {
				t.Errorf("an open while channels are closed: %v", err)
			}
		}
	}
	eventually(t, 30*time.Second, "all to be closed", func() bool { return left() == 0 })
	if err := own.reserveOpen(); err != nil {
		t.Errorf("an open: %v", err)
	}
	if _, _, err := peer.SendRequest("x", true, nil); err != nil {
		t.Errorf("the connection was given up: %v", err)
	}
}

// TestChannelsBeyondAll: with maxAlive channels, an open returns ErrUnclosed, and is not counted as unanswered
// afterwards.
func TestChannelsBeyondAll(t *testing.T) {
	t.Parallel()
	own, _ := pair(t, Options{})
	n := &own.channels
	n.change(func() { n.alive, n.closedAt = maxAlive, time.Now() })
	if _, err := own.OpenChannel(t.Context(), "x", nil, ChannelOptions{}); !errors.Is(err, ErrUnclosed) {
		t.Errorf("a channel beyond all: %v", err)
	}
	n.change(func() {
		if n.unanswered+n.opening != 0 {
			t.Errorf("%d opens are counted as under way", n.unanswered+n.opening)
		}
	})
}

// TestLeftCallsAreCounted: a goroutine that outlives its connection is counted by Left until it returns.
func TestLeftCallsAreCounted(t *testing.T) {
	t.Parallel()
	workers := NewWorkers()
	own, _ := pair(t, Options{Workers: workers})
	over := make(chan struct{})
	own.Go("test", func() { <-over })
	own.Close(Unneeded)
	<-own.Done()
	eventually(t, 30*time.Second, "one call is counted as left", func() bool { return workers.Left() == 1 })
	close(over)
	eventually(t, 30*time.Second, "the call has returned", func() bool { return workers.Left() == 0 })
}
