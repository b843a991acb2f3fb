package client

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
)

// alive fails the test if the other side has closed the channel. It sends a request, which a closed channel does
// not answer.
func alive(t *testing.T, ch ssh.Channel) {
	t.Helper()
	if _, err := ch.SendRequest("alive?", true, nil); err != nil {
		t.Errorf("the channel is closed: %v", err)
	}
}

func TestLocalServerIsDialedAtFirstByte(t *testing.T) {
	ln, target := newListener(t)
	conn, _ := online(t, target)
	ch, requests, err := conn.channel("stripe-dev")
	if err != nil {
		t.Fatal(err)
	}
	go ssh.DiscardRequests(requests)
	alive(t, ch)
	_ = ln.(*net.TCPListener).SetDeadline(time.Now().Add(50 * time.Millisecond))
	if c, err := ln.Accept(); err == nil {
		c.Close()
		t.Fatal("dialed before a byte came")
	}
	_ = ln.(*net.TCPListener).SetDeadline(time.Now().Add(testTimeout))
	if _, err := ch.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	c, err := ln.Accept()
	if err != nil {
		t.Fatal("not dialed at the first byte:", err)
	}
	defer c.Close()
	b := make([]byte, 8)
	if n, err := c.Read(b); string(b[:n]) != "x" {
		t.Fatalf("local server got %q, %v", b[:n], err)
	}
	ch.Close()
	if _, err := c.Read(b); err != io.EOF {
		t.Fatalf("after CLOSE the local server got %v, want EOF", err)
	}
}

func TestRefusedDialIsToldBeforeClose(t *testing.T) {
	_, target := refusingAddr(t)
	conn, _ := online(t, target)
	ch, requests, err := conn.channel("stripe-dev")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ch.Write([]byte("GET / HTTP/1.1\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	r := got(t, "dial-failed", requests)
	var failed relay.DialFailed
	if err := ssh.Unmarshal(r.Payload, &failed); r.Type != relay.DialFailedRequest || r.WantReply || err != nil {
		t.Fatalf("request %s, want reply %v, %v", r.Type, r.WantReply, err)
	}
	if failed.Reason != 2 || failed.Class != "refused" || failed.Text == "" {
		t.Errorf("said %+v", failed)
	}
	if _, more := <-requests; more {
		t.Error("more than one request")
	}
	if n, err := ch.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("read %d, %v", n, err)
	}
	// The connection stays usable.
	ch2, _, err := conn.channel("stripe-dev")
	if err != nil {
		t.Fatal(err)
	}
	ch2.Close()
}

func TestTenMiBBothWays(t *testing.T) {
	ln, target := newListener(t)
	conn, _ := online(t, target)
	const size = 10 << 20
	down, up := make([]byte, size), make([]byte, size)
	_, _ = rand.Read(down)
	_, _ = rand.Read(up)
	atLocal := make(chan [32]byte, 1)
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		written := make(chan struct{})
		go func() {
			defer close(written)
			_, _ = c.Write(up)
			_ = c.(*net.TCPConn).CloseWrite()
		}()
		h := sha256.New()
		_, _ = io.Copy(h, c)
		atLocal <- [32]byte(h.Sum(nil))
		<-written
		c.Close()
	}()
	ch, requests, err := conn.channel("stripe-dev")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = ch.Write(down)
		_ = ch.CloseWrite()
	}()
	back, err := io.ReadAll(ch)
	if err != nil || !bytes.Equal(back, up) {
		t.Errorf("got %d bytes from the local server, %v", len(back), err)
	}
	if sum := got(t, "hash", atLocal); sum != sha256.Sum256(down) {
		t.Error("the local server got something else")
	}
	// Both directions have ended in order, so the client closes the channel.
	for r := range requests {
		t.Errorf("request %s", r.Type)
	}
}

func TestOrderlyEndIsEOFAtOnceAndChannelStays(t *testing.T) {
	ln, target := newListener(t)
	conn, _ := online(t, target)
	ch, requests, err := conn.channel("stripe-dev")
	if err != nil {
		t.Fatal(err)
	}
	go ssh.DiscardRequests(requests)
	_, _ = ch.Write([]byte("ask"))
	c, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_, _ = c.Write([]byte("answer"))
	_ = c.(*net.TCPConn).CloseWrite()
	if text, err := io.ReadAll(ch); string(text) != "answer" || err != nil {
		t.Errorf("read %q, %v", text, err)
	}
	alive(t, ch)
	// The direction to the local server still works.
	_, _ = ch.Write([]byte(" more"))
	_ = ch.CloseWrite()
	if text, err := io.ReadAll(c); string(text) != "ask more" || err != nil {
		t.Errorf("local server read %q, %v", text, err)
	}
	c.Close()
}

