package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/cli"
)

// memoryConn is one end of a connection in memory. Unlike net.Pipe it has a buffer, because both sides
// of SSH begin by writing.
type memoryConn struct {
	in, out *memoryHalf

	mu   sync.Mutex
	late *time.Timer // closes the connection at the deadline
}

type memoryHalf struct {
	mu     sync.Mutex
	cond   *sync.Cond
	data   []byte
	closed bool
	frozen bool // written bytes are lost, as with a peer that has vanished
}

func newMemory() (a, b *memoryConn) {
	one, two := &memoryHalf{}, &memoryHalf{}
	one.cond, two.cond = sync.NewCond(&one.mu), sync.NewCond(&two.mu)
	return &memoryConn{in: one, out: two}, &memoryConn{in: two, out: one}
}

func (m *memoryConn) Read(p []byte) (int, error) {
	h := m.in
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(h.data) == 0 && !h.closed {
		h.cond.Wait()
	}
	if len(h.data) == 0 {
		return 0, io.EOF
	}
	n := copy(p, h.data)
	h.data = h.data[n:]
	return n, nil
}

func (m *memoryConn) Write(p []byte) (int, error) {
	h := m.out
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return 0, io.ErrClosedPipe
	}
	if !h.frozen {
		h.data = append(h.data, p...)
		h.cond.Broadcast()
	}
	return len(p), nil
}

func (m *memoryConn) Close() error {
	for _, h := range []*memoryHalf{m.in, m.out} {
		h.mu.Lock()
		h.closed = true
		h.cond.Broadcast()
		h.mu.Unlock()
	}
	return nil
}

// freeze makes the peer unreachable.
func (m *memoryConn) freeze() {
	for _, h := range []*memoryHalf{m.in, m.out} {
		h.mu.Lock()
		h.frozen = true
		h.mu.Unlock()
	}
}

func (*memoryConn) LocalAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// SetDeadline closes the connection at the deadline. An SSH client sees no difference, because a failed read
// ends its connection.
func (m *memoryConn) SetDeadline(at time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.late != nil {
		m.late.Stop()
	}
	if m.late = nil; !at.IsZero() {
		m.late = time.AfterFunc(time.Until(at), func() { _ = m.Close() })
	}
	return nil
}

func (*memoryConn) RemoteAddr() net.Addr             { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }
func (*memoryConn) SetReadDeadline(time.Time) error  { return nil }
func (*memoryConn) SetWriteDeadline(time.Time) error { return nil }

// inMemory returns a dialer and a fake relay that are connected in memory. lines gets the dialer's end of each
// connection; up decides whether the fake relay can be reached.
func inMemory(t *testing.T) (d *fakeRelay, dialer *Dialer, lines chan *memoryConn, up *atomic.Bool) {
	d = newFakeRelay(t)
	dialer, _ = newDialer(t, "127.0.0.1:2222")
	lines, up = make(chan *memoryConn, 64), new(atomic.Bool)
	up.Store(true)
	dialer.connect = func(ctx context.Context, _ string) (net.Conn, error) {
		if !up.Load() {
			return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
		}
		near, far := newMemory()
		d.serve(far)
		lines <- near
		return near, nil
	}
	return d, dialer, lines, up
}

func TestLossesAreRetriedForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, dialer, lines, up := inMemory(t)
		run := startUp(t, dialer, Forward{Alias: "stripe-dev"})
		got(t, "ready", run.ready)
		up.Store(false)
		(<-lines).Close()
		begun := time.Now()
		for i := range 200 {
			next := <-run.lost
			if i == 0 && next != 0 || next > 15*time.Second {
				t.Fatalf("wait %d is %v", i, next)
			}
		}
		if lasted := time.Since(begun); lasted < 10*time.Minute {
			t.Errorf("200 tries within %v", lasted)
		}
		up.Store(true)
		if again := <-run.ready; !again {
			t.Error("not back")
		}
		if err := run.stop(t); err != nil {
			t.Error(err)
		}
		synctest.Wait()
	})
}

