package conformance

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"relay/relaytest"
	"relay/store/pgtest"
)

// randomNode is one of three nodes. The test can cut its connections to Postgres (database) and those of the
// other nodes to it (peers).
type randomNode struct {
	*relayServer
	database, peers *relaytest.Line
}

// nodeFaults are faults of a node. The function do causes the fault, and returns a function that ends it.
var nodeFaults = []struct {
	name string
	do   func(t *testing.T, n *randomNode) (mend func())
}{
	{"killed", func(t *testing.T, n *randomNode) func() {
		n.stop(syscall.SIGKILL)
		return n.start
	}},
	{"restarted", func(t *testing.T, n *randomNode) func() {
		n.stop(syscall.SIGTERM)
		return n.start
	}},
	{"frozen", func(t *testing.T, n *randomNode) func() { return freeze(t, n.process.get().Cmd.Process.Pid) }},
	{"without Postgres", func(t *testing.T, n *randomNode) func() {
		n.database.Hold()
		return n.database.Release
	}},
	{"cut off from the nodes", func(t *testing.T, n *randomNode) func() {
		n.peers.Hold()
		return n.peers.Release
	}},
}

// TestFaultRandomNodes causes random faults in one or two of three nodes at a time, while each node has
// senders of an alias whose tunnel moves from node to node. No answered request is missing, the nodes find
// each other again without help, and every queue is delivered. A request may arrive once for each of its
// attempts and once for each failed try of its sender, because a killed node may have forwarded a request
// that it had not stored. RELAY_RANDOM_NODES repeats the run with a given seed.
func TestFaultRandomNodes(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	if text := os.Getenv("RELAY_RANDOM_NODES"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("RELAY_RANDOM_NODES=%d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	nodes, servers := startRandomNodes(t)
	var loads []*load
	var locals []*arrivals
	moving, stopMoving := context.WithCancel(t.Context())
	var movers sync.WaitGroup
	t.Cleanup(func() { stopMoving(); movers.Wait() })
	for i, n := range nodes {
		alias, local := "at-"+string(rune('a'+i)), &arrivals{}
		n.alias(alias)
		target := serveLocal(t, local.serve)
		movers.Go(func() { moveTunnel(moving, servers, alias, target, rand.New(rand.NewPCG(seed, uint64(1+i)))) })
		n.knows(alias)
		locals = append(locals, local)
		loads = append(loads, startLoad(n.relayServer, alias, 3, func(l *load) { l.pause, l.retry = size(150*time.Millisecond, 50*time.Millisecond), true }))
	}
	steps := map[string]int{}
	for range size(2, 60) {
		for _, l := range loads {
			l.more(5, 60*time.Second)
		}
		var said []string
		var mends []func()
		for _, i := range rnd.Perm(3)[:1+rnd.IntN(2)] {
			fault := nodeFaults[rnd.IntN(len(nodeFaults))]
			said = append(said, "node "+string(rune('a'+i))+" "+fault.name)
			steps[fault.name]++
			mends = append(mends, fault.do(t, nodes[i]))
		}
		pause := time.Duration(rnd.IntN(8000)) * time.Millisecond
		t.Logf("%s for %v", strings.Join(said, ", "), pause)
		<-time.After(pause)
		for _, mend := range mends {
			mend()
		}
		for _, n := range nodes {
			n.waitFor(30*time.Second, "three nodes that serve", func() bool { return n.ready() == 200 && n.metric("relay_store_nodes") == 3 })
		}
	}
	answered, arrived := 0, 0
	for i, l := range loads {
		l.more(5, 60*time.Second)
		l.end()
		front := nodes[i].relayServer
		front.must(http.StatusAccepted, "POST", "/aliases/"+l.alias+"/replay-queued", nil)
		front.waitFor(2*time.Minute, "the queue to be delivered", func() bool {
			return !front.has(l.alias, "&state=delivering") && !front.has(l.alias, "&state=queued")
		})
		v := l.check(t)
		if answered += v.answered; !v.ok() {
			t.Errorf("seed %d, at node %s: %v, by status %v", seed, l.alias, v, l.codes)
		}
		arrived += l.countArrivals(t, locals[i])
	}
	figure(t, "random faults of nodes, seed %d, steps %v: answered %d, arrived %d, missing 0", seed, steps, answered, arrived)
}

func startRandomNodes(t *testing.T) (nodes [3]*randomNode, servers [3]*relayServer) {
	databaseURL := pgtest.URL(t)
	servers = newNodes(t, databaseURL)
	for i, r := range servers {
		nodes[i] = &randomNode{relayServer: r, peers: relaytest.NewLine(t, "tcp", r.ssh)}
		nodes[i].database, r.database = postgresLine(t, databaseURL)
		r.extra = append(r.extra, "RELAY_PEER_ADDR="+nodes[i].peers.Addr)
	}
	startNodes(t, servers)
	return nodes, servers
}

// moveTunnel moves the tunnel of an alias from node to node, for some seconds each.
func moveTunnel(ctx context.Context, nodes [3]*relayServer, alias, target string, rnd *rand.Rand) {
	for ctx.Err() == nil {
		r := nodes[rnd.IntN(len(nodes))]
		stay, end := context.WithTimeout(ctx, time.Duration(2000+rnd.IntN(8000))*time.Millisecond)
		args := append([]string{"-N", "-o", "ServerAliveInterval=1", "-o", "ServerAliveCountMax=2", "-o", "ConnectTimeout=2", "-R", alias + ":80:" + target}, r.sshArgs()...)
		_ = exec.CommandContext(stay, "ssh", args...).Run()
		end()
		wait(ctx, 50*time.Millisecond)
	}
}

// countArrivals returns the number of requests that arrived at a local server more often than the attempts of
// their events and the failed tries of their senders explain.
func (l *load) countArrivals(t *testing.T, local *arrivals) int {
	t.Helper()
	arrived, events := map[string]int{}, map[string][]string{}
	for _, path := range local.seen() {
		arrived[path]++
	}
	for _, e := range l.r.events(l.alias, "") {
		events[e.Path] = append(events[e.Path], e.ID)
	}
	for path, n := range arrived {
		if n <= len(events[path]) {
			continue // each event has an attempt that explains one arrival
		}
		var attempts []string
		for _, id := range events[path] {
			for _, a := range l.r.event(id).Attempts {
				attempts = append(attempts, fmt.Sprintf("%s %d %s", id, a.Number, a.State))
			}
		}
		if vain := l.vain[path]; n > len(attempts)+vain {
			t.Errorf("%s%s arrived %d times, with %d vain tries of its sender and the attempts %q", l.alias, path, n, vain, attempts)
		}
	}
	return len(local.seen())
}
