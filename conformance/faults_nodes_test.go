package conformance

import (
	"database/sql"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"relay/relaytest"
	"relay/store/pgtest"
)

// threeNodes starts three relayd processes on one Postgres.
func threeNodes(t *testing.T, databaseURL string, extra ...string) (nodes [3]*relayServer) {
	t.Helper()
	nodes = newNodes(t, databaseURL, extra...)
	startNodes(t, nodes)
	return nodes
}

// newNodes is like threeNodes, without starting the servers.
func newNodes(t *testing.T, databaseURL string, extra ...string) (nodes [3]*relayServer) {
	t.Helper()
	for i, name := range []string{"a", "b", "c"} {
		nodes[i] = newRelay(t, databaseURL, append(extra[:len(extra):len(extra)], "RELAY_NODE_NAME="+name)...)
		nodes[i].key = nodes[0].key
	}
	return nodes
}

// startNodes starts nodes. The test calls all of them with one token, which the first node makes.
func startNodes(t *testing.T, nodes [3]*relayServer) {
	t.Helper()
	for i, r := range nodes {
		r.start()
		if i == 0 {
			r.token, _ = r.newToken(r.key)
		}
		r.token = nodes[0].token
	}
	for _, r := range nodes {
		r.waitFor(10*time.Second, "three nodes", func() bool { return r.metric("relay_store_nodes") == 3 })
	}
}

// knows waits until node r forwards requests to the tunnel of an alias at another node. After that, it
// empties the queue of the requests that came too early.
func (r *relayServer) knows(alias string) *relayServer {
	r.t.Helper()
	queued := false
	r.waitFor(5*time.Second, alias+" to be reached", func() bool {
		status, _, _ := r.call(alias, "/first", "x")
		queued = queued || status == 202
		return status == 200
	})
	if queued {
		r.must(202, "POST", "/aliases/"+alias+"/replay-queued", nil)
		r.waitFor(10*time.Second, "the queue to be empty", func() bool {
			return !r.has(alias, "&state=queued") && !r.has(alias, "&state=delivering")
		})
	}
	return r
}

// slowly makes senders pause, because they must not fill the queue while the alias is offline.
func slowly(l *load) { l.pause = size(200*time.Millisecond, 100*time.Millisecond) }

// swept returns the number of nodes that the given nodes have declared dead since their start, and the number
// of attempts of the dead nodes that they marked as interrupted.
func swept(nodes ...*relayServer) (dead, attempts float64) {
	for _, r := range nodes {
		dead += r.metric("relay_store_node_sweeps_total")
		attempts += r.metric("relay_store_node_swept_attempts_total")
	}
	return dead, attempts
}

// since polls until the function ok returns true. It returns the time from the parameter begun until then.
func (r *relayServer) since(begun time.Time, what string, ok func() bool) time.Duration {
	r.t.Helper()
	r.waitFor(60*time.Second, what, ok)
	return time.Since(begun).Round(10 * time.Millisecond)
}

// TestFaultNodeKilled kills the node with the tunnel, with senders at the other two nodes. Requests are
// queued within 5 s, attempts in progress are interrupted, and all answered requests are stored. When the
// node is back, the tunnel serves again.
func TestFaultNodeKilled(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.URL(t)
	nodes := threeNodes(t, databaseURL)
	a, b, c := nodes[0], nodes[1], nodes[2]
	h := newHolding(t)
	a.autossh("one", localServer(t))
	a.autossh("two", localServer(t))
	a.autossh("held", h.addr)
	loads := []*load{startLoad(b.knows("one"), "one", 4, slowly), startLoad(c.knows("two"), "two", 4, slowly)}
	var queued, back []time.Duration
	for range size(1, 9) {
		for _, l := range loads {
			l.more(20, 60*time.Second)
		}
		under, before := h.inside.Load(), len(a.events("held", "&state=interrupted"))
		go func() { _, _, _ = a.call("held", "/hold", "x") }()
		a.waitFor(10*time.Second, "a request to be under way", func() bool { return h.inside.Load() > under && b.has("held", "&state=delivering") })
		begun := time.Now()
		a.stop(syscall.SIGKILL)
		queued = append(queued, b.since(begun, "requests to be queued", func() bool { status, _, _ := b.call("one", "/queued", "x"); return status == 202 }))
		b.since(begun, "its attempt to be interrupted", func() bool { return len(b.events("held", "&state=interrupted")) > before })
		t.Logf("interrupted after %v", time.Since(begun))
		begun = time.Now()
		a.start()
		back = append(back, b.since(begun, "the tunnel to be back", func() bool { status, _, _ := b.call("one", "/back", "x"); return status == 200 }))
	}
	for _, l := range loads {
		l.more(20, 60*time.Second)
		l.end()
		l.r.must(202, "POST", "/aliases/"+l.alias+"/replay-queued", nil)
		l.r.waitFor(2*time.Minute, "the last requests to end and the queue to be delivered", func() bool {
			return !l.r.has(l.alias, "&state=delivering") && !l.r.has(l.alias, "&state=queued")
		})
		v := l.check(t)
		t.Logf("at %s: %v, by status %v", l.r.extra, v, l.codes)
		if !v.ok() {
			t.Errorf("at %s: %v; under way %+v", l.r.extra, v, l.r.events(l.alias, "&state=delivering"))
		}
	}
	slowest := quantile(queued, 1)
	figure(t, "kill -9 of the node with the tunnel: requests at another node queued after %v, the tunnel served again %v after its start", slowest, quantile(back, 1))
	if slowest > bound(5*time.Second) {
		t.Errorf("queued after %v", slowest)
	}
}

