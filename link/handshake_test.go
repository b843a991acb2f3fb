package link

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"net"
	"reflect"
	"testing"
	"unsafe"

	"golang.org/x/crypto/ssh"

	"relay"
)

// TestHandshakeEndsWithItsContext: Connect to a silent server returns when its context is canceled, and the
// connection ends.
func TestHandshakeEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ours, theirs := net.Pipe()
	defer theirs.Close()
	met := make(chan struct{})
	go func() {
		// This waits for the first byte of the client's version line.
		_, _ = theirs.Read(make([]byte, 1))
		close(met)
		_, _ = io.Copy(io.Discard, theirs)
	}()
	workers := NewWorkers()
	defer workers.Close()
	c := New(ours, Options{Workers: workers})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-met
		cancel()
	}()
	within(t, "the handshake", func() {
		// The server shows no host key, so there is none to check.
		if err := c.Connect(ctx, "", &ssh.ClientConfig{HostKeyCallback: ssh.InsecureIgnoreHostKey()}, Handlers{}); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	within(t, "the connection", func() { <-c.Done() })
	if cause := c.Cause(); cause != GivenUp {
		t.Errorf("ended by %q", cause)
	}
}

// TestRequestBeforeChannel: a global request that the peer sends before it opens a channel reaches its handler before
// the channel does, although x/crypto passes them on by two Go channels.
func TestRequestBeforeChannel(t *testing.T) {
	t.Parallel()
	workers := NewWorkers()
	defer workers.Close()
	for range 200 { // serve selects at random between what is ready
		ours, theirs := net.Pipe()
		defer theirs.Close()
		c := New(ours, Options{Workers: workers, Log: slog.New(slog.DiscardHandler)})
		var order string
		handlers := Handlers{Request: func(*Request) { order += "r" }, Channel: func(*Offer) { order += "c" }}
		channels, requests := make(chan ssh.NewChannel, 1), make(chan *ssh.Request, 1)
		requests <- &ssh.Request{Type: "x"}
		channels <- nil // the handler does not use it
		over, taken := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(over)
			c.serve(handlers, channels, requests)
		}()
		c.barriers <- taken
		within(t, "the barrier", func() { <-taken })
		close(channels)
		close(requests)
		within(t, "serve", func() { <-over })
		if order != "rc" {
			t.Fatalf("the handlers were called in the order %q", order)
		}
	}
}

// TestClient: a client gets the channels and all requests of the server, including those just before the end of the
// connection. Later calls return ErrLost.
func TestClient(t *testing.T) {
	t.Parallel()
	ours, theirs := net.Pipe()
	_, key, _ := ed25519.GenerateKey(rand.Reader)
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	config := &ssh.ServerConfig{NoClientAuth: true}
	config.AddHostKey(signer)
	served := make(chan *ssh.ServerConn, 1)
	go func() {
		server, channels, requests, err := ssh.NewServerConn(theirs, config)
		if err != nil {
			t.Error(err)
			return
		}
		go ssh.DiscardRequests(requests)
		go func() {
			for open := range channels {
				_ = open.Reject(ssh.Prohibited, "no")
			}
		}()
		served <- server
	}()
	workers := NewWorkers()
	defer workers.Close()
	told, last, ends := make(chan string, 100), make(chan struct{}), make(chan relay.ConnEnd, 1)
	c := New(ours, Options{Workers: workers})
	handlers := Handlers{
		Request: func(r *Request) {
			told <- r.Type
			_ = r.Reply(r.Type == "a", nil)
		},
		Ended: func() { close(last) },
		Channel: func(o *Offer) {
			c.Go("echo", func() {
				ch, err := o.Accept(ChannelOptions{Direct: true})
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(ch, ch)
				_ = ch.CloseWrite()
				ends <- ch.End(0)
				<-ch.Ended()
			})
		},
	}
	if err := c.Connect(t.Context(), "", &ssh.ClientConfig{HostKeyCallback: ssh.FixedHostKey(signer.PublicKey())}, handlers); err != nil {
		t.Fatal(err)
	}
	server := <-served
	if ok, _, err := server.SendRequest("a", true, nil); !ok || err != nil {
		t.Error(ok, err)
	}
	ch, reqs, err := server.OpenChannel("x", nil)
	if err != nil {
		t.Fatal(err)
	}
	go ssh.DiscardRequests(reqs)
	_, _ = ch.Write([]byte("hello"))
	_ = ch.CloseWrite()
	if got, err := io.ReadAll(ch); string(got) != "hello" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if end := <-ends; end.How != relay.ConnEOF {
		t.Errorf("%+v", end)
	}
	_ = ch.Close()
	var refused *RefusedError
	if _, err := c.OpenChannel(t.Context(), "x", nil, ChannelOptions{}); !errors.As(err, &refused) || refused.Reason != Prohibited || refused.Text != "no" {
		t.Errorf("an open that is refused: %v", err)
	}
	for range 10 {
		_, _, _ = server.SendRequest("notice", false, nil)
	}
	_ = server.Close()
	within(t, "the requests", func() { <-last })
	if n := len(told); n != 11 {
		t.Errorf("%d requests were taken", n)
	}
	within(t, "the connection", func() { <-c.Done() })
	if _, _, err := c.SendRequest(t.Context(), "x", true, nil); err != ErrLost {
		t.Errorf("a request after the end: %v", err)
	}
	if _, err := c.OpenChannel(t.Context(), "x", nil, ChannelOptions{}); err != ErrLost {
		t.Errorf("an open after the end: %v", err)
	}
}

// TestPacketsBehindTheEnd: if a peer sends 100 invalid packets, the connection ends, and so do the goroutines of
// x/crypto. The test writes the packets without the mux of x/crypto, which sends only valid ones.
func TestPacketsBehindTheEnd(t *testing.T) {
	t.Parallel()
	own, peer := pair(t, Options{})
	incoming := packetsOf(own.ssh)
	if incoming == nil {
		t.Fatal("x/crypto has changed: nothing is drained")
	}
	raw := packetsTo(peer)
	for range 100 {
		// This message number is not assigned.
		_ = raw.writePacket([]byte{200})
	}
	within(t, "the connection", func() { <-own.Done() })
	if cause := own.Cause(); cause != Disconnected {
		t.Errorf("ended by %q", cause)
	}
	// Wait returns when the last goroutine of x/crypto has ended.
	within(t, "x/crypto", func() { _ = own.ssh.Wait() })
}

// packets has the methods of the interface by which x/crypto reads and writes messages.
type packets interface {
	Close() error
	readPacket() ([]byte, error)
	writePacket(p []byte) error
}

// packetsTo returns the interface through which x/crypto writes the messages of peer.
func packetsTo(peer *ssh.Client) packets {
	field := reflect.ValueOf(peer.Conn).Elem().FieldByName("mux").Elem().FieldByName("conn")
	return *(*packets)(unsafe.Pointer(field.UnsafeAddr()))
}
