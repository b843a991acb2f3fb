package conformance

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"relay/store/pgtest"
)

// netNamespaces counts the namespaces of this test run.
var netNamespaces atomic.Int32

// netNamespace is a network namespace, connected to that of the test by a pair of virtual interfaces: one in
// the namespace of the test (here, near), the other inside (there, far).
type netNamespace struct {
	t           *testing.T
	space       string
	here, there string // names of the two interfaces
	near, far   string // addresses of the two interfaces, in the network for benchmarks (RFC 2544)
}

func newNetNamespace(t *testing.T) *netNamespace {
	t.Helper()
	needRoot(t, "a network namespace")
	// Names and network differ between test runs and between tests.
	n := netNamespaces.Add(1) % 60
	id, subnet := fmt.Sprintf("%d-%d", os.Getpid()%100000, n), fmt.Sprintf("198.18.%d.", os.Getpid()%256)
	c := &netNamespace{t: t, space: "relayf" + id, here: "rlya" + id, there: "rlyb" + id, near: subnet + fmt.Sprint(4*n+1), far: subnet + fmt.Sprint(4*n+2)}
	if out, err := exec.Command("ip", "netns", "add", c.space).CombinedOutput(); err != nil {
		t.Fatalf("ip netns add (package iproute2): %v %s; the test %s", err, out, needs(t, "a network namespace"))
	}
	t.Cleanup(func() { c.ip("netns", "del", c.space) })
	c.ip("link", "add", c.here, "type", "veth", "peer", "name", c.there)
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", c.here).Run() }) // usually, the interface has gone with the namespace
	c.ip("link", "set", c.there, "netns", c.space)
	c.ip("addr", "add", c.near+"/30", "dev", c.here)
	c.ip("link", "set", c.here, "up")
	c.inside("addr", "add", c.far+"/30", "dev", c.there)
	c.inside("link", "set", "lo", "up")
	c.inside("link", "set", c.there, "up")
	return c
}

func (c *netNamespace) ip(args ...string) {
	c.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		c.t.Fatalf("ip %s (package iproute2): %v %s", strings.Join(args, " "), err, out)
	}
}

func (c *netNamespace) inside(args ...string) {
	c.t.Helper()
	c.ip(append([]string{"-n", c.space}, args...)...)
}

// serve runs a local server in the namespace and returns its address. A socket belongs to the namespace of
// its thread, so serve uses a separate thread that is not used again.
func (c *netNamespace) serve(handler http.HandlerFunc) string {
	c.t.Helper()
	made := make(chan error, 1)
	var ln net.Listener
	go func() {
		runtime.LockOSThread()
		ns, err := os.Open(filepath.Join("/var/run/netns", c.space))
		if err == nil {
			defer ns.Close()
			if err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err == nil {
				ln, err = net.Listen("tcp", "127.0.0.1:0")
			}
		}
		made <- err
	}()
	if err := <-made; err != nil {
		c.t.Fatalf("listen inside the namespace: %v", err)
	}
	srv := &http.Server{Handler: handler}
	go func() { _ = srv.Serve(ln) }()
	c.t.Cleanup(func() { srv.Close() })
	return ln.Addr().String()
}

// at returns an address with its host replaced.
func at(host, address string) string {
	_, port, _ := net.SplitHostPort(address)
	return net.JoinHostPort(host, port)
}

// relay starts a server that accepts tunnels from the namespace.
func (c *netNamespace) relay() *relayServer {
	c.t.Helper()
	r := newRelay(c.t, "", quickPulse...)
	r.ssh = at(c.near, r.ssh)
	// If a listener is not on loopback, the base site answers only requests with the host of RELAY_BASE_URL.
	r.extra = append(r.extra, "RELAY_BASE_URL=http://"+r.http)
	r.start()
	r.token = strings.TrimSpace(r.relayd("token", "add", "--user", "admin"))
	return r
}

// tunnel runs an ssh client inside the namespace, for a local server there.
func (c *netNamespace) tunnel(r *relayServer, alias, local string) {
	c.t.Helper()
	args := []string{"netns", "exec", c.space, "ssh", "-N", "-R", alias + ":80:" + local}
	r.client(alias, "ip", append(args, r.sshArgs()...)...)
}

