package conformance

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"relay/relaytest"
)

// startTraced runs relayd under strace. With the option -D, the started process becomes relayd, and strace is
// another process. So the returned Process is relayd itself: the test can kill it as usual, and strace ends
// when relayd has ended.
func (r *relayServer) startTraced(args ...string) *relaytest.Process {
	r.t.Helper()
	args = append([]string{"-D", "-f", "-qq"}, args...)
	cmd := exec.Command("strace", append(args, relaytest.Program(r.t, "relayd"), "serve")...)
	cmd.Env, cmd.Stdout, cmd.Stderr = r.env(), r.log, r.log
	p := relaytest.Start(r.owner, cmd)
	r.process.set(p)
	r.waitFor(30*time.Second, "the traced relayd to be ready", func() bool { return p.HasEnded() || r.ready() == 200 })
	return p
}

// shape is a kind of request that is stored in a particular way.
type shape struct {
	name, alias string
	size        int // size of the request body in bytes
	chunked     bool
	status      int // status of the answer
}

// shapes lists the kinds of requests whose storage is traced. The upgraded request is last: its attempt ends
// after its answer, and that late write could be in one disk page with data of a following request.
var shapes = []shape{
	{name: "queued", alias: "asleep", size: 100, status: 202},
	{name: "small", alias: "awake", size: 100, status: 200},
	{name: "chunked", alias: "awake", size: 5000, chunked: true, status: 200},
	{name: "large", alias: "awake", size: 300 << 10, status: 200},
	{name: "close", alias: "awake", size: 100, status: 200},     // the answer ends with the connection
	{name: "refused", alias: "nothing", size: 100, status: 502}, // the local server refuses connections
	{name: "upgrade", alias: "awake", size: 0, status: 101},     // relayd forwards bytes in both directions
}

// body returns a body that repeats the path, so that every write of a part of the body to a disk shows the
// path.
func (s *shape) body(path string) string {
	return strings.Repeat(path+" ", s.size/(len(path)+1))
}

// send sends one request of this shape over a new connection. It returns the port of the caller and the
// status of the answer, 0 = no answer. whole means that the answer was complete.
func (s *shape) send(r *relayServer, path string) (port, status int, whole bool) {
	c, err := net.DialTimeout("tcp", r.http, 5*time.Second)
	if err != nil {
		return 0, 0, false
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(60 * time.Second))
	port = c.LocalAddr().(*net.TCPAddr).Port
	body := s.body(path)
	head := "POST " + path + " HTTP/1.1\r\nHost: " + s.alias + ".localhost\r\n"
	switch {
	case s.status == 101:
		head = "GET" + strings.TrimPrefix(head, "POST") + "Connection: Upgrade\r\nUpgrade: test\r\n\r\n"
	case s.chunked:
		head += fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body)
	default:
		head += fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)
	}
	if _, err := io.WriteString(c, head); err != nil {
		return port, 0, false
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return port, 0, false
	}
	defer res.Body.Close()
	if res.StatusCode == 101 {
		return port, 101, true
	}
	_, err = io.Copy(io.Discard, res.Body)
	return port, res.StatusCode, err == nil
}

// localOfShapes starts a local server that answers every shape.
func localOfShapes(t *testing.T) string {
	return serveLocal(t, func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		answer := ""
		switch {
		case req.Header.Get("Upgrade") != "":
			answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: test\r\n\r\n"
		case strings.HasPrefix(req.URL.Path, "/close"):
			answer = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + strings.Repeat("until the end ", 1000)
		default:
			_, _ = io.WriteString(w, "done")
			return
		}
		c, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, answer)
	})
}

// traced holds the system calls of a trace, in order.
type traced struct {
	writes []tracedCall // the writes to files
	syncs  []tracedCall
	sent   map[int]int // line of the trace with the first write to each caller, by the caller's port
}

type tracedCall struct {
	name, file string
	data       string
	begin, end int // lines of the trace in which the call begins and ends
}

