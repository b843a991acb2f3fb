package bench

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// load is one kind of traffic.
type load struct {
	name    string
	senders int
	fresh   bool   // each request has its own connection
	path    string // "" = /hook
	up      bool   // the body has bulkSize bytes
}

var allLoads = []load{
	{name: "keep-alive-1", senders: 1},
	{name: "keep-alive-16", senders: 16},
	{name: "keep-alive-256", senders: 256},
	{name: "new-16", senders: 16, fresh: true},
	{name: "bulk-up", senders: 1, path: "/up", up: true},
	{name: "bulk-down", senders: 1, path: "/down"},
}

// bulkSize is the size of the bodies of the loads named bulk.
const bulkSize = 32 << 20

// answer is the handler of the local server. It reads the body and answers with three bytes, or with bulkSize
// bytes at /down.
func answer(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	if r.URL.Path != "/down" {
		_, _ = io.WriteString(w, "ok\n")
		return
	}
	w.Header().Set("Content-Length", strconv.Itoa(bulkSize))
	block := make([]byte, 256<<10)
	for range bulkSize / len(block) {
		if _, err := w.Write(block); err != nil {
			return
		}
	}
}

// request returns the bytes of one request.
func (l *load) request(host string) []byte {
	path, body := l.path, bytes.Repeat([]byte(`{"type":"invoice.paid","id":"evt_1"}`), 8)
	if path == "" {
		path = "/hook"
	}
	if l.up {
		body = make([]byte, bulkSize)
	}
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n", path, host, len(body))
	if l.fresh {
		head += "Connection: close\r\n"
	}
	return append([]byte(head+"\r\n"), body...)
}

// once sends one request over a new connection and returns its duration.
func (l *load) once(addr, host string) (time.Duration, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	return exchange(conn, bufio.NewReader(conn), l.request(host))
}

// exchange sends a request and reads the answer. If the answer is incomplete, it returns an error, and the
// connection must not be used again.
func exchange(conn net.Conn, in *bufio.Reader, req []byte) (time.Duration, error) {
	began := time.Now()
	_ = conn.SetDeadline(began.Add(30 * time.Second)) // cannot fail: a TCP connection supports deadlines
	if _, err := conn.Write(req); err != nil {
		return 0, err
	}
	res, err := http.ReadResponse(in, nil)
	if err != nil {
		return 0, err
	}
	if _, err = io.Copy(io.Discard, res.Body); err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("answer %s", res.Status)
	}
	return time.Since(began), err
}

// send sends requests with all senders for the duration most. It returns the durations in milliseconds of the
// requests that were answered with 200, and the number of the other requests.
func (l *load) send(addr string, req []byte, most time.Duration) (times []float64, failed int) {
	end := time.Now().Add(most)
	var mu sync.Mutex
	var all sync.WaitGroup
	for range l.senders {
		all.Go(func() {
			own, bad := l.sender(addr, req, end)
			mu.Lock()
			defer mu.Unlock()
			times, failed = append(times, own...), failed+bad
		})
	}
	all.Wait()
	return times, failed
}

func (l *load) sender(addr string, req []byte, end time.Time) (times []float64, failed int) {
	for time.Now().Before(end) {
		dialled := time.Now()
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			failed++
			continue
		}
		in, opening := bufio.NewReaderSize(conn, 64<<10), time.Since(dialled)
		for time.Now().Before(end) {
			took, err := exchange(conn, in, req)
			if err != nil {
				failed++
				break
			}
			times, opening = append(times, float64((took+opening).Microseconds())/1000), 0
			if l.fresh {
				break
			}
		}
		_ = conn.Close()
	}
	return times, failed
}

// measurement is the result of one load on one system. CPU times are in microseconds per request.
type measurement struct {
	Requests    int     `json:"requests"`
	Errors      int     `json:"errors"`
	PerSecond   float64 `json:"perSecond"`
	P50         float64 `json:"p50Ms"`
	P99         float64 `json:"p99Ms"`
	ServerCPU   float64 `json:"serverCpuUs"`
	ClientCPU   float64 `json:"clientCpuUs"`
	DatabaseCPU float64 `json:"databaseCpuUs"`
}

// measure sends a load for the duration of the flag -each. Before that, it sends the load for a quarter of
// the duration, which is not counted.
func (b *bench) measure(s *system, l load) (m measurement) {
	req := l.request(s.host)
	l.send(s.addr, req, *each/4)
	before := [3]float64{cpuOf(s.server), cpuOf(s.client), cpuOf(s.database)}
	began := time.Now()
	times, failed := l.send(s.addr, req, *each)
	took := time.Since(began)
	n := len(times)
	if n == 0 {
		b.Fatalf("%s on %s: no request was answered by 200", l.name, s.name)
	}
	slices.Sort(times)
	return measurement{
		Requests: n, Errors: failed, PerSecond: float64(n) / took.Seconds(), P50: times[n/2], P99: times[n*99/100],
		ServerCPU:   (cpuOf(s.server) - before[0]) / float64(n),
		ClientCPU:   (cpuOf(s.client) - before[1]) / float64(n),
		DatabaseCPU: (cpuOf(s.database) - before[2]) / float64(n),
	}
}

// tick is the unit of the times in /proc/PID/stat, in microseconds. It is a constant of the interface
// (USER_HZ), independent of the kernel's clock.
const tick = 10_000

// cpuOf returns the total CPU time of processes and their descendants, in microseconds. The time of an ended
// process counts in its parent.
func cpuOf(pids []int) (total float64) {
	for _, pid := range pids {
		folder := fmt.Sprintf("/proc/%d/", pid)
		text, _ := os.ReadFile(folder + "stat")
		_, rest, _ := strings.Cut(string(text), ") ") // the name of the program may contain spaces
		if f := strings.Fields(rest); len(f) >= 15 {
			for _, field := range f[11:15] { // utime, stime, cutime, cstime
				n, _ := strconv.ParseFloat(field, 64)
				total += n * tick
			}
		}
		lists, _ := filepath.Glob(folder + "task/*/children") // cannot fail: the pattern is valid
		for _, list := range lists {
			text, _ := os.ReadFile(list)
			for _, field := range strings.Fields(string(text)) {
				child, _ := strconv.Atoi(field)
				total += cpuOf([]int{child})
			}
		}
	}
	return total
}
