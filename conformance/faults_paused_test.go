package conformance

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	// pausedLimit is the value of each time limit of relayd in TestFaultPaused. The test stops relayd for longer than
	// that. It is long enough for a busy machine to send all requests before the stop.
	pausedLimit = 9 * time.Second
	// pausedLarge is more than the buffers between local server and caller take.
	pausedLarge = 8 << 20
)

// pausedCase is the connection of a caller in TestFaultPaused.
type pausedCase struct {
	name           string
	before, during string // what the caller sends before and during the pause
	answered       bool   // the caller reads its first answer before the pause
	dials          bool   // the caller connects during the pause
}

func pausedCases() []pausedCase {
	get := func(alias, path string) string {
		return fmt.Sprintf("GET /%s HTTP/1.1\r\nHost: %s.localhost\r\n\r\n", path, alias)
	}
	quick := get("paused", "quick")
	return []pausedCase{
		{name: "the answer comes", before: get("paused", "slow")},
		{name: "the rest of a body comes", before: "POST /quick HTTP/1.1\r\nHost: paused.localhost\r\nContent-Length: 10\r\n\r\nhello", during: "world"},
		{name: "the rest of a head comes", before: quick[:20], during: quick[20:]},
		{name: "the next request comes", before: quick, answered: true, during: quick},
		{name: "a caller connects", dials: true, during: quick},
		{name: "the caller reads", before: get("paused", "large")},
		{name: "the client opens the channel", before: get("opening", "quick")},
	}
}

// TestFaultPaused stops relayd for longer than every time limit of a request, as a suspended machine or a frozen
// container does. What its peers did while it was stopped counts as done within the limits: no request fails, and none
// is queued.
func TestFaultPaused(t *testing.T) {
	t.Parallel()
	limit := pausedLimit.String()
	r := startRelay(t, "", "RELAY_RESPONSE_TIMEOUT="+limit, "RELAY_STALL_TIMEOUT="+limit, "RELAY_HEAD_TIMEOUT="+limit, "RELAY_IDLE_TIMEOUT="+limit)
	paused := make(chan struct{})
	local := serveLocal(t, pausedServer(paused))
	r.tunnel("paused", local)
	client := r.tunnel("opening", local)
	r.call("paused", "/part", "")
	replayed := r.latest("paused").ID
	thawClient := freeze(t, client.Cmd.Process.Pid)
	var begun, ended sync.WaitGroup
	var mu sync.Mutex
	start := func(name string, f func(begun func()) error) {
		begun.Add(1)
		ended.Go(func() {
			begun := sync.OnceFunc(begun.Done)
			defer begun()
			if err := f(begun); err != nil {
				mu.Lock()
				defer mu.Unlock()
				t.Errorf("%s while relayd is stopped: %v", name, err)
			}
		})
	}
	for _, c := range pausedCases() {
		start(c.name, func(begun func()) error { return c.run(r.http, begun, paused) })
	}
	start("the rest of an answer to a replay comes", func(begun func()) error {
		begun()
		r.api("POST", "/events/"+replayed+"/replay?wait=40s", nil)
		if a := r.event(replayed).Attempts; len(a) != 2 || a[1].State != "delivered" || a[1].Response.State != "complete" {
			return fmt.Errorf("recorded %+v", a)
		}
		return nil
	})
	begun.Wait()
	<-time.After(500 * time.Millisecond) // gives the requests time to reach the local server
	thaw := freeze(t, r.process.get().Cmd.Process.Pid)
	thawClient()
	close(paused)
	<-time.After(pausedLimit + 500*time.Millisecond)
	thaw()
	ended.Wait()
	for _, e := range append(r.events("paused", ""), r.events("opening", "")...) {
		if e.State != "delivered" {
			t.Errorf("event %s is %s", e.ID, e.State)
		}
	}
}

// pausedServer is the local server of TestFaultPaused. It completes some answers only during the pause.
func pausedServer(paused <-chan struct{}) http.HandlerFunc {
	var parts atomic.Int32
	return func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		switch req.URL.Path {
		case "/slow":
			<-paused
		case "/part":
			w.Header().Set("Content-Length", "8")
			_, _ = io.WriteString(w, "half")
			_ = http.NewResponseController(w).Flush()
			if parts.Add(1) > 1 { // the second request for this path is the replay
				<-paused
			}
		case "/large":
			_, _ = w.Write(make([]byte, pausedLarge))
		}
		_, _ = io.WriteString(w, "done")
	}
}

// run plays the caller on one connection. It calls the function begun when the pause may begin, and waits until the
// channel paused is closed in the pause.
func (c pausedCase) run(addr string, begun func(), paused <-chan struct{}) error {
	if c.dials {
		begun()
		<-paused
	}
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	br := bufio.NewReader(conn)
	answer := func() error {
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		res, err := http.ReadResponse(br, nil)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		switch b, err := io.ReadAll(res.Body); {
		case err != nil:
			return fmt.Errorf("%w after %d bytes", err, len(b))
		case res.StatusCode != 200:
			return fmt.Errorf("status %d: %s", res.StatusCode, b)
		}
		return nil
	}
	_, _ = io.WriteString(conn, c.before)
	if c.answered {
		if err := answer(); err != nil {
			return err
		}
	}
	begun()
	<-paused
	<-time.After(pausedLimit / 2)
	_, _ = io.WriteString(conn, c.during)
	return answer()
}
