package conformance

import (
	"bufio"
	"encoding/json"
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

	"relay/relaytest"
)

// TestQueuedUpgrade: a queued request that is answered with 101 is recorded as delivered. The connection to
// the local server is closed, and the event cannot be replayed.
func TestQueuedUpgrade(t *testing.T) {
	t.Parallel()
	r := startRelay(t, "")
	r.must(201, "POST", "/aliases", []byte(`{"name":"later"}`))
	c := r.dial()
	fmt.Fprint(c, "GET /socket HTTP/1.1\r\nHost: later.localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || res.StatusCode != 202 {
		t.Fatalf("offline: %v, %v", res, err)
	}
	closed := make(chan error, 1)
	tg := newTarget(t)
	tg.run(func(c net.Conn, br *bufio.Reader) {
		if _, err := readRaw(br); err != nil {
			closed <- err
			return
		}
		fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_ = c.SetReadDeadline(time.Now().Add(relaytest.Patience(10 * time.Second)))
		_, err := io.Copy(io.Discard, br)
		closed <- err
	})
	r.tunnel("later", tg.addr)
	r.must(202, "POST", "/aliases/later/replay-queued", nil)
	if err := <-closed; err != nil {
		t.Errorf("the connection of the local server is not closed after its 101: %v", err)
	}
	r.waitFor(10*time.Second, "the record of the 101", func() bool {
		rec := r.latest("later")
		return rec.State == "delivered" && rec.Status != nil && *rec.Status == 101 && !rec.Replayable && rec.ReplayBlocker != nil && *rec.ReplayBlocker == "upgraded"
	})
}

// TestDripEnds: if a body arrives more slowly than --min-rate, the caller gets 408 after the grace time, and
// the event is recorded as incomplete.
func TestDripEnds(t *testing.T) {
	t.Parallel()
	const grace = time.Second
	r := startRelay(t, "", "RELAY_MIN_RATE=1KiB", "RELAY_MIN_RATE_GRACE="+grace.String())
	r.tunnel("drip", localServer(t))
	c := r.dial()
	begun := time.Now()
	fmt.Fprint(c, "POST /hook HTTP/1.1\r\nHost: drip.localhost\r\nContent-Length: 100000\r\n\r\n")
	end := make(chan struct{})
	defer close(end)
	go func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-end:
				return
			case <-tick.C:
				if _, err := c.Write([]byte("x")); err != nil {
					return
				}
			}
		}
	}()
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	took := time.Since(begun)
	if err != nil || res.StatusCode != 408 || res.Header.Get("Relay-Error") != "request-timeout" {
		t.Fatalf("answered %v, %v", res, err)
	}
	if took < grace || took > relaytest.Limit(2*grace, begun) {
		t.Errorf("given up after %v, want soon after the grace of %v", took, grace)
	}
	if rec := r.latest("drip"); rec.State != "incomplete" || rec.Replayable {
		t.Errorf("recorded as %s, replayable %t", rec.State, rec.Replayable)
	}
}

// TestRejectedWithoutStore: a malformed request gets 400 within half a second while Postgres is frozen.
func TestRejectedWithoutStore(t *testing.T) {
	t.Parallel()
	pg, databaseURL := ownPostgres(t)
	r := startRelay(t, databaseURL)
	r.tunnel("strict", localServer(t))
	if err := pg.Freeze(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := pg.Thaw(); err != nil {
			t.Error(err)
		}
	}()
	for range 5 {
		c := r.dial()
		begun := time.Now()
		fmt.Fprint(c, "POST /hook HTTP/1.1\r\nHost: strict.localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n")
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if took := time.Since(begun); err != nil || res.StatusCode != 400 || took > relaytest.Limit(500*time.Millisecond, begun) {
			t.Errorf("answered %v, %v after %v", res, err, took)
		}
	}
}

// TestOverloadedAlias: 2,000 requests of an alias may wait for a local server that hangs. A further request
// gets 503 overloaded, and its event can be replayed.
func TestOverloadedAlias(t *testing.T) {
	t.Parallel()
	const most = 2000
	r := startRelay(t, "", "RELAY_RESPONSE_TIMEOUT=6m")
	release := make(chan struct{})
	var once sync.Once
	letGo := func() { once.Do(func() { close(release) }) }
	defer letGo()
	var arrived atomic.Int64
	addr := serveLocal(t, func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/hang" {
			arrived.Add(1)
			<-release
		}
		fmt.Fprint(w, "ok")
	})
	r.tunnel("full", addr)
	client := callerTo(r.http, 7*time.Minute)
	defer client.CloseIdleConnections()
	var answered atomic.Int64
	var all sync.WaitGroup
	call := func(path string) (int, string) {
		res, err := client.Get("http://full.localhost" + path)
		if err != nil {
			return 0, err.Error()
		}
		defer res.Body.Close()
		_, _ = io.Copy(io.Discard, res.Body)
		return res.StatusCode, res.Header.Get("Relay-Error")
	}
	// The test sends a hundred requests at a time. If all were sent at once on a busy machine, the SSH client
	// could not open two thousand channels quickly enough, and relayd would count the client as silent.
	for begun := 0; begun < most; {
		for range 100 {
			begun++
			all.Go(func() {
				if status, code := call("/hang"); status == 200 {
					answered.Add(1)
				} else {
					t.Errorf("one of the first %d: %d %s", most, status, code)
				}
			})
		}
		r.waitFor(60*time.Second, "the requests to reach the local server", func() bool { return arrived.Load() >= int64(begun) })
	}
	refused := 0
	for range 3 {
		if status, code := call("/more"); status == 503 && code == "overloaded" {
			refused++
		}
	}
	if refused == 0 {
		t.Error("no request beyond the bound got 503 overloaded")
	}
	letGo()
	all.Wait()
	if n := answered.Load(); n != most {
		t.Errorf("%d of %d were answered", n, most)
	}
	for _, rec := range r.events("full", "&path=/more") {
		if rec.State == "failed" && (rec.Error == nil || rec.Error.Code != "overloaded" || !rec.Replayable) {
			t.Errorf("the refused one is recorded as %+v", rec)
		}
	}
}

