package conformance

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// keepTunnel restarts plain ssh whenever it ends, like autossh.
func keepTunnel(ctx context.Context, r *relayServer, alias, target string) {
	for ctx.Err() == nil {
		args := append([]string{"-N", "-R", alias + ":80:" + target}, r.sshArgs()...)
		_ = exec.CommandContext(ctx, "ssh", args...).Run()
		select {
		case <-ctx.Done():
		case <-time.After(size(200*time.Millisecond, 50*time.Millisecond)): // each start of ssh costs 20 ms of CPU
		}
	}
}

// load is a group of senders that send to one alias until they are stopped. It records their answers.
type load struct {
	r       *relayServer
	alias   string
	pause   time.Duration // time between two requests of a sender
	retry   bool          // senders repeat a request without an answer or with a 503
	mixed   bool          // senders send every kind of request, for mixedServer
	compare int           // number of events to read back completely with RELAY_FAULTS=full; otherwise 100

	stop context.CancelFunc
	work sync.WaitGroup

	mu       sync.Mutex
	answered map[string]answered // the answers, by path
	vain     map[string]int      // number of tries without a complete answer or with a 503, by path
	codes    map[int]int
	broken   int            // number of tries without a complete answer
	longest  time.Duration  // longest time until an answer or a failure
	noRetry  int            // number of answers with 503 and without Retry-After
	refused  map[string]int // number of answers with 503, by Relay-Error

	mostTries int // number of tries of the request that needed the most
	lastFail  time.Time
	lastGood  time.Time
}

type answered struct {
	sum    string // SHA-256 of the request's body
	status int
	whole  bool // whether the answer was complete
}

// startLoad starts senders. They stop at the end of the test at the latest. The function tune, unless it is
// nil, sets fields of the load before the start.
func startLoad(r *relayServer, alias string, senders int, tune func(*load)) *load {
	ctx, stop := context.WithCancel(context.Background())
	l := &load{r: r, alias: alias, compare: 5000, stop: stop, answered: map[string]answered{}, vain: map[string]int{}, codes: map[int]int{}, refused: map[string]int{}}
	if tune != nil {
		tune(l)
	}
	for i := range senders {
		l.work.Go(func() { l.send(ctx, i) })
	}
	r.t.Cleanup(l.end)
	return l
}

// gently makes the senders of a load pause, except with RELAY_FAULTS=full, because a short test must not have
// too many events to read back, and must leave CPU to the tests that run at the same time.
func gently(l *load) { l.pause = size(100*time.Millisecond, 0) }

// evenly makes the senders of a load pause. In the short form, four senders send about 25 requests a second.
func evenly(l *load) { l.pause = size(150*time.Millisecond, 10*time.Millisecond) }

// end stops the senders after their current requests.
func (l *load) end() {
	l.stop()
	l.work.Wait()
}

func (l *load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.answered)
}

// code returns the number of answers with the given status.
func (l *load) code(status int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.codes[status]
}

// more waits until n further requests have been answered.
func (l *load) more(n int, limit time.Duration) {
	l.r.t.Helper()
	before := l.count()
	l.r.waitFor(limit, fmt.Sprintf("%d answers", n), func() bool { return l.count() >= before+n })
}

func (l *load) send(ctx context.Context, sender int) {
	client := callerTo(l.r.http, 30*time.Second)
	defer client.CloseIdleConnections()
	for i := 0; ctx.Err() == nil; i++ {
		path := fmt.Sprintf("/load/%d/%d", sender, i)
		body := random(200+i%3000, uint64(sender*1000+i))
		if l.mixed {
			kind := kinds[i%len(kinds)]
			path += "/" + kind
			if kind == "large" {
				body = random(300<<10, uint64(sender*1000+i)) // the body is large enough to be stored in parts
			}
		}
		tries := 1
		for ; !l.once(client, path, body) && l.retry && ctx.Err() == nil; tries++ {
			wait(ctx, 20*time.Millisecond)
		}
		l.mu.Lock()
		l.mostTries = max(l.mostTries, tries)
		l.mu.Unlock()
		wait(ctx, l.pause)
	}
}

// wait waits for d, or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// once sends one request and records its outcome. It reports whether the caller got a complete answer other
// than 503.
func (l *load) once(client *http.Client, path, body string) bool {
	begun := time.Now()
	req, err := http.NewRequest("POST", "http://"+l.alias+".localhost"+path, strings.NewReader(body))
	if err != nil {
		l.r.t.Error(err)
		return true
	}
	switch {
	case strings.HasSuffix(path, "/chunked"):
		req.ContentLength = -1
	case strings.HasSuffix(path, "/upgrade"):
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "echo")
	}
	res, err := client.Do(req)
	if err != nil {
		l.note(begun, path, nil, answered{})
		// The pause avoids a busy loop while no server listens.
		<-time.After(5 * time.Millisecond)
		return false
	}
	_, err = io.Copy(io.Discard, res.Body)
	res.Body.Close()
	sum := sha256.Sum256([]byte(body))
	l.note(begun, path, res, answered{sum: hex.EncodeToString(sum[:]), status: res.StatusCode, whole: err == nil})
	return err == nil && res.StatusCode != 503
}

