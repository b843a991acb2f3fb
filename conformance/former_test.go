//go:build former

package conformance

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"relay/relaytest"
	"relay/store/pgtest"
)

// TestVersionsSideBySide replaces three nodes of the previous version (the program in RELAY_FORMER) one by
// one by nodes of this version, under load. While both versions serve, a node of each version forwards
// requests to tunnels at the other version and delivers events that the other version queued, and an alias
// moves between them. scripts/versions runs the test.
func TestVersionsSideBySide(t *testing.T) {
	former := os.Getenv("RELAY_FORMER")
	if former == "" {
		t.Fatal("RELAY_FORMER names no program; run scripts/versions")
	}
	hostKey := filepath.Join(t.TempDir(), "host_key")
	relaytest.WriteKey(t, hostKey)
	nodes := newNodes(t, pgtest.URL(t), "RELAY_SSH_HOST_KEY="+hostKey, "RELAY_TRUSTED_PROXIES="+proxySource+"/32")
	for _, r := range nodes {
		r.program = former
	}
	startNodes(t, nodes)
	front := behindHAProxy(t, nodes)
	front.autossh("plain", localServer(t))
	for _, r := range nodes {
		r.knows("plain")
	}
	l := startLoad(front, "plain", size(4, 16), func(l *load) { l.pause, l.retry = 10*time.Millisecond, true })
	l.more(50, 60*time.Second)
	for i, r := range nodes {
		r.stop(syscall.SIGTERM)
		r.program = ""
		r.start()
		r.waitFor(10*time.Second, "three nodes again", func() bool { return r.metric("relay_store_nodes") == 3 })
		if i < len(nodes)-1 {
			eachOther(t, r, nodes[len(nodes)-1])
		}
		l.more(50, 60*time.Second)
	}
	l.end()
	front.waitFor(20*time.Second, "the last requests to end", func() bool { return !front.has("plain", "&state=delivering") })
	v := l.check(t)
	figure(t, "three nodes of the version before replaced in turn: %v, by status %v, without answer %d, most tries %d", v, l.codes, l.broken, l.mostTries)
	if !v.ok() || l.mostTries > 2 {
		t.Errorf("%v, tries %d", v, l.mostTries)
	}
}

// eachOther checks in both directions: a request is queued at a node of one version and delivered through a
// tunnel at the other version. Then the alias moves to a tunnel at each version, and both nodes reach it
// there.
func eachOther(t *testing.T, newer, older *relayServer) {
	t.Helper()
	older.waitFor(10*time.Second, "the older one to see the newer schema", func() bool {
		return strings.Contains(older.fetch("http://"+older.http+"/readyz"), `"schema"`)
	})
	for _, way := range []struct {
		alias    string
		from, to *relayServer
	}{
		{"up-" + filepath.Base(newer.dir), newer, older},
		{"down-" + filepath.Base(newer.dir), older, newer},
	} {
		// The request at way.from is queued until a tunnel opens at way.to.
		way.from.alias(way.alias)
		if status, body, _ := way.from.call(way.alias, "/queued", "x"); status != 202 {
			t.Errorf("%s offline: answered %d %s", way.alias, status, body)
		}
		way.to.tunnel(way.alias, localServer(t))
		way.from.knows(way.alias)
		way.from.must(202, "POST", "/aliases/"+way.alias+"/replay-queued", nil)
		way.from.waitFor(20*time.Second, "the queue to be delivered", func() bool {
			return len(way.from.events(way.alias, "&state=delivered&path=/queued")) == 1
		})
		// The alias moves to the other node and back.
		for _, r := range []*relayServer{way.from, way.to} {
			r.tunnel(way.alias, localServer(t))
			for _, at := range []*relayServer{newer, older} {
				at.knows(way.alias)
			}
		}
	}
}
