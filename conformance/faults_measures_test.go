package conformance

import (
	"context"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"relay/relaytest"
	"relay/store/pgtest"
)

// The fault tests run in a short form by default, as part of the normal tests. With RELAY_FAULTS=full they
// run in the full form, for which docs/faults.md has figures. Each test prints one line that begins with
// "figure:".

// size chooses between the short and the full form.
func size[T any](short, full T) T {
	if os.Getenv("RELAY_FAULTS") == "full" {
		return full
	}
	return short
}

// bound returns the limit for a duration that a test has just measured: the promise in the full form, and twice the
// promise in the short form, which may run next to other tests. Both grow with the load of the machine in the last
// minute (relaytest.Limit).
func bound(promised time.Duration) time.Duration {
	begun := time.Now().Add(-promised - time.Minute)
	return size(relaytest.Limit(promised, begun), relaytest.Limit(promised/2, begun))
}

// memory returns the limit for the memory of relayd: the number most, or ten times as much if relayd was
// built with the race detector.
func memory(t *testing.T, most int64) int64 {
	t.Helper()
	info, err := buildinfo.ReadFile(relaytest.Program(t, "relayd"))
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		return 10 * most
	}
	return most
}

// onlyInFull skips a test in the short form. The parameter instead names the tests that check the same
// promises in that form.
func onlyInFull(t *testing.T, instead string) {
	t.Helper()
	if size(true, false) {
		t.Skipf("make test-all runs it; %s holds the same promises in make test", instead)
	}
}

// storesInFull runs a test on both stores, but in the short form only on SQLite. Use it for faults that
// hardly involve the store.
func storesInFull(t *testing.T, f func(t *testing.T, databaseURL string)) {
	if size(false, true) {
		stores(t, f)
		return
	}
	t.Run("sqlite", func(t *testing.T) { f(t, "") })
}

// figure prints a measured figure of a fault test.
func figure(t *testing.T, format string, args ...any) {
	t.Helper()
	form := size("short", "full")
	t.Logf("figure: %s (%s): "+format, append([]any{strings.TrimPrefix(t.Name(), "TestFault"), form}, args...)...)
}

// needRoot fails a test that does not run as root. The parameter what names the thing that only root can make.
func needRoot(t *testing.T, what string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatalf("this test %s", needs(t, what))
	}
}

// needs returns the message about the rights that a test lacks.
func needs(t *testing.T, what string) string {
	return fmt.Sprintf("needs root with CAP_SYS_ADMIN and CAP_NET_ADMIN: it makes %s. Run the tests as root (in a container: --privileged), or leave it out with -skip '%s'", what, t.Name())
}

// stats has the values of /debug/stats. OpenFds is without the files of an SQLite store: how many connections
// its pool has opened depends on how many reads were under way at once, and the pool has its own bound.
type stats struct {
	Goroutines, OpenFds          int
	Tunnels, Channels, Queued    int
	ForwardedOut, ForwardedIn    int
	RSSBytes, SpoolBytes, Commit int64
}