func TestStoppingRelayIsLeftAloneAsLongAsItAsks(t *testing.T) {
	for asked, want := range map[time.Duration]time.Duration{7 * time.Second: 7 * time.Second, time.Minute: time.Minute, time.Hour: time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			d, dialer, lines, _ := inMemory(t)
			d.notices = func(c *fakeConn) {
				c.notify(onlineNotice)
				c.notify(relay.Notice{Kind: relay.NoticeStopping, RetryAfterMs: uint32(asked.Milliseconds())})
			}
			run := startUp(t, dialer, Forward{Alias: "stripe-dev"})
			got(t, "ready", run.ready)
			for m := range run.messages {
				if m.Type == relay.NoticeStopping {
					break
				}
			}
			(<-lines).Close()
			if next := <-run.lost; next != want {
				t.Errorf("asked for %v, the next try is in %v", asked, next)
			}
			_ = run.stop(t)
			synctest.Wait()
		})
	}
}

// TestMovingRelayGetsTheNextConnectionFirst: when the node of a client drains, the client opens a second
// connection. The alias comes online on it while the first connection still serves. The relay closes the first
// connection, which does not count as a loss.
func TestMovingRelayGetsTheNextConnectionFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, dialer, lines, _ := inMemory(t)
		run := startUp(t, dialer, Forward{Alias: "stripe-dev"})
		got(t, "ready", run.ready)
		first, line := <-d.conns, <-lines
		first.notify(relay.Notice{Kind: relay.NoticeMoving, RetryAfterMs: 3000})
		begun := time.Now()
		second := <-d.conns
		if again := <-run.ready; !again || time.Since(begun) != 3*time.Second {
			t.Errorf("ready again: %v after %v", again, time.Since(begun))
		}
		for name, c := range map[string]*fakeConn{"first": first, "second": second} {
			ch, reqs, err := c.channel("stripe-dev")
			if err != nil {
				t.Fatalf("the %s connection: %v", name, err)
			}
			go ssh.DiscardRequests(reqs)
			_ = ch.Close()
		}
		_ = line.Close()
		synctest.Wait()
		select {
		case <-run.lost:
			t.Error("the end of the connection that was left counts as a loss")
		default:
		}
		if _, _, err := second.SendRequest("x", true, nil); err != nil {
			t.Errorf("the second connection: %v", err)
		}
		if err := run.stop(t); err != nil {
			t.Error(err)
		}
		synctest.Wait()
	})
}

// TestMoveLosesNoRequestOfTheLog: a request is still logged if it arrives between the notice of a move and
// its handling.
func TestMoveLosesNoRequestOfTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, dialer, lines, _ := inMemory(t)
		ended, streams := make(chan struct{}), 0
		d.api.HandleFunc("GET /api/v1/stream", func(w http.ResponseWriter, r *http.Request) {
			streams++
			_, _ = fmt.Fprintf(w, "id: s%d\n\n", streams)
			_ = http.NewResponseController(w).Flush()
			if streams == 1 {
				<-ended
				_, _ = io.WriteString(w, `id: s2
event: attempt
data: {"eventId":"evt_1","alias":"stripe-dev","event":{"id":"evt_1","alias":"stripe-dev"},"attempt":{"number":1,"kind":"original","state":"delivered"}}

`)
				_ = http.NewResponseController(w).Flush()
			}
			<-r.Context().Done()
		})
		run := startUp(t, dialer, Forward{Alias: "stripe-dev"})
		got(t, "ready", run.ready)
		first, line := <-d.conns, <-lines
		for len(run.messages) < cap(run.messages) { // fill the channel, so the notice is handled later
			run.messages <- &Message{}
		}
		first.notify(relay.Notice{Kind: relay.NoticeMoving})
		synctest.Wait()
		close(ended)
		synctest.Wait()
		for got(t, "the request", run.messages).Type != TypeRequest {
		}
		_ = line.Close()
		_ = run.stop(t)
		synctest.Wait()
	})
}

