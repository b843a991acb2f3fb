package conformance

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"relay/relaytest"
)

// serialServer is Python's http.server with HTTP/1.1 and without threads: it accepts the next connection only
// after the end of the current one.
const serialServer = `
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        body = self.path.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_POST(self):
        if self.path != "/unread":
            self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()
    def log_message(self, *args): pass
http.server.HTTPServer.request_queue_size = 128  # with 5, Linux drops connections and they come a second later
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
server.serve_forever()
`

// startLocal starts a local server and waits until its port accepts connections.
func startLocal(t *testing.T, addr, name string, args ...string) {
	t.Helper()
	relaytest.Start(t, exec.Command(name, args...))
	relaytest.Until(t, 10*time.Second, name+" to listen", func() bool {
		c, err := net.DialTimeout("tcp", addr, time.Second)
		if err != nil {
			return false
		}
		c.Close()
		return true
	})
}

// visit requests paths, with one concurrent request per client. If keep is set, the clients keep their
// connections. It returns the longest duration of a request.
func visit(t *testing.T, addr, host string, keep bool, clients int, method string, paths []string) (longest time.Duration) {
	t.Helper()
	next := make(chan string)
	var mu sync.Mutex
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			transport := &http.Transport{DisableKeepAlives: !keep}
			defer transport.CloseIdleConnections()
			for path := range next {
				took, err := timeRequest(transport, addr, host, method, path)
				mu.Lock()
				longest = max(longest, took)
				mu.Unlock()
				if err != nil {
					t.Errorf("%s %s: %v", method, path, err)
				}
			}
		})
	}
	for _, p := range paths {
		next <- p
	}
	close(next)
	all.Wait()
	return longest
}

func timeRequest(transport *http.Transport, addr, host, method, path string) (time.Duration, error) {
	start := time.Now()
	var body io.Reader
	if method == http.MethodPost {
		body = &io.LimitedReader{R: zeroes{}, N: 1000}
	}
	req, err := http.NewRequest(method, "http://"+addr+path, body)
	if err != nil {
		return 0, err
	}
	req.Host = host
	if body != nil {
		req.ContentLength = 1000
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return time.Since(start), err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode != 200 || string(got) != path) {
		err = fmt.Errorf("%d %.200q", resp.StatusCode, got)
	}
	return time.Since(start), err
}

type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func numberedPaths(n int) []string {
	paths := make([]string, n)
	for i := range paths {
		paths[i] = fmt.Sprintf("/asset/%d", i)
	}
	return paths
}

// startSerial starts the serial server and returns its address.
func startSerial(t *testing.T) string {
	t.Helper()
	script := filepath.Join(t.TempDir(), "serial.py")
	if err := os.WriteFile(script, []byte(serialServer), 0o600); err != nil {
		t.Fatal(err)
	}
	addr := relaytest.FreeAddr(t)
	_, port, _ := net.SplitHostPort(addr)
	startLocal(t, addr, python, script, port)
	return addr
}

// TestUnreadBodyReachesNobodyElse: a local server that answers without reading a body takes the body for the
// next request of the connection. relayd must still give the next caller the answer to its own request.
func TestUnreadBodyReachesNobodyElse(t *testing.T) {
	t.Parallel()
	r := startRelay(t, "")
	r.tunnel("unread", startSerial(t))
	const body = "GET /evil HTTP/1.1\r\nX-Ignore: "
	first := r.dial()
	fmt.Fprintf(first, "POST /unread HTTP/1.1\r\nHost: unread.localhost\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	if resp, err := http.ReadResponse(bufio.NewReader(first), nil); err != nil || resp.StatusCode != 200 {
		t.Fatal(resp, err)
	}
	time.Sleep(50 * time.Millisecond) // a channel is used again only after it has been open for 20 ms
	took := visit(t, r.http, "unread.localhost", true, 1, http.MethodGet, []string{"/mine"})
	t.Logf("the next caller waited %v", took)
}

// TestLocalServerOfOneConnection: if a local server accepts one connection at a time, channels that wait for
// reuse do not block it. Each request takes at most 1.2 times its direct duration plus 200 ms.
func TestLocalServerOfOneConnection(t *testing.T) {
	serveInTime(t, startRelay(t, ""), "serial", startSerial(t))
}

// serveInTime compares requests by plain ssh with direct requests. Each measurement gets a new tunnel, because
// a tunnel remembers how its local server behaved.
func serveInTime(t *testing.T, r *relayServer, alias, addr string) {
	t.Helper()
	for i, c := range []struct {
		name     string
		clients  int
		method   string
		requests int
	}{
		{"sequential", 1, "GET", 20},
		{"sequential with a body", 1, "POST", 20},
		{"20 at once", 20, "GET", 20},
		{"20 at once with a body", 20, "POST", 20},
		{"80 at once", 80, "GET", 80},
		{"page with 20 assets", 6, "GET", 21},
	} {
		paths := numberedPaths(c.requests)
		direct := visit(t, addr, addr, false, c.clients, c.method, paths)
		for j, keep := range []bool{false, true} {
			name := fmt.Sprintf("%s-%d", alias, 2*i+j)
			r.tunnel(name, addr)
			begun := time.Now()
			took := visit(t, r.http, name+".localhost", keep, c.clients, c.method, paths)
			t.Logf("%s, keep-alive %v: longest request %v, directly %v", c.name, keep, took, direct)
			if limit := relaytest.Limit(direct*12/10+200*time.Millisecond, begun); took > limit {
				t.Errorf("%s, keep-alive %v: the longest request took %v, more than %v", c.name, keep, took, limit)
			}
		}
	}
}
