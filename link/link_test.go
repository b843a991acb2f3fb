package link

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/relaytest"
)

// pair returns both ends of a connection over loopback. own is the server, a Conn of this package; peer is a
// client that uses only x/crypto.
func pair(t testing.TB, o Options) (own *Conn, peer *ssh.Client) {
	t.Helper()
	return pairWith(t, o, Handlers{})
}

// pairWith is like pair, with handlers for the channels and requests of the peer.
func pairWith(t testing.TB, o Options, h Handlers) (own *Conn, peer *ssh.Client) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	theirs, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	ours, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_, key, _ := ed25519.GenerateKey(rand.Reader)
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	config := &ssh.ServerConfig{NoClientAuth: true}
	config.AddHostKey(signer)
	if o.Workers == nil {
		o.Workers = NewWorkers()
		t.Cleanup(o.Workers.Close)
	}
	o.Log = slog.New(slog.DiscardHandler)
	own = New(ours, o)
	t.Cleanup(func() {
		own.Close(Unneeded)
		<-own.Done()
	})
	met := make(chan error, 1)
	go func() { met <- own.Accept(t.Context(), config, h) }()
	// The test uses loopback and its own key, so any host key is accepted.
	conn, channels, requests, err := ssh.NewClientConn(theirs, "", &ssh.ClientConfig{HostKeyCallback: ssh.InsecureIgnoreHostKey()})
	if err == nil {
		err = <-met
	}
	if err != nil {
		t.Fatal(err)
	}
	peer = ssh.NewClient(conn, channels, requests)
	t.Cleanup(func() { _ = peer.Close() })
	return own, peer
}

// far is the peer's end of a channel.
type far struct {
	ssh.Channel
	reqs <-chan *ssh.Request
}

// channel opens a channel to the peer, and returns both ends.
func channel(t *testing.T, own *Conn, peer *ssh.Client, o ChannelOptions) (*Channel, far) {
	t.Helper()
	return opener(t, own, peer)(o)
}

// opener returns a function that opens a channel to the peer, and returns both ends.
func opener(t *testing.T, own *Conn, peer *ssh.Client) func(ChannelOptions) (*Channel, far) {
	t.Helper()
	offers := peer.HandleChannelOpen("x")
	return func(o ChannelOptions) (*Channel, far) {
		t.Helper()
		end := make(chan far, 1)
		go func() {
			ch, reqs, err := (<-offers).Accept()
			if err != nil {
				close(end)
				return
			}
			end <- far{ch, reqs}
		}()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		ch, err := own.OpenChannel(ctx, "x", nil, o)
		if err != nil {
			t.Fatal(err)
		}
		return ch, <-end
	}
}

// within fails the test if f takes longer than 30 s.
func within(t *testing.T, what string, f func()) {
	t.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f()
	}()
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Fatalf("%s does not end", what)
	}
}

// eventually waits until the function holds returns true, and fails the test after the duration limit.
func eventually(t *testing.T, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

func read(t *testing.T, c relay.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Fatalf("read %q, %v; want %q", got, err, want)
	}
}

// TestReadDeadline: a read ends at its deadline, even at one that is set while it waits. The next read gets
// the bytes that have arrived in the meantime.
func TestReadDeadline(t *testing.T) {
	t.Parallel()
	own, peer := pair(t, Options{})
	ch, far := channel(t, own, peer, ChannelOptions{})
	go ssh.DiscardRequests(far.reqs)
	_ = ch.SetReadDeadline(time.Now().Add(time.Millisecond))
	within(t, "a read", func() {
		if n, err := ch.Read(make([]byte, 8)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%d, %v", n, err)
		}
	})
	_ = ch.SetReadDeadline(time.Time{})
	failed := make(chan error, 1)
	go func() {
		_, err := ch.Read(make([]byte, 8))
		failed <- err
	}()
	eventually(t, 30*time.Second, "the read waits", func() bool {
		ch.reads.mu.Lock()
		defer ch.reads.mu.Unlock()
		return ch.waiting
	})
	_ = ch.SetReadDeadline(time.Unix(1, 0))
	within(t, "a read that waits", func() {
		if err := <-failed; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
	})
	_, _ = far.Write([]byte("hello"))
	if n, err := ch.Read(make([]byte, 8)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the deadline: %d, %v", n, err)
	}
	_ = ch.SetReadDeadline(time.Time{})
	read(t, ch, "he")
	read(t, ch, "llo")
	_ = far.CloseWrite()
	for range 2 {
		if n, err := ch.Read(make([]byte, 8)); n != 0 || err != io.EOF {
			t.Errorf("%d, %v", n, err)
		}
	}
}