var (
	tracedLine   = regexp.MustCompile(`^(\d+) +(.*)$`)
	tracedFile   = regexp.MustCompile(`^(pwrite64|fsync|fdatasync)\(\d+<([^>]*)>(.*)$`)
	tracedAnswer = regexp.MustCompile(`^write\(\d+<TCP:\[[^]]*->127\.0\.0\.1:(\d+)\]>, "HTTP/1\.1 `)
)

// readTrace parses the output of strace -f -yy.
func readTrace(t *testing.T, file string) *traced {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out := &traced{sent: map[int]int{}}
	open := map[string]*tracedCall{} // the calls that have not ended yet, by thread
	var calls []*tracedCall
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		m := tracedLine.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		thread, rest := m[1], m[2]
		if strings.HasPrefix(rest, "<... ") {
			if c := open[thread]; c != nil {
				c.end = n
				delete(open, thread)
			}
			continue
		}
		if answer := tracedAnswer.FindStringSubmatch(rest); answer != nil {
			port, _ := strconv.Atoi(answer[1])
			if out.sent[port] == 0 {
				out.sent[port] = n
			}
			continue
		}
		call := tracedFile.FindStringSubmatch(rest)
		if call == nil {
			continue
		}
		c := &tracedCall{name: call[1], file: filepath.Base(call[2]), data: call[3], begin: n, end: n}
		calls = append(calls, c)
		if strings.HasSuffix(rest, "<unfinished ...>") {
			c.end = 1 << 60
			open[thread] = c
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	for _, c := range calls {
		if c.name == "pwrite64" {
			out.writes = append(out.writes, *c)
		} else {
			out.syncs = append(out.syncs, *c)
		}
	}
	return out
}

// durableAt looks at the writes whose data contains the parameter text. It returns how many of them began
// before the given line of the trace, and how many of these were not synced by that line. It counts only
// writes to the write-ahead log and the spool, because the content of the log is copied to the database file
// later.
func (tr *traced) durableAt(line int, text string) (written, unsynced int) {
	for _, w := range tr.writes {
		if w.begin > line || !strings.Contains(w.data, text) || !strings.HasSuffix(w.file, "-wal") && !strings.HasPrefix(w.file, "spool-") {
			continue
		}
		written++
		synced := false
		for _, s := range tr.syncs {
			synced = synced || s.file == w.file && s.begin > w.end && s.end < line
		}
		if !synced {
			unsynced++
		}
	}
	return written, unsynced
}

// TestFaultSync checks the system calls of relayd: before the first byte of an answer is written, all disk
// writes of the request have been made and synced.
func TestFaultSync(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"sqlite", "spool"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			url := ""
			take := func() {}
			if engine == "spool" {
				pg, address := ownPostgres(t)
				url = address
				take = func() {
					if err := pg.Kill(); err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() {
						if err := pg.Restart(); err != nil {
							t.Error(err)
						}
					})
				}
			}
			r := startRelay(t, url)
			r.alias("asleep")
			r.stop(syscall.SIGTERM)
			trace := filepath.Join(r.dir, "trace")
			p := r.startTraced("-yy", "-s", "70000", "-e", "trace=pwrite64,write,fsync,fdatasync", "-o", trace)
			r.autossh("awake", localOfShapes(t))
			r.autossh("nothing", relaytest.FreeAddr(t))
			take()
			ports := map[string]int{}
			for i, s := range shapes {
				path := fmt.Sprintf("/%s/%d/0123456789", s.name, i)
				port, status, whole := s.send(r, path)
				if status != s.status || !whole {
					t.Errorf("%s: answered %d, whole %v", s.name, status, whole)
				}
				ports[path] = port
			}
			if err := p.Cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			<-p.Ended()
			tr := readTrace(t, trace)
			for path, port := range ports {
				line := tr.sent[port]
				written, unsynced := tr.durableAt(line, path)
				t.Logf("%s: %d writes before the answer, %d of them not synced", path, written, unsynced)
				if line == 0 || written == 0 || unsynced > 0 {
					t.Errorf("%s: answered in line %d of the trace, %d writes before that, %d of them not synced", path, line, written, unsynced)
				}
			}
			figure(t, "%d kinds of requests, %d writes and %d syncs seen", len(shapes), len(tr.writes), len(tr.syncs))
		})
	}
}

