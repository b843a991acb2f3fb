package conformance

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"relay/relaytest"
)

// TestFaultPostgresDiskFull fills the disk of Postgres under load. Callers get 503, and no answered request
// is missing. The log names the full disk in at most 20 lines, and relayd recovers when space is free again.
func TestFaultPostgresDiskFull(t *testing.T) {
	t.Parallel()
	d := newDBA(t)
	disk := d.smallDisk(48 << 20)
	d.do(`CREATE TABLESPACE small LOCATION '`+disk+`'`, `GRANT CREATE ON TABLESPACE small TO `+appRole,
		`ALTER ROLE `+appRole+` SET default_tablespace = small`)
	r := startRelay(t, d.url())
	r.autossh("disk", localServer(t))
	l := startLoad(r, "disk", 4, evenly)
	var back time.Duration
	lines := 0
	for range size(1, 3) {
		l.more(100, 30*time.Second)
		logged := len(r.log.String())
		free := fill(t, disk, 0)
		l.waitFor503(8 * time.Second)
		<-time.After(size(2*time.Second, 10*time.Second))
		free()
		back = max(back, l.recovery(time.Now()))
		said := withoutRequests(r.log.String()[logged:])
		lines = max(lines, strings.Count(said, "\n"))
		if !strings.Contains(said, "disk of postgres") {
			t.Errorf("the log does not say what to do: %s", relaytest.Tail(said, 1000))
		}
	}
	l.end()
	r.waitFor(60*time.Second, "the spool to be empty", func() bool { return r.stats().SpoolBytes == 0 && r.ready() == 200 })
	v := l.check(t)
	figure(t, "%v, by status %v, without answer %d, longest wait %v, back after %v, at most %d lines in the log",
		v, l.codes, l.broken, l.longest.Round(10*time.Millisecond), back.Round(100*time.Millisecond), lines)
	if !v.ok() || l.noRetry > 0 || l.longest > bound(outageAnswer) || back > bound(5*time.Second) || lines > 20 {
		t.Errorf("%v, without Retry-After %d, longest wait %v, back %v, %d lines in the log", v, l.noRetry, l.longest, back, lines)
	}
}

// smallDisk mounts an empty file system that Postgres may use.
func (d *dba) smallDisk(bytes int) string {
	d.t.Helper()
	needRoot(d.t, "a small tmpfs")
	dir, err := os.MkdirTemp("/tmp", "relay-disk")
	if err != nil {
		d.t.Fatal(err)
	}
	as := unprivileged(d.t)
	if err := syscall.Mount("relay-faults", dir, "tmpfs", 0, fmt.Sprintf("mode=0700,size=%d,uid=%d,gid=%d", bytes, as.Uid, as.Gid)); err != nil {
		d.t.Fatalf("mount a small tmpfs: %v; the test %s", err, needs(d.t, "a small tmpfs"))
	}
	d.t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			d.t.Errorf("unmount: %v", err)
		}
		_ = os.Remove(dir)
	})
	return dir
}