func (r *relayServer) stats() stats {
	r.t.Helper()
	var s stats
	res, err := http.Get("http://" + r.admin + "/debug/stats")
	if err != nil {
		r.t.Fatalf("stats: %v", err)
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(&s); err != nil {
		r.t.Fatalf("stats: %v", err)
	}
	for to, n := range r.descriptors() {
		if strings.HasPrefix(filepath.Base(to), "relay.db") {
			s.OpenFds -= n
		}
	}
	return s
}

// rssOf returns the resident memory that an answer of /debug/stats states, or 0 if the answer is an error.
func rssOf(res *http.Response) int64 {
	defer res.Body.Close()
	var s stats
	_ = json.NewDecoder(res.Body).Decode(&s)
	return s.RSSBytes
}

// settled waits up to 30 s until relayd has at most base.Goroutines+goroutines goroutines and at most
// base.OpenFds+fds descriptors. It returns the last values, and whether they were within these limits.
func (r *relayServer) settled(base stats, goroutines, fds int) (now stats, ok bool) {
	r.t.Helper()
	for range 300 {
		http.DefaultClient.CloseIdleConnections() // connections of the tests are not leaks of relayd
		now = r.stats()
		if now.Goroutines <= base.Goroutines+goroutines && now.OpenFds <= base.OpenFds+fds {
			return now, true
		}
		<-time.After(100 * time.Millisecond)
	}
	r.t.Logf("descriptors: %v", r.descriptors())
	return now, false
}

// descriptors counts the open descriptors of relayd by their kind: the path of a file, or a word such as
// socket. Behind HAProxy it counts none, because the process of the node that answers is not known.
func (r *relayServer) descriptors() map[string]int {
	kinds := map[string]int{}
	p := r.process.get()
	if p == nil {
		return kinds
	}
	dir := fmt.Sprintf("/proc/%d/fd", p.Cmd.Process.Pid)
	files, _ := os.ReadDir(dir) // the list is empty on a system without /proc
	for _, f := range files {
		to, _ := os.Readlink(filepath.Join(dir, f.Name()))
		kind, _, _ := strings.Cut(to, ":[")
		kinds[kind]++
	}
	return kinds
}

// atRest returns the values of an idle server. It first makes concurrent requests, so that the server has opened all
// connections to its store, and the values include them.
func (r *relayServer) atRest() stats {
	r.t.Helper()
	for range 5 {
		var readers sync.WaitGroup
		for range 16 {
			readers.Go(func() { r.api("GET", "/events?limit=200&q=nothing", nil) })
		}
		readers.Wait()
	}
	<-time.After(1500 * time.Millisecond) // unused channels are closed after a second
	http.DefaultClient.CloseIdleConnections()
	return r.stats()
}

// ready returns the status of /readyz, 0 without an answer.
func (r *relayServer) ready() int {
	client := &http.Client{Timeout: 20 * time.Second}
	defer client.CloseIdleConnections()
	res, err := client.Get("http://" + r.http + "/readyz")
	if err != nil {
		return 0
	}
	res.Body.Close()
	return res.StatusCode
}

// degraded reports whether /readyz says that events go to the spool.
func (r *relayServer) degraded() bool {
	res, err := http.Get("http://" + r.http + "/readyz")
	if err != nil {
		return false
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(res.Body)
	return res.StatusCode == 200 && strings.Contains(string(body), `"store"`)
}

// exit returns the exit code of the process that the method stop has ended.
func (r *relayServer) exit() int {
	return r.process.get().Cmd.ProcessState.ExitCode()
}

func (r *relayServer) online(alias string) bool {
	status, body := r.api("GET", "/aliases/"+alias, nil)
	var a struct{ Online bool }
	return status == 200 && json.Unmarshal(body, &a) == nil && a.Online
}

// alias creates an alias.
func (r *relayServer) alias(name string) {
	r.t.Helper()
	r.must(201, "POST", "/aliases", []byte(`{"name":"`+name+`"}`))
}

// localServer starts a local server that reads every request completely and answers "done".
func localServer(t *testing.T) string {
	t.Helper()
	return serveLocal(t, func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		_, _ = io.WriteString(w, "done")
	})
}

func serveLocal(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s.Listener.Addr().String()
}

// callerTo returns a new HTTP client that reaches every alias at addr.
func callerTo(addr string, timeout time.Duration) *http.Client {
	d := &net.Dialer{Timeout: timeout}
	return &http.Client{Timeout: timeout, Transport: &http.Transport{
		MaxIdleConnsPerHost: 4,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return d.DialContext(ctx, network, addr)
		},
	}}
}

// through calls an alias whose tunnel is up, or will be soon, until the request is no longer queued. A
// request that is still queued after 2 s fails the test.
func (r *relayServer) through(alias, path, body string) (status int, answer string, header http.Header) {
	r.t.Helper()
	begun := time.Now()
	relaytest.Until(r.t, 10*time.Second, alias+" to be reached", func() bool {
		status, answer, header = r.call(alias, path, body)
		return status != 202
	})
	if took := time.Since(begun); took > bound(2*time.Second) {
		r.t.Errorf("requests to %s were queued for %v although its tunnel is up", alias, took)
	}
	return status, answer, header
}

// call sends one request on a new connection and returns status, body and header of the answer; after
// an error the status is 0.
func (r *relayServer) call(alias, path, body string) (int, string, http.Header) {
	client := callerTo(r.http, 60*time.Second)
	defer client.CloseIdleConnections()
	res, err := client.Post("http://"+alias+".localhost"+path, "text/plain", strings.NewReader(body))
	if err != nil {
		return 0, err.Error(), nil
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, "broken: " + err.Error(), res.Header
	}
	return res.StatusCode, string(b), res.Header
}

// drain reads an answer to its end.
func drain(res *http.Response) error {
	defer res.Body.Close()
	_, err := io.Copy(io.Discard, res.Body)
	return err
}

// quantile returns the quantile q of the durations in d, or 0 if there are none. It sorts d.
func quantile(d []time.Duration, q float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return d[min(len(d)-1, int(q*float64(len(d))))]
}

// ownPostgres returns a Postgres server that a test may stop, kill and freeze, and the URL of a schema on it.
// At the end of the test, a frozen server continues.
func ownPostgres(t *testing.T) (*pgtest.Server, string) {
	t.Helper()
	s := pgtest.Start(t, pgtest.Options{Fsync: true}) // committed data must survive a kill
	databaseURL := s.URL(t)
	// The cleanup of the schema runs later and needs a server that is not frozen.
	t.Cleanup(func() { _ = s.Thaw() })
	return s, databaseURL
}

// freeze stops a process until the returned function thaw is called or the test ends.
func freeze(t *testing.T, pid int) (thaw func()) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	thaw = sync.OnceFunc(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
	t.Cleanup(thaw)
	return thaw
}