// stoodStill reports whether the machine stood still for two seconds or longer since a moment. A node may then be
// declared dead rightly, because it has sent no heartbeat for too long.
func stoodStill(since time.Time) bool {
	_, longest := relaytest.Slowdown(since)
	return longest >= 2*time.Second
}

// TestFaultNodesWithoutPostgres stops Postgres under three nodes. Both sub-tests need a machine that is otherwise rather
// idle: a node that gets no CPU could be declared dead, which they count as a failure unless the machine stood still.
func TestFaultNodesWithoutPostgres(t *testing.T) {
	for name, form := range map[string]func(*testing.T){"away": postgresAway, "comes and goes": postgresComesAndGoes} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			form(t)
		})
	}
}

// postgresAway stops Postgres under three nodes: requests continue, even at a node without the tunnel. When
// Postgres is back, no node is declared dead and no attempt was interrupted.
func postgresAway(t *testing.T) {
	db, databaseURL := ownPostgres(t)
	nodes := threeNodes(t, databaseURL)
	nodes[0].autossh("one", localServer(t))
	begun := time.Now()
	l := startLoad(nodes[1].knows("one"), "one", 4, slowly)
	l.more(20, 60*time.Second)
	db.Stop()
	<-time.After(size(6*time.Second, 10*time.Second))
	during := l.count()
	l.more(20, 60*time.Second)
	if err := db.Restart(); err != nil {
		t.Fatal(err)
	}
	for _, r := range nodes {
		r.waitFor(30*time.Second, "its spool to be stored", func() bool { return r.ready() == 200 && !r.degraded() && r.stats().SpoolBytes == 0 })
	}
	<-time.After(6 * time.Second) // longer than the time after which a node is declared dead
	l.more(20, 60*time.Second)
	l.end()
	v := l.check(t)
	dead, attempts := swept(nodes[:]...)
	interrupted := len(nodes[0].events("one", "&state=interrupted"))
	figure(t, "Postgres away under three nodes: %v, by status %v, nodes swept %v, attempts swept %v, interrupted %d", v, l.codes, dead, attempts, interrupted)
	if !v.ok() || dead+attempts+float64(interrupted) > 0 && !stoodStill(begun) || during == 0 {
		t.Errorf("%v, nodes swept %v, attempts swept %v, interrupted %d", v, dead, attempts, interrupted)
	}
}

// postgresComesAndGoes stops and starts Postgres every two seconds: no answered request is missing, and no
// node is declared dead.
func postgresComesAndGoes(t *testing.T) {
	db, databaseURL := ownPostgres(t)
	nodes := threeNodes(t, databaseURL)
	nodes[0].autossh("one", localServer(t))
	begun := time.Now()
	l := startLoad(nodes[1].knows("one"), "one", 4, slowly)
	l.more(20, 60*time.Second)
	for range size(3, 10) {
		db.Stop()
		<-time.After(2 * time.Second)
		if err := db.Restart(); err != nil {
			t.Fatal(err)
		}
		<-time.After(2 * time.Second)
	}
	for _, r := range nodes {
		r.waitFor(30*time.Second, "its spool to be stored", func() bool { return r.ready() == 200 && r.stats().SpoolBytes == 0 })
	}
	l.more(20, 60*time.Second)
	l.end()
	v := l.check(t)
	dead, attempts := swept(nodes[:]...)
	figure(t, "Postgres comes and goes every 2 s: %v, by status %v, nodes swept %v, attempts swept %v", v, l.codes, dead, attempts)
	if !v.ok() || dead+attempts > 0 && !stoodStill(begun) {
		t.Errorf("%v, nodes swept %v, attempts swept %v", v, dead, attempts)
	}
}