// TestLossOfANodeIsFollowedByARandomWait: after the loss of one of several nodes, its clients reconnect at
// random times within the period that the relay has named.
func TestLossOfANodeIsFollowedByARandomWait(t *testing.T) {
	waits := map[time.Duration]bool{}
	for range 5 {
		synctest.Test(t, func(t *testing.T) {
			d, dialer, lines, _ := inMemory(t)
			d.notices = func(c *fakeConn) {
				online := onlineNotice
				online.RetryAfterMs = 2000
				c.notify(online)
			}
			run := startUp(t, dialer, Forward{Alias: "stripe-dev"})
			got(t, "ready", run.ready)
			(<-lines).Close()
			next := <-run.lost
			if waits[next] = true; next < 0 || next >= 2*time.Second {
				t.Errorf("the next try is in %v", next)
			}
			if again := <-run.ready; !again {
				t.Error("not back")
			}
			_ = run.stop(t)
			synctest.Wait()
		})
	}
	if len(waits) < 2 {
		t.Errorf("all waits are %v", waits)
	}
}

// TestTimeOfAStopCounts: the time that a relay takes to stop counts as waiting. A relay that asks for one
// second and stops after ten is dialed at once.
func TestTimeOfAStopCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, dialer, lines, _ := inMemory(t)
		d.notices = func(c *fakeConn) {
			c.notify(onlineNotice)
			c.notify(relay.Notice{Kind: relay.NoticeStopping, RetryAfterMs: 1000})
		}
		run := startUp(t, dialer, Forward{Alias: "stripe-dev"})
		got(t, "ready", run.ready)
		time.Sleep(10 * time.Second)
		(<-lines).Close()
		if next := <-run.lost; next != 0 {
			t.Errorf("the next try is in %v", next)
		}
		_ = run.stop(t)
		synctest.Wait()
	})
}

// TestLossWithAnAliasThatWaits: one alias is online, and another is refused for a transient reason. After a
// loss the client keeps reconnecting, because the relay was reached once.
func TestLossWithAnAliasThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, dialer, lines, up := inMemory(t)
		d.notices = func(c *fakeConn) {
			c.notify(onlineNotice)
			c.notify(relay.Notice{Kind: relay.NoticeRefused, Alias: "github-dev", Code: relay.CodeOverloaded, Message: "later"})
		}
		run := startUp(t, dialer, Forward{Alias: "stripe-dev"}, Forward{Alias: "github-dev"})
		for m := range run.messages {
			if m.Type == relay.NoticeRefused {
				break
			}
		}
		up.Store(false)
		(<-lines).Close()
		for range 3 * firstTries {
			<-run.lost
		}
		_ = run.stop(t)
		synctest.Wait()
	})
}

func TestPassingRefusalIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, dialer, _, _ := inMemory(t)
		d.notices = func(c *fakeConn) {
			c.notify(relay.Notice{Kind: relay.NoticeRefused, Alias: "stripe-dev", Code: relay.CodeStoreUnavailable, Message: "later"})
			time.Sleep(forwardRetry + time.Second)
			if len(c.granted()) == 2 {
				c.notify(onlineNotice)
			}
		}
		run := startUp(t, dialer, Forward{Alias: "stripe-dev"})
		begun := time.Now()
		<-run.ready
		if after := time.Since(begun); after < forwardRetry {
			t.Errorf("ready after %v", after)
		}
		_ = run.stop(t)
		synctest.Wait()
	})
}

func TestSilentServerAtLoginIsUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, dialer, _, _ := inMemory(t)
		dialer.connect = func(context.Context, string) (net.Conn, error) { return nil, context.DeadlineExceeded }
		run := startUp(t, dialer, Forward{Alias: "stripe-dev"})
		<-run.done
		var e *cli.Error
		if !errors.As(run.err, &e) || e.Exit != cli.ExitUnreachable || e.Hint == "" {
			t.Errorf("%v", run.err)
		}
		synctest.Wait()
	})
}