func (l *load) note(begun time.Time, path string, res *http.Response, a answered) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.longest = max(l.longest, time.Since(begun))
	if res == nil || a.status == 503 || !a.whole {
		l.vain[path]++
	}
	switch {
	case res == nil:
		l.broken++
		l.lastFail = time.Now()
		return
	case a.status == 503:
		l.codes[503]++
		l.refused[res.Header.Get("Relay-Error")]++
		l.lastFail = time.Now()
		if res.Header.Get("Retry-After") == "" {
			l.noRetry++
		}
		return
	case !a.whole:
		l.broken++
		l.lastFail = time.Now()
	default:
		l.lastGood = time.Now()
	}
	l.codes[a.status]++
	l.answered[path] = a
}

// verdict counts the answered requests by their stored state.
type verdict struct {
	answered  int
	missing   int // number of answered requests without an event
	different int // number of answered requests whose event has another body
	unproven  int // number of complete answers whose attempt is not stored as delivered
	stuck     int // number of events that are still in the state delivering
}

func (v verdict) ok() bool { return v.missing+v.different+v.unproven+v.stuck == 0 }

func (v verdict) String() string {
	return fmt.Sprintf("answered %d, missing %d, different %d, answer not stored %d, still delivering %d",
		v.answered, v.missing, v.different, v.unproven, v.stuck)
}

// check looks for the event of every answered request. It compares the events with the answers, or only some
// of the events if there are many. An answer of which at least one byte was sent promises that the event and
// its body are stored. A complete response of the local server also promises that the attempt is stored as
// delivered.
func (l *load) check(t *testing.T) verdict {
	t.Helper()
	// The API lists no events that are still in the spool. With a slow database, the spool may hold events again after
	// it was empty.
	l.r.waitFor(60*time.Second, "the spool to be empty", func() bool { return l.r.stats().SpoolBytes == 0 })
	stored := map[string][]string{} // the ids of the events of each path; a repeated request has several
	for _, e := range l.r.events(l.alias, "") {
		stored[e.Path] = append(stored[e.Path], e.ID)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	v := verdict{answered: len(l.answered)}
	// Before the events are read, no attempt should be in progress. A node ends an abandoned attempt 10 to 12
	// s after its claim, and the attempts of a dead node after 4 s.
	for until := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if v.stuck = len(l.r.events(l.alias, "&state=delivering")); v.stuck == 0 || time.Now().After(until) {
			break
		}
	}
	var mu sync.Mutex
	var readers sync.WaitGroup
	paths := make(chan string)
	for range 4 {
		readers.Go(func() {
			for path := range paths {
				one := l.lookAll(l.answered[path], stored[path])
				mu.Lock()
				v.missing, v.different, v.unproven = v.missing+one.missing, v.different+one.different, v.unproven+one.unproven
				mu.Unlock()
			}
		})
	}
	most := size(100, l.compare)
	for path := range l.answered {
		if len(stored[path]) == 0 || most > 0 {
			paths <- path
			most--
		}
	}
	close(paths)
	readers.Wait()
	return v
}

// lookAll compares an answer with each event of its path until one fits.
func (l *load) lookAll(a answered, ids []string) verdict {
	v := verdict{missing: 1}
	for _, id := range ids {
		if v = l.look(a, id); v.ok() {
			break
		}
	}
	return v
}

// look compares one answer with an event.
func (l *load) look(a answered, id string) (v verdict) {
	var rec record
	status, body := l.r.api("GET", "/events/"+id, nil)
	// After a test with roleSets, a session of Postgres may still have a short timeout, so a 503 does not
	// show that the event is missing.
	for until := time.Now().Add(10 * time.Second); status == 503 && time.Now().Before(until); <-time.After(100 * time.Millisecond) {
		status, body = l.r.api("GET", "/events/"+id, nil)
	}
	switch {
	case status != 200 || json.Unmarshal(body, &rec) != nil:
		l.r.t.Logf("missing: %s answers %d %.300s", id, status, body)
		v.missing++
	case rec.Request.Body.SHA256 != a.sum:
		v.different++
	case a.status == 200 && a.whole && (rec.Attempts[0].State != "delivered" || rec.Attempts[0].Response == nil || rec.Attempts[0].Response.State != "complete"):
		v.unproven++
		l.r.t.Logf("answered whole, and not stored as delivered: %s %.600s", id, body)
	}
	return v
}