// TestReady: the channel that Ready returns can be received from when there are unread bytes, after the peer has
// ended its side, and after Close, but not before. This is also true of each further call of Ready.
func TestReady(t *testing.T) {
	t.Parallel()
	own, peer := pair(t, Options{})
	open := opener(t, own, peer)
	ch, far := open(ChannelOptions{})
	go ssh.DiscardRequests(far.reqs)
	first := ch.Ready()
	select {
	case <-first:
		t.Error("ready without a byte")
	case <-ch.Ready():
		t.Error("ready without a byte")
	default:
	}
	_, _ = far.Write([]byte("hello"))
	within(t, "the wait for bytes", func() { <-first })
	within(t, "the wait for bytes that have come", func() { <-ch.Ready() })
	read(t, ch, "hello")
	select {
	case <-ch.Ready():
		t.Error("ready although all was taken")
	default:
	}
	_ = far.CloseWrite()
	within(t, "the wait for the end", func() { <-ch.Ready() })
	within(t, "the wait for the end", func() { <-ch.Ready() })
	other, _ := open(ChannelOptions{})
	waiting := other.Ready()
	_ = other.Close()
	within(t, "the wait for Close", func() { <-waiting })
	within(t, "the wait after Close", func() { <-other.Ready() })
	if _, err := other.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("read of a closed channel: %v", err)
	}
}

// TestWriteDeadline: a write to a peer that opens no window ends at its deadline. It reports the bytes
// that x/crypto has taken, which are sent in order once the peer reads.
func TestWriteDeadline(t *testing.T) {
	t.Parallel()
	own, peer := pair(t, Options{})
	ch, far := channel(t, own, peer, ChannelOptions{})
	go ssh.DiscardRequests(far.reqs)
	// This is larger than the window.
	all := make([]byte, 3<<20)
	for i := range all {
		all[i] = byte(i * 7 >> 3)
	}
	sent := 0
	// The loop ends when x/crypto takes no byte of a write. The first write may take none if the process pauses.
	for n := 1; n > 0 || sent == 0 || !ch.Writing(); sent += n {
		_ = ch.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
		within(t, "a write", func() {
			var err error
			if n, err = ch.Write(bytes.Clone(all[sent:])); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%d, %v", n, err)
			}
		})
	}
	if sent == 0 || sent == len(all) {
		t.Errorf("%d bytes were handed over to a peer that reads nothing", sent)
	}
	_ = ch.SetWriteDeadline(time.Time{})
	got := make([]byte, len(all))
	done := make(chan error, 1)
	go func() {
		_, err := io.ReadFull(far, got)
		done <- err
	}()
	if n, err := ch.Write(all[sent:]); err != nil || n != len(all)-sent {
		t.Errorf("the rest: %d, %v", n, err)
	}
	within(t, "the peer", func() {
		if err := <-done; err != nil || string(got) != string(all) {
			t.Errorf("%v, or the bytes are not those that were written", err)
		}
	})
}

// TestCloseDuringCalls: Close ends a read, a write and a CloseWrite that wait for the peer, with
// net.ErrClosed.
func TestCloseDuringCalls(t *testing.T) {
	t.Parallel()
	own, peer := pair(t, Options{})
	ch, far := channel(t, own, peer, ChannelOptions{})
	go ssh.DiscardRequests(far.reqs)
	readErr, writeErr, halfErr := make(chan error, 1), make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := ch.Read(make([]byte, 1))
		readErr <- err
	}()
	go func() {
		n, err := ch.Write(make([]byte, 3<<20))
		if n == 0 {
			err = errors.New("a write of which x/crypto has much counts nothing")
		}
		writeErr <- err
	}()
	// This waits until the write has begun.
	if _, err := io.ReadFull(far, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	go func() { halfErr <- ch.CloseWrite() }()
	within(t, "Close", func() {
		_ = ch.Close()
		_ = ch.Close()
		for _, err := range []error{<-readErr, <-writeErr, <-halfErr} {
			if !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
		}
	})
	if n, err := ch.Write([]byte("x")); n != 0 || !errors.Is(err, net.ErrClosed) {
		t.Errorf("%d, %v", n, err)
	}
	if end := ch.End(time.Hour); end.How != relay.ConnOpen {
		t.Errorf("%+v", end)
	}
}