// told holds the answers to callers; its map sums holds the SHA-256 sums of their request bodies, also by path.
type told struct {
	mu      sync.Mutex
	answers map[string]int // status of each answer other than 503, by path
	sums    map[string]string
}

// keepSending sends requests of one shape until ctx ends.
func (o *told) keepSending(ctx context.Context, r *relayServer, s *shape, round int) {
	for i := 0; ctx.Err() == nil; i++ {
		path := fmt.Sprintf("/%s/%d/%d", s.name, round, i)
		_, status, _ := s.send(r, path)
		if status == 0 || status == 503 {
			wait(ctx, 5*time.Millisecond)
			continue
		}
		sum := sha256.Sum256([]byte(s.body(path)))
		o.mu.Lock()
		o.answers[path], o.sums[path] = status, hex.EncodeToString(sum[:])
		o.mu.Unlock()
	}
}

// holds reports whether the stored body of an event has the given SHA-256 sum.
func (r *relayServer) holds(id, sum string) bool {
	var e record
	status, b := r.api("GET", "/events/"+id, nil)
	return status == 200 && json.Unmarshal(b, &e) == nil && e.Request.Body.SHA256 == sum
}

// TestFaultKillInCommit kills relayd at system calls in the middle of its commits, with requests of every
// kind in progress. All answered requests exist afterwards.
func TestFaultKillInCommit(t *testing.T) {
	t.Parallel()
	storesInFull(t, func(t *testing.T, databaseURL string) {
		points := map[string][]int{
			// For each system call, the numbers of its calls at which strace kills relayd; strace counts the calls of
			// each thread separately.
			"pwrite64":        size([]int{100, 400, 900}, []int{31, 67, 100, 150, 201, 250, 322, 401, 600, 900, 1300, 2000}),
			"fsync,fdatasync": size([]int{6, 20}, []int{3, 4, 5, 6, 9, 12, 17, 30, 50}),
		}
		if databaseURL != "" { // with Postgres, relayd itself writes to no file
			points = map[string][]int{"write": {50, 100, 150, 200, 250, 300}}
		}
		r := startRelay(t, databaseURL)
		r.alias("asleep")
		r.autossh("awake", localOfShapes(t))
		r.autossh("nothing", relaytest.FreeAddr(t))
		o := &told{answers: map[string]int{}, sums: map[string]string{}}
		round, killed := 0, 0
		for call, numbers := range points {
			for _, n := range numbers {
				round++
				r.stop(syscall.SIGTERM)
				p := r.startTraced("-e", "trace="+call, "-e", fmt.Sprintf("inject=%s:signal=KILL:when=%d", call, n), "-o", "/dev/null")
				ctx, stop := context.WithTimeout(context.Background(), 20*time.Second)
				var senders sync.WaitGroup
				for i := range shapes {
					senders.Go(func() { o.keepSending(ctx, r, &shapes[i], round) })
				}
				select {
				case <-p.Ended():
					killed++
				case <-ctx.Done():
					t.Logf("no thread made %d calls of %s in time", n, call)
				}
				stop()
				senders.Wait()
				r.stop(syscall.SIGKILL)
				r.start()
			}
		}
		missing, different, stuck, most := len(o.answers), 0, 0, size(500, 5000)
		for _, alias := range []string{"asleep", "awake", "nothing"} {
			stuck += len(r.events(alias, "&state=delivering"))
			for _, e := range r.events(alias, "") {
				if o.answers[e.Path] == 0 {
					continue
				}
				if missing--; most > 0 {
					most--
					if !r.holds(e.ID, o.sums[e.Path]) {
						different++
					}
				}
			}
		}
		figure(t, "killed inside a commit %d times of %d: answered %d, missing %d, different %d, still delivering %d",
			killed, round, len(o.answers), missing, different, stuck)
		if killed < round || len(o.answers) < 5*round || missing+different+stuck > 0 {
			t.Errorf("killed %d of %d, answered %d, missing %d, different %d, still delivering %d",
				killed, round, len(o.answers), missing, different, stuck)
		}
	})
}
