package sshgate

import (
	"bytes"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// countedListener counts the bytes read from its connections.
type countedListener struct {
	net.Listener
	read *atomic.Int64
}

func (l countedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return countedConn{c, l.read}, nil
}

type countedConn struct {
	net.Conn
	read *atomic.Int64
}

func (c countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.read.Add(int64(n))
	return n, err
}

// ignoredPacket returns an SSH_MSG_IGNORE packet as it is sent before the key exchange: without encryption (RFC 4253,
// sections 6 and 11.2).
func ignoredPacket() []byte {
	payload := ssh.Marshal(struct {
		Data []byte `sshtype:"2"`
	}{make([]byte, 1014)})
	return ssh.Marshal(struct {
		Length  uint32
		Padding byte
		Rest    []byte `ssh:"rest"`
	}{uint32(1 + len(payload) + 4), 4, append(payload, make([]byte, 4)...)})
}

// TestFloodBeforeLoginIsBounded: the number of SSH_MSG_IGNORE messages before a login is limited. A client that
// sends only such messages never logs in, but does not count as silent either. Without the limit, the server would
// evict other logins in its place.
func TestFloodBeforeLoginIsBounded(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var read atomic.Int64
	b := newFixtureOn(t, countedListener{ln, &read}, func(o *Options) { o.HandshakeTimeout = time.Hour })
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, c)
	}()
	_, err = io.WriteString(c, "SSH-2.0-x\r\n")
	for packets := bytes.Repeat(ignoredPacket(), 16); err == nil; {
		if read.Load() > 1<<20 {
			t.Fatalf("%d bytes were read before the login", read.Load())
		}
		_, err = c.Write(packets)
	}
	<-ended
	eventually(t, 30*time.Second, "refused", func() bool { return b.srv.Stats().Refused == 1 })
	if n := read.Load(); n > 320<<10 {
		t.Errorf("%d bytes were read before the login", n)
	}
}
