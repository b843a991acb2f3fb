package conformance

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// crowd holds clients with one tunnel each. They reconnect after every loss as relay up does: at once, and after each
// failed try with a random delay, whose upper limit doubles each time.
type crowd struct {
	r      *relayServer
	n      int
	signer ssh.Signer
	end    chan struct{}
	work   sync.WaitGroup
	online atomic.Int64
	tries  atomic.Int64
}

// startCrowd starts n clients for the aliases crowd-0, crowd-1, …; they end with the test.
func startCrowd(r *relayServer, n int) *crowd {
	r.t.Helper()
	b, err := os.ReadFile(r.key)
	if err != nil {
		r.t.Fatal(err)
	}
	signer, err := ssh.ParsePrivateKey(b)
	if err != nil {
		r.t.Fatal(err)
	}
	c := &crowd{r: r, n: n, signer: signer, end: make(chan struct{})}
	for i := range n {
		c.work.Go(func() { c.keep(fmt.Sprintf("crowd-%d", i)) })
	}
	r.t.Cleanup(c.stop)
	return c
}

func (c *crowd) stop() {
	select {
	case <-c.end:
	default:
		close(c.end)
	}
	c.work.Wait()
}

func (c *crowd) keep(alias string) {
	for bound := time.Duration(0); ; bound = min(15*time.Second, max(2*bound, 250*time.Millisecond)) {
		select {
		case <-c.end:
			return
		case <-time.After(time.Duration(rand.Float64() * float64(bound))):
		}
		if held := c.once(alias); held > 5*time.Second {
			bound = 0
		}
	}
}

// once makes one connection and returns how long its tunnel was up.
func (c *crowd) once(alias string) time.Duration {
	c.tries.Add(1)
	tcp, err := net.DialTimeout("tcp", c.r.ssh, 10*time.Second)
	if err != nil {
		return 0
	}
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-c.end:
		case <-ended:
		}
		tcp.Close()
	}()
	_ = tcp.SetDeadline(time.Now().Add(20 * time.Second))
	conn, channels, requests, err := ssh.NewClientConn(tcp, c.r.ssh, &ssh.ClientConfig{
		User: "relay", Auth: []ssh.AuthMethod{ssh.PublicKeys(c.signer)}, HostKeyCallback: ssh.InsecureIgnoreHostKey(),
	})
	if err != nil {
		return 0
	}
	go ssh.DiscardRequests(requests)
	go func() {
		for open := range channels {
			go serveChannel(open)
		}
	}()
	ok, _, err := conn.SendRequest("tcpip-forward", true, ssh.Marshal(struct {
		Bind string
		Port uint32
	}{alias, 80}))
	if err != nil || !ok {
		return 0
	}
	_ = tcp.SetDeadline(time.Time{})
	begun := time.Now()
	c.online.Add(1)
	defer c.online.Add(-1)
	_ = conn.Wait()
	return time.Since(begun)
}

// serveChannel is a local server that answers every request of a channel.
func serveChannel(open ssh.NewChannel) {
	answerChannel(open, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone")
}

// answerChannel is like serveChannel, but sends the given answer.
func answerChannel(open ssh.NewChannel, answer string) {
	ch, requests, err := open.Accept()
	if err != nil {
		return
	}
	defer ch.Close()
	go ssh.DiscardRequests(requests)
	for br := bufio.NewReader(ch); ; {
		req, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, req.Body)
		if _, err := io.WriteString(ch, answer); err != nil {
			return
		}
	}
}

// back waits until all tunnels are up.
func (c *crowd) back() {
	c.r.t.Helper()
	c.r.waitFor(time.Minute, "all tunnels", func() bool { return int(c.online.Load()) == c.n })
}

// ask sends one request to each alias, and returns the number of requests that were not answered with 200.
func (c *crowd) ask() (failed int) {
	var bad atomic.Int32
	var work sync.WaitGroup
	for lane := range 8 {
		work.Go(func() {
			for i := lane; i < c.n; i += 8 {
				if status, answer, head := c.r.call(fmt.Sprintf("crowd-%d", i), "/first", "x"); status != 200 {
					c.r.t.Logf("first request to crowd-%d: %d %.300q, %v", i, status, answer, head)
					bad.Add(1)
				}
			}
		})
	}
	work.Wait()
	return int(bad.Load())
}

// TestFaultTunnelsComeBack restarts relayd with many tunnels, by a crash and gracefully. All tunnels are soon
// up again, although they reconnect at the same time, and the first request to each alias is served.
func TestFaultTunnelsComeBack(t *testing.T) {
	n, promised := size(60, 1000), 30*time.Second
	r := startRelay(t, "", "RELAY_MAX_ALIASES=off", "RELAY_MAX_CONNECTIONS_PER_ACCOUNT=off")
	before := r.atRest()
	c := startCrowd(r, n)
	c.back()
	idle := r.atRest()
	const garbage = 96 << 20 // up to this size of the heap, relayd lets Go collect no garbage (collectAt)
	grown := int64(idle.RSSBytes - before.RSSBytes)
	figure(t, "%d idle tunnels: RSS grew by %d MiB, %.1f goroutines each", n, grown>>20, float64(idle.Goroutines-before.Goroutines)/float64(n))
	if each := (grown - memory(t, garbage)) / int64(n) >> 10; each > memory(t, 100) {
		t.Errorf("%d KiB for each idle tunnel", each)
	}
	for _, how := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		r.stop(how)
		c.r.waitFor(20*time.Second, "all tunnels to be lost", func() bool { return c.online.Load() == 0 })
		c.tries.Store(0)
		begun := time.Now()
		r.start()
		c.back()
		took := time.Since(begun)
		failed := c.ask()
		figure(t, "%d tunnels after a restart (%v): all back after %v, in %d tries; first requests failed %d", n, how, took.Round(10*time.Millisecond), c.tries.Load(), failed)
		if took > bound(promised) || failed > 0 {
			t.Errorf("back after %v, failed %d", took, failed)
		}
	}
	c.stop()
	if after, ok := r.settled(before, 10, 5); !ok {
		t.Errorf("before %+v, after %+v", before, after)
	}
}