// TestFaultNodeFrozen stops the process of the node with the tunnel until the node is declared dead. When the
// process continues, it rejoins as a new node, and requests reach the tunnel again.
func TestFaultNodeFrozen(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.URL(t)
	nodes := threeNodes(t, databaseURL)
	a, b := nodes[0], nodes[1]
	a.autossh("one", localServer(t))
	l := startLoad(b.knows("one"), "one", 2, slowly)
	l.more(20, 60*time.Second)
	begun := time.Now()
	thaw := freeze(t, a.process.get().Cmd.Process.Pid)
	queued := b.since(begun, "requests to be queued", func() bool { status, _, _ := b.call("one", "/queued", "x"); return status == 202 })
	b.since(begun, "the node to be swept", func() bool { dead, _ := swept(b, nodes[2]); return dead > 0 })
	<-time.After(time.Until(begun.Add(10 * time.Second)))
	begun = time.Now()
	thaw()
	back := b.since(begun, "the tunnel to be back", func() bool { status, _, _ := b.call("one", "/back", "x"); return status == 200 })
	for _, r := range nodes {
		r.waitFor(10*time.Second, "three nodes again", func() bool { return r.metric("relay_store_nodes") == 3 })
	}
	l.end()
	v := l.check(t)
	figure(t, "a node frozen for 10 s: queued after %v, served again %v after it went on; %v", queued, back, v)
	if !v.ok() || queued > bound(5*time.Second) || !strings.Contains(a.log.String(), "it rejoined as a new node") {
		t.Errorf("queued after %v, %v", queued, v)
	}
}

// TestFaultNewerSchema: a relayd refuses a database with a newer schema, while running nodes continue.
func TestFaultNewerSchema(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.URL(t)
	r := startRelay(t, databaseURL)
	db, err := sql.Open("postgres", databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(`INSERT INTO goose_db_version (version_id, is_applied) VALUES (999, true)`); err != nil {
		t.Fatal(err)
	}
	late := newRelay(t, databaseURL)
	code, said := late.spawn().Code(t, 15*time.Second), late.log.String()
	if code != 1 || !strings.Contains(said, "newer") || r.ready() != 200 {
		t.Errorf("exit %d, the first is ready: %d, said %q", code, r.ready(), relaytest.Tail(said, 500))
	}
	r.waitFor(5*time.Second, "the first to say so", func() bool {
		return strings.Contains(r.fetch("http://"+r.http+"/readyz"), `"degraded":["schema"]`) && strings.Contains(r.log.String(), "newer relayd has changed the schema")
	})
}

// TestFaultIdleNodes: an idle node makes at most five transactions a second.
func TestFaultIdleNodes(t *testing.T) {
	t.Parallel()
	_, databaseURL := ownPostgres(t)
	nodes := float64(len(threeNodes(t, databaseURL)))
	db, err := sql.Open("postgres", databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	commits := func() (n int) {
		t.Helper()
		<-time.After(1500 * time.Millisecond) // Postgres updates its counters late
		if err := db.QueryRow(`SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	<-time.After(11 * time.Second) // Postgres counts the start of an idle session after 10 s
	before, begun := commits(), time.Now()
	<-time.After(size(10*time.Second, 30*time.Second))
	each := float64(commits()-before) / time.Since(begun).Seconds() / nodes
	figure(t, "transactions a second of an idle node: %.1f", each)
	if each > 5 {
		t.Errorf("%.1f transactions a second of an idle node", each)
	}
}

// TestFaultTwoNamesAlike: two nodes with the same configured name report the conflict and get different
// names.
func TestFaultTwoNamesAlike(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.URL(t)
	first := startRelay(t, databaseURL, "RELAY_NODE_NAME=same")
	second := newRelay(t, databaseURL, "RELAY_NODE_NAME=same")
	second.key, second.token = first.key, first.token
	second.start()
	if said := second.log.String(); !strings.Contains(said, "same-2") || !strings.Contains(said, "--node-name") {
		t.Errorf("the second said %s", relaytest.Tail(said, 1000))
	}
	for _, r := range []*relayServer{first, second} {
		status, body := r.api(http.MethodGet, "/nodes", nil)
		if status != 200 || !strings.Contains(string(body), `"same"`) || !strings.Contains(string(body), `"same-2"`) {
			t.Errorf("nodes: %d %s", status, body)
		}
	}
}
