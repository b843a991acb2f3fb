package node

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/link"
)

// one is a store with one other node.
type one struct{ other relay.Node }

func (one) NodeID() string               { return "this" }
func (o one) Peers() []relay.Node        { return []relay.Node{o.other} }
func (one) RefreshPeers(context.Context) {}

// TestHeaderIsAGuess: after a node has closed a connection without an answer, the next dial begins with a
// PROXY header. After a dial that was answered, the next dial begins without a header.
func TestHeaderIsAGuess(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, key, _ := ed25519.GenerateKey(rand.Reader)
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	begins := make(chan string, 10)
	go func() {
		for n := 0; ; n++ {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			line, _ := bufio.NewReader(c).ReadString('\n')
			begins <- line
			if n > 0 {
				_, _ = io.WriteString(c, "SSH-2.0-x\r\n")
			}
			c.Close()
		}
	}()
	workers := link.NewWorkers()
	defer workers.Close()
	links := New(Options{
		Nodes: one{relay.Node{ID: "other", PeerAddr: ln.Addr().String(), PeerKey: string(ssh.MarshalAuthorizedKey(signer.PublicKey()))}},
		Key:   signer, Reachable: func(string, bool) {}, Workers: workers, Log: slog.New(slog.DiscardHandler),
	})
	links.Start()
	ctx, cancel := context.WithCancel(context.Background())
	defer links.Stop(ctx)
	defer cancel()
	for n, want := range []string{ClientVersion, "PROXY UNKNOWN", ClientVersion} {
		select {
		case line := <-begins:
			if strings.TrimSpace(line) != want {
				t.Errorf("connection %d begins with %q, want %q", n, line, want)
			}
		case <-time.After(30 * time.Second):
			t.Fatal("the node is not dialed")
		}
	}
}