// TestFaultLargeBodies sends many large bodies at once to an alias whose local server is slow. Memory stays
// bounded, every byte arrives and is stored, and another alias is served at the same time.
func TestFaultLargeBodies(t *testing.T) {
	senders, body := size(20, 100), int64(size(2, 16)<<20)
	r := startRelay(t, "")
	var arrived sync.Map // the SHA-256 of each body, by its path
	r.tunnel("large", serveLocal(t, func(w http.ResponseWriter, req *http.Request) {
		h, piece := sha256.New(), make([]byte, 256<<10)
		for {
			n, err := req.Body.Read(piece)
			h.Write(piece[:n])
			if err != nil {
				break
			}
			<-time.After(time.Millisecond)
		}
		arrived.Store(req.URL.Path, hex.EncodeToString(h.Sum(nil)))
		_, _ = io.WriteString(w, "done")
	}))
	r.tunnel("probe", localServer(t))
	r.stream("probe", 50, 500*time.Millisecond)
	base := r.atRest()

	end, probed := make(chan struct{}), make(chan quiet, 1)
	go func() { probed <- r.probe("probe", end) }()
	stop, most := r.watchMemory()
	begun := time.Now()
	failed := r.sendLarge("large", senders, body)
	took := time.Since(begun)
	stop()
	close(end)
	q := <-probed
	wrong := 0
	for _, e := range r.events("large", "&path=/large") {
		sum, _ := arrived.Load(e.Path)
		if full := r.event(e.ID); e.State != "delivered" || full.Request.Body.SHA256 != sum || sum != sumOf(e.Path, body) {
			wrong++
		}
	}
	stored := len(r.events("large", "&path=/large"))
	after, ok := r.settled(base, 10, 5)
	figure(t, "%d bodies of %d MiB at once to a slow local server in %v: failed %d, missing %d, different %d, RSS at most %d MiB; another alias meanwhile: %d requests, errors %d, p50 %v, p99 %v",
		senders, body>>20, took.Round(100*time.Millisecond), failed, senders-stored, wrong, most.Load()>>20,
		len(q.waits), q.errors, quantile(q.waits, 0.5).Round(100*time.Microsecond), quantile(q.waits, 0.99).Round(time.Millisecond))
	if failed > 0 || stored != senders || wrong > 0 || q.errors > 0 || most.Load() > memory(t, 512<<20) || !ok {
		t.Errorf("failed %d, stored %d, different %d, errors of the other alias %d, RSS %d, before %+v, after %+v", failed, stored, wrong, q.errors, most.Load(), base, after)
	}
}

// probe calls an alias about ten times a second until the channel end is closed, and returns the waits and the number
// of errors.
func (r *relayServer) probe(alias string, end chan struct{}) (q quiet) {
	for {
		begun := time.Now()
		if status, body, _ := r.call(alias, "/probe", "x"); status != 200 {
			q.errors++
			r.t.Logf("probe: %d %.200q after %v", status, body, time.Since(begun))
		}
		q.waits = append(q.waits, time.Since(begun))
		select {
		case <-end:
			return q
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// largeBody returns a body that depends only on its path.
func largeBody(path string, n int64) io.Reader {
	return io.LimitReader(rand.NewChaCha8(sha256.Sum256([]byte(path))), n)
}

func sumOf(path string, n int64) string {
	h := sha256.New()
	_, _ = io.Copy(h, largeBody(path, n))
	return hex.EncodeToString(h.Sum(nil))
}

// sendLarge sends one body of n bytes from each sender, all at once, and returns the number of requests that were not
// answered with 200.
func (r *relayServer) sendLarge(alias string, senders int, n int64) int {
	client := callerTo(r.http, 3*time.Minute)
	defer client.CloseIdleConnections()
	var bad atomic.Int32
	var work sync.WaitGroup
	for i := range senders {
		work.Go(func() {
			path := fmt.Sprintf("/large/%d", i)
			req, err := http.NewRequest("POST", "http://"+alias+".localhost"+path, largeBody(path, n))
			if err != nil {
				bad.Add(1)
				return
			}
			req.ContentLength = n
			res, err := client.Do(req)
			if err != nil || drain(res) != nil || res.StatusCode != 200 {
				bad.Add(1)
				r.t.Logf("%s: %v %v", path, err, strings.TrimSpace(fmt.Sprint(res)))
			}
		})
	}
	work.Wait()
	return int(bad.Load())
}
