package conformance

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

// kinds are the kinds of requests in a mixed load. They differ in the framing and the end of request and
// response.
var kinds = []string{"plain", "chunked", "large", "until-close", "upgrade", "broken"}

// mixedServer is a local server for a mixed load. Depending on the kind of request, it responds with a Content-Length,
// with the request's body in chunks, with a body that ends with the connection, with 101, or not at all.
func mixedServer(t *testing.T) string {
	t.Helper()
	return serveLocal(t, func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		raw := func(answer string) {
			c, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			// The write fails if relayd was killed.
			_, _ = io.WriteString(c, answer)
			_ = c.Close()
		}
		switch kind := req.URL.Path[strings.LastIndex(req.URL.Path, "/")+1:]; kind {
		case "until-close":
			raw("HTTP/1.1 200 OK\r\n\r\n" + string(body))
		case "upgrade":
			raw("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nhello")
		case "broken":
			raw("") // relayd answers 502
		case "chunked", "large":
			_, _ = w.Write(body)
			w.(http.Flusher).Flush()
			_, _ = io.WriteString(w, "the end")
		default:
			_, _ = io.WriteString(w, "done")
		}
	})
}

// TestFaultKillRelay kills relayd repeatedly under load of every kind. All answered requests are stored with
// equal bytes, and no event stays in the state delivering.
func TestFaultKillRelay(t *testing.T) {
	t.Parallel()
	stores(t, func(t *testing.T, databaseURL string) {
		kills, between := size(2, 20), size(100, 1100)
		r := startRelay(t, databaseURL)
		r.autossh("crash", mixedServer(t))
		l := startLoad(r, "crash", size(8, 32), func(l *load) { l.pause, l.compare, l.mixed = size(20*time.Millisecond, 0), 100_000, true })
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
		answers := l.byKind()
		figure(t, "kill -9 of relayd x%d under load: %v; by status %v; by kind %v", kills, v, l.codes, answers)
		if !v.ok() || v.answered < kills*between {
			t.Errorf("after %d kills: %v", kills, v)
		}
		for kind, status := range map[string]int{"plain": 200, "chunked": 200, "large": 200, "until-close": 200, "upgrade": 101, "broken": 502} {
			if answers[fmt.Sprint(kind, " ", status)] == 0 {
				t.Errorf("no %s request was answered by %d", kind, status)
			}
		}
	})
}

// byKind counts the answers of a mixed load by kind and status.
func (l *load) byKind() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := map[string]int{}
	for path, a := range l.answered {
		n[fmt.Sprint(path[strings.LastIndex(path, "/")+1:], " ", a.status)]++
	}
	return n
}

// autossh keeps a tunnel up while the test runs.
func (r *relayServer) autossh(alias, target string) {
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
