package link

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"reflect"
	"testing"
	"unsafe"

	"golang.org/x/crypto/ssh"

	"relay"
)

// TestHandshakeEndsWithItsContext: a silent server does not block the caller.
func TestHandshakeEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ours, theirs := net.Pipe()
	defer theirs.Close()
	met := make(chan struct{})
	go func() {
		_, _ = theirs.Read(make([]byte, 1)) // the first byte of the version
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
		if err := c.Connect(ctx, "", &ssh.ClientConfig{HostKeyCallback: ssh.InsecureIgnoreHostKey()}, Handlers{}); !errors.Is(err, context.Canceled) { // the other end is closed
			t.Error(err)
		}
	})
	within(t, "the connection", func() { <-c.Done() })
}

// TestClient: a client handles the channels and requests that the server begins, including requests
// that arrive together with the end. A direct channel works without deadlines.
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

// TestPacketsBehindTheEnd: packets that follow one which ends the mux do not keep the goroutines of
// x/crypto, nor the bytes that these have read. The peer of this test also uses x/crypto, so the test
// sends the packets below the peer's mux.
func TestPacketsBehindTheEnd(t *testing.T) {
	t.Parallel()
	own, peer := pair(t, Options{})
	incoming := packetsOf(own.ssh)
	if incoming == nil {
		t.Fatal("x/crypto has changed: nothing is drained")
	}
	raw := packetsTo(peer)
	for range 100 {
		_ = raw.writePacket([]byte{200}) // a message number that is not assigned
	}
	within(t, "the connection", func() { <-own.Done() })
	within(t, "x/crypto", func() { _ = own.ssh.Wait() }) // returns after its last goroutine
}

// packets has the methods of the interface by which x/crypto reads and writes messages.
type packets interface { // the same methods as x/crypto's own interface
	Close() error
	readPacket() ([]byte, error)
	writePacket(p []byte) error
}

// packetsTo returns the part of x/crypto through which the peer writes messages.
func packetsTo(peer *ssh.Client) packets {
	field := reflect.ValueOf(peer.Conn).Elem().FieldByName("mux").Elem().FieldByName("conn")
	return *(*packets)(unsafe.Pointer(field.UnsafeAddr()))
}
