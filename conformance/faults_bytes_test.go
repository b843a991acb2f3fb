package conformance

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// TestFaultUnreadBytes makes relayd hold unread bytes in every known way, all at once and from several
// accounts: large responses to callers that do not read, SSH extended data, sessions whose input and output
// are not read, and API streams of events with large heads. The memory stays below --buffer-limit plus 200
// MiB, and every request of another account is answered within a second.
//
// The second part does the same with answers that relayd builds itself: records, pages, downloads, exports,
// shares and output of session commands, each of the largest size.
func TestFaultUnreadBytes(t *testing.T) {
	t.Run("traffic", testUnreadTraffic)
	t.Run("answers", testUnreadAnswers)
}

func testUnreadTraffic(t *testing.T) {
	const limit, allowed = 64 << 20, 200 << 20
	r := startRelay(t, "", fmt.Sprintf("RELAY_BUFFER_LIMIT=%dMiB", limit>>20))
	large := bytes.Repeat([]byte("x"), 4<<20)
	quick := serveLocal(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(large) })
	// An account may use a quarter of --buffer-limit. A fourth account would leave nothing of the limit for the
	// requests of other accounts.
	people := make([]*person, 3)
	for i := range people {
		people[i] = r.person(fmt.Sprint("mallory", i))
		people[i].tunnel(fmt.Sprint("hostile", i), quick)
	}
	// Unread extended data comes from a separate account, so that the account's share of --buffer-limit is
	// not used up by other unread answers.
	extended := r.person("trudy")
	r.tunnel("probe", localServer(t))

	end, probed := make(chan struct{}), make(chan quiet, 1)
	go func() { probed <- r.probe("probe", end) }()
	stop, most := r.watchMemory()
	a := &attack{r: r, until: time.Now().Add(size(4*time.Second, 20*time.Second))}
	for i, p := range people {
		alias := fmt.Sprint("hostile", i)
		for range 40 {
			a.work.Go(func() { a.slowCaller(alias) })
		}
		for range 2 {
			a.work.Go(func() { a.sessions(p, alias) })
			a.work.Go(func() { a.unreadStream(p, alias) })
		}
		for range 2 {
			a.work.Go(func() { a.largeHeads(alias) })
		}
	}
	a.work.Go(func() { a.extendedData(extended) })
	a.work.Wait()
	close(end)
	q := <-probed
	stop()
	figure(t, "%d accounts for %v: %d callers who did not read, %d tunnel connections with extended data closed, %d sessions, %d streams, %d events with large heads: RSS at most %d MiB with --buffer-limit %d MiB, Go had at most %d MiB of the system; another account meanwhile: %d requests, errors %d, p50 %v, p99 %v, longest %v",
		len(people)+1, size(4*time.Second, 20*time.Second), a.callers.Load(), a.cut.Load(), a.opened.Load(), a.streams.Load(), a.heads.Load(), most.Load()>>20, limit>>20, int(r.metric("go_memstats_sys_bytes"))>>20,
		len(q.waits), q.errors, quantile(q.waits, 0.5).Round(100*time.Microsecond), quantile(q.waits, 0.99).Round(time.Millisecond), quantile(q.waits, 1).Round(time.Millisecond))
	if most.Load() > memory(t, limit+allowed) {
		t.Errorf("RSS %d MiB", most.Load()>>20)
	}
	if q.errors > 0 || len(q.waits) == 0 || quantile(q.waits, 1) > bound(time.Second) {
		t.Errorf("the other account: %d requests, %d errors, longest wait %v", len(q.waits), q.errors, quantile(q.waits, 1))
	}
	if a.callers.Load() == 0 || a.cut.Load() == 0 || a.opened.Load() == 0 || a.streams.Load() == 0 || a.heads.Load() == 0 {
		t.Errorf("not all of the attack took place: %+v", a)
	}
}

// attack is the load of several accounts on relayd until a given time.
type attack struct {
	r     *relayServer
	until time.Time
	work  sync.WaitGroup

	callers, cut, opened, streams, heads atomic.Int64
	answers, refused, commands           atomic.Int64 // numbers of unread answers, of answers with 503, and of unread commands
	wrong                                atomic.Value // body of an answer with 503 whose code is not overloaded
}

func (a *attack) left() time.Duration { return time.Until(a.until) }

