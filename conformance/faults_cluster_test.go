package conformance

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"relay/relaytest"
	"relay/store/pgtest"
)

// proxySource is the address from which HAProxy connects to the nodes, which trust its PROXY headers.
const proxySource = "127.0.0.2"

// balanced are the settings of nodes behind a balancer.
var balanced = []string{"RELAY_TRUSTED_PROXIES=" + proxySource + "/32", "RELAY_MAX_CONNECTIONS_PER_ACCOUNT=off", "RELAY_MAX_ALIASES=off"}

// behindHAProxy runs HAProxy in front of nodes, and returns a relayServer with the addresses of HAProxy.
// HAProxy uses deploy/haproxy/haproxy.cfg with the addresses of the nodes, and with a maxconn that fits the
// machine's limit of open files.
func behindHAProxy(t *testing.T, nodes [3]*relayServer) *relayServer {
	t.Helper()
	text, err := os.ReadFile("../deploy/haproxy/haproxy.cfg")
	if err != nil {
		t.Fatal(err)
	}
	front := *nodes[0]
	front.http, front.ssh, front.process = relaytest.FreeAddr(t), relaytest.FreeAddr(t), &running{}
	change := []string{
		"maxconn 20000", "maxconn 9000",
		"bind :8080", "bind " + front.http, "bind :2222", "bind " + front.ssh,
		"resolvers docker init-addr last,libc,none", "source " + proxySource,
	}
	for i, name := range []string{"relayd", "relayd-2", "relayd-3"} {
		_, port, _ := net.SplitHostPort(nodes[i].http)
		change = append(change, " "+name+":8080 check", " "+nodes[i].http+" check", " "+name+":2222 check port 8080", " "+nodes[i].ssh+" check port "+port)
	}
	config := strings.NewReplacer(change...).Replace(string(text))
	if n := strings.Count(config, " 127.0.0.1:"); n < 8 {
		t.Fatalf("%d addresses in the configuration were replaced:\n%s", n, config)
	}
	file := filepath.Join(t.TempDir(), "haproxy.cfg")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	program, err := exec.LookPath("haproxy")
	if err != nil {
		program = "/usr/sbin/haproxy" // not every user has this folder in PATH
	}
	p := relaytest.Start(t, exec.Command(program, "-db", "-f", file))
	front.waitFor(10*time.Second, "HAProxy to lead to the nodes", func() bool {
		if p.HasEnded() {
			t.Fatalf("HAProxy (package haproxy) ended: %s", p.Out)
		}
		return front.ready() == 200
	})
	return &front
}

// ownerOf returns the node that has the tunnel of an alias. It waits until r knows the node, because nodes
// hear of a new tunnel with a delay.
func (r *relayServer) ownerOf(nodes [3]*relayServer, alias string) (owner *relayServer) {
	r.t.Helper()
	r.waitFor(30*time.Second, "the node of "+alias+" to be known", func() bool {
		status, body := r.api(http.MethodGet, "/tunnels", nil)
		var page struct {
			Data []struct{ Alias, Node string }
		}
		if status != 200 || json.Unmarshal(body, &page) != nil {
			return false
		}
		for _, tunnel := range page.Data {
			for i, name := range []string{"a", "b", "c"} {
				// After a restart, node a is named a-2 while the killed node a is still listed.
				if tunnel.Alias == alias && strings.HasPrefix(tunnel.Node, name) {
					owner = nodes[i]
				}
			}
		}
		return owner != nil
	})
	return owner
}

// TestFaultKillsBehindBalancer kills the node with the tunnel, while senders and a client all connect through
// HAProxy. The client reconnects to another node while the killed node is down, and no answered request is
// missing.
func TestFaultKillsBehindBalancer(t *testing.T) {
	t.Parallel()
	nodes := threeNodes(t, pgtest.URL(t), balanced...)
	front := behindHAProxy(t, nodes)
	front.autossh("one", localServer(t))
	for _, r := range nodes {
		r.knows("one")
	}
	l := startLoad(front, "one", size(8, 32), func(l *load) { l.pause, l.retry = size(150*time.Millisecond, 20*time.Millisecond), true })
	var back []time.Duration
	for range size(2, 9) {
		l.more(50, 60*time.Second)
		owner := front.ownerOf(nodes, "one")
		begun := time.Now()
		owner.stop(syscall.SIGKILL)
		back = append(back, front.since(begun, "the tunnel to be back at another node", func() bool {
			status, _, _ := front.call("one", "/back", "x")
			return status == 200
		}))
		owner.start()
	}
	l.more(50, 60*time.Second)
	l.end()
	front.must(202, "POST", "/aliases/one/replay-queued", nil)
	front.waitFor(time.Minute, "all that was queued to be delivered", func() bool {
		return !front.has("one", "&state=delivering") && !front.has("one", "&state=queued")
	})
	v := l.check(t)
	figure(t, "%d kills of the node with the tunnel behind HAProxy, %d senders: %v, by status %v, without answer %d; longest wait %v; the tunnel back at another node after %v at most",
		len(back), size(8, 32), v, l.codes, l.broken, l.longest.Round(10*time.Millisecond), quantile(back, 1))
	if !v.ok() || quantile(back, 1) > bound(10*time.Second) {
		t.Errorf("%v, back after %v", v, back)
	}
}