// TestEndWithoutAnAnswerIsClosedAtOnce: when the local server closes the connection without an answer, the
// client closes the channel at once. Otherwise the relay would wait a second for a report about a failed
// dial.
func TestEndWithoutAnAnswerIsClosedAtOnce(t *testing.T) {
	ln, target := newListener(t)
	conn, _ := online(t, target)
	ch, requests, err := conn.channel("stripe-dev")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = ch.Write([]byte("ask"))
	c, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.ReadFull(c, make([]byte, 3))
	c.Close()
	select {
	case r, more := <-requests:
		if more {
			t.Errorf("request %s", r.Type)
		}
	case <-time.After(testTimeout):
		t.Error("no CLOSE")
	}
}

// TestResetIsNoCleanEnd: a reset is reported before CLOSE, and CLOSE waits for the reply to the report.
// Otherwise the relay could take the end for an orderly one.
func TestResetIsNoCleanEnd(t *testing.T) {
	ln, target := newListener(t)
	conn, _ := online(t, target)
	ch, requests, err := conn.channel("stripe-dev")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = ch.Write([]byte("ask"))
	c, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.ReadFull(c, make([]byte, 3))
	_, _ = io.WriteString(c, "answer")
	if _, err := io.ReadFull(ch, make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	_ = c.(*net.TCPConn).SetLinger(0)
	c.Close()
	r := got(t, "request", requests)
	if r.Type != relay.BrokeOffRequest || len(r.Payload) != 0 || !r.WantReply {
		t.Fatalf("request %s, want reply %v", r.Type, r.WantReply)
	}
	alive(t, ch) // the client must not close the channel before it has got the reply below
	_ = r.Reply(false, nil)
	// x/crypto closes the Go channel requests at the CLOSE of the client. This side has sent no CLOSE.
	select {
	case r, more := <-requests:
		if more {
			t.Errorf("request %s", r.Type)
		}
	case <-time.After(testTimeout):
		t.Error("EOF without CLOSE after a reset")
	}
	if _, err := ch.SendRequest("alive?", false, nil); err == nil {
		t.Error("the channel is still open")
	}
}

func TestEarlyAnswerOfServerThatReadsNoMore(t *testing.T) {
	ln, target := newListener(t)
	conn, _ := online(t, target)
	ch, requests, err := conn.channel("stripe-dev")
	if err != nil {
		t.Fatal(err)
	}
	go ssh.DiscardRequests(requests)
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		_, _ = io.ReadFull(c, make([]byte, 1))
		_, _ = c.Write([]byte("413"))
		_ = c.(*net.TCPConn).CloseRead()
		_ = c.(*net.TCPConn).CloseWrite()
		t.Cleanup(func() { c.Close() })
	}()
	// The request is far larger than all windows and socket buffers; sending it must not block.
	sent := make(chan error, 1)
	go func() {
		_, err := ch.Write(make([]byte, 32<<20))
		sent <- err
	}()
	if text, err := io.ReadAll(ch); string(text) != "413" || err != nil {
		t.Errorf("read %q, %v", text, err)
	}
	if err := got(t, "end of write", sent); err != nil {
		t.Log("the rest was refused, which is fine:", err)
	}
	ch.Close()
}

func TestChannel257IsRejected(t *testing.T) {
	_, target := newListener(t)
	conn, _ := online(t, target)
	var first ssh.Channel
	for i := range maxChannels {
		ch, requests, err := conn.channel("stripe-dev")
		if err != nil {
			t.Fatalf("channel %d: %v", i+1, err)
		}
		go ssh.DiscardRequests(requests)
		if first == nil {
			first = ch
		}
	}
	_, _, err := conn.channel("stripe-dev")
	refused, ok := err.(*ssh.OpenChannelError)
	if !ok || refused.Reason != ssh.ResourceShortage {
		t.Fatalf("channel 257: %v", err)
	}
	first.Close()
	for deadline := time.Now().Add(testTimeout); ; {
		ch, requests, err := conn.channel("stripe-dev")
		if err == nil {
			go ssh.DiscardRequests(requests)
			ch.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("no room after one was closed:", err)
		}
	}
}

func TestForeignChannelsAreRejected(t *testing.T) {
	_, target := newListener(t)
	conn, _ := online(t, target)
	_, _, err := conn.channel("other")
	if refused, ok := err.(*ssh.OpenChannelError); !ok || refused.Reason != ssh.Prohibited {
		t.Errorf("a bind we never asked for: %v", err)
	}
	_, _, err = conn.OpenChannel("session", nil)
	if refused, ok := err.(*ssh.OpenChannelError); !ok || refused.Reason != ssh.UnknownChannelType {
		t.Errorf("a session towards us: %v", err)
	}
	_, _, err = conn.OpenChannel("forwarded-tcpip", []byte{0, 0})
	if refused, ok := err.(*ssh.OpenChannelError); !ok || refused.Reason != ssh.ConnectionFailed {
		t.Errorf("a malformed open: %v", err)
	}
}