// TestOriginatorOfAReusedConnection: with plain ssh, one connection to the local server serves several
// callers one after another. The originator port of its SSH channel is the port of the first caller. The
// attempts of the later callers are recorded as reused.
func TestOriginatorOfAReusedConnection(t *testing.T) {
	t.Parallel()
	r := startRelay(t, "")
	text, err := os.ReadFile(r.key)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.ParsePrivateKey(text)
	if err != nil {
		t.Fatal(err)
	}
	client, err := ssh.Dial("tcp", r.ssh, &ssh.ClientConfig{
		User: "relay", Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)}, HostKeyCallback: ssh.InsecureIgnoreHostKey(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	origins := make(chan uint32, 16)
	go func() {
		for nc := range client.HandleChannelOpen("forwarded-tcpip") {
			var open struct {
				Bind   string
				Port   uint32
				Origin string
				From   uint32
			}
			if err := ssh.Unmarshal(nc.ExtraData(), &open); err != nil {
				t.Error(err)
			}
			origins <- open.From
			ch, requests, err := nc.Accept()
			if err != nil {
				return
			}
			go ssh.DiscardRequests(requests)
			go func() {
				br := bufio.NewReader(ch)
				for {
					if _, err := readRaw(br); err != nil {
						_ = ch.Close()
						return
					}
					fmt.Fprint(ch, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
				}
			}()
		}
	}()
	ok, _, err := client.SendRequest("tcpip-forward", true, ssh.Marshal(struct {
		Bind string
		Port uint32
	}{"shared", 80}))
	if err != nil || !ok {
		t.Fatal("the forward is refused", err)
	}
	r.waitFor(10*time.Second, "the tunnel", func() bool { return r.online("shared") })
	var first uint32
	reused := false
	// A request that comes more than a second after the previous one gets a new channel, so the test repeats
	// it.
	for n := 0; n < 20 && !reused; n++ {
		c := r.dial()
		fmt.Fprint(c, "GET /asset HTTP/1.1\r\nHost: shared.localhost\r\n\r\n")
		if res, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || res.StatusCode != 200 {
			t.Fatalf("answered %v, %v", res, err)
		}
		own := uint32(c.LocalAddr().(*net.TCPAddr).Port)
		select {
		case first = <-origins:
			if first != own {
				t.Errorf("the originator of a new connection is port %d, its caller has %d", first, own)
			}
		default:
			reused = true
		}
		if attempts := r.latest("shared").Attempts; len(attempts) != 1 || (attempts[0].Connection == "reused") != reused {
			t.Errorf("the attempt of request %d says %+v, reused %t", n, attempts, reused)
		}
	}
	if !reused {
		t.Error("no connection was used twice")
	}
}

// TestStaleClose: the connection of a frozen client is closed after about --stale-close of silence.
func TestStaleClose(t *testing.T) {
	t.Parallel()
	const after = 3 * time.Second
	r := startRelay(t, "", "RELAY_PING_INTERVAL=500ms", "RELAY_PING_TIMEOUT=500ms", "RELAY_STALE_CLOSE="+after.String())
	p := r.tunnel("quiet", localServer(t))
	begun := time.Now()
	freeze(t, p.Cmd.Process.Pid)
	wasStale := false
	r.waitFor(20*time.Second, "the connection to be closed", func() bool {
		var alias struct {
			State  string
			Tunnel *json.RawMessage
		}
		r.decode(r.must(200, "GET", "/aliases/quiet", nil), &alias)
		wasStale = wasStale || alias.State == "stale"
		return alias.Tunnel == nil
	})
	took := time.Since(begun)
	// The client may have been heard last before the test began to measure: an interval earlier, and as much earlier as
	// the machine stood still. relayd may also have been stopped for all of the time in which the tunnel was stale.
	_, stopped := relaytest.Slowdown(begun.Add(-after))
	if took < after-500*time.Millisecond-stopped || took > relaytest.Limit(after+2*time.Second, begun) || !wasStale && stopped < time.Second {
		t.Errorf("closed after %v of silence, want %v; was stale before: %t", took, after, wasStale)
	}
}