// TestFaultNodeWithoutPostgres drops every packet between one node and Postgres. Requests at that node
// continue through its tunnels and go to its spool. Requests at the other nodes are queued, and a client that
// connects there gets its alias at once. When Postgres is back, the node rejoins without help, and no request
// goes to a tunnel that was taken over in the meantime.
func TestFaultNodeWithoutPostgres(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.URL(t)
	nodes := newNodes(t, databaseURL)
	a, b, c := nodes[0], nodes[1], nodes[2]
	var line *relaytest.Line
	line, a.database = postgresLine(t, databaseURL)
	startNodes(t, nodes)
	a.autossh("one", localServer(t))
	a.tunnel("two", says(t, "old"))
	loads := []*load{startLoad(a.knows("one"), "one", 4, slowly), startLoad(b.knows("one"), "one", 4, slowly)}
	for _, l := range loads {
		l.more(20, 60*time.Second)
	}
	line.Hold()
	begun := time.Now()
	queued := b.since(begun, "requests to be queued", func() bool { status, _, _ := b.call("one", "/queued", "x"); return status == 202 })
	attached := time.Now()
	b.tunnel("two", says(t, "new"))
	took := time.Since(attached)
	before := loads[0].code(200)
	<-time.After(time.Until(begun.Add(12 * time.Second)))
	during := loads[0].code(200) - before
	line.Release()
	begun = time.Now()
	rejoined := b.since(begun, "the node to serve the others again", func() bool { status, _, _ := b.call("one", "/back", "x"); return status == 200 })
	a.waitFor(20*time.Second, "its spool to be stored", func() bool { return a.stats().SpoolBytes == 0 && !a.degraded() })
	<-time.After(time.Second)
	old := 0
	for _, r := range nodes {
		for range 20 {
			if status, body, _ := r.call("two", "/after", "x"); status != 200 || body != "new" {
				old++
			}
		}
	}
	v := make([]verdict, len(loads))
	for i, l := range loads {
		l.more(20, 60*time.Second)
		l.end()
		l.r.waitFor(20*time.Second, "the last requests to end", func() bool { return !c.has("one", "&state=delivering") })
		v[i] = l.check(t)
	}
	figure(t, "a node without Postgres for 12 s: at it %v, by status %v; at another %v, by status %v; queued there after %v, its alias attached at another node in %v; served again %v after Postgres was back; requests to the old tunnel afterwards %d",
		v[0], loads[0].codes, v[1], loads[1].codes, queued, took.Round(10*time.Millisecond), rejoined, old)
	if !v[0].ok() || !v[1].ok() || during == 0 || loads[0].codes[503] > 0 || queued > bound(5*time.Second) || old > 0 {
		t.Errorf("at the node %v, by status %v, answered meanwhile %d; at another %v; queued after %v; to the old tunnel %d", v[0], loads[0].codes, during, v[1], queued, old)
	}
}

