package sshgate

import (
	"net"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
)

// dialHearing logs in like relay up. The channel notices gets the notices of the relay, and is closed when the
// connection ends.
func (b *fixture) dialHearing(k key) (c *ssh.Client, notices <-chan relay.Notice) {
	b.t.Helper()
	raw, err := net.Dial("tcp", "127.0.0.1:"+b.port)
	if err != nil {
		b.t.Fatal(err)
	}
	conn, channels, requests, err := ssh.NewClientConn(raw, "relay", &ssh.ClientConfig{
		User: "relay", Auth: []ssh.AuthMethod{ssh.PublicKeys(k.signer)}, HostKeyCallback: ssh.InsecureIgnoreHostKey(),
	})
	if err != nil {
		b.t.Fatalf("login: %v", err)
	}
	others, heard := make(chan *ssh.Request), make(chan relay.Notice, 64)
	go func() {
		defer close(others)
		defer close(heard)
		for r := range requests {
			if r.Type != relay.NoticeRequest {
				others <- r
				continue
			}
			var n relay.Notice
			if err := ssh.Unmarshal(r.Payload, &n); err != nil || r.WantReply {
				b.t.Errorf("notice %q: %v", r.Payload, err)
			}
			heard <- n
		}
	}()
	c = ssh.NewClient(conn, channels, others)
	b.t.Cleanup(func() { c.Close() })
	if _, _, err := c.SendRequest(relay.HelloRequest, false, ssh.Marshal(relay.Hello{Protocol: 1, Version: "test"})); err != nil {
		b.t.Fatal(err)
	}
	return c, heard
}

// wantNotice receives the next notice and checks its kind and alias.
func wantNotice(t *testing.T, notices <-chan relay.Notice, kind, alias string) relay.Notice {
	t.Helper()
	n, ok := <-notices
	if !ok || n.Kind != kind || n.Alias != alias {
		t.Fatalf("notice %+v, want %s of %q", n, kind, alias)
	}
	return n
}

// TestNotices: relay up gets the changes of its forwards in order, and the reason of a refusal, for which SSH
// itself has no message.
func TestNotices(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	b.store.alias("a", 1)
	b.store.alias("foreign", 2)
	c, notices := b.dialHearing(b.alice)
	forwards(t, c, "a", 80)
	forwards(t, c, "foreign", 80)
	wantNotice(t, notices, relay.NoticeOnline, "a")
	if n := wantNotice(t, notices, relay.NoticeRefused, "foreign"); n.Code != relay.CodeNotFound || n.Message == "" {
		t.Errorf("refused %+v", n)
	}
	forwards(t, c, "late", 80)
	wantNotice(t, notices, relay.NoticeOnline, "late")
	_, _, _ = c.SendRequest("cancel-tcpip-forward", true, ssh.Marshal(forwardRequest{"late", 80}))
	wantNotice(t, notices, relay.NoticeOffline, "late")
	forwards(t, b.mustDial(b.alice), "a", 80)
	if n := wantNotice(t, notices, relay.NoticeSuperseded, "a"); n.Message != "taken over by a newer connection" {
		t.Errorf("superseded %+v", n)
	}
	if n, ok := <-notices; ok {
		t.Errorf("after the end: %+v", n)
	}
}

// TestNoticesOfSilence: a client that becomes silent and answers again gets a notice of each change.
func TestNoticesOfSilence(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	c, notices := b.dialHearing(b.alice)
	forwards(t, c, "a", 80)
	wantNotice(t, notices, relay.NoticeOnline, "a")
	silent := b.srv.all()[0]
	eventually(t, 30*time.Second, "it to be taken for silent", func() bool {
		silent.GoStale(silent.Sock.Heard()) // GoStale has no effect if a byte has just come
		return len(notices) > 0
	})
	wantNotice(t, notices, relay.NoticeStale, "a")
	wantNotice(t, notices, relay.NoticeOnline, "a") // the answer to the ping causes this notice
}

// TestNoticeOfStop: before a stopping relay closes a connection, its client gets a notice with the time after
// which it should connect again.
func TestNoticeOfStop(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	c, notices := b.dialHearing(b.alice)
	forwards(t, c, "a", 80)
	wantNotice(t, notices, relay.NoticeOnline, "a")
	go func() { _ = b.srv.Shutdown(t.Context()) }()
	if n := wantNotice(t, notices, relay.NoticeStopping, ""); n.RetryAfterMs != retryAfterMs {
		t.Errorf("stopping %+v", n)
	}
	if n, ok := <-notices; ok {
		t.Errorf("after the end: %+v", n)
	}
}
