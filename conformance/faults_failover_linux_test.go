package conformance

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"relay/relaytest"
	"relay/store/pgtest"
)

// TestFaultFailover disconnects three nodes from their Postgres and redirects them to a replica, which
// accepts no writes until it is promoted. Requests continue at the node of the tunnel and at another node.
// All answered requests are in the new primary, and no node was declared dead.
func TestFaultFailover(t *testing.T) {
	t.Parallel()
	d := newDBA(t)
	// A cleanup that runs later drops tables. The commit of the drop must not wait for the replica, which has
	// ended by then.
	t.Cleanup(func() {
		if err := d.pg.Restart(); err != nil {
			t.Error(err)
			return
		}
		d.do(`ALTER SYSTEM RESET synchronous_standby_names`, `SELECT pg_reload_conf()`)
	})
	replica := d.replicate()
	front, through := postgresLine(t, d.url())
	nodes := threeNodes(t, through)
	begun := time.Now()
	r := nodes[0]
	r.autossh("failover", localServer(t))
	var loads []*load
	for _, node := range nodes[:2] {
		loads = append(loads, startLoad(node.knows("failover"), "failover", 4, evenly))
	}
	for _, l := range loads {
		l.more(size(20, 50), 30*time.Second)
	}
	relaytest.Until(t, 20*time.Second, "the replica to be in step", func() bool {
		return d.count(`SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'`) == 1
	})
	// The redirection comes before the end of the sessions, because no node may reconnect to the primary.
	front.Lead("unix", postgresSocket(replica.socket))
	d.do(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '` + appRole + `'`)
	refused := size(2*time.Second, 10*time.Second)
	<-time.After(refused)
	degraded := r.degraded()
	relaytest.Until(t, 20*time.Second, "the replica to have all that was committed", func() bool {
		return d.count(`SELECT count(*) FROM pg_stat_replication WHERE replay_lsn >= pg_current_wal_lsn()`) == 1
	})
	if err := d.pg.Kill(); err != nil {
		t.Fatal(err)
	}
	replica.promote()
	promoted := time.Now()
	for _, node := range nodes {
		node.waitFor(60*time.Second, "the spool to be empty", func() bool { return node.stats().SpoolBytes == 0 && node.ready() == 200 && !node.degraded() })
	}
	back := time.Since(promoted)
	<-time.After(6 * time.Second) // longer than the time after which a node is declared dead
	for _, l := range loads {
		l.more(size(20, 50), 30*time.Second)
		l.end()
	}
	r.waitFor(20*time.Second, "the last requests to end", func() bool { return !r.has("failover", "&state=delivering") })
	dead, attempts := swept(nodes[:]...)
	interrupted := len(r.events("failover", "&state=interrupted"))
	for i, l := range loads {
		v := l.check(t)
		figure(t, "led to a replica for %v, which was then promoted, %d nodes from the tunnel: %v, by status %v, without answer %d, longest wait %v; degraded %v, all spools stored after %v, nodes swept %v, attempts swept %v, interrupted %d",
			refused, i, v, l.codes, l.broken, l.longest.Round(10*time.Millisecond), degraded, back.Round(100*time.Millisecond), dead, attempts, interrupted)
		if !v.ok() || l.codes[503] > 0 || l.broken > 0 || l.longest > bound(outageAnswer) || !degraded || back > bound(10*time.Second) {
			t.Errorf("%v, by status %v, degraded %v, back after %v", v, l.codes, degraded, back)
		}
	}
	if dead+attempts > 0 && !stoodStill(begun) {
		t.Errorf("nodes swept %v, attempts swept %v", dead, attempts)
	}
	for _, node := range nodes {
		if left, _ := filepath.Glob(filepath.Join(node.dir, "data", "*refused*")); len(left) > 0 {
			t.Errorf("given up: %v", left)
		}
	}
}

// replica is a hot standby of a Postgres server.
type replica struct {
	t      *testing.T
	socket string
}

// replicate starts a hot standby, and makes the primary wait for the standby at each commit.
func (d *dba) replicate() *replica {
	d.t.Helper()
	dir, err := os.MkdirTemp("/tmp", "relay-replica")
	if err != nil {
		d.t.Fatal(err)
	}
	var as *syscall.Credential
	if os.Getuid() == 0 {
		as = unprivileged(d.t)
		if err := os.Chown(dir, int(as.Uid), int(as.Gid)); err != nil {
			d.t.Fatal(err)
		}
	}
	run := func(name string, args ...string) *exec.Cmd {
		cmd := exec.Command(pgtest.Program(d.t, name), args...)
		cmd.Dir, cmd.SysProcAttr = dir, &syscall.SysProcAttr{Setpgid: true, Credential: as, Pdeathsig: syscall.SIGINT}
		return cmd
	}
	data := filepath.Join(dir, "data")
	source := fmt.Sprintf("host=%s user=relay application_name=replica", d.socket)
	if out, err := run("pg_basebackup", "-D", data, "-d", source, "-R", "-c", "fast", "--no-sync").CombinedOutput(); err != nil {
		d.t.Fatalf("pg_basebackup: %v\n%s", err, out)
	}
	server, log := run("postgres", "-D", data, "-k", dir, "-c", "listen_addresses=", "-c", "max_connections=1000", "-c", "shared_buffers=64MB"), &relaytest.Buffer{}
	server.Stdout, server.Stderr = log, log
	if err := server.Start(); err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGINT)
		_ = server.Wait()
		_ = os.RemoveAll(dir)
		if d.t.Failed() {
			d.t.Logf("log of the replica:\n%s", relaytest.Tail(log.String(), 2000))
		}
	})
	d.do(`ALTER SYSTEM SET synchronous_standby_names = 'replica'`, `SELECT pg_reload_conf()`)
	return &replica{d.t, dir}
}

// promote makes the standby a primary.
func (r *replica) promote() {
	r.t.Helper()
	of := &dba{t: r.t, socket: r.socket}
	of.open("app")
	of.do(`ALTER SYSTEM SET synchronous_standby_names = ''`, `SELECT pg_promote()`)
}
