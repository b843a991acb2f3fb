package conformance

import (
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"relay/relaytest"
)

// quickPulse are settings with which a silent tunnel is stale within 2 s and closed after 3 s more.
var quickPulse = []string{"RELAY_PING_INTERVAL=1s", "RELAY_PING_TIMEOUT=1s", "RELAY_STALE_CLOSE=3s"}

// holding is a local server that answers requests to /hold only after the channel let was closed.
type holding struct {
	inside atomic.Int32
	let    chan struct{}
	addr   string
}

func newHolding(t *testing.T) *holding {
	h := &holding{let: make(chan struct{})}
	h.addr = serveLocal(t, h.serve)
	return h
}

func (h *holding) serve(w http.ResponseWriter, req *http.Request) {
	_, _ = io.Copy(io.Discard, req.Body) // until the body is read, net/http does not notice the end of the connection
	if req.URL.Path == "/hold" {
		h.inside.Add(1)
		select {
		case <-h.let:
		case <-req.Context().Done():
		}
	}
	fmt.Fprint(w, "done")
}

// outcome is the answer to a caller, with its duration.
type outcome struct {
	status int
	body   string
	took   time.Duration
	event  string
}

// later sends a request and returns a channel for its outcome.
func (r *relayServer) later(alias, path string) <-chan outcome {
	ch := make(chan outcome, 1)
	go func() {
		begun := time.Now()
		status, body, header := r.call(alias, path, "x")
		ch <- outcome{status, body, time.Since(begun), header.Get("Relay-Event")}
	}()
	return ch
}

// TestFaultSilentClient freezes the ssh client while a request is in progress. That request is answered 502
// and its event becomes interrupted, and a new request is queued within 2 s. When the client continues, the
// same connection serves again.
func TestFaultSilentClient(t *testing.T) {
	t.Parallel()
	r := startRelay(t, "", "RELAY_PING_INTERVAL=1s", "RELAY_PING_TIMEOUT=1s")
	h := newHolding(t)
	cmd := r.tunnel("silent", h.addr)
	base := r.atRest()
	held := r.later("silent", "/hold")
	r.waitFor(5*time.Second, "the request to be under way", func() bool { return h.inside.Load() == 1 })
	thaw := freeze(t, cmd.Cmd.Process.Pid)
	<-time.After(300 * time.Millisecond)
	next := <-r.later("silent", "/next")
	under := <-held
	r.waitFor(10*time.Second, "the alias to be offline", func() bool { return !r.online("silent") })
	close(h.let)
	thaw()
	r.waitFor(10*time.Second, "the alias to be online again", func() bool { return r.online("silent") })
	after, _, _ := r.through("silent", "/after", "x")
	rec := r.event(under.event)
	now, ok := r.settled(base, 10, 5)
	figure(t, "ssh client frozen: under way answered %d after %v and %s, next %d after %v, thawed %d; goroutines %d before and %d after, descriptors %d and %d",
		under.status, under.took.Round(100*time.Millisecond), rec.State, next.status, next.took.Round(100*time.Millisecond), after, base.Goroutines, now.Goroutines, base.OpenFds, now.OpenFds)
	if under.status != 502 || under.took > bound(5*time.Second) || rec.State != "interrupted" || next.status != 202 || next.took > bound(2500*time.Millisecond) || after != 200 || !ok {
		t.Errorf("under way %+v (%s), next %+v, after %+v, before %+v, now %+v", under, rec.State, next, after, base, now)
	}
}

// TestFaultTakeover opens a second tunnel for the alias while a request is in progress on the first tunnel.
// The second tunnel serves within 2 s. The request in progress is answered, or its event becomes interrupted.
// The first client is disconnected.
func TestFaultTakeover(t *testing.T) {
	t.Parallel()
	r := startRelay(t, "")
	h := newHolding(t)
	old := r.tunnel("taken", h.addr)
	base := r.atRest()
	held := r.later("taken", "/hold")
	r.waitFor(5*time.Second, "the request to be under way", func() bool { return h.inside.Load() == 1 })
	begun := time.Now()
	args := append([]string{"-N", "-R", "taken:80:" + serveLocal(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "second") })}, r.sshArgs()...)
	relaytest.Start(t, exec.Command("ssh", args...))
	var first time.Duration
	r.waitFor(10*time.Second, "the second tunnel to serve", func() bool {
		_, body, _ := r.call("taken", "/next", "x")
		first = time.Since(begun)
		return body == "second"
	})
	close(h.let)
	under := <-held
	r.waitFor(10*time.Second, "the first client to end", func() bool { return old.HasEnded() })
	stuck := len(r.events("taken", "&state=delivering"))
	now, ok := r.settled(base, 10, 5)
	figure(t, "takeover in mid-exchange: second tunnel served after %v, the request under way answered %d %q after %v, still delivering %d; goroutines %d before and %d after, descriptors %d and %d",
		first.Round(10*time.Millisecond), under.status, under.body, under.took.Round(10*time.Millisecond), stuck, base.Goroutines, now.Goroutines, base.OpenFds, now.OpenFds)
	if under.status != 200 && (under.status != 502 || r.event(under.event).State != "interrupted") || first > bound(2*time.Second) || stuck > 0 || !ok {
		t.Errorf("under way %+v, second after %v, stuck %d, before %+v, now %+v", under, first, stuck, base, now)
	}
}

// TestFaultFlapping kills the ssh client repeatedly under load. Every request is answered: by the local
// server, with 202 because it is queued, or with 502 because its tunnel was lost. Its event is interrupted in
// the last case.
func TestFaultFlapping(t *testing.T) {
	t.Parallel()
	storesInFull(t, func(t *testing.T, databaseURL string) {
		flaps := size(12, 40)
		r := startRelay(t, databaseURL)
		local := localServer(t)
		r.tunnel("flappy", local).Kill()
		base := r.atRest()
		l := startLoad(r, "flappy", 8, func(l *load) { l.pause = size(50*time.Millisecond, 10*time.Millisecond) })
		for i := range flaps {
			cmd := r.tunnel("flappy", local)
			if i == 0 {
				r.waitFor(10*time.Second, "an answer of the local server", func() bool { return l.code(200) > 0 })
			}
			<-time.After(time.Duration(200+(i*137)%400) * time.Millisecond)
			cmd.Kill()
		}
		l.end()
		r.waitFor(10*time.Second, "the alias to be offline", func() bool { return !r.online("flappy") })
		interrupted := len(r.events("flappy", "&state=interrupted"))
		v := l.check(t)
		now, ok := r.settled(base, 10, 5)
		figure(t, "%d tunnels killed under load: %v, by status %v, interrupted %d, longest wait %v; goroutines %d before and %d after, descriptors %d and %d",
			flaps, v, l.codes, interrupted, l.longest.Round(10*time.Millisecond), base.Goroutines, now.Goroutines, base.OpenFds, now.OpenFds)
		other := len(l.answered) - l.codes[200] - l.codes[202] - l.codes[502]
		if !v.ok() || other != 0 || l.codes[502] > interrupted || l.codes[200] == 0 || l.longest > bound(outageAnswer) || !ok {
			t.Errorf("%v, codes %v, interrupted %d, longest %v, before %+v, now %+v", v, l.codes, interrupted, l.longest, base, now)
		}
	})
}
