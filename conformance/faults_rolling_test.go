package conformance

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"relay/relaytest"
	"relay/store/pgtest"
)

// TestFaultNodesRestartedInTurn stops and starts three nodes one after another, with senders that retry and
// two kinds of clients. No answered request is missing, and no sender needs three tries. The alias of relay
// up is never offline, so none of its events waits for a release.
func TestFaultNodesRestartedInTurn(t *testing.T) {
	t.Parallel()
	hostKey := filepath.Join(t.TempDir(), "host_key")
	relaytest.WriteKey(t, hostKey)
	nodes := threeNodes(t, pgtest.URL(t), "RELAY_SSH_HOST_KEY="+hostKey, "RELAY_TRUSTED_PROXIES="+proxySource+"/32")
	front := behindHAProxy(t, nodes)
	up := front.client("moves", relaytest.Program(t, "relay"), "up", "--server", front.ssh, "--identity", front.key,
		"--target", "http://"+localServer(t), "--alias", "moves")
	front.autossh("plain", localServer(t))
	for _, r := range nodes {
		r.knows("moves").knows("plain")
	}
	tune := func(l *load) { l.pause, l.retry = size(200*time.Millisecond, 10*time.Millisecond), true }
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
			<-time.After(2 * time.Second) // the time until HAProxy sends requests to the node again
		}
	}
	for _, l := range loads {
		l.more(20, 60*time.Second)
		l.end()
		front.waitFor(20*time.Second, "the last requests to end", func() bool { return !front.has(l.alias, "&state=delivering") })
		v := l.check(t)
		figure(t, "rolling restart of three nodes, alias %s: %v, by status %v, without answer %d, most tries %d; longest stop %v",
			l.alias, v, l.codes, l.broken, l.mostTries, quantile(stops, 1).Round(10*time.Millisecond))
		if !v.ok() || l.mostTries > 2 {
			t.Errorf("%s: %v, tries %d", l.alias, v, l.mostTries)
		}
	}
	// A request that comes at the moment when the tunnel moves to another node is queued, and delivered at
	// once. Other requests may stay queued: they came before the load, at a node that did not know the tunnel
	// yet.
	relaytest.Poll(20*time.Second, func() bool { return !front.has("moves", "&state=queued&path=/load") })
	for _, e := range front.events("moves", "&state=queued&path=/load") {
		_, body := front.api("GET", "/events/"+e.ID, nil)
		t.Errorf("left in the queue: %.3000s", body)
	}
	if up.HasEnded() || strings.Contains(up.Out.String(), "lost") {
		t.Errorf("relay up says %s", up.Out)
	}
}
