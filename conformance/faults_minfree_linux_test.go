package conformance

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestFaultMinFree leaves less free space on the data disk than --min-free. Callers get 503 storage-full
// before a byte is forwarded. When more space is free again, relayd recovers without a restart.
func TestFaultMinFree(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, 64<<20)
	r := startRelay(t, "", "RELAY_DATA_DIR="+disk, "RELAY_MIN_FREE=16MiB")
	var forwarded atomic.Int32
	r.tunnel("tight", serveLocal(t, func(http.ResponseWriter, *http.Request) { forwarded.Add(1) }))
	if status, body, _ := r.call("tight", "/before", "x"); status != 200 {
		t.Fatalf("answered %d %s", status, body)
	}
	free := fill(t, disk, 15<<20)
	begun := time.Now()
	r.waitFor(10*time.Second, "/readyz to say so", func() bool { return r.ready() == 503 })
	red, before := time.Since(begun), forwarded.Load()
	full, retry := 0, 0
	for range 20 {
		status, _, header := r.call("tight", "/full", strings.Repeat("x", 10<<10))
		if status == 503 && header.Get("Relay-Error") == "storage-full" {
			full++
		}
		if header.Get("Retry-After") != "" {
			retry++
		}
	}
	leaked := forwarded.Load() - before
	free()
	begun = time.Now()
	r.waitFor(10*time.Second, "full service", func() bool {
		status, _, _ := r.call("tight", "/after", "x")
		return status == 200 && r.ready() == 200
	})
	back := time.Since(begun)
	figure(t, "less than --min-free: /readyz red after %v, %d of 20 told storage-full, forwarded all the same %d, full service %v after there was room",
		red.Round(100*time.Millisecond), full, leaked, back.Round(100*time.Millisecond))
	if full != 20 || retry != 20 || leaked != 0 || red > bound(5*time.Second) || back > bound(5*time.Second) {
		t.Errorf("told %d, Retry-After %d, forwarded %d, red %v, back %v", full, retry, leaked, red, back)
	}
}
