package conformance

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"relay/relaytest"
)

// clockFile is added to package time of the tested relayd. It sets the wall clock ahead by a number of
// seconds, which it reads from the eight bytes of a file (RELAY_TEST_CLOCK). The monotonic clock is
// unchanged, as on a machine whose clock is set.
const clockFile = `package time

import (
	"sync/atomic"
	"syscall"
	"unsafe"
)

var ahead *int64

func init() {
	name, ok := syscall.Getenv("RELAY_TEST_CLOCK")
	if !ok {
		return
	}
	fd, err := syscall.Open(name, syscall.O_RDONLY, 0)
	if err != nil {
		panic(err)
	}
	memory, err := syscall.Mmap(fd, 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		panic(err)
	}
	ahead = (*int64)(unsafe.Pointer(&memory[0]))
}

func jumped() int64 {
	if ahead == nil {
		return 0
	}
	return atomic.LoadInt64(ahead)
}
`

// buildWithClock builds a relayd whose wall clock the test can set.
func buildWithClock(t *testing.T) (program string) {
	t.Helper()
	dir, folder := t.TempDir(), filepath.Join(strings.TrimSpace(command(t, "go", "env", "GOROOT")), "src", "time")
	text, err := os.ReadFile(filepath.Join(folder, "time.go"))
	if err != nil {
		t.Fatal(err)
	}
	const read = "\tsec, nsec, mono := runtimeNow()\n\tif mono == 0 {"
	if strings.Count(string(text), read) != 1 {
		t.Fatal("this version of Go reads its clock in another way: change buildWithClock")
	}
	replaced := map[string]string{}
	for name, text := range map[string]string{"time.go": strings.Replace(string(text), read, strings.Replace(read, "\n", "\n\tsec += jumped()\n", 1), 1), "jumped.go": clockFile} {
		replaced[filepath.Join(folder, name)] = filepath.Join(dir, name)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	table, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), table, 0o600); err != nil {
		t.Fatal(err)
	}
	program = filepath.Join(dir, "relayd")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-overlay", filepath.Join(dir, "overlay.json"), "-o", program, "./cmd/relayd")
	cmd.Dir = strings.TrimSpace(command(t, "go", "list", "-m", "-f", "{{.Dir}}", "relay"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return program
}

// wallClock sets the wall clock of one relayd.
type wallClock struct {
	t    *testing.T
	file *os.File
}

func newWallClock(t *testing.T) *wallClock {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "clock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	c := &wallClock{t, file}
	c.set(0)
	return c
}

func (c *wallClock) setting() string { return "RELAY_TEST_CLOCK=" + c.file.Name() }

// set sets the wall clock of relayd ahead of that of the machine by the duration ahead; a negative duration
// sets it back. It makes only one write, so relayd never reads a part of the value.
func (c *wallClock) set(ahead time.Duration) {
	c.t.Helper()
	if _, err := c.file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(int64(ahead/time.Second))), 0); err != nil {
		c.t.Fatal(err)
	}
}

// TestFaultClock sets the wall clock of relayd ahead and back by hours, days and a month while it serves. It
// also starts relayd with a clock that is ahead of all stored times. The tunnel stays, and each request is
// answered, stored and shown to a live reader. Logins and new tokens work at once, a queue keeps its order,
// and an Idempotency-Key works once. No event is deleted that is younger than its retention by the right
// clock.
func TestFaultClock(t *testing.T) {
	onlyInFull(t, "TestLoopsDoubtTheClock, TestClockAtStart and the clock of storetest")
	program := buildWithClock(t)
	stores(t, func(t *testing.T, databaseURL string) {
		s := newClockedRelay(t, program, databaseURL)
		jumps := []time.Duration{0, 2 * time.Hour, 48 * time.Hour, -time.Hour, 0, -48 * time.Hour, 31 * 24 * time.Hour, time.Minute, 0}
		for _, ahead := range jumps {
			s.clock.set(ahead)
			s.serves(ahead)
		}
		s.expires(databaseURL == "")
		s.r.stop(syscall.SIGTERM)
		s.clock.set(31 * 24 * time.Hour) // 31 days ahead, as in one of the jumps above, when some of the events were stored
		s.r.start()
		s.connect()
		// During this time, relayd's periodic work, such as retention, runs several times. s.complete checks
		// below that no event was deleted.
		time.Sleep(15 * time.Second)
		s.serves(31 * 24 * time.Hour)
		s.clock.set(0)
		s.serves(0)
		s.complete()
		figure(t, "the clock set %d times, up to 31 days ahead and 2 days back: all of %d events kept and in order", len(jumps)+3, 2*s.n)
	})
}

