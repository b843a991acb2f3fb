package conformance

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"relay/relaytest"
	"relay/store/pgtest"
)

// proxyAddress is the address from which HAProxy connects to the nodes.
const proxyAddress = "127.0.0.2"

// behindDeployedHAProxy runs HAProxy as deploy/haproxy/haproxy.cfg has it, in front of nodes, and
// gives the nodes as they are seen through it.
func behindDeployedHAProxy(t *testing.T, nodes [3]*relayServer) *relayServer {
	t.Helper()
	text, err := os.ReadFile("../deploy/haproxy/haproxy.cfg")
	if err != nil {
		t.Fatal(err)
	}
	front := *nodes[0]
	front.http, front.ssh, front.process = relaytest.FreeAddr(t), relaytest.FreeAddr(t), &running{}
	change := []string{
		"maxconn 20000", "maxconn 2000",
		"bind :8080", "bind " + front.http, "bind :2222", "bind " + front.ssh,
		"resolvers docker init-addr last,libc,none", "source " + proxyAddress,
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
		program = "/usr/sbin/haproxy" // not in the path of everybody
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

// TestFaultNodesRestartedInTurn stops and starts three nodes one after the other, under senders that try
// again and two kinds of clients. Nothing answered is missing, nobody has to try three times, and
// the alias of relay up is never offline: nothing of it waits for somebody.
func TestFaultNodesRestartedInTurn(t *testing.T) {
	t.Parallel()
	hostKey := filepath.Join(t.TempDir(), "host_key")
	relaytest.WriteKey(t, hostKey)
	nodes := threeNodes(t, pgtest.URL(t), "RELAY_SSH_HOST_KEY="+hostKey, "RELAY_TRUSTED_PROXIES="+proxyAddress+"/32")
	front := behindDeployedHAProxy(t, nodes)
	up := front.client("moves", relaytest.Program(t, "relay"), "up", "--server", front.ssh, "--identity", front.key,
		"--target", "http://"+localServer(t), "--alias", "moves")
	front.autossh("plain", localServer(t))
	for _, r := range nodes {
		r.knows("moves").knows("plain")
	}
	tune := func(l *load) { l.pause, l.retry = size(100*time.Millisecond, 10*time.Millisecond), true }
	loads := []*load{startLoad(front, "moves", size(4, 16), tune), startLoad(front, "plain", size(4, 16), tune)}
	var stops []time.Duration
	for range size(1, 3) {
		for _, r := range nodes {
			for _, l := range loads {
				l.more(20, 60*time.Second)
			}
			begun := time.Now()
			r.stop(syscall.SIGTERM)
			stops = append(stops, time.Since(begun))
			if code := r.exit(); code != 0 {
				t.Errorf("a node ended with %d", code)
			}
			r.start()
			r.waitFor(10*time.Second, "three nodes again", func() bool { return r.metric("relay_store_nodes") == 3 })
			<-time.After(2 * time.Second) // HAProxy sends it work again
		}
	}
	for _, l := range loads {
		l.more(20, 60*time.Second)
		l.end()
		front.waitFor(20*time.Second, "the last requests to end", func() bool { return len(front.events(l.alias, "&state=delivering")) == 0 })
		v := l.check(t)
		figure(t, "rolling restart of three nodes, alias %s: %v, by status %v, without answer %d, most tries %d; longest stop %v",
			l.alias, v, l.codes, l.broken, l.mostTries, quantile(stops, 1).Round(10*time.Millisecond))
		if !v.ok() || l.mostTries > 2 {
			t.Errorf("%s: %v, tries %d", l.alias, v, l.mostTries)
		}
	}
	// What met a tunnel in the moment of its move is queued, and delivered at once.
	front.waitFor(20*time.Second, "all events of relay up to be delivered", func() bool { return len(front.events("moves", "&state=queued")) == 0 })
	if up.HasEnded() || strings.Contains(up.Out.String(), "lost") {
		t.Errorf("relay up says %s", up.Out)
	}
}
