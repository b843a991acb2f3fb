package conformance

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestKillNineLosesNothing kills relayd five times under 32 senders. Whatever was
// answered must be stored with equal bytes, and nothing may stay delivering.
func TestKillNineLosesNothing(t *testing.T) {
	stores(t, func(t *testing.T, databaseURL string) {
		const senders, kills = 32, 5
		r := newRig(t, databaseURL)
		local := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			_, _ = io.Copy(io.Discard, req.Body)
			_, _ = io.WriteString(w, "done")
		}))
		t.Cleanup(local.Close)
		ctx, stop := context.WithCancel(t.Context())
		var work sync.WaitGroup
		t.Cleanup(func() { stop(); work.Wait() })
		work.Go(func() { keepTunnel(ctx, r, "crash", local.Listener.Addr().String()) })
		r.waitFor(15*time.Second, "the alias to be online", func() bool {
			_, body := r.api("GET", "/aliases/crash", nil)
			return bytes.Contains(body, []byte(`"online":true`))
		})

		ledger := &ledger{answered: map[string]string{}}
		for i := range senders {
			work.Go(func() { ledger.send(ctx, r.http, i) })
		}
		for range kills {
			before := ledger.count()
			r.waitFor(30*time.Second, "answers between two kills", func() bool { return ledger.count() >= before+200 })
			r.stop(syscall.SIGKILL)
			r.start()
		}
		before := ledger.count()
		r.waitFor(30*time.Second, "answers after the last kill", func() bool { return ledger.count() >= before+200 })
		stop()
		work.Wait()
		r.stop(syscall.SIGKILL)
		r.start()
		ledger.check(t, r)
	})
}

// keepTunnel runs plain ssh again whenever it ends, as people do with autossh.
func keepTunnel(ctx context.Context, r *rig, alias, target string) {
	for ctx.Err() == nil {
		args := append([]string{"-N", "-R", alias + ":80:" + target}, r.sshArgs()...)
		_ = exec.CommandContext(ctx, "ssh", args...).Run()
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// ledger knows what callers were answered.
type ledger struct {
	mu       sync.Mutex
	answered map[string]string // path to SHA-256 of the body
	codes    map[int]int
}

func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.answered)
}

func (l *ledger) send(ctx context.Context, addr string, sender int) {
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		MaxIdleConnsPerHost: 1,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		},
	}}
	defer client.CloseIdleConnections()
	for i := 0; ctx.Err() == nil; i++ {
		path := fmt.Sprintf("/crash/%d/%d", sender, i)
		body := random(200+i%3000, uint64(sender*1000+i))
		req, _ := http.NewRequestWithContext(ctx, "POST", "http://crash.localhost"+path, strings.NewReader(body))
		res, err := client.Do(req)
		if err != nil {
			select { // the relay is down: do not spin
			case <-time.After(5 * time.Millisecond):
			case <-ctx.Done():
			}
			continue
		}
		_, err = io.Copy(io.Discard, res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode == 503 {
			continue
		}
		sum := sha256.Sum256([]byte(body))
		l.mu.Lock()
		l.answered[path] = hex.EncodeToString(sum[:])
		if l.codes == nil {
			l.codes = map[int]int{}
		}
		l.codes[res.StatusCode]++
		l.mu.Unlock()
	}
}

func (l *ledger) check(t *testing.T, r *rig) {
	t.Helper()
	stored := map[string]string{}
	for _, e := range r.events("crash", "") {
		stored[e.Path] = e.ID
	}
	missing, different := 0, 0
	for path, sum := range l.answered {
		id, ok := stored[path]
		if !ok {
			missing++
			continue
		}
		if r.event(id).Request.Body.SHA256 != sum {
			different++
		}
	}
	stuck := len(r.events("crash", "&state=delivering"))
	t.Logf("answered %d (%v), missing %d, different %d, still delivering %d", len(l.answered), l.codes, missing, different, stuck)
	if missing+different+stuck > 0 || len(l.answered) < 1000 {
		t.Errorf("answered %d, missing %d, different %d, still delivering %d", len(l.answered), missing, different, stuck)
	}
}
