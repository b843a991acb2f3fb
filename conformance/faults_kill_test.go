package conformance

import (
	"context"
	"syscall"
	"testing"
	"time"
)

// TestFaultKillRelay kills relayd again and again under load. Whatever was
// answered is stored with equal bytes, and nothing stays delivering.
func TestFaultKillRelay(t *testing.T) {
	stores(t, func(t *testing.T, databaseURL string) {
		kills, between := size(2, 20), size(100, 1100)
		r := newRig(t, databaseURL)
		r.autossh("crash", localServer(t))
		l := startLoad(r, "crash", size(8, 32), func(l *load) { l.compare = 100_000 })
		for range kills {
			l.more(between, 60*time.Second)
			r.stop(syscall.SIGKILL)
			r.start()
		}
		l.more(between, 60*time.Second)
		l.end()
		r.stop(syscall.SIGKILL)
		r.start()
		v := l.check(t)
		figure(t, "kill -9 of relayd x%d: %v; by status %v", kills+1, v, l.codes)
		if !v.ok() || v.answered < kills*between {
			t.Errorf("after %d kills: %v", kills+1, v)
		}
	})
}

// autossh keeps a tunnel up for as long as the test runs.
func (r *rig) autossh(alias, target string) {
	r.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		keepTunnel(ctx, r, alias, target)
	}()
	r.t.Cleanup(func() {
		stop()
		<-done
	})
	r.waitFor(15*time.Second, alias+" to be online", func() bool { return r.online(alias) })
}
