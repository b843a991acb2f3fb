package conformance

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestFaultDiskFull fills the disk of the data dir under load. Callers get 503, no answered request is
// missing, and relayd recovers without a restart when space is free again.
func TestFaultDiskFull(t *testing.T) {
	t.Parallel()
	// After a full disk, relayd stores again only when 16 MiB are free. So the disk must hold these and the
	// events.
	disk := smallDisk(t, 128<<20)
	r := startRelay(t, "", "RELAY_DATA_DIR="+disk, "RELAY_MIN_FREE=0")
	r.autossh("disk", localServer(t))
	l := startLoad(r, "disk", 8, func(l *load) { l.pause = 2 * time.Millisecond })
	rounds := size(1, 3)
	var red, back time.Duration
	for range rounds {
		l.more(300, 30*time.Second)
		free := fill(t, disk, 2<<20) // relayd fills the rest
		l.waitFor503(60 * time.Second)
		begun := time.Now()
		r.waitFor(10*time.Second, "/readyz to say so", func() bool { return r.ready() == 503 })
		red = max(red, time.Since(begun))
		free()
		back = max(back, l.recovery(time.Now()))
	}
	l.end()
	v := l.check(t)
	figure(t, "disk full x%d: %v, /readyz red after %v, full service after %v, longest wait %v, by status %v, without answer %d",
		rounds, v, red.Round(100*time.Millisecond), back.Round(100*time.Millisecond), l.longest.Round(10*time.Millisecond), l.codes, l.broken)
	if !v.ok() || l.noRetry > 0 || red > bound(5*time.Second) || back > bound(5*time.Second) || l.longest > bound(outageAnswer) {
		t.Errorf("a full disk: %v, without Retry-After %d, red %v, back %v, longest wait %v", v, l.noRetry, red, back, l.longest)
	}
	if log := strings.ToLower(r.log.String()); !strings.Contains(log, "full") && !strings.Contains(log, "space") {
		t.Error("the log does not say that the disk is full")
	}
}

// waitFor503 waits until a further request is answered with 503.
func (l *load) waitFor503(limit time.Duration) {
	l.r.t.Helper()
	before := l.code(503)
	l.r.waitFor(limit, "a 503", func() bool { return l.code(503) > before })
}

// smallDisk mounts an empty file system of the given size.
func smallDisk(t *testing.T, bytes int) string {
	t.Helper()
	needRoot(t, "a small tmpfs")
	dir := t.TempDir()
	if err := syscall.Mount("relay-faults", dir, "tmpfs", 0, "mode=0700,size="+strconv.Itoa(bytes)); err != nil {
		t.Fatalf("mount a small tmpfs: %v; the test %s", err, needs(t, "a small tmpfs"))
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return dir
}

// fill fills a disk until only leave bytes are free. The returned function frees the space again.
func fill(t *testing.T, disk string, leave int64) (free func()) {
	t.Helper()
	var st syscall.Statfs_t
	if err := syscall.Statfs(disk, &st); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(disk, "ballast")
	if n := int64(st.Bavail)*st.Bsize - leave; n > 0 {
		// The write fails if relayd has used some of the space in the meantime. The disk is full in that case,
		// too.
		if err := os.WriteFile(file, make([]byte, n), 0o600); err != nil && !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("fill the disk: %v", err)
		}
	}
	return func() { _ = os.Remove(file) }
}