// TestFaultClockOfANode sets the clock of one of two nodes. Neither declares the other dead, requests pass
// from one node to the tunnel of the other, and a request in progress ends normally.
func TestFaultClockOfANode(t *testing.T) {
	onlyInFull(t, "TestTrustEnds, TestDeadNodes and TestLoopsDoubtTheClock")
	program := buildWithClock(t)
	a, b := twoNodes(t)
	c := newWallClock(t)
	b.program, b.extra = program, append(b.extra, c.setting())
	b.start()
	b.waitFor(10*time.Second, "two nodes", func() bool { return b.metric("relay_store_nodes") == 2 })
	hold, held := make(chan struct{}), make(chan struct{}, 9)
	local := serveLocal(t, func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		if req.URL.Path == "/held" {
			held <- struct{}{}
			<-hold
		}
		_, _ = io.WriteString(w, "done")
	})
	a.tunnel("at-a", local)
	b.tunnel("at-b", local)
	a.knows("at-b")
	b.knows("at-a")
	var under sync.WaitGroup
	for _, way := range []struct {
		r     *relayServer
		alias string
	}{{a, "at-a"}, {a, "at-b"}, {b, "at-a"}, {b, "at-b"}} {
		under.Go(func() {
			if status, body, _ := way.r.call(way.alias, "/held", "x"); status != 200 {
				t.Errorf("%s, under way: %d %s", way.alias, status, body)
			}
		})
	}
	for range 4 {
		<-held
	}
	for _, ahead := range []time.Duration{48 * time.Hour, -48 * time.Hour, time.Hour, 0} {
		c.set(ahead)
		for _, r := range []*relayServer{a, b} {
			for _, alias := range []string{"at-a", "at-b"} {
				for range 5 {
					if status, body, _ := r.call(alias, "/", "x"); status != 200 {
						t.Errorf("%v ahead, %s: %d %s", ahead, alias, status, body)
					}
				}
			}
			if n := r.metric("relay_store_nodes"); n != 2 {
				t.Errorf("%v ahead: %v nodes", ahead, n)
			}
		}
	}
	close(hold)
	under.Wait()
	for _, alias := range []string{"at-a", "at-b"} {
		a.waitFor(10*time.Second, "nothing to be under way", func() bool { return !a.has(alias, "&state=delivering") })
		if all, delivered := len(a.events(alias, "")), len(a.events(alias, "&state=delivered")); all != delivered {
			t.Errorf("%s: %d of %d events are delivered", alias, delivered, all)
		}
	}
	for _, r := range []*relayServer{a, b} {
		if strings.Contains(r.log.String(), "dead node") {
			t.Error("one node took the other for dead")
		}
	}
	figure(t, "the clock of one of two nodes set four times, up to 2 days ahead and back: nothing queued, failed or interrupted")
}

// clockedRelay is a relayd whose clock the test sets, with the events that were sent to it.
type clockedRelay struct {
	t      *testing.T
	r      *relayServer
	clock  *wallClock
	told   *relaytest.Buffer // the items that the live reader has received
	token  string            // secret of a token that lives for three hours
	events []string          // ids of the events of alias "on", oldest first
	n      int               // number of requests that were sent to each alias

	mu    sync.Mutex
	order []string // paths of queued events of "off" in the order in which the local server got them
}

func newClockedRelay(t *testing.T, program, databaseURL string) *clockedRelay {
	t.Helper()
	s := &clockedRelay{t: t, r: newRelay(t, databaseURL), clock: newWallClock(t), told: &relaytest.Buffer{}}
	s.r.program, s.r.extra = program, []string{s.clock.setting()}
	s.r.start()
	s.r.token, _ = s.r.newToken(s.r.key)
	s.r.alias("on")
	s.r.alias("off")
	var made struct{ Token string }
	s.r.decode(s.r.must(201, "POST", "/tokens", []byte(`{"name":"short","expiresIn":"3h"}`)), &made)
	s.token = made.Token
	s.connect()
	return s
}

