package sshgate

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/link"
	"relay/relaytest"
)

// TestCauses ends connections, each with one tunnel, in several ways, and checks the recorded cause and the line in the
// log.
func TestCauses(t *testing.T) {
	levels := map[link.Cause]slog.Level{ // of the log line; info for the other causes
		link.Flooded: slog.LevelWarn,
		link.Idle:    slog.LevelDebug, // the tunnel was canceled before
		link.Moved:   slog.LevelDebug,
		link.Stopped: slog.LevelDebug,
	}
	for cause, end := range map[link.Cause]func(b *timed, client *ssh.Client, toServer *direction, c *conn){
		link.PeerClosed: func(_ *timed, client *ssh.Client, _ *direction, _ *conn) { _ = client.Close() },
		link.Disconnected: func(_ *timed, client *ssh.Client, _ *direction, _ *conn) {
			_ = rawPackets(client).writePacket(message(1, 11, "disconnected by user", ""))
		},
		link.Silent: func(_ *timed, _ *ssh.Client, toServer *direction, _ *conn) { toServer.hold() },
		link.Idle: func(b *timed, client *ssh.Client, _ *direction, _ *conn) {
			if ok, _, err := client.SendRequest("cancel-tcpip-forward", true, ssh.Marshal(forwardRequest{"a", 80})); !ok || err != nil {
				b.t.Errorf("cancel: %v, %v", ok, err)
			}
		},
		link.Flooded: func(_ *timed, _ *ssh.Client, _ *direction, c *conn) {
			for range maxQueuedRequests + 1 {
				c.post(func() { <-c.Context().Done() })
			}
		},
		link.Revoked: func(b *timed, _ *ssh.Client, _ *direction, _ *conn) {
			b.store.mu.Lock()
			clear(b.store.keys)
			b.store.mu.Unlock()
			b.srv.Publish([]relay.Change{{Kind: relay.ChangeAccount}})
		},
		link.NoAlias: func(b *timed, _ *ssh.Client, _ *direction, _ *conn) {
			b.store.mu.Lock()
			delete(b.store.aliases, "a")
			b.store.mu.Unlock()
			b.srv.Publish([]relay.Change{{Kind: relay.ChangeAlias}})
		},
		link.TakenOver: func(b *timed, _ *ssh.Client, _ *direction, _ *conn) { b.tunnel("a") },
		link.Moved:     func(b *timed, _ *ssh.Client, _ *direction, _ *conn) { b.srv.Move(b.t.Context()) },
		link.Stopped: func(b *timed, _ *ssh.Client, _ *direction, _ *conn) {
			if err := b.srv.Shutdown(context.Background()); err != nil {
				b.t.Error(err)
			}
		},
		link.Panicked: func(_ *timed, _ *ssh.Client, _ *direction, c *conn) { c.Go("test", func() { panic("test") }) },
	} {
		inFakeTime(t, string(cause), func(t *testing.T, b *timed) {
			client, toServer := b.tunnel("a")
			synctest.Wait()
			c := b.srv.all()[0]
			if got := c.Cause(); got != "" {
				t.Errorf("%q before the end", got)
			}
			var log relaytest.Buffer
			c.SetLog(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
			end(b, client, toServer, c)
			<-c.Done()
			if got := c.Cause(); got != cause {
				t.Errorf("ended by %q", got)
			}
			line := fmt.Sprintf(`level=%s msg="ssh connection ended" cause=%s `, levels[cause], cause)
			if got := log.String(); strings.Count(got, "ssh connection ended") != 1 || !strings.Contains(got, line) ||
				cause != link.Idle && cause != link.NoAlias && !strings.Contains(got, " aliases=a ") {
				t.Errorf("the log has no line %s:\n%s", line, got)
			}
			time.Sleep(time.Second) // lets the calls into x/crypto end, because a synctest bubble must not have any left
		})
	}
}

// TestCauseOfAClientThatLeavesFirst: a client that is told of the end of its connection, and then closes it before the
// server does, does not hide the cause.
func TestCauseOfAClientThatLeavesFirst(t *testing.T) {
	inFakeTime(t, "taken over", func(t *testing.T, b *timed) {
		client, _ := b.tunnel("a")
		acceptAll(t, client)
		ch := open(t, b.online("a")) // a request that runs keeps the connection open for 10 s
		defer ch.Close()
		c := b.srv.all()[0]
		b.tunnel("a")
		time.Sleep(time.Second)
		if c.Context().Err() != nil {
			t.Fatal("the server has closed the connection")
		}
		_ = client.Close()
		<-c.Done()
		if got := c.Cause(); got != link.TakenOver {
			t.Errorf("ended by %q", got)
		}
		time.Sleep(time.Second)
	})
}

// TestCausesBeforeLogin ends connections that have not logged in, and checks the recorded cause.
func TestCausesBeforeLogin(t *testing.T) {
	sends := func(p []byte) func(*timed) {
		return func(b *timed) {
			_, toServer := b.listener.dial()
			toServer.set(func() { toServer.bytes.Write(append([]byte("SSH-2.0-x\r\n"), p...)) })
		}
	}
	for cause, dial := range map[link.Cause]func(b *timed){
		link.LoginTimeout: sends(nil),
		link.LoginFailed:  sends(disconnectPacket("bye")),
		link.LoginFlooded: sends(bytes.Repeat(ignoredPacket(), 300)),
		link.PeerClosed: func(b *timed) {
			_, toServer := b.listener.dial()
			toServer.close()
		},
		link.LoginUndecided: func(b *timed) {
			b.store.mu.Lock()
			b.store.down = true
			b.store.mu.Unlock()
			go func() {
				none := func(string, string, []string, []bool) ([]string, error) { return nil, nil }
				if _, _, err := b.login("relay", ssh.PublicKeys(b.alice.signer), ssh.KeyboardInteractive(none)); err == nil {
					b.t.Error("the login succeeded")
				}
			}()
		},
		link.Evicted: func(b *timed) {
			b.listener.dial()
			time.AfterFunc(time.Second, func() { b.srv.front.Shed(syscall.EMFILE) })
		},
	} {
		inFakeTime(t, string(cause), func(t *testing.T, b *timed) {
			dial(b)
			synctest.Wait()
			c := b.srv.all()[0]
			<-c.Done()
			if got := c.Cause(); got != cause {
				t.Errorf("ended by %q", got)
			}
			time.Sleep(time.Second)
		})
	}
}