// slowCaller requests large answers and does not read them.
func (a *attack) slowCaller(alias string) {
	for a.left() > 0 {
		c, err := net.Dial("tcp", a.r.http)
		if err != nil {
			continue
		}
		_, _ = fmt.Fprintf(c, "GET /large HTTP/1.1\r\nHost: %s.localhost\r\n\r\n", alias)
		a.callers.Add(1)
		select {
		case <-time.After(min(a.left(), 3*time.Second)):
		case <-a.r.t.Context().Done():
		}
		_ = c.Close()
	}
}

func (a *attack) login(p *person) (*ssh.Client, error) {
	text, err := os.ReadFile(p.key)
	if err != nil {
		return nil, err
	}
	signer, err := ssh.ParsePrivateKey(text)
	if err != nil {
		return nil, err
	}
	return ssh.Dial("tcp", a.r.ssh, &ssh.ClientConfig{
		User: "relay", Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)}, HostKeyCallback: ssh.InsecureIgnoreHostKey(), Timeout: 10 * time.Second,
	})
}

// extendedData opens tunnels, one after another, and answers each request on them with extended data until the attack
// ends. If relayd has cut none of these SSH connections by then, extendedData goes on until relayd has cut one, for up
// to 30 s.
func (a *attack) extendedData(p *person) {
	for last := a.until.Add(30 * time.Second); a.left() > 0 || a.cut.Load() == 0 && time.Now().Before(last); {
		c, err := a.login(p)
		if err != nil {
			continue
		}
		channels := c.HandleChannelOpen("forwarded-tcpip")
		go func() {
			for n := range channels {
				if ch, reqs, err := n.Accept(); err == nil {
					go ssh.DiscardRequests(reqs)
					go func() { _, _ = ch.Stderr().Write(make([]byte, 2<<20)) }()
				}
			}
		}()
		forward := struct {
			Address string
			Port    uint32
		}{p.name, 80}
		if ok, _, err := c.SendRequest("tcpip-forward", true, ssh.Marshal(&forward)); ok && err == nil {
			for range 4 {
				go a.r.call(p.name, "/extended", "x")
			}
			ended := make(chan struct{})
			go func() { _ = c.Wait(); close(ended) }()
			select {
			case <-ended:
				a.cut.Add(1)
			case <-time.After(max(a.left(), 10*time.Second)):
			}
		}
		_ = c.Close()
	}
}

// sessions opens as many sessions on one connection as relayd allows. Each session gets input that no command
// reads, and follows events that the client does not read.
func (a *attack) sessions(p *person, alias string) {
	c, err := a.login(p)
	if err != nil {
		return
	}
	defer c.Close()
	for range 8 {
		ch, reqs, err := c.OpenChannel("session", nil)
		if err != nil {
			break
		}
		go ssh.DiscardRequests(reqs)
		if ok, err := ch.SendRequest("exec", true, ssh.Marshal(&struct{ Line string }{"events " + alias + " -f --json"})); !ok || err != nil {
			break
		}
		a.opened.Add(1)
		a.work.Go(func() {
			for piece, sent := make([]byte, 32<<10), 0; a.left() > 0; sent += len(piece) {
				if _, err := ch.Write(piece); err != nil {
					return
				}
				// More than the SSH window of 2 MiB has been sent. The pause saves CPU time, because the test is about
				// memory.
				if sent > 2<<20 {
					<-time.After(100 * time.Millisecond)
				}
			}
		})
	}
	<-time.After(a.left())
}

// unreadStream opens a stream of the API and does not read it.
func (a *attack) unreadStream(p *person, alias string) {
	c, err := net.Dial("tcp", a.r.http)
	if err != nil {
		return
	}
	defer c.Close()
	_, _ = fmt.Fprintf(c, "GET /api/v1/stream?alias=%s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", alias, p.token)
	a.streams.Add(1)
	<-time.After(a.left())
}

// largeHeads sends events with the largest allowed heads.
func (a *attack) largeHeads(alias string) {
	for line := bytes.Repeat([]byte("h"), 100<<10); a.left() > 0; {
		c, err := net.Dial("tcp", a.r.http)
		if err != nil {
			continue
		}
		_ = c.SetDeadline(a.until.Add(30 * time.Second))
		_, _ = fmt.Fprintf(c, "HEAD /head HTTP/1.1\r\nHost: %s.localhost\r\nConnection: close\r\nX-Large: %s\r\n\r\n", alias, line)
		if n, _ := io.Copy(io.Discard, c); n > 0 {
			a.heads.Add(1)
		}
		_ = c.Close()
	}
}