// TestFaultNodesApart drops every packet between two nodes and the node with the tunnel, while all reach
// Postgres. Requests to the two nodes are queued, and the node of the tunnel delivers them at once, in order.
func TestFaultNodesApart(t *testing.T) {
	t.Parallel()
	nodes := newNodes(t, pgtest.URL(t))
	a, b := nodes[0], nodes[1]
	line := relaytest.NewLine(t, "tcp", a.ssh)
	a.extra = append(a.extra, "RELAY_PEER_ADDR="+line.Addr)
	startNodes(t, nodes)
	got := &arrivals{}
	a.autossh("asleep", serveLocal(t, got.serve))
	b.knows("asleep")
	first := len(got.seen())
	line.Hold()
	begun := time.Now()
	queued := b.since(begun, "requests to be queued", func() bool { status, _, _ := b.call("asleep", "/queued", "x"); return status == 202 })
	b.waitFor(5*time.Second, "the nodes page to show it", func() bool {
		_, body := b.api(http.MethodGet, "/nodes", nil)
		return strings.Contains(string(body), `"unreachable"`)
	})
	b.waitFor(20*time.Second, "what was queued to be delivered", func() bool { return !b.has("asleep", "&state=queued") })
	first = len(got.seen())
	var waits []time.Duration
	events := size(30, 200)
	for i := range events {
		if status, body, _ := b.call("asleep", queuePath(i), "x"); status != 202 {
			t.Fatalf("event %d was answered %d %s", i, status, body)
		}
		answered := time.Now()
		relaytest.Until(t, 10*time.Second, "it to be delivered", func() bool { return len(got.seen()) > first+i })
		waits = append(waits, time.Since(answered))
	}
	disorder := 0
	for i, path := range got.seen()[first:] {
		if path != queuePath(i) {
			disorder++
		}
	}
	b.waitFor(10*time.Second, "its log to say it", func() bool { return strings.Contains(b.log.String(), "cannot be reached") })
	line.Release()
	begun = time.Now()
	back := b.since(begun, "requests to be forwarded again", func() bool { status, _, _ := b.call("asleep", "/back", "x"); return status == 200 })
	figure(t, "nodes apart: queued after %v; %d events delivered by the node of the tunnel, out of order %d, p50 %v and p99 %v after their answer; forwarded again %v after the nodes reached each other",
		queued, events, disorder, quantile(waits, 0.5).Round(time.Millisecond), quantile(waits, 0.99).Round(time.Millisecond), back)
	if disorder > 0 || queued > bound(5*time.Second) || quantile(waits, 0.5) > bound(time.Second) {
		t.Errorf("queued after %v, out of order %d, delivered after %v", queued, disorder, quantile(waits, 0.5))
	}
}

// TestFaultQueueOverNodes releases a queue at one node and kills another node that delivers it. The client
// reconnects to a third node, which delivers the rest. All events arrive, in order.
func TestFaultQueueOverNodes(t *testing.T) {
	t.Parallel()
	nodes := threeNodes(t, pgtest.URL(t), balanced...)
	front := behindHAProxy(t, nodes)
	events := size(120, 500)
	front.alias("asleep")
	front.waitFor(5*time.Second, "the alias to be known", func() bool {
		for _, r := range nodes {
			if status, _, _ := r.call("asleep", queuePath(0), "x"); status != 202 {
				return false
			}
		}
		return true
	})
	extra := len(front.events("asleep", ""))
	for i := range events {
		if status, body, _ := nodes[i%3].call("asleep", queuePath(i), "event"); status != 202 {
			t.Fatalf("event %d was answered %d %s", i, status, body)
		}
	}
	got := &arrivals{}
	front.autossh("asleep", serveLocal(t, got.serve))
	owner := front.ownerOf(nodes, "asleep")
	var other *relayServer
	for _, r := range nodes {
		if r != owner {
			other = r
		}
	}
	other.must(202, "POST", "/aliases/asleep/replay-queued", nil)
	other.waitFor(30*time.Second, "a part of the queue to arrive", func() bool { return len(got.seen()) >= events/3 })
	begun := time.Now()
	owner.stop(syscall.SIGKILL)
	other.waitFor(60*time.Second, "the queue to be empty", func() bool { return len(other.events("asleep", "&state=delivered")) == events+extra })
	took := time.Since(begun)
	owner.start()
	seen := got.seen()
	for len(seen) > 0 && seen[0] == queuePath(0) && extra > 0 {
		seen, extra = seen[1:], extra-1
	}
	figure(t, "the node that delivers a queue killed: the rest delivered %v later", took.Round(10*time.Millisecond))
	checkQueue(t, other, seen, events, 1)
}

// TestFaultTunnelsOverNodes kills one of three nodes with many tunnels. Its tunnels reconnect to the other
// nodes, and the first request to each alias is answered, at whichever node it arrives.
func TestFaultTunnelsOverNodes(t *testing.T) {
	nodes := threeNodes(t, pgtest.URL(t), balanced...)
	front := behindHAProxy(t, nodes)
	n := size(60, 5000)
	c := startCrowd(front, n)
	begun := time.Now()
	front.waitFor(5*time.Minute, "all tunnels", func() bool { return int(c.online.Load()) == n })
	came := time.Since(begun)
	lost := nodes[0].stats().Tunnels
	c.tries.Store(0)
	begun = time.Now()
	nodes[0].stop(syscall.SIGKILL)
	front.waitFor(20*time.Second, "its tunnels to be lost", func() bool { return c.tries.Load() > 0 && time.Since(begun) > time.Second })
	front.waitFor(5*time.Minute, "all tunnels", func() bool { return int(c.online.Load()) == n })
	back := time.Since(begun)
	front.waitFor(20*time.Second, "both nodes to know all tunnels", func() bool { return nodes[1].stats().Tunnels+nodes[2].stats().Tunnels >= n })
	<-time.After(time.Second) // the other nodes know a new tunnel within 1 s
	failed := c.ask()
	figure(t, "%d tunnels over 3 nodes, up after %v; one node with %d killed: all back after %v, in %d tries; first requests failed %d",
		n, came.Round(10*time.Millisecond), lost, back.Round(10*time.Millisecond), c.tries.Load(), failed)
	if failed > 0 || back > bound(size(20*time.Second, time.Minute)) {
		t.Errorf("back after %v, first requests failed %d", back, failed)
	}
	c.stop()
}