// TestEnds checks the error of Read and the result of End for each way in which a peer ends a channel.
func TestEnds(t *testing.T) {
	t.Parallel()
	refusal := relay.Errorf(relay.CodeLocalRefused, "nobody is there")
	says := func(ch *Channel, r *Request) {
		switch r.Type {
		case "broke-off":
			ch.Say(relay.ConnEnd{How: relay.ConnBrokeOff})
		case "refused":
			ch.Say(relay.ConnEnd{How: relay.ConnRefused, Refusal: refusal})
		case "ended":
			ch.Say(relay.ConnEnd{How: relay.ConnEOF})
		}
	}
	for name, x := range map[string]struct {
		eof      EOFMeans
		explains bool
		peer     func(c *ssh.Client, ch far)
		err      error
		end      relay.ConnEnd
	}{
		"in order": {EOFUnlessLost, false, func(_ *ssh.Client, ch far) { _ = ch.CloseWrite() }, io.EOF, relay.ConnEnd{How: relay.ConnEOF}},
		"lost":     {EOFUnlessLost, false, func(c *ssh.Client, _ far) { _ = c.Close() }, ErrLost, relay.ConnEnd{How: relay.ConnLost}},
		"broke off": {EOFUnlessLost, true, func(_ *ssh.Client, ch far) {
			_, _ = ch.SendRequest("broke-off", true, nil)
			_ = ch.Close()
		}, io.ErrUnexpectedEOF, relay.ConnEnd{How: relay.ConnBrokeOff}},
		"refused": {EOFUnlessLost, true, func(_ *ssh.Client, ch far) {
			_, _ = ch.SendRequest("refused", false, nil)
			_ = ch.Close()
		}, io.EOF, relay.ConnEnd{How: relay.ConnRefused, Refusal: refusal}},
		"refused after EOF": {EOFUnlessLost, true, func(_ *ssh.Client, ch far) {
			_ = ch.CloseWrite()
			_, _ = ch.SendRequest("refused", true, nil)
			_ = ch.Close()
		}, io.EOF, relay.ConnEnd{How: relay.ConnRefused, Refusal: refusal}},
		"told": {EOFLost, true, func(_ *ssh.Client, ch far) {
			_, _ = ch.SendRequest("ended", false, nil)
			_ = ch.CloseWrite()
		}, io.EOF, relay.ConnEnd{How: relay.ConnEOF}},
		"told nothing": {EOFLost, true, func(_ *ssh.Client, ch far) { _ = ch.Close() }, ErrLost, relay.ConnEnd{How: relay.ConnLost}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			own, peer := pair(t, Options{})
			ch, far := channel(t, own, peer, ChannelOptions{EOF: x.eof, Explains: x.explains, Request: says})
			go ssh.DiscardRequests(far.reqs)
			go x.peer(peer, far)
			within(t, "a read", func() {
				if n, err := ch.Read(make([]byte, 1)); n != 0 || err != x.err {
					t.Errorf("%d, %v; want %v", n, err, x.err)
				}
			})
			if end := ch.End(30 * time.Second); end != x.end {
				t.Errorf("%+v, want %+v", end, x.end)
			}
		})
	}
}

// TestCloseAsksNothing: when a channel ends that this side has closed, nothing calls Channel.lost to find out whether
// the whole connection is ending, because nobody needs the answer.
func TestCloseAsksNothing(t *testing.T) {
	t.Parallel()
	own, peer := pair(t, Options{})
	closed := make(chan struct{})
	ch, far := channel(t, own, peer, ChannelOptions{EOF: EOFUnlessLost, Closed: func() { close(closed) }})
	go ssh.DiscardRequests(far.reqs)
	ch.lost = func() bool {
		t.Error("asked whether the connection is ending")
		return false
	}
	// This starts a read that waits, as on a kept channel.
	ch.Ready()
	_ = ch.Close()
	_ = far.Close()
	within(t, "the end", func() { <-closed })
}

// countedEnds is a channel that counts its reads that have returned an error.
type countedEnds struct {
	ssh.Channel
	ends atomic.Int64
}

func (c *countedEnds) Read(p []byte) (int, error) {
	n, err := c.Channel.Read(p)
	if err != nil {
		c.ends.Add(1)
	}
	return n, err
}

// TestCloseOfAWatchedChannelLeavesNoReader: if a channel is closed while a read waits for bytes, that read
// returns, and so does the read with which Close drops late bytes.
func TestCloseOfAWatchedChannelLeavesNoReader(t *testing.T) {
	t.Parallel()
	own, peer := pair(t, Options{})
	ch, far := channel(t, own, peer, ChannelOptions{})
	go func() {
		ssh.DiscardRequests(far.reqs)
		_ = far.Close()
	}()
	counted := &countedEnds{Channel: ch.ch.Channel}
	ch.ch.Channel = counted
	ch.Ready()
	eventually(t, 30*time.Second, "the read to wait", func() bool { return !ch.ch.reading.TryLock() || tooEarly(&ch.ch.reading) })
	_ = ch.Close()
	eventually(t, 30*time.Second, "both readers to learn the end", func() bool { return counted.ends.Load() == 2 })
}

func tooEarly(mu *sync.Mutex) bool {
	mu.Unlock()
	return false
}

// TestPanicOverRequest: a panic in a request of a channel ends the connection, and Closed is called for the
// channel.
func TestPanicOverRequest(t *testing.T) {
	t.Parallel()
	closed := make(chan struct{})
	own, peer := pairWith(t, Options{}, Handlers{Channel: func(o *Offer) {
		_, _ = o.Accept(ChannelOptions{Request: func(*Channel, *Request) { panic("request") }, Closed: func() { close(closed) }})
	}})
	ch, reqs, err := peer.OpenChannel("x", nil)
	if err != nil {
		t.Fatal(err)
	}
	go ssh.DiscardRequests(reqs)
	_, _ = ch.SendRequest("y", true, nil)
	within(t, "the connection", func() { <-own.Done() })
	within(t, "the channel", func() { <-closed })
}

// TestDrainOfAnIdleConnection: the drain of a connection without channels has ended at once, also if it began before.
func TestDrainOfAnIdleConnection(t *testing.T) {
	own, _ := pair(t, Options{})
	for range 2 {
		select {
		case <-own.Drain():
		case <-time.After(relaytest.Patience(time.Second)):
			t.Fatal("the drain waits although no channel is in use")
		}
	}
}