// TestFaultCutNetwork cuts the line between an ssh client and the server, in both directions and in one.
// Neither side gets a FIN or RST, so relayd has to find out by itself. A request in progress is answered 502
// and its event becomes interrupted, the next request is queued, and a client from another address gets the
// alias at once. Nothing is left of the old connection.
func TestFaultCutNetwork(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(c *netNamespace){
		"pulled": func(c *netNamespace) { c.inside("link", "set", c.there, "down") },
		// The packets of relayd go to a link address that no card has; the packets of the client still
		// arrive.
		"deaf client": func(c *netNamespace) {
			c.ip("neigh", "replace", c.far, "lladdr", "02:00:00:00:00:99", "dev", c.here, "nud", "permanent")
		},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			c := newNetNamespace(t)
			r := c.relay()
			base := r.atRest()
			away := &holding{let: make(chan struct{})}
			c.tunnel(r, "cut-off", c.serve(away.serve))
			held := r.later("cut-off", "/hold")
			r.waitFor(5*time.Second, "the request to be under way", func() bool { return away.inside.Load() == 1 })
			cut(c)
			begun := time.Now()
			next := <-r.later("cut-off", "/next")
			under := <-held
			r.waitFor(30*time.Second, "the alias to be offline", func() bool { return !r.online("cut-off") })
			offline := time.Since(begun)
			begun = time.Now()
			other := newHolding(t)
			r.tunnel("cut-off", other.addr)
			taken := time.Since(begun)
			after, _, _ := r.through("cut-off", "/after", "x")
			state := r.event(under.event).State
			stuck := len(r.events("cut-off", "&state=delivering"))
			// The new tunnel adds goroutines and a descriptor.
			base.Goroutines, base.OpenFds = base.Goroutines+8, base.OpenFds+1
			now, ok := r.settled(base, 10, 5)
			figure(t, "line %s: offline after %v, under way answered %d after %v and %s, next %d after %v, taken over from another address after %v and answered %d; tunnels left %d, goroutines %d (before %d), descriptors %d (before %d)",
				name, offline.Round(100*time.Millisecond), under.status, under.took.Round(100*time.Millisecond), state, next.status, next.took.Round(100*time.Millisecond),
				taken.Round(10*time.Millisecond), after, now.Tunnels, now.Goroutines, base.Goroutines, now.OpenFds, base.OpenFds)
			if under.status != 502 || under.took > bound(6*time.Second) || state != "interrupted" || next.status != 202 || next.took > bound(4*time.Second) ||
				offline > bound(6*time.Second) || taken > bound(2*time.Second) || after != 200 || stuck > 0 || now.Tunnels != 1 || !ok {
				t.Errorf("under way %+v (%s), next %+v, offline %v, taken %v, after %+v, stuck %d, now %+v", under, state, next, offline, taken, after, stuck, now)
			}
		})
	}
}

// TestFaultNodesParted cuts the line between two nodes that both reach Postgres. Requests to the node without
// the tunnel are queued, and the node of the tunnel delivers them in order. When the line is back, requests
// are forwarded again without help.
func TestFaultNodesParted(t *testing.T) {
	t.Parallel()
	c := newNetNamespace(t)
	databaseURL := pgtest.URL(t) // through a Unix socket, which the cut does not affect
	a := newRelay(t, databaseURL, "RELAY_NODE_NAME=a")
	b := newRelay(t, databaseURL, "RELAY_NODE_NAME=b")
	a.ssh = at(c.near, a.ssh)
	b.ssh, b.http, b.admin = at(c.far, b.ssh), at(c.far, b.http), at(c.far, b.admin)
	b.key, b.runner = a.key, []string{"ip", "netns", "exec", c.space}
	for _, r := range []*relayServer{a, b} {
		r.extra = append(r.extra, "RELAY_PEER_ADDR="+r.ssh, "RELAY_BASE_URL=http://"+r.http)
		r.start()
	}
	a.token = strings.TrimSpace(a.relayd("token", "add", "--user", "admin"))
	b.token = a.token
	got := &arrivals{}
	c.tunnel(b, "asleep", c.serve(got.serve))
	a.knows("asleep")
	before := len(got.seen())
	c.inside("link", "set", c.there, "down")
	begun := time.Now()
	events := size(30, 200)
	for i := range events {
		if status, body, _ := a.call("asleep", queuePath(i), "x"); status != 202 {
			t.Fatalf("event %d was answered %d %s", i, status, body)
		}
	}
	queued := time.Since(begun)
	a.waitFor(30*time.Second, "the queue to be empty", func() bool { return len(a.events("asleep", "&state=delivered")) >= before+events })
	delivered := time.Since(begun)
	c.inside("link", "set", c.there, "up")
	begun = time.Now()
	back := a.since(begun, "requests to be forwarded again", func() bool { status, _, _ := a.call("asleep", "/back", "x"); return status == 200 })
	var order []string
	for _, path := range got.seen()[before:] {
		if path != "/back" {
			order = append(order, path)
		}
	}
	figure(t, "nodes parted by a pulled cable: %d requests queued after %v, all delivered by the node of the tunnel after %v; forwarded again %v after the cable was in",
		events, queued.Round(10*time.Millisecond), delivered.Round(10*time.Millisecond), back)
	for i := range events {
		if len(order) != events || order[i] != queuePath(i) {
			t.Fatalf("the local server got %d of %d requests, in this order: %v", len(order), events, order)
		}
	}
}