// TestFaultLiveViewOfNode measures how long after an answer at one node a live view at another node shows the
// request. At most 500 ms are allowed for nine of ten requests, and with RELAY_FAULTS=full for 99 of 100.
func TestFaultLiveViewOfNode(t *testing.T) {
	t.Parallel()
	nodes := threeNodes(t, pgtest.URL(t))
	a, b, c := nodes[0], nodes[1], nodes[2]
	c.autossh("one", localServer(t))
	a.knows("one")
	b.knows("one")
	res, err := http.DefaultClient.Do(b.bearer(t.Context(), b.token, "GET", "/stream?alias=one", ""))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	shown := make(chan string, 1000)
	go func() {
		defer close(shown)
		for lines := bufio.NewScanner(res.Body); lines.Scan(); {
			var e record
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && json.Unmarshal([]byte(data), &e) == nil && e.State == "delivered" {
				shown <- e.Path
			}
		}
	}()
	var waits []time.Duration
	for i := range size(50, 1000) {
		path := fmt.Sprintf("/live/%d", i)
		if status, body, _ := a.call("one", path, "x"); status != 200 {
			t.Fatalf("answered %d %s", status, body)
		}
		answered := time.Now()
		for limit := time.After(20 * time.Second); ; {
			select {
			case seen, open := <-shown:
				if open && seen != path {
					continue
				}
			case <-limit:
				t.Fatalf("%s is not shown", path)
			}
			break
		}
		waits = append(waits, time.Since(answered))
	}
	figure(t, "a live view of another node shows %d requests p50 %v, p99 %v after their answer", len(waits), quantile(waits, 0.5).Round(time.Millisecond), quantile(waits, 0.99).Round(time.Millisecond))
	if quantile(waits, size(0.9, 0.99)) > bound(500*time.Millisecond) {
		t.Errorf("p99 %v", quantile(waits, 0.99))
	}
}

// TestFaultHop: a request through two nodes costs each node at most 1.25 times the CPU time of a request at
// the node of the tunnel.
func TestFaultHop(t *testing.T) {
	onlyInFull(t, "TestWireFidelity")
	nodes := threeNodes(t, pgtest.URL(t))
	a, b := nodes[0], nodes[1]
	a.autossh("one", localServer(t))
	a.knows("one")
	b.knows("one")
	const each = 4000
	run := func(r *relayServer) (p50 time.Duration, atA, atB float64) {
		var mu sync.Mutex
		var waits []time.Duration
		var left atomic.Int64
		left.Store(each)
		beginA, beginB := a.cpu(), b.cpu()
		var work sync.WaitGroup
		for range 4 {
			work.Go(func() {
				client := callerTo(r.http, 30*time.Second)
				defer client.CloseIdleConnections()
				for left.Add(-1) >= 0 {
					begun := time.Now()
					res, err := client.Post("http://one.localhost/hop", "text/plain", strings.NewReader("hop"))
					if err != nil || drain(res) != nil || res.StatusCode != 200 {
						t.Errorf("%v %v", res, err)
						return
					}
					mu.Lock()
					waits = append(waits, time.Since(begun))
					mu.Unlock()
				}
			})
		}
		work.Wait()
		return quantile(waits, 0.5), float64((a.cpu() - beginA).Microseconds()) / each, float64((b.cpu() - beginB).Microseconds()) / each
	}
	run(a)
	run(b)
	localP50, local, _ := run(a)
	hopP50, owner, ingress := run(b)
	figure(t, "CPU of a request: %.0f µs at the node of the tunnel; through another node %.0f µs there and %.0f µs at the node of the tunnel; p50 %v and %v",
		local, ingress, owner, localP50.Round(10*time.Microsecond), hopP50.Round(10*time.Microsecond))
	if max(owner, ingress) > 1.25*local {
		t.Errorf("a request costs %.0f µs at the node of its caller and %.0f µs at that of the tunnel, %.0f µs without a hop", ingress, owner, local)
	}
}

// cpu returns the processor time that relayd has used.
func (r *relayServer) cpu() time.Duration {
	r.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", r.process.get().Cmd.Process.Pid))
	if err != nil {
		r.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	var user, system int64 // proc(5): fields 14 and 15, in hundredths of a second
	_, _ = fmt.Sscan(fields[11]+" "+fields[12], &user, &system)
	return time.Duration(user+system) * 10 * time.Millisecond
}
