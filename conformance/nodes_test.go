package conformance

import (
	"net"
	"syscall"
	"testing"
	"time"

	"relay/store/pgtest"
)

// twoNodes starts two relayd processes on one Postgres.
func twoNodes(t *testing.T, extra ...string) (a, b *relayServer) {
	t.Helper()
	databaseURL := pgtest.URL(t)
	a = newRelay(t, databaseURL, append(extra[:len(extra):len(extra)], "RELAY_NODE_NAME=a")...)
	b = newRelay(t, databaseURL, append(extra[:len(extra):len(extra)], "RELAY_NODE_NAME=b")...)
	b.key = a.key
	a.start()
	a.token, _ = a.newToken(a.key)
	b.token = a.token
	return a, b
}

// TestNodesReachEachOtherAtTheLimit: clients have as many connections to a node as its limit allows, and
// attackers claim to be nodes. A new node still reaches the tunnels of that node.
func TestNodesReachEachOtherAtTheLimit(t *testing.T) {
	t.Parallel()
	a, b := twoNodes(t, "RELAY_MAX_CONNECTIONS=3", "RELAY_MAX_CONNECTIONS_PER_SOURCE=3")
	aliases := []string{"n1", "n2", "n3"}
	for _, alias := range aliases {
		a.tunnel(alias, says(t, alias))
	}
	for range 100 {
		c, err := net.Dial("tcp", a.ssh)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = c.Write([]byte("SSH-2.0-relayd-peer\r\n"))
	}
	b.start()
	for _, alias := range aliases {
		b.waitFor(10*time.Second, alias+" to be reached", func() bool {
			status, body, _ := b.call(alias, "/", "x")
			return status == 200 && body == alias
		})
	}
	if n := a.metric(`relay_sshgate_connections{state="logged_in"}`); n != 3 {
		t.Errorf("%v clients are logged in", n)
	}
	if n := a.metric(`relay_sshgate_connections{state="handshaking"}`); n != 0 {
		t.Errorf("nodes count as %v clients that have not logged in", n)
	}
}

// TestDrainedNodeSaysSo: when the command that starts or ends a drain returns, the node has started or ended
// it, even if the node has no tunnels.
func TestDrainedNodeSaysSo(t *testing.T) {
	t.Parallel()
	a, b := twoNodes(t)
	b.start()
	b.waitFor(10*time.Second, "two nodes", func() bool { return b.metric("relay_store_nodes") == 2 })
	for range 3 {
		a.relayd("node", "drain", "b")
		if status := b.ready(); status != 503 {
			t.Errorf("drained, and /readyz is %d", status)
		}
		a.relayd("node", "resume", "b")
		if status := b.ready(); status != 200 {
			t.Errorf("resumed, and /readyz is %d", status)
		}
	}
}

// TestEventsAfterTheDeathOfANode: a request that arrives after the death of the tunnel's node is queued,
// whether or not the node that got the request knows of the death. When the alias is online again, the
// request stays queued until a release.
func TestEventsAfterTheDeathOfANode(t *testing.T) {
	t.Parallel()
	for name, early := range map[string]bool{"back before the node is called dead": true, "back afterwards": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := twoNodes(t)
			b.start()
			a.tunnel("waits", says(t, "x"))
			b.knows("waits")
			before := b.tunnelSince("waits")
			a.stop(syscall.SIGKILL)
			sent := 0
			send := func() {
				if status, body, _ := b.call("waits", "/dead", "x"); status != 202 {
					t.Errorf("answered %d %s", status, body)
				}
				sent++
			}
			for range 3 {
				send()
			}
			if !early {
				b.waitFor(20*time.Second, "the alias to be offline", func() bool { send(); return b.state("waits") == "offline" })
			}
			b.runs(t, "ssh", append([]string{"-N", "-R", "waits:80:" + says(t, "y")}, b.sshArgs()...)...)
			b.waitFor(20*time.Second, "the new tunnel", func() bool {
				since := b.tunnelSince("waits")
				return since != "" && since != before && b.online("waits")
			})
			if status, body, _ := b.call("waits", "/", "x"); status != 200 || body != "y" {
				t.Errorf("answered %d %s", status, body)
			}
			b.waitFor(10*time.Second, "nothing to be under way", func() bool { return !b.has("waits", "&state=delivering") })
			if n := len(b.events("waits", "&state=queued")); n != sent {
				t.Errorf("%d of %d events wait", n, sent)
			}
			// The store learns a moment later of the new tunnel, and that what came before it has to wait.
			b.waitFor(10*time.Second, "the events to wait for a release", func() bool {
				var alias struct{ QueuedEvents int }
				b.decode(b.must(200, "GET", "/aliases/waits", nil), &alias)
				return alias.QueuedEvents == sent
			})
			var released struct{ Released int }
			b.decode(b.must(202, "POST", "/aliases/waits/replay-queued", nil), &released)
			if released.Released != sent {
				t.Errorf("released %d of %d", released.Released, sent)
			}
		})
	}
}