// TestSilentRelayIsGivenUp: pings keep a quiet tunnel alive beyond every time limit of its login. The client
// closes the connection to a vanished relay within 11 s and reconnects at once.
func TestSilentRelayIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, dialer, lines, _ := inMemory(t)
		run := startUp(t, dialer, Forward{Alias: "stripe-dev"})
		<-run.ready
		time.Sleep(10 * time.Minute)
		if len(run.lost) > 0 {
			t.Fatal("lost while all was well")
		}
		(<-lines).freeze()
		begun := time.Now()
		<-run.ready
		if after := time.Since(begun); after < silentAfter*lookEvery-pingEvery || after > (silentAfter+1)*lookEvery {
			t.Errorf("back after %v", after)
		}
		if n := len(run.lost); n != 1 {
			t.Errorf("lost %d times", n)
		}
		_ = run.stop(t)
		synctest.Wait()
	})
}

func TestRefusedLoginEndsForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, dialer, lines, _ := inMemory(t)
		run := startUp(t, dialer, Forward{Alias: "stripe-dev"})
		<-run.ready
		d.config.PublicKeyCallback = func(ssh.ConnMetadata, ssh.PublicKey) (*ssh.Permissions, error) {
			return nil, errors.New("no")
		}
		(<-lines).Close()
		<-run.done
		if exitOfError(run.err) != cli.ExitRefused {
			t.Errorf("%v", run.err)
		}
		synctest.Wait()
	})
}

func TestRevokedLoginEndsForGood(t *testing.T) {
	d := newFakeRelay(t)
	d.notices = func(c *fakeConn) {
		c.notify(onlineNotice)
		c.notify(relay.Notice{Kind: relay.NoticeRevoked, Message: "this key was removed"})
	}
	dialer, _ := newDialer(t, d.listen())
	run := startUp(t, dialer, Forward{Alias: "stripe-dev"})
	if err := run.end(t); exitOfError(err) != cli.ExitRefused {
		t.Error(err)
	}
}

func TestChangedHostKeyEndsForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, dialer, lines, _ := inMemory(t)
		run := startUp(t, dialer, Forward{Alias: "stripe-dev"})
		<-run.ready
		d.config = &ssh.ServerConfig{PublicKeyCallback: d.config.PublicKeyCallback}
		d.config.AddHostKey(newSigner(t))
		(<-lines).Close()
		<-run.done
		if exitOfError(run.err) != cli.ExitRefused {
			t.Errorf("%v", run.err)
		}
		synctest.Wait()
	})
}

// TestLogBeginsWithTheAlias: the stream of the log is requested as soon as the alias is online. A new alias does
// not exist before that, and a refused stream would miss requests until the next try.
func TestLogBeginsWithTheAlias(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, dialer, _, _ := inMemory(t)
		var isThere atomic.Bool
		var early, begun atomic.Int64
		d.notices = func(c *fakeConn) {
			d.wg.Go(func() {
				time.Sleep(time.Second)
				isThere.Store(true)
				c.notify(onlineNotice)
			})
		}
		d.api.HandleFunc("GET /api/v1/stream", func(w http.ResponseWriter, r *http.Request) {
			if !isThere.Load() {
				early.Add(1)
				http.NotFound(w, r)
				return
			}
			begun.Add(1)
			_, _ = io.WriteString(w, ": connected\n\n")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})
		run := startUp(t, dialer, Forward{Alias: "stripe-dev"})
		<-run.ready
		if early.Load() != 0 || begun.Load() != 1 {
			t.Errorf("%d streams before the alias was there, %d when it was ready", early.Load(), begun.Load())
		}
		_ = run.stop(t)
		synctest.Wait()
	})
}
