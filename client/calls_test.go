package client

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"relay/link"
)

// unanswered is a fake SSH connection that never answers a request.
type unanswered struct {
	ssh.Conn
	once    sync.Once
	entered chan struct{}
	over    chan struct{}
}

func (u *unanswered) SendRequest(string, bool, []byte) (bool, []byte, error) {
	u.once.Do(func() { close(u.entered) })
	<-u.over
	return false, nil, io.EOF
}

// TestKeepaliveEndsWithoutAnswer: keepalive and the connection end although a ping is never answered.
func TestKeepaliveEndsWithoutAnswer(t *testing.T) {
	u := &unanswered{entered: make(chan struct{}), over: make(chan struct{})}
	defer close(u.over)
	ours, theirs := net.Pipe()
	defer theirs.Close()
	c := newConn(ours, "relay.test:2222")
	c.Use(u)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.keepalive(ctx)
	}()
	<-u.entered
	cancel()
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Error("keepalive waits for the ping")
	}
	c.Close(link.Unneeded)
	<-c.Done()
}
