package conformance

import (
	"net"
	"testing"
	"time"
)

// twoNodes starts two relayd on one Postgres.
func twoNodes(t *testing.T, extra ...string) (a, b *relayServer) {
	t.Helper()
	_, databaseURL := ownPostgres(t)
	a = newRelay(t, databaseURL, append(extra[:len(extra):len(extra)], "RELAY_NODE_NAME=a")...)
	b = newRelay(t, databaseURL, append(extra[:len(extra):len(extra)], "RELAY_NODE_NAME=b")...)
	b.key = a.key
	a.start()
	a.token, _ = a.newToken(a.key)
	b.token = a.token
	return a, b
}

// TestNodesReachEachOtherAtTheLimit: clients have all connections of a node, and strangers say
// that they are nodes. A node that starts then reaches the tunnels there all the same.
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

// TestDrainedNodeSaysSo: who drains a node or lets it serve again may go by it when the command
// returns. That of a node without tunnels returned up to a second before the node knew.
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