// connect opens the tunnel and the live reader.
func (s *clockedRelay) connect() {
	s.t.Helper()
	s.r.tunnel("on", localServer(s.t))
	res, err := http.DefaultClient.Do(s.r.bearer(s.t.Context(), s.r.token, "GET", "/stream?alias=on", ""))
	if err != nil || res.StatusCode != 200 {
		s.t.Fatalf("stream: %v, %v", res, err)
	}
	go func() {
		defer res.Body.Close()
		_, _ = io.Copy(s.told, res.Body)
	}()
}

// serves checks that relayd works while its wall clock is ahead by the duration ahead: requests to both
// aliases, the live reader, a new token and an Idempotency-Key.
func (s *clockedRelay) serves(ahead time.Duration) {
	s.t.Helper()
	path := "/" + strconv.Itoa(s.n)
	s.n++
	if status, body, _ := s.r.call("on", path, "x"); status != 200 || body != "done" {
		s.t.Errorf("%v ahead: the tunnel answered %d %s", ahead, status, body)
	}
	e := s.r.latest("on")
	if e.Path != path || e.State != "delivered" {
		s.t.Errorf("%v ahead: the newest event is %s, %s", ahead, e.Path, e.State)
	}
	s.events = append(s.events, e.ID)
	if status, body, _ := s.r.call("off", path, "x"); status != 202 {
		s.t.Errorf("%v ahead: offline, answered %d %s", ahead, status, body)
	}
	s.r.waitFor(10*time.Second, "the live reader to hear of "+path, func() bool { return strings.Contains(s.told.String(), `"path":"`+path+`"`) })
	token, _ := s.r.newToken(s.r.key)
	if status := s.status(token, "GET", "/aliases", ""); status != 200 {
		s.t.Errorf("%v ahead: a new token gets %d", ahead, status)
	}
	// relayd forgets an Idempotency-Key after a day of its wall clock, so the key of an earlier call may be
	// unknown at this offset.
	if ahead.Abs() >= 24*time.Hour {
		return
	}
	if status := s.status(s.r.token, "POST", "/events/"+s.events[0]+"/replay?wait=10s", "once"); status != 200 {
		s.t.Errorf("%v ahead: the replay with a key gets %d", ahead, status)
	}
	if n := len(s.r.event(s.events[0]).Attempts); n != 2 {
		s.t.Errorf("%v ahead: %d attempts of the event that was replayed with one key", ahead, n)
	}
}

// status calls the API and returns the status. Unless the parameter key is empty, the call has it as its
// Idempotency-Key.
func (s *clockedRelay) status(token, method, path, key string) int {
	s.t.Helper()
	req := s.r.bearer(s.t.Context(), token, method, path, "")
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	res.Body.Close()
	return res.StatusCode
}

// expires checks at several offsets whether a token with a lifetime of three hours is accepted. If own is
// true, the wall clock of relayd decides. Otherwise the clock of Postgres decides, which the test does not
// change.
func (s *clockedRelay) expires(own bool) {
	s.t.Helper()
	for ahead, ended := range map[time.Duration]bool{-48 * time.Hour: false, 0: false, 2 * time.Hour: false, 4 * time.Hour: own, 48 * time.Hour: own} {
		s.clock.set(ahead)
		want := map[bool]int{false: 200, true: 401}[ended]
		got := 0
		if !relaytest.Poll(5*time.Second, func() bool { got = s.status(s.token, "GET", "/aliases", ""); return got == want }) {
			s.t.Errorf("%v ahead: the token of three hours gets %d, want %d", ahead, got, want)
		}
	}
	s.clock.set(0)
}

// complete checks that the stored events are those that were sent. It then delivers the queue of the alias
// "off" and checks the order.
func (s *clockedRelay) complete() {
	s.t.Helper()
	var ids, paths []string
	for _, e := range s.r.events("on", "") {
		ids = append(ids, e.ID)
	}
	slices.Reverse(ids)
	if !slices.Equal(ids, s.events) || !slices.IsSorted(ids) {
		s.t.Errorf("events are listed as %v, and came as %v", ids, s.events)
	}
	s.r.tunnel("off", serveLocal(s.t, func(_ http.ResponseWriter, req *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.order = append(s.order, req.URL.Path)
	}))
	s.r.must(202, "POST", "/aliases/off/replay-queued", nil)
	s.r.waitFor(20*time.Second, "the queue to be delivered", func() bool { return len(s.r.events("off", "&state=delivered")) == s.n })
	for i := range s.n {
		paths = append(paths, fmt.Sprintf("/%d", i))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.order, paths) {
		s.t.Errorf("the queue came as %v", s.order)
	}
}
